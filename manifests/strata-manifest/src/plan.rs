//! The install plan: every decision of the installer with its reason and its numbers. `--dry-run`
//! prints the very value that the installation then carries out. Sizes are bytes.

use crate::component::component_id;
use crate::{Document, Sha256Digest, Trust, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What will be done, in which order, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstallPlan {
    /// `strata-plan/1.0`.
    pub schema: String,
    pub action: PlanAction,
    /// Half a sentence why it is this action.
    pub action_reason: String,
    pub prefix: String,
    /// The generation that will be current in the end.
    pub generation: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<u64>,
    pub release: PlannedRelease,
    pub backend: PlannedBackend,
    pub devices: Vec<PlannedDevice>,
    pub components: Vec<PlannedComponent>,
    pub models: Vec<PlannedModel>,
    pub disk: Vec<PlannedDisk>,
    /// Bytes that still have to come over the network or from the release's folder.
    pub download_bytes: u64,
    pub steps: Vec<PlannedStep>,
    /// What the user should know and need not act on.
    pub notes: Vec<String>,
    /// What the user should act on; the plan goes on all the same.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlanAction {
    /// Nothing is installed yet.
    Install,
    /// A newer release takes the place of the installed one.
    Update,
    /// The same release with other components, or once more because it was asked for.
    Change,
    /// An older release, because `--allow-downgrade` was given.
    Downgrade,
    /// The generation stays; models come or nothing does.
    Keep,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedRelease {
    pub version: Version,
    pub serial: u64,
    pub from: String,
    pub trust: Trust,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedBackend {
    /// Words of `--backend`.
    pub asked: String,
    pub chosen: String,
    /// Plugins that will be installed, in the order in which they are considered.
    pub plugins: Vec<String>,
    /// What the plugin has to hold code for; absent for the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// No device is here to compute on, so the plugin cannot be tried.
    pub unproven: bool,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedDevice {
    /// PCI address, or what the vendor's tool says where there is none.
    pub uid: String,
    /// Position in the list of `strata-setup detect`, which `--gpus` takes too.
    pub index: u64,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// One of the five states, in its word.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// Whether the plan counts on it.
    pub used: bool,
    pub reason: String,
    /// One line of what to do, when something is to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedComponent {
    pub component: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    pub version: Version,
    pub reason: String,
    /// File name of the archive.
    pub archive: String,
    /// Where it comes from: a path below the release, or a URL.
    pub source: String,
    pub size: u64,
    pub sha256: Sha256Digest,
    pub manifest_sha256: Sha256Digest,
    pub unpacked_bytes: u64,
    /// The same component is in the current generation and is taken from there.
    pub kept: bool,
}

impl PlannedComponent {
    /// `engine-cpu`, `control`: the stem of its files below `components/`.
    pub fn id(&self) -> String {
        component_id(&self.component, self.backend.as_deref())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedModel {
    pub name: String,
    pub reason: String,
    pub files: Vec<PlannedFile>,
    pub fit: Fit,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedFile {
    pub name: String,
    /// In order; several are parts that are joined.
    pub sources: Vec<String>,
    /// Known before it is fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// About how much it is where the exact size comes from the source.
    pub about_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256Digest>,
    /// Where it will lie.
    pub to: String,
    /// It is there already, with this size.
    pub present: bool,
}

/// Whether a model fits this machine, with the numbers that say so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fit {
    pub verdict: FitVerdict,
    /// A sentence with all numbers.
    pub text: String,
    pub weights_bytes: u64,
    /// KV cache at `context` tokens, keys and values in f16.
    pub kv_bytes: u64,
    pub context: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ram_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FitVerdict {
    /// All of it in the memory of the chosen GPUs.
    Gpu,
    /// Experts in the machine's memory, the rest on the GPU.
    GpuAndRam,
    /// In the machine's memory.
    Ram,
    /// Too large for what is here.
    TooLarge,
    /// A number that it depends on is not known.
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedDisk {
    /// A folder on the volume.
    pub path: String,
    pub needed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
    /// What the need is made of.
    pub parts: Vec<DiskPart>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskPart {
    pub what: String,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedStep {
    /// Name of the step, as the journal has it.
    pub step: String,
    pub text: String,
}

impl Document for InstallPlan {
    const SCHEMA: &'static str = "strata-plan/1.0";
}

/// `download.json` of a folder that `--download-only` left: what is in it beside the release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DownloadFolder {
    /// `strata-download/1.0`.
    pub schema: String,
    pub version: Version,
    /// `linux`, `x86_64`.
    pub os: String,
    pub cpu_arch: String,
    /// In the words of `--backend`; absent when everything for the CPU is here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Archives in this folder.
    pub archives: Vec<String>,
    pub models: Vec<DownloadedModel>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DownloadedModel {
    pub name: String,
    pub source: String,
    pub files: Vec<DownloadedFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DownloadedFile {
    /// Relative to the folder of this document, with `/`.
    pub path: String,
    pub size: u64,
    pub sha256: Sha256Digest,
}

impl Document for DownloadFolder {
    const SCHEMA: &'static str = "strata-download/1.0";
}
