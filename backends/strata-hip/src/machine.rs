//! Why the runtime finds no card. It has one answer for all causes; the machine's files tell them
//! apart: no card on the bus, no kernel driver, no permission for a device node, hidden by a mask,
//! listed by the kernel and refused by this ROCm.
//!
//! Reads files below a root and opens device nodes; calls no library. Full detection, with states and
//! evidence for every card, is the installer's and `strata doctor`'s business.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use strata_backend_abi::StrataStatus;
use strata_backend_sdk::Failure;

/// Masks of ROCm's layers, as the runtime reads them.
const MASKS: [&str; 4] = ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"];
const AMD: &str = "0x1002";

/// The failure for a runtime that answered "no device"; `answered` is its library and what it said.
pub(crate) fn why_no_card(root: &Path, answered: &str) -> Failure {
    let masks: Vec<String> =
        MASKS.iter().filter_map(|name| Some(format!("{name}={}", std::env::var_os(name)?.to_string_lossy()))).collect();
    let open = |path: &Path| std::fs::OpenOptions::new().read(true).write(true).open(path).map(drop);
    let (status, text) = why(root, &masks, &open);
    Failure::new(status, format!("{text} ({answered})"))
}

/// Opens a device node for reading and writing, as the runtime does.
type Open<'a> = &'a dyn Fn(&Path) -> std::io::Result<()>;

fn why(root: &Path, masks: &[String], open: Open<'_>) -> (StrataStatus, String) {
    let kfd = root.join("dev/kfd");
    let cards = cards_on_bus(root);
    if !kfd.exists() {
        return without_kfd(root, &cards);
    }
    if let Some(answer) = refused(root, &kfd, open) {
        return answer;
    }
    let nodes = render_nodes(root);
    if nodes.is_empty() {
        let text = "/dev/kfd is there and no /dev/dri/renderD* is: both must be given to a container \
                    (`--device /dev/kfd --device /dev/dri`)";
        return (StrataStatus::DriverMissing, text.to_owned());
    }
    let answers = nodes.iter().map(|node| refused(root, node, open));
    // One card that may be opened is enough for the runtime to list it.
    if let Some(answer) = answers.collect::<Option<Vec<_>>>().and_then(|answers| answers.into_iter().next()) {
        return answer;
    }
    let listed = listed_by_kernel(root);
    if !masks.is_empty() {
        let text = format!("the HIP runtime finds no card: {} may hide it", masks.join(" "));
        return (StrataStatus::NoDevice, text);
    }
    if listed.is_empty() {
        let text = "the HIP runtime finds no card, and the kernel driver lists none that computes";
        return (StrataStatus::NoDevice, text.to_owned());
    }
    let text = format!(
        "the HIP runtime finds no card, although the kernel driver lists {}: this version of ROCm may not support it",
        listed.join(", ")
    );
    (StrataStatus::NoDevice, text)
}

fn without_kfd(root: &Path, cards: &[String]) -> (StrataStatus, String) {
    if root.join("dev/dxg").exists() {
        let text = "WSL reaches AMD cards through /dev/dxg, which needs ROCm's runtime for WSL and \
                    HSA_ENABLE_DXG_DETECTION=1; there is no /dev/kfd";
        return (StrataStatus::DriverMissing, text.to_owned());
    }
    if cards.is_empty() {
        let text = "the HIP runtime finds no card, and there is none of AMD's on the PCI bus";
        return (StrataStatus::NoDevice, text.to_owned());
    }
    let text = format!(
        "there is an AMD card at {}, and no /dev/kfd: the kernel module amdgpu is not loaded (`sudo modprobe amdgpu`), \
         or this is a container that was not given it (`--device /dev/kfd --device /dev/dri`)",
        cards.join(", ")
    );
    (StrataStatus::DriverMissing, text)
}

/// Why a node cannot be opened; `None` when it can.
fn refused(root: &Path, node: &Path, open: Open<'_>) -> Option<(StrataStatus, String)> {
    let error = open(node).err()?;
    let name = node.strip_prefix(root).unwrap_or(node).display().to_string();
    if error.kind() != ErrorKind::PermissionDenied {
        return Some((StrataStatus::DriverMissing, format!("/{name} cannot be opened: {error}")));
    }
    // EPERM comes from a container's device rules, EACCES from the file's mode.
    if error.raw_os_error() == Some(libc::EPERM) {
        let text = format!("this container may not open /{name}: give it the device (`--device /{name}`)");
        return Some((StrataStatus::NoPermission, text));
    }
    let group = fs_err::metadata(node).ok().map(|metadata| group_name(root, metadata.gid()));
    let group = group.unwrap_or_else(|| "render".to_owned());
    let text = format!(
        "this user may not open /{name}, which is for group {group}: `sudo usermod -aG {group} $USER`, then log in again"
    );
    Some((StrataStatus::NoPermission, text))
}

fn group_name(root: &Path, gid: u32) -> String {
    let groups = fs_err::read_to_string(root.join("etc/group")).unwrap_or_default();
    let named = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(gid)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| gid.to_string())
}

fn line(path: &Path) -> String {
    fs_err::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs_err::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// PCI addresses of AMD's display controllers and accelerators.
fn cards_on_bus(root: &Path) -> Vec<String> {
    let is_card = |device: &PathBuf| {
        let class = line(&device.join("class"));
        line(&device.join("vendor")) == AMD && (class.starts_with("0x03") || class.starts_with("0x12"))
    };
    let cards = names(&root.join("sys/bus/pci/devices")).into_iter().filter(is_card);
    cards.filter_map(|device| Some(device.file_name()?.to_string_lossy().into_owned())).collect()
}

/// Render nodes of AMD's cards; all of them where the system does not tell whose they are.
fn render_nodes(root: &Path) -> Vec<PathBuf> {
    let is_amds = |node: &PathBuf| {
        let Some(name) = node.file_name().map(|name| name.to_string_lossy().into_owned()) else { return false };
        let vendor = line(&root.join("sys/class/drm").join(&name).join("device/vendor"));
        name.starts_with("renderD") && (vendor.is_empty() || vendor == AMD)
    };
    names(&root.join("dev/dri")).into_iter().filter(is_amds).collect()
}

/// `gfx906` of every GPU that the kernel driver lists for computing.
fn listed_by_kernel(root: &Path) -> Vec<String> {
    let target = |node: PathBuf| {
        let properties = line(&node.join("properties"));
        let value = properties.lines().find_map(|line| line.strip_prefix("gfx_target_version "))?;
        let version: u32 = value.trim().parse().ok().filter(|version| *version > 0)?;
        Some(format!("gfx{}{:x}{:x}", version / 10_000, version / 100 % 100, version % 100))
    };
    names(&root.join("sys/class/kfd/kfd/topology/nodes")).into_iter().filter_map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn lay(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, text).unwrap();
        }
        root
    }

    const CARD: [(&str, &str); 2] = [
        ("sys/bus/pci/devices/0000:03:00.0/vendor", "0x1002\n"),
        ("sys/bus/pci/devices/0000:03:00.0/class", "0x038000\n"),
    ];
    const NODES: [(&str, &str); 4] = [
        ("dev/kfd", ""),
        ("dev/dri/renderD128", ""),
        ("sys/class/drm/renderD128/device/vendor", "0x1002\n"),
        ("sys/class/kfd/kfd/topology/nodes/1/properties", "simd_count 240\ngfx_target_version 90006\n"),
    ];

    /// Every node opens.
    fn may(path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() { Err(ErrorKind::NotFound.into()) } else { Ok(()) }
    }

    fn answer(files: &[(&str, &str)], masks: &[&str], open: Open<'_>) -> (StrataStatus, String) {
        let masks: Vec<String> = masks.iter().map(|mask| (*mask).to_owned()).collect();
        why(lay(files).path(), &masks, open)
    }

    #[test]
    fn no_card_and_a_card_without_a_driver_are_two_answers() {
        let (status, text) = answer(&[], &[], &may);
        assert_eq!(status, StrataStatus::NoDevice);
        assert!(text.contains("none of AMD's on the PCI bus"), "{text}");
        let (status, text) = answer(&CARD, &[], &may);
        assert_eq!(status, StrataStatus::DriverMissing);
        assert!(text.contains("0000:03:00.0") && text.contains("modprobe amdgpu"), "{text}");
        let (status, text) = answer(&[("dev/dxg", "")], &[], &may);
        assert_eq!(status, StrataStatus::DriverMissing);
        assert!(text.contains("/dev/dxg"), "{text}");
    }

    #[test]
    fn permissions_of_the_two_kinds_of_node_are_told_apart() {
        let files = [&NODES[..], &CARD[..], &[("etc/group", "root:x:0:\nrender:x:110:\n")]].concat();
        for (refused, words) in [("kfd", "/dev/kfd"), ("renderD128", "/dev/dri/renderD128")] {
            let deny = |code| {
                move |path: &Path| {
                    let hit = path.file_name().is_some_and(|name| name == refused);
                    if hit { Err(io::Error::from_raw_os_error(code)) } else { Ok(()) }
                }
            };
            let (status, text) = answer(&files, &[], &deny(libc::EACCES));
            assert_eq!(status, StrataStatus::NoPermission);
            assert!(text.contains(words) && text.contains("usermod -aG"), "{text}");
            let (status, text) = answer(&files, &[], &deny(libc::EPERM));
            assert_eq!(status, StrataStatus::NoPermission);
            assert!(text.contains(words) && text.contains("container"), "{text}");
            let (status, text) = answer(&files, &[], &deny(libc::ENODEV));
            assert_eq!(status, StrataStatus::DriverMissing);
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn groups_are_named() {
        let root = lay(&[("etc/group", "video:x:44:\nrender:x:110:me,you\n")]);
        assert_eq!(group_name(root.path(), 110), "render");
        assert_eq!(group_name(root.path(), 7), "7");
    }

    #[test]
    fn masks_and_unsupported_cards_are_named() {
        let (status, text) = answer(&NODES, &["HIP_VISIBLE_DEVICES=9"], &may);
        assert_eq!(status, StrataStatus::NoDevice);
        assert!(text.contains("HIP_VISIBLE_DEVICES=9"), "{text}");
        let (status, text) = answer(&NODES, &[], &may);
        assert_eq!(status, StrataStatus::NoDevice);
        assert!(text.contains("gfx906") && text.contains("may not support"), "{text}");
        let (status, text) = answer(&NODES[..1], &[], &may);
        assert_eq!(status, StrataStatus::DriverMissing);
        assert!(text.contains("renderD*"), "{text}");
    }
}
