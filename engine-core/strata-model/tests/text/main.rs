//! Tokenizers and chat templates from the outside: through GGUF files, real ones where they are at
//! hand and made-up ones everywhere.

mod chat;
mod made_up;
mod reference;
mod support;
