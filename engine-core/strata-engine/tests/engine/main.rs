//! The engine through its public interface: what files it takes (`files`), what steps give
//! (`steps`), and how far real and made-up models are from exact arithmetic (`gates`). Tests that
//! compute do so through the CPU plugin, as the product does.
#![expect(clippy::unwrap_used, reason = "helpers of tests, too, fail by panicking")]
#![expect(clippy::print_stdout, reason = "a skipped test says why")]

mod batch;
mod files;
mod gates;
mod grammar;
mod graphs;
mod oracle;
mod plugin;
mod steps;
mod support;
