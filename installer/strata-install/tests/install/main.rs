//! Installing, failing and managing, on releases made for the test.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod faults;
mod life;
mod planning;
mod trust;
