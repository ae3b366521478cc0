//! `rollback`, `repair`, `uninstall`, `gc`: what is done with an installation. None needs the network,
//! but a repair whose archives are gone.

use crate::cli::{GcArgs, InstallArgs, RepairArgs, RollbackArgs, UninstallArgs};
use crate::commands::mend::{self, Models};
use crate::context::Context;
use crate::fetching::{Network, Wanted};
use crate::outcome::Outcome;
use crate::{env, fetching, printer, source};
use std::fmt::Write;
use std::path::PathBuf;
use strata_diag::ExitStatus;
use strata_install::{Audit, Disk, InstallRoot, Removed, Uninstall, bytes};
use strata_manifest::setup_report::{AuditReport, PathNote, RemovedReport, RollbackReport};
use strata_manifest::{InstalledComponent, UtcTime, component_id};

pub(crate) fn rollback(context: &Context, args: &RollbackArgs) -> Outcome {
    let root = context.root()?;
    let (from, to) = strata_install::rollback(&root, &Disk::real(), args.to, context.patience(), &context.progress)?;
    let version = root.receipt(to)?.version;
    let text = format!("generation {to} (Strata {version}) is current, {from} was before\n");
    context.answer(&text, &RollbackReport { schema: "strata-rollback/1.0", from, to, version })?;
    Ok(ExitStatus::Done)
}

pub(crate) fn repair(context: &Context, args: &RepairArgs) -> Outcome {
    let root = context.root()?;
    let (generation, receipt) = root.require_installed()?;
    let models = mend::models(context, &root, args)?;
    let audit = strata_install::audit(&root, generation, &context.progress)?;
    if audit.damaged.is_empty() || args.dry_run {
        return report_with_models(context, &audit, &models);
    }
    for (path, why) in audit.damaged.iter().take(20) {
        printer::talk(&format!("damaged: {path}: {why}"));
    }
    let mut sources: Vec<PathBuf> = args.from.iter().cloned().collect();
    sources.push(root.archives());
    if let Some(record) = &receipt.install {
        let place = args.release.clone().unwrap_or_else(|| record.release.from.clone());
        if source::is_address(&place) {
            let needed = |part: &&InstalledComponent| {
                audit.components.contains(&component_id(&part.component, part.backend.as_deref()))
            };
            let parts: Vec<&InstalledComponent> = record.components.iter().filter(needed).collect();
            fetch_archives(context, &root, &parts, &place, args, &mut sources)?;
        } else {
            sources.push(PathBuf::from(place));
        }
    }
    let when = (UtcTime::now().seconds(), context.patience());
    let (audit, applied) = strata_install::repair(&root, &Disk::real(), &sources, when, &context.progress)?;
    let Some(applied) = applied else { return report_with_models(context, &audit, &models) };
    let text = format!(
        "{} of {} files were damaged; generation {} is whole and current\n{}",
        audit.damaged.len(),
        audit.files,
        applied.generation,
        models_text(&models)
    );
    context.answer(&text, &audit_report(&audit, Some(applied.generation), &models))?;
    Ok(if models.all_whole() { ExitStatus::Done } else { ExitStatus::Failed })
}

/// Fetches archives that no folder at hand holds.
fn fetch_archives(
    context: &Context,
    root: &InstallRoot,
    parts: &[&InstalledComponent],
    place: &str,
    args: &RepairArgs,
    sources: &mut Vec<PathBuf>,
) -> Outcome<()> {
    let at_hand = |part: &&&InstalledComponent| {
        sources.iter().any(|folder| {
            fs_err::metadata(folder.join(&part.archive)).is_ok_and(|metadata| metadata.len() == part.archive_size)
        })
    };
    let into = root.downloads();
    let wanted: Vec<Wanted> = parts
        .iter()
        .filter(|part| !at_hand(part))
        .map(|part| Wanted {
            name: part.archive.clone(),
            sources: vec![format!("{}/{}", place.trim_end_matches('/'), part.archive)],
            size: Some(part.archive_size),
            about_bytes: part.archive_size,
            sha256: Some(part.archive_sha256),
            to: into.join(&part.archive),
            ..Wanted::default()
        })
        .collect();
    let network = Network::new(&InstallArgs { ca_file: args.ca_file.clone(), ..InstallArgs::default() }, None);
    fetching::fetch(&wanted, &network, &context.progress)?;
    sources.push(into);
    Ok(())
}

fn models_text(models: &Models) -> String {
    let line = |(path, why, mended): &(PathBuf, String, bool)| {
        let end = if *mended { "; it is whole now" } else { "" };
        format!("model file {}: {why}{end}\n", path.display())
    };
    let mut text = models.damaged.iter().map(line).collect::<Vec<_>>().concat();
    if models.files > 0 && models.damaged.is_empty() {
        let _ = writeln!(text, "models: {} files, {}: all are as fetched", models.files, bytes(models.bytes));
    }
    text
}

fn audit_report(audit: &Audit, repaired_as: Option<u64>, models: &Models) -> AuditReport {
    let damaged = audit.damaged.iter().map(|(path, why)| PathNote { path: path.into(), why: why.clone() });
    AuditReport {
        schema: "strata-audit/1.0",
        generation: audit.generation,
        files: audit.files,
        bytes: audit.bytes,
        damaged: damaged.collect(),
        repaired_as,
        damaged_models: models
            .damaged
            .iter()
            .map(|(path, why, _)| PathNote { path: path.clone(), why: why.clone() })
            .collect(),
        mended_models: models.damaged.iter().filter(|(.., mended)| *mended).map(|(path, ..)| path.clone()).collect(),
    }
}

/// What a check found.
pub(crate) fn report_audit(context: &Context, audit: &Audit) -> Outcome {
    report_with_models(context, audit, &Models::default())
}

fn report_with_models(context: &Context, audit: &Audit, models: &Models) -> Outcome {
    let lines = audit.damaged.iter().map(|(path, why)| format!("damaged: {path}: {why}\n"));
    let mut text = lines.collect::<Vec<_>>().concat();
    let found = if audit.damaged.is_empty() {
        "all are as installed".to_owned()
    } else {
        format!("{} are damaged", audit.damaged.len())
    };
    let _ = writeln!(text, "generation {}: {} files, {}: {found}", audit.generation, audit.files, bytes(audit.bytes));
    text += &models_text(models);
    context.answer(&text, &audit_report(audit, None, models))?;
    Ok(if audit.damaged.is_empty() && models.all_whole() { ExitStatus::Done } else { ExitStatus::Failed })
}

pub(crate) fn uninstall(context: &Context, args: &UninstallArgs) -> Outcome {
    let root = context.root()?;
    let generations = root.complete();
    let files: usize = generations.iter().filter_map(|number| Some(root.receipt(*number).ok()?.files.len())).sum();
    let store = root.model_store()?;
    let names: Vec<&str> = store.models.iter().map(|model| model.name.as_str()).collect();
    let models = match (args.models, names.is_empty()) {
        (_, true) => String::new(),
        (true, false) => format!(", and the models {}", names.join(", ")),
        (false, false) => format!("; the models {} stay", names.join(", ")),
    };
    let what = format!("{files} files of {} generations in {}{models}", generations.len(), root.path().display());
    if args.dry_run {
        let report = RemovedReport {
            schema: "strata-removed/1.0",
            generations,
            files: files as u64,
            bytes: 0,
            archives: 0,
            left: Vec::new(),
            prefix_gone: false,
        };
        context.answer(&format!("would be removed: {what}\n"), &report)?;
        return Ok(ExitStatus::Done);
    }
    if !generations.is_empty() && !context.asker.confirm(&format!("Remove {what}?"), context.common.yes, "--yes")? {
        printer::talk("nothing was removed");
        return Ok(ExitStatus::Done);
    }
    let link = env::program_folder().map(|folder| folder.join("strata"));
    let wish = Uninstall { models: args.models, changed_too: args.changed, link: link.as_deref() };
    let done = strata_install::uninstall(&root, &Disk::real(), &wish, context.patience(), &context.progress)?;
    let mut text = format!("removed {} files, {}\n", done.removed.files, bytes(done.removed.bytes));
    if args.models && !names.is_empty() {
        let _ = writeln!(text, "removed the models {}", names.join(", "));
    }
    text += &left(&done.removed);
    if done.prefix_gone {
        let _ = writeln!(text, "{} is gone", root.path().display());
    }
    let report = RemovedReport { prefix_gone: done.prefix_gone, ..removed_report(done.generations, &done.removed, 0) };
    context.answer(&text, &report)?;
    Ok(ExitStatus::Done)
}

fn removed_report(generations: Vec<u64>, removed: &Removed, archives: u64) -> RemovedReport {
    let left = removed.left.iter().map(|(path, why)| PathNote { path: path.clone(), why: why.clone() });
    RemovedReport {
        schema: "strata-removed/1.0",
        generations,
        files: removed.files,
        bytes: removed.bytes,
        archives,
        left: left.collect(),
        prefix_gone: false,
    }
}

fn left(removed: &Removed) -> String {
    let lines = removed.left.iter().map(|(path, why)| format!("left: {}: {why}\n", path.display()));
    lines.collect::<Vec<_>>().concat()
}

pub(crate) fn gc(context: &Context, args: &GcArgs) -> Outcome {
    let root = context.root()?;
    let done = strata_install::collect(&root, &Disk::real(), args.keep, args.downloads, context.patience())?;
    let nothing = done.generations.is_empty() && done.archives == 0 && done.removed.left.is_empty();
    let text = if nothing {
        format!("nothing to remove: the current generation and {} others are kept\n", args.keep)
    } else {
        format!(
            "removed {} generations, {} archives: {} files, {}\n{}",
            done.generations.len(),
            done.archives,
            done.removed.files,
            bytes(done.removed.bytes),
            left(&done.removed)
        )
    };
    context.answer(&text, &removed_report(done.generations, &done.removed, done.archives))?;
    Ok(ExitStatus::Done)
}
