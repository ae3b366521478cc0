//! Installing, failing and managing, on releases made for the test.

#[path = "../support/mod.rs"]
mod support;

mod faults;
mod life;
mod planning;
mod trust;
