//! NVIDIA GPUs: the driver's management library (NVML) in a child process, then nvidia-smi, then the files of the
//! kernel driver, each joined with the PCI list. A card that sleeps is not woken: what is known of it comes from
//! files, and no tool is asked that would touch it.

mod nvml;
mod smi;

use crate::pci::{self, PciDevice};
use crate::{Options, Root, Sources, blank};
use strata_manifest::GpuTable;
use strata_manifest::facts::{GpuFacts, GpuMemory, GpuState, GpuVendor, MigFacts};

const DRIVER: &str = "proc/driver/nvidia/version";
const CONTROL: &str = "dev/nvidiactl";

/// One card as a tool tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Row {
    source: &'static str,
    uuid: Option<String>,
    name: String,
    memory: Memory,
    /// Bytes.
    used: Option<u64>,
    /// `86`.
    capability: Option<String>,
    bus: Option<String>,
    driver: Option<String>,
    display: Option<bool>,
    mig: Vec<MigFacts>,
    /// The tool lists it and cannot use it.
    trouble: Option<Trouble>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Memory {
    Bytes(u64),
    /// The device shares the machine's memory.
    Shared,
    /// Not told, for want of permission and the like.
    #[default]
    Unknown,
}

/// What a tool answered.
#[derive(Debug, Default)]
struct Asked {
    rows: Vec<Row>,
    trouble: Option<Trouble>,
}

/// Why a tool, or a card of it, gives nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trouble {
    /// NVML's own number.
    code: Option<i64>,
    /// The tool or library is not there at all.
    absent: bool,
    text: String,
}

impl Trouble {
    fn absent(text: impl Into<String>) -> Trouble {
        Trouble { code: None, absent: true, text: text.into() }
    }

    fn words(text: impl Into<String>) -> Trouble {
        Trouble { code: None, absent: false, text: text.into() }
    }

    fn is_mismatch(&self) -> bool {
        self.code == Some(nvml::MISMATCH) || self.text.to_ascii_lowercase().contains("mismatch")
    }
}

pub(crate) fn scan(
    root: &Root,
    pci: &[PciDevice],
    wsl: bool,
    options: &Options,
    sources: &mut Sources,
) -> Vec<GpuFacts> {
    let cards: Vec<&PciDevice> =
        pci.iter().filter(|device| device.vendor == pci::NVIDIA && device.is_display()).collect();
    let loaded = root.text(DRIVER);
    match &loaded {
        Some(version) => sources.gave(&format!("/{DRIVER}"), version.lines().next().unwrap_or_default()),
        None => sources.gave(&format!("/{DRIVER}"), "not there"),
    }
    let machine = Machine { root, wsl, loaded: loaded.as_deref() };
    let any_asleep = cards.iter().any(|card| card.asleep);
    let awake: Vec<&str> = cards.iter().filter(|card| !card.asleep).map(|card| card.address.as_str()).collect();
    if any_asleep && awake.is_empty() {
        sources.gave("NVML, nvidia-smi", "not asked: the card sleeps, and asking would wake it");
        return cards.into_iter().map(|device| machine.of_files(device, &[])).collect();
    }
    let any_sign = !cards.is_empty() || loaded.is_some() || wsl;
    let mut asked = nvml::ask(root, options, any_sign, if any_asleep { &awake } else { &[] }, sources);
    let mut troubles: Vec<Trouble> = asked.trouble.take().into_iter().collect();
    if asked.rows.is_empty() && any_asleep {
        sources.gave("nvidia-smi", "not asked: it would wake a card that sleeps");
    } else if asked.rows.is_empty() {
        asked = smi::ask(root, options.tool, sources);
        troubles.extend(asked.trouble.take());
    } else {
        troubles.push(Trouble::words(format!("{} does not list it", asked.rows[0].source)));
    }
    let mut gpus: Vec<GpuFacts> = asked.rows.into_iter().map(|row| machine.of_row(row, &cards)).collect();
    let listed: Vec<String> = gpus.iter().filter_map(|gpu| gpu.pci.clone()).collect();
    let rest = cards.into_iter().filter(|device| !listed.contains(&device.address));
    gpus.extend(rest.map(|device| machine.of_files(device, &troubles)));
    gpus
}

/// `00000000:01:00.0` as sysfs writes it.
fn address(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let (domain, rest) = lower.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    let good = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    (rest.len() == 7 && rest.chars().all(good)).then(|| format!("{domain:04x}:{rest}"))
}

/// `3g.71gb` has 71 GB; a profile without a size says nothing.
fn slice_memory(profile: &str) -> Option<u64> {
    let (_, size) = profile.split('+').next()?.split_once('.')?;
    size.strip_suffix("gb")?.parse::<u64>().ok().filter(|gb| *gb > 0).map(|gb| gb << 30)
}

struct Machine<'a> {
    root: &'a Root,
    wsl: bool,
    loaded: Option<&'a str>,
}

impl Machine<'_> {
    fn of_row(&self, row: Row, cards: &[&PciDevice]) -> GpuFacts {
        let listed = cards.iter().find(|device| Some(&device.address) == row.bus.as_ref());
        let mut gpu = blank(GpuVendor::Nvidia, row.name);
        gpu.target = row.capability.map(|capability| format!("sm_{capability}"));
        gpu.unique_id = row.uuid;
        gpu.pci = row.bus;
        gpu.pci_id = listed.map(|device| device.id());
        gpu.driver = row.driver;
        gpu.link = listed.and_then(|device| device.link.clone());
        gpu.display = row.display;
        gpu.mig = row.mig;
        gpu.memory = match row.memory {
            Memory::Bytes(bytes) => {
                GpuMemory { total: Some(bytes), vram: Some(bytes), vram_used: row.used, ..GpuMemory::default() }
            }
            Memory::Shared => {
                GpuMemory { total: crate::host::memory(self.root).total, shared: true, ..GpuMemory::default() }
            }
            Memory::Unknown => GpuMemory::default(),
        };
        gpu.integrated = gpu.memory.shared;
        if let Some(trouble) = row.trouble {
            gpu.evidence.push(format!("{} lists it and cannot use it: {}", row.source, trouble.text));
            self.judge_trouble(&mut gpu, &[trouble]);
        } else {
            gpu.evidence.push(format!("{} lists it, so the driver works", row.source));
            gpu.state = GpuState::Usable;
            self.judge_permission(&mut gpu);
            judge_driver(&mut gpu);
        }
        if gpu.target.is_none() {
            gpu.evidence.push("its compute capability is not told".to_owned());
        }
        let listed = listed.copied();
        name_by_table(&mut gpu, listed);
        gpu
    }

    /// A card on the bus of which no tool tells anything, or that no tool may be asked about.
    fn of_files(&self, device: &PciDevice, troubles: &[Trouble]) -> GpuFacts {
        let information = format!("proc/driver/nvidia/gpus/{}/information", device.address);
        let text = self.root.text(&information).unwrap_or_default();
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name))
                .map(|value| value.trim_start_matches([':', ' ', '\t']).trim().to_owned())
        };
        let mut gpu = blank(GpuVendor::Nvidia, field("Model").unwrap_or_else(|| format!("NVIDIA GPU {}", device.id())));
        gpu.unique_id = field("GPU UUID").filter(|uuid| uuid.starts_with("GPU-"));
        gpu.pci = Some(device.address.clone());
        gpu.pci_id = Some(device.id());
        gpu.driver.clone_from(&device.driver);
        gpu.link.clone_from(&device.link);
        gpu.asleep = device.asleep;
        gpu.evidence.extend(troubles.iter().map(|trouble| trouble.text.clone()));
        if device.asleep && device.driver.as_deref() == Some("nvidia") {
            gpu.evidence.push("NVIDIA's driver has it; it sleeps and was not woken".to_owned());
            gpu.state = GpuState::Usable;
            self.judge_permission(&mut gpu);
        } else {
            self.judge_trouble(&mut gpu, troubles);
        }
        name_by_table(&mut gpu, Some(device));
        gpu
    }

    fn judge_permission(&self, gpu: &mut GpuFacts) {
        if !self.wsl && self.root.exists(CONTROL) && !self.root.may_use(CONTROL) {
            gpu.state = GpuState::NoPermission;
            gpu.evidence.push(format!("this user may not open /{CONTROL}"));
            gpu.advice = Some(format!("make /{CONTROL} usable for this user: `ls -l /dev/nvidia*` shows who may"));
        }
    }

    /// State of a card that does not work, by what the tools and the files say.
    fn judge_trouble(&self, gpu: &mut GpuFacts, troubles: &[Trouble]) {
        let mut is = |state: GpuState, evidence: &str, advice: &str| {
            gpu.state = state;
            if !evidence.is_empty() {
                gpu.evidence.push(evidence.to_owned());
            }
            gpu.advice = Some(advice.to_owned());
        };
        let has_code = |code: i64| troubles.iter().any(|trouble| trouble.code == Some(code));
        let all_absent = troubles.iter().all(|trouble| trouble.absent);
        let nodes = self.root.is_live() || self.root.exists("dev");
        if troubles.iter().any(Trouble::is_mismatch) {
            is(
                GpuState::DriverMismatched,
                "",
                "the driver was updated under a running kernel module: restart the machine",
            );
        } else if gpu.driver.as_deref() == Some("nouveau") {
            let advice = "install NVIDIA's driver (on Debian: `apt-get install nvidia-driver`) and restart";
            is(GpuState::DriverMissing, "nouveau drives it, which cannot compute", advice);
        } else if gpu.driver.as_deref() == Some("vfio-pci") {
            let advice = "give it back to NVIDIA's driver, or use it in the guest that it was given to";
            is(GpuState::DriverMissing, "vfio-pci has it: it is set aside for a virtual machine", advice);
        } else if self.loaded.is_some() && nodes && !self.root.exists(CONTROL) {
            let evidence =
                "the kernel driver is loaded and /dev/nvidiactl is not there: a container that was not given it";
            let advice = "start the container with the card: `--gpus all`, or `--device nvidia.com/gpu=all`";
            is(GpuState::NoPermission, evidence, advice);
        } else if has_code(nvml::NO_PERMISSION) || (self.root.exists(CONTROL) && !self.root.may_use(CONTROL)) {
            let advice = "make /dev/nvidiactl usable for this user: `ls -l /dev/nvidia*` shows who may";
            is(GpuState::NoPermission, "", advice);
        } else if has_code(nvml::LOST) {
            let advice = "it fell off the bus: `dmesg | grep -i xid` says why; often power, heat or a loose riser";
            is(GpuState::DriverMissing, "", advice);
        } else if self.loaded.is_some() && all_absent {
            is(
                GpuState::Undetermined,
                "the kernel driver is loaded",
                "install the driver's libraries and nvidia-smi, or name the card: `--target sm_XX`",
            );
        } else if self.loaded.is_some() {
            let advice = "look at what `nvidia-smi` says; driver and tools have to be of one version";
            is(GpuState::DriverMismatched, "the kernel driver is loaded and its tool cannot use it", advice);
        } else {
            let advice = "install NVIDIA's driver, or load it: `sudo modprobe nvidia`";
            is(GpuState::DriverMissing, "NVIDIA's kernel driver is not loaded", advice);
        }
    }
}

/// A driver that works, and is too old for what the plugin asks of it.
fn judge_driver(gpu: &mut GpuFacts) {
    let table = GpuTable::built_in();
    let (Some(floor), Some(has)) = (table.driver_floor("nvidia"), gpu.driver.as_deref()) else { return };
    let numbers = |text: &str| text.split('.').map(|part| part.parse::<u64>().unwrap_or(0)).collect::<Vec<_>>();
    if gpu.state == GpuState::Usable && numbers(has) < numbers(&floor.version) {
        gpu.state = GpuState::DriverMismatched;
        gpu.evidence.push(format!("driver {has} is older than {}, which is needed ({})", floor.version, floor.why));
        gpu.advice = Some(format!("update NVIDIA's driver to {} or later", floor.version));
    }
}

/// What no driver told, the PCI id says: the chip, and so the target.
fn name_by_table(gpu: &mut GpuFacts, device: Option<&PciDevice>) {
    let table = GpuTable::built_in();
    let id = device.map(PciDevice::id);
    if let Some(chip) = id.as_deref().and_then(|id| table.chip(id))
        && gpu.target.is_none()
    {
        gpu.evidence.push(format!("its PCI id names the chip: {} ({})", chip.name, chip.target));
        gpu.target = Some(chip.target.clone());
        if gpu.name == format!("NVIDIA GPU {}", id.unwrap_or_default()) {
            gpu.name = format!("{} ({})", gpu.name, chip.name);
        }
    }
    gpu.plugin = gpu.target.as_deref().and_then(|target| table.plugin(target)).map(str::to_owned);
}
