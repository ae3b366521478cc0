//! `--run`: programs of a package that is sound so far are run with `--version`, and what they say is
//! compared. The one place where anything of a package is executed.

use super::finding::{Finding, Report};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use strata_diag::catalogue::packages::RUN_DIFFERS;
use strata_manifest::{Component, Role};

/// Longest that a program may take to say its version.
const RUN_LIMIT: Duration = Duration::from_secs(10);
/// Longest that is waited for the rest of its output when it has ended.
const OUTPUT_LIMIT: Duration = Duration::from_secs(1);
/// Most bytes of it that are read.
const MAX_OUTPUT_BYTES: u64 = 4096;

/// Why nothing of what was looked at is run, told where somebody asked for it.
pub(super) fn withheld(report: &mut Report, why: &str) {
    report.note(format!("`--run`: nothing was run, since {why}"));
}

/// Runs each program of the components that lie in `root`, and compares what they say. Not where anything is
/// wrong: what would run is not what was packed, or not what somebody should run.
pub(super) fn programs<'a>(root: &Path, components: impl Iterator<Item = &'a Component>, report: &mut Report) {
    if !report.is_clean() {
        return withheld(report, "something is wrong with it");
    }
    for component in components {
        let expected = component.version.to_string();
        for file in component.files.iter().filter(|file| file.role == Role::Binary) {
            let at = Some(file.path.as_str().as_bytes());
            match said_version(&file.path.below(root)) {
                Ok(said) if said.split_whitespace().any(|word| word == expected) => {}
                Ok(said) => {
                    let finding = Finding::new(RUN_DIFFERS, at, "it says another version than the manifest");
                    report.add(finding.fact("--version", said.trim()).fact("component.json", &expected));
                }
                Err(why) => {
                    report.add(Finding::new(RUN_DIFFERS, at, "it does not say its version").fact("because", why));
                }
            }
        }
    }
}

/// In a process group of its own, without this process's environment; what it started ends with it.
fn said_version(program: &Path) -> Result<String, String> {
    let mut command = Command::new(std::path::absolute(program).map_err(|error| error.to_string())?);
    command.arg("--version").env_clear().current_dir("/").process_group(0);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(|error| error.to_string())?;
    let said = Arc::new(Mutex::new(Vec::new()));
    let reading = child.stdout.take().map(|out| {
        let said = Arc::clone(&said);
        // Never joined: something that left the group may hold the other end for ever.
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            let mut out = out.take(MAX_OUTPUT_BYTES);
            while let Ok(count @ 1..) = out.read(&mut buffer) {
                said.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..count]);
            }
        })
    });
    let ended = wait(&mut child);
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        // There is none when all of it has ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let status = ended?;
    let started = Instant::now();
    while reading.as_ref().is_some_and(|reading| !reading.is_finished()) && started.elapsed() < OUTPUT_LIMIT {
        std::thread::sleep(Duration::from_millis(2));
    }
    if !status.success() {
        return Err(status.to_string());
    }
    let said = said.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(String::from_utf8_lossy(&said).into_owned())
}

fn wait(child: &mut Child) -> Result<ExitStatus, String> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status);
        }
        if started.elapsed() > RUN_LIMIT {
            // It may have ended since; then there is nothing to stop.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("it did not end within {} s", RUN_LIMIT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
