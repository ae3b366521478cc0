//! How a command ends: a status, or a diagnostic that `main` renders.

use crate::printer::Gone;
use strata_diag::catalogue::general::FILE_UNWRITABLE;
use strata_diag::{Diagnose, Diagnostic, ExitStatus};

pub(crate) type Outcome<T = ExitStatus> = Result<T, Stop>;

/// Why a command stopped early.
#[derive(Debug)]
pub(crate) enum Stop {
    Failed(Box<Diagnostic>),
    /// Nobody reads standard output any more: nothing is left to say.
    Gone,
}

impl From<Gone> for Stop {
    fn from(gone: Gone) -> Stop {
        match gone {
            Gone::Closed => Stop::Gone,
            Gone::Failed(error) => {
                let message = "standard output cannot be written";
                Stop::Failed(Box::new(Diagnostic::new(FILE_UNWRITABLE, message).fact("because", error)))
            }
        }
    }
}

impl<E: Diagnose> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Failed(Box::new(Diagnostic::of(&error)))
    }
}
