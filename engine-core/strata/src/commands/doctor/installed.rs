//! What is installed: files and models against the receipt, plugins by opening them as a run would.

use super::{Check, Level, size};
use crate::device::Entries;
use crate::prefix::Prefix;
use std::path::Path;
use strata_diag::Diagnostic;
use strata_diag::catalogue::installing::GENERATION_DAMAGED;
use strata_manifest::Sha256Digest;
use strata_plugin_host::{DeviceInfo, DeviceOptions, OpenOptions, Plugin};

/// Damaged files that are named one by one.
const SHOWN: usize = 8;

/// A device that opened.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) plugin: Plugin,
    pub(super) info: DeviceInfo,
}

/// Every file of the receipt.
pub(super) fn files(prefix: Option<&Prefix>, full: bool) -> Vec<Check> {
    let Some(prefix) = prefix else {
        return vec![Check::new("files", Level::Note, "this program is not installed: it has no receipt to check")];
    };
    let files = &prefix.receipt.files;
    let damage: Vec<String> = files
        .iter()
        .filter_map(|file| {
            let digest = full.then_some(&file.sha256);
            let why = differs(&prefix.root.join(&file.path), file.size, digest)?;
            Some(format!("{}: {why}", file.path))
        })
        .collect();
    let how = if full { "size and digest" } else { "size" };
    let place = prefix.root.display();
    if damage.is_empty() {
        let text = format!("{} files below {place} are as installed (by {how})", files.len());
        return vec![Check::new("files", Level::Fine, text)];
    }
    let text = format!(
        "{} of {} files below {place} are not as installed [{}]",
        damage.len(),
        files.len(),
        GENERATION_DAMAGED.id
    );
    let mut check =
        Check::new("files", Level::Wrong, text).advise("`strata-setup repair` puts back what the release holds");
    check.details = damage.iter().take(SHOWN).cloned().collect();
    if damage.len() > SHOWN {
        check.details.push(format!("and {} more", damage.len() - SHOWN));
    }
    vec![check]
}

pub(super) fn models(prefix: Option<&Prefix>, full: bool) -> Vec<Check> {
    let Some(prefix) = prefix else { return Vec::new() };
    let check = |model: &crate::prefix::Model| {
        let damage: Vec<String> = model
            .files
            .iter()
            .filter_map(|(path, bytes, digest)| {
                Some(format!("{}: {}", path.display(), differs(path, *bytes, full.then_some(digest))?))
            })
            .collect();
        let bytes: u64 = model.files.iter().map(|(_, bytes, _)| bytes).sum();
        if damage.is_empty() {
            return Check::new("models", Level::Fine, format!("{}, {}", model.name, size(bytes)));
        }
        let mut check = Check::new("models", Level::Wrong, format!("{} is not as installed", model.name))
            .advise("`strata-setup repair` fetches it again");
        check.details = damage;
        check
    };
    if prefix.models.is_empty() {
        let none = Check::new("models", Level::Note, "none is installed");
        return vec![none.advise("`strata-setup --model NAME` installs one; `strata run PATH` takes any GGUF file")];
    }
    prefix.models.iter().map(check).collect()
}

/// Why a file is not the one that was installed.
fn differs(path: &Path, bytes: u64, digest: Option<&Sha256Digest>) -> Option<String> {
    let metadata = match fs_err::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return Some(format!("it cannot be read: {error}")),
    };
    if !metadata.is_file() {
        return Some("it is no regular file".to_owned());
    }
    if metadata.len() != bytes {
        return Some(format!("it has {} bytes, {bytes} when installed", metadata.len()));
    }
    let digest = digest?;
    match fs_err::File::open(path).and_then(Sha256Digest::of_reader) {
        Ok((found, _)) if found == *digest => None,
        Ok((found, _)) => Some(format!("its SHA-256 is {found}, {digest} when installed")),
        Err(error) => Some(format!("it cannot be read: {error}")),
    }
}

/// Opens every plugin as a run would, in a child first, and every device of it.
pub(super) fn plugins(entries: &Entries, options: &OpenOptions, checks: &mut Vec<Check>) -> Vec<Found> {
    let mut found = Vec::new();
    for (name, entry) in entries {
        let opened = entry.as_ref().map_err(|error| Diagnostic::of(error)).and_then(|entry| {
            let plugin = Plugin::open(entry, options).map_err(|error| Diagnostic::of(&error))?;
            let slots = plugin.device_slots().map_err(|error| Diagnostic::of(&error))?;
            Ok((plugin, slots))
        });
        let (plugin, slots) = match opened {
            Ok(opened) => opened,
            Err(diagnostic) => {
                checks.push(Check::failed("plugin", name, &diagnostic));
                continue;
            }
        };
        if slots.is_empty() {
            checks.push(Check::new("plugin", Level::Note, format!("{name} opens and finds no device")));
        }
        for slot in slots {
            match slot.and_then(|info| Ok((device(&plugin, &info)?, info))) {
                Ok((check, info)) => {
                    checks.push(check);
                    found.push(Found { plugin: plugin.clone(), info });
                }
                Err(error) => checks.push(Check::failed("plugin", name, &Diagnostic::of(&error))),
            }
        }
    }
    found
}

fn device(plugin: &Plugin, info: &DeviceInfo) -> Result<Check, strata_plugin_host::PluginError> {
    plugin.passed_probe(info)?;
    let device = plugin.open_device(info.index, &DeviceOptions::default())?;
    let text = format!("{} {} on {} ({}): computes", plugin.name(), plugin.version(), info.name, info.arch);
    let mut check = Check::new("plugin", Level::Fine, text).detail(device.report());
    if !info.driver.is_empty() {
        check = check.detail(format!("driver {}", info.driver));
    }
    let memory = device.memory()?;
    check = check.detail(format!("memory {} free of {}", size(memory.free), size(memory.total)));
    if info.is_unproven() {
        check.level = Level::Note;
        check = check.detail("no device like it has run this plugin yet");
    }
    Ok(check)
}
