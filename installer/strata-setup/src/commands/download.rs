//! `--download-only`: fetches what an installation needs and leaves a folder that installs without
//! the network. No GPU, no driver and no question is in its way.

use crate::byhand::{self, HandFile};
use crate::cli::InstallArgs;
use crate::commands::install;
use crate::context::Context;
use crate::fetching::{self, Network, Wanted};
use crate::models::{DOWNLOAD_FILE, Request, Shelf};
use crate::outcome::Outcome;
use crate::source::{self, Opened};
use crate::{facts, interrupt, printer};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use strata_diag::catalogue::general::FILE_UNWRITABLE;
use strata_diag::catalogue::installing::{COMPONENT_MISSING, RELEASE_UNTRUSTED};
use strata_diag::{Diagnostic, ExitStatus};
use strata_install::plan::backend::{GpuRequest, for_download};
use strata_install::plan::machine::Machine;
use strata_install::plan::{file_name, smallest, trust_words};
use strata_install::{InstallError, bytes, volume_of};
use strata_manifest::plan::{DownloadFolder, DownloadedFile, DownloadedModel};
use strata_manifest::setup_report::{ByHandFile, ByHandReport};
use strata_manifest::{
    Document, KEYS_FILE, PinnedTrust, RELEASE_FILE, ReleaseComponent, ReleaseFile, SUMS_FILE, Trust,
};

/// An archive to fetch and why.
struct Part<'a> {
    component: &'a ReleaseComponent,
    why: String,
}

pub(crate) fn run(context: &Context, args: &InstallArgs) -> Outcome {
    let gpu = install::gpu_request(args)?;
    let machine = machine(args);
    let scratch = scratch(args)?;
    let opened = source::open(args, &PinnedTrust::empty(), None, &scratch, &context.progress)?;
    if let Trust::FirstUse { key_id } = &opened.trust {
        printer::talk(&format!(
            "note: the release is signed by key {key_id}; compare it with the key that its makers publish"
        ));
    }
    let to = folder(args, &opened);
    let (parts, notes) = parts(&opened, &machine, &gpu)?;
    let models_folder = to.join("models");
    let shelf = Shelf::open(args, &opened, (&models_folder, &context.progress))?;
    let requests = requests(args, &shelf)?;
    for note in &notes {
        printer::talk(&format!("note: {note}"));
    }
    let list = hand_files(&opened, &parts, &requests)?;
    let backend = backend_there(&parts);
    let control = control(&parts)?;
    let hand = byhand::Hand { control: control.map(file_name), backend: &backend, files: &list, hub: &fetching::hub() };
    let text = hand.to_fetch(&to.display().to_string());
    if args.print || args.dry_run {
        context.answer(&text, &by_hand_report(&to, &opened, &list, notes))?;
        if opened.base.is_some() {
            let _ = fs_err::remove_dir_all(opened.folder.path());
            // Only what this made, and only when nothing else is in it.
            let _ = fs_err::remove_dir(&to);
        }
        return Ok(ExitStatus::Done);
    }
    check_space(&to, &list)?;
    let done = fetch_all(context, args, &opened, &parts, &requests, &to)?;
    write(&to.join("HOW-TO.txt"), hand.of_folder().as_bytes())?;
    if let Some(control) = control.filter(|control| control.format == "tar.gz") {
        write(&to.join(byhand::LAUNCHER), byhand::launcher(&file_name(control), control.sha256).as_bytes())?;
    }
    write(&to.join(DOWNLOAD_FILE), done.to_text().as_bytes())?;
    report(context, &to, &opened, &done, &backend)
}

/// Facts of this machine; downloads go on when there are none.
fn machine(args: &InstallArgs) -> Machine {
    match facts::machine(args.root.as_deref()) {
        Ok(facts) => facts.machine,
        Err(stop) => {
            printer::talk(&format!(
                "note: this machine could not be looked at ({}); what was named is fetched",
                stop.0
            ));
            Machine {
                os: std::env::consts::OS.to_owned(),
                cpu_arch: std::env::consts::ARCH.to_owned(),
                libc: None,
                ram_bytes: None,
                devices: Vec::new(),
                looked_at: Vec::new(),
            }
        }
    }
}

/// Where the index of an address is fetched to before its version, and so the folder's name, is known.
fn scratch(args: &InstallArgs) -> Outcome<PathBuf> {
    let base = args.to.clone().unwrap_or_else(|| PathBuf::from("."));
    std::path::absolute(base.join(".strata-index"))
        .map_err(|error| Diagnostic::new(FILE_UNWRITABLE, error.to_string()).into())
}

fn folder(args: &InstallArgs, opened: &Opened) -> PathBuf {
    let named = args.to.clone().unwrap_or_else(|| PathBuf::from(format!("strata-{}", opened.release.version)));
    std::path::absolute(&named).unwrap_or(named)
}

fn parts<'a>(opened: &'a Opened, machine: &Machine, gpu: &GpuRequest) -> Outcome<(Vec<Part<'a>>, Vec<String>)> {
    let find = |name: &str, backend: Option<&str>| {
        opened.release.components.iter().find(|component| {
            component.component == name
                && component.backend.as_deref() == backend
                && component.os == machine.os
                && component.cpu_arch == machine.cpu_arch
        })
    };
    let (picked, mut notes) = for_download(&opened.release, machine, gpu);
    let mut parts = Vec::new();
    for (name, backend, why) in [("control", None, "the commands"), ("engine", Some("cpu"), "the CPU engine")] {
        match find(name, backend) {
            Some(component) => parts.push(Part { component, why: why.to_owned() }),
            None => notes.push(format!("this release has no {why} for {} {}", machine.os, machine.cpu_arch)),
        }
    }
    parts.extend(picked.into_iter().map(|(component, why)| Part { component, why }));
    if parts.is_empty() {
        return Err(Diagnostic::new(COMPONENT_MISSING, "the release holds nothing for this kind of system").into());
    }
    Ok((parts, notes))
}

fn control<'a>(parts: &[Part<'a>]) -> Outcome<Option<&'a ReleaseFile>> {
    let control = parts.iter().find(|part| part.component.component == "control");
    Ok(control.map(|part| smallest(part.component)).transpose()?)
}

/// What to say to `--backend` on the machine that installs the folder: the kind of the engine that was fetched.
fn backend_there(parts: &[Part<'_>]) -> String {
    let gpu = parts.iter().find_map(|part| part.component.backend.as_deref().filter(|backend| *backend != "cpu"));
    gpu.map_or("cpu", strata_install::plan::backend::kind).to_owned()
}

/// Models that were named, else the recommended one.
fn requests(args: &InstallArgs, shelf: &Shelf<'_>) -> Outcome<Vec<Request>> {
    if args.no_model {
        return Ok(Vec::new());
    }
    if args.model.is_empty() {
        let recommended = shelf.catalog.models.iter().find(|model| model.recommended);
        return recommended.map(|model| shelf.find(&model.name)).into_iter().collect();
    }
    args.model.iter().map(|name| shelf.find(name)).collect()
}

fn address(opened: &Opened, place: &str) -> String {
    match &opened.base {
        _ if source::is_address(place) => place.to_owned(),
        Some(base) => format!("{base}{place}"),
        None => opened.folder.find(place).unwrap_or_else(|| opened.folder.path().join(place)).display().to_string(),
    }
}

fn hand_files(opened: &Opened, parts: &[Part<'_>], requests: &[Request]) -> Outcome<Vec<HandFile>> {
    let mut files = Vec::new();
    for name in [
        RELEASE_FILE.to_owned(),
        format!("{RELEASE_FILE}.minisig"),
        KEYS_FILE.to_owned(),
        format!("{KEYS_FILE}.minisig"),
    ] {
        let path = opened.folder.path().join(&name);
        let Ok(bytes) = fs_err::read(&path) else { continue };
        files.push(HandFile {
            why: "the signed index of the release".to_owned(),
            size: Some(bytes.len() as u64),
            about_bytes: 0,
            sha256: Some(strata_manifest::Sha256Digest::of_bytes(&bytes)),
            sources: vec![address(opened, &name)],
            place: name,
        });
    }
    for part in parts {
        let file = smallest(part.component)?;
        files.push(HandFile {
            place: file_name(file),
            why: part.why.clone(),
            size: Some(file.size),
            about_bytes: file.size,
            sha256: Some(file.sha256),
            sources: vec![address(opened, file.place())],
        });
    }
    for request in requests {
        for (file, local) in request.model.files.iter().zip(&request.local) {
            files.push(HandFile {
                place: format!("models/{}", file.name),
                why: format!("model {}", request.model.name),
                size: file.size,
                about_bytes: file.bytes(),
                sha256: file.sha256,
                sources: match local {
                    Some(local) => vec![local.display().to_string()],
                    None => file.sources.clone(),
                },
            });
        }
    }
    Ok(files)
}

fn by_hand_report(to: &Path, opened: &Opened, files: &[HandFile], notes: Vec<String>) -> ByHandReport {
    let file = |file: &HandFile| ByHandFile {
        place: file.place.clone(),
        why: file.why.clone(),
        size: file.size,
        about_bytes: file.about_bytes,
        sha256: file.sha256.map(|sha256| sha256.to_string()),
        sources: file.sources.clone(),
    };
    ByHandReport {
        schema: "strata-by-hand/1.0",
        folder: to.to_owned(),
        version: opened.release.version.clone(),
        files: files.iter().map(file).collect(),
        notes,
    }
}

fn check_space(to: &Path, files: &[HandFile]) -> Outcome<()> {
    let missing = files.iter().filter(|file| {
        let there = fs_err::metadata(to.join(&file.place)).map(|metadata| metadata.len()).ok();
        there.is_none() || there != file.size
    });
    let parts: Vec<(String, u64)> =
        missing.map(|file| (file.place.clone(), file.size.unwrap_or(file.about_bytes))).collect();
    let needed: u64 = parts.iter().map(|(_, size)| size).sum();
    let Some((_, free)) = volume_of(to) else { return Ok(()) };
    if free < needed {
        return Err(InstallError::DiskShort { path: to.to_owned(), needed, free, short: needed - free, parts }.into());
    }
    Ok(())
}

fn fetch_all(
    context: &Context,
    args: &InstallArgs,
    opened: &Opened,
    parts: &[Part<'_>],
    requests: &[Request],
    to: &Path,
) -> Outcome<DownloadFolder> {
    let network = Network::new(args, Some(&to.join("models")));
    bring_index(opened, to)?;
    let mut wanted = Vec::new();
    for part in parts {
        let file = smallest(part.component)?;
        wanted.push(Wanted {
            name: file_name(file),
            sources: vec![address(opened, file.place())],
            size: Some(file.size),
            about_bytes: file.size,
            sha256: Some(file.sha256),
            to: to.join(file_name(file)),
            chunks: file.chunks.clone(),
            ..Wanted::default()
        });
    }
    fetching::fetch(&wanted, &network, &context.progress)?;
    let mut models = Vec::new();
    for request in requests {
        let mut files = Vec::new();
        for ((file, local), known) in request.model.files.iter().zip(&request.local).zip(&request.known) {
            let sources = match local {
                Some(local) => vec![local.display().to_string()],
                None => file.sources.clone(),
            };
            let wanted = Wanted {
                name: file.name.clone(),
                sources,
                size: file.size,
                about_bytes: file.bytes(),
                sha256: file.sha256,
                to: to.join("models").join(&file.name),
                chunks: known.chunks.clone(),
                in_lock: true,
                pin: known.pin.clone(),
                mend: false,
            };
            let got = install::fetch_file(&wanted, &network, context)?;
            files.push(DownloadedFile { path: format!("models/{}", file.name), size: got.size, sha256: got.sha256 });
        }
        models.push(DownloadedModel { name: request.model.name.clone(), source: request.source(), files });
    }
    let gpu = parts.iter().find_map(|part| part.component.backend.as_deref().filter(|backend| *backend != "cpu"));
    Ok(DownloadFolder {
        schema: DownloadFolder::SCHEMA.to_owned(),
        version: opened.release.version.clone(),
        os: parts[0].component.os.clone(),
        cpu_arch: parts[0].component.cpu_arch.clone(),
        backend: gpu.map(|backend| strata_install::plan::backend::kind(backend).to_owned()),
        target: args.target.clone(),
        archives: wanted.iter().map(|file| file.name.clone()).collect(),
        models,
    })
}

/// Index, signatures and key list lie in the folder as they were checked.
fn bring_index(opened: &Opened, to: &Path) -> Outcome<()> {
    if opened.folder.path() == to {
        return Ok(());
    }
    let names = [RELEASE_FILE, KEYS_FILE, SUMS_FILE];
    let all =
        names.iter().flat_map(|name| [(*name).to_owned(), format!("{name}.minisig")]).chain(["root.pub".to_owned()]);
    for name in all {
        let from = opened.folder.path().join(&name);
        if let Ok(bytes) = fs_err::read(&from) {
            write(&to.join(&name), &bytes)?;
        } else if name != RELEASE_FILE {
            // A signature of an earlier download would contradict the new index.
            let _ = fs_err::remove_file(to.join(&name));
        }
    }
    let copied = fs_err::read(to.join(RELEASE_FILE)).ok();
    if copied != fs_err::read(opened.folder.path().join(RELEASE_FILE)).ok() {
        return Err(Diagnostic::new(RELEASE_UNTRUSTED, "the index changed while it was copied").into());
    }
    if opened.base.is_some() {
        let _ = fs_err::remove_dir_all(opened.folder.path());
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let failed = |error: std::io::Error| {
        Diagnostic::new(FILE_UNWRITABLE, format!("cannot write `{}`", path.display())).fact("because", error)
    };
    if let Some(parent) = path.parent() {
        fs_err::create_dir_all(parent).map_err(failed)?;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.new-{}", std::process::id()));
    fs_err::write(&beside, bytes).and_then(|()| fs_err::rename(&beside, path)).map_err(failed)?;
    Ok(())
}

fn report(context: &Context, to: &Path, opened: &Opened, done: &DownloadFolder, backend: &str) -> Outcome {
    let folder = interrupt::quoted(&to.display().to_string());
    let mut text = format!("fetched Strata {} into {folder} ({})\n", done.version, trust_words(&opened.trust));
    for name in &done.archives {
        let _ = writeln!(text, "  {name}");
    }
    for model in &done.models {
        let size = model.files.iter().map(|file| file.size).sum();
        let _ = writeln!(text, "  model {}: {} files, {}", model.name, model.files.len(), bytes(size));
    }
    let launcher = interrupt::quoted(&to.join(byhand::LAUNCHER).display().to_string());
    let _ = writeln!(text, "install it on any machine, without network: `sh {launcher} --backend {backend}`");
    let _ =
        writeln!(text, "  where strata-setup is at hand: `strata-setup --offline --from {folder} --backend {backend}`");
    text += "by hand: HOW-TO.txt in that folder\n";
    context.answer(&text, done)?;
    Ok(ExitStatus::Done)
}
