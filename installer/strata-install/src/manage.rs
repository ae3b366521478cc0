//! What is done with an installation afterwards: check it, go back, make it whole, clean up, remove.
//! None of it needs the network. Only files that receipts list are ever removed.

mod remove;

pub use remove::{Collected, Removed, Uninstall, Uninstalled, collect, uninstall};

use crate::apply::{self, Applied, Apply};
use crate::disk::{Disk, hash_file};
use crate::error::size_and_digest;
use crate::journal::{self, Journal};
use crate::release::{ArchiveSource, Folder};
use crate::stage::COMPONENTS;
use crate::{InstallError, InstallRoot, Observer, Step, lock};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strata_manifest::plan::{InstallPlan, PlanAction, PlannedBackend, PlannedComponent, PlannedRelease};
use strata_manifest::{Component, Document, InstallRecord, InstalledComponent, Receipt, component_id};

/// A generation against its receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    pub generation: u64,
    pub files: u64,
    pub bytes: u64,
    /// Path and what is wrong with it.
    pub damaged: Vec<(String, String)>,
    /// Components (`engine-cpu`) that damaged files belong to.
    pub components: Vec<String>,
}

/// Reads every file of a generation and compares it with the receipt.
pub fn audit(root: &InstallRoot, generation: u64, observer: &dyn Observer) -> Result<Audit, InstallError> {
    let receipt = root.receipt(generation)?;
    let folder = root.generation(generation);
    let total: u64 = receipt.files.iter().map(|file| file.size).sum();
    let mut audit = Audit { generation, files: 0, bytes: 0, damaged: Vec::new(), components: Vec::new() };
    for file in &receipt.files {
        if observer.cancelled() {
            return Err(InstallError::Cancelled);
        }
        let path = folder.join(&file.path);
        audit.files += 1;
        audit.bytes += file.size;
        if let Some(why) = fault(&path, file) {
            audit.damaged.push((file.path.clone(), why));
        }
        observer.bytes(&file.path, audit.bytes, total);
    }
    audit.components = owners(root, &receipt, &audit.damaged);
    Ok(audit)
}

/// Whether every file of a generation is there with its size; a look of some milliseconds, where
/// [`audit`] reads everything.
pub fn looks_whole(root: &InstallRoot, generation: u64) -> bool {
    let Ok(receipt) = root.receipt(generation) else { return false };
    let folder = root.generation(generation);
    let same = |file: &strata_manifest::InstalledFile| {
        fs_err::symlink_metadata(folder.join(&file.path))
            .is_ok_and(|metadata| metadata.is_file() && metadata.len() == file.size)
    };
    receipt.files.iter().all(same)
}

fn fault(path: &Path, file: &strata_manifest::InstalledFile) -> Option<String> {
    let metadata = match fs_err::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata,
        Ok(_) => return Some("it is no ordinary file".to_owned()),
        Err(_) => return Some("it is not there".to_owned()),
    };
    if metadata.len() != file.size {
        return Some(format!("it has {} bytes, not {}", metadata.len(), file.size));
    }
    match hash_file(path, &mut |_| {}) {
        Ok((size, sha256)) if sha256 != file.sha256 => {
            Some(format!("it is {}, not {}", size_and_digest(size, &sha256), size_and_digest(file.size, &file.sha256)))
        }
        Err(error) => Some(format!("it cannot be read: {error}")),
        Ok(_) => {
            let mode = format!("{:04o}", metadata.permissions().mode() & 0o7777);
            (mode != file.mode).then(|| format!("its mode is {mode}, not {}", file.mode))
        }
    }
}

/// Components that damaged files belong to; a component whose list is damaged is damaged as a whole.
fn owners(root: &InstallRoot, receipt: &Receipt, damaged: &[(String, String)]) -> Vec<String> {
    let Some(record) = &receipt.install else { return Vec::new() };
    let is_damaged = |path: &str| damaged.iter().any(|(bad, _)| bad == path);
    let hit = |installed: &&InstalledComponent| {
        let list = format!("{COMPONENTS}/{}.json", id(installed));
        if is_damaged(&list) {
            return true;
        }
        Component::read(&root.generation(record.generation).join(&list))
            .map_or(true, |component| component.files.iter().any(|file| is_damaged(file.path.as_str())))
    };
    record.components.iter().filter(hit).map(id).collect()
}

fn id(installed: &InstalledComponent) -> String {
    component_id(&installed.component, installed.backend.as_deref())
}

/// Makes an earlier generation current. Its files are checked first, so that nobody is switched to a
/// broken one. Returns where it came from and where it is now.
pub fn rollback(
    root: &InstallRoot,
    disk: &Disk,
    to: Option<u64>,
    patience: Duration,
    observer: &dyn Observer,
) -> Result<(u64, u64), InstallError> {
    if root.complete().is_empty() {
        return Err(InstallError::NothingInstalled { prefix: root.path().to_owned() });
    }
    let _lock = lock::take(root, disk, patience)?;
    for note in journal::recover(root, disk)? {
        observer.note(&note);
    }
    let known = root.complete();
    let current = root.current_generation();
    let none = || InstallError::NoGeneration { prefix: root.path().to_owned(), asked: to, known: known.clone() };
    let target = match (to, current) {
        (Some(number), _) => known.contains(&number).then_some(number).ok_or_else(none)?,
        (None, None) => {
            *known.last().ok_or_else(|| InstallError::NothingInstalled { prefix: root.path().to_owned() })?
        }
        (None, Some(current)) => {
            // A damaged receipt of what is current must not keep anybody from leaving it.
            let recorded =
                root.receipt(current).ok().and_then(|receipt| receipt.install).and_then(|record| record.previous);
            let recorded = recorded.filter(|number| known.contains(number));
            recorded.or_else(|| known.iter().copied().filter(|number| *number < current).max()).ok_or_else(none)?
        }
    };
    let audit = audit(root, target, observer)?;
    if !audit.damaged.is_empty() {
        return Err(damaged(root, &audit));
    }
    let journal = Journal::open(root, disk, "rollback", target);
    journal.begin(Step::Switch, observer)?;
    apply::switch(root, disk, target)?;
    observer.done(Step::Switch);
    journal.close()?;
    Ok((current.unwrap_or(0), target))
}

fn damaged(root: &InstallRoot, audit: &Audit) -> InstallError {
    InstallError::Damaged {
        generation: audit.generation,
        count: audit.damaged.len(),
        current: root.current_generation() == Some(audit.generation),
        first: audit.damaged.iter().take(5).map(|(path, why)| format!("{path}: {why}")).collect(),
    }
}

/// A folder that may hold archives: kept ones, a release, a download folder.
pub type RepairSource = PathBuf;

/// Makes a new generation out of a damaged one: what is whole is copied, what is not is unpacked again
/// from an archive with the recorded digest. Returns what was wrong, and the new state if there was
/// anything to do.
pub fn repair(
    root: &InstallRoot,
    disk: &Disk,
    sources: &[RepairSource],
    (now, patience): (u64, Duration),
    observer: &dyn Observer,
) -> Result<(Audit, Option<Applied>), InstallError> {
    let (current, receipt) = root.require_installed()?;
    let audit = audit(root, current, observer)?;
    if audit.damaged.is_empty() {
        return Ok((audit, None));
    }
    let Some(record) = &receipt.install else {
        return Err(damaged(root, &audit));
    };
    let plan = plan_of(root, &receipt, record);
    let mut archives = Vec::new();
    for part in plan.components.iter().filter(|part| audit.components.contains(&part.id())) {
        archives.push(ArchiveSource { id: part.id(), path: archive_of(part, sources)? });
    }
    let pins = crate::trust::Pins::read(root)?;
    let work = Apply {
        root,
        disk,
        plan: &plan,
        archives: &archives,
        models: &[],
        pins: &pins,
        allow_unproven: !record.unproven.is_empty(),
        keep_archives: false,
        link: None,
        now,
        patience,
        proof_limit: None,
    };
    let applied = apply::apply(&work, observer)?;
    Ok((audit, Some(applied)))
}

/// The archive with the recorded digest among the sources.
fn archive_of(part: &PlannedComponent, sources: &[RepairSource]) -> Result<PathBuf, InstallError> {
    let right = |path: &PathBuf| hash_file(path, &mut |_| {}).is_ok_and(|found| found == (part.size, part.sha256));
    let found = sources.iter().filter_map(|folder| Folder::new(folder).find(&part.archive)).find(right);
    found.ok_or_else(|| InstallError::NoRepairSource {
        component: part.id(),
        archive: format!("{} ({})", part.archive, size_and_digest(part.size, &part.sha256)),
        looked_at: sources.iter().map(|folder| folder.display().to_string()).collect(),
    })
}

/// The plan that makes the same generation once more.
fn plan_of(root: &InstallRoot, receipt: &Receipt, record: &InstallRecord) -> InstallPlan {
    let folder = root.generation(record.generation);
    let components = record.components.iter().map(|installed| PlannedComponent {
        component: installed.component.clone(),
        backend: installed.backend.clone(),
        version: installed.version.clone(),
        reason: "repair".to_owned(),
        archive: installed.archive.clone(),
        source: installed.archive.clone(),
        size: installed.archive_size,
        sha256: installed.archive_sha256,
        manifest_sha256: installed.manifest_sha256,
        unpacked_bytes: Component::read(&folder.join(COMPONENTS).join(format!("{}.json", id(installed))))
            .map_or(0, |component| component.unpacked_bytes()),
        kept: true,
    });
    InstallPlan {
        schema: InstallPlan::SCHEMA.to_owned(),
        action: PlanAction::Change,
        action_reason: "files are not what the receipt lists".to_owned(),
        prefix: root.path().display().to_string(),
        generation: root.next_generation(),
        previous: record.previous,
        release: PlannedRelease {
            version: record.release.version.clone(),
            serial: record.release.serial,
            from: record.release.from.clone(),
            trust: record.release.trust.clone(),
        },
        backend: PlannedBackend {
            asked: record.backend_asked.clone(),
            chosen: record.backend.clone(),
            plugins: receipt.plugins.iter().map(|plugin| plugin.name.clone()).collect(),
            target: None,
            unproven: !record.unproven.is_empty(),
            reason: record.backend_reason.clone(),
        },
        devices: Vec::new(),
        components: components.collect(),
        models: Vec::new(),
        disk: Vec::new(),
        download_bytes: 0,
        steps: Vec::new(),
        notes: Vec::new(),
        warnings: Vec::new(),
    }
}
