//! The table of GPUs: targets with their plugin, PCI ids with name and target. `manifests/data/gpus.toml` is in
//! every build; people write it, so unknown fields are errors.

use crate::ManifestError;
use serde::Deserialize;
use std::path::Path;
use std::sync::OnceLock;

const BUILT_IN: &str = include_str!("../../data/gpus.toml");

/// What is known about GPUs beforehand.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuTable {
    #[serde(rename = "target")]
    pub targets: Vec<GpuTarget>,
    #[serde(rename = "card")]
    pub cards: Vec<GpuCard>,
    #[serde(rename = "chip")]
    pub chips: Vec<GpuChip>,
    #[serde(rename = "driver")]
    pub drivers: Vec<GpuDriver>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GpuTarget {
    /// `gfx906`.
    pub name: String,
    /// Generation, for people.
    pub family: String,
    /// Absent: Strata has no kernels for it.
    #[serde(default)]
    pub plugin: Option<String>,
    /// It shares the processor's memory.
    #[serde(default)]
    pub integrated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GpuCard {
    /// `1002:66a1`.
    pub pci: String,
    /// PCI revision `06`, where the id alone stands for several cards.
    #[serde(default)]
    pub revision: Option<String>,
    pub name: String,
    #[serde(default)]
    pub target: Option<String>,
}

/// The oldest driver of a vendor that a plugin works with.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GpuDriver {
    /// `nvidia`.
    pub name: String,
    /// `460.27.03`.
    pub version: String,
    /// What that version brought, for people.
    pub why: String,
}

/// PCI ids that one chip's cards have, both ends included.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GpuChip {
    /// `10de`.
    pub vendor: String,
    /// `2200`.
    pub from: String,
    pub to: String,
    /// Generation and chip, for people.
    pub name: String,
    pub target: String,
}

impl GpuTable {
    /// The table of this build.
    pub fn built_in() -> &'static GpuTable {
        static TABLE: OnceLock<GpuTable> = OnceLock::new();
        TABLE.get_or_init(|| {
            GpuTable::parse(BUILT_IN, Path::new("gpus.toml")).expect("a test reads the table of this build")
        })
    }

    pub fn parse(text: &str, path: &Path) -> Result<GpuTable, ManifestError> {
        toml::from_str(text).map_err(|error| ManifestError::Malformed { path: path.to_owned(), why: error.to_string() })
    }

    /// Target by its name, features after a colon left aside.
    pub fn target(&self, name: &str) -> Option<&GpuTarget> {
        let plain = name.split(':').next().unwrap_or(name);
        self.targets.iter().find(|target| target.name == plain)
    }

    /// The card of a PCI id; where its revision is known and listed, that one.
    pub fn card(&self, pci_id: &str, revision: Option<u64>) -> Option<&GpuCard> {
        let of_id = || self.cards.iter().filter(|card| card.pci.eq_ignore_ascii_case(pci_id));
        let same = |card: &&GpuCard| {
            let listed = card.revision.as_deref().and_then(|text| u64::from_str_radix(text, 16).ok());
            listed.is_some() && listed == revision
        };
        of_id().find(same).or_else(|| of_id().find(|card| card.revision.is_none()))
    }

    /// The oldest driver that works, where that is known.
    pub fn driver_floor(&self, name: &str) -> Option<&GpuDriver> {
        self.drivers.iter().find(|driver| driver.name == name)
    }

    /// The chip that a PCI id is of.
    pub fn chip(&self, pci_id: &str) -> Option<&GpuChip> {
        let (vendor, device) = pci_id.split_once(':')?;
        let hex = |text: &str| u32::from_str_radix(text, 16).ok();
        let device = hex(device)?;
        let holds = |chip: &&GpuChip| {
            let range = hex(&chip.from).zip(hex(&chip.to));
            chip.vendor.eq_ignore_ascii_case(vendor) && range.is_some_and(|(from, to)| (from..=to).contains(&device))
        };
        self.chips.iter().find(holds)
    }

    /// The plugin for a target: AMD's by name, NVIDIA's by compute capability (7.5 and all later ones, as the
    /// driver compiles the plugin's intermediate code for cards that came after it).
    pub fn plugin(&self, target: &str) -> Option<&str> {
        if let Some(capability) = target.strip_prefix("sm_") {
            let number: u32 = capability.trim_end_matches(|c: char| c.is_ascii_lowercase()).parse().ok()?;
            return (number >= 75).then_some("cuda");
        }
        self.target(target)?.plugin.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        let table = GpuTable::built_in();
        let name = |id: &str, revision| table.card(id, revision).map(|card| card.name.as_str());
        assert_eq!(table.card("1002:66A1", None).unwrap().target.as_deref(), Some("gfx906"));
        assert_eq!(name("1002:66a1", Some(6)), Some("Radeon Pro VII"));
        assert_eq!(name("1002:66a1", Some(0x77)), Some("Radeon Pro VII / Instinct MI50"));
        assert_eq!(name("1002:744c", Some(0xcc)), Some("Radeon RX 7900 XT"));
        assert_eq!(name("1002:ffff", None), None);
        let target = |id: &str| table.chip(id).map(|chip| chip.target.as_str());
        for (id, expected) in [
            ("10de:1b80", Some("sm_61")),
            ("10de:2204", Some("sm_86")),
            ("10de:2684", Some("sm_89")),
            ("10de:2330", Some("sm_90")),
            ("10de:2b85", Some("sm_120")),
            ("1002:2684", None),
            ("10de:0fff", None),
            ("10de", None),
            ("10de:zz", None),
        ] {
            assert_eq!(target(id), expected, "{id}");
        }
        for (target, plugin) in [
            ("gfx906", Some("hip-gfx906")),
            ("gfx906:sramecc+:xnack-", Some("hip-gfx906")),
            ("gfx1100", Some("hip-rx7900")),
            ("gfx1102", Some("hip-rx7900")),
            ("gfx1030", None),
            ("gfx9999", None),
            ("sm_75", Some("cuda")),
            ("sm_120", Some("cuda")),
            ("sm_61", None),
        ] {
            assert_eq!(table.plugin(target), plugin, "{target}");
        }
        let mut seen = std::collections::BTreeSet::new();
        for card in &table.cards {
            assert!(seen.insert((&card.pci, &card.revision)), "{} stands twice", card.pci);
            let known = card.target.as_ref().is_none_or(|target| table.target(target).is_some());
            assert!(known, "{} names a target that is not in the table", card.pci);
            assert!(name(&card.pci, None).is_some(), "{} has no entry without a revision", card.pci);
        }
        for (index, chip) in table.chips.iter().enumerate() {
            for end in [&chip.from, &chip.to] {
                let found = table.chip(&format!("{}:{end}", chip.vendor));
                assert_eq!(found, Some(&table.chips[index]), "{end} lies in two ranges, or in none");
            }
        }
    }
}
