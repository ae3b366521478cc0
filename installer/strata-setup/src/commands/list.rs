//! `strata-setup list`: generations, components, models; or the catalog.

use crate::cli::ListArgs;
use crate::commands::manage;
use crate::context::Context;
use crate::facts;
use crate::models;
use crate::outcome::Outcome;
use std::fmt::Write;
use strata_diag::{Diagnose, ExitStatus};
use strata_install::plan::fit;
use strata_install::{InstallError, InstallRoot, bytes, plan::trust_words};
use strata_manifest::setup_report::{CatalogEntryReport, CatalogReport, GenerationReport, ListReport, ModelReport};
use strata_manifest::{ModelStore, Receipt, StoredModel, UtcTime, component_id};

pub(crate) fn run(context: &Context, args: &ListArgs) -> Outcome {
    if args.models {
        return catalog(context);
    }
    let root = context.root()?;
    if args.check {
        let (generation, _) = root.require_installed()?;
        let audit = strata_install::audit(&root, generation, &context.progress)?;
        return manage::report_audit(context, &audit);
    }
    let current = root.current_generation();
    let (mut receipts, mut unreadable) = (Vec::new(), Vec::new());
    for number in root.complete() {
        match root.receipt(number) {
            Ok(receipt) => receipts.push((number, receipt)),
            Err(error @ InstallError::ReceiptDamaged { .. }) => unreadable.push((number, error)),
            Err(error) => return Err(error.into()),
        }
    }
    let store = root.model_store()?;
    let mut text = text(&root, current, &receipts, &store);
    for (number, error) in unreadable {
        let mark = if Some(number) == current { "current" } else { "kept" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "generation {number} ({mark}): {error}");
        error.hints().iter().for_each(|hint| {
            let _ = writeln!(text, "  to do: {hint}");
        });
    }
    context.answer(&text, &report(&root, current, &receipts, &store))?;
    Ok(ExitStatus::Done)
}

fn report(root: &InstallRoot, current: Option<u64>, receipts: &[(u64, Receipt)], store: &ModelStore) -> ListReport {
    let generation = |(number, receipt): &(u64, Receipt)| {
        let record = receipt.install.as_ref();
        GenerationReport {
            generation: *number,
            current: Some(*number) == current,
            version: receipt.version.clone(),
            files: receipt.files.len() as u64,
            bytes: receipt.files.iter().map(|file| file.size).sum(),
            plugins: receipt.plugins.iter().map(|plugin| plugin.name.clone()).collect(),
            backend: record.map(|record| record.backend.clone()).unwrap_or_default(),
            proven: record.map(|record| record.proven.clone()).unwrap_or_default(),
            unproven: record.map(|record| record.unproven.clone()).unwrap_or_default(),
            from: record.map(|record| record.release.from.clone()).unwrap_or_default(),
            trust: record.map(|record| trust_words(&record.release.trust)).unwrap_or_default(),
        }
    };
    let model = |model: &StoredModel| ModelReport {
        name: model.name.clone(),
        source: model.source.clone(),
        bytes: model.files.iter().map(|file| file.size).sum(),
        files: model.files.iter().map(|file| root.models().join(&file.path)).collect(),
    };
    ListReport {
        schema: "strata-list/1.0",
        prefix: root.path().to_owned(),
        generations: receipts.iter().map(generation).collect(),
        models: store.models.iter().map(model).collect(),
    }
}

fn text(root: &InstallRoot, current: Option<u64>, receipts: &[(u64, Receipt)], store: &ModelStore) -> String {
    let mut out = format!("prefix: {}\n", root.path().display());
    if receipts.is_empty() {
        out += "nothing is installed\n";
    }
    // Writing to a String cannot fail.
    for (number, receipt) in receipts {
        let mark = if Some(*number) == current { "current" } else { "kept" };
        let size = receipt.files.iter().map(|file| file.size).sum();
        let _ = writeln!(
            out,
            "generation {number} ({mark}): Strata {}, {} files, {}",
            receipt.version,
            receipt.files.len(),
            bytes(size)
        );
        let Some(record) = &receipt.install else { continue };
        let _ = writeln!(
            out,
            "  installed {} from {} ({})",
            UtcTime::from_seconds(record.installed_at),
            record.release.from,
            trust_words(&record.release.trust)
        );
        let parts: Vec<String> =
            record.components.iter().map(|part| component_id(&part.component, part.backend.as_deref())).collect();
        let _ = writeln!(out, "  components: {}", parts.join(", "));
        let _ =
            writeln!(out, "  backend: {} (asked: {}): {}", record.backend, record.backend_asked, record.backend_reason);
        for device in &record.proven {
            let passed =
                if device.passed { "passed its check".to_owned() } else { format!("did not pass: {}", device.detail) };
            let _ = writeln!(out, "  {} on {}: {passed}", device.plugin, device.uid);
        }
        for plugin in &record.unproven {
            let _ = writeln!(out, "  {plugin}: unproven");
        }
    }
    for model in &store.models {
        let size = model.files.iter().map(|file| file.size).sum();
        let _ = writeln!(
            out,
            "model {}: {} in {} files, from {}",
            model.name,
            bytes(size),
            model.files.len(),
            model.source
        );
    }
    out
}

/// The catalog, each model against this machine.
fn catalog(context: &Context) -> Outcome {
    let catalog = models::catalog(None)?;
    let machine = facts::machine(None)?.machine;
    let memory = facts::memory(&machine);
    let mut text = String::new();
    let mut list = Vec::new();
    for model in &catalog.models {
        let fit = fit::judge(model, memory);
        let mark = if model.recommended { " (the default)" } else { "" };
        let about = if model.files.iter().all(|file| file.size.is_some()) { "" } else { "about " };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}{mark}: {}, {about}{}", model.name, model.title, bytes(model.bytes()));
        let _ = writeln!(text, "    {}", fit.text);
        if let Some(note) = &model.note {
            let _ = writeln!(text, "    {note}");
        }
        list.push(CatalogEntryReport {
            name: model.name.clone(),
            title: model.title.clone(),
            architecture: model.architecture.clone(),
            licence: model.licence.clone(),
            bytes: model.bytes(),
            exact: about.is_empty(),
            recommended: model.recommended,
            fit: fit.text,
            sources: model.files.iter().map(|file| file.sources.clone()).collect(),
        });
    }
    context.answer(&text, &CatalogReport { schema: "strata-catalog-report/1.0", models: list })?;
    Ok(ExitStatus::Done)
}
