//! The one door to standard output and standard error. Data goes out, talk goes to stderr, past the
//! progress bars when there are any.

use indicatif::MultiProgress;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

static BARS: OnceLock<MultiProgress> = OnceLock::new();

/// Bars that talk has to be printed above of.
pub(crate) fn set_bars(bars: MultiProgress) {
    // The first ones stay: a program has one set of bars.
    let _ = BARS.set(bars);
}

/// Writes data to standard output and flushes.
pub(crate) fn data(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has gone (`| head`) wants no more.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// One or more lines of talk. Nobody may be reading them, which is no reason to fail.
pub(crate) fn talk(text: &str) {
    let write = || {
        let mut err = io::stderr().lock();
        let _ = err.write_all(text.as_bytes());
        if !text.ends_with('\n') {
            let _ = err.write_all(b"\n");
        }
    };
    match BARS.get() {
        Some(bars) => bars.suspend(write),
        None => write(),
    }
}

/// Whether a person sees what is said.
pub(crate) fn is_terminal() -> bool {
    io::stderr().is_terminal()
}
