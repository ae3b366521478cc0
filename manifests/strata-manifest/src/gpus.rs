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
    pub name: String,
    #[serde(default)]
    pub target: Option<String>,
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

    pub fn card(&self, pci_id: &str) -> Option<&GpuCard> {
        self.cards.iter().find(|card| card.pci.eq_ignore_ascii_case(pci_id))
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
        assert_eq!(table.card("1002:66A1").unwrap().target.as_deref(), Some("gfx906"));
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
            assert!(seen.insert(&card.pci), "{} stands twice", card.pci);
            let known = card.target.as_ref().is_none_or(|target| table.target(target).is_some());
            assert!(known, "{} names a target that is not in the table", card.pci);
        }
    }
}
