//! Flags of `strata package`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct PackageArgs {
    #[command(subcommand)]
    pub(crate) command: PackageCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PackageCommand {
    /// Build the archives of components from what was compiled.
    Build(PackageBuildArgs),
    /// Write `release.json` and `SHA256SUMS.txt` for the archives of a folder.
    Index(PackageIndexArgs),
    /// Make a key pair: `STEM.key` (secret, mode 0600) and `STEM.pub`.
    Keygen(PackageKeygenArgs),
    /// Sign the index and the checksum list of a release folder, or single files.
    Sign(PackageSignArgs),
    /// Write the list of keys that may sign releases, signed by a root key.
    Keys(PackageKeysArgs),
    /// Write a trust root: the keys that may sign key lists.
    TrustRoot(PackageTrustRootArgs),
}

impl PackageCommand {
    pub(crate) fn wants_json(&self) -> bool {
        matches!(self, PackageCommand::Build(args) if args.json)
    }
}

#[derive(Debug, Args)]
pub(crate) struct PackageBuildArgs {
    /// Recipes: `packaging/recipes/engine-cpu.toml`.
    #[arg(required = true, value_name = "RECIPE")]
    pub(crate) recipes: Vec<PathBuf>,
    /// Folder that the archives are written to.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Folder of the compiled files.
    #[arg(long, value_name = "DIR", default_value = "target/release")]
    pub(crate) from: PathBuf,
    /// Root of the source; default: the folder with a `Cargo.lock` at or above the first recipe.
    #[arg(long, value_name = "DIR")]
    pub(crate) source: Option<PathBuf>,
    /// `tar.gz`, `tar.zst`, `zip`; several with commas.
    #[arg(long, value_name = "FORMAT", value_delimiter = ',', default_value = "tar.gz")]
    pub(crate) format: Vec<String>,
    /// Stop where anything in the folder of compiled files is claimed by no line of the recipe.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Accept programs that hold paths of the machine that built them: for tests.
    #[arg(long)]
    pub(crate) allow_build_paths: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PackageIndexArgs {
    /// Folder with the archives of one release.
    pub(crate) folder: PathBuf,
    /// Number that only grows; who has seen a higher one refuses this release. Default: the seconds of `--created`.
    #[arg(long, value_name = "N")]
    pub(crate) serial: Option<u64>,
    /// When the index was made, `2026-12-01T00:00:00Z`; default: now.
    #[arg(long, value_name = "TIME")]
    pub(crate) created: Option<String>,
    /// Days until the index must be replaced by a newer one.
    #[arg(long, value_name = "DAYS", default_value_t = 180, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) expires_days: u32,
    /// Model to offer: its name and its files in the folder, in order. May be given several times.
    #[arg(long, value_name = "NAME=FILE[,FILE]")]
    pub(crate) model: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PackageKeygenArgs {
    /// Path without suffix of the two files.
    pub(crate) stem: PathBuf,
    /// Leave the secret key unprotected; without this a password is asked for.
    #[arg(long, conflicts_with = "password_file")]
    pub(crate) no_password: bool,
    /// Take the password from the first line of a file.
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PackageSignArgs {
    /// Release folders, or files.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) key: SecretKeyArgs,
}

/// The secret key to sign with.
#[derive(Debug, Args)]
pub(crate) struct SecretKeyArgs {
    /// Secret key in minisign's format.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// Take the key's password from the first line of a file; without this it is asked for when needed.
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PackageKeysArgs {
    /// Folder that `keys.json` and its signature are written to.
    pub(crate) folder: PathBuf,
    /// Root key to sign with.
    #[command(flatten)]
    pub(crate) root: SecretKeyArgs,
    /// Public key that may sign releases. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) add: Vec<PathBuf>,
    /// Public key whose signatures count no more. May be given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) revoke: Vec<PathBuf>,
    /// Number that only grows; default: the seconds of now.
    #[arg(long, value_name = "N")]
    pub(crate) serial: Option<u64>,
    /// Days until the list must be replaced by a newer one.
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) expires_days: u32,
}

#[derive(Debug, Args)]
pub(crate) struct PackageTrustRootArgs {
    /// Public root keys.
    #[arg(required = true, value_name = "KEY")]
    pub(crate) keys: Vec<PathBuf>,
    /// File to write.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}
