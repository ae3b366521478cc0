//! What is remembered about tried plugins: one small file a key in the state folder. The key is
//! the library's digest, the driver's version and the host's version; whatever of them changes,
//! the plugin is tried anew. A file that is damaged or unreadable counts as absent.

use super::ProbeOutcome;
use crate::verify::{Machine, read_line};
use crate::{PluginEntry, PluginError};
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};
use strata_manifest::{BackendKind, Sha256Digest, Version};

const SCHEMA: &str = "strata-probe-result/1.0";
const MAX_BYTES: u64 = 64 << 10;

/// What a file says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It went well, with these devices.
    Fine(Vec<String>),
    Quarantined {
        reason: String,
        path: PathBuf,
    },
}

pub(super) struct Cache {
    /// `None`: nothing is remembered.
    path: Option<PathBuf>,
    plugin: String,
    sha256: String,
    driver: String,
    host: String,
}

impl Cache {
    pub(super) fn new(entry: &PluginEntry, state_dir: Option<&Path>, machine: &Machine) -> Cache {
        let sha256 = entry.descriptor().sha256.to_string();
        let driver = driver_key(entry.kind(), machine);
        let host = Version::current().to_string();
        // The name tells the key apart; the contents repeat it in full and are what counts.
        let key = Sha256Digest::of_bytes(format!("{sha256}\n{driver}\n{host}").as_bytes()).to_string();
        let plain: String = entry.name().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect();
        let path = state_dir.map(|folder| folder.join("probe").join(format!("{plain}-{}.json", &key[..16])));
        Cache { path, plugin: entry.name().to_owned(), sha256, driver, host }
    }

    pub(super) fn known(&self) -> Option<Known> {
        let path = self.path.as_ref()?;
        let mut text = String::new();
        fs_err::File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        let is_key = [("schema", SCHEMA), ("sha256", &self.sha256), ("driver", &self.driver), ("host", &self.host)]
            .into_iter()
            .all(|(name, wanted)| value[name].as_str() == Some(wanted));
        if !is_key {
            return None;
        }
        match value["verdict"].as_str()? {
            "fine" => {
                let devices = value["devices"].as_array()?.iter().map(|uid| uid.as_str().map(str::to_owned));
                Some(Known::Fine(devices.collect::<Option<_>>()?))
            }
            "crashed" | "hung" => {
                Some(Known::Quarantined { reason: value["reason"].as_str()?.to_owned(), path: path.clone() })
            }
            _ => None,
        }
    }

    /// Remembers success of every device, a crash or a hang. Anything else is tried again next
    /// time, and so is everything when the folder cannot be written.
    pub(super) fn remember(&self, result: &Result<ProbeOutcome, PluginError>) {
        let Some(path) = &self.path else { return };
        let verdict = match result {
            Ok(outcome) if outcome.devices.iter().all(|device| device.failure.is_none()) => {
                let devices: Vec<&str> = outcome.devices.iter().map(|device| device.uid.as_str()).collect();
                json!({ "verdict": "fine", "devices": devices })
            }
            Err(error @ (PluginError::Crashed { stage, .. } | PluginError::Hung { stage, .. })) => {
                let verdict = if matches!(error, PluginError::Hung { .. }) { "hung" } else { "crashed" };
                let reason = match error {
                    PluginError::Crashed { how, .. } => format!("it crashed before, {stage}: {how}"),
                    _ => format!("it hung before, {stage}"),
                };
                json!({ "verdict": verdict, "reason": reason })
            }
            _ => {
                // What is there speaks of an earlier try.
                let _ = fs_err::remove_file(path);
                return;
            }
        };
        let mut value = json!({
            "schema": SCHEMA,
            "plugin": self.plugin,
            "sha256": self.sha256,
            "driver": self.driver,
            "host": self.host,
        });
        if let (Value::Object(all), Value::Object(verdict)) = (&mut value, verdict) {
            all.extend(verdict);
        }
        let _ = write_whole(path, &format!("{value:#}\n"));
    }
}

/// By a file beside and a rename, so that two programs at once leave one of two whole files.
fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let Some(folder) = path.parent() else { return Ok(()) };
    fs_err::create_dir_all(folder)?;
    let beside = path.with_extension(format!("{}.tmp", std::process::id()));
    fs_err::write(&beside, text)?;
    fs_err::rename(&beside, path).inspect_err(|_| {
        let _ = fs_err::remove_file(&beside);
    })
}

/// What a plugin of this kind stands on, beside its own bytes: the vendor's driver, or the CPU.
fn driver_key(kind: BackendKind, machine: &Machine) -> String {
    if kind.is_gpu() {
        let kernel = read_line(&machine.root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
        return match machine.driver(kind) {
            Some(driver) => format!("{} {driver}", kind.word()),
            // A driver inside the kernel has no version of its own.
            None => format!("{} kernel {kernel}", kind.word()),
        };
    }
    // A virtual machine may wake up on another CPU, with fewer instructions.
    let mut text = String::new();
    let _ = fs_err::File::open(machine.root.join("proc/cpuinfo"))
        .map(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    let cpu = format!("{}\n{}\n{}", line("model name"), line("flags"), line("Features"));
    format!("{} cpu {}", kind.word(), &Sha256Digest::of_bytes(cpu.as_bytes()).to_string()[..16])
}
