//! One file a command.

pub(crate) mod detect;
pub(crate) mod download;
pub(crate) mod install;
pub(crate) mod list;
pub(crate) mod manage;
pub(crate) mod mend;
pub(crate) mod reference;
