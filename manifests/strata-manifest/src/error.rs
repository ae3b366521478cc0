//! What can be wrong with a document.

use std::path::PathBuf;
use strata_diag::catalogue::general::{BAD_INPUT, FILE_UNREADABLE, FILE_UNWRITABLE};
use strata_diag::{Code, Diagnose};

/// A document that cannot be read, understood or written.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("`{text}` is no version: {why}")]
    BadVersion { text: String, why: String },
    #[error("`{text}` is no SHA-256: 64 hexadecimal digits are needed")]
    BadDigest { text: String },
    #[error("cannot read `{}`", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("cannot write `{}`", path.display())]
    Unwritable { path: PathBuf, source: std::io::Error },
    #[error("`{}` has {bytes} bytes, more than the {limit} that such a document may have", path.display())]
    TooLarge { path: PathBuf, bytes: u64, limit: u64 },
    #[error("`{}` is no valid document: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
    #[error("`{}` is a document of kind `{found}`, `{expected}` is needed", path.display())]
    WrongSchema { path: PathBuf, found: String, expected: String },
}

impl Diagnose for ManifestError {
    fn code(&self) -> &'static Code {
        match self {
            ManifestError::Unreadable { .. } => FILE_UNREADABLE,
            ManifestError::Unwritable { .. } => FILE_UNWRITABLE,
            _ => BAD_INPUT,
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            ManifestError::WrongSchema { found, expected, .. }
                if found.split('/').next() == expected.split('/').next() =>
            {
                vec!["the document was written by a newer Strata: update this one".to_owned()]
            }
            _ => Vec::new(),
        }
    }
}
