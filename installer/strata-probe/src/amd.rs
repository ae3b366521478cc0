//! AMD GPUs: the driver's topology (KFD) first, joined by PCI address with the display driver's files and
//! the PCI list; the PCI id table last. Which target a card needs comes from files, never from a guess.

use crate::pci::{self, PciDevice};
use crate::{Root, Sources, blank};
use std::collections::BTreeMap;
use strata_manifest::GpuTable;
use strata_manifest::facts::{GpuFacts, GpuMemory, GpuState, GpuVendor};

const NODES: &str = "sys/class/kfd/kfd/topology/nodes";
const KFD: &str = "dev/kfd";

pub(crate) fn scan(root: &Root, pci: &[PciDevice], wsl: bool, sources: &mut Sources) -> Vec<GpuFacts> {
    let cards = drm_cards(root);
    let mut gpus = Vec::new();
    let names = root.names(NODES);
    if names.is_empty() {
        sources.gave(&format!("/{NODES}"), if wsl { "not there (WSL has /dev/dxg instead)" } else { "not there" });
    }
    for name in names.iter().filter(|name| name.parse::<u32>().is_ok()) {
        let folder = format!("{NODES}/{name}");
        match node(root, &folder) {
            Node::Cpu => {}
            Node::Gpu(properties) => {
                sources.gave(&format!("/{folder}"), "a GPU");
                gpus.push(from_node(root, &properties, pci, &cards));
            }
            Node::Unreadable(why) => {
                sources.failed(&format!("/{folder}"), why.clone());
                let mut gpu = blank(GpuVendor::Amd, format!("AMD GPU of KFD node {name}"));
                gpu.evidence.push(why);
                gpus.push(gpu);
            }
        }
    }
    let listed: Vec<String> = gpus.iter().filter_map(|gpu| gpu.pci.clone()).collect();
    let rest = pci.iter().filter(|device| device.vendor == pci::AMD && device.is_display());
    for device in rest.filter(|device| !listed.contains(&device.address)) {
        // A node without properties has no address; it stands for the one card that has no node.
        if let Some(nameless) = gpus.iter_mut().find(|gpu| gpu.pci.is_none()) {
            let mut joined = without_node(root, device, &cards);
            joined.evidence.append(&mut nameless.evidence);
            *nameless = joined;
        } else {
            gpus.push(without_node(root, device, &cards));
        }
    }
    gpus
}

enum Node {
    Cpu,
    Gpu(BTreeMap<String, u64>),
    Unreadable(String),
}

fn node(root: &Root, folder: &str) -> Node {
    let gpu_id = root.number(&format!("{folder}/gpu_id"));
    let text = match root.try_text(&format!("{folder}/properties")) {
        Ok(text) => text,
        Err(_) if gpu_id == Some(0) => return Node::Cpu,
        Err(error) => return Node::Unreadable(format!("its properties cannot be read: {error}")),
    };
    let number = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    let properties: BTreeMap<String, u64> = text.lines().filter_map(number).collect();
    let has = |name: &str| properties.get(name).copied().unwrap_or(0) > 0;
    match (has("gfx_target_version") || has("simd_count"), gpu_id) {
        (true, _) => Node::Gpu(properties),
        (false, Some(0)) => Node::Cpu,
        (false, _) if has("cpu_cores_count") => Node::Cpu,
        (false, _) => Node::Unreadable("it is a GPU's node and its properties are empty".to_owned()),
    }
}

/// `90006` is gfx906, `90010` gfx90a, `110000` gfx1100: major decimal, minor and stepping one hex digit each.
fn target_of_version(version: u64) -> Option<String> {
    let (major, minor, stepping) = (version / 10_000, version / 100 % 100, version % 100);
    ((3..=99).contains(&major) && minor < 16 && stepping < 16).then(|| format!("gfx{major}{minor:x}{stepping:x}"))
}

fn address(properties: &BTreeMap<String, u64>) -> Option<String> {
    let location = *properties.get("location_id")?;
    let domain = properties.get("domain").copied().unwrap_or(0);
    let (bus, device, function) = (location >> 8 & 0xff, location >> 3 & 0x1f, location & 7);
    (location > 0).then(|| format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
}

/// A card of the display driver.
struct DrmCard {
    /// Folder of its device.
    folder: String,
    address: Option<String>,
    device: Option<u64>,
    /// A connector of it has a screen.
    display: bool,
}

fn drm_cards(root: &Root) -> Vec<DrmCard> {
    let names = root.names("sys/class/drm");
    let is_card = |name: &&String| name.strip_prefix("card").is_some_and(|n| n.parse::<u32>().is_ok());
    let card = |name: &String| {
        let folder = format!("sys/class/drm/{name}/device");
        if root.hex(&format!("{folder}/vendor")) != Some(pci::AMD) {
            return None;
        }
        let uevent = root.text(&format!("{folder}/uevent")).unwrap_or_default();
        let slot = uevent.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME=")).map(str::to_ascii_lowercase);
        let connectors = names.iter().filter(|other| other.starts_with(&format!("{name}-")));
        let display = connectors
            .map(|connector| root.text(&format!("sys/class/drm/{connector}/status")))
            .any(|status| status.as_deref() == Some("connected"));
        Some(DrmCard {
            address: root.link_name(&folder).filter(|name| name.contains(':')).or(slot),
            device: root.hex(&format!("{folder}/device")),
            folder,
            display,
        })
    };
    names.iter().filter(is_card).filter_map(card).collect()
}

/// The display driver's card of this address; where its files name no address, the only one with this device id.
fn card_of<'c>(cards: &'c [DrmCard], address: Option<&str>, device: Option<u64>) -> Option<&'c DrmCard> {
    if let Some(card) = cards.iter().find(|card| card.address.is_some() && card.address.as_deref() == address) {
        return Some(card);
    }
    let mut same = cards.iter().filter(|card| card.address.is_none() && card.device == device);
    let first = same.next()?;
    same.next().is_none().then_some(first)
}

fn from_node(root: &Root, properties: &BTreeMap<String, u64>, pci: &[PciDevice], cards: &[DrmCard]) -> GpuFacts {
    let table = GpuTable::built_in();
    let address = address(properties);
    let listed = pci.iter().find(|device| Some(&device.address) == address.as_ref());
    let device = properties.get("device_id").copied().or(listed.map(|device| device.device));
    let id = device.map(|device| format!("{:04x}:{device:04x}", pci::AMD));
    let card = card_of(cards, address.as_deref(), device);
    let target = properties.get("gfx_target_version").copied().and_then(target_of_version);
    let known = id.as_deref().and_then(|id| table.card(id, listed.and_then(|device| device.revision)));
    let fallback = target.as_deref().map_or("AMD GPU".to_owned(), |target| format!("AMD GPU ({target})"));
    let mut gpu = blank(GpuVendor::Amd, known.map_or(fallback, |card| card.name.clone()));
    gpu.integrated = target.as_deref().and_then(|target| table.target(target)).is_some_and(|target| target.integrated);
    gpu.memory = memory(root, properties, card, gpu.integrated);
    gpu.unique_id = properties.get("unique_id").filter(|id| **id > 0).map(|id| format!("0x{id:x}"));
    gpu.driver = listed.and_then(|device| device.driver.clone()).or(Some("amdgpu".to_owned()));
    gpu.link = listed.and_then(|device| device.link.clone());
    gpu.asleep = listed.is_some_and(|device| device.asleep);
    gpu.display = card.map(|card| card.display);
    gpu.plugin = target.as_deref().and_then(|target| table.plugin(target)).map(str::to_owned);
    gpu.pci = address;
    gpu.pci_id = id;
    match &target {
        Some(target) => gpu.evidence.push(format!("the driver's topology names {target}")),
        None => gpu.evidence.push("the driver's topology names no target".to_owned()),
    }
    gpu.target = target;
    judge(root, &mut gpu, properties.get("drm_render_minor").copied().unwrap_or(0));
    gpu
}

/// State of a card that the driver lists: may this user open its nodes?
fn judge(root: &Root, gpu: &mut GpuFacts, render_minor: u64) {
    let render = format!("dev/dri/renderD{render_minor}");
    if !root.is_live() && !root.exists("dev") {
        // A copy of sysfs without any device node says nothing about permissions.
        gpu.state = GpuState::Usable;
        gpu.evidence.push("no device nodes are in this copy of files, so permissions are not judged".to_owned());
        return;
    }
    if !root.exists(KFD) {
        gpu.state = GpuState::NoPermission;
        gpu.evidence
            .push("/dev/kfd is not there, though the driver is loaded: a container that was not given it".to_owned());
        gpu.advice = Some("start the container with `--device /dev/kfd --device /dev/dri`".to_owned());
        return;
    }
    let nodes = [KFD.to_owned(), render];
    let absent = nodes.iter().find(|node| render_minor > 0 && !root.exists(node));
    if let Some(node) = absent {
        gpu.state = GpuState::NoPermission;
        gpu.evidence.push(format!("/{node} is not there: a container that was not given it"));
        gpu.advice = Some("start the container with `--device /dev/dri`".to_owned());
        return;
    }
    match nodes.iter().filter(|node| root.exists(node)).find(|node| !root.may_use(node)) {
        None => {
            gpu.state = GpuState::Usable;
            gpu.evidence.push("this user may open its device nodes".to_owned());
        }
        Some(node) => {
            gpu.state = GpuState::NoPermission;
            gpu.evidence.push(format!("this user may not open /{node}"));
            gpu.advice = Some("join its group and log in again: `sudo usermod -aG render,video $USER`".to_owned());
        }
    }
}

/// A card on the bus that the compute driver does not list.
fn without_node(root: &Root, device: &PciDevice, cards: &[DrmCard]) -> GpuFacts {
    let table = GpuTable::built_in();
    let known = table.card(&device.id(), device.revision);
    let mut gpu = blank(GpuVendor::Amd, known.map_or(format!("AMD GPU {}", device.id()), |card| card.name.clone()));
    gpu.pci = Some(device.address.clone());
    gpu.pci_id = Some(device.id());
    gpu.target = known.and_then(|card| card.target.clone());
    gpu.plugin = gpu.target.as_deref().and_then(|target| table.plugin(target)).map(str::to_owned);
    gpu.integrated =
        gpu.target.as_deref().and_then(|target| table.target(target)).is_some_and(|target| target.integrated);
    gpu.driver.clone_from(&device.driver);
    gpu.link.clone_from(&device.link);
    gpu.asleep = device.asleep;
    let card = card_of(cards, Some(&device.address), Some(device.device));
    gpu.display = card.map(|card| card.display);
    gpu.memory = memory(root, &BTreeMap::new(), card, gpu.integrated);
    gpu.unique_id =
        root.text(&format!("{}/unique_id", device.folder())).map(|id| format!("0x{}", id.trim_start_matches("0x")));
    gpu.state = GpuState::DriverMissing;
    if let Some(target) = &gpu.target {
        gpu.evidence.push(format!("its PCI id is that of a {target} card"));
    }
    match device.driver.as_deref() {
        None => {
            gpu.evidence.push("no driver has it".to_owned());
            gpu.advice = Some("load the driver: `sudo modprobe amdgpu`, and look at `dmesg` if that fails".to_owned());
        }
        Some("amdgpu") => {
            gpu.evidence.push("amdgpu drives it, and its compute part (KFD) does not list it".to_owned());
            gpu.advice = Some(
                "look for kfd in `dmesg`: a kernel without HSA support, or PCIe atomics that the slot lacks".to_owned(),
            );
        }
        Some(driver) => {
            gpu.evidence.push(format!("`{driver}` has it and not amdgpu"));
            gpu.advice = Some(format!("give it to amdgpu: it is bound to `{driver}`"));
        }
    }
    gpu
}

/// A card counts its own memory; an APU's carve-out is small and the driver maps the machine's memory as well,
/// which the sum of the two tells.
fn memory(root: &Root, properties: &BTreeMap<String, u64>, card: Option<&DrmCard>, integrated: bool) -> GpuMemory {
    let of_card = |file: &str| card.and_then(|card| root.number(&format!("{}/{file}", card.folder)));
    let vram = of_card("mem_info_vram_total").or_else(|| bank(root, properties));
    let gtt = of_card("mem_info_gtt_total");
    let total = if integrated {
        match (vram, gtt) {
            (Some(vram), Some(gtt)) => Some(vram + gtt),
            // The carve-out alone is not what an APU can use.
            _ => gtt,
        }
    } else {
        vram
    };
    GpuMemory {
        total,
        vram,
        gtt: if integrated { gtt } else { None },
        vram_used: of_card("mem_info_vram_used"),
        shared: integrated,
    }
}

/// Memory by the topology: the largest bank of the node with this address.
fn bank(root: &Root, properties: &BTreeMap<String, u64>) -> Option<u64> {
    let location = properties.get("location_id")?;
    let node = root.names(NODES).into_iter().find(|name| {
        let text = root.text(&format!("{NODES}/{name}/properties")).unwrap_or_default();
        text.lines().any(|line| line == format!("location_id {location}"))
    })?;
    let banks = root.names(&format!("{NODES}/{node}/mem_banks"));
    let size = |bank: &String| {
        let text = root.text(&format!("{NODES}/{node}/mem_banks/{bank}/properties"))?;
        text.lines().find_map(|line| line.strip_prefix("size_in_bytes "))?.trim().parse::<u64>().ok()
    };
    banks.iter().filter_map(size).max()
}

#[cfg(test)]
mod tests {
    use super::target_of_version;

    #[test]
    fn versions_name_targets() {
        for (version, target) in [
            (90_006, Some("gfx906")),
            (90_010, Some("gfx90a")),
            (90_402, Some("gfx942")),
            (100_300, Some("gfx1030")),
            (110_000, Some("gfx1100")),
            (110_501, Some("gfx1151")),
            (120_001, Some("gfx1201")),
            (0, None),
            (91_700, None),
            (u64::MAX, None),
        ] {
            assert_eq!(target_of_version(version).as_deref(), target, "{version}");
        }
    }
}
