//! The one door to standard output and standard error. Data goes out, talk goes to stderr.
//!
//! A reader that has gone (`| head`) ends the program quietly instead of with a panic: writes
//! report [`Gone`], which `main` turns into a plain exit.

use std::io::{self, Write};

/// Why data could not be printed.
#[derive(Debug)]
pub(crate) enum Gone {
    /// Standard output has no reader any more.
    Closed,
    /// The disk is full, or the like: what was printed is not all.
    Failed(io::Error),
}

/// Writes data to standard output and flushes, so that text streams.
pub(crate) fn data(text: &str) -> Result<(), Gone> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Gone::Closed,
        _ => Gone::Failed(error),
    })
}

/// A JSON document, pretty, on standard output.
pub(crate) fn json(value: &serde_json::Value) -> Result<(), Gone> {
    data(&format!("{value:#}\n"))
}

/// A report type, as pretty JSON.
pub(crate) fn document(report: &impl strata_manifest::report::Report) -> Result<(), Gone> {
    data(&format!("{}\n", report.to_text()))
}

/// A JSON value on one line.
pub(crate) fn compact(value: &serde_json::Value) -> Result<(), Gone> {
    data(&format!("{value}\n"))
}

/// One or more lines of talk. Nobody may be reading them, which is no reason to fail.
pub(crate) fn talk(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes());
    if !text.ends_with('\n') {
        let _ = err.write_all(b"\n");
    }
}

/// Part of a line of talk, as it is: a progress line on a terminal.
pub(crate) fn status(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}
