//! A vendor's program in a child process with a time limit and bounded output.

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use strata_child::Limits;

const MAX_OUTPUT: usize = 256 << 10;

/// What it said and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// `None`: it was ended by a signal.
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs it; the error is a sentence's end.
pub(crate) fn ask(program: &Path, args: &[&str], time: Duration) -> Result<Answer, String> {
    let mut command = Command::new(program);
    command.args(args).env("LC_ALL", "C");
    let ended = strata_child::run(&mut command, Limits { time, output: MAX_OUTPUT })
        .map_err(|error| format!("it cannot be started: {error}"))?;
    let Some(status) = ended.status else { return Err(format!("it did not answer within {} s", time.as_secs())) };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Answer { status: status.code(), out: text(&ended.out), err: text(&ended.err) })
}
