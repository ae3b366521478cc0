//! Text that comes in: standard input and files, bounded, so that a wrong file cannot take all memory.

use std::io::{self, Read};
use std::path::Path;
use strata_diag::Diagnostic;
use strata_diag::catalogue::general::{BAD_INPUT, FILE_UNREADABLE};

/// Far more than any context holds; tokenizing takes some fifteen times as much memory.
const MOST_BYTES: u64 = 64 << 20;

/// All of standard input.
pub(crate) fn stdin() -> Result<String, Diagnostic> {
    text(io::stdin().lock(), "standard input")
}

/// All of a file.
pub(crate) fn file(path: &Path) -> Result<String, Diagnostic> {
    let name = format!("`{}`", path.display());
    let unreadable =
        |error: io::Error| Diagnostic::new(FILE_UNREADABLE, format!("cannot read {name}")).fact("because", error);
    // Asked before opening: a pipe that nobody writes to would never open.
    if !fs_err::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Diagnostic::new(FILE_UNREADABLE, format!("{name} is no ordinary file")));
    }
    text(fs_err::File::open(path).map_err(unreadable)?, &name)
}

fn text(from: impl Read, name: &str) -> Result<String, Diagnostic> {
    let mut bytes = Vec::new();
    from.take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Diagnostic::new(FILE_UNREADABLE, format!("cannot read {name}")).fact("because", error))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Diagnostic::new(BAD_INPUT, format!("{name} has more than the {MOST_BYTES} bytes that are read")));
    }
    String::from_utf8(bytes).map_err(|error| {
        Diagnostic::new(BAD_INPUT, format!("{name} is not UTF-8 text")).fact("because", error.utf8_error())
    })
}
