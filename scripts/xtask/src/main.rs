//! Automation that would otherwise be shell: `cargo xtask check|tidy|gen|models|stage|test-plugins|dist|fuzz`.

mod check;
mod dist;
mod fuzz;
mod generate;
mod generate_header;
mod models;
mod stage;
mod test_plugins;
mod tidy;
mod workspace;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Automation of the Strata workspace")]
struct Xtask {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// What CI runs: fmt, clippy, tidy, gen --check, deny, tests.
    Check {
        /// Leave the tests out.
        #[arg(long)]
        no_tests: bool,
    },
    /// The rules of docs/ARCHITECTURE.md, as checks.
    Tidy,
    /// Write what is generated: C header, JSON schemas, command line reference.
    Gen {
        /// Write nothing; fail where a committed file differs.
        #[arg(long)]
        check: bool,
    },
    /// Bring the real models that tests and the quickstart use (`smollm2`, `gemma3`); print their paths.
    Models { names: Vec<String> },
    /// Build packages of everything that can be built here, into a signed release folder.
    Dist(dist::DistArgs),
    /// Run the fuzz targets for a while from seeds, and say how many inputs were tried.
    Fuzz(fuzz::FuzzArgs),
    /// Build the plugins that tests run with, and the software HIP device; print their folder, which
    /// `STRATA_TEST_PLUGIN_DIR` then names. Compiling kernels takes minutes the first time.
    TestPlugins,
    /// Build and lay out a local prefix: program, plugin with descriptor, receipt.
    Stage {
        /// The prefix; an earlier stage there is replaced.
        #[arg(long, value_name = "DIR")]
        prefix: PathBuf,
        /// Build without optimisation.
        #[arg(long)]
        dev: bool,
        /// Model to list in the receipt: `NAME=FILE`. May be given several times.
        #[arg(long, value_name = "NAME=FILE")]
        model: Vec<String>,
    },
}

fn main() -> anyhow::Result<()> {
    match Xtask::parse().task {
        Task::Check { no_tests } => check::run_all(!no_tests),
        Task::Tidy => tidy::run_tidy(),
        Task::Gen { check } => generate::run_generate(check),
        Task::Models { names } => models::run_models(&names),
        Task::Dist(args) => dist::run_dist(&args),
        Task::Fuzz(args) => fuzz::run_fuzz(&args),
        Task::TestPlugins => test_plugins::run_test_plugins(),
        Task::Stage { prefix, dev, model } => stage::run_stage(&prefix, dev, &model),
    }
}
