//! The server over real sockets, with a scripted room in place of a model: what clients see, when
//! they leave, what they may not do. Cases of the reference data are tests named for them.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails, and says what it skips")]

mod gone;
mod health;
mod hostile;
mod keys;
mod limits;
mod port;
mod streams;
mod support;
