//! Tokenizers and chat templates from the outside: through GGUF files, real ones where they are at
//! hand and made-up ones everywhere.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests, which may panic and say what they skip"
)]

mod chat;
mod made_up;
mod reference;
mod support;
