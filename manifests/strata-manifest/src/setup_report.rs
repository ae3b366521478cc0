//! What the commands of `strata-setup` print with `--json`, one type a command. Sizes are bytes. The
//! plan and the download folder are documents of their own (`plan`).

use crate::{ProvenDevice, Version};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;

/// `strata-setup install --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct InstalledReport {
    /// `strata-installed/1.0`.
    pub schema: &'static str,
    pub version: Version,
    pub prefix: PathBuf,
    pub generation: u64,
    /// The program to run.
    pub program: PathBuf,
    /// Devices that the plugins were tried on.
    pub proven: Vec<ProvenDevice>,
    /// Plugins that could not be tried.
    pub unproven: Vec<String>,
    /// Names that `strata run` takes now.
    pub models: Vec<String>,
    pub notes: Vec<String>,
}

/// `strata-setup list --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ListReport {
    /// `strata-list/1.0`.
    pub schema: &'static str,
    pub prefix: PathBuf,
    pub generations: Vec<GenerationReport>,
    pub models: Vec<ModelReport>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct GenerationReport {
    pub generation: u64,
    pub current: bool,
    pub version: Version,
    pub files: u64,
    pub bytes: u64,
    /// In the order in which they are considered.
    pub plugins: Vec<String>,
    pub backend: String,
    pub proven: Vec<ProvenDevice>,
    pub unproven: Vec<String>,
    /// Folder or address of the release.
    pub from: String,
    /// Why the release was believed.
    pub trust: String,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ModelReport {
    pub name: String,
    pub source: String,
    pub bytes: u64,
    pub files: Vec<PathBuf>,
}

/// `strata-setup list --models --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CatalogReport {
    /// `strata-catalog-report/1.0`.
    pub schema: &'static str,
    pub models: Vec<CatalogEntryReport>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CatalogEntryReport {
    pub name: String,
    pub title: String,
    pub architecture: String,
    pub licence: String,
    pub bytes: u64,
    /// Whether `bytes` is exact; else the source says when it is fetched.
    pub exact: bool,
    pub recommended: bool,
    /// Whether it fits this machine, with the numbers.
    pub fit: String,
    /// By file: where it comes from; several sources of one file are parts that are joined.
    pub sources: Vec<Vec<String>>,
}

/// `strata-setup list --check --json` and `repair --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct AuditReport {
    /// `strata-audit/1.0`.
    pub schema: &'static str,
    pub generation: u64,
    pub files: u64,
    pub bytes: u64,
    pub damaged: Vec<PathNote>,
    /// The generation that a repair made.
    pub repaired_as: Option<u64>,
    /// Model files that are not what was fetched, or were not.
    pub damaged_models: Vec<PathNote>,
    /// Those of them that are whole now.
    pub mended_models: Vec<PathBuf>,
}

/// A path and what is to be said about it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PathNote {
    pub path: PathBuf,
    pub why: String,
}

/// `strata-setup rollback --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RollbackReport {
    /// `strata-rollback/1.0`.
    pub schema: &'static str,
    pub from: u64,
    pub to: u64,
    pub version: Version,
}

/// `strata-setup uninstall --json` and `gc --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RemovedReport {
    /// `strata-removed/1.0`.
    pub schema: &'static str,
    pub generations: Vec<u64>,
    pub files: u64,
    pub bytes: u64,
    /// Kept archives among them.
    pub archives: u64,
    /// What stayed and why.
    pub left: Vec<PathNote>,
    /// Nothing of anybody's was left in the prefix.
    pub prefix_gone: bool,
}

/// `strata-setup --download-only --print --json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ByHandReport {
    /// `strata-by-hand/1.0`.
    pub schema: &'static str,
    pub folder: PathBuf,
    pub version: Version,
    pub files: Vec<ByHandFile>,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ByHandFile {
    /// Below the folder, with `/`.
    pub place: String,
    /// What it is for.
    pub why: String,
    /// Exact, where it is known before the source is asked.
    pub size: Option<u64>,
    pub about_bytes: u64,
    pub sha256: Option<String>,
    /// In order; several are parts that are joined.
    pub sources: Vec<String>,
}
