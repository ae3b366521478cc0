//! The engine against servers that misbehave.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails, and prints its counts")]

mod cases;
mod hostile;
mod listings;
mod matrix;
mod resume;
mod routes;
mod support;
