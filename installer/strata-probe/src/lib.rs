//! Host facts read below a root that the caller sets: every GPU with its state, evidence and one line
//! of what to do; processor, memory, disks, system. One detector for setup, doctor and run time.
//!
//! Identity is the PCI address and `unique_id` or UUID, never an index. A source that fails is recorded
//! and hides no other. Vendor tools run in a child with a time limit; nothing here opens a driver, so a
//! sleeping GPU stays asleep.

mod amd;
mod host;
mod mask;
mod nvidia;
mod pci;
mod root;
mod tool;

pub use root::Root;

use pci::PciDevice;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strata_manifest::facts::{BackendFacts, GpuFacts, GpuMemory, GpuState, GpuVendor, SourceFacts};
use strata_manifest::{Document, HostFacts};

/// How vendors' tools are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long each may take.
    pub tool: Duration,
    /// The program that opens NVML and reports, without it NVML is not asked.
    pub nvml: Option<Helper>,
}

impl Default for Options {
    fn default() -> Options {
        // A driver that initialises a card at the first question takes seconds.
        Options { tool: Duration::from_secs(10), nvml: None }
    }
}

/// A program of ours that is started as a child: `strata internal-nvml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl Helper {
    /// What asks NVML, in the program `strata`.
    pub fn nvml(strata: &Path) -> Helper {
        Helper { program: strata.to_owned(), args: vec!["internal-nvml".into()] }
    }
}

/// What was asked, in order.
#[derive(Debug, Default)]
pub(crate) struct Sources(Vec<SourceFacts>);

impl Sources {
    pub(crate) fn gave(&mut self, name: &str, result: impl Into<String>) {
        self.0.push(SourceFacts { name: name.to_owned(), result: result.into(), failed: false });
    }

    pub(crate) fn failed(&mut self, name: &str, result: impl Into<String>) {
        self.0.push(SourceFacts { name: name.to_owned(), result: result.into(), failed: true });
    }
}

/// Looks at the machine below `root`.
pub fn probe(root: &Root, options: &Options) -> HostFacts {
    let mut sources = Sources::default();
    let os = host::os(root);
    let pci = pci::scan(root, &mut sources);
    let mut gpus = amd::scan(root, &pci, os.wsl, &mut sources);
    gpus.extend(nvidia::scan(root, &pci, os.wsl, options, &mut sources));
    gpus.extend(pci.iter().filter(|device| device.is_display()).filter_map(other));
    if os.wsl && root.exists("dev/dxg") && gpus.is_empty() {
        sources.gave("/dev/dxg", "a GPU may be behind it; through WSL only NVIDIA's tool names one");
        gpus.push(behind_dxg());
    }
    gpus.sort_by(|a, b| (a.pci.is_none(), &a.pci, &a.unique_id).cmp(&(b.pci.is_none(), &b.pci, &b.unique_id)));
    let masks = mask::apply(root, &mut gpus);
    let backends = [("cuda", GpuVendor::Nvidia), ("hip", GpuVendor::Amd)];
    let backends = backends.map(|(backend, vendor)| backend_facts(backend, vendor, &gpus, &sources)).to_vec();
    HostFacts {
        schema: HostFacts::SCHEMA.to_owned(),
        os,
        cpu: host::cpu(root),
        memory: host::memory(root),
        disks: host::disks(root),
        gpus,
        backends,
        masks,
        sources: sources.0,
    }
}

/// What stands behind a backend: the best state of its vendor's GPUs, or that there is none, with what was looked at.
fn backend_facts(backend: &str, vendor: GpuVendor, gpus: &[GpuFacts], sources: &Sources) -> BackendFacts {
    let rank = |state: GpuState| match state {
        GpuState::Usable => 0,
        GpuState::NoPermission => 1,
        GpuState::DriverMismatched => 2,
        GpuState::DriverMissing => 3,
        GpuState::Undetermined | GpuState::Absent => 4,
    };
    let own: Vec<&GpuFacts> = gpus.iter().filter(|gpu| gpu.vendor == vendor).collect();
    let place =
        |gpu: &GpuFacts| gpu.pci.clone().or_else(|| gpu.unique_id.clone()).unwrap_or_else(|| "no address".into());
    match own.iter().min_by_key(|gpu| rank(gpu.state)) {
        Some(best) => BackendFacts {
            backend: backend.to_owned(),
            vendor,
            state: best.state,
            evidence: own.iter().map(|gpu| format!("{} at {}", gpu.name, place(gpu))).collect(),
            advice: best.advice.clone(),
        },
        None => BackendFacts {
            backend: backend.to_owned(),
            vendor,
            state: GpuState::Absent,
            evidence: sources.0.iter().map(|source| format!("{}: {}", source.name, source.result)).collect(),
            advice: Some(format!("to install for one that is not here: `--backend {backend} --target TARGET`")),
        },
    }
}

/// A display device of another vendor: named, and no backend is for it.
fn other(device: &PciDevice) -> Option<GpuFacts> {
    let (vendor, name) = match device.vendor {
        0x8086 => (GpuVendor::Intel, "Intel GPU"),
        // Others have their own module; and server boards and virtual machines have a small display chip,
        // which is no GPU to speak of.
        pci::AMD | pci::NVIDIA | 0x1a03 | 0x102b | 0x1234 | 0x1af4 | 0x15ad => return None,
        _ => (GpuVendor::Other, "GPU"),
    };
    let mut gpu = blank(vendor, format!("{name} {}", device.id()));
    gpu.pci = Some(device.address.clone());
    gpu.pci_id = Some(device.id());
    gpu.driver.clone_from(&device.driver);
    gpu.link.clone_from(&device.link);
    gpu.evidence = vec!["Strata has no backend for it".to_owned()];
    Some(gpu)
}

fn behind_dxg() -> GpuFacts {
    let mut gpu = blank(GpuVendor::Amd, "GPU behind WSL's /dev/dxg, if it is AMD's".to_owned());
    gpu.evidence =
        vec!["WSL shows GPUs through /dev/dxg only: whether one is AMD's cannot be told from here".to_owned()];
    gpu.advice = Some(
        "on the Windows side the device manager shows the card; Strata's AMD backends need Linux itself".to_owned(),
    );
    gpu
}

/// A GPU of which nothing is known yet.
pub(crate) fn blank(vendor: GpuVendor, name: String) -> GpuFacts {
    GpuFacts {
        pci: None,
        unique_id: None,
        vendor,
        pci_id: None,
        name,
        target: None,
        plugin: None,
        state: GpuState::Undetermined,
        evidence: Vec::new(),
        advice: None,
        memory: GpuMemory::default(),
        driver: None,
        link: None,
        display: None,
        integrated: false,
        asleep: false,
        visible: true,
        mig: Vec::new(),
    }
}
