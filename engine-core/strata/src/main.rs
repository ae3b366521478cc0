//! The `strata` command: parses the line, runs one command, renders its failure, sets the status.

mod answer;
mod cli;
mod commands;
mod device;
mod env;
mod input;
mod model;
mod outcome;
mod prefix;
mod printer;
mod settings;

use clap::Parser;
use cli::{Cli, Command};
use outcome::{Outcome, Stop};
use std::process::ExitCode;
use strata_diag::ExitStatus;

strata_build_record::embed!();

fn main() -> ExitCode {
    // Clap prints usage errors itself, to stderr with status 2, help and version to stdout with 0.
    let cli = Cli::parse();
    let json_errors = cli.command.wants_json();
    // A model file that shrinks in use becomes an error of the request instead of a SIGBUS. All
    // else works without the handler, so a system that refuses it stops nothing.
    let _ = strata_model::gguf::guard_mappings();
    let status = match run(cli.command) {
        Ok(status) => status,
        Err(Stop::Gone) => ExitStatus::Done,
        Err(Stop::Failed(diagnostic)) => {
            if json_errors {
                // Whoever asked for JSON parses standard output; a reader that is gone needs no error.
                let _ = printer::json(&diagnostic.to_json());
            }
            printer::talk(&diagnostic.to_text());
            diagnostic.exit_status()
        }
    };
    ExitCode::from(status.number())
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Run(args) => commands::run::run(&args),
        Command::Tokenize(args) => commands::tokenize::run(&args),
        Command::Eval(args) => commands::eval::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Inspect(args) => commands::inspect::run(&args),
        Command::Explain(args) => commands::explain::run(args.code.as_deref()),
        Command::Version(args) => commands::version::run(args.json),
        Command::InternalProbe(args) => Ok(strata_plugin_host::probe_child(&args.descriptor)),
        Command::InternalReference => commands::reference::run(),
    }
}
