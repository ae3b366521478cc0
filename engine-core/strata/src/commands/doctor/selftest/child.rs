//! The self-test of one device in a process of its own: a kernel that crashes or hangs is a row of
//! the table and not the end of `doctor`. The process says what it begins and what came out, a JSON
//! object a line; when it ends in the middle, another one goes on with the operation after.

use super::{Row, cases, compared};
use crate::cli::{DoctorArgs, InternalSelftestArgs};
use crate::device;
use crate::outcome::Outcome;
use crate::prefix::Prefix;
use crate::printer;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use strata_diag::catalogue::plugin::NO_BACKEND;
use strata_diag::{Diagnostic, ExitStatus};
use strata_plugin_host::{Device, DeviceOptions, OpenOptions, Plugin};

/// Processes that may crash or hang before the rest is left untried.
const MOST_FAILURES: usize = 4;

/// What `doctor` starts: every operation from number `--from` on.
pub(crate) fn child(args: &InternalSelftestArgs) -> Outcome {
    let prefix = Prefix::find(args.prefix.as_deref())?;
    let entries = device::entries(&args.plugin, prefix.as_ref())?;
    let options = device::open_options(false)?;
    let plain = DeviceOptions { variant: "scalar".to_owned(), ..DeviceOptions::default() };
    let reference = open(&entries, "cpu", None, &plain, &options)?;
    let device = open(&entries, &args.name, Some(args.index), &DeviceOptions::default(), &options)?;
    for case in cases().into_iter().skip(args.from) {
        printer::compact(&json!({ "begin": case.name() }))?;
        let row = Row { device: String::new(), op: case.name(), result: compared(case, &reference, &device) };
        printer::compact(&row.to_json())?;
    }
    Ok(ExitStatus::Done)
}

/// A device of a plugin; its first one when no number is given.
fn open(
    entries: &device::Entries,
    name: &str,
    index: Option<u32>,
    how: &DeviceOptions,
    options: &OpenOptions,
) -> Outcome<Device> {
    let entry = entries.iter().find(|entry| entry.0 == name);
    let Some((_, entry)) = entry else {
        return Err(Diagnostic::new(NO_BACKEND, format!("there is no plugin `{name}`")).into());
    };
    let plugin = Plugin::open(entry.as_ref().map_err(|error| Diagnostic::of(error))?, options)?;
    let first = || plugin.devices().map(|devices| devices.first().map_or(0, |info| info.index));
    let index = index.map_or_else(first, Ok)?;
    Ok(plugin.open_device(index, how)?)
}

/// All rows of one device, whatever becomes of the processes that make them.
pub(super) fn rows(args: &DoctorArgs, device: &str, plugin: &str, index: u32) -> Result<Vec<Row>, String> {
    let names: Vec<String> = cases().into_iter().map(super::Case::name).collect();
    let mut rows: Vec<Row> = Vec::new();
    let mut failures = 0;
    while rows.len() < names.len() {
        let before = rows.len();
        let ended = attempt(args, device, plugin, index, &mut rows)?;
        let Some(why) = ended else { break };
        let Some(op) = names.get(rows.len()) else { break };
        if rows.len() == before && before == 0 && !why.begun {
            return Err(why.text);
        }
        rows.push(Row::failed(device, op, &why.text));
        failures += 1;
        if failures >= MOST_FAILURES {
            let left = names[rows.len()..].iter();
            let untried: Vec<Row> =
                left.map(|op| Row::failed(device, op, "not tried after the failures before")).collect();
            rows.extend(untried);
        }
    }
    Ok(rows)
}

/// Why a process ended before all was done.
struct Ended {
    text: String,
    /// Whether it had begun with an operation.
    begun: bool,
}

/// One process, from the operation after those that there are. `None`: it came to the end.
fn attempt(
    args: &DoctorArgs,
    device: &str,
    plugin: &str,
    index: u32,
    rows: &mut Vec<Row>,
) -> Result<Option<Ended>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["internal-selftest", plugin, &index.to_string(), "--from", &rows.len().to_string()]);
    for path in &args.plugin {
        command.arg("--plugin").arg(path);
    }
    if let Some(prefix) = &args.prefix {
        command.arg("--prefix").arg(prefix);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let lines = lines(&mut child);
    let limit = Duration::from_secs(args.selftest_limit);
    let mut begun = false;
    loop {
        match lines.recv_timeout(limit) {
            Ok(line) => {
                let said: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
                begun |= said.get("begin").is_some();
                rows.extend(Row::from_json(device, &said));
            }
            Err(RecvTimeoutError::Timeout) => {
                // It may have ended in this very moment; then there is nothing to kill.
                let _ = child.kill();
                let _ = child.wait();
                return Ok(Some(Ended { text: format!("hangs: nothing for {} s", limit.as_secs()), begun }));
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().lines().next().unwrap_or_default().to_owned();
    let text = if output.status.code().is_none() { format!("crashes: {}", output.status) } else { said };
    Ok(Some(Ended { text, begun }))
}

/// What a process prints, line by line, until it ends.
fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}
