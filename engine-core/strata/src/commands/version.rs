//! `strata version`: what this program is, as its build record says.

use crate::outcome::Outcome;
use crate::printer;
use strata_diag::ExitStatus;

pub(crate) fn run(json: bool) -> Outcome {
    let record: serde_json::Value =
        serde_json::from_str(crate::BUILD_RECORD).expect("a test reads the record of this build");
    if json {
        printer::json(&record)?;
    } else {
        let text = |key: &str| record[key].as_str().unwrap_or_default();
        printer::data(&format!("strata {} (build {}, {})\n", text("version"), text("build_id"), text("target")))?;
    }
    Ok(ExitStatus::Done)
}
