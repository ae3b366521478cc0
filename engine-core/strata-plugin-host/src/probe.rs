//! The first opening of a plugin, in a child process with a time limit: what a broken driver or
//! plugin does to a process, it does to that one. The child opens the plugin, then each of its
//! devices, computes something known on it, and says so in lines on its stdout. The parent judges:
//! a signal or an exit without a result is a crash, silence past the limit a hang; both are
//! remembered for exactly this file, driver and host version (probe/cache.rs), and so is success,
//! which saves the child next time.
//!
//! The binary that calls [`crate::Plugin::open`] gives a [`ProbeCommand`] that starts it again in
//! a mode that does nothing but call [`probe_child`].

mod cache;
mod child;
mod report;

pub use child::probe_child;

use crate::verify::Machine;
use crate::{LogSink, PluginEntry, PluginError};
use cache::{Cache, Known};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use strata_backend_abi::StrataLogLevel;
use strata_child::{Ended, Ending, Limits, PROBE_LINE, Report, Verdict};
use strata_diag::Diagnostic;

/// A child on a CPU needs milliseconds; this is for a machine that is badly overloaded.
const CPU_LIMIT: Duration = Duration::from_secs(30);
/// A GPU driver may have to wake the card and to compile kernels first.
const GPU_LIMIT: Duration = Duration::from_secs(120);
/// After this long somebody in front of the program should know what it waits for.
const NOTICE_AFTER: Duration = Duration::from_secs(3);
/// What is kept of a child's output; a plugin may talk without end.
const MAX_OUTPUT: usize = 256 << 10;
/// What is shown of a crashed child's stderr.
const LAST_WORDS: usize = 600;
/// More devices than this in a report are not read.
const MAX_DEVICES: usize = 4096;

/// How to start this program as a probe child; the descriptor's path is appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeCommand {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl ProbeCommand {
    /// The running program itself with these arguments.
    pub fn this_program<I: Into<OsString>>(args: impl IntoIterator<Item = I>) -> std::io::Result<ProbeCommand> {
        // This link still leads to the running file when an update has replaced it on disk.
        let running = PathBuf::from("/proc/self/exe");
        let program = if running.exists() { running } else { std::env::current_exe()? };
        Ok(ProbeCommand { program, args: args.into_iter().map(Into::into).collect() })
    }
}

/// How a plugin is tried before it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeOptions {
    pub command: ProbeCommand,
    /// `None`: 30 s for a CPU plugin, 120 s for others.
    pub limit: Option<Duration>,
    /// Where results are remembered; without it, or when it cannot be written, each start tries again.
    pub state_dir: Option<PathBuf>,
    /// Tries again although a result is remembered (`--retry-plugin`).
    pub retry: bool,
}

/// What is known about one device from the probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbedDevice {
    pub uid: String,
    /// Why it is not to be used.
    pub failure: Option<Diagnostic>,
}

/// A probe that went well for the plugin as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeOutcome {
    pub devices: Vec<ProbedDevice>,
    /// Taken from what is remembered, no child was started.
    pub remembered: bool,
    /// How long the child took.
    pub took: Duration,
}

/// Tries a plugin that `verify` passed, or remembers how that went.
pub(crate) fn probe(
    entry: &PluginEntry,
    options: &ProbeOptions,
    machine: &Machine,
    log: &LogSink,
) -> Result<ProbeOutcome, PluginError> {
    let cache = Cache::new(entry, options.state_dir.as_deref(), machine);
    if !options.retry {
        match cache.known() {
            Some(Known::Fine(devices)) => {
                let devices = devices.into_iter().map(|uid| ProbedDevice { uid, failure: None }).collect();
                return Ok(ProbeOutcome { devices, remembered: true, took: Duration::ZERO });
            }
            Some(Known::Quarantined { reason, path }) => {
                return Err(PluginError::Quarantined { plugin: entry.name().to_owned(), reason, entry: path });
            }
            None => {}
        }
    }
    let result = run_child(entry, options, log);
    cache.remember(&result);
    result
}

fn run_child(entry: &PluginEntry, options: &ProbeOptions, log: &LogSink) -> Result<ProbeOutcome, PluginError> {
    let time = options.limit.unwrap_or(if entry.kind().is_gpu() { GPU_LIMIT } else { CPU_LIMIT });
    let notice = || {
        let text = format!("`{}` is tried for the first time, for at most {} s", entry.name(), time.as_secs());
        log(StrataLogLevel::Warning, &text);
    };
    let mut command = Command::new(&options.command.program);
    command.args(&options.command.args).arg(entry.path());
    let limits = Limits { time, output: MAX_OUTPUT };
    let ended = strata_child::run_with_notice(&mut command, limits, NOTICE_AFTER, notice).map_err(|error| {
        PluginError::Probe {
            plugin: entry.name().to_owned(),
            program: options.command.program.clone(),
            reason: error.to_string(),
        }
    })?;
    let devices = judge(entry, &options.command, &ended, time)?;
    Ok(ProbeOutcome { devices, remembered: false, took: ended.took })
}

fn judge(
    entry: &PluginEntry,
    command: &ProbeCommand,
    ended: &Ended,
    limit: Duration,
) -> Result<Vec<ProbedDevice>, PluginError> {
    let plugin = entry.name().to_owned();
    let Report { stage, verdict } = Report::read(&ended.out, PROBE_LINE, MAX_DEVICES);
    let Some(status) = ended.status else {
        let milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        return Err(PluginError::Hung { plugin, milliseconds, stage });
    };
    // A verdict that cannot be read is none.
    let verdict = verdict.and_then(|verdict| match verdict {
        Verdict::Devices(devices) => report::devices(&devices).filter(|_| status.success()).map(Ok),
        Verdict::Failed(failure) => report::diagnostic(&failure).map(Err),
    });
    match verdict {
        Some(Ok(devices)) => Ok(devices),
        Some(Err(diagnostic)) => Err(PluginError::Reported(Box::new(diagnostic))),
        None => match Ending::of(status) {
            Ending::Own(how) => {
                let last_words = strata_child::last_words(&ended.err, LAST_WORDS);
                Err(PluginError::Crashed { plugin, how, stage, last_words })
            }
            Ending::Outside(reason) => {
                let program = command.program.clone();
                Err(PluginError::Probe { plugin, program, reason: format!("{reason} while {stage}") })
            }
        },
    }
}
