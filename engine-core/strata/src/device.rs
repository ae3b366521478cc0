//! From the flags to an open device: which plugins there are, which one is chosen, what is said
//! about it. Nothing falls to the CPU in silence: warnings and notes go to stderr.

use crate::cli::{BackendArg, EngineArgs};
use crate::env;
use crate::outcome::Outcome;
use crate::prefix::Prefix;
use crate::printer;
use std::path::PathBuf;
use std::sync::Arc;
use strata_diag::Diagnostic;
use strata_diag::catalogue::plugin::{NO_BACKEND, PLUGIN_PROBE};
use strata_manifest::report::BackendReport;
use strata_plugin_host::abi::StrataLogLevel;
use strata_plugin_host::select::{self, BackendRequest, Request, Selection};
use strata_plugin_host::{Device, DeviceOptions, OpenOptions, PluginEntry, PluginError, ProbeCommand, ProbeOptions};

/// An open device and why it is this one.
pub(crate) struct Chosen {
    pub(crate) device: Device,
    selection: Selection,
}

impl Chosen {
    /// One line for people.
    pub(crate) fn line(&self) -> String {
        let info = self.device.info();
        format!("backend: {} on {} ({})", self.device.plugin(), info.name, self.device.report())
    }

    pub(crate) fn report(&self) -> BackendReport {
        let info = self.device.info();
        let reason = self.selection.outcome.as_ref().map_or_else(|_| String::new(), |chosen| chosen.why.clone());
        BackendReport {
            plugin: self.device.plugin().to_owned(),
            device: info.name.clone(),
            arch: info.arch.clone(),
            uid: info.uid.clone(),
            report: self.device.report(),
            asked: self.selection.request.words(),
            reason,
            warnings: self.selection.warnings.iter().map(|warning| warning.message.clone()).collect(),
        }
    }
}

/// Chooses and opens.
pub(crate) fn choose(args: &EngineArgs, prefix: Option<&Prefix>) -> Outcome<Chosen> {
    let entries = entries(&args.plugin, prefix)?;
    let request = Request {
        backend: match args.backend {
            BackendArg::Auto => BackendRequest::Auto,
            BackendArg::Cpu => BackendRequest::Cpu,
            BackendArg::Cuda => BackendRequest::Cuda,
            BackendArg::Hip => BackendRequest::Hip,
        },
        device: args.device.clone(),
        target: None,
    };
    let selected = select::select(&entries, &request, &open_options(args.retry_plugin)?);
    if args.backend_report {
        printer::talk(&selected.selection.to_text());
    } else {
        for warning in &selected.selection.warnings {
            printer::talk(&warning.to_warning_text());
        }
        for note in &selected.selection.notes {
            printer::talk(&format!("note: {note}"));
        }
    }
    let device = selected.open(&DeviceOptions {
        n_threads: args.threads.unwrap_or(0),
        reserve_bytes: args.vram_reserve_mib << 20,
        variant: args.variant.clone(),
    })?;
    if args.backend_report {
        printer::talk(&format!("device: {}", device.report()));
    }
    if device.info().is_unproven() {
        printer::talk(&format!("note: no device like {} has run this plugin yet", device.info().name));
    }
    Ok(Chosen { device, selection: selected.selection })
}

/// Plugins by name, also those whose descriptor cannot be read.
pub(crate) type Entries = Vec<(String, Result<PluginEntry, PluginError>)>;

/// The plugins of the command line, else those of the receipt.
pub(crate) fn entries(named: &[PathBuf], prefix: Option<&Prefix>) -> Result<Entries, Diagnostic> {
    if !named.is_empty() {
        let read = |path: &PathBuf| {
            let entry = PluginEntry::from_descriptor(path);
            (entry.as_ref().map_or_else(|_| path.display().to_string(), |entry| entry.name().to_owned()), entry)
        };
        return Ok(named.iter().map(read).collect());
    }
    match prefix {
        Some(prefix) => Ok(PluginEntry::from_receipt(&prefix.root, &prefix.receipt)),
        None => Err(Diagnostic::new(NO_BACKEND, "this program is not installed, so it has no plugins")
            .hint("name the installation: `--prefix DIR`")
            .hint("or a plugin: `--plugin FILE.plugin.json`")
            .hint("in a checkout: `scripts/quickstart` makes an installation in target/quickstart")),
    }
}

/// Plugins are tried in a child first; `retry` forgets what an earlier crash taught.
pub(crate) fn open_options(retry: bool) -> Result<OpenOptions, Diagnostic> {
    let command = ProbeCommand::this_program(["internal-probe"]).map_err(|error| {
        Diagnostic::new(PLUGIN_PROBE, "this program cannot find its own file").fact("because", error)
    })?;
    let probe = ProbeOptions { command, limit: None, state_dir: env::state_dir(), retry };
    let log = Arc::new(|level: StrataLogLevel, text: &str| {
        if level >= StrataLogLevel::Warning {
            printer::talk(&format!("plugin: {text}"));
        }
    });
    Ok(OpenOptions { log, ..OpenOptions::probed(probe) })
}
