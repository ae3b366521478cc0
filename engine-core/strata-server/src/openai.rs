//! OpenAI's interface: what its paths share.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod models;
pub(crate) mod read;
pub(crate) mod responses;
pub(crate) mod write;
