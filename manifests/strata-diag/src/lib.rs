//! Errors in one place: the catalogue of stable codes, the [`Diagnose`] trait through which a
//! crate's error says its code, facts and hints, and the only renderer of them (text and JSON).
//!
//! It is not an error type for libraries: each crate keeps its own `thiserror` enum and
//! implements [`Diagnose`] for it. Called by every crate that can fail in front of a user;
//! only the binaries call [`Diagnostic::to_text`] and [`Diagnostic::to_json`].

pub mod catalogue;
mod render;

pub use catalogue::Code;

/// How a program ends. `verify-package` has its own bits on top of this (docs/errors/README.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// What was asked for was done.
    Done,
    /// The work failed: bad input, a fault of the machine or of ours.
    Failed,
    /// The command line itself is wrong; nothing was tried.
    Usage,
    /// Stopped by the user; what was done so far is kept.
    Interrupted,
    /// What `verify-package` found, as bits: 1 damaged, 2 untrusted, 4 incompatible, 8 not checkable; 0 is [`Done`](Self::Done).
    Verdict(u8),
}

impl ExitStatus {
    /// The number the process exits with.
    pub fn number(self) -> u8 {
        match self {
            ExitStatus::Done | ExitStatus::Verdict(0) => 0,
            ExitStatus::Failed => 1,
            ExitStatus::Usage => 2,
            // The shell's own convention for a program that SIGINT ended.
            ExitStatus::Interrupted => 130,
            ExitStatus::Verdict(bits) => 16 + bits,
        }
    }
}

/// What a crate's error type tells about itself beside its sentence (`Display`).
pub trait Diagnose: std::error::Error {
    /// The stable code of this failure.
    fn code(&self) -> &'static Code;

    /// Named facts, in the order they should be read: path, expected, got.
    fn facts(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The messages of the underlying errors, outermost first.
    fn causes(&self) -> Vec<String> {
        let mut causes = Vec::new();
        let mut source = self.source();
        while let Some(cause) = source {
            causes.push(cause.to_string());
            source = cause.source();
        }
        causes
    }

    /// What to do about it, one line each, commands in backticks. Never part of the message.
    fn hints(&self) -> Vec<String> {
        Vec::new()
    }
}

/// One rendered-to-be failure, with its type erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub code: &'static Code,
    /// One lower-case sentence without a full stop.
    pub message: String,
    pub facts: Vec<(&'static str, String)>,
    pub hints: Vec<String>,
    /// The messages of the underlying errors, outermost first.
    pub causes: Vec<String>,
}

impl Diagnostic {
    /// Takes everything a typed error knows.
    pub fn of(error: &dyn Diagnose) -> Self {
        Diagnostic {
            code: error.code(),
            message: error.to_string(),
            facts: error.facts(),
            hints: error.hints(),
            causes: error.causes(),
        }
    }

    /// A failure that has no typed error of its own, made where it is noticed.
    pub fn new(code: &'static Code, message: impl Into<String>) -> Self {
        Diagnostic { code, message: message.into(), facts: Vec::new(), hints: Vec::new(), causes: Vec::new() }
    }

    #[must_use]
    pub fn fact(mut self, name: &'static str, value: impl std::fmt::Display) -> Self {
        self.facts.push((name, value.to_string()));
        self
    }

    #[must_use]
    pub fn hint(mut self, line: impl Into<String>) -> Self {
        self.hints.push(line.into());
        self
    }

    pub fn exit_status(&self) -> ExitStatus {
        self.code.exit
    }
}

impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

/// A diagnostic says what it holds, so that code which passes on any error can pass on this one.
impl Diagnose for Diagnostic {
    fn code(&self) -> &'static Code {
        self.code
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        self.facts.clone()
    }

    fn hints(&self) -> Vec<String> {
        self.hints.clone()
    }

    fn causes(&self) -> Vec<String> {
        self.causes.clone()
    }
}
