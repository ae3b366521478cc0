//! The CUDA driver: its functions by name out of the library that the system has, one safe wrapper
//! a call, every status looked at. All `unsafe` of this crate is here and in `driver/`.
//!
//! An own table and not a crate of bindings: a function that an old driver lacks must be a sentence
//! (which one, which driver is needed) and not the end of the process, and tests bring a stand-in.
#![expect(unsafe_code, reason = "calls into the CUDA driver's library")]

mod api;
mod context;

pub(crate) use api::Api;
pub(crate) use context::CudaDriver;
