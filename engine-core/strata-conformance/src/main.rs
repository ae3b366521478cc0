//! `strata-conform`: runs the conformance kit against a plugin and prints the table.
//! Exit status: 0 everything passed or is a known gap, 1 something failed, 2 wrong command line.

use clap::Parser;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use strata_conformance::{Bench, ConformError, Gaps, Group, Report, groups, run_group};
use strata_diag::{Diagnostic, ExitStatus};
use strata_plugin_host::{OpenOptions, Plugin, PluginEntry};

/// Checks every operation of a backend plugin against exact results.
#[derive(Debug, Parser)]
#[command(name = "strata-conform", version)]
struct Args {
    /// The plugin's descriptor, `<stem>.plugin.json`, beside its library.
    #[arg(long, required_unless_present = "list")]
    plugin: Option<PathBuf>,
    /// The plugin's device, by its own number.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Kernel variant, for example `scalar`; the plugin's best without it.
    #[arg(long, default_value = "")]
    variant: String,
    /// Only groups whose name contains this, for example `mat_mul::Q4_K` or `same_bits`.
    #[arg(long, default_value = "")]
    filter: String,
    /// Known gaps instead of this repository's own list.
    #[arg(long)]
    gaps: Option<PathBuf>,
    /// The result as JSON on standard output.
    #[arg(long)]
    json: bool,
    /// Name each case on standard error before it runs: for a plugin that takes the process down.
    #[arg(long)]
    trace: bool,
    /// Print the groups' names and stop.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match conform(&args) {
        Ok(status) => ExitCode::from(status.number()),
        Err(error) => {
            let diagnostic = Diagnostic::of(&error);
            let text = if args.json { diagnostic.to_json().to_string() } else { diagnostic.to_text() };
            // Nothing is left to do when standard error is closed.
            let _ = writeln!(std::io::stderr(), "{}", text.trim_end());
            ExitCode::from(diagnostic.exit_status().number())
        }
    }
}

fn conform(args: &Args) -> Result<ExitStatus, ConformError> {
    let chosen: Vec<Group> = groups().into_iter().filter(|group| group.name().contains(&args.filter)).collect();
    if chosen.is_empty() {
        return Err(ConformError::NoGroup { filter: args.filter.clone() });
    }
    let Some(plugin) = args.plugin.as_ref().filter(|_| !args.list) else {
        let names: Vec<String> = chosen.iter().map(Group::name).collect();
        print(&(names.join("\n") + "\n"));
        return Ok(ExitStatus::Done);
    };
    let gaps = match &args.gaps {
        Some(path) => Gaps::read(path)?,
        None => Gaps::built_in()?,
    };
    let plugin = Plugin::open(&PluginEntry::from_descriptor(plugin)?, &OpenOptions::in_process())?;
    let bench = Bench::open(&plugin, args.device, &args.variant)?;
    let mut report = Report {
        backend: plugin.name().to_owned(),
        version: plugin.version(),
        device: bench.device().info().name.clone(),
        variant: args.variant.clone(),
        groups: Vec::new(),
    };
    for group in &chosen {
        let name = group.name();
        let mut before_case = |case: &str| {
            if args.trace {
                let _ = writeln!(std::io::stderr(), "{name} {case}");
            }
        };
        report.groups.push(run_group(&bench, group, &gaps, &mut before_case));
    }
    print(&if args.json { format!("{:#}\n", report.to_json()) } else { report.to_text() });
    Ok(if report.totals().failed == 0 { ExitStatus::Done } else { ExitStatus::Failed })
}

/// A closed pipe (`| head`) is no failure of the plugin.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
