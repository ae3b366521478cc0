//! Carrying out a plan: journal, stage, verify, prove, receipt, commit, models, switch. Until the
//! switch the current generation is not touched; the switch is one rename of one link. Whatever ends
//! the program, the next run finds the old or the new installation.

use crate::disk::Disk;
use crate::journal::{self, Journal};
use crate::models::{self, Placing};
use crate::prove::{self, Proof};
use crate::release::ArchiveSource;
use crate::stage::{self, Staged};
use crate::trust::Pins;
use crate::{InstallError, InstallRoot, Observer, RECEIPT_FILE, Step, lock, verifier};
use std::path::{Path, PathBuf};
use std::time::Duration;
use strata_manifest::plan::{InstallPlan, PlanAction};
use strata_manifest::{
    Document, InstallRecord, InstalledComponent, InstalledFile, InstalledPlugin, PinnedTrust, ProvenDevice, Receipt,
    ReleaseOrigin,
};

const CPU_LIMIT: Duration = Duration::from_secs(60);
/// A driver may have to wake the card and to compile kernels first.
const GPU_LIMIT: Duration = Duration::from_secs(180);

/// Everything that carrying out a plan needs.
#[derive(Debug)]
pub struct Apply<'a> {
    pub root: &'a InstallRoot,
    pub disk: &'a Disk,
    pub plan: &'a InstallPlan,
    pub archives: &'a [ArchiveSource],
    pub models: &'a [Placing],
    /// What is pinned once the release runs.
    pub pins: &'a PinnedTrust,
    /// Go on when a GPU plugin does not pass its check, and record it as unproven.
    pub allow_unproven: bool,
    /// Keep the archives for repairs without the network.
    pub keep_archives: bool,
    /// Where a link to the program goes.
    pub link: Option<&'a Path>,
    /// Seconds since 1970.
    pub now: u64,
    /// How long to wait for another run.
    pub patience: Duration,
    /// How long each plugin's check may take; `None`: 60 s for the CPU's, 180 s for others.
    pub proof_limit: Option<Duration>,
}

/// What is there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    pub generation: u64,
    pub proven: Vec<ProvenDevice>,
    pub unproven: Vec<String>,
    pub notes: Vec<String>,
}

/// Carries out a plan.
pub fn apply(work: &Apply<'_>, observer: &dyn Observer) -> Result<Applied, InstallError> {
    let (root, disk, plan) = (work.root, work.disk, work.plan);
    let _lock = lock::take(root, disk, work.patience)?;
    let mut notes = journal::recover(root, disk)?;
    let keeps = plan.action == PlanAction::Keep;
    let (generation, staging) = if keeps {
        (plan.generation, None)
    } else {
        let (generation, folder) = stage::open(root, disk)?;
        (generation, Some(folder))
    };
    let journal = Journal::open(root, disk, "install", generation);
    let result = run(work, &journal, generation, staging.as_deref(), observer);
    if let (Err(_), Some(staging)) = (&result, &staging) {
        // The first failure is the one to tell; the next run clears away what this cannot.
        let _ = fs_err::remove_dir_all(staging);
    }
    let mut applied = result?;
    notes.append(&mut applied.notes);
    applied.notes = notes;
    Ok(applied)
}

fn run(
    work: &Apply<'_>,
    journal: &Journal<'_>,
    generation: u64,
    staging: Option<&Path>,
    observer: &dyn Observer,
) -> Result<Applied, InstallError> {
    let (root, disk) = (work.root, work.disk);
    let mut applied = Applied { generation, proven: Vec::new(), unproven: Vec::new(), notes: Vec::new() };
    step(journal, Step::Recover, observer, || Ok(()))?;
    if let Some(staging) = staging {
        make_generation(work, journal, generation, staging, observer, &mut applied)?;
    }
    if !work.models.is_empty() {
        step(journal, Step::Models, observer, || models::place_models(root, disk, work.models, observer))?;
    }
    if staging.is_some() {
        if observer.cancelled() {
            // The generation is complete and stays unused; the next run clears it away.
            return Err(InstallError::Cancelled);
        }
        step(journal, Step::Switch, observer, || switch(root, disk, generation))?;
    }
    step(journal, Step::Pin, observer, || Pins::advance(root, disk, work.pins))?;
    if let Some(link) = work.link {
        step(journal, Step::Link, observer, || make_link(root, disk, link, &mut applied.notes))?;
    }
    keep_archives(work, &mut applied.notes);
    observer.step(Step::Finish);
    journal.close()?;
    observer.done(Step::Finish);
    Ok(applied)
}

/// One step: recorded, told, done, told.
fn step<T>(
    journal: &Journal<'_>,
    step: Step,
    observer: &dyn Observer,
    work: impl FnOnce() -> Result<T, InstallError>,
) -> Result<T, InstallError> {
    journal.begin(step, observer)?;
    let result = work()?;
    observer.done(step);
    Ok(result)
}

fn make_generation(
    work: &Apply<'_>,
    journal: &Journal<'_>,
    generation: u64,
    staging: &Path,
    observer: &dyn Observer,
    applied: &mut Applied,
) -> Result<(), InstallError> {
    let (root, disk, plan) = (work.root, work.disk, work.plan);
    let staged =
        step(journal, Step::Stage, observer, || stage::stage(root, disk, staging, plan, work.archives, observer))?;
    if observer.cancelled() {
        return Err(InstallError::Cancelled);
    }
    let plugins = stage::plugins(&staged, plan);
    let path = staging.join(RECEIPT_FILE);
    let write = |receipt: &Receipt, step: Step| {
        disk.write_atomic(&path, receipt.to_text().as_bytes())
            .map_err(|source| InstallError::write(&path, step.name(), source))
    };
    // The verifier compares with a receipt; what was proven is not in it yet.
    let files = step(journal, Step::Verify, observer, || {
        let files = stage::settle(&staged, disk)?;
        write(&receipt(work, generation, files.clone(), plugins.clone(), applied), Step::Verify)?;
        verifier::check(staging, work.now, observer)?;
        Ok(files)
    })?;
    step(journal, Step::Prove, observer, || prove_all(work, &staged, &plugins, observer, applied))?;
    step(journal, Step::Receipt, observer, || {
        write(&receipt(work, generation, files, plugins, applied), Step::Receipt)
    })?;
    step(journal, Step::Commit, observer, || {
        let to = root.generation(generation);
        let committed = disk.rename(staging, &to).and_then(|()| disk.sync_parent(&to));
        committed.map_err(|source| InstallError::write(&to, Step::Commit.name(), source))
    })
}

/// Points `current` at a generation.
pub(crate) fn switch(root: &InstallRoot, disk: &Disk, generation: u64) -> Result<(), InstallError> {
    let current = root.current();
    let target = PathBuf::from("generations").join(generation.to_string());
    disk.replace_symlink(&target, &current).map_err(|source| InstallError::write(&current, Step::Switch.name(), source))
}

fn make_link(root: &InstallRoot, disk: &Disk, link: &Path, notes: &mut Vec<String>) -> Result<(), InstallError> {
    let target = root.current().join("bin/strata");
    let failed = |source| InstallError::write(link, Step::Link.name(), source);
    if let Some(parent) = link.parent() {
        disk.create_dir_all(parent).map_err(failed)?;
    }
    if crate::disk::exists(link) && fs_err::read_link(link).ok().as_deref() != Some(&target) && !is_our_link(link) {
        notes.push(format!(
            "`{}` is something else and was left alone; link to `{}` yourself",
            link.display(),
            target.display()
        ));
        return Ok(());
    }
    disk.replace_symlink(&target, link).map_err(failed)
}

/// A link that leads into some installation's `current` is ours to move.
pub(crate) fn is_our_link(link: &Path) -> bool {
    fs_err::read_link(link).is_ok_and(|target| target.ends_with("current/bin/strata"))
}

/// The archives serve later repairs; a failure to keep them is no failure of the installation. What
/// was downloaded for this is moved or removed, so that nothing lies there twice.
fn keep_archives(work: &Apply<'_>, notes: &mut Vec<String>) {
    let (folder, downloads) = (work.root.archives(), work.root.downloads());
    let keep = |archive: &ArchiveSource| -> std::io::Result<()> {
        let to = folder.join(archive.path.file_name().unwrap_or_default());
        let is_download = archive.path.starts_with(&downloads);
        if to == archive.path {
            return Ok(());
        }
        if !work.keep_archives || to.is_file() {
            return if is_download { work.disk.remove_file(&archive.path) } else { Ok(()) };
        }
        work.disk.create_dir_all(&folder)?;
        if is_download {
            return work.disk.rename(&archive.path, &to);
        }
        if work.disk.hard_link(&archive.path, &to).is_err() {
            work.disk.copy(&archive.path, &to, 0o644)?;
        }
        Ok(())
    };
    for archive in work.archives {
        if let Err(error) = keep(archive) {
            notes.push(format!("`{}` was not kept for repairs: {error}", archive.path.display()));
        }
    }
}

fn prove_all(
    work: &Apply<'_>,
    staged: &Staged,
    plugins: &[InstalledPlugin],
    observer: &dyn Observer,
    applied: &mut Applied,
) -> Result<(), InstallError> {
    let program = staged.folder.join("bin/strata");
    for plugin in plugins {
        let is_cpu = plugin.name == "cpu";
        let limit = work.proof_limit.unwrap_or(if is_cpu { CPU_LIMIT } else { GPU_LIMIT });
        observer.note(&format!("plugin `{}` is tried, for at most {} s", plugin.name, limit.as_secs()));
        let result = prove::prove(&program, &staged.folder.join(&plugin.descriptor), limit);
        judge_proof(work, plugin, is_cpu, result, applied)?;
    }
    if let Some(missing) =
        work.plan.backend.plugins.iter().find(|name| !plugins.iter().any(|plugin| plugin.name == **name))
    {
        return Err(InstallError::ComponentMissing {
            what: format!("descriptor of plugin `{missing}` in its package"),
            holds: plugins.iter().map(|plugin| plugin.name.clone()).collect(),
        });
    }
    Ok(())
}

fn judge_proof(
    work: &Apply<'_>,
    plugin: &InstalledPlugin,
    is_cpu: bool,
    result: Result<Vec<Proof>, prove::ProofFailure>,
    applied: &mut Applied,
) -> Result<(), InstallError> {
    let name = &plugin.name;
    let lenient = !is_cpu && (work.allow_unproven || work.plan.backend.unproven);
    let unproven = |applied: &mut Applied, why: String| {
        applied.notes.push(format!("plugin `{name}` is installed unproven: {why}"));
        applied.unproven.push(name.clone());
        Ok(())
    };
    let proofs = match result {
        Ok(proofs) => proofs,
        Err(failure) if lenient && (work.allow_unproven || failure.is_absent_device()) => {
            return unproven(applied, failure.text());
        }
        Err(failure) => return Err(prove::error(name, None, failure)),
    };
    let wanted = |uid: &str| {
        let used = |device: &&strata_manifest::plan::PlannedDevice| device.used && device.plugin.as_ref() == Some(name);
        work.plan.devices.iter().filter(used).any(|device| device.uid.eq_ignore_ascii_case(uid))
    };
    let failed = proofs.iter().find(|proof| proof.failure.is_some() && (is_cpu || wanted(&proof.uid)));
    let passed = proofs.iter().any(|proof| proof.failure.is_none());
    applied.proven.extend(proofs.iter().map(|proof| ProvenDevice {
        plugin: name.clone(),
        uid: proof.uid.clone(),
        passed: proof.failure.is_none(),
        detail: proof.failure.clone().unwrap_or_default(),
    }));
    let failed = failed.or_else(|| if passed { None } else { proofs.iter().find(|proof| proof.failure.is_some()) });
    match failed {
        Some(proof) if !lenient => {
            let message = proof.failure.clone().unwrap_or_default();
            Err(prove::error(name, Some(proof.uid.clone()), prove::ProofFailure::Reported { code: None, message }))
        }
        Some(proof) => unproven(applied, proof.failure.clone().unwrap_or_default()),
        None if passed => Ok(()),
        None if lenient => unproven(applied, "it finds no device".to_owned()),
        None => {
            let message = "it finds no device on this machine".to_owned();
            let code = Some(strata_diag::catalogue::plugin::NO_DEVICE);
            Err(prove::error(name, None, prove::ProofFailure::Reported { code, message }))
        }
    }
}

fn receipt(
    work: &Apply<'_>,
    generation: u64,
    files: Vec<InstalledFile>,
    plugins: Vec<InstalledPlugin>,
    applied: &Applied,
) -> Receipt {
    let plan = work.plan;
    let components = plan.components.iter().map(|part| InstalledComponent {
        component: part.component.clone(),
        backend: part.backend.clone(),
        version: part.version.clone(),
        manifest_sha256: part.manifest_sha256,
        archive: part.archive.clone(),
        archive_size: part.size,
        archive_sha256: part.sha256,
    });
    Receipt {
        schema: Receipt::SCHEMA.to_owned(),
        version: plan.release.version.clone(),
        files,
        plugins,
        models: Vec::new(),
        install: Some(InstallRecord {
            generation,
            // What was current when this run took the lock; the plan may be older than that.
            previous: work.root.current_generation(),
            installed_at: work.now,
            release: ReleaseOrigin {
                version: plan.release.version.clone(),
                serial: plan.release.serial,
                from: plan.release.from.clone(),
                trust: plan.release.trust.clone(),
            },
            components: components.collect(),
            backend_asked: plan.backend.asked.clone(),
            backend: plan.backend.chosen.clone(),
            backend_reason: plan.backend.reason.clone(),
            proven: applied.proven.clone(),
            unproven: applied.unproven.clone(),
        }),
    }
}
