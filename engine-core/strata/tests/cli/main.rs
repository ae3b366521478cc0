//! The command line as a user sees it: arguments and standard input in; standard output, standard
//! error and exit status out. The program runs with the CPU plugin of this build, and real models
//! where they are cached.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails, and says what it skips")]

mod bench;
mod chat;
mod completions;
mod container;
mod doctor;
mod errors;
mod hip;
mod hostile;
mod nvml;
mod package;
mod ps;
mod reference;
mod run;
mod serve;
mod service;
mod support;
mod verify;
mod verify_laws;
mod version;
