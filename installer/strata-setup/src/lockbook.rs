//! The lock file of a command: what sources of models were resolved to, read before anything is asked and
//! written when a file came.

use crate::outcome::Outcome;
use std::path::PathBuf;
use strata_diag::Diagnostic;
use strata_diag::catalogue::fetching::FETCH_LOCKED;
use strata_diag::catalogue::general::FILE_UNWRITABLE;
use strata_manifest::{Document, Lock};

/// Where the lock file is, and how strictly it is meant.
#[derive(Debug, Clone, Default)]
pub(crate) struct Book {
    /// `None`: nothing is written down.
    pub(crate) path: Option<PathBuf>,
    /// Nothing is fetched that it does not hold.
    pub(crate) locked: bool,
    /// What it holds is not asked for; what comes is written into it.
    pub(crate) update: bool,
}

impl Book {
    /// What was written down; nothing where there is no file yet.
    pub(crate) fn open(&self) -> Outcome<Lock> {
        match self.path.as_ref().filter(|path| path.exists()) {
            Some(path) => Ok(Lock::read(path)?),
            None => Ok(Lock::default()),
        }
    }

    pub(crate) fn write(&self, lock: &Lock) -> Outcome<()> {
        let Some(path) = &self.path else { return Ok(()) };
        if let Some(folder) = path.parent() {
            fs_err::create_dir_all(folder).map_err(|error| {
                Diagnostic::new(FILE_UNWRITABLE, format!("cannot make `{}`", folder.display())).fact("because", error)
            })?;
        }
        Ok(lock.write(path)?)
    }

    /// The failure of `--locked`.
    pub(crate) fn absent(&self, sources: &[String]) -> Diagnostic {
        let shown: Vec<String> = sources.iter().map(|source| strata_fetch::shown(source)).collect();
        let message = format!("`{}` is not in the lock file", shown.join(", "));
        let path = self.path.as_ref().map_or_else(|| "none".to_owned(), |path| path.display().to_string());
        Diagnostic::new(FETCH_LOCKED, message)
            .fact("lock file", path)
            .hint("the same command without `--locked` resolves it and writes it down")
    }
}
