//! PCI devices as sysfs lists them.

use crate::{Root, Sources};
use strata_manifest::facts::LinkFacts;

pub(crate) const AMD: u64 = 0x1002;
pub(crate) const NVIDIA: u64 = 0x10de;

const FOLDER: &str = "sys/bus/pci/devices";

/// One device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PciDevice {
    /// `0000:03:00.0`, lower case.
    pub(crate) address: String,
    pub(crate) vendor: u64,
    pub(crate) device: u64,
    pub(crate) class: u64,
    /// Tells cards apart that share an id.
    pub(crate) revision: Option<u64>,
    /// The kernel has put it to sleep; reading its registers would wake it.
    pub(crate) asleep: bool,
    pub(crate) driver: Option<String>,
    pub(crate) link: Option<LinkFacts>,
}

impl PciDevice {
    /// VGA, 3D and "display" controllers: MI50 and Radeon VII are the last kind.
    pub(crate) fn is_display(&self) -> bool {
        self.class >> 16 == 0x03
    }

    /// `1002:66a1`.
    pub(crate) fn id(&self) -> String {
        format!("{:04x}:{:04x}", self.vendor, self.device)
    }

    /// Folder of the device.
    pub(crate) fn folder(&self) -> String {
        format!("{FOLDER}/{}", self.address)
    }
}

pub(crate) fn scan(root: &Root, sources: &mut Sources) -> Vec<PciDevice> {
    let mut devices = Vec::new();
    for name in root.names(FOLDER) {
        let folder = format!("{FOLDER}/{name}");
        let ids = (root.hex(&format!("{folder}/vendor")), root.hex(&format!("{folder}/device")));
        let (Some(vendor), Some(device)) = ids else {
            sources.failed(&format!("/{folder}"), "vendor or device cannot be read");
            continue;
        };
        let asleep = root.text(&format!("{folder}/power/runtime_status")).as_deref() == Some("suspended");
        devices.push(PciDevice {
            address: name.to_ascii_lowercase(),
            vendor,
            device,
            class: root.hex(&format!("{folder}/class")).unwrap_or(0),
            revision: root.hex(&format!("{folder}/revision")),
            asleep,
            driver: root.link_name(&format!("{folder}/driver")).or_else(|| driver_of_uevent(root, &folder)),
            link: if asleep { None } else { link(root, &folder) },
        });
    }
    let displays = devices.iter().filter(|device| device.is_display()).count();
    let result = if root.exists(FOLDER) {
        format!("{} devices, {displays} of them for display", devices.len())
    } else {
        "not there".to_owned()
    };
    sources.gave(&format!("/{FOLDER}"), result);
    devices
}

/// Copies of a machine's files often lack links; `uevent` says the same.
fn driver_of_uevent(root: &Root, folder: &str) -> Option<String> {
    let text = root.text(&format!("{folder}/uevent"))?;
    text.lines().find_map(|line| line.strip_prefix("DRIVER=")).map(str::to_owned)
}

fn link(root: &Root, folder: &str) -> Option<LinkFacts> {
    let speed = root.text(&format!("{folder}/current_link_speed"))?;
    let width = root.number(&format!("{folder}/current_link_width"))?;
    Some(LinkFacts {
        speed,
        width,
        max_speed: root.text(&format!("{folder}/max_link_speed")),
        max_width: root.number(&format!("{folder}/max_link_width")),
    })
}
