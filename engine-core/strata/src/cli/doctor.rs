//! Flags of `strata doctor`.

use clap::Args;
use std::path::PathBuf;

/// Exit status: 0 all is well, 1 something is wrong; what and what to do about it is printed.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object: the checks, the host facts, the choice of backend.
    #[arg(long)]
    pub(crate) json: bool,
    /// Run a model's operations on every device and compare with the CPU's plain kernels.
    #[arg(long, conflicts_with = "root")]
    pub(crate) selftest: bool,
    /// Seconds that one operation of the self-test may take before it counts as hanging.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) selftest_limit: u64,
    /// Also hash every installed file and model; without it, their sizes are compared.
    #[arg(long)]
    pub(crate) full: bool,
    /// Also write the text to a new file, without names of people and machines and without serial numbers: to show others.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Look at the copy of another machine's files below this folder; no plugin is opened.
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Use the plugin of this descriptor file instead of the installed ones. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) plugin: Vec<PathBuf>,
    /// Try a plugin again that crashed or hung before.
    #[arg(long)]
    pub(crate) retry_plugin: bool,
    /// Also look at this model file: whether it is whole and this build can run it. May be given several times.
    #[arg(long, value_name = "FILE", conflicts_with = "root")]
    pub(crate) model: Vec<PathBuf>,
    /// The port that a server is to have.
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub(crate) port: u16,
    /// Installation to look at; default: the one this program lies in.
    #[arg(long, value_name = "DIR")]
    pub(crate) prefix: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct InternalSelftestArgs {
    /// The plugin's name.
    pub(crate) name: String,
    /// Its device.
    pub(crate) index: u32,
    /// Operations to leave out.
    #[arg(long, default_value_t = 0)]
    pub(crate) from: usize,
    #[arg(long)]
    pub(crate) plugin: Vec<PathBuf>,
    #[arg(long)]
    pub(crate) prefix: Option<PathBuf>,
}
