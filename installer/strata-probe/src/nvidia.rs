//! NVIDIA GPUs: nvidia-smi in a child process, wherever it lies (WSL keeps it outside PATH), joined with the
//! PCI list and the kernel driver's files. A row of its answer counts only when every field is what it should be.

use crate::pci::{self, PciDevice};
use crate::tool::{self, Answer};
use crate::{Limits, Root, Sources, blank};
use std::path::PathBuf;
use strata_manifest::GpuTable;
use strata_manifest::facts::{GpuFacts, GpuMemory, GpuState, GpuVendor, MigFacts};

/// Columns that are asked for.
const COLUMNS: [&str; 8] =
    ["index", "uuid", "name", "memory.total", "memory.free", "compute_cap", "pci.bus_id", "driver_version"];
/// Where it may lie beside PATH.
const FOLDERS: [&str; 4] = ["usr/bin", "usr/local/bin", "usr/lib/wsl/lib", "opt/nvidia/bin"];
const DRIVER: &str = "proc/driver/nvidia/version";

pub(crate) fn scan(root: &Root, pci: &[PciDevice], wsl: bool, limits: Limits, sources: &mut Sources) -> Vec<GpuFacts> {
    let cards: Vec<&PciDevice> =
        pci.iter().filter(|device| device.vendor == pci::NVIDIA && device.is_display()).collect();
    let loaded = root.text(DRIVER);
    match &loaded {
        Some(version) => sources.gave(&format!("/{DRIVER}"), version.lines().next().unwrap_or_default()),
        None => sources.gave(&format!("/{DRIVER}"), "not there"),
    }
    let Some(program) = find(root) else {
        sources.gave("nvidia-smi", "not found");
        return cards
            .into_iter()
            .map(|device| without_tool(root, device, loaded.is_some(), "nvidia-smi is not installed"))
            .collect();
    };
    let name = program.display().to_string();
    let query = format!("--query-gpu={}", COLUMNS.join(","));
    let asked = tool::ask(&program, &[&query, "--format=csv,noheader,nounits"], limits.tool);
    let (rows, trouble) = match &asked {
        Ok(answer) => rows(answer, sources, &name),
        Err(why) => {
            sources.failed(&name, why.clone());
            (Vec::new(), Some(why.clone()))
        }
    };
    let mut gpus: Vec<GpuFacts> = rows.into_iter().map(|row| from_row(root, row, &cards, wsl)).collect();
    if !gpus.is_empty()
        && let Ok(list) = tool::ask(&program, &["-L"], limits.tool)
    {
        add_slices(&mut gpus, &list.out);
    }
    let listed: Vec<String> = gpus.iter().filter_map(|gpu| gpu.pci.clone()).collect();
    let why = trouble.unwrap_or_else(|| "nvidia-smi does not list it".to_owned());
    let rest = cards.into_iter().filter(|device| !listed.contains(&device.address));
    gpus.extend(rest.map(|device| without_tool(root, device, loaded.is_some(), &why)));
    gpus
}

fn find(root: &Root) -> Option<PathBuf> {
    let of_path = root.variable("PATH").unwrap_or_default().split(':').filter(|folder| folder.starts_with('/'));
    // A PATH of the machine itself means its folders below the root; one that leads there already is taken as it is.
    let below = |folder: &str| {
        let path = PathBuf::from(folder);
        if path.starts_with(root.path()) { path } else { root.below(folder) }
    };
    let folders = of_path.map(below).chain(FOLDERS.iter().map(|folder| root.below(folder)));
    folders.map(|folder| folder.join("nvidia-smi")).find(|program| program.is_file())
}

/// One row of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) uuid: Option<String>,
    pub(crate) name: String,
    /// MiB; `None` with a reason when the tool says that it does not tell.
    pub(crate) memory: Memory,
    pub(crate) used_of: Option<u64>,
    pub(crate) capability: Option<String>,
    pub(crate) bus: Option<String>,
    pub(crate) driver: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    Mib(u64),
    /// `[N/A]`: the device shares the machine's memory.
    Shared,
    /// `[Insufficient Permissions]` and the like.
    Unknown,
}

/// Reads rows; what cannot be read is said, and a tool that gives no row at all has failed.
fn rows(answer: &Answer, sources: &mut Sources, name: &str) -> (Vec<Row>, Option<String>) {
    let mut rows = Vec::new();
    for line in answer.out.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match row(line, &COLUMNS) {
            Ok(row) => rows.push(row),
            Err(why) => sources
                .failed(name, format!("a line was left aside ({why}): {}", line.chars().take(120).collect::<String>())),
        }
    }
    if rows.is_empty() {
        let words = format!("{} {}", answer.out.trim(), answer.err.trim());
        let words: String = words.trim().chars().take(200).collect();
        let why = match answer.status {
            Some(0) if words.is_empty() => "it ended well and said nothing".to_owned(),
            Some(0) => format!("it gave no row that can be read: {words}"),
            Some(status) => format!("it ended with status {status}: {words}"),
            None => "it was ended by a signal".to_owned(),
        };
        sources.failed(name, why.clone());
        return (rows, Some(why));
    }
    sources.gave(name, format!("{} GPUs", rows.len()));
    (rows, None)
}

/// One line against the columns that were asked for. A field that is not what its column holds refuses the row.
pub(crate) fn row(line: &str, columns: &[&str]) -> Result<Row, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    if fields.len() != columns.len() {
        return Err(format!("{} fields, {} were asked for", fields.len(), columns.len()));
    }
    let field = |name: &str| columns.iter().position(|column| *column == name).map(|at| fields[at]);
    let marker = |text: &str| text.starts_with('[') && text.ends_with(']');
    let number = |name: &str| match field(name) {
        None => Ok(None),
        Some(text) if marker(text) => Ok(None),
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| format!("{name} is `{text}`")),
    };
    let memory = match field("memory.total") {
        Some("[N/A]" | "[Not Supported]") => Memory::Shared,
        Some(text) if marker(text) => Memory::Unknown,
        _ => number("memory.total")?.map_or(Memory::Unknown, Memory::Mib),
    };
    let other = number("memory.free")?.map(|free| (free, true)).or(number("memory.used")?.map(|used| (used, false)));
    let used_of = match (memory, other) {
        (Memory::Mib(total), Some((free, true))) => Some(total.saturating_sub(free)),
        (_, Some((used, false))) => Some(used),
        _ => None,
    };
    let capability = match field("compute_cap") {
        Some(text) if !marker(text) => {
            let (major, minor) = text.split_once('.').ok_or_else(|| format!("compute_cap is `{text}`"))?;
            let digits = |part: &str| (1..=2).contains(&part.len()) && part.bytes().all(|c| c.is_ascii_digit());
            if !digits(major) || !digits(minor) {
                return Err(format!("compute_cap is `{text}`"));
            }
            Some(format!("{major}{minor}"))
        }
        _ => None,
    };
    let uuid = field("uuid").filter(|text| !marker(text)).map(str::to_owned);
    if uuid.as_ref().is_some_and(|uuid| !uuid.starts_with("GPU-")) {
        return Err(format!("uuid is `{}`", uuid.unwrap_or_default()));
    }
    if field("index").is_some_and(|text| text.parse::<u32>().is_err()) {
        return Err(format!("index is `{}`", field("index").unwrap_or_default()));
    }
    let name = field("name").unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    let bus = field("pci.bus_id").filter(|text| !marker(text)).map(address).transpose()?;
    let driver = field("driver_version").filter(|text| !marker(text)).map(str::to_owned);
    Ok(Row { uuid, name, memory, used_of, capability, bus, driver })
}

/// `00000000:01:00.0` as sysfs writes it.
fn address(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    let parts: Vec<&str> = lower.split(':').collect();
    let hex = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_hexdigit() || c == b'.');
    match parts.as_slice() {
        [domain, bus, rest] if [domain, bus, rest].iter().all(|part| hex(part)) && domain.len() >= 4 => {
            Ok(format!("{}:{bus}:{rest}", &domain[domain.len() - 4..]))
        }
        _ => Err(format!("pci.bus_id is `{text}`")),
    }
}

fn from_row(root: &Root, row: Row, cards: &[&PciDevice], wsl: bool) -> GpuFacts {
    let listed = cards.iter().find(|device| Some(&device.address) == row.bus.as_ref());
    let mut gpu = blank(GpuVendor::Nvidia, row.name);
    gpu.target = row.capability.map(|capability| format!("sm_{capability}"));
    gpu.plugin = gpu.target.as_deref().and_then(|target| GpuTable::built_in().plugin(target)).map(str::to_owned);
    gpu.unique_id = row.uuid;
    gpu.pci = row.bus;
    gpu.pci_id = listed.map(|device| device.id());
    gpu.driver = row.driver;
    gpu.link = listed.and_then(|device| device.link.clone());
    gpu.memory = match row.memory {
        Memory::Mib(mib) => GpuMemory {
            total: Some(mib << 20),
            vram: Some(mib << 20),
            vram_used: row.used_of.map(|mib| mib << 20),
            ..GpuMemory::default()
        },
        Memory::Shared => GpuMemory { total: crate::host::memory(root).total, shared: true, ..GpuMemory::default() },
        Memory::Unknown => GpuMemory::default(),
    };
    gpu.integrated = gpu.memory.shared;
    gpu.evidence.push("nvidia-smi lists it, so the driver works".to_owned());
    gpu.state = GpuState::Usable;
    if gpu.target.is_none() {
        gpu.evidence.push("its compute capability is not told".to_owned());
    }
    let control = "dev/nvidiactl";
    if !wsl && root.exists(control) && !root.may_use(control) {
        gpu.state = GpuState::NoPermission;
        gpu.evidence.push(format!("this user may not open /{control}"));
        gpu.advice = Some(format!("make /{control} usable for this user: `ls -l /dev/nvidia*` shows who may"));
    }
    gpu
}

/// A card on the bus of which nvidia-smi tells nothing.
fn without_tool(root: &Root, device: &PciDevice, loaded: bool, why: &str) -> GpuFacts {
    let information = format!("proc/driver/nvidia/gpus/{}/information", device.address);
    let text = root.text(&information).unwrap_or_default();
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
    gpu.evidence.push(why.to_owned());
    let lower = why.to_ascii_lowercase();
    if lower.contains("mismatch") {
        gpu.state = GpuState::DriverMismatched;
        gpu.advice = Some("the driver was updated under a running kernel module: restart the machine".to_owned());
    } else if device.driver.as_deref() == Some("nouveau") {
        gpu.state = GpuState::DriverMissing;
        gpu.evidence.push("nouveau drives it, which cannot compute".to_owned());
        gpu.advice =
            Some("install NVIDIA's driver (on Debian: `apt-get install nvidia-driver`) and restart".to_owned());
    } else if loaded && lower.contains("not installed") {
        gpu.state = GpuState::Undetermined;
        gpu.evidence.push("the kernel driver is loaded".to_owned());
        gpu.advice = Some(
            "install nvidia-smi, which comes with the driver's tools, or name the card: `--target sm_XX`".to_owned(),
        );
    } else if loaded {
        gpu.state = GpuState::DriverMismatched;
        gpu.evidence.push("the kernel driver is loaded and its tool cannot use it".to_owned());
        gpu.advice = Some("look at what `nvidia-smi` says; driver and tools have to be of one version".to_owned());
    } else {
        gpu.state = GpuState::DriverMissing;
        gpu.evidence.push("NVIDIA's kernel driver is not loaded".to_owned());
        gpu.advice = Some("install NVIDIA's driver, or load it: `sudo modprobe nvidia`".to_owned());
    }
    gpu
}

/// Slices of divided cards, out of `nvidia-smi -L`.
pub(crate) fn add_slices(gpus: &mut [GpuFacts], list: &str) {
    let uuid = |line: &str| Some(line.split_once("UUID: ")?.1.trim_end_matches(')').trim().to_owned());
    let mut card: Option<usize> = None;
    for line in list.lines() {
        let text = line.trim();
        if text.starts_with("GPU ") {
            card = uuid(text).and_then(|uuid| gpus.iter().position(|gpu| gpu.unique_id.as_ref() == Some(&uuid)));
        } else if let (Some(rest), Some(card), Some(uuid)) = (text.strip_prefix("MIG "), card, uuid(text)) {
            let profile = rest.split_whitespace().next().unwrap_or_default().to_owned();
            gpus[card].mig.push(MigFacts { memory: slice_memory(&profile), uuid, profile, visible: true });
        }
    }
}

/// `3g.71gb` has 71 GB; a profile without a size says nothing.
fn slice_memory(profile: &str) -> Option<u64> {
    let (_, size) = profile.split('+').next()?.split_once('.')?;
    size.strip_suffix("gb")?.parse::<u64>().ok().filter(|gb| *gb > 0).map(|gb| gb << 30)
}
