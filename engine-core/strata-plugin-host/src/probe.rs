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
use report::{LINE_PREFIX, Line, Verdict};
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use strata_backend_abi::StrataLogLevel;
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
/// How long a killed child may take to disappear, and a dead child's pipes to close.
const GRACE: Duration = Duration::from_secs(2);

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
    let started = Instant::now();
    let limit = options.limit.unwrap_or(if entry.kind().is_gpu() { GPU_LIMIT } else { CPU_LIMIT });
    let not_run = |reason: String| PluginError::Probe {
        plugin: entry.name().to_owned(),
        program: options.command.program.clone(),
        reason,
    };
    let mut child = Command::new(&options.command.program)
        .args(&options.command.args)
        .arg(entry.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| not_run(error.to_string()))?;
    let stdout = child.stdout.take().map(|pipe| collect(pipe, MAX_OUTPUT));
    let stderr = child.stderr.take().map(|pipe| collect(pipe, MAX_OUTPUT));
    let notice = || {
        let text = format!("`{}` is tried for the first time, for at most {} s", entry.name(), limit.as_secs());
        log(StrataLogLevel::Warning, &text);
    };
    let status = wait(&mut child, limit, notice).map_err(|error| not_run(error.to_string()))?;
    let read = |pipe: Option<mpsc::Receiver<Vec<u8>>>| {
        // A grandchild may hold the pipe open; what has come until then must do.
        pipe.and_then(|pipe| pipe.recv_timeout(GRACE).ok()).unwrap_or_default()
    };
    let (output, last_words) = (read(stdout), tail(&read(stderr)));
    let ended = Ended { status, output, last_words, limit };
    judge(entry, &options.command, ended).map(|devices| ProbeOutcome {
        devices,
        remembered: false,
        took: started.elapsed(),
    })
}

/// Waits for the child; `None` when it had to be killed.
fn wait(child: &mut Child, limit: Duration, notice: impl FnOnce()) -> std::io::Result<Option<ExitStatus>> {
    let started = Instant::now();
    let deadline = started + limit;
    let mut notice = Some(notice);
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            break;
        }
        if started.elapsed() >= NOTICE_AFTER
            && let Some(notice) = notice.take()
        {
            notice();
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
    child.kill()?;
    // A process that sleeps inside a driver does not die; it is left behind rather than waited for.
    let deadline = Instant::now() + GRACE;
    while child.try_wait()?.is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(None)
}

/// Reads a pipe to its end on a thread of its own, keeping its last `limit` bytes.
fn collect(mut pipe: impl Read + Send + 'static, limit: usize) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let mut chunk = [0_u8; 16 << 10];
        while let Ok(count @ 1..) = pipe.read(&mut chunk) {
            kept.extend_from_slice(&chunk[..count]);
            if kept.len() > 2 * limit {
                kept.drain(..kept.len() - limit);
            }
        }
        // The parent may have given up on it.
        let _ = sender.send(kept);
    });
    receiver
}

fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    let start = (text.len().saturating_sub(LAST_WORDS)..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[start..].to_owned()
}

/// A child that is no more.
struct Ended {
    /// `None`: it had to be killed.
    status: Option<ExitStatus>,
    output: Vec<u8>,
    last_words: String,
    limit: Duration,
}

fn judge(entry: &PluginEntry, command: &ProbeCommand, ended: Ended) -> Result<Vec<ProbedDevice>, PluginError> {
    let Ended { status, output, last_words, limit } = ended;
    let plugin = entry.name().to_owned();
    let mut stage = "starting".to_owned();
    let mut verdict = None;
    for line in String::from_utf8_lossy(&output).lines() {
        // A plugin's own talk may stand before or behind ours on a line.
        let Some((_, line)) = line.split_once(LINE_PREFIX) else { continue };
        match Line::parse(line) {
            Some(Line::Stage(now)) => stage = now,
            Some(Line::Verdict(found)) => verdict = Some(found),
            None => {}
        }
    }
    let Some(status) = status else {
        let milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        return Err(PluginError::Hung { plugin, milliseconds, stage });
    };
    match (status.success(), verdict) {
        (true, Some(Verdict::Devices(devices))) => Ok(devices),
        (_, Some(Verdict::Failed(diagnostic))) => Err(PluginError::Reported(Box::new(diagnostic))),
        _ => match ending(status) {
            Ending::Plugin(how) => Err(PluginError::Crashed { plugin, how, stage, last_words }),
            Ending::Outside(reason) => {
                let program = command.program.clone();
                Err(PluginError::Probe { plugin, program, reason: format!("{reason} while {stage}") })
            }
        },
    }
}

/// Who ended the child.
enum Ending {
    /// The plugin, or what it called.
    Plugin(String),
    /// Somebody else, which says nothing about the plugin.
    Outside(String),
}

#[cfg(unix)]
fn ending(status: ExitStatus) -> Ending {
    use std::os::unix::process::ExitStatusExt;
    let Some(signal) = status.signal() else {
        return Ending::Plugin(format!("it exited with status {} and without a result", status.code().unwrap_or(-1)));
    };
    let names = [
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGSYS, "SIGSYS"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGXCPU, "SIGXCPU"),
    ];
    let outside = [
        (libc::SIGINT, "SIGINT"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGQUIT, "SIGQUIT"),
        // The kernel's way out of a memory shortage as well.
        (libc::SIGKILL, "SIGKILL"),
    ];
    let name =
        |table: &[(i32, &'static str)]| table.iter().find(|(number, _)| *number == signal).map(|(_, name)| *name);
    match name(&outside) {
        Some(name) => Ending::Outside(format!("it was ended from outside by {name}")),
        None => Ending::Plugin(
            name(&names).map_or_else(|| format!("signal {signal}"), |name| format!("signal {signal} ({name})")),
        ),
    }
}

#[cfg(not(unix))]
fn ending(status: ExitStatus) -> Ending {
    Ending::Plugin(format!("it exited with status {} and without a result", status.code().unwrap_or(-1)))
}
