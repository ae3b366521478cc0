//! The proof run: the staged program opens a staged plugin in a child process of its own, computes
//! something known on each device and reports. A crash, a hang or a wrong number ends the child,
//! never this program; the current installation is not touched by it.

use crate::InstallError;
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use strata_diag::catalogue;

/// Marks the child's lines among whatever a plugin prints; `strata internal-probe` writes it.
const LINE_PREFIX: &str = "strata-probe-line ";
/// What is kept of the child's output.
const MAX_OUTPUT: usize = 256 << 10;
const MAX_DEVICES: usize = 4096;
const GRACE: Duration = Duration::from_secs(2);

/// One device of a proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    pub uid: String,
    /// Why it did not pass.
    pub failure: Option<String>,
}

/// Why a plugin as a whole, or a device of it, did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProofFailure {
    /// The child reported a failure with a code of its own.
    Reported { code: Option<&'static strata_diag::Code>, message: String },
    /// The child ended without a result.
    Ended { how: String, stage: String, last_words: String },
    /// The child was still silent at the limit.
    Hung { seconds: u64, stage: String },
    /// The child could not be started.
    NotStarted { program: String, why: String },
}

impl ProofFailure {
    pub fn text(&self) -> String {
        match self {
            ProofFailure::Reported { message, .. } => message.clone(),
            ProofFailure::Ended { how, stage, .. } => format!("its process {how} while {stage}"),
            ProofFailure::Hung { seconds, stage } => format!("no answer within {seconds} s while {stage}"),
            ProofFailure::NotStarted { program, why } => format!("`{program}` could not be started: {why}"),
        }
    }

    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        match self {
            ProofFailure::Reported { code: Some(code), .. } => vec![("its code", code.id.to_owned())],
            ProofFailure::Ended { last_words, .. } if !last_words.is_empty() => {
                vec![("its last words", last_words.clone())]
            }
            _ => Vec::new(),
        }
    }

    /// Whether it says no more than that no device is here: what a plugin for another machine's card says.
    pub(crate) fn is_absent_device(&self) -> bool {
        use catalogue::plugin::{DRIVER_UNUSABLE, GPU_UNAVAILABLE, KERNELS_NOT_BUILT, NO_DEVICE, PLUGIN_REFUSED};
        let absent = [NO_DEVICE, DRIVER_UNUSABLE, GPU_UNAVAILABLE, PLUGIN_REFUSED, KERNELS_NOT_BUILT];
        matches!(self, ProofFailure::Reported { code: Some(code), .. } if absent.contains(code))
    }
}

/// Runs the proof of one plugin: `program internal-probe descriptor`, for at most `limit`.
pub(crate) fn prove(program: &Path, descriptor: &Path, limit: Duration) -> Result<Vec<Proof>, ProofFailure> {
    let not_started =
        |why: std::io::Error| ProofFailure::NotStarted { program: program.display().to_string(), why: why.to_string() };
    let mut command = Command::new(program);
    command.arg("internal-probe").arg(descriptor);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(not_started)?;
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    let status = wait(&mut child, limit).map_err(not_started)?;
    let read = |pipe: Option<mpsc::Receiver<Vec<u8>>>| {
        // A grandchild may hold the pipe open; what has come until then must do.
        pipe.and_then(|pipe| pipe.recv_timeout(GRACE).ok()).unwrap_or_default()
    };
    let (output, errors) = (read(stdout), read(stderr));
    judge(status, &String::from_utf8_lossy(&output), &tail(&errors), limit)
}

fn judge(
    status: Option<ExitStatus>,
    output: &str,
    last_words: &str,
    limit: Duration,
) -> Result<Vec<Proof>, ProofFailure> {
    let mut stage = "starting".to_owned();
    let mut verdict = None;
    for line in output.lines() {
        let Some((_, line)) = line.split_once(LINE_PREFIX) else { continue };
        let Ok(value) = serde_json::from_str::<Value>(line) else { continue };
        if let Some(now) = value["stage"].as_str() {
            now.clone_into(&mut stage);
        } else if let Some(failure) = value.get("failed") {
            verdict = Some(Err(reported(failure)));
        } else if let Some(devices) = value["devices"].as_array() {
            verdict = Some(Ok(devices.iter().take(MAX_DEVICES).map(proof).collect::<Vec<_>>()));
        }
    }
    let Some(status) = status else {
        return Err(ProofFailure::Hung { seconds: limit.as_secs(), stage });
    };
    match (status.success(), verdict) {
        (true, Some(Ok(devices))) => Ok(devices),
        (_, Some(Err(failure))) => Err(failure),
        _ => {
            use std::os::unix::process::ExitStatusExt;
            let how = match (status.signal(), status.code()) {
                (Some(signal), _) => format!("was ended by signal {signal}"),
                (None, Some(code)) => format!("ended with status {code} and without a result"),
                (None, None) => "ended without a result".to_owned(),
            };
            Err(ProofFailure::Ended { how, stage, last_words: last_words.to_owned() })
        }
    }
}

fn reported(failure: &Value) -> ProofFailure {
    let message = failure["message"].as_str().unwrap_or("it gave no reason").to_owned();
    ProofFailure::Reported { code: failure["code"].as_str().and_then(catalogue::find), message }
}

fn proof(device: &Value) -> Proof {
    let failure = match device.get("failure") {
        None | Some(Value::Null) => None,
        Some(failure) => Some(failure["message"].as_str().unwrap_or("it gave no reason").to_owned()),
    };
    Proof { uid: device["uid"].as_str().unwrap_or("a device without a name").to_owned(), failure }
}

/// Waits for the child; `None` when it had to be killed.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    child.kill()?;
    // A process that sleeps inside a driver does not die; it is left behind rather than waited for.
    let deadline = Instant::now() + GRACE;
    while child.try_wait()?.is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(None)
}

/// Reads a pipe to its end on a thread of its own, keeping its last bytes.
fn collect(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let mut chunk = [0_u8; 16 << 10];
        while let Ok(count @ 1..) = pipe.read(&mut chunk) {
            kept.extend_from_slice(&chunk[..count]);
            if kept.len() > 2 * MAX_OUTPUT {
                kept.drain(..kept.len() - MAX_OUTPUT);
            }
        }
        // The reader may have given up on it.
        let _ = sender.send(kept);
    });
    receiver
}

fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    let from = text.char_indices().rev().nth(599).map_or(0, |(at, _)| at);
    text[from..].to_owned()
}

/// A failure of one plugin as an error of the installation.
pub(crate) fn error(plugin: &str, device: Option<String>, failure: ProofFailure) -> InstallError {
    InstallError::Proof { plugin: plugin.to_owned(), device, failure: Box::new(failure) }
}
