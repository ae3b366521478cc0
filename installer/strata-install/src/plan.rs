//! Planning: facts, release and receipt to an [`InstallPlan`]. Pure: it reads no disk and no clock,
//! so that the interesting half of an installer is tested as data in, data out. `--dry-run` prints
//! its result, `apply` carries it out.

pub mod backend;
pub mod fit;
pub mod machine;
pub mod targets;

use crate::InstallError;
use crate::error::bytes;
use crate::step::Step;
use backend::{Decision, GpuRequest};
use fit::Memory;
use machine::Machine;
use std::path::{Path, PathBuf};
use strata_manifest::plan::{
    DiskPart, FitVerdict, InstallPlan, PlanAction, PlannedComponent, PlannedDisk, PlannedFile, PlannedModel,
    PlannedRelease, PlannedStep,
};
use strata_manifest::{
    CatalogModel, Document, PackagePath, Receipt, Release, ReleaseComponent, ReleaseFile, Trust, Version,
};

/// Room for rounding up to blocks, receipts and journals.
const SLACK: u64 = 16 << 20;

/// A release and why it is believed.
#[derive(Debug, Clone, Copy)]
pub struct Offered<'a> {
    pub release: &'a Release,
    /// Folder or address.
    pub from: &'a str,
    pub trust: &'a Trust,
}

/// What is in the prefix.
#[derive(Debug, Clone, Copy, Default)]
pub struct Installed<'a> {
    pub receipt: Option<&'a Receipt>,
    /// Highest rollback counter that was ever installed here.
    pub highest_serial: u64,
    pub next_generation: u64,
}

/// What the user said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choices {
    pub gpu: GpuRequest,
    pub prefix: PathBuf,
    pub models_dir: PathBuf,
    /// Install once more although the same is installed.
    pub again: bool,
    pub allow_downgrade: bool,
    /// A link in the user's folder of programs.
    pub link: bool,
}

/// A model that was asked for, and which of its files are where they will lie.
#[derive(Debug, Clone)]
pub struct WantedModel {
    pub model: CatalogModel,
    pub reason: String,
    /// By position in `model.files`: where it will lie, and whether it is there with the right size.
    pub places: Vec<(PathBuf, bool)>,
}

/// Free space where something will be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Tells volumes apart.
    pub id: u64,
    pub free: u64,
}

/// Free space by the folder that will be written to.
#[derive(Debug, Clone, Default)]
pub struct Volumes {
    pub prefix: Option<Volume>,
    pub models: Option<Volume>,
}

/// Makes the plan, or says why there can be none.
pub fn plan(
    machine: &Machine,
    offered: Offered<'_>,
    installed: Installed<'_>,
    choices: &Choices,
    models: &[WantedModel],
    volumes: &Volumes,
) -> Result<InstallPlan, InstallError> {
    refuse_downgrade(offered.release, installed, choices)?;
    let decision = backend::decide(offered.release, machine, &choices.gpu)?;
    let current = installed.receipt;
    let components = components(offered.release, machine, &decision, current)?;
    for (component, _) in parts(offered.release, machine, &decision)? {
        refuse_old_libc(component, machine)?;
    }
    let (action, action_reason) = action(offered.release, current, &components, &decision, choices);
    let models: Vec<PlannedModel> = models.iter().map(|wanted| planned_model(wanted, machine, &decision)).collect();
    let download_bytes = components.iter().filter(|_| action != PlanAction::Keep).map(|part| part.size).sum::<u64>()
        + models.iter().flat_map(|model| &model.files).filter(|file| !file.present).map(file_bytes).sum::<u64>();
    let disk = disk(action, &components, &models, choices, volumes)?;
    let previous = current.and_then(|receipt| receipt.install.as_ref()).map(|record| record.generation);
    let generation = match (action, previous) {
        (PlanAction::Keep, Some(previous)) => previous,
        _ => installed.next_generation,
    };
    let mut warnings = decision.warnings;
    warnings.extend(
        models
            .iter()
            .filter(|model| model.fit.verdict == FitVerdict::TooLarge)
            .map(|model| format!("model {}: {}", model.name, model.fit.text)),
    );
    Ok(InstallPlan {
        schema: InstallPlan::SCHEMA.to_owned(),
        action,
        action_reason,
        prefix: choices.prefix.display().to_string(),
        generation,
        previous,
        release: PlannedRelease {
            version: offered.release.version.clone(),
            serial: offered.release.serial,
            from: offered.from.to_owned(),
            trust: offered.trust.clone(),
        },
        backend: decision.planned,
        devices: decision.devices,
        components,
        models,
        disk,
        download_bytes,
        steps: steps(action, choices),
        notes: notes(action, offered.trust, choices),
        warnings,
    })
}

fn refuse_downgrade(release: &Release, installed: Installed<'_>, choices: &Choices) -> Result<(), InstallError> {
    let record = installed.receipt.and_then(|receipt| receipt.install.as_ref());
    let seen = record.map_or(0, |record| record.release.serial).max(installed.highest_serial);
    if release.serial < seen && !choices.allow_downgrade {
        return Err(InstallError::Downgrade { got: release.serial, seen, version: release.version.to_string() });
    }
    Ok(())
}

/// Components with reasons, in the order in which they are laid out: control, GPU engines, CPU engine.
fn parts<'a>(
    release: &'a Release,
    machine: &Machine,
    decision: &Decision<'a>,
) -> Result<Vec<(&'a ReleaseComponent, String)>, InstallError> {
    let find = |component: &str, backend: Option<&str>| {
        let wanted = |entry: &&ReleaseComponent| {
            entry.component == component
                && entry.backend.as_deref() == backend
                && entry.os == machine.os
                && entry.cpu_arch == machine.cpu_arch
        };
        release.components.iter().find(wanted).ok_or_else(|| {
            let backend = backend.map(|backend| format!(" {backend}")).unwrap_or_default();
            InstallError::ComponentMissing {
                what: format!("component {component}{backend} for {} {}", machine.os, machine.cpu_arch),
                holds: release
                    .components
                    .iter()
                    .map(|entry| format!("{} for {} {}", entry.id(), entry.os, entry.cpu_arch))
                    .collect(),
            }
        })
    };
    let mut parts = vec![(find("control", None)?, "the commands `strata` and `strata-setup`".to_owned())];
    parts.extend(decision.gpu_components.iter().cloned());
    let why = if decision.gpu_components.is_empty() {
        // What was looked at stands in the plan once already.
        let (why, _) = decision.planned.reason.split_once(" (looked at").unwrap_or((&decision.planned.reason, ""));
        why.to_owned()
    } else {
        "the CPU takes what a GPU does not".to_owned()
    };
    parts.push((find("engine", Some("cpu"))?, why));
    Ok(parts)
}

fn components(
    release: &Release,
    machine: &Machine,
    decision: &Decision<'_>,
    current: Option<&Receipt>,
) -> Result<Vec<PlannedComponent>, InstallError> {
    let record = current.and_then(|receipt| receipt.install.as_ref());
    let planned = parts(release, machine, decision)?.into_iter().map(|(component, reason)| {
        let archive = smallest(component)?;
        let same = |known: &&strata_manifest::InstalledComponent| {
            known.component == component.component
                && known.backend == component.backend
                && known.manifest_sha256 == component.manifest_sha256
        };
        Ok(PlannedComponent {
            component: component.component.clone(),
            backend: component.backend.clone(),
            version: component.version.clone(),
            reason,
            archive: file_name(archive),
            source: archive.place().to_owned(),
            size: archive.size,
            sha256: archive.sha256,
            manifest_sha256: component.manifest_sha256,
            unpacked_bytes: component.unpacked_bytes,
            kept: record.is_some_and(|record| record.components.iter().any(|known| same(&known))),
        })
    });
    planned.collect()
}

/// The archive to take: the smallest, as all hold the same. Of the commands themselves one that every system can
/// unpack, since a person may have to.
pub fn smallest(component: &ReleaseComponent) -> Result<&ReleaseFile, InstallError> {
    let plain = |file: &&ReleaseFile| component.component == "control" && file.format == "tar.gz";
    let found =
        component.archives.iter().find(plain).or_else(|| component.archives.iter().min_by_key(|file| file.size));
    found.ok_or_else(|| InstallError::ComponentMissing {
        what: format!("archive of {}", component.id()),
        holds: Vec::new(),
    })
}

/// What a file of the release is called on disk: the last part of its path or address. A part that is
/// no plain name (`..`, one with a backslash) never becomes a path; the digest stands in for it.
pub fn file_name(file: &ReleaseFile) -> String {
    let place = file.place();
    let last = place.split(['?', '#']).next().unwrap_or(place).rsplit('/').next().unwrap_or_default();
    match last.parse::<PackagePath>() {
        Ok(name) => name.to_string(),
        Err(_) => format!("file-{}", file.sha256),
    }
}

fn refuse_old_libc(component: &ReleaseComponent, machine: &Machine) -> Result<(), InstallError> {
    let (Some(needs), Some(has)) = (&component.libc_floor, &machine.libc) else { return Ok(()) };
    let numbers = |text: &str| text.split('.').map(|part| part.parse::<u64>().unwrap_or(0)).collect::<Vec<_>>();
    if numbers(needs) > numbers(has) {
        return Err(InstallError::LibcTooOld { component: component.id(), needs: needs.clone(), has: has.clone() });
    }
    Ok(())
}

fn action(
    release: &Release,
    current: Option<&Receipt>,
    components: &[PlannedComponent],
    decision: &Decision<'_>,
    choices: &Choices,
) -> (PlanAction, String) {
    let Some((receipt, record)) = current.and_then(|receipt| Some((receipt, receipt.install.as_ref()?))) else {
        return (PlanAction::Install, "nothing is installed here yet".to_owned());
    };
    let (old, new): (&Version, &Version) = (&receipt.version, &release.version);
    if new > old {
        return (PlanAction::Update, format!("{new} is newer than {old}, which is installed"));
    }
    if new < old || release.serial < record.release.serial {
        return (PlanAction::Downgrade, format!("{new} is older than {old}; asked for with `--allow-downgrade`"));
    }
    let plugins: Vec<&str> = receipt.plugins.iter().map(|plugin| plugin.name.as_str()).collect();
    let same = components.iter().all(|part| part.kept)
        && components.len() == record.components.len()
        && plugins == decision.planned.plugins.iter().map(String::as_str).collect::<Vec<_>>();
    match (same, choices.again) {
        (true, false) => (PlanAction::Keep, format!("{old} with these components is installed")),
        (true, true) => (PlanAction::Change, "asked for with `--again`".to_owned()),
        (false, _) => (PlanAction::Change, format!("{old} is installed with other components")),
    }
}

fn file_bytes(file: &PlannedFile) -> u64 {
    file.size.unwrap_or(file.about_bytes)
}

/// Memory that the decision leaves a model.
pub fn memory(machine: &Machine, devices: &[strata_manifest::plan::PlannedDevice]) -> Memory {
    let used: Vec<Option<u64>> = machine
        .devices
        .iter()
        .zip(devices)
        .filter(|(_, planned)| planned.used)
        .map(|(device, _)| device.memory_bytes)
        .collect();
    Memory { ram: machine.ram_bytes, vram: used.iter().copied().sum(), gpus: used.len() as u64 }
}

fn planned_model(wanted: &WantedModel, machine: &Machine, decision: &Decision<'_>) -> PlannedModel {
    let fit = fit::judge(&wanted.model, memory(machine, &decision.devices));
    let files = wanted.model.files.iter().zip(&wanted.places).map(|(file, (place, present))| PlannedFile {
        name: file.name.clone(),
        sources: file.sources.clone(),
        size: file.size,
        about_bytes: file.bytes(),
        sha256: file.sha256,
        to: place.display().to_string(),
        present: *present,
    });
    PlannedModel { name: wanted.model.name.clone(), reason: wanted.reason.clone(), files: files.collect(), fit }
}

fn disk(
    action: PlanAction,
    components: &[PlannedComponent],
    models: &[PlannedModel],
    choices: &Choices,
    volumes: &Volumes,
) -> Result<Vec<PlannedDisk>, InstallError> {
    let mut prefix = Vec::new();
    if action != PlanAction::Keep {
        let unpacked: u64 = components.iter().map(|part| part.unpacked_bytes).sum();
        prefix.push(DiskPart { what: "components".to_owned(), bytes: unpacked + SLACK });
        let archives: u64 = components.iter().map(|part| part.size).sum();
        prefix.push(DiskPart { what: "archives".to_owned(), bytes: archives });
    }
    let missing: Vec<DiskPart> = models
        .iter()
        .map(|model| DiskPart {
            what: format!("model {}", model.name),
            bytes: model.files.iter().filter(|file| !file.present).map(file_bytes).sum(),
        })
        .filter(|part| part.bytes > 0)
        .collect();
    let mut wanted: Vec<(&Path, Option<&Volume>, Vec<DiskPart>)> =
        vec![(&choices.prefix, volumes.prefix.as_ref(), prefix)];
    let one_volume = match (&volumes.prefix, &volumes.models) {
        (Some(prefix), Some(models)) => prefix.id == models.id,
        _ => choices.models_dir.starts_with(&choices.prefix),
    };
    if one_volume {
        wanted[0].2.extend(missing);
    } else {
        wanted.push((&choices.models_dir, volumes.models.as_ref(), missing));
    }
    let planned = wanted.into_iter().filter(|(_, _, parts)| !parts.is_empty()).map(|(path, volume, parts)| {
        let needed: u64 = parts.iter().map(|part| part.bytes).sum();
        if let Some(volume) = volume.filter(|volume| volume.free < needed) {
            return Err(InstallError::DiskShort {
                path: path.to_owned(),
                needed,
                free: volume.free,
                short: needed - volume.free,
                parts: parts.into_iter().map(|part| (part.what, part.bytes)).collect(),
            });
        }
        Ok(PlannedDisk { path: path.display().to_string(), needed, free: volume.map(|volume| volume.free), parts })
    });
    planned.collect()
}

fn steps(action: PlanAction, choices: &Choices) -> Vec<PlannedStep> {
    let wanted = |step: &Step| match step {
        Step::Stage | Step::Verify | Step::Prove | Step::Receipt | Step::Commit | Step::Switch => {
            action != PlanAction::Keep
        }
        Step::Link => choices.link,
        Step::Recover | Step::Models | Step::Pin | Step::Finish => true,
    };
    let step = |step: Step| PlannedStep { step: step.name().to_owned(), text: step.text().to_owned() };
    Step::ALL.into_iter().filter(wanted).map(step).collect()
}

fn notes(action: PlanAction, trust: &Trust, choices: &Choices) -> Vec<String> {
    let mut notes = Vec::new();
    match trust {
        Trust::FirstUse { key_id } => notes.push(format!(
            "the release is signed by key {key_id}, seen for the first time: compare it with the key that its makers publish; it is pinned for this prefix"
        )),
        Trust::Unsigned => notes.push("the release is not signed; `--allow-unsigned` was given, and the receipt says so".to_owned()),
        _ => {}
    }
    if action == PlanAction::Keep {
        notes.push("nothing is unpacked; to install it once more: `--again`".to_owned());
    }
    if !choices.models_dir.starts_with(&choices.prefix) {
        notes.push(format!("models lie in {} and are used from there", choices.models_dir.display()));
    }
    notes
}

/// The plan for people: what, why, how much, in which order.
pub fn to_text(plan: &InstallPlan) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    let action = match plan.action {
        PlanAction::Install => "install",
        PlanAction::Update => "update",
        PlanAction::Change => "change",
        PlanAction::Downgrade => "downgrade",
        PlanAction::Keep | PlanAction::Unknown => "keep",
    };
    // Writing to a String cannot fail.
    let _ = writeln!(out, "plan: {action} Strata {} in {}", plan.release.version, plan.prefix);
    let _ = writeln!(out, "  why: {}", plan.action_reason);
    let _ = writeln!(
        out,
        "  release: counter {} from {} ({})",
        plan.release.serial,
        plan.release.from,
        trust_words(&plan.release.trust)
    );
    let unproven = if plan.backend.unproven { ", unproven" } else { "" };
    let _ = writeln!(
        out,
        "  backend: {}{unproven} (asked: {}): {}",
        plan.backend.chosen, plan.backend.asked, plan.backend.reason
    );
    for device in &plan.devices {
        let target = device.target.as_deref().map(|target| format!(", {target}")).unwrap_or_default();
        let used = if device.used { "used" } else { "not used" };
        let _ = writeln!(
            out,
            "  device {}: {} at {}{target}: {}; {used}: {}",
            device.index, device.name, device.uid, device.state, device.reason
        );
        if let Some(advice) = device.advice.as_ref().filter(|_| !device.used) {
            let _ = writeln!(out, "    to do: {advice}");
        }
    }
    for part in &plan.components {
        let kept = if part.kept { ", the same is installed" } else { "" };
        let _ = writeln!(
            out,
            "  component {}: {} ({}, {} unpacked{kept}): {}",
            part.id(),
            part.archive,
            bytes(part.size),
            bytes(part.unpacked_bytes),
            part.reason
        );
    }
    for model in &plan.models {
        let size = model.files.iter().map(file_bytes).sum();
        let about = if model.files.iter().any(|file| file.size.is_none()) { "about " } else { "" };
        let there = if model.files.iter().all(|file| file.present) { ", already here" } else { "" };
        let _ = writeln!(out, "  model {} ({about}{}{there}): {}", model.name, bytes(size), model.reason);
        let _ = writeln!(out, "    {}", model.fit.text);
    }
    for disk in &plan.disk {
        let free = disk.free.map_or("unknown".to_owned(), bytes);
        let parts: Vec<String> = disk.parts.iter().map(|part| format!("{} {}", part.what, bytes(part.bytes))).collect();
        let _ =
            writeln!(out, "  disk at {}: {} needed ({}), {free} free", disk.path, bytes(disk.needed), parts.join(", "));
    }
    let _ = writeln!(out, "  to fetch or copy: {}", bytes(plan.download_bytes));
    let steps: Vec<&str> = plan.steps.iter().map(|step| step.step.as_str()).collect();
    let _ = writeln!(out, "  steps: {}", steps.join(", "));
    for note in &plan.notes {
        let _ = writeln!(out, "note: {note}");
    }
    for warning in &plan.warnings {
        let _ = writeln!(out, "warning: {warning}");
    }
    out
}

/// Why a release is believed, for people.
pub fn trust_words(trust: &Trust) -> String {
    match trust {
        Trust::NamedKey { key_id } => format!("signed by {key_id}, the key that was named"),
        Trust::BuiltIn { key_id } => format!("signed by {key_id}, a key of this build"),
        Trust::Pinned { key_id } => format!("signed by {key_id}, the key that is pinned here"),
        Trust::FirstUse { key_id } => format!("signed by {key_id}, a key seen for the first time"),
        Trust::Unsigned => "not signed".to_owned(),
        Trust::Unknown => "for a reason that this program does not know".to_owned(),
    }
}
