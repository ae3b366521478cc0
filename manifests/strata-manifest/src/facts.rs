//! Host facts: what the detector found, with its evidence. Sizes are bytes. `strata-setup detect --json` prints it;
//! the installer plans from it, `strata doctor` explains it.

use crate::Document;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostFacts {
    /// `strata-host-facts/1.0`.
    pub schema: String,
    pub os: OsFacts,
    pub cpu: CpuFacts,
    pub memory: MemoryFacts,
    pub disks: Vec<DiskFacts>,
    /// In PCI order; what has no PCI address comes last.
    pub gpus: Vec<GpuFacts>,
    /// What stands behind `--backend cuda` and `--backend hip` here: the best of their GPUs, or that there is none.
    #[serde(default)]
    pub backends: Vec<BackendFacts>,
    /// Environment variables that hide devices, and what each one does here.
    pub masks: Vec<MaskFacts>,
    /// Every source that was asked, and how that went.
    pub sources: Vec<SourceFacts>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OsFacts {
    /// `linux`.
    pub name: String,
    pub kernel: Option<String>,
    pub distribution: Option<String>,
    /// Version of glibc: `2.36`.
    pub libc: Option<String>,
    /// `docker`, `podman`, `lxc`, …
    pub container: Option<String>,
    pub wsl: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuFacts {
    /// `x86_64`.
    pub arch: String,
    pub model: Option<String>,
    /// `x86-64-v3`.
    pub isa_level: Option<String>,
    /// Of those that kernels are chosen by: `avx2`, `avx512f`, `avx512_vnni`, …
    pub features: Vec<String>,
    pub physical_cores: Option<u64>,
    pub logical_cpus: Option<u64>,
    /// CPUs that this process may run on.
    pub usable_cpus: Option<u64>,
    /// CPU time that the control groups allow, in CPUs; absent when there is no limit.
    pub quota: Option<f64>,
    /// Efficiency cores among the logical CPUs of a mixed processor.
    pub efficiency_cpus: Option<u64>,
    pub numa_nodes: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryFacts {
    pub total: Option<u64>,
    pub available: Option<u64>,
    /// What the control groups allow, where that is less than all.
    pub limit: Option<u64>,
}

impl MemoryFacts {
    /// What a program can count on.
    pub fn usable(&self) -> Option<u64> {
        match (self.total, self.limit) {
            (Some(total), Some(limit)) => Some(total.min(limit)),
            (total, limit) => total.or(limit),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskFacts {
    pub path: String,
    pub total: u64,
    pub free: u64,
    /// Whether it is a spinning disk; absent where nothing says.
    pub rotational: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GpuVendor {
    Amd,
    Nvidia,
    Intel,
    #[serde(other)]
    Other,
}

/// The states of a device. One that is absent is not listed among the GPUs: its backend says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GpuState {
    Absent,
    DriverMissing,
    NoPermission,
    DriverMismatched,
    Usable,
    /// Nothing said, or nothing could be read.
    #[serde(other)]
    Undetermined,
}

/// A kind of GPU that Strata has a backend for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackendFacts {
    /// `cuda`, `hip`.
    pub backend: String,
    pub vendor: GpuVendor,
    /// The best state among its GPUs.
    pub state: GpuState,
    /// What was looked at, or which GPUs there are; a sentence each.
    pub evidence: Vec<String>,
    /// One line of what to do, when something is to be done.
    pub advice: Option<String>,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuFacts {
    /// PCI address `0000:03:00.0`.
    pub pci: Option<String>,
    /// AMD's `unique_id` (`0x…`) or NVIDIA's UUID: the identity that survives a change of slot.
    pub unique_id: Option<String>,
    pub vendor: GpuVendor,
    /// `1002:66a1`.
    pub pci_id: Option<String>,
    pub name: String,
    /// What code has to be built for: `gfx906`, `sm_86`. Absent when no source names it; never guessed.
    pub target: Option<String>,
    /// Plugin that drives this target, by the table of this build.
    pub plugin: Option<String>,
    pub state: GpuState,
    /// What was seen, a sentence each.
    pub evidence: Vec<String>,
    /// One line of what to do, when something is to be done.
    pub advice: Option<String>,
    pub memory: GpuMemory,
    pub driver: Option<String>,
    pub link: Option<LinkFacts>,
    /// Whether a screen hangs on it.
    pub display: Option<bool>,
    /// It shares the processor's memory.
    pub integrated: bool,
    /// It sleeps and was not woken, so what only a driver tells is not known.
    #[serde(default)]
    pub asleep: bool,
    /// Whether the environment's masks leave it visible.
    pub visible: bool,
    pub mig: Vec<MigFacts>,
}

/// The three numbers that an APU reports; a card has only the first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuMemory {
    /// What a program can count on, by the rules for this kind of device.
    pub total: Option<u64>,
    /// Own memory, or the carve-out of an APU.
    pub vram: Option<u64>,
    /// Of the machine's memory, what the driver may map.
    pub gtt: Option<u64>,
    pub vram_used: Option<u64>,
    /// It is taken from the machine's own memory.
    pub shared: bool,
}

/// The PCIe link, as it is and as it could be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkFacts {
    pub speed: String,
    pub width: u64,
    pub max_speed: Option<String>,
    pub max_width: Option<u64>,
}

/// A slice of a divided NVIDIA card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MigFacts {
    pub uuid: String,
    /// `3g.71gb`.
    pub profile: String,
    /// By its profile; absent where the profile names none.
    pub memory: Option<u64>,
    pub visible: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MaskFacts {
    pub variable: String,
    pub value: String,
    pub effect: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceFacts {
    /// Path or program.
    pub name: String,
    /// What it gave, or why it gave nothing.
    pub result: String,
    /// It is there and could not be read or understood.
    pub failed: bool,
}

impl Document for HostFacts {
    const SCHEMA: &'static str = "strata-host-facts/1.0";
}
