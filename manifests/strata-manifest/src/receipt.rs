//! The receipt: what is installed. The installer writes it, the engine reads it, and they meet
//! nowhere else. A generation has one receipt; the models beside all generations have one list.

use crate::{Document, PackagePath, PublicKey, Sha256Digest, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `receipt.json` in the root of a generation (or of a prefix that `cargo xtask stage` lays out).
/// All paths in it are relative to that root, with `/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Receipt {
    /// `strata-receipt/1.0`.
    pub schema: String,
    pub version: Version,
    /// Every file that the installation put there, sorted by path; uninstalling removes just these.
    pub files: Vec<InstalledFile>,
    /// Plugins in the order in which they are considered.
    pub plugins: Vec<InstalledPlugin>,
    /// Models of a prefix without generations; an installed prefix has them in [`ModelStore`].
    #[serde(default)]
    pub models: Vec<InstalledModel>,
    /// How it came here; absent in a prefix that was laid out from a build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallRecord>,
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

/// How a generation was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstallRecord {
    /// Number of the folder in `generations/`.
    pub generation: u64,
    /// The generation that was current before; what `rollback` returns to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<u64>,
    /// Seconds since 1970.
    pub installed_at: u64,
    pub release: ReleaseOrigin,
    pub components: Vec<InstalledComponent>,
    /// In the words of `--backend`: what was asked for, what was chosen and why.
    pub backend_asked: String,
    pub backend: String,
    pub backend_reason: String,
    /// Devices of the proof run, by identity.
    #[serde(default)]
    pub proven: Vec<ProvenDevice>,
    /// Plugins that were installed for a card that is not here, so that nothing was computed.
    #[serde(default)]
    pub unproven: Vec<String>,
}

/// The release that a generation came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseOrigin {
    pub version: Version,
    /// Rollback counter of the index; a lower one is refused later.
    pub serial: u64,
    /// Folder or URL.
    pub from: String,
    pub trust: Trust,
}

/// Why an index was believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "by")]
pub enum Trust {
    /// Signed by a key that the user named.
    NamedKey { key_id: String },
    /// Signed by a key that this build carries.
    BuiltIn { key_id: String },
    /// Signed by the key that was pinned when this prefix was first installed.
    Pinned { key_id: String },
    /// Signed by a key that is seen for the first time and pinned now.
    FirstUse { key_id: String },
    /// Not signed, installed because `--allow-unsigned` was given.
    Unsigned,
    /// Written by a newer Strata.
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstalledComponent {
    /// `control`, `engine`.
    pub component: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    pub version: Version,
    /// Digest of its `component.json`.
    pub manifest_sha256: Sha256Digest,
    /// File name, bytes and digest of the archive that it came from.
    pub archive: String,
    pub archive_size: u64,
    pub archive_sha256: Sha256Digest,
}

/// What the proof run said about one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProvenDevice {
    pub plugin: String,
    /// Identity that `strata run --device` takes.
    pub uid: String,
    pub passed: bool,
    /// The failure's sentence, empty when it passed.
    #[serde(default)]
    pub detail: String,
}

impl Document for Receipt {
    const SCHEMA: &'static str = "strata-receipt/1.0";

    /// Files are removed by this list, so none of it may lead out of the folder that it is for.
    fn faults(&self) -> Vec<String> {
        let files = self.files.iter().map(|file| &file.path);
        let plugins = self.plugins.iter().map(|plugin| &plugin.descriptor);
        let bad = |path: &String| {
            path.parse::<PackagePath>().err().map(|error| format!("`{}`: {error}", path.escape_debug()))
        };
        files.chain(plugins).filter_map(bad).collect()
    }
}

/// `models/models.json` below a prefix: models that all its generations share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelStore {
    /// `strata-models/1.0`.
    pub schema: String,
    /// Sorted by name.
    pub models: Vec<StoredModel>,
}

impl ModelStore {
    pub fn empty() -> ModelStore {
        ModelStore { schema: ModelStore::SCHEMA.to_owned(), models: Vec::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoredModel {
    /// What `strata run NAME` takes.
    pub name: String,
    /// Where it came from: `pip:…`, `hf:…`, `https:…` or `folder`.
    pub source: String,
    /// The shards in order; `strata run` opens the first.
    pub files: Vec<StoredFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoredFile {
    /// Relative to the folder of this document, or absolute for a model kept elsewhere.
    pub path: String,
    pub size: u64,
    pub sha256: Sha256Digest,
    /// Whether it lay there before and is used in place: such a file is never removed.
    #[serde(default)]
    pub adopted: bool,
}

impl Document for ModelStore {
    const SCHEMA: &'static str = "strata-models/1.0";

    /// A model that lies below the list's folder stays below it.
    fn faults(&self) -> Vec<String> {
        let files = self.models.iter().flat_map(|model| &model.files);
        let leads_out = |path: &&String| path.split('/').any(|part| part == "..") || path.is_empty();
        let bad = files.map(|file| &file.path).filter(leads_out);
        bad.map(|path| format!("`{}` leads out of the folder of models", path.escape_debug())).collect()
    }
}

/// `state/trust.json` below a prefix: the keys that were believed at its first installation and the
/// highest counters seen since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PinnedTrust {
    /// `strata-pins/1.0`.
    pub schema: String,
    /// Keys that may sign a key list, or a release directly.
    pub roots: Vec<PublicKey>,
    /// Keys that may sign a release, where no root was known.
    pub keys: Vec<PublicKey>,
    /// Highest counter of a release that was installed.
    pub highest_serial: u64,
    /// Highest counter of a key list that was seen.
    pub highest_keys_serial: u64,
}

impl PinnedTrust {
    pub fn empty() -> PinnedTrust {
        PinnedTrust {
            schema: PinnedTrust::SCHEMA.to_owned(),
            roots: Vec::new(),
            keys: Vec::new(),
            highest_serial: 0,
            highest_keys_serial: 0,
        }
    }

    /// Whether any key is pinned.
    pub fn has_keys(&self) -> bool {
        !self.roots.is_empty() || !self.keys.is_empty()
    }
}

impl Document for PinnedTrust {
    const SCHEMA: &'static str = "strata-pins/1.0";
}
