//! The installer program: parses the line, runs one command, renders its failure, sets the status.
//! It decides nothing that the plan does not say.

mod ask;
mod byhand;
mod cli;
mod commands;
mod context;
mod env;
mod facts;
mod fetching;
mod interrupt;
mod lockbook;
mod models;
mod outcome;
mod printer;
mod progress;
mod source;

use clap::Parser;
use cli::{Cli, Command, InstallArgs};
use context::Context;
use outcome::{Outcome, Stop};
use std::process::ExitCode;
use strata_diag::catalogue::general::{BAD_OPTION, INTERRUPTED};
use strata_diag::{Diagnostic, ExitStatus};

strata_build_record::embed!();

fn main() -> ExitCode {
    // Clap prints usage errors itself, to stderr with status 2, help and version to stdout with 0.
    let cli = Cli::parse();
    let json = cli.common.json;
    interrupt::listen();
    let status = match run(cli) {
        Ok(status) => status,
        Err(Stop(diagnostic)) => {
            if json {
                // Whoever asked for JSON parses standard output; a reader that is gone needs no error.
                let _ = printer::data(&format!("{:#}\n", diagnostic.to_json()));
            }
            printer::talk(&diagnostic.to_text());
            if interrupt::asked() || diagnostic.code == INTERRUPTED {
                printer::talk(&format!("to go on: `{}`", interrupt::resume_command()));
                ExitStatus::Interrupted
            } else {
                diagnostic.exit_status()
            }
        }
    };
    ExitCode::from(status.number())
}

fn run(cli: Cli) -> Outcome {
    let context = Context::new(cli.common);
    if cli.command.is_some() && cli.install != InstallArgs::default() {
        return Err(Diagnostic::new(BAD_OPTION, "options of an installation stand before a command")
            .hint("write them behind it: `strata-setup plan --backend hip`")
            .into());
    }
    match cli.command {
        None => commands::install::run(&context, &cli.install),
        Some(Command::Install(args)) => commands::install::run(&context, &args),
        Some(Command::Plan(args)) => commands::install::run(&context, &InstallArgs { dry_run: true, ..args }),
        Some(Command::Fetch(args)) => commands::install::run(&context, &InstallArgs { download_only: true, ..args }),
        Some(Command::Detect(args)) => commands::detect::run(&context, &args),
        Some(Command::List(args)) => commands::list::run(&context, &args),
        Some(Command::Rollback(args)) => commands::manage::rollback(&context, &args),
        Some(Command::Repair(args)) => commands::manage::repair(&context, &args),
        Some(Command::Uninstall(args)) => commands::manage::uninstall(&context, &args),
        Some(Command::Gc(args)) => commands::manage::gc(&context, &args),
        Some(Command::SelfUpdate(args)) => commands::install::self_update(&context, &args),
        Some(Command::Completions(args)) => commands::reference::completions(args.shell),
        Some(Command::InternalReference(args)) => commands::reference::run(args.files),
    }
}
