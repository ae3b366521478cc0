//! `strata internal-probe`: the child process in which a plugin is opened for the first time.

use crate::cli::InternalProbeArgs;
use crate::outcome::Outcome;

pub(crate) fn run(args: &InternalProbeArgs) -> Outcome {
    Ok(strata_plugin_host::probe_child(&args.descriptor))
}
