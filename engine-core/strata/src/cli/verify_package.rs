//! Flags of `strata verify-package`.

use clap::Args;
use std::path::PathBuf;

/// Exit status: 0 nothing is wrong; else 16 plus 1 damaged, 2 untrusted, 4 incompatible, 8 not checkable.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
#[derive(Debug, Args)]
pub(crate) struct VerifyPackageArgs {
    /// Archives, unpacked packages, installed prefixes, release folders; `-` reads an archive from standard input.
    #[arg(value_name = "PATH", required_unless_present = "sums")]
    pub(crate) paths: Vec<PathBuf>,
    /// Check files against a list of SHA-256 sums instead; without PATH, all files of the list.
    #[arg(long, value_name = "LIST")]
    pub(crate) sums: Option<PathBuf>,
    /// Whose signature of a release folder counts: a trust root (JSON) or a minisign public key.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Check a release folder without its signature.
    #[arg(long, conflicts_with = "key")]
    pub(crate) no_signature: bool,
    /// Refuse a release whose serial number is lower than this one.
    #[arg(long, value_name = "N")]
    pub(crate) lowest_serial: Option<u64>,
    /// Note paths of the build machine in programs instead of refusing them: for one's own builds.
    #[arg(long)]
    pub(crate) allow_build_paths: bool,
    /// Also run the programs of a folder with `--version`, and compare.
    #[arg(long)]
    pub(crate) run: bool,
    /// Compare how archives are compressed byte by byte, whatever their size (default: up to 256 MiB).
    #[arg(long)]
    pub(crate) canonical: bool,
    /// Threads that hash; default: one per processor.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) threads: usize,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print nothing but findings.
    #[arg(long)]
    pub(crate) quiet: bool,
}
