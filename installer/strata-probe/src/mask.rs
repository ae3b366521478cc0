//! Environment variables that hide devices, modelled in their layers: ROCR first, then HIP within what
//! ROCR left; CUDA by its own order. A bare number is no row of a list: what it means depends on the layer.

use crate::Root;
use strata_manifest::facts::{GpuFacts, GpuVendor, MaskFacts};

const CUDA: &str = "CUDA_VISIBLE_DEVICES";
const ORDER: &str = "CUDA_DEVICE_ORDER";
const ROCR: &str = "ROCR_VISIBLE_DEVICES";
const HIP: &str = "HIP_VISIBLE_DEVICES";

pub(crate) fn apply(root: &Root, gpus: &mut [GpuFacts]) -> Vec<MaskFacts> {
    let mut masks = Vec::new();
    let amd: Vec<usize> = positions(gpus, GpuVendor::Amd);
    let mut visible = amd.clone();
    // ROCm takes CUDA's variable for HIP's where HIP's is not set.
    for variable in [ROCR, HIP] {
        let Some(value) = root.variable(variable) else { continue };
        let (left, effect) = layer(value, &visible, gpus);
        visible = left;
        masks.push(MaskFacts { variable: variable.to_owned(), value: value.to_owned(), effect });
    }
    if visible.is_empty() && !amd.is_empty() && masks.len() == 2 {
        for mask in &mut masks {
            mask.effect += "; together with the other variable nothing is left, as HIP counts within what ROCR left";
        }
    }
    for index in amd {
        hide(gpus, index, visible.contains(&index), &masks);
    }
    cuda(root, gpus, &mut masks);
    masks
}

fn positions(gpus: &[GpuFacts], vendor: GpuVendor) -> Vec<usize> {
    (0..gpus.len()).filter(|index| gpus[*index].vendor == vendor).collect()
}

fn hide(gpus: &mut [GpuFacts], index: usize, visible: bool, masks: &[MaskFacts]) {
    gpus[index].visible = visible;
    if !visible {
        let names: Vec<&str> = masks.iter().map(|mask| mask.variable.as_str()).collect();
        gpus[index].evidence.push(format!("hidden by {}", names.join(" and ")));
    }
}

/// One ROCm layer over the devices that the layer before left.
fn layer(value: &str, before: &[usize], gpus: &[GpuFacts]) -> (Vec<usize>, String) {
    let mut left: Vec<usize> = Vec::new();
    for word in value.split(',').map(str::trim) {
        let found = match word.parse::<usize>() {
            Ok(number) => before.get(number).copied(),
            Err(_) => word.strip_prefix("GPU-").and_then(|id| {
                let same = |index: &&usize| unique(gpus, **index) == u64::from_str_radix(id, 16).ok();
                before.iter().find(same).copied()
            }),
        };
        match found {
            Some(index) if !left.contains(&index) => left.push(index),
            Some(_) => {}
            // The runtimes stop at the first entry that names nothing.
            None => {
                let effect =
                    format!("`{word}` names no device, and what stands behind it does not count: {} left", left.len());
                return (left, effect);
            }
        }
    }
    let effect = format!("leaves {} of {}", left.len(), before.len());
    (left, effect)
}

fn unique(gpus: &[GpuFacts], index: usize) -> Option<u64> {
    u64::from_str_radix(gpus[index].unique_id.as_deref()?.trim_start_matches("0x"), 16).ok()
}

fn cuda(root: &Root, gpus: &mut [GpuFacts], masks: &mut Vec<MaskFacts>) {
    let Some(value) = root.variable(CUDA).map(str::to_owned) else { return };
    let cards = positions(gpus, GpuVendor::Nvidia);
    if cards.is_empty() {
        return;
    }
    let ordered = order(root, gpus, &cards);
    let mut left: Vec<usize> = Vec::new();
    let mut slices: Vec<String> = Vec::new();
    let mut effect = None;
    for word in value.split(',').map(str::trim) {
        match named(word, gpus, &cards, ordered.as_deref()) {
            Named::Card(index) => left.push(index),
            Named::Slice(card, uuid) => {
                left.push(card);
                slices.push(uuid);
            }
            Named::Unknown => {
                masks.push(MaskFacts {
                    variable: CUDA.to_owned(),
                    value,
                    effect: "a bare number counts fastest first, and which card that is only the runtime knows; set CUDA_DEVICE_ORDER=PCI_BUS_ID or name the card by its UUID".to_owned(),
                });
                return;
            }
            Named::Nothing(why) => {
                effect = Some(why);
                break;
            }
        }
    }
    let count = left.iter().collect::<std::collections::BTreeSet<_>>().len();
    let effect = match (effect, value.trim().is_empty()) {
        (_, true) => "an empty list hides all".to_owned(),
        (Some(why), false) => format!("{why}; {count} left"),
        (None, false) => format!("leaves {count} of {}", cards.len()),
    };
    masks.push(MaskFacts { variable: CUDA.to_owned(), value, effect });
    let own: Vec<MaskFacts> = masks.last().cloned().into_iter().collect();
    for index in cards {
        hide(gpus, index, left.contains(&index), &own);
        for slice in &mut gpus[index].mig {
            slice.visible = slices.contains(&slice.uuid) || (slices.is_empty() && left.contains(&index));
        }
    }
}

/// What the numbers mean: PCI order when that is set; else fastest first, which is known only for equal cards
/// and where one is plainly the newest.
fn order(root: &Root, gpus: &[GpuFacts], cards: &[usize]) -> Option<Vec<usize>> {
    let mut by_pci = cards.to_vec();
    by_pci.sort_by(|a, b| gpus[*a].pci.cmp(&gpus[*b].pci));
    let same = cards.windows(2).all(|pair| gpus[pair[0]].name == gpus[pair[1]].name);
    (root.variable(ORDER) == Some("PCI_BUS_ID") || same).then_some(by_pci)
}

enum Named {
    Card(usize),
    Slice(usize, String),
    /// It means some card, and which one cannot be told from here.
    Unknown,
    Nothing(String),
}

fn named(word: &str, gpus: &[GpuFacts], cards: &[usize], ordered: Option<&[usize]>) -> Named {
    if let Ok(number) = word.parse::<usize>() {
        if number >= cards.len() {
            return Named::Nothing(format!("`{word}` names no device"));
        }
        return ordered.map_or(Named::Unknown, |ordered| Named::Card(ordered[number]));
    }
    if word.starts_with("MIG-") {
        let found = cards.iter().find_map(|index| {
            let slice = gpus[*index].mig.iter().find(|slice| slice.uuid.starts_with(word))?;
            Some(Named::Slice(*index, slice.uuid.clone()))
        });
        return found.unwrap_or_else(|| Named::Nothing(format!("`{word}` names no slice")));
    }
    let fits = |index: &&usize| gpus[**index].unique_id.as_deref().is_some_and(|uuid| uuid.starts_with(word));
    let found: Vec<usize> = cards.iter().filter(fits).copied().collect();
    match found.as_slice() {
        [only] if word.starts_with("GPU-") => Named::Card(*only),
        [_, _, ..] if word.starts_with("GPU-") => Named::Nothing(format!("`{word}` fits {} devices", found.len())),
        _ => Named::Nothing(format!("`{word}` names no device")),
    }
}
