//! What can go wrong while planning, installing and managing what is installed.

use crate::prove::ProofFailure;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use strata_diag::catalogue::general::INTERRUPTED;
use strata_diag::catalogue::installing::{
    ARCHIVE_ABSENT, BACKEND_DEVICE_UNUSABLE, BACKEND_NO_DEVICE, COMPONENT_MISSING, DISK_SHORT, GENERATION_ABSENT,
    GENERATION_DAMAGED, GPU_CHOICE, INSTALL_BUSY, INSTALL_WRITE, LIBC_TOO_OLD, MODEL_FILE, NOTHING_INSTALLED,
    PREFIX_READ_ONLY, PREFIX_UNUSABLE, PROOF_FAILED, RELEASE_ABSENT, RELEASE_DOWNGRADE, RELEASE_EXPIRED,
    RELEASE_UNTRUSTED, REPAIR_NO_SOURCE, STAGE_DAMAGED, STAGE_UNSOUND, TARGET_UNKNOWN, UNINSTALL_LEFT,
};
use strata_diag::{Code, Diagnose, Diagnostic};
use strata_manifest::{ManifestError, Sha256Digest};

/// A failure of planning, installing or managing.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("{why}")]
    ReleaseAbsent { place: String, why: String },
    #[error("{why}")]
    Untrusted {
        place: String,
        why: String,
        trusted: Vec<String>,
        /// It carries a signature, which no flag overrules.
        signed: bool,
    },
    #[error("the release has counter {got}, and {seen} was installed here before")]
    Downgrade { got: u64, seen: u64, version: String },
    #[error("the release's index expired at {expired}")]
    Expired { expired: String, now: String },
    #[error("the release holds no {what}")]
    ComponentMissing { what: String, holds: Vec<String> },
    #[error("`--backend {backend}` was asked for and this machine has no {vendor} GPU")]
    NoDevice { backend: &'static str, vendor: &'static str, looked_at: Vec<String>, others: Vec<String> },
    #[error("{} is here and cannot be used: {}", devices.first().map_or("a GPU", |device| device.name.as_str()),
        devices.first().map_or("", |device| device.why.as_str()))]
    DeviceUnusable { devices: Vec<UnusableDevice>, backend: &'static str },
    #[error("`{text}` is no GPU target")]
    BadTarget { text: String },
    #[error("{} more are needed on the volume of `{}`", bytes(*short), path.display())]
    DiskShort { path: PathBuf, needed: u64, free: u64, short: u64, parts: Vec<(String, u64)> },
    #[error("`{}` cannot be an installation: {why}", path.display())]
    Prefix { path: PathBuf, why: String },
    #[error("`{}` cannot be written", path.display())]
    ReadOnly { path: PathBuf, source: std::io::Error },
    #[error("another setup is changing `{}`{}", prefix.display(), pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    Busy { prefix: PathBuf, pid: Option<u32> },
    #[error("{}", match cut {
        Some((has, listed)) => format!("`{name}` in the folder of the release has {has} bytes, and {listed} are listed: it was not copied whole"),
        None => format!("`{name}` is not in the folder of the release"),
    })]
    ArchiveAbsent { name: String, folder: PathBuf, cut: Option<(u64, u64)> },
    #[error("`{}` is not the file that its component lists", path.display())]
    StageDamaged { path: PathBuf, expected: String, got: String },
    #[error("what was unpacked does not pass the verifier: {}", first.first().map_or("it is not sound", String::as_str))]
    Unsound { count: u64, first: Vec<String> },
    #[error("plugin `{plugin}` did not pass its check: {}", failure.text())]
    Proof { plugin: String, device: Option<String>, failure: Box<ProofFailure> },
    #[error("nothing is installed in `{}`", prefix.display())]
    NothingInstalled { prefix: PathBuf },
    #[error("{}", match asked {
        Some(number) => format!("there is no generation {number} in `{}`", prefix.display()),
        None => format!("there is no earlier generation in `{}`", prefix.display()),
    })]
    NoGeneration { prefix: PathBuf, asked: Option<u64>, known: Vec<u64> },
    #[error("{count} files of generation {generation} are not what its receipt lists")]
    Damaged { generation: u64, count: usize, first: Vec<String>, current: bool },
    #[error("the receipt of generation {generation} cannot be read: {source}")]
    ReceiptDamaged { generation: u64, source: ManifestError },
    /// A document of `state` or `models`, and what can be done without it.
    #[error("{source}")]
    State { source: ManifestError, hint: String },
    #[error("no archive of {component} with the right digest is at hand")]
    NoRepairSource { component: String, archive: String, looked_at: Vec<String> },
    #[error("writing `{}` failed in step `{step}`", path.display())]
    Write { path: PathBuf, step: String, source: std::io::Error },
    #[error("`--gpus {asked}` names no device of this machine")]
    GpuChoice { asked: String, known: Vec<String> },
    #[error("{component} needs glibc {needs} and this machine has {has}")]
    LibcTooOld { component: String, needs: String, has: String },
    #[error("`{}` is not the file that {what} names", path.display())]
    ModelFile { path: PathBuf, what: String, expected: String, got: String },
    #[error("{} of the listed files could not be removed", left.len())]
    Left { left: Vec<(PathBuf, String)> },
    #[error("stopped by the user before the switch; what is installed was not changed")]
    Cancelled,
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A failure of the package reader, with its own code.
    #[error("{0}")]
    Package(Box<Diagnostic>),
}

/// A device that stands in the way of what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableDevice {
    pub name: String,
    pub uid: String,
    pub target: Option<String>,
    /// State in its word, and the evidence.
    pub why: String,
    pub advice: Option<String>,
}

impl InstallError {
    /// A failed change of the disk, told apart from a prefix that cannot be written at all.
    pub(crate) fn write(path: &Path, step: &str, source: std::io::Error) -> InstallError {
        match source.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                InstallError::ReadOnly { path: path.to_owned(), source }
            }
            _ => InstallError::Write { path: path.to_owned(), step: step.to_owned(), source },
        }
    }

    /// A failure of the package reader; one of the disk is told like our own.
    pub(crate) fn package(error: &dyn Diagnose) -> InstallError {
        InstallError::Package(Box::new(Diagnostic::of(error)))
    }
}

impl Diagnose for InstallError {
    fn code(&self) -> &'static Code {
        match self {
            InstallError::ReleaseAbsent { .. } => RELEASE_ABSENT,
            InstallError::Untrusted { .. } => RELEASE_UNTRUSTED,
            InstallError::Downgrade { .. } => RELEASE_DOWNGRADE,
            InstallError::Expired { .. } => RELEASE_EXPIRED,
            InstallError::ComponentMissing { .. } => COMPONENT_MISSING,
            InstallError::NoDevice { .. } => BACKEND_NO_DEVICE,
            InstallError::DeviceUnusable { .. } => BACKEND_DEVICE_UNUSABLE,
            InstallError::BadTarget { .. } => TARGET_UNKNOWN,
            InstallError::DiskShort { .. } => DISK_SHORT,
            InstallError::Prefix { .. } => PREFIX_UNUSABLE,
            InstallError::ReadOnly { .. } => PREFIX_READ_ONLY,
            InstallError::Busy { .. } => INSTALL_BUSY,
            InstallError::ArchiveAbsent { .. } => ARCHIVE_ABSENT,
            InstallError::StageDamaged { .. } => STAGE_DAMAGED,
            InstallError::Unsound { .. } => STAGE_UNSOUND,
            InstallError::State { source, .. } => source.code(),
            InstallError::Proof { .. } => PROOF_FAILED,
            InstallError::NothingInstalled { .. } => NOTHING_INSTALLED,
            InstallError::NoGeneration { .. } => GENERATION_ABSENT,
            InstallError::Damaged { .. } | InstallError::ReceiptDamaged { .. } => GENERATION_DAMAGED,
            InstallError::NoRepairSource { .. } => REPAIR_NO_SOURCE,
            InstallError::Write { .. } => INSTALL_WRITE,
            InstallError::GpuChoice { .. } => GPU_CHOICE,
            InstallError::LibcTooOld { .. } => LIBC_TOO_OLD,
            InstallError::ModelFile { .. } => MODEL_FILE,
            InstallError::Left { .. } => UNINSTALL_LEFT,
            InstallError::Cancelled => INTERRUPTED,
            InstallError::Manifest(error) => error.code(),
            InstallError::Package(diagnostic) => diagnostic.code,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let list = |items: &[String]| if items.is_empty() { "nothing".to_owned() } else { items.join(", ") };
        match self {
            InstallError::ReleaseAbsent { place, .. } => vec![("release", place.clone())],
            InstallError::Untrusted { place, trusted, .. } => {
                vec![("release", place.clone()), ("trusted keys", list(trusted))]
            }
            InstallError::Downgrade { version, .. } => vec![("release", version.clone())],
            InstallError::Expired { now, .. } => vec![("this machine's clock", now.clone())],
            InstallError::ComponentMissing { holds, .. } => vec![("it holds", list(holds))],
            InstallError::NoDevice { looked_at, others, .. } => {
                vec![("looked at", list(looked_at)), ("found", list(others))]
            }
            InstallError::DeviceUnusable { devices, .. } => devices
                .iter()
                .map(|device| ("device", format!("{} at {}: {}", device.name, device.uid, device.why)))
                .collect(),
            InstallError::DiskShort { needed, free, parts, .. } => {
                let parts = parts.iter().map(|(what, size)| format!("{what} {}", bytes(*size))).collect::<Vec<_>>();
                vec![("needed", format!("{} ({})", bytes(*needed), parts.join(", "))), ("free", bytes(*free))]
            }
            InstallError::ArchiveAbsent { folder, .. } => vec![("folder", folder.display().to_string())],
            InstallError::StageDamaged { expected, got, .. } | InstallError::ModelFile { expected, got, .. } => {
                vec![("expected", expected.clone()), ("got", got.clone())]
            }
            InstallError::Unsound { count, first } => {
                let mut facts = vec![("findings", count.to_string())];
                facts.extend(first.iter().skip(1).map(|line| ("and", line.clone())));
                facts
            }
            InstallError::Proof { device, failure, .. } => {
                let mut facts: Vec<(&'static str, String)> =
                    device.iter().map(|device| ("device", device.clone())).collect();
                facts.extend(failure.facts());
                facts
            }
            InstallError::NoGeneration { known, .. } => {
                let known: Vec<String> = known.iter().map(u64::to_string).collect();
                vec![("there are", list(&known))]
            }
            InstallError::Damaged { first, .. } => first.iter().map(|path| ("file", path.clone())).collect(),
            InstallError::NoRepairSource { archive, looked_at, .. } => {
                vec![("archive", archive.clone()), ("looked at", list(looked_at))]
            }
            InstallError::GpuChoice { known, .. } => vec![("there are", list(known))],
            InstallError::Left { left } => {
                left.iter().take(8).map(|(path, why)| ("file", format!("{}: {why}", path.display()))).collect()
            }
            InstallError::Manifest(error)
            | InstallError::ReceiptDamaged { source: error, .. }
            | InstallError::State { source: error, .. } => error.facts(),
            InstallError::Package(diagnostic) => diagnostic.facts.clone(),
            _ => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        let one = |text: &str| vec![text.to_owned()];
        match self {
            InstallError::ReleaseAbsent { .. } => one("name a folder or address: `--release DIR|URL`"),
            InstallError::Untrusted { signed, .. } => ways_to_trust(*signed),
            InstallError::Downgrade { .. } => one("if that is what you want: `--allow-downgrade`"),
            InstallError::Expired { .. } => {
                one("fetch the newest release; to use this one all the same: `--allow-expired`")
            }
            InstallError::ComponentMissing { .. } => one("`--backend cpu` works with every release"),
            InstallError::NoDevice { backend, .. } => ways_without_device(backend),
            InstallError::DeviceUnusable { devices, backend } => ways_around(devices, backend),
            InstallError::BadTarget { .. } => one("write `gfx906`, `gfx1100`, `sm_90`, `8.9`"),
            InstallError::DiskShort { parts, .. } => ways_to_room(parts),
            InstallError::Prefix { .. } => one("name another folder: `--prefix DIR`"),
            InstallError::ReadOnly { .. } => {
                one("name a folder that you may write: `--prefix DIR`; root is not needed")
            }
            InstallError::Busy { .. } => one("wait for it, or let this run wait: `--wait 600`"),
            InstallError::ArchiveAbsent { cut: Some(_), .. } => {
                one("copy the folder again; where there is network, `strata-setup --download-only --to DIR` mends it")
            }
            InstallError::ArchiveAbsent { .. } => {
                one("with network: `strata-setup --download-only --to DIR` fetches what is missing")
            }
            InstallError::StageDamaged { .. } => one("run it again; when it happens again, look at disk and memory"),
            InstallError::Unsound { .. } => vec![
                "what is installed was not changed; the release itself is wrong: take another one, and tell its makers"
                    .to_owned(),
                "all that is wrong with an archive: `strata verify-package ARCHIVE`".to_owned(),
            ],
            InstallError::Proof { plugin, .. } if plugin == "cpu" => vec![
                "what is installed was not changed".to_owned(),
                "nothing runs without this plugin: look at this machine's memory, or take another release: `--release DIR|URL`"
                    .to_owned(),
            ],
            InstallError::Proof { .. } => vec![
                "what is installed was not changed".to_owned(),
                "without the GPU: `--backend cpu`; to install it all the same: `--allow-unproven`".to_owned(),
            ],
            InstallError::NothingInstalled { .. } => one("name the prefix: `--prefix DIR`, or install first"),
            InstallError::NoGeneration { .. } => one("what there is: `strata-setup list`"),
            InstallError::Damaged { current: true, .. } => one("make it whole: `strata-setup repair`"),
            InstallError::Damaged { .. } => vec![
                "what is current was not changed".to_owned(),
                "remove the damaged one: `strata-setup gc --keep 0`; its release can be installed again: `--release DIR|URL`"
                    .to_owned(),
            ],
            InstallError::ReceiptDamaged { .. } => vec![
                "go to another generation: `strata-setup rollback`".to_owned(),
                "or install once more: `strata-setup --release DIR|URL`".to_owned(),
            ],
            InstallError::State { hint, .. } => vec![hint.clone()],
            InstallError::NoRepairSource { .. } => {
                one("name the release that it came from: `strata-setup repair --release DIR|URL`")
            }
            InstallError::Write { source, .. } => match source.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                    one("free space, then run the same command again: it goes on")
                }
                _ => one("look at the disk (`dmesg`), then run the same command again"),
            },
            InstallError::GpuChoice { .. } => one("what is seen here: `strata-setup detect`"),
            InstallError::LibcTooOld { .. } => {
                one("take a release that was built for older systems, or update this one")
            }
            InstallError::ModelFile { .. } => one("remove that file and fetch it again"),
            InstallError::Left { .. } => one("make it removable and run `strata-setup uninstall` again"),
            InstallError::Cancelled => one("run the same command again: what was fetched is kept"),
            InstallError::Manifest(error) => error.hints(),
            InstallError::Package(diagnostic) => diagnostic.hints.clone(),
        }
    }

    fn causes(&self) -> Vec<String> {
        match self {
            InstallError::Package(diagnostic) => diagnostic.causes.clone(),
            InstallError::Write { source, .. } | InstallError::ReadOnly { source, .. } => vec![source.to_string()],
            InstallError::Manifest(error) => error.causes(),
            _ => Vec::new(),
        }
    }
}

/// `1.46 GiB`, `93.8 MiB`, `512 bytes`.
pub fn bytes(count: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| count >> shift > 0) {
        Some((unit, shift)) => {
            let value = count as f64 / (1_u64 << shift) as f64;
            let digits = if value < 10.0 { 2 } else { 1 };
            format!("{value:.digits$} {unit}")
        }
        None => format!("{count} bytes"),
    }
}

/// Facts of two files that should be one.
pub(crate) fn size_and_digest(size: u64, sha256: &Sha256Digest) -> String {
    format!("{size} bytes, SHA-256 {sha256}")
}

fn ways_around(devices: &[UnusableDevice], backend: &str) -> Vec<String> {
    let mut hints: Vec<String> = devices.iter().filter_map(|device| device.advice.clone()).collect();
    hints.dedup();
    if let Some(target) = devices.iter().find_map(|device| device.target.as_ref()) {
        hints.push(format!("to install for it all the same, unproven: `--backend {backend} --target {target}`"));
    }
    hints.push("without the GPU: `--backend cpu`; only fetching: `--download-only`".to_owned());
    hints
}

fn ways_without_device(backend: &str) -> Vec<String> {
    let target = if backend == "cuda" { "sm_90" } else { "gfx906" };
    vec![
        "what is seen here: `strata-setup detect`".to_owned(),
        format!("for a card that is not here: `--backend {backend} --target {target}` (installed unproven)"),
        "without a GPU: `--backend cpu`".to_owned(),
    ]
}

fn ways_to_room(parts: &[(String, u64)]) -> Vec<String> {
    let mut hints = vec!["all of it on another volume: `--prefix DIR`".to_owned()];
    if parts.iter().any(|(what, _)| what.starts_with("model")) {
        hints.push("models on another volume: `--models-dir DIR`".to_owned());
    }
    hints.push("old generations and kept archives go with: `strata-setup gc`".to_owned());
    hints
}

fn ways_to_trust(signed: bool) -> Vec<String> {
    let key = "name the key that its makers publish: `--key FILE`".to_owned();
    if signed {
        let again = "fetch the release again; when it stays so, it was changed, or its makers have another key";
        vec![again.to_owned(), key]
    } else {
        vec![key, "an unsigned folder of your own: `--allow-unsigned`".to_owned()]
    }
}
