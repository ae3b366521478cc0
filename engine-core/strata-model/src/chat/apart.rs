//! A process apart for rendering: a hostile template may only kill or fill that one.
//!
//! The interpreter's fuel does not cover everything. A namespace can hold itself, so that printing
//! it never ends; lists that double are summed lazily and then copied at once. Neither can be seen
//! from outside the interpreter, so the work is done by a fork of this process, whose stack, memory
//! and time the kernel bounds. Whatever happens there becomes an error here.
//!
//! Covered: overflow of the stack, exhausted memory, endless work, panics. Not covered: systems
//! other than Unix, where the work runs in this process; and memory on Unix systems other than
//! Linux, where only the time is bounded. It is no sandbox against an interpreter that can be made
//! to run foreign code. Only `chat.rs` calls it.

#![expect(unsafe_code, reason = "fork, limits and pipes of the system")]

use crate::TextError;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Held from making a pipe to closing its end for writing, so that no other fork inherits that end
/// and keeps it open.
static FORKING: Mutex<()> = Mutex::new(());

/// What the work may use beside what this process already has.
pub(super) struct Limits {
    /// Stack of its thread and heap together, in bytes.
    pub memory: u64,
    /// Seconds of processor time.
    pub seconds: u64,
}

/// Real time that the work may take for each second of processor time, on a busy machine.
const PATIENCE: u64 = 10;
/// The longest answer that is read. The output's length is paid with fuel, far below this.
const LONGEST: usize = 512 << 20;

/// Does the work in a fork of this process and brings its result back.
pub(super) fn run(limits: &Limits, work: impl FnOnce() -> Result<String, TextError>) -> Result<String, TextError> {
    // Read before the fork: the fork does as little as it can beside the work.
    let data_limit = data_bytes().map(|now| now + limits.memory);
    let (child, pipe) = fork(limits, data_limit, work)?;
    let deadline = Instant::now() + Duration::from_secs(limits.seconds * PATIENCE);
    let answer = read_all(pipe, deadline);
    if answer.is_err() {
        // SAFETY: kill takes numbers only; the child is ours and not yet waited for, so its number
        // belongs to no other process.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    let ending = wait(child);
    let answer = answer.map_err(|error| failed(format!("its process gave no answer: {error}")))?;
    decode(&answer).unwrap_or_else(|| Err(failed(ending)))
}

fn failed(problem: String) -> TextError {
    TextError::BadChatTemplate { line: None, problem }
}

/// Starts the fork. Gives its number and the pipe that its answer comes through.
fn fork(
    limits: &Limits,
    data_limit: Option<u64>,
    work: impl FnOnce() -> Result<String, TextError>,
) -> Result<(libc::pid_t, File), TextError> {
    let system = |what: &str| failed(format!("the system gives no {what}: {}", std::io::Error::last_os_error()));
    let forking = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two numbers that pipe writes.
    if unsafe { libc::pipe(ends.as_mut_ptr()) } != 0 {
        return Err(system("pipe for it"));
    }
    let [reading, writing] = ends.map(|end| {
        // SAFETY: fcntl takes numbers only; programs started meanwhile shall not keep the pipe.
        unsafe { libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC) };
        // SAFETY: pipe has just opened this descriptor, and nobody else owns it.
        File::from(unsafe { OwnedFd::from_raw_fd(end) })
    });
    // SAFETY: the child has this thread only. It allocates and starts one thread, both of which the
    // C libraries that we run on allow after a fork; it takes no lock of ours, touches no device
    // and leaves by _exit, so no destructor or exit handler of the parent runs twice.
    match unsafe { libc::fork() } {
        -1 => Err(system("process for it")),
        0 => {
            // Else a parent that ends early would leave it waiting for a reader, itself.
            drop(reading);
            confine(limits, data_limit);
            let mut writing = writing;
            let sent = writing.write_all(&encode(work()));
            // SAFETY: _exit ends the child here; nothing of it is used afterwards.
            unsafe { libc::_exit(i32::from(sent.is_err())) }
        }
        child => {
            drop(writing);
            drop(forking);
            Ok((child, reading))
        }
    }
}

/// Bounds the child, and takes from it what would reach the parent's user.
fn confine(limits: &Limits, data_limit: Option<u64>) {
    let limit = |resource, most: u64| {
        let most = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: setrlimit reads the struct that it is given. A limit above the parent's own is
        // refused, and then the parent's holds.
        unsafe { libc::setrlimit(resource, &raw const most) };
    };
    limit(libc::RLIMIT_CPU, limits.seconds);
    limit(libc::RLIMIT_CORE, 0);
    if let Some(most) = data_limit {
        limit(libc::RLIMIT_DATA, most);
    }
    for (number, action) in [
        // An interrupt of the terminal goes to the parent, whose handler must not run twice.
        (libc::SIGINT, libc::SIG_IGN),
        // The usual handler would tell of an overflow as if the whole program had died.
        (libc::SIGSEGV, libc::SIG_DFL),
        (libc::SIGBUS, libc::SIG_DFL),
        (libc::SIGABRT, libc::SIG_DFL),
    ] {
        // SAFETY: both actions are the system's own; no handler of ours is set.
        unsafe { libc::signal(number, action) };
    }
    // What is said about a panic or missing memory comes as an error instead.
    if let Ok(nowhere) = fs_err::OpenOptions::new().write(true).open("/dev/null") {
        // SAFETY: dup2 takes numbers only; descriptor 2 of the child is used by nothing else.
        unsafe { libc::dup2(nowhere.as_raw_fd(), libc::STDERR_FILENO) };
    }
}

/// Bytes of private writable memory that this process has now, as `RLIMIT_DATA` counts them.
fn data_bytes() -> Option<u64> {
    let text = fs_err::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(5)?.parse().ok()?;
    // SAFETY: sysconf takes a number only.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page).ok()?)
}

/// All that comes through the pipe before the deadline.
fn read_all(mut pipe: File, deadline: Instant) -> std::io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut part = vec![0; 64 << 10];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || answer.len() > LONGEST {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        let mut asked = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `asked` is the one entry that poll is told of, and the pipe is open.
        let ready = unsafe { libc::poll(&raw mut asked, 1, i32::try_from(left.as_millis()).unwrap_or(i32::MAX)) };
        if ready <= 0 {
            continue;
        }
        match pipe.read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits for the child's end and says how it came to it.
fn wait(child: libc::pid_t) -> String {
    let mut status = 0;
    loop {
        // SAFETY: `status` has room for what waitpid writes; the child is ours.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if ended == child || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            break;
        }
    }
    if !libc::WIFSIGNALED(status) {
        return "its process ended without an answer".to_owned();
    }
    match libc::WTERMSIG(status) {
        libc::SIGXCPU | libc::SIGKILL => "it does not come to an end in the time that a template has".to_owned(),
        libc::SIGSEGV | libc::SIGBUS => "it exhausts the stack, as values that hold themselves do".to_owned(),
        libc::SIGABRT => "it wants more memory than a template may have".to_owned(),
        other => format!("signal {other} ended its process"),
    }
}

/// A letter for the kind, then the text. The last byte tells that nothing is missing.
fn encode(result: Result<String, TextError>) -> Vec<u8> {
    let mut bytes = match result {
        Ok(text) => format!("T{text}"),
        Err(TextError::TemplateRefused { text }) => format!("R{text}"),
        Err(TextError::BadChatTemplate { line, problem }) => {
            format!("B{}:{problem}", line.map(|line| line.to_string()).unwrap_or_default())
        }
        Err(other) => format!("B:{other}"),
    }
    .into_bytes();
    bytes.push(b'.');
    bytes
}

/// The result, unless the answer is not whole.
fn decode(answer: &[u8]) -> Option<Result<String, TextError>> {
    let text = std::str::from_utf8(answer).ok()?.strip_suffix('.')?;
    let rest = text.get(1..)?;
    Some(match text.as_bytes().first()? {
        b'T' => Ok(rest.to_owned()),
        b'R' => Err(TextError::TemplateRefused { text: rest.to_owned() }),
        _ => {
            let (line, problem) = rest.split_once(':')?;
            Err(TextError::BadChatTemplate { line: line.parse().ok(), problem: problem.to_owned() })
        }
    })
}
