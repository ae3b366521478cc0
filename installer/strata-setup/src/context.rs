//! What every command needs: the prefix, who answers questions, how progress is shown.

use crate::ask::Asker;
use crate::cli::CommonArgs;
use crate::outcome::{Outcome, no_output};
use crate::progress::Progress;
use crate::{env, printer};
use std::path::{Path, PathBuf};
use std::time::Duration;
use strata_diag::Diagnostic;
use strata_diag::catalogue::installing::PREFIX_UNUSABLE;
use strata_install::InstallRoot;
use strata_manifest::report::Report;

/// The surroundings of one command.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) common: CommonArgs,
    pub(crate) asker: Asker,
    pub(crate) progress: Progress,
}

impl Context {
    pub(crate) fn new(common: CommonArgs) -> Context {
        let progress = Progress::new(common.progress, common.verbose);
        let asker = Asker::new(common.yes);
        Context { common, asker, progress }
    }

    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.common.wait)
    }

    /// The prefix: named, of the environment, the one that this program lies in, the user's own.
    pub(crate) fn prefix(&self) -> Outcome<PathBuf> {
        self.common.prefix.clone().or_else(env::prefix).or_else(own_prefix).or_else(env::default_prefix).ok_or_else(
            || {
                Diagnostic::new(PREFIX_UNUSABLE, "there is no home folder to install in")
                    .hint("name a folder: `--prefix DIR`")
                    .into()
            },
        )
    }

    pub(crate) fn root(&self) -> Outcome<InstallRoot> {
        Ok(InstallRoot::new(&self.prefix()?)?)
    }

    /// Prints the document when `--json` was given, else the text as data.
    pub(crate) fn answer(&self, text: &str, document: &impl Report) -> Outcome<()> {
        let result = if self.common.json { printer::data(&(document.to_text() + "\n")) } else { printer::data(text) };
        result.map_err(|error| no_output(&error))
    }
}

/// `<prefix>/generations/<n>/bin/strata-setup` lies in a prefix.
pub(crate) fn own_prefix() -> Option<PathBuf> {
    let program = fs_err::canonicalize(std::env::current_exe().ok()?).ok()?;
    let generation = program.parent()?.parent()?;
    let folder = generation.parent()?;
    let is_ours = folder.file_name()? == "generations" && generation.join(strata_install::RECEIPT_FILE).is_file();
    is_ours.then(|| folder.parent().map(Path::to_owned))?
}
