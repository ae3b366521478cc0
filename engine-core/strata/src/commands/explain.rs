//! `strata explain`: the page of an error code, which the program carries with it.

use crate::outcome::Outcome;
use crate::printer;
use std::fmt::Write;
use strata_diag::catalogue::{self, general::USAGE};
use strata_diag::{Diagnostic, ExitStatus};

include!(concat!(env!("OUT_DIR"), "/pages.rs"));

pub(crate) fn run(code: Option<&str>) -> Outcome {
    let Some(asked) = code else {
        let mut text = String::new();
        for code in catalogue::all() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}  {:<26} {}", code.id, code.name, code.title);
        }
        printer::data(&text)?;
        return Ok(ExitStatus::Done);
    };
    let found =
        catalogue::find(asked).and_then(|code| PAGES.iter().find(|(id, _)| *id == code.id)).ok_or_else(|| {
            Diagnostic::new(USAGE, format!("there is no error code `{asked}`"))
                .hint("`strata explain` lists all of them")
        })?;
    printer::data(found.1)?;
    Ok(ExitStatus::Done)
}
