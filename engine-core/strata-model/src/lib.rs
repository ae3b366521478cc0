//! Untrusted bytes in, typed model out: GGUF files, their quantised formats, tokenizer and chat
//! template.
//!
//! It knows file formats and nothing of graphs, memory plans or backends: which architectures can
//! run is the engine's business. Called by strata-engine and the `strata` binary. Whatever the
//! bytes are, its functions return a typed error instead of panicking, and take memory in
//! proportion to bytes that are really there, never to a number that a file claims.

pub mod chat;
mod error;
pub mod gguf;
pub mod inspect;
pub mod quant;
pub mod tokenizer;

pub use error::ModelError;
pub use tokenizer::error::TextError;
