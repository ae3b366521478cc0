//! `release.json`: the index of a release. Everything that can be installed, with size and digest,
//! a counter that only grows and a date after which it is no longer trusted. It is signed; what is
//! in it need not be.

use crate::component::{CHUNK_BYTES, component_id};
use crate::{AbiRange, Document, PackagePath, Sha256Digest, UtcTime, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Name of the index in a release folder.
pub const RELEASE_FILE: &str = "release.json";
/// Name of the checksum list beside it.
pub const SUMS_FILE: &str = "SHA256SUMS.txt";

/// A release: one version of every component, and the models offered with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Release {
    /// `strata-release/1.0`.
    pub schema: String,
    pub version: Version,
    /// Rollback counter: who has seen a number refuses an index with a lower one.
    pub serial: u64,
    pub created: UtcTime,
    /// From this moment on the index is stale: a newer one must be fetched.
    pub expires: UtcTime,
    /// Sorted by component and backend.
    pub components: Vec<ReleaseComponent>,
    #[serde(default)]
    pub models: Vec<ReleaseModel>,
}

/// One component, in one or several archive formats that hold the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseComponent {
    pub component: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    pub version: Version,
    pub os: String,
    pub cpu_arch: String,
    #[serde(default)]
    pub gpu_targets: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abi: Option<AbiRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libc_floor: Option<String>,
    /// Bytes of its files once unpacked, `component.json` included.
    pub unpacked_bytes: u64,
    /// Digest of its `component.json`, the same in every archive.
    pub manifest_sha256: Sha256Digest,
    pub archives: Vec<ReleaseFile>,
}

/// A file to fetch. It lies in the release folder (`path`) or elsewhere (`url`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseFile {
    /// Relative to the folder of the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PackagePath>,
    /// `https:` address, or another source that the fetcher reads (`hf:owner/repo@rev/path`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// `tar.gz`, `tar.zst`, `zip`, `gguf`.
    pub format: String,
    /// Bytes.
    pub size: u64,
    pub sha256: Sha256Digest,
    /// SHA-256 over the chunk digests (32 bytes each, in order); only for files above 8 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks_sha256: Option<Sha256Digest>,
    /// The digests of its 8 MiB pieces, where the index carries them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<Sha256Digest>,
}

/// A model that the release offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseModel {
    /// What `strata run NAME` takes.
    pub name: String,
    /// Its files in order: the parts of a split GGUF, then its companions.
    pub files: Vec<ReleaseFile>,
}

impl Document for Release {
    const SCHEMA: &'static str = "strata-release/1.0";

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.expires <= self.created {
            faults.push(format!("it expires at {}, not after {}, when it was made", self.expires, self.created));
        }
        let mut ids = BTreeSet::new();
        for component in &self.components {
            let id = component.id();
            if component.version != self.version {
                faults.push(format!("{id} has version {}, the release {}", component.version, self.version));
            }
            if !ids.insert((id.clone(), component.os.clone(), component.cpu_arch.clone())) {
                faults.push(format!("{id} is listed twice for {} {}", component.os, component.cpu_arch));
            }
            if component.archives.is_empty() {
                faults.push(format!("{id} has no archive"));
            }
        }
        let mut names = BTreeSet::new();
        for model in &self.models {
            if !names.insert(model.name.as_str()) {
                faults.push(format!("model `{}` is listed twice", model.name.escape_default()));
            }
        }
        let mut paths = BTreeSet::new();
        for file in self.files() {
            file.faults(&mut faults);
            if let Some(path) = file.path.as_ref().filter(|path| !paths.insert(path.as_str().to_ascii_lowercase())) {
                faults.push(format!("`{path}` is listed twice"));
            }
        }
        faults
    }
}

impl Release {
    /// Every file of the index.
    pub fn files(&self) -> impl Iterator<Item = &ReleaseFile> {
        let archives = self.components.iter().flat_map(|component| &component.archives);
        archives.chain(self.models.iter().flat_map(|model| &model.files))
    }
}

impl ReleaseComponent {
    /// `control`, `engine-cpu`.
    pub fn id(&self) -> String {
        component_id(&self.component, self.backend.as_deref())
    }
}

impl ReleaseFile {
    /// Path or address, for messages.
    pub fn place(&self) -> &str {
        self.path.as_ref().map(PackagePath::as_str).or(self.url.as_deref()).unwrap_or("nowhere")
    }

    fn faults(&self, faults: &mut Vec<String>) {
        if self.path.is_some() == self.url.is_some() {
            faults.push(format!("`{}` needs either a path or a url", self.place().escape_default()));
        }
        if !self.chunks.is_empty() {
            if self.chunks.len() as u64 != self.size.div_ceil(CHUNK_BYTES) {
                let (size, got) = (self.size, self.chunks.len());
                faults.push(format!("`{}` has {size} bytes and {got} chunk digests", self.place().escape_default()));
            }
            if self.chunks_sha256 != Some(Sha256Digest::of_digests(&self.chunks)) {
                faults
                    .push(format!("`chunks_sha256` of `{}` is not that of its chunks", self.place().escape_default()));
            }
        }
    }
}
