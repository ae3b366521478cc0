//! The command line as data: every command, flag and its help text. A catalogue; the commands
//! themselves parse no text.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Finds out what this machine has, fetches what it needs and installs it. Without a command: install.
#[derive(Debug, Parser)]
#[command(name = "strata-setup", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) install: InstallArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Install, update, or bring models into an installation.
    Install(InstallArgs),
    /// Print what `install` would do and why, and change nothing.
    Plan(InstallArgs),
    /// Fetch without installing: the same as `--download-only`.
    Fetch(InstallArgs),
    /// Show what this machine has and what would run on it.
    Detect(DetectArgs),
    /// Show what is installed; with `--models` the catalog.
    List(ListArgs),
    /// Go back to the generation before, without the network.
    Rollback(RollbackArgs),
    /// Check every installed file and model, and make whole what is damaged: of a model only the broken chunks are
    /// fetched again.
    Repair(RepairArgs),
    /// Remove the installation: only what its receipts list.
    Uninstall(UninstallArgs),
    /// Remove old generations and archives that no generation came from.
    Gc(GcArgs),
    /// Bring the newest release of what is installed into the prefix.
    SelfUpdate(InstallArgs),
    /// Print a shell's completions of this program's commands and flags.
    Completions(CompletionsArgs),
    /// Print docs/setup-cli.md, or the man pages and completions of packages.
    #[command(hide = true)]
    InternalReference(InternalReferenceArgs),
}

/// What every command takes, before or after its name.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// Folder of the installation; default: the one that this program lies in, else
    /// `$XDG_DATA_HOME/strata` or `~/.local/share/strata`. Root is never needed.
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) prefix: Option<PathBuf>,
    /// Print one JSON document on standard output.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Take the default of every question.
    #[arg(short, long, global = true)]
    pub(crate) yes: bool,
    /// Say more about what is done and why.
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// How progress is shown: bars on a terminal and lines elsewhere, or as named; `json` is one event a
    /// line on standard error.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = ProgressArg::Auto, global = true)]
    pub(crate) progress: ProgressArg,
    /// Wait so long for another setup that is changing the same prefix.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, global = true)]
    pub(crate) wait: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressArg {
    Auto,
    Bars,
    Lines,
    Json,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum BackendArg {
    #[default]
    Auto,
    Cpu,
    Cuda,
    Hip,
}

#[derive(Debug, Clone, Args, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line are bools")]
pub(crate) struct InstallArgs {
    /// What computes. `auto` takes what the cards that are here need; a named one is never replaced by another.
    #[arg(long, value_enum, default_value_t = BackendArg::Auto, help_heading = "What")]
    pub(crate) backend: BackendArg,
    /// Install for a card that need not be here: `gfx906`, `gfx1100`, `sm_90`. Without such a card the
    /// plugin cannot be tried and is recorded as unproven.
    #[arg(long, value_name = "TARGET", help_heading = "What")]
    pub(crate) target: Option<String>,
    /// GPUs to count on, by number in `detect`, PCI address or unique id; default: all that fit.
    #[arg(long, value_name = "GPU", value_delimiter = ',', help_heading = "What")]
    pub(crate) gpus: Vec<String>,
    /// Model: a name of the catalog (`list --models`), `hf:owner/repo@revision/file.gguf`, `hf:owner/repo:Q4_K_M`,
    /// an `https:` address, or
    /// the path of a GGUF file that is used where it lies. May be given several times.
    #[arg(long, value_name = "MODEL", help_heading = "What")]
    pub(crate) model: Vec<String>,
    /// No model.
    #[arg(long, conflicts_with = "model", help_heading = "What")]
    pub(crate) no_model: bool,
    /// Where models are kept; default: `models` in the prefix.
    #[arg(long, value_name = "DIR", help_heading = "What")]
    pub(crate) models_dir: Option<PathBuf>,
    /// Release to install from: a folder, or the address of one.
    #[arg(long, value_name = "DIR|URL", help_heading = "Release")]
    pub(crate) release: Option<String>,
    /// Open no socket: everything comes from the folder of `--from`.
    #[arg(long, requires = "from", help_heading = "Release")]
    pub(crate) offline: bool,
    /// Folder that `--download-only` left.
    #[arg(long, value_name = "DIR", help_heading = "Release")]
    pub(crate) from: Option<PathBuf>,
    /// Believe this key (a minisign public key or trust root) and pin it for the prefix.
    #[arg(long, value_name = "FILE", help_heading = "Release")]
    pub(crate) key: Option<PathBuf>,
    /// Install a release that is not signed; the receipt records it.
    #[arg(long, help_heading = "Release")]
    pub(crate) allow_unsigned: bool,
    /// Install a release whose index has expired.
    #[arg(long, help_heading = "Release")]
    pub(crate) allow_expired: bool,
    /// Install a release that is older than what was installed here.
    #[arg(long, help_heading = "Release")]
    pub(crate) allow_downgrade: bool,
    /// Certificates to trust beside the system's (PEM), for networks with their own authority.
    #[arg(long, value_name = "FILE", help_heading = "Release")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Lock file: what the sources of models were resolved to (a hub's commit, sizes, digests), so that the same
    /// command brings the same bytes later; default: `strata.lock` in the folder that the models go to.
    #[arg(long, value_name = "FILE", help_heading = "Fetching")]
    pub(crate) lock: Option<PathBuf>,
    /// Fetch no model file that the lock file does not hold.
    #[arg(long, help_heading = "Fetching")]
    pub(crate) locked: bool,
    /// Resolve sources anew and write what is there now into the lock file.
    #[arg(long, conflicts_with = "locked", help_heading = "Fetching")]
    pub(crate) update: bool,
    /// File that may hold bytes of what is fetched: an unfinished download of curl, wget, aria2c or hf, or an
    /// older file. Its good chunks are copied, and it stays as it is. A folder: its files that have the right names.
    #[arg(long, value_name = "PATH", help_heading = "Fetching")]
    pub(crate) adopt: Vec<PathBuf>,
    /// Read again what is there of unfinished files before it counts.
    #[arg(long, help_heading = "Fetching")]
    pub(crate) audit: bool,
    /// Fetch, check and leave a folder that `--offline --from DIR` installs on any machine. No GPU and no
    /// driver is needed, and no question is asked.
    #[arg(long, help_heading = "How")]
    pub(crate) download_only: bool,
    /// Where `--download-only` puts it; default: `strata-VERSION` here.
    #[arg(long, value_name = "DIR", help_heading = "How")]
    pub(crate) to: Option<PathBuf>,
    /// With `--download-only`: fetch nothing but the index, and print how to do the rest by hand.
    #[arg(long, help_heading = "How")]
    pub(crate) print: bool,
    /// Print the plan and change nothing.
    #[arg(long, help_heading = "How")]
    pub(crate) dry_run: bool,
    /// Install once more although the same is installed.
    #[arg(long, help_heading = "How")]
    pub(crate) again: bool,
    /// Install a GPU plugin that does not pass its check; the receipt records it.
    #[arg(long, help_heading = "How")]
    pub(crate) allow_unproven: bool,
    /// Link the program into `~/.local/bin`.
    #[arg(long, help_heading = "How")]
    pub(crate) link: bool,
    /// Do not keep the archives for repairs without the network.
    #[arg(long, help_heading = "How")]
    pub(crate) no_keep_archives: bool,
    /// Do not offer to start a model at the end.
    #[arg(long, help_heading = "How")]
    pub(crate) no_start: bool,
    /// Read host facts below this folder instead of `/`: for trying things out and for tests.
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) root: Option<PathBuf>,
    /// Model catalog to use instead of the built-in one.
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) catalog: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DetectArgs {
    /// Read below this folder instead of `/`.
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// The catalog: models by name, with size and whether they fit this machine.
    #[arg(long)]
    pub(crate) models: bool,
    /// Check every installed file against its receipt.
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RollbackArgs {
    /// Generation to go to; default: the one before.
    #[arg(long, value_name = "N")]
    pub(crate) to: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    /// Folder with the archives; default: the kept ones, then the release that it came from.
    #[arg(long, value_name = "DIR")]
    pub(crate) from: Option<PathBuf>,
    /// Release to fetch from.
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) release: Option<String>,
    /// Certificates to trust beside the system's (PEM).
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Leave models out: reading them takes time.
    #[arg(long)]
    pub(crate) no_models: bool,
    /// Look and say, change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UninstallArgs {
    /// Remove the models that setup fetched too.
    #[arg(long)]
    pub(crate) models: bool,
    /// Remove installed files also when they were changed since.
    #[arg(long)]
    pub(crate) changed: bool,
    /// Say what would go and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell; `strata-setup completions bash > ~/.local/share/bash-completion/completions/strata-setup` keeps them.
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct InternalReferenceArgs {
    /// Man pages and completions instead, as JSON: a path in the repository and the text.
    #[arg(long)]
    pub(crate) files: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Generations to keep beside the current one.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) keep: usize,
    /// Remove what was fetched and not installed too, unfinished downloads included.
    #[arg(long)]
    pub(crate) downloads: bool,
}
