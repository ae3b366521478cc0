//! What is installed: a generation against its receipt and the manifests of its components.

use super::finding::{Finding, Report};
use super::inventory::{Inventory, Manifest};
use super::{Progress, VerifyOptions, law, run};
use crate::PackageError;
use crate::archive_read::Kind;
use crate::stray;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use strata_diag::catalogue::packages::{
    FILE_DIFFERS, FILE_MISSING, FILE_UNLISTED, MANIFEST_INVALID, MODE_DIFFERS, VERSION_DIFFERS,
};
use strata_manifest::{Component, Document, Receipt, Sha256Digest};

const RECEIPT_FILE: &str = "receipt.json";
pub(super) const COMPONENTS: &str = "components/";

/// The folder to look at when `target` is a prefix with generations, or one generation.
pub(super) fn generation(target: &Path) -> Option<PathBuf> {
    [target.to_owned(), target.join("current")].into_iter().find(|folder| folder.join(RECEIPT_FILE).is_file())
}

/// A listed file: size, digest, mode.
type Listed = (u64, Sha256Digest, String);

pub(super) fn verify(
    generation: &Path,
    options: &VerifyOptions,
    progress: &dyn Progress,
) -> Result<Report, PackageError> {
    let root = fs_err::canonicalize(generation).map_err(PackageError::unreadable(generation))?;
    let mut report = Report::new(generation, "installation");
    let receipt = Receipt::read(&root.join(RECEIPT_FILE))?;
    let listed: BTreeMap<&str, Listed> =
        receipt.files.iter().map(|file| (file.path.as_str(), (file.size, file.sha256, file.mode.clone()))).collect();
    let wanted = |path: &str| listed.contains_key(path) || path.starts_with(COMPONENTS);
    let inventory = Inventory::of_folder(&root, Some(&wanted), options, progress, &mut report)?;
    against_receipt(&inventory, &listed, &mut report);
    components(&inventory, &receipt, &listed, options, &mut report);
    if options.run {
        let components = report.components.clone();
        run::programs(&root, components.iter(), &mut report);
    }
    Ok(report)
}

fn against_receipt(inventory: &Inventory, listed: &BTreeMap<&str, Listed>, report: &mut Report) {
    for (path, (size, sha256, mode)) in listed {
        let at = Some(path.as_bytes());
        let Some(item) = inventory.items.get(*path).filter(|item| item.kind == Kind::File) else {
            if !inventory.is_hidden(path) {
                report.add(Finding::new(FILE_MISSING, at, "the receipt lists it and it is not there"));
            }
            continue;
        };
        if let Some(content) = &item.content
            && (content.digests.size, content.digests.sha256) != (*size, *sha256)
        {
            let finding = Finding::new(FILE_DIFFERS, at, "it is not the installed one");
            report.add(finding.fact("expected", sha256).fact("got", content.digests.sha256));
        }
        let got = format!("{:04o}", item.mode);
        if got != *mode {
            let finding = Finding::new(MODE_DIFFERS, at, "its mode is not the installed one");
            report.add(finding.fact("expected", mode).fact("got", got));
        }
    }
    let folders: BTreeSet<&str> =
        listed.keys().flat_map(|path| path.match_indices('/').map(|(end, _)| &path[..end])).collect();
    for (path, item) in &inventory.items {
        let known = path == RECEIPT_FILE || listed.contains_key(path.as_str()) || folders.contains(path.as_str());
        if !known {
            let mut finding = Finding::new(FILE_UNLISTED, Some(path.as_bytes()), "the receipt does not list it");
            finding.bytes = if item.kind == Kind::File { item.size } else { 0 };
            finding.looks_like = stray::looks_like(path.rsplit('/').next().unwrap_or_default());
            report.add(finding);
        }
    }
}

/// The manifests that came with the components: what they list is what the receipt lists.
fn components(
    inventory: &Inventory,
    receipt: &Receipt,
    listed: &BTreeMap<&str, Listed>,
    options: &VerifyOptions,
    report: &mut Report,
) {
    let mut owned: BTreeSet<String> = BTreeSet::new();
    let lists: Vec<&String> = inventory.items.keys().filter(|path| path.starts_with(COMPONENTS)).collect();
    for path in &lists {
        let Some(content) = inventory.items.get(*path).and_then(|item| item.content.as_ref()) else { continue };
        let component = match Component::parse(content.text.as_deref().unwrap_or_default(), Path::new(path)) {
            Ok(component) => component,
            Err(error) => {
                report.add(Finding::new(MANIFEST_INVALID, Some(path.as_bytes()), error.to_string()));
                continue;
            }
        };
        if component.version != receipt.version {
            let finding = Finding::new(
                VERSION_DIFFERS,
                Some(path.as_bytes()),
                "the component and the receipt differ in the version",
            );
            report.add(finding.fact("component", &component.version).fact("receipt", &receipt.version));
        }
        for file in &component.files {
            let name = file.path.as_str();
            owned.insert(name.to_owned());
            let same = listed.get(name).is_some_and(|(size, sha256, mode)| {
                *size == file.size && *sha256 == file.sha256 && *mode == file.mode.to_string()
            });
            if !same {
                let message = format!("`{path}` and the receipt do not say the same of it");
                report.add(Finding::new(FILE_DIFFERS, Some(name.as_bytes()), message));
            }
        }
        of_component(inventory, component, content.digests.sha256, content.digests.size, options, report);
    }
    if lists.is_empty() {
        report.note("it was laid out from a build: there are no component manifests, only the receipt".to_owned());
        return;
    }
    for path in listed.keys().filter(|path| !owned.contains(**path) && !path.starts_with(COMPONENTS)) {
        let message = "the receipt lists it and no component does";
        report.add(Finding::new(FILE_UNLISTED, Some(path.as_bytes()), message));
    }
}

/// The laws of one component, over its own files only.
fn of_component(
    inventory: &Inventory,
    component: Component,
    sha256: Sha256Digest,
    size: u64,
    options: &VerifyOptions,
    report: &mut Report,
) {
    let own = component
        .files
        .iter()
        .filter_map(|file| Some((file.path.to_string(), inventory.items.get(file.path.as_str())?.clone())));
    let part = inventory.part(own.collect(), Manifest { component, sha256, size });
    law::check(&part, options, report);
    report.components.extend(part.manifest.map(|manifest| manifest.component));
}
