//! The installer through its command line.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails, and says what it skips")]

// One way to make releases for the tests of both installer crates.
#[path = "../../../strata-install/tests/support/mod.rs"]
#[expect(dead_code, reason = "what only the other crate's tests use")]
mod releases;
mod support;

mod bootstrap;
mod crashes;
mod errors;
mod fetching;
mod flow;
mod machines;
mod manage;
mod network;
mod proof;
mod real;
mod reference;
mod terminal;
mod together;
mod trials;
