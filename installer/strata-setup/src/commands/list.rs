//! `strata-setup list`: generations, components, models; or the catalog.

use crate::cli::ListArgs;
use crate::commands::manage;
use crate::context::Context;
use crate::facts;
use crate::models;
use crate::outcome::Outcome;
use serde_json::json;
use std::fmt::Write;
use strata_diag::ExitStatus;
use strata_install::plan::fit::{self, Memory};
use strata_install::{InstallRoot, bytes, plan::trust_words};
use strata_manifest::{ModelStore, Receipt, UtcTime, component_id};

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
    let receipts: Vec<(u64, Receipt)> =
        root.complete().into_iter().map(|number| Ok((number, root.receipt(number)?))).collect::<Outcome<_>>()?;
    let store = root.model_store()?;
    let text = text(&root, current, &receipts, &store);
    context.answer(&text, || {
        let generations: Vec<_> = receipts
            .iter()
            .map(|(number, receipt)| {
                json!({
                    "generation": number,
                    "current": Some(*number) == current,
                    "version": receipt.version.to_string(),
                    "files": receipt.files.len(),
                    "plugins": receipt.plugins.iter().map(|plugin| &plugin.name).collect::<Vec<_>>(),
                    "backend": receipt.install.as_ref().map(|record| &record.backend),
                    "unproven": receipt.install.as_ref().map(|record| &record.unproven),
                    "from": receipt.install.as_ref().map(|record| &record.release.from),
                })
            })
            .collect();
        let models: Vec<_> = store
            .models
            .iter()
            .map(|model| {
                json!({
                    "name": model.name,
                    "source": model.source,
                    "bytes": model.files.iter().map(|file| file.size).sum::<u64>(),
                    "files": model.files.iter().map(|file| root.models().join(&file.path)).collect::<Vec<_>>(),
                })
            })
            .collect();
        format!("{:#}\n", json!({ "prefix": root.path(), "generations": generations, "models": models }))
    })?;
    Ok(ExitStatus::Done)
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
    let usable: Vec<_> = machine
        .devices
        .iter()
        .filter(|device| {
            device.state == strata_install::plan::machine::DeviceState::Usable && device.vendor.backend().is_some()
        })
        .map(|device| device.memory_bytes)
        .collect();
    let memory = Memory { ram: machine.ram_bytes, vram: usable.iter().copied().sum(), gpus: usable.len() as u64 };
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
        list.push(json!({
            "name": model.name,
            "title": model.title,
            "architecture": model.architecture,
            "licence": model.licence,
            "bytes": model.bytes(),
            "exact": model.files.iter().all(|file| file.size.is_some()),
            "recommended": model.recommended,
            "fit": fit.text,
            "sources": model.files.iter().map(|file| &file.sources).collect::<Vec<_>>(),
        }));
    }
    context.answer(&text, || format!("{:#}\n", json!({ "models": list })))?;
    Ok(ExitStatus::Done)
}
