//! The verifier: whether a package is exactly what its manifest says, file by file and in both
//! directions. `strata verify-package` and the installer call it.
//!
//! It executes nothing of what it looks at (unless [`VerifyOptions::run`] says so), writes nothing
//! but anonymous temporary files, and goes on after the first fault, so that a report names all.
//! Memory does not grow with a package's bytes: contents are hashed as they pass. What is kept is bounded
//! whatever a package holds: its manifest (64 MiB of text), names (48 MiB), facts and texts of files
//! (64 MiB), 5000 findings; and for each thread its buffers, at most `elf::MAX_READ_BYTES` of one ELF
//! file's tables, and a decompressor's window.

mod content;
mod finding;
mod foreign;
mod inventory;
mod law;
mod names;
mod prefix;
mod release;
mod rules;
mod run;

pub use finding::{Bits, Finding, Report};

use crate::PackageError;
use crate::archive_read::Container;
use crate::archive_write::Format;
use inventory::Inventory;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use strata_diag::catalogue::packages::{ARCHIVE_DAMAGED, MANIFEST_MISSING, PACKAGE_TOO_LARGE};
use strata_manifest::{COMPONENT_FILE, PublicKey, RELEASE_FILE, TrustRoot, UtcTime};

/// How to verify.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// Whose signature counts; `None`: a signature cannot be checked.
    pub trust: Option<TrustAnchor>,
    /// A release folder needs no signature.
    pub unsigned: bool,
    /// Paths of the build machine in programs are noted and no fault: for builds that are not for others.
    pub build_paths: bool,
    /// Run programs of the package with `--version` and compare what they say.
    pub run: bool,
    /// Threads that hash; 0: as many as there are processors.
    pub threads: usize,
    /// The time at which signatures and indexes must not have expired.
    pub now: UtcTime,
    /// The lowest serial number of a release that is believed.
    pub lowest_serial: Option<u64>,
    /// Re-encode an archive and compare every byte up to this many unpacked bytes; above it, headers
    /// and order only.
    pub reencode_bytes: u64,
}

impl VerifyOptions {
    /// What the command does without flags, at this time.
    pub fn at(now: UtcTime) -> Self {
        VerifyOptions {
            trust: None,
            unsigned: false,
            build_paths: false,
            run: false,
            threads: 0,
            now,
            lowest_serial: None,
            reencode_bytes: 256 << 20,
        }
    }
}

/// Who may sign.
#[derive(Debug, Clone)]
pub enum TrustAnchor {
    /// The root keys, which sign the list of keys, which sign the release.
    Root(TrustRoot),
    /// One key of minisign: a root key where it signed the folder's list of keys, else a release key.
    Key(PublicKey),
}

/// Who is told how far the work is.
pub trait Progress: Sync {
    /// Bytes done of all that are to be read, as far as that is known.
    fn bytes(&self, done: u64, total: u64);
}

/// Tells nobody.
#[derive(Debug)]
pub struct Silent;

impl Progress for Silent {
    fn bytes(&self, _done: u64, _total: u64) {}
}

/// Verifies an archive, an unpacked package, an installed prefix or generation, or a release folder.
/// What is wrong with it is in the report; an error is what kept it from being looked at.
pub fn verify(target: &Path, options: &VerifyOptions, progress: &dyn Progress) -> Result<Report, PackageError> {
    let metadata = fs_err::metadata(target).map_err(PackageError::unreadable(target))?;
    if metadata.is_dir() {
        return folder(target, options, progress);
    }
    if !metadata.is_file() {
        let source = io::Error::other("it is neither a file nor a folder");
        return Err(PackageError::Unreadable { path: target.to_owned(), source });
    }
    let (file, _) = fs_err::File::open(target).map_err(PackageError::unreadable(target))?.into_parts();
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned());
    archive(&file, target, name.as_deref(), options, progress)
}

/// Verifies an archive that comes through a pipe: it is kept in an anonymous temporary file. What does not
/// begin like an archive, or does not end before the disk is nearly full, is told without being kept.
pub fn verify_stream(
    mut stream: impl Read,
    options: &VerifyOptions,
    progress: &dyn Progress,
) -> Result<Report, PackageError> {
    let here = PathBuf::from("-");
    let folder = std::env::temp_dir();
    let mut file = temporary()?;
    let mut head = Vec::new();
    (&mut stream).take(512).read_to_end(&mut head).map_err(PackageError::unreadable(&here))?;
    file.write_all(&head).map_err(PackageError::unwritable(&folder))?;
    if Container::of_bytes(&head).is_some() {
        let disk = rustix::fs::fstatvfs(&file).map_err(|error| PackageError::unwritable(&folder)(error.into()))?;
        let room = disk.f_bavail.saturating_mul(disk.f_frsize).saturating_sub(DISK_LEFT);
        let mut buffer = vec![0; 256 << 10];
        let mut kept = 0_u64;
        loop {
            let count = match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(PackageError::unreadable(&here)(error)),
            };
            kept += count as u64;
            if kept > room {
                let mut report = Report::new(&here, "archive");
                let message = format!("more than {room} bytes came, for which `{}` has no room", folder.display());
                report.add(Finding::new(PACKAGE_TOO_LARGE, None, message));
                return Ok(report);
            }
            file.write_all(&buffer[..count]).map_err(PackageError::unwritable(&folder))?;
        }
    }
    archive(&file, &here, None, options, progress)
}

/// Bytes of a disk that stay free when a pipe is kept on it.
const DISK_LEFT: u64 = 256 << 20;

fn temporary() -> Result<File, PackageError> {
    tempfile::tempfile().map_err(PackageError::unwritable(std::env::temp_dir()))
}

fn folder(target: &Path, options: &VerifyOptions, progress: &dyn Progress) -> Result<Report, PackageError> {
    if target.join(RELEASE_FILE).is_file() {
        return release::verify(target, options, progress);
    }
    if let Some(generation) = prefix::generation(target) {
        return prefix::verify(&generation, options, progress);
    }
    let mut report = Report::new(target, "package folder");
    let inventory = Inventory::of_folder(target, None, options, progress, &mut report)?;
    if inventory.manifest.is_some() {
        rules::check(&inventory, options, &mut report);
        law::check(&inventory, options, &mut report);
        if options.run {
            let components = report.components.clone();
            run::programs(target, components.iter(), &mut report);
        }
    } else {
        if !foreign::check(&inventory, &mut report) {
            nothing_to_check(&mut report);
            if inventory
                .items
                .keys()
                .any(|path| Format::of_name(path).is_some_and(|(stem, _)| stem.starts_with("strata-")))
            {
                report.note(format!(
                    "archives lie in it: name them, or list them with `strata package index {}`",
                    target.display()
                ));
            }
        }
        if options.run {
            run::withheld(&mut report, "no manifest says what its programs are");
        }
    }
    Ok(report)
}

fn archive(
    file: &File,
    target: &Path,
    name: Option<&str>,
    options: &VerifyOptions,
    progress: &dyn Progress,
) -> Result<Report, PackageError> {
    let mut report = Report::new(target, "archive");
    let inventory = archive_inventory(file, target, options, progress, &mut report)?;
    let Some(inventory) = inventory else { return Ok(report) };
    archive_rules(&inventory, name, options, &mut report);
    if options.run {
        run::withheld(&mut report, "programs inside an archive are not run: unpack it, and name the folder");
    }
    Ok(report)
}

/// Reads an archive; `None`, with the reason in the report, when it is none.
fn archive_inventory(
    file: &File,
    target: &Path,
    options: &VerifyOptions,
    progress: &dyn Progress,
    report: &mut Report,
) -> Result<Option<Inventory>, PackageError> {
    // Contents go to the temporary folder, whose disk can be full; the archive's own cannot, for a reader.
    let unreadable = |source: io::Error| match source.kind() {
        io::ErrorKind::StorageFull => PackageError::Unwritable { path: std::env::temp_dir(), source },
        _ => PackageError::Unreadable { path: target.to_owned(), source },
    };
    let mut head = [0_u8; 512];
    let mut start = file;
    start.rewind().map_err(unreadable)?;
    let count = (&mut start).take(512).read(&mut head).map_err(unreadable)?;
    let Some(container) = Container::of_bytes(&head[..count]) else {
        report.add(
            Finding::new(ARCHIVE_DAMAGED, None, "it is neither tar.gz nor tar.zst nor zip")
                .fact("begins with", format!("`{}`", head[..count.min(16)].escape_ascii())),
        );
        return Ok(None);
    };
    Inventory::of_archive(file, temporary()?, container, options, progress, report).map(Some).map_err(unreadable)
}

fn archive_rules(inventory: &Inventory, name: Option<&str>, options: &VerifyOptions, report: &mut Report) {
    if inventory.manifest.is_some() {
        if let Some(name) = name {
            rules::archive_name(inventory, name, report);
        }
        rules::check(inventory, options, report);
        law::check(inventory, options, report);
    } else if !foreign::check(inventory, report) && !report.has(ARCHIVE_DAMAGED) {
        nothing_to_check(report);
    }
}

fn nothing_to_check(report: &mut Report) {
    let message = format!("there is no `{COMPONENT_FILE}` and no list of sums in it");
    report.add(Finding::new(MANIFEST_MISSING, None, message));
}
