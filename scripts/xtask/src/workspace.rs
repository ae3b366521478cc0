//! What every task needs: the workspace's root, its metadata, running a command, saying a line.

use anyhow::{Context, bail};
use cargo_metadata::{Metadata, MetadataCommand};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Root of the checkout that this xtask was built from.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("scripts/xtask lies two levels deep").to_owned()
}

/// `cargo metadata` of the workspace, its own packages only resolved as far as direct edges.
pub(crate) fn metadata() -> anyhow::Result<Metadata> {
    MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().context("cargo metadata")
}

/// Runs a command in the root, its output shown; fails when it fails.
pub(crate) fn run(program: &str, args: &[&str]) -> anyhow::Result<()> {
    run_with(program, args, &[])
}

/// The same with environment variables.
pub(crate) fn run_with(program: &str, args: &[&str], environment: &[(&str, &Path)]) -> anyhow::Result<()> {
    say(&format!("$ {program} {}", args.join(" ")));
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).envs(environment.iter().copied());
    let status = command.status().with_context(|| program.to_owned())?;
    if !status.success() {
        bail!("`{program} {}` failed: {status}", args.join(" "));
    }
    Ok(())
}

/// A line of talk.
#[expect(clippy::print_stderr, reason = "xtask talks to developers and has no other door")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}
