//! `cargo xtask check`: everything that CI runs, in the order in which it fails fastest.

use crate::workspace::{run, say};
use std::process::Command;

fn run_tests() -> anyhow::Result<()> {
    let nextest = Command::new("cargo").args(["nextest", "--version"]).output().is_ok_and(|out| out.status.success());
    if nextest {
        // Nextest runs no doc tests; it comes last, so that its summary closes the output.
        run("cargo", &["test", "--workspace", "--doc", "--quiet"])?;
        run("cargo", &["nextest", "run", "--workspace", "--no-fail-fast", "--status-level", "slow"])
    } else {
        run("cargo", &["test", "--workspace", "--no-fail-fast"])
    }
}

pub(crate) fn run_all(tests: bool) -> anyhow::Result<()> {
    run_steps()?;
    say("check: formatting, lints, house rules, generated files and licences are good");
    if tests { run_tests() } else { Ok(()) }
}

fn run_steps() -> anyhow::Result<()> {
    run("cargo", &["fmt", "--all", "--check"])?;
    run("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    crate::tidy::run_tidy()?;
    crate::generate::run_generate(true)?;
    run("cargo", &["deny", "check", "licenses", "bans", "sources"])
}
