//! The `strata` command: parses the line, runs one command, renders its failure, sets the status.

mod answer;
mod cli;
mod commands;
mod device;
mod env;
mod input;
mod instances;
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
use strata_diag::catalogue::general::USAGE;

strata_build_record::embed!();

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(said) => return usage(&said),
    };
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

/// What clap has to say: help and version are data; a wrong command line gets its code and status 2.
fn usage(said: &clap::Error) -> ExitCode {
    let text = said.render().to_string();
    if !said.use_stderr() {
        // A reader that is gone has seen what it wanted.
        let _ = printer::data(&text);
        return ExitCode::from(ExitStatus::Done.number());
    }
    match text.strip_prefix("error:") {
        Some(rest) => printer::talk(&format!("error[{}]:{rest}", USAGE.id)),
        None => printer::talk(&text),
    }
    ExitCode::from(ExitStatus::Usage.number())
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Run(args) => commands::run::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Tokenize(args) => commands::tokenize::run(&args),
        Command::Eval(args) => commands::eval::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Inspect(args) => commands::inspect::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Ps(args) => commands::ps::run(args.json),
        Command::Stop(args) => commands::stop::run(&args),
        Command::Package(args) => commands::package::run(&args),
        Command::VerifyPackage(args) => commands::verify_package::run(&args),
        Command::Completions(args) => commands::reference::completions(args.shell),
        Command::Explain(args) => commands::explain::run(args.code.as_deref()),
        Command::Version(args) => commands::version::run(args.json),
        Command::InternalProbe(args) => Ok(strata_plugin_host::probe_child(&args.descriptor)),
        Command::InternalNvml(args) => Ok(strata_plugin_host::nvml_child(&args.address)),
        Command::InternalSelftest(args) => commands::doctor::selftest_child(&args),
        Command::InternalReference(args) => commands::reference::run(args.files),
    }
}
