//! What can go wrong before a verdict: the plugin cannot be opened, or the gaps file is unusable.
//! A wrong result is no error here; it is a line of the report.

use std::path::PathBuf;
use strata_diag::{Code, Diagnose, catalogue};
use strata_plugin_host::PluginError;

#[derive(Debug, thiserror::Error)]
pub enum ConformError {
    #[error(transparent)]
    Plugin(#[from] PluginError),
    #[error("the list of known gaps is not usable: {what}")]
    Gaps { path: Option<PathBuf>, what: String },
    #[error("no group matches the filter `{filter}`")]
    NoGroup { filter: String },
}

impl Diagnose for ConformError {
    fn code(&self) -> &'static Code {
        match self {
            ConformError::Plugin(error) => error.code(),
            ConformError::Gaps { .. } => catalogue::general::BAD_INPUT,
            ConformError::NoGroup { .. } => catalogue::general::BAD_OPTION,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        match self {
            ConformError::Plugin(error) => error.facts(),
            ConformError::Gaps { path, .. } => {
                let path = path.as_ref().map_or("built in".to_owned(), |path| path.display().to_string());
                vec![("file", path)]
            }
            ConformError::NoGroup { .. } => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            ConformError::Plugin(error) => error.hints(),
            ConformError::Gaps { .. } => vec!["docs/CONFORMANCE.md says what an entry holds".to_owned()],
            ConformError::NoGroup { .. } => vec!["`strata-conform --list` prints the groups' names".to_owned()],
        }
    }
}
