//! A program in a child process, with a time limit and bounded output; who ended it; and the lines in
//! which such a child of ours reports. What a broken driver, plugin or tool does to a process, it does to
//! that one.
//!
//! Asked by strata-probe (vendors' tools), strata-install (the proof run) and strata-plugin-host (a
//! plugin's first opening). It knows nothing of any of them: what a verdict means is theirs.

mod report;

pub use report::{NVML_LINE, PROBE_LINE, Report, Verdict};

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a killed child may take to disappear, and a dead child's pipes to close.
const GRACE: Duration = Duration::from_secs(2);

/// What a child may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub time: Duration,
    /// Bytes of each of its two outputs that are kept: the last ones.
    pub output: usize,
}

/// A child that is no more, or was given up on.
#[derive(Debug)]
pub struct Ended {
    /// `None`: it had to be killed at the limit.
    pub status: Option<ExitStatus>,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    pub took: Duration,
}

/// Runs a command to its end or to the limit. An error means that it could not be started or waited for.
pub fn run(command: &mut Command, limits: Limits) -> io::Result<Ended> {
    run_with_notice(command, limits, limits.time, || {})
}

/// As [`run`], and calls `notice` once when the child is still at work after `after`.
pub fn run_with_notice(
    command: &mut Command,
    limits: Limits,
    after: Duration,
    notice: impl FnOnce(),
) -> io::Result<Ended> {
    let started = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let out = child.stdout.take().map(|pipe| collect(pipe, limits.output));
    let err = child.stderr.take().map(|pipe| collect(pipe, limits.output));
    let status = wait(&mut child, limits.time, after, notice)?;
    // A grandchild may hold the pipes open; what has come until then must do.
    let deadline = Instant::now() + GRACE;
    let read = |pipe: Option<mpsc::Receiver<Vec<u8>>>| {
        let left = deadline.saturating_duration_since(Instant::now());
        pipe.and_then(|pipe| pipe.recv_timeout(left).ok()).unwrap_or_default()
    };
    Ok(Ended { status, out: read(out), err: read(err), took: started.elapsed() })
}

/// Waits for the child; `None` when it had to be killed.
fn wait(child: &mut Child, limit: Duration, after: Duration, notice: impl FnOnce()) -> io::Result<Option<ExitStatus>> {
    let started = Instant::now();
    let mut notice = Some(notice);
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let elapsed = started.elapsed();
        if elapsed >= limit {
            break;
        }
        if elapsed >= after
            && let Some(notice) = notice.take()
        {
            notice();
        }
        std::thread::sleep(pause.min(limit.saturating_sub(elapsed)));
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
        kept.drain(..kept.len().saturating_sub(limit));
        // Whoever asked may have given up on it.
        let _ = sender.send(kept);
    });
    receiver
}

/// The end of what a child said, for a message: at most `bytes` of it.
pub fn last_words(output: &[u8], bytes: usize) -> String {
    let text = String::from_utf8_lossy(output);
    let text = text.trim();
    let start = (text.len().saturating_sub(bytes)..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[start..].to_owned()
}

/// Who ended a child that gave no result; the text is the end of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Itself, or what it called.
    Own(String),
    /// Somebody else, which says nothing about what it ran.
    Outside(String),
}

impl Ending {
    pub fn of(status: ExitStatus) -> Ending {
        #[cfg(unix)]
        if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
            return Ending::of_signal(signal);
        }
        Ending::Own(format!("it exited with status {} and without a result", status.code().unwrap_or(-1)))
    }

    #[cfg(unix)]
    fn of_signal(signal: i32) -> Ending {
        let own = [
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
        match (name(&outside), name(&own)) {
            (Some(name), _) => Ending::Outside(format!("it was ended from outside by {name}")),
            (None, Some(name)) => Ending::Own(format!("signal {signal} ({name})")),
            (None, None) => Ending::Own(format!("signal {signal}")),
        }
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, milliseconds: u64, output: usize) -> Ended {
        let limits = Limits { time: Duration::from_millis(milliseconds), output };
        run(Command::new("sh").args(["-c", script]), limits).unwrap()
    }

    #[test]
    fn output_is_bounded_and_its_end_is_kept() {
        let ended = shell("i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; echo oops >&2", 60_000, 100);
        let text = String::from_utf8(ended.out).unwrap();
        assert!(text.len() <= 100 && text.ends_with("line 2999\n"), "{text}");
        assert_eq!((ended.status.unwrap().code(), last_words(&ended.err, 600).as_str()), (Some(0), "oops"));
    }

    #[test]
    fn a_hang_ends_at_the_limit_although_a_grandchild_holds_the_pipe() {
        let mut told = false;
        let limits = Limits { time: Duration::from_millis(300), output: 100 };
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; sleep 30 & sleep 30"]);
        let ended = run_with_notice(&mut command, limits, Duration::from_millis(50), || told = true).unwrap();
        assert!(ended.status.is_none() && told);
        assert!(ended.took < Duration::from_secs(20), "{:?}", ended.took);
    }

    #[test]
    fn who_ended_it_is_told_apart() {
        let ending = |script: &str| Ending::of(shell(script, 60_000, 10).status.unwrap());
        assert_eq!(ending("exit 3"), Ending::Own("it exited with status 3 and without a result".to_owned()));
        assert_eq!(ending("kill -SEGV $$"), Ending::Own("signal 11 (SIGSEGV)".to_owned()));
        assert_eq!(ending("kill -KILL $$"), Ending::Outside("it was ended from outside by SIGKILL".to_owned()));
        let absent = Limits { time: Duration::from_secs(1), output: 10 };
        assert!(run(&mut Command::new("/nonexistent/program"), absent).is_err());
        assert_eq!(last_words("äöü".as_bytes(), 3), "ü");
    }
}
