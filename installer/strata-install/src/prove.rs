//! The proof run: the staged program opens a staged plugin in a child process of its own, computes
//! something known on each device and reports. A crash, a hang or a wrong number ends the child,
//! never this program; the current installation is not touched by it.

use crate::InstallError;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use strata_child::{Ended, Ending, Limits, PROBE_LINE, Report, Verdict};
use strata_diag::catalogue;

/// What is kept of the child's output.
const MAX_OUTPUT: usize = 256 << 10;
/// What is shown of it.
const LAST_WORDS: usize = 600;
const MAX_DEVICES: usize = 4096;

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
            ProofFailure::Ended { how, stage, .. } => format!("its process gave no result while {stage}: {how}"),
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
    let mut command = Command::new(program);
    command.arg("internal-probe").arg(descriptor);
    let ended = strata_child::run(&mut command, Limits { time: limit, output: MAX_OUTPUT })
        .map_err(|why| ProofFailure::NotStarted { program: program.display().to_string(), why: why.to_string() })?;
    judge(&ended, limit)
}

fn judge(ended: &Ended, limit: Duration) -> Result<Vec<Proof>, ProofFailure> {
    let Report { stage, verdict } = Report::read(&ended.out, PROBE_LINE, MAX_DEVICES);
    let Some(status) = ended.status else {
        return Err(ProofFailure::Hung { seconds: limit.as_secs(), stage });
    };
    match (status.success(), verdict) {
        (true, Some(Verdict::Devices(devices))) => Ok(devices.iter().map(proof).collect()),
        (_, Some(Verdict::Failed(failure))) => Err(reported(&failure)),
        _ => {
            let (Ending::Own(how) | Ending::Outside(how)) = Ending::of(status);
            let last_words = strata_child::last_words(&ended.err, LAST_WORDS);
            Err(ProofFailure::Ended { how, stage, last_words })
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

/// A failure of one plugin as an error of the installation.
pub(crate) fn error(plugin: &str, device: Option<String>, failure: ProofFailure) -> InstallError {
    InstallError::Proof { plugin: plugin.to_owned(), device, failure: Box::new(failure) }
}
