//! `cargo xtask check`: everything that CI runs, in the order in which it fails fastest.

use crate::workspace::{run, run_with, say};
use std::process::Command;

fn run_tests() -> anyhow::Result<()> {
    let plugin = crate::test_plugins::stage_test_plugins()?;
    let software = plugin.join("hip/libamdhip64.so.7");
    let mut environment = vec![("STRATA_TEST_PLUGIN_DIR", plugin.as_path())];
    if software.exists() {
        environment.push(("STRATA_TEST_HIP_LIBRARY", software.as_path()));
    }
    let nextest = Command::new("cargo").args(["nextest", "--version"]).output().is_ok_and(|out| out.status.success());
    if nextest {
        // Nextest runs no doc tests; it comes last, so that its summary closes the output.
        run("cargo", &["test", "--workspace", "--doc", "--quiet"])?;
        run_with("cargo", &["nextest", "run", "--workspace", "--no-fail-fast", "--status-level", "slow"], &environment)
    } else {
        run_with("cargo", &["test", "--workspace", "--no-fail-fast"], &environment)
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
