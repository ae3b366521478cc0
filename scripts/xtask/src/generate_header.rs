//! The C header of the plugin ABI.

use std::path::PathBuf;

/// Generated files with their text.
pub(crate) fn files() -> anyhow::Result<Vec<(PathBuf, String)>> {
    Ok(Vec::new())
}
