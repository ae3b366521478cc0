//! What the planner knows about a machine: a small view of the host facts, so that every decision
//! can be tried on a machine that nobody has. strata-setup fills it from the detector.

/// Whose a GPU is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vendor {
    Amd,
    Nvidia,
    Intel,
    Other,
}

impl Vendor {
    pub fn name(self) -> &'static str {
        match self {
            Vendor::Amd => "AMD",
            Vendor::Nvidia => "NVIDIA",
            Vendor::Intel => "Intel",
            Vendor::Other => "other",
        }
    }

    /// The word of `--backend` that drives its GPUs.
    pub fn backend(self) -> Option<&'static str> {
        match self {
            Vendor::Amd => Some("hip"),
            Vendor::Nvidia => Some("cuda"),
            Vendor::Intel | Vendor::Other => None,
        }
    }
}

/// The states that a device can be in; a device that is absent is not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceState {
    DriverMissing,
    NoPermission,
    DriverMismatched,
    Usable,
    /// Nothing said what state it is in (a source could not be read).
    Undetermined,
}

impl DeviceState {
    pub fn word(self) -> &'static str {
        match self {
            DeviceState::DriverMissing => "driver missing or failed",
            DeviceState::NoPermission => "no permission",
            DeviceState::DriverMismatched => "driver too old or mismatched",
            DeviceState::Usable => "usable",
            DeviceState::Undetermined => "not determinable",
        }
    }
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineDevice {
    /// PCI address, or what the vendor's tool says where there is none.
    pub uid: String,
    /// Other names that `--gpus` may use: unique id, UUID.
    pub other_ids: Vec<String>,
    pub vendor: Vendor,
    pub name: String,
    /// `gfx906`, `sm_86`; `None` when no source names it.
    pub target: Option<String>,
    pub state: DeviceState,
    /// One sentence of evidence.
    pub evidence: String,
    pub advice: Option<String>,
    /// Bytes of memory that a program may count on.
    pub memory_bytes: Option<u64>,
    /// It drives a display, so some memory is in use.
    pub display: bool,
}

/// The machine that is planned for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// `linux`.
    pub os: String,
    /// `x86_64`.
    pub cpu_arch: String,
    /// `2.36`.
    pub libc: Option<String>,
    pub ram_bytes: Option<u64>,
    /// In PCI order, the order of `strata-setup detect`.
    pub devices: Vec<MachineDevice>,
    /// Sources that were consulted, for the message that nothing was found.
    pub looked_at: Vec<String>,
}
