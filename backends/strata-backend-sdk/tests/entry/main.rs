//! Drives a small backend through the raw table, the way a host in C would: what the SDK promises
//! about sizes, handles, texts, panics and lifetimes.
//!
//! `backend` is what a plugin author writes. It stands under the workspace's lints, `unsafe_code`
//! denied, without any exception: that is the proof that `export_backend!` needs none.

#[cfg(test)]
mod backend;
#[cfg(test)]
mod calls;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod negotiation;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod raw_host;
