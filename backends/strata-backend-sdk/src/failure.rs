//! What a plugin call fails with: a status for the table, a text for `last_error`.

use strata_backend_abi::StrataStatus;

/// Why a call did not work. The status crosses the boundary as the call's result, the text is
/// what the host reads through `last_error` (or as the reason of an unsupported op).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Never `Ok`; a failure that says `Ok` reaches the host as `Internal`.
    pub status: StrataStatus,
    /// One lower-case line with the facts: what was asked for, what there is.
    pub text: String,
}

/// Result of every call that a plugin implements.
pub type Result<T> = core::result::Result<T, Failure>;

impl Failure {
    /// A failure with any status.
    pub fn new(status: StrataStatus, text: impl Into<String>) -> Failure {
        Failure { status, text: text.into() }
    }

    /// The device cannot do this; not an error of the caller.
    pub fn unsupported(text: impl Into<String>) -> Failure {
        Failure::new(StrataStatus::Unsupported, text)
    }

    /// Device or host memory is used up.
    pub fn out_of_memory(text: impl Into<String>) -> Failure {
        Failure::new(StrataStatus::OutOfMemory, text)
    }

    /// The plugin's own fault.
    pub fn internal(text: impl Into<String>) -> Failure {
        Failure::new(StrataStatus::Internal, text)
    }

    /// A call that the host should not have made. The text gets the words "host bug" in front, so
    /// that whoever reads it looks at the right side of the boundary.
    pub fn host_bug(text: impl core::fmt::Display) -> Failure {
        Failure::new(StrataStatus::InvalidCall, format!("host bug: {text}"))
    }
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} ({:?})", self.text, self.status)
    }
}

impl core::error::Error for Failure {}
