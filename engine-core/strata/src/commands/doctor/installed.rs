//! What is installed: files and models against the receipt, plugins by opening them as a run would.

use super::{Check, Level, size};
use crate::device::Entries;
use crate::prefix::Prefix;
use std::path::Path;
use strata_diag::Diagnostic;
use strata_diag::catalogue::installing::GENERATION_DAMAGED;
use strata_engine::{EngineOptions, can_run};
use strata_manifest::{Sha256Digest, Version};
use strata_model::gguf::Gguf;
use strata_model::tokenizer::Tokenizer;
use strata_plugin_host::abi::StrataDeviceKind;
use strata_plugin_host::{DeviceInfo, DeviceOptions, OpenOptions, Plugin};

/// Damaged files that are named one by one.
const SHOWN: usize = 8;

/// A device that opened.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) plugin: Plugin,
    pub(super) info: DeviceInfo,
}

/// The receipt, which names all else. One that cannot be read is wrong and no reason to look at nothing.
pub(super) fn receipt(asked: Option<&Path>, checks: &mut Vec<Check>) -> Option<Prefix> {
    let place = Prefix::place(asked)?;
    let path = place.join("receipt.json");
    let prefix = match Prefix::find(asked) {
        Ok(prefix) => prefix?,
        Err(diagnostic) => {
            let check = Check::failed("receipt", &path.display().to_string(), &diagnostic);
            checks.push(check.advise(
                "`strata-setup rollback` goes to another generation, `strata-setup` installs anew; models stay",
            ));
            return None;
        }
    };
    let receipt = &prefix.receipt;
    let text = format!("{}: Strata {}", path.display(), receipt.version);
    let mut check = Check::new("receipt", Level::Fine, text);
    let names: Vec<&str> = receipt.plugins.iter().map(|plugin| plugin.name.as_str()).collect();
    check = check.detail(match names.as_slice() {
        [] => "no plugins".to_owned(),
        names => format!("plugins {}", names.join(", ")),
    });
    if receipt.version != Version::current() {
        check.level = Level::Note;
        check = check.detail(format!("this program is {}", Version::current()));
    }
    checks.push(check);
    Some(prefix)
}

/// A model file by its header, metadata and tensors' places, as a run would read them.
pub(super) fn model_file(who: &str, path: &Path) -> Check {
    let gguf = match Gguf::open(path) {
        Ok(gguf) => gguf,
        Err(error) => return Check::failed("models", who, &Diagnostic::of(&error)),
    };
    let summary = match can_run(&gguf, &EngineOptions::default()) {
        Ok(summary) => summary,
        Err(error) => return Check::failed("models", who, &Diagnostic::of(&error)),
    };
    if let Err(error) = Tokenizer::from_gguf(&gguf) {
        return Check::failed("models", who, &Diagnostic::of(&error));
    }
    let (needs, context) = (size(summary.needed_bytes()), summary.context);
    Check::new("models", Level::Fine, format!("{who}: needs {needs} with {context} tokens of context"))
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
        if let (true, Some((first, ..))) = (damage.is_empty(), model.files.first()) {
            return model_file(&format!("{}, {}", model.name, size(bytes)), first);
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
    // Opened in any case: what may not be read has a size all the same.
    let file = match fs_err::File::open(path) {
        Ok(file) => file,
        Err(error) => return Some(format!("it cannot be read: {error}")),
    };
    let digest = digest?;
    match Sha256Digest::of_reader(file) {
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
                Ok((found_here, info)) => {
                    checks.extend(found_here);
                    found.push(Found { plugin: plugin.clone(), info });
                }
                Err(error) => checks.push(Check::failed("plugin", name, &Diagnostic::of(&error))),
            }
        }
    }
    found
}

fn device(plugin: &Plugin, info: &DeviceInfo) -> Result<Vec<Check>, strata_plugin_host::PluginError> {
    plugin.passed_probe(info)?;
    let device = plugin.open_device(info.index, &DeviceOptions::default())?;
    let text = format!("{} {} on {} ({}): computes", plugin.name(), plugin.version(), info.name, info.arch);
    let is_cpu = info.kind == StrataDeviceKind::Cpu;
    let mut check = Check::new("plugin", Level::Fine, text);
    if !is_cpu {
        check = check.detail(device.report());
    }
    if !info.driver.is_empty() {
        check = check.detail(format!("driver {}", info.driver));
    }
    let memory = device.memory()?;
    check = check.detail(format!("memory {} free of {}", size(memory.free), size(memory.total)));
    if info.is_unproven() {
        check.level = Level::Note;
        check = check.detail("no device like it has run this plugin yet");
    }
    let mut checks = vec![check];
    if is_cpu {
        // How many and why, in the plugin's own words.
        checks.push(Check::new("threads", Level::Fine, device.report()));
    }
    Ok(checks)
}
