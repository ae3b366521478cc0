//! How a command ends: a status, or a diagnostic that `main` renders.

use strata_diag::catalogue::general::FILE_UNWRITABLE;
use strata_diag::{Diagnose, Diagnostic, ExitStatus};

pub(crate) type Outcome<T = ExitStatus> = Result<T, Stop>;

/// Why a command stopped early.
#[derive(Debug)]
pub(crate) struct Stop(pub(crate) Box<Diagnostic>);

impl<E: Diagnose> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop(Box::new(Diagnostic::of(&error)))
    }
}

/// Standard output that cannot be written.
pub(crate) fn no_output(error: &std::io::Error) -> Stop {
    Stop(Box::new(Diagnostic::new(FILE_UNWRITABLE, "standard output cannot be written").fact("because", error)))
}
