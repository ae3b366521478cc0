//! The receipt: what is installed in a prefix. The installer writes it, the engine reads it, and
//! they meet nowhere else.

use crate::{Document, Sha256Digest, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `receipt.json` in the root of a prefix. All paths in it are relative to that root, with `/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Receipt {
    /// `strata-receipt/1.0`.
    pub schema: String,
    pub version: Version,
    /// Every file that the installation put there, sorted by path; uninstalling removes just these.
    pub files: Vec<InstalledFile>,
    /// Plugins in the order in which they are considered.
    pub plugins: Vec<InstalledPlugin>,
    #[serde(default)]
    pub models: Vec<InstalledModel>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstalledFile {
    pub path: String,
    pub size: u64,
    pub sha256: Sha256Digest,
    /// Permission bits, octal text: `0755`.
    pub mode: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstalledPlugin {
    pub name: String,
    /// Path of the descriptor.
    pub descriptor: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstalledModel {
    /// What `strata run NAME` takes.
    pub name: String,
    /// Path of the (first) GGUF file: relative to the prefix, or absolute for a model kept elsewhere.
    pub path: String,
    pub size: u64,
    pub sha256: Sha256Digest,
}

impl Document for Receipt {
    const SCHEMA: &'static str = "strata-receipt/1.0";
}
