//! One file a command.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod explain;
pub(crate) mod inspect;
pub(crate) mod package;
pub(crate) mod ps;
pub(crate) mod reference;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod stop;
pub(crate) mod tokenize;
pub(crate) mod verify_package;
pub(crate) mod version;
