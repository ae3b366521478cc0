//! Flags of `strata serve`.

use super::{EngineArgs, SamplingArgs};
use clap::Args;
use std::path::PathBuf;

/// Answers OpenAI's interface (/v1/chat/completions, /v1/completions, /v1/responses), Anthropic's
/// (/v1/messages) and a web page (/). Only this machine reaches it unless `--host` says otherwise.
/// docs/SERVE.md tells everything.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Path of a GGUF file, or the name of an installed model. Without it: the only installed one.
    pub(crate) model: Option<String>,
    /// Address or name to listen at. One that other machines reach needs a key.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", help_heading = "Server")]
    pub(crate) host: String,
    /// Port to listen at; 0: any free one.
    #[arg(long, value_name = "PORT", default_value_t = 8080, help_heading = "Server")]
    pub(crate) port: u16,
    /// Key that requests must carry. Other users see it in the list of processes: better in a file, or
    /// in the environment variable STRATA_API_KEY.
    #[arg(long, value_name = "KEY", help_heading = "Server")]
    pub(crate) api_key: Option<String>,
    /// File of keys, one a line; each of them will do.
    #[arg(long, value_name = "FILE", help_heading = "Server")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Let everybody who reaches the address use it.
    #[arg(long, conflicts_with_all = ["api_key", "api_key_file"], help_heading = "Server")]
    pub(crate) no_api_key: bool,
    /// Name that requests may be for, beside `localhost` and IP addresses, when there is no key; `*`: any.
    /// May be given several times.
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    pub(crate) allow_host: Vec<String>,
    /// Origin of web pages that may use the server from browsers, such as `https://page.example`; `*`: any.
    /// May be given several times.
    #[arg(long, value_name = "ORIGIN", help_heading = "Server")]
    pub(crate) cors_origin: Vec<String>,
    /// Name of the model that clients see; default: the name given, or that of the file.
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    pub(crate) name: Option<String>,
    /// Answers that are made at one time. Each has a context of `--max-context` tokens.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256), help_heading = "Server")]
    pub(crate) slots: u32,
    /// Requests that may wait for a slot; one more gets status 429.
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Server")]
    pub(crate) max_queue: usize,
    /// Host memory for earlier conversations, so that they need not be read again, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512, help_heading = "Server")]
    pub(crate) conversation_cache_mib: u64,
    /// Longest body of a request, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=4096), help_heading = "Server")]
    pub(crate) max_body_mib: u64,
    /// Seconds that answers may go on after the server was told to stop.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, help_heading = "Server")]
    pub(crate) grace: u64,
    /// Serve no web page.
    #[arg(long, help_heading = "Server")]
    pub(crate) no_page: bool,
    /// Serve nothing now: write this command line as a systemd unit of this user, and say what starts it.
    #[arg(long, conflicts_with = "uninstall_service", help_heading = "Service")]
    pub(crate) install_service: bool,
    /// Remove the unit that `--install-service` wrote.
    #[arg(long, help_heading = "Service")]
    pub(crate) uninstall_service: bool,
    /// Name of the unit: several models are several services.
    #[arg(long, value_name = "NAME", default_value = "strata", help_heading = "Service")]
    pub(crate) service_name: String,
    /// Also replace or remove a unit of that name that Strata did not write, or that was changed since.
    #[arg(long, help_heading = "Service")]
    pub(crate) replace_service: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// What requests get that say nothing.
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
}
