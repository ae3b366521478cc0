//! Which kernels a plugin carries, and the loaded ones of one card. Modules are loaded when their
//! first kernel is wanted: taking up PTX costs the driver time, and no model needs all of them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use strata_backend_sdk::abi::StrataStatus;
use strata_backend_sdk::{Failure, Result};

use crate::driver::{Driver, DriverResult};

/// Bytes that begin at a multiple of a page, as loaders of whole ELF files want them.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Aligned<T: ?Sized>(pub T);

/// Machine code of a module for one target.
#[derive(Debug, Clone, Copy)]
pub struct Image {
    /// `sm_90` machine code, `compute_80` PTX, `gfx906` code object.
    pub target: &'static str,
    /// The file.
    pub bytes: &'static [u8],
}

/// Kernels of one source file.
#[derive(Debug, Clone, Copy)]
pub struct Module {
    /// The source file's stem.
    pub name: &'static str,
    /// Names of its kernels.
    pub entries: &'static [&'static str],
    /// Best first is not needed: [`best_image`] compares.
    pub images: &'static [Image],
}

/// Targets that all modules together hold code for, each once.
pub fn targets(modules: &[Module]) -> Vec<&'static str> {
    let mut found: Vec<&'static str> = Vec::new();
    for image in modules.iter().flat_map(|module| module.images) {
        if !found.contains(&image.target) {
            found.push(image.target);
        }
    }
    found
}

/// The target that a card's kernels are taken from.
///
/// # Errors
/// The plugin holds nothing for the card: the text names card, target and what there is.
pub fn held(modules: &[Module], name: &str, arch: &str) -> Result<&'static str> {
    let image = modules.first().and_then(|module| best_image(module, arch));
    image.map(|image| image.target).ok_or_else(|| {
        let held = targets(modules).join(", ");
        Failure::new(StrataStatus::ArchMissing, format!("no kernels for {name} ({arch}): this plugin holds {held}"))
    })
}

/// The image of a module to load on a card. NVIDIA: machine code for it, else for a lower minor of its
/// major, else the newest intermediate code that it can take up; a name that ends in `a` is for that
/// architecture alone. AMD: the same processor, and every
/// feature that the image names set as the card has it; of several the one that names most.
pub fn best_image(module: &Module, arch: &str) -> Option<Image> {
    let rank = |image: &Image| {
        if image.target == arch {
            return Some((3, 0));
        }
        if arch.starts_with("gfx") {
            let (processor, features) = image.target.split_once(':').unwrap_or((image.target, ""));
            let mut card = arch.split(':');
            let runs = card.next() == Some(processor)
                && features
                    .split(':')
                    .filter(|feature| !feature.is_empty())
                    .all(|feature| card.clone().any(|set| set == feature));
            return runs.then_some((2, features.len() as u32));
        }
        let card: u32 = arch.strip_prefix("sm_")?.parse().ok()?;
        // Code with instructions of one architecture alone (`sm_90a`) is for that one.
        if let Some(own) = image.target.strip_suffix('a') {
            let machine = own == arch;
            return (machine || own == format!("compute_{card}")).then_some((if machine { 3 } else { 1 }, card));
        }
        if let Some(code) = image.target.strip_prefix("sm_").and_then(|code| code.parse::<u32>().ok()) {
            return (code / 10 == card / 10 && code <= card).then_some((2, code));
        }
        let code: u32 = image.target.strip_prefix("compute_")?.parse().ok()?;
        (code <= card).then_some((1, code))
    };
    module
        .images
        .iter()
        .filter_map(|image| rank(image).map(|rank| (rank, *image)))
        .max_by_key(|(rank, _)| *rank)
        .map(|(_, image)| image)
}

/// A kernel that is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kernel {
    pub(crate) function: u64,
}

/// The kernels of one card.
#[derive(Debug)]
pub(crate) struct KernelTable {
    modules: &'static [Module],
    arch: String,
    /// Module of each kernel.
    places: HashMap<&'static str, usize>,
    loaded: Mutex<Loaded>,
}

#[derive(Debug, Default)]
struct Loaded {
    modules: HashMap<usize, u64>,
    kernels: HashMap<&'static str, Kernel>,
}

impl KernelTable {
    pub(crate) fn new(modules: &'static [Module], arch: &str) -> KernelTable {
        let mut places = HashMap::new();
        for (index, module) in modules.iter().enumerate() {
            if best_image(module, arch).is_some() {
                places.extend(module.entries.iter().map(|entry| (*entry, index)));
            }
        }
        KernelTable { modules, arch: arch.to_owned(), places, loaded: Mutex::default() }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// The kernel, loaded now if it was not; `None` when there is none of this name.
    pub(crate) fn get<D: Driver>(&self, driver: &D, name: &str) -> DriverResult<Option<Kernel>> {
        let Some((name, place)) = self.places.get_key_value(name) else { return Ok(None) };
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = loaded.kernels.get(name) {
            return Ok(Some(*kernel));
        }
        let module = if let Some(module) = loaded.modules.get(place) {
            *module
        } else {
            let Some(image) = best_image(&self.modules[*place], &self.arch) else { return Ok(None) };
            let module = driver.load(image.bytes)?;
            loaded.modules.insert(*place, module);
            module
        };
        let kernel = Kernel { function: driver.function(module, name)? };
        loaded.kernels.insert(name, kernel);
        Ok(Some(kernel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn image(target: &'static str) -> Image {
        Image { target, bytes: &[] }
    }
    const MODULE: Module = Module {
        name: "norm",
        entries: &["rows"],
        images: &[image("sm_80"), image("sm_90"), image("compute_80"), image("compute_90")],
    };

    #[test]
    fn the_nearest_image_is_taken() {
        let best = |arch| best_image(&MODULE, arch).map(|image| image.target);
        assert_eq!(best("sm_90"), Some("sm_90"));
        assert_eq!(best("sm_86"), Some("sm_80"));
        assert_eq!(best("sm_120"), Some("compute_90"));
        assert_eq!(best("sm_75"), None);
        assert_eq!(best("gfx906"), None);
        assert_eq!(targets(&[MODULE]), ["sm_80", "sm_90", "compute_80", "compute_90"]);
    }
    #[test]
    fn amds_features_must_be_as_the_image_names_them() {
        const NARROW: Module =
            Module { images: &[image("gfx906"), image("gfx906:sramecc+:xnack-"), image("gfx90a:xnack+")], ..MODULE };
        let best = |arch| best_image(&NARROW, arch).map(|image| image.target);
        assert_eq!(best("gfx906:sramecc+:xnack-"), Some("gfx906:sramecc+:xnack-"));
        assert_eq!(best("gfx906:sramecc-:xnack-"), Some("gfx906"));
        assert_eq!(best("gfx906"), Some("gfx906"));
        assert_eq!(best("gfx90a:sramecc+:xnack-"), None);
        assert_eq!(best("gfx90a:sramecc+:xnack+"), Some("gfx90a:xnack+"));
        assert_eq!(best("gfx9060"), None);
        let failure = held(&[NARROW], "Radeon VII (0000:03:00.0)", "gfx90c").unwrap_err();
        assert_eq!(
            failure.text,
            "no kernels for Radeon VII (0000:03:00.0) (gfx90c): this plugin holds gfx906, gfx906:sramecc+:xnack-, gfx90a:xnack+"
        );
    }

    #[test]
    fn code_of_one_architecture_is_for_no_other() {
        const ALONE: Module =
            Module { name: "hmw", entries: &[], images: &[image("sm_90a"), image("compute_90a"), image("gfx906")] };
        let best = |arch| best_image(&ALONE, arch).map(|image| image.target);
        assert_eq!(best("sm_90"), Some("sm_90a"));
        assert_eq!(best("sm_100"), None);
        assert_eq!(best("gfx906"), Some("gfx906"));
        assert_eq!(best("gfx908"), None);
    }
}
