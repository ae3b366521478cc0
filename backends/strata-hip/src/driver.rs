//! The HIP runtime: its functions by name, one safe wrapper a call. All `unsafe` of this crate is here
//! and in `driver/`.
//!
//! An own table and not a crate of bindings: one library for ROCm 5, 6 and 7, whose majors differ in
//! one struct only, and a function that a runtime lacks must be a sentence.
#![expect(unsafe_code, reason = "calls into the HIP runtime's library")]

mod api;
mod card;
mod context;
mod library;

pub use api::HipRuntime;
pub use context::HipDriver;
