//! The door to the packages' verifier, the same that `strata verify-package` is: a staged tree has to pass it
//! before anything of it runs.

use crate::{InstallError, Observer, Step};
use std::path::Path;
use strata_manifest::UtcTime;
use strata_package::verify::{Progress, Report, VerifyOptions, verify};

/// Findings that an error shows.
const SHOWN: usize = 8;

/// Verifies a tree that has its receipt: every file read back, lists, versions, libraries, GPU code, plugins.
pub(crate) fn check(tree: &Path, now: u64, observer: &dyn Observer) -> Result<(), InstallError> {
    let options = VerifyOptions {
        // Whoever installs a build of his own machine is not kept from it; a release's maker is told by `verify-package`.
        build_paths: true,
        ..VerifyOptions::at(UtcTime::from_seconds(now))
    };
    let report = verify(tree, &options, &Relay(observer)).map_err(|error| InstallError::package(&error))?;
    if report.is_clean() { Ok(()) } else { Err(unsound(&report)) }
}

struct Relay<'a>(&'a dyn Observer);

impl Progress for Relay<'_> {
    fn bytes(&self, done: u64, total: u64) {
        self.0.bytes(Step::Verify.name(), done, total);
    }
}

fn unsound(report: &Report) -> InstallError {
    let line = |finding: &strata_package::verify::Finding| {
        let path = finding.path.as_ref().map(|path| format!("`{path}`: ")).unwrap_or_default();
        let facts: Vec<String> = finding.facts.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
        format!("{}: {path}{}{facts}", finding.code.id, finding.message)
    };
    InstallError::Unsound {
        count: report.counts.values().map(|count| count.findings).sum(),
        first: report.findings.iter().take(SHOWN).map(line).collect(),
    }
}
