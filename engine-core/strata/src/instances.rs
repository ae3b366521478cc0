//! Servers that run on this machine: `serve` leaves a note of itself in the state folder, `ps` and
//! `stop` read the notes. A note is believed only while the process that it names is the one that
//! wrote it; others are swept away.
//!
//! It asks no server anything: a note says who, where and since when.

use crate::env;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use strata_diag::Diagnostic;
use strata_diag::catalogue::general::FILE_UNWRITABLE;

const FOLDER: &str = "servers";
const SCHEMA: &str = "strata-instance/1.0";
/// A note is a few hundred bytes.
const MOST_BYTES: u64 = 64 << 10;

/// A server that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) pid: u32,
    /// When the process began, in the kernel's ticks: with the pid it names one process.
    started_ticks: u64,
    /// The boot that the ticks count from.
    boot: String,
    /// As it was named or as its file is.
    pub(crate) model: String,
    /// `127.0.0.1:8080`.
    pub(crate) address: String,
    /// What computes, in a word: `cpu`, `cuda`, `hip`.
    pub(crate) backend: String,
    pub(crate) version: String,
    /// Seconds since 1970.
    pub(crate) since: u64,
}

/// The note of this process, taken away on drop.
#[derive(Debug)]
pub(crate) struct Registration(PathBuf);

impl Drop for Registration {
    fn drop(&mut self) {
        // One that stays is swept away by the next reader.
        let _ = fs_err::remove_file(&self.0);
    }
}

/// Notes that this process serves. Fails when the state folder cannot be written, which is no reason
/// not to serve; then `ps` and `stop` do not know of it. `None`: the environment gives no folder.
pub(crate) fn register(model: &str, address: &str, backend: &str) -> Result<Option<Registration>, Diagnostic> {
    let Some(folder) = folder() else { return Ok(None) };
    let pid = std::process::id();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let note = json!({
        "schema": SCHEMA,
        "pid": pid,
        "started_ticks": started_ticks(pid).unwrap_or(0),
        "boot": boot(),
        "model": model,
        "address": address,
        "backend": backend,
        "version": strata_manifest::Version::current().to_string(),
        "since": now,
    });
    let path = folder.join(format!("{pid}.json"));
    let write = || -> std::io::Result<()> {
        fs_err::create_dir_all(&folder)?;
        // Whole or not at all: a reader may come at any time.
        let unfinished = folder.join(format!("{pid}.json.new"));
        fs_err::write(&unfinished, note.to_string())?;
        fs_err::rename(&unfinished, &path)
    };
    match write() {
        Ok(()) => Ok(Some(Registration(path))),
        Err(error) => {
            Err(Diagnostic::new(FILE_UNWRITABLE, format!("`{}` cannot be written", path.display()))
                .fact("because", error))
        }
    }
}

/// Servers that run now, oldest first.
pub(crate) fn running() -> Vec<Instance> {
    let Some(entries) = folder().and_then(|folder| fs_err::read_dir(folder).ok()) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        match read(&path) {
            Some(instance) if instance.is_running() => found.push(instance),
            _ => {
                let _ = fs_err::remove_file(&path);
            }
        }
    }
    found.sort_by_key(|instance| (instance.since, instance.pid));
    found
}

impl Instance {
    /// Whether the process that wrote the note is still there.
    pub(crate) fn is_running(&self) -> bool {
        self.boot == boot() && started_ticks(self.pid) == Some(self.started_ticks)
    }

    pub(crate) fn port(&self) -> Option<&str> {
        self.address.rsplit_once(':').map(|(_, port)| port)
    }
}

fn folder() -> Option<PathBuf> {
    Some(env::state_dir()?.join(FOLDER))
}

fn read(path: &Path) -> Option<Instance> {
    if fs_err::metadata(path).ok()?.len() > MOST_BYTES {
        return None;
    }
    let note: Value = serde_json::from_slice(&fs_err::read(path).ok()?).ok()?;
    let text = |name: &str| note.get(name).and_then(Value::as_str).map(clean);
    let number = |name: &str| note.get(name).and_then(Value::as_u64);
    if !text("schema")?.starts_with("strata-instance/1.") {
        return None;
    }
    Some(Instance {
        // 0 and what a kernel's number cannot be would mean a group of processes to `kill`.
        pid: number("pid").and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 1 && *pid < 1 << 30)?,
        started_ticks: number("started_ticks")?,
        boot: text("boot")?,
        model: text("model")?,
        address: text("address")?,
        backend: text("backend")?,
        version: text("version")?,
        since: number("since")?,
    })
}

/// What may be shown in a terminal.
fn clean(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(300).collect()
}

/// Which boot this is; the kernel counts a process's beginning from it.
fn boot() -> String {
    fs_err::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// `None`: no such process, or one that has ended and is only remembered by its parent.
fn started_ticks(pid: u32) -> Option<u64> {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold anything, brackets and blanks too.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // State is the third field of the line, the start the twenty-second.
    (state != "Z" && state != "X").then(|| fields.nth(18)?.parse().ok()).flatten()
}
