//! The engine through its public interface: what files it takes (`files`), what steps give
//! (`steps`), and how far real and made-up models are from exact arithmetic (`gates`). Tests that
//! compute do so through the CPU plugin, as the product does.

mod files;
mod gates;
mod plugin;
mod steps;
mod support;
