//! A release folder: its signature, its index, and every archive in it.

use super::finding::{Finding, Report};
use super::{Progress, TrustAnchor, VerifyOptions, archive_inventory, archive_rules, run};
use crate::PackageError;
use crate::digest::Digests;
use crate::index;
use crate::sign::{self, signature_path};
use crate::stray;
use crate::trust::{self, Seen};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use strata_diag::Diagnose;
use strata_diag::catalogue::packages::{
    FILE_MISSING, FILE_UNLISTED, MANIFEST_INVALID, NOT_SIGNED, PACKAGE_TOO_LARGE, RELEASE_DIFFERS, SIGNATURE_INVALID,
    TRUST_REFUSED,
};
use strata_manifest::{
    Component, Document, KEYS_FILE, RELEASE_FILE, Release, ReleaseComponent, ReleaseFile, SUMS_FILE, TrustRoot,
};

/// What lies in a release folder beside what the index lists: signatures, keys, the bootstrap script.
const COMPANIONS: &[&str] = &["install.sh", "root.pub", "root.json", "release.pub"];

/// Folders inside folders that are looked into.
const MAX_DEPTH: usize = 32;

pub(super) fn verify(folder: &Path, options: &VerifyOptions, progress: &dyn Progress) -> Result<Report, PackageError> {
    let mut report = Report::new(folder, "release folder");
    let path = folder.join(RELEASE_FILE);
    let text = fs_err::read_to_string(&path).map_err(PackageError::unreadable(&path))?;
    signature(folder, options, &mut report);
    let release = match Release::parse(&text, Path::new(RELEASE_FILE)) {
        Ok(release) => release,
        Err(error) => {
            report.add(Finding::new(MANIFEST_INVALID, Some(RELEASE_FILE.as_bytes()), error.to_string()));
            return Ok(report);
        }
    };
    if options.now >= release.expires {
        let finding = Finding::new(TRUST_REFUSED, Some(RELEASE_FILE.as_bytes()), "the index has expired");
        report.add(finding.fact("expired", release.expires).fact("now", options.now));
    }
    if let Some(lowest) = options.lowest_serial.filter(|lowest| release.serial < *lowest) {
        let message = "the index is older than one that was seen before";
        let finding = Finding::new(TRUST_REFUSED, Some(RELEASE_FILE.as_bytes()), message);
        report.add(finding.fact("serial", release.serial).fact("seen before", lowest));
    }
    sums(folder, &release, &text, &mut report);
    for component in &release.components {
        for file in &component.archives {
            archive(folder, component, file, options, progress, &mut report)?;
        }
    }
    for file in release.models.iter().flat_map(|model| &model.files).filter(|file| file.path.is_some()) {
        listed_file(folder, file, &mut report)?;
    }
    unlisted(folder, &release, &mut report)?;
    if options.run {
        run::withheld(&mut report, "programs inside archives are not run: install it, and name the prefix");
    }
    Ok(report)
}

fn signature(folder: &Path, options: &VerifyOptions, report: &mut Report) {
    let signed = signature_path(&folder.join(RELEASE_FILE)).is_file();
    match &options.trust {
        None if options.unsigned => report.note("signatures were not checked: `--no-signature`".to_owned()),
        None => {
            let message =
                if signed { "it is signed, and no key was given to check that with" } else { "it is not signed" };
            report.add(Finding::new(NOT_SIGNED, Some(RELEASE_FILE.as_bytes()), message));
        }
        Some(_) if !signed => {
            report.add(Finding::new(SIGNATURE_INVALID, Some(RELEASE_FILE.as_bytes()), "it is not signed"));
        }
        Some(anchor) => {
            if let Err(error) = believed(folder, anchor, options) {
                // What cannot be read proves nothing either.
                let code = if error.code() == TRUST_REFUSED { TRUST_REFUSED } else { SIGNATURE_INVALID };
                report.add(Finding::new(code, Some(RELEASE_FILE.as_bytes()), error.to_string()));
            }
        }
    }
}

fn believed(folder: &Path, anchor: &TrustAnchor, options: &VerifyOptions) -> Result<(), PackageError> {
    match anchor {
        TrustAnchor::Root(root) => {
            let seen = Seen { keys: None, release: options.lowest_serial };
            trust::folder(folder, root, options.now, seen)?;
        }
        TrustAnchor::Key(key) if sign::verify_file(std::slice::from_ref(key), &folder.join(KEYS_FILE)).is_ok() => {
            let root = TrustRoot { schema: TrustRoot::SCHEMA.to_owned(), roots: vec![key.clone()] };
            let seen = Seen { keys: None, release: options.lowest_serial };
            trust::folder(folder, &root, options.now, seen)?;
        }
        TrustAnchor::Key(key) => {
            let keys = std::slice::from_ref(key);
            sign::verify_file(keys, &folder.join(RELEASE_FILE))?;
            if folder.join(SUMS_FILE).is_file() {
                sign::verify_file(keys, &folder.join(SUMS_FILE))?;
            }
        }
    }
    Ok(())
}

fn sums(folder: &Path, release: &Release, text: &str, report: &mut Report) {
    let differs = |path: &str, message: &str| Finding::new(RELEASE_DIFFERS, Some(path.as_bytes()), message);
    if release.to_text() != text {
        report.add(differs(RELEASE_FILE, "it is not written as `strata package index` writes it"));
    }
    match fs_err::read_to_string(folder.join(SUMS_FILE)) {
        Ok(sums) if sums == index::sums_text(release) => {}
        Ok(_) => report.add(differs(SUMS_FILE, "it is not the index's list")),
        Err(_) => report.add(Finding::new(FILE_MISSING, Some(SUMS_FILE.as_bytes()), "a release has a list of sums")),
    }
}

/// Size and digests of a listed file; `None`, and told, when it is not that one.
fn listed_file(folder: &Path, file: &ReleaseFile, report: &mut Report) -> Result<Option<()>, PackageError> {
    let Some(name) = &file.path else { return Ok(None) };
    let at = Some(name.as_str().as_bytes());
    let path = name.below(folder);
    if !fs_err::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
        report.add(Finding::new(FILE_MISSING, at, "the index lists it and it is not there"));
        return Ok(None);
    }
    let digests = Digests::of_file(&path)?;
    report.files += 1;
    report.bytes += digests.size;
    let pieces = (!digests.chunks.is_empty()).then(|| strata_manifest::Sha256Digest::of_digests(&digests.chunks));
    let pairs = [
        ("size", file.size.to_string(), digests.size.to_string()),
        ("sha256", file.sha256.to_string(), digests.sha256.to_string()),
        ("digest of its pieces' digests", shown(file.chunks_sha256), shown(pieces)),
    ];
    let mut same = true;
    for (what, expected, got) in pairs {
        if expected != got {
            same = false;
            let finding = Finding::new(RELEASE_DIFFERS, at, format!("its {what} is not the listed one"));
            report.add(finding.fact("expected", expected).fact("got", got));
        }
    }
    Ok(same.then_some(()))
}

fn shown(digest: Option<strata_manifest::Sha256Digest>) -> String {
    digest.map_or("none".to_owned(), |digest| digest.to_string())
}

fn archive(
    folder: &Path,
    listed: &ReleaseComponent,
    file: &ReleaseFile,
    options: &VerifyOptions,
    progress: &dyn Progress,
    report: &mut Report,
) -> Result<(), PackageError> {
    listed_file(folder, file, report)?;
    let Some(name) = &file.path else {
        let message = "an archive of a release folder lies in it";
        report.add(Finding::new(RELEASE_DIFFERS, Some(file.place().as_bytes()), message));
        return Ok(());
    };
    let path = name.below(folder);
    let Ok((opened, _)) = fs_err::File::open(&path).map(fs_err::File::into_parts) else { return Ok(()) };
    let mut part = Report::new(&path, "archive");
    if let Some(inventory) = archive_inventory(&opened, &path, options, progress, &mut part)? {
        archive_rules(&inventory, Some(name.file_name()), options, &mut part);
        if let Some(manifest) = &inventory.manifest {
            let bytes = manifest.component.unpacked_bytes().saturating_add(manifest.size);
            against_index(listed, &manifest.component, manifest.sha256, bytes, &mut part);
        }
        let suffix = inventory.container.map(crate::archive_read::Container::suffix).unwrap_or_default();
        if suffix != file.format {
            let finding = Finding::new(RELEASE_DIFFERS, None, "its format is not the listed one");
            part.add(finding.fact("index", &file.format).fact("archive", suffix));
        }
    }
    report.absorb(part, name.as_str());
    Ok(())
}

fn against_index(
    listed: &ReleaseComponent,
    component: &Component,
    sha256: strata_manifest::Sha256Digest,
    bytes: u64,
    report: &mut Report,
) {
    let word = |text: &Option<String>| text.clone().unwrap_or_default();
    let abi = |abi: &Option<strata_manifest::AbiRange>| {
        abi.as_ref()
            .map_or(String::new(), |abi| format!("{} to {}, layout {}", abi.lowest, abi.highest, abi.layout_hash))
    };
    let pairs = [
        ("component", listed.component.clone(), component.component.clone()),
        ("backend", word(&listed.backend), word(&component.backend)),
        ("version", listed.version.to_string(), component.version.to_string()),
        ("system", listed.os.clone(), component.os.clone()),
        ("processor", listed.cpu_arch.clone(), component.cpu_arch.clone()),
        ("GPU targets", listed.gpu_targets.join(" "), component.gpu_targets.join(" ")),
        ("ABI", abi(&listed.abi), abi(&component.abi)),
        ("glibc floor", word(&listed.libc_floor), word(&component.libc_floor)),
        ("unpacked bytes", listed.unpacked_bytes.to_string(), bytes.to_string()),
        ("manifest's digest", listed.manifest_sha256.to_string(), sha256.to_string()),
    ];
    for (what, index, manifest) in pairs {
        if index != manifest {
            let finding =
                Finding::new(RELEASE_DIFFERS, None, format!("the index and the manifest differ in the {what}"));
            report.add(finding.fact("index", index).fact("manifest", manifest));
        }
    }
}

fn unlisted(folder: &Path, release: &Release, report: &mut Report) -> Result<(), PackageError> {
    let mut known: BTreeSet<String> =
        release.files().filter_map(|file| Some(file.path.as_ref()?.to_string())).collect();
    for name in [RELEASE_FILE, SUMS_FILE, KEYS_FILE] {
        known.insert(name.to_owned());
        known.insert(format!("{name}.minisig"));
    }
    unknown(folder, "", &known, report)
}

/// What lies in a folder and is not known, each file at any depth, and folders that hold nothing.
fn unknown(folder: &Path, below: &str, known: &BTreeSet<String>, report: &mut Report) -> Result<(), PackageError> {
    let unreadable = |error| PackageError::Unreadable { path: folder.to_owned(), source: error };
    let mut entries: Vec<_> =
        fs_err::read_dir(folder).map_err(unreadable)?.collect::<Result<_, _>>().map_err(unreadable)?;
    entries.sort_by_key(fs_err::DirEntry::file_name);
    if entries.is_empty() && !below.is_empty() {
        report.add(Finding::new(FILE_UNLISTED, Some(below.as_bytes()), "a folder that holds no listed file"));
    }
    for entry in entries {
        let name = [below.as_bytes(), entry.file_name().as_bytes()].concat();
        let text = std::str::from_utf8(&name).unwrap_or_default();
        if below.is_empty() && COMPANIONS.contains(&text) {
            report.note(format!("`{text}` is no part of the signed release and was not checked"));
            continue;
        }
        // Links are not followed: a link to a folder is one thing that nobody listed.
        let metadata = fs_err::symlink_metadata(entry.path()).map_err(unreadable)?;
        if metadata.is_dir() && !text.is_empty() {
            if name.split(|byte| *byte == b'/').count() > MAX_DEPTH {
                let message = format!("folders more than {MAX_DEPTH} deep are not looked into");
                report.add(Finding::new(PACKAGE_TOO_LARGE, Some(&name), message));
            } else {
                unknown(&entry.path(), &format!("{text}/"), known, report)?;
            }
        } else if metadata.is_dir() || !known.contains(text) {
            let mut finding = Finding::new(FILE_UNLISTED, Some(&name), "the index does not list it");
            finding.bytes = if metadata.is_file() { metadata.len() } else { 0 };
            finding.looks_like = stray::looks_like(&entry.file_name().to_string_lossy());
            report.add(finding);
        }
    }
    Ok(())
}
