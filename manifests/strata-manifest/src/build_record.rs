//! The build record: the JSON that every ELF of the product carries in a note section
//! (strata-build-record puts it there) and that documents repeat.

use crate::{Document, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who built what from which source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuildRecord {
    /// `strata-build/1.0`.
    pub schema: String,
    /// Cargo package of the program or plugin.
    pub name: String,
    pub version: Version,
    /// Names this build for people: version, commit and whether the tree was changed.
    pub build_id: String,
    /// Commit, 40 hexadecimal digits, or `unknown`.
    pub commit: String,
    /// Whether tracked files differed from the commit.
    pub dirty: bool,
    /// Target triple.
    pub target: String,
    /// The compiler's own version line.
    pub toolchain: String,
    /// Seconds since 1970 that stand for the source's date (`SOURCE_DATE_EPOCH`, else the commit's).
    pub source_epoch: u64,
}

impl Document for BuildRecord {
    const SCHEMA: &'static str = "strata-build/1.0";
}
