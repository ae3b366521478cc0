//! Whether a vendor's GPU is in the machine, from the PCI bus alone: enough to tell a machine
//! without a card, where an idle GPU plugin is no news, from one whose card cannot be used, where
//! it is. Nothing is opened and no tool is run. Real detection is the installer's.

use crate::verify::read_line;
use std::path::Path;
use strata_manifest::BackendKind;

/// What is known about a vendor's hardware without its driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hardware {
    /// Addresses on the PCI bus, or a device node that stands for it.
    Present(Vec<String>),
    Absent,
    /// The bus cannot be read here.
    Unknown,
}

const NVIDIA: &str = "0x10de";
const AMD: &str = "0x1002";

/// Looks below `root`, which is `/` but for tests.
pub fn hardware(root: &Path, kind: BackendKind) -> Hardware {
    let (vendor, node) = match kind {
        BackendKind::Cuda => (NVIDIA, "dev/nvidiactl"),
        BackendKind::Hip => (AMD, "dev/kfd"),
        BackendKind::Cpu | BackendKind::Unknown => return Hardware::Unknown,
    };
    let mut found = Vec::new();
    let Ok(devices) = fs_err::read_dir(root.join("sys/bus/pci/devices")) else {
        return elsewhere(root, node).map_or(Hardware::Unknown, |node| Hardware::Present(vec![node]));
    };
    for device in devices.flatten() {
        let field = |name: &str| read_line(&device.path().join(name)).unwrap_or_default();
        // Display controllers of all sorts, and accelerators without a picture.
        let class = field("class");
        let computes = class.starts_with("0x03") || class.starts_with("0x12");
        if computes && field("vendor") == vendor {
            found.push(device.file_name().to_string_lossy().into_owned());
        }
    }
    if found.is_empty() {
        found.extend(elsewhere(root, node));
    }
    found.sort();
    if found.is_empty() { Hardware::Absent } else { Hardware::Present(found) }
}

/// Where a card shows that is on no bus: in a container, or under WSL.
fn elsewhere(root: &Path, node: &str) -> Option<String> {
    [node, "dev/dxg"].into_iter().find(|node| root.join(node).exists()).map(|node| format!("/{node}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bus_tells_whose_card_is_there() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(hardware(root.path(), BackendKind::Cuda), Hardware::Unknown);
        let add = |address: &str, vendor: &str, class: &str| {
            let folder = root.path().join("sys/bus/pci/devices").join(address);
            fs_err::create_dir_all(&folder).unwrap();
            fs_err::write(folder.join("vendor"), format!("{vendor}\n")).unwrap();
            fs_err::write(folder.join("class"), format!("{class}\n")).unwrap();
        };
        // A network card, and AMD's host bridge, which every Ryzen has.
        add("0000:00:00.0", "0x1002", "0x060000");
        add("0000:02:00.0", "0x8086", "0x020000");
        assert_eq!(hardware(root.path(), BackendKind::Hip), Hardware::Absent);
        // An MI50 shows as "Display controller", an NVIDIA card without outputs as "3D controller".
        add("0000:03:00.0", "0x1002", "0x038000");
        add("0000:41:00.0", "0x10de", "0x030200");
        assert_eq!(hardware(root.path(), BackendKind::Hip), Hardware::Present(vec!["0000:03:00.0".to_owned()]));
        assert_eq!(hardware(root.path(), BackendKind::Cuda), Hardware::Present(vec!["0000:41:00.0".to_owned()]));
    }

    #[test]
    fn a_node_stands_for_a_card_that_is_on_no_bus() {
        let root = tempfile::tempdir().unwrap();
        fs_err::create_dir_all(root.path().join("dev")).unwrap();
        fs_err::create_dir_all(root.path().join("sys/bus/pci/devices")).unwrap();
        fs_err::write(root.path().join("dev/nvidiactl"), "").unwrap();
        assert_eq!(hardware(root.path(), BackendKind::Cuda), Hardware::Present(vec!["/dev/nvidiactl".to_owned()]));
        assert_eq!(hardware(root.path(), BackendKind::Hip), Hardware::Absent);
        fs_err::write(root.path().join("dev/dxg"), "").unwrap();
        assert_eq!(hardware(root.path(), BackendKind::Hip), Hardware::Present(vec!["/dev/dxg".to_owned()]));
    }
}
