//! What can go wrong between the host and a plugin. Variants carry the facts; each misbehaviour
//! of a plugin has a variant and a code of its own, so that a report names the fault and not
//! merely "failed to load". Made by every module of this crate.

use std::path::PathBuf;
use strata_backend_abi::{StrataStatus, abi_version};
use strata_diag::catalogue::plugin as codes;
use strata_diag::{Code, Diagnose, Diagnostic};

/// Range of ABI versions as they cross the boundary, lowest and highest.
pub type AbiRange = (u32, u32);

/// A failure of a plugin, of a device, or of a call that the host refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    #[error("cannot use the plugin descriptor `{}`: {reason}", path.display())]
    Descriptor { path: PathBuf, reason: String },
    #[error("plugin library `{}` has {got} bytes, its descriptor says {expected}", path.display())]
    Size { path: PathBuf, expected: u64, got: u64 },
    #[error("plugin library `{}` is not the file that its descriptor names", path.display())]
    Digest { path: PathBuf, expected: String, got: String },
    #[error("`{}` is no complete library: {reason}", path.display())]
    NotALibrary { path: PathBuf, reason: String },
    #[error("plugin `{}` is for {what} {got}, this machine is {expected}", path.display())]
    OtherMachine { path: PathBuf, what: &'static str, expected: String, got: String },
    #[error("plugin `{}` needs glibc {needs}, this machine has {has}", path.display())]
    LibcTooOld { path: PathBuf, needs: String, has: String },
    #[error("plugin `{plugin}` needs driver {needs}, this machine has {has}")]
    DriverTooOld { plugin: String, needs: String, has: String },
    #[error("the system's loader refuses `{}`: {message}", path.display())]
    Load { path: PathBuf, message: String },
    #[error("library `{}` has no plugin entry point `{symbol}`", path.display())]
    EntryMissing { path: PathBuf, symbol: &'static str, message: String },
    #[error("plugin `{plugin}` speaks ABI {}, this program speaks {}", range_text(*theirs), range_text(*ours))]
    Abi { plugin: String, ours: AbiRange, theirs: AbiRange },
    #[error("plugin `{plugin}` was built with another layout of the ABI: {got}, this program has {expected}")]
    Layout { plugin: String, expected: String, got: String },
    #[error("plugin `{plugin}` said that it is ready and returned no table")]
    NullTable { plugin: String },
    #[error("plugin `{plugin}` returned a table of {got} bytes, at least {needs} are needed")]
    ShortTable { plugin: String, got: u32, needs: u32 },
    #[error("plugin `{plugin}` returned a table without `{entry}`, which is not optional")]
    NullEntry { plugin: String, entry: &'static str },
    #[error("library and descriptor of plugin `{plugin}` disagree on its {what}: {library} and {descriptor}")]
    Identity { plugin: String, what: &'static str, library: String, descriptor: String },
    #[error("plugin `{plugin}` cannot work here: {}", reason_text(*status, reason))]
    Refused { plugin: String, status: i32, reason: String },
    #[error("plugin `{plugin}` ended its probe process: {how}")]
    Crashed { plugin: String, how: String, stage: String, last_words: String },
    #[error("plugin `{plugin}` did not answer within {milliseconds} ms")]
    Hung { plugin: String, milliseconds: u64, stage: String },
    #[error("plugin `{plugin}` was not opened: {reason}")]
    Quarantined { plugin: String, reason: String, entry: PathBuf },
    #[error("the process that tries plugin `{plugin}` could not be run: {reason}")]
    Probe { plugin: String, program: PathBuf, reason: String },
    #[error("plugin `{plugin}` computes wrong numbers on device {device}: {check}: {detail}")]
    WrongNumbers { plugin: String, device: u32, check: String, detail: String },
    #[error("plugin `{plugin}` broke a rule of the ABI in `{call}`: {what}")]
    Misbehaved { plugin: String, call: &'static str, what: String },
    #[error("plugin `{plugin}`, `{call}`: {}", reason_text(*status as i32, text))]
    Call { plugin: String, call: &'static str, status: StrataStatus, text: String },
    #[error("program `{program}`, {place}: {rule}")]
    Program { program: String, place: String, rule: String },
    #[error("wrong call of `{call}`: {reason}")]
    InvalidCall { call: &'static str, reason: String },
    #[error("{asked} was asked for and cannot be used")]
    GpuUnavailable { asked: String, reasons: Vec<String>, arch_missing: bool },
    #[error("no backend can be used on this machine")]
    NoBackend { reasons: Vec<String> },
    /// What the probe process said about the plugin or one of its devices.
    #[error("{0}")]
    Reported(Box<Diagnostic>),
}

impl PluginError {
    /// Whether the plugin itself is to blame in a way that another start would repeat.
    pub fn is_crash_or_hang(&self) -> bool {
        matches!(self, PluginError::Crashed { .. } | PluginError::Hung { .. })
    }

    /// The status that the plugin returned, when it returned one that this version knows.
    pub fn status(&self) -> Option<StrataStatus> {
        match self {
            PluginError::Call { status, .. } => Some(*status),
            PluginError::Refused { status, .. } => StrataStatus::from_number(*status).ok(),
            _ => None,
        }
    }
}

/// `1.0`, or `1.0 to 1.3`.
pub(crate) fn range_text(range: AbiRange) -> String {
    let (low, high) = range;
    let one = |version: u32| format!("{}.{}", version >> 16, version & 0xffff);
    if low == high { one(low) } else { format!("{} to {}", one(low), one(high)) }
}

/// Parses `major.minor` into the form in which versions cross the boundary.
pub(crate) fn parse_abi(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once('.')?;
    let number = |digits: &str| {
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse::<u32>().ok()).flatten().filter(|number| *number <= 0xffff)
    };
    Some(abi_version(number(major)?, number(minor)?))
}

/// What a status means, for people.
pub fn status_text(status: StrataStatus) -> &'static str {
    match status {
        StrataStatus::Ok => "no failure",
        StrataStatus::Unsupported => "not supported by this device",
        StrataStatus::OutOfMemory => "memory is used up",
        StrataStatus::DeviceLost => "the device went away or must be reset",
        StrataStatus::InvalidCall => "a call that the host should not have made",
        StrataStatus::Internal => "internal fault of the plugin",
        StrataStatus::NoDevice => "no such device",
        StrataStatus::NoPermission => "this user may not open the device",
        StrataStatus::DriverMissing => "the driver is absent or failed to start",
        StrataStatus::DriverTooOld => "the driver is too old",
        StrataStatus::ArchMissing => "no kernels for this device",
        StrataStatus::CpuUnsupported => "the CPU lacks instructions that are needed",
        StrataStatus::NotReady => "not finished yet",
        StrataStatus::AbiMismatch => "no ABI version in common",
        StrataStatus::KernelsNotBuilt => "built without kernels",
        StrataStatus::DeviceFailed => "a device call failed",
    }
}

fn reason_text(status: i32, text: &str) -> String {
    let known = StrataStatus::from_number(status).map(status_text);
    match (known, text.is_empty()) {
        (Ok(known), true) => known.to_owned(),
        (Ok(known), false) => format!("{known}: {text}"),
        (Err(number), true) => format!("status {number}, which this version does not know"),
        (Err(number), false) => format!("{text} (status {number}, which this version does not know)"),
    }
}

fn status_code(status: StrataStatus, otherwise: &'static Code) -> &'static Code {
    match status {
        StrataStatus::Unsupported => codes::OP_UNSUPPORTED,
        StrataStatus::OutOfMemory => codes::OUT_OF_MEMORY,
        StrataStatus::DeviceLost | StrataStatus::DeviceFailed => codes::DEVICE_FAILED,
        StrataStatus::InvalidCall => codes::INVALID_CALL,
        StrataStatus::Internal => codes::PLUGIN_PANICKED,
        StrataStatus::NoPermission => codes::DEVICE_PERMISSION,
        StrataStatus::DriverMissing | StrataStatus::DriverTooOld => codes::DRIVER_UNUSABLE,
        StrataStatus::ArchMissing => codes::ARCH_MISSING,
        StrataStatus::CpuUnsupported => codes::CPU_UNSUPPORTED,
        StrataStatus::AbiMismatch => codes::PLUGIN_ABI,
        StrataStatus::KernelsNotBuilt => codes::KERNELS_NOT_BUILT,
        StrataStatus::NoDevice => codes::NO_DEVICE,
        StrataStatus::Ok | StrataStatus::NotReady => otherwise,
    }
}

impl Diagnose for PluginError {
    fn code(&self) -> &'static Code {
        match self {
            PluginError::Descriptor { .. } | PluginError::Identity { .. } => codes::PLUGIN_DESCRIPTOR,
            PluginError::Size { .. } | PluginError::Digest { .. } => codes::PLUGIN_DIGEST,
            PluginError::NotALibrary { .. } => codes::PLUGIN_FILE,
            PluginError::OtherMachine { .. } => codes::PLUGIN_ARCH,
            PluginError::LibcTooOld { .. } => codes::PLUGIN_LIBC,
            PluginError::DriverTooOld { .. } => codes::DRIVER_UNUSABLE,
            PluginError::Load { .. } => codes::PLUGIN_LOAD,
            PluginError::EntryMissing { .. } => codes::PLUGIN_ENTRY,
            PluginError::Abi { .. } | PluginError::Layout { .. } => codes::PLUGIN_ABI,
            PluginError::NullTable { .. } => codes::PLUGIN_TABLE,
            PluginError::ShortTable { .. } => codes::PLUGIN_TABLE_SHORT,
            PluginError::NullEntry { .. } => codes::PLUGIN_TABLE_HOLE,
            PluginError::Refused { status, .. } => match StrataStatus::from_number(*status) {
                Ok(StrataStatus::Unsupported | StrataStatus::InvalidCall) | Err(_) => codes::PLUGIN_REFUSED,
                Ok(status) => status_code(status, codes::PLUGIN_REFUSED),
            },
            PluginError::Crashed { .. } => codes::PLUGIN_CRASHED,
            PluginError::Hung { .. } => codes::PLUGIN_HUNG,
            PluginError::Quarantined { .. } => codes::PLUGIN_QUARANTINED,
            PluginError::Probe { .. } => codes::PLUGIN_PROBE,
            PluginError::WrongNumbers { .. } => codes::PLUGIN_WRONG_NUMBERS,
            PluginError::Misbehaved { .. } => codes::PLUGIN_MISBEHAVED,
            PluginError::Call { status, .. } => status_code(*status, codes::DEVICE_FAILED),
            PluginError::Program { .. } | PluginError::InvalidCall { .. } => codes::INVALID_CALL,
            PluginError::GpuUnavailable { arch_missing: true, .. } => codes::ARCH_MISSING,
            PluginError::GpuUnavailable { .. } => codes::GPU_UNAVAILABLE,
            PluginError::NoBackend { .. } => codes::NO_BACKEND,
            PluginError::Reported(diagnostic) => diagnostic.code,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        match self {
            PluginError::Digest { expected, got, .. } => {
                vec![("expected", expected.clone()), ("got", got.clone())]
            }
            PluginError::EntryMissing { message, .. } => vec![("loader", message.clone())],
            PluginError::Crashed { stage, last_words, .. } => {
                let mut facts = vec![("during", stage.clone())];
                if !last_words.is_empty() {
                    facts.push(("its last words", last_words.clone()));
                }
                facts
            }
            PluginError::Hung { stage, .. } => vec![("during", stage.clone())],
            PluginError::Quarantined { entry, .. } => vec![("entry", entry.display().to_string())],
            PluginError::Probe { program, .. } => vec![("program", program.display().to_string())],
            PluginError::GpuUnavailable { reasons, .. } | PluginError::NoBackend { reasons } => {
                reasons.iter().map(|reason| ("candidate", reason.clone())).collect()
            }
            PluginError::Reported(diagnostic) => diagnostic.facts.clone(),
            _ => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        let line = match self {
            PluginError::Descriptor { .. }
            | PluginError::Size { .. }
            | PluginError::Digest { .. }
            | PluginError::NotALibrary { .. }
            | PluginError::Identity { .. } => "the installation is damaged: install this plugin again",
            PluginError::OtherMachine { .. } => "install the package made for this machine",
            PluginError::LibcTooOld { .. } => "use a newer distribution, or a package built for an older glibc",
            PluginError::Abi { .. } | PluginError::Layout { .. } => "install plugin and program of one version",
            PluginError::Quarantined { entry, .. } => {
                return vec![
                    "`--retry-plugin` tries it once more".to_owned(),
                    format!("removing `{}` does the same", entry.display()),
                ];
            }
            PluginError::Crashed { .. } | PluginError::Hung { .. } => {
                "it stays closed until the plugin or the driver changes; `--backend cpu` works without it"
            }
            PluginError::GpuUnavailable { .. } => {
                "`--backend-report` shows the whole reasoning; `--backend auto` falls back to the CPU and says so"
            }
            PluginError::Call { status: StrataStatus::NoPermission, .. } => {
                "add this user to the groups that own the device (`render`, `video`) and log in again"
            }
            PluginError::Call { status: StrataStatus::OutOfMemory, .. } => {
                "use a smaller `--max-context`, a smaller model, or close what else uses the device"
            }
            PluginError::DriverTooOld { .. } => "update the driver",
            PluginError::Reported(diagnostic) => return diagnostic.hints.clone(),
            _ => return Vec::new(),
        };
        vec![line.to_owned()]
    }
}
