//! A vendor's program in a child process with a time limit and bounded output.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const MAX_OUTPUT: u64 = 256 << 10;

/// What it said and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// `None`: it was ended at the limit, or by a signal.
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs it; the error is a sentence's end.
pub(crate) fn ask(program: &Path, args: &[&str], limit: Duration) -> Result<Answer, String> {
    let mut command = Command::new(program);
    command.args(args).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("it cannot be started: {error}"))?;
    let out = child.stdout.take().map(collect);
    let err = child.stderr.take().map(collect);
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.code(),
            Ok(None) if Instant::now() < deadline => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(20));
            }
            Ok(None) => {
                // One that sleeps inside a driver does not die; it is left behind rather than waited for.
                let _ = child.kill();
                return Err(format!("it did not answer within {} s", limit.as_secs()));
            }
            Err(error) => return Err(format!("it cannot be waited for: {error}")),
        }
    };
    let read = |pipe: Option<mpsc::Receiver<String>>| {
        pipe.and_then(|pipe| pipe.recv_timeout(Duration::from_secs(1)).ok()).unwrap_or_default()
    };
    Ok(Answer { status, out: read(out), err: read(err) })
}

fn collect(pipe: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.take(MAX_OUTPUT).read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}
