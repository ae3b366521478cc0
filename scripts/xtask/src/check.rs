//! `cargo xtask check`: everything that CI runs, in the order in which it fails fastest.

use crate::workspace::{run, say};
use std::process::Command;

fn run_tests() -> anyhow::Result<()> {
    let nextest = Command::new("cargo").args(["nextest", "--version"]).output().is_ok_and(|out| out.status.success());
    if nextest {
        run("cargo", &["nextest", "run", "--workspace", "--no-fail-fast", "--status-level", "slow"])?;
        run("cargo", &["test", "--workspace", "--doc", "--quiet"])
    } else {
        run("cargo", &["test", "--workspace", "--no-fail-fast"])
    }
}

pub(crate) fn run_all(tests: bool) -> anyhow::Result<()> {
    run_steps()?;
    if tests {
        run_tests()?;
    }
    say("check: all good");
    Ok(())
}

fn run_steps() -> anyhow::Result<()> {
    run("cargo", &["fmt", "--all", "--check"])?;
    run("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    crate::tidy::run_tidy()?;
    crate::generate::run_generate(true)?;
    run("cargo", &["deny", "check", "licenses", "bans", "sources"])
}
