//! The descriptor that lies beside a plugin library and is read before the library is opened.

use crate::{Document, Sha256Digest, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a plugin drives. Unknown kinds of a newer Strata are kept as such and never chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BackendKind {
    Cpu,
    Cuda,
    Hip,
    #[serde(other)]
    Unknown,
}

impl BackendKind {
    /// The word of the `--backend` flag.
    pub fn word(self) -> &'static str {
        match self {
            BackendKind::Cpu => "cpu",
            BackendKind::Cuda => "cuda",
            BackendKind::Hip => "hip",
            BackendKind::Unknown => "unknown",
        }
    }

    pub fn is_gpu(self) -> bool {
        matches!(self, BackendKind::Cuda | BackendKind::Hip)
    }
}

/// `<stem>.plugin.json`, written when the plugin is packaged, in the folder of its library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PluginDescriptor {
    /// `strata-plugin/1.0`.
    pub schema: String,
    /// `cpu`, `cuda`, `hip-gfx906`: what the library's table says as well.
    pub name: String,
    pub version: Version,
    pub kind: BackendKind,
    /// Lowest ABI version that the plugin speaks, `major.minor`.
    pub abi_lowest: String,
    /// Highest ABI version that the plugin speaks, `major.minor`.
    pub abi_highest: String,
    /// Hash of the ABI layout that it was built with.
    pub layout_hash: String,
    /// `linux`.
    pub os: String,
    /// `x86_64`.
    pub cpu_arch: String,
    /// What it holds kernels for: `x86_64`, `gfx906`, `gfx1100`, `sm_90`, `compute_80`. Feature bits follow a
    /// colon as in AMD's target ids (`gfx906:xnack-`).
    pub targets: Vec<String>,
    /// File name of the library in the descriptor's own folder; never a path.
    pub library: String,
    pub sha256: Sha256Digest,
    /// Bytes of the library.
    pub size: u64,
    /// Lowest glibc that has every symbol it needs, `2.28`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libc_floor: Option<String>,
    /// Lowest driver version that it works with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_floor: Option<String>,
    /// What it has not been run on, a sentence: `no AMD card has run this plugin`. Absent where it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproven: Option<String>,
}

impl Document for PluginDescriptor {
    const SCHEMA: &'static str = "strata-plugin/1.0";
}
