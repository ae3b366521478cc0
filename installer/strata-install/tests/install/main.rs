//! Installing, failing and managing, on releases made for the test.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails, and prints its table")]

#[path = "../support/mod.rs"]
mod support;

mod faults;
mod life;
mod planning;
mod trust;
