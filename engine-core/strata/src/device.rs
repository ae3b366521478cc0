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
use strata_manifest::facts::{GpuFacts, GpuVendor};
use strata_manifest::report::BackendReport;
use strata_plugin_host::abi::StrataLogLevel;
use strata_plugin_host::select::{self, BackendRequest, Request, Selection};
use strata_plugin_host::{Device, DeviceOptions, OpenOptions, PluginEntry, PluginError, ProbeCommand, ProbeOptions};
use strata_probe::{Options, Root};

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
        device: args.device.as_deref().map(identity),
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

/// A card has two identities, its PCI address and its vendor's id (`unique_id`, UUID), and a plugin tells
/// one of them: whichever was named is turned into that one.
fn identity(named: &str) -> String {
    let gpus = if named.eq_ignore_ascii_case("cpu") {
        Vec::new()
    } else {
        strata_probe::probe(&Root::live(), &Options::default()).gpus
    };
    plugins_identity(named, &gpus).unwrap_or_else(|| named.to_owned())
}

/// AMD's plugins tell the address, NVIDIA's the UUID. `None` where the name is of neither kind.
fn plugins_identity(named: &str, gpus: &[GpuFacts]) -> Option<String> {
    // ROCm says `GPU-18f6…`, the kernel `0x18f6…`.
    let bare = |id: &str| {
        let id = id.to_ascii_lowercase();
        let id = id.strip_prefix("gpu-").or_else(|| id.strip_prefix("0x")).unwrap_or(&id);
        id.trim_start_matches('0').to_owned()
    };
    let is_named = |gpu: &&GpuFacts| {
        let address = gpu.pci.as_deref().is_some_and(|pci| pci.eq_ignore_ascii_case(named));
        address || gpu.unique_id.as_deref().is_some_and(|id| bare(id) == bare(named))
    };
    let gpu = gpus.iter().find(is_named)?;
    match gpu.vendor {
        GpuVendor::Nvidia => gpu.unique_id.clone(),
        _ => gpu.pci.clone(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(vendor: GpuVendor, pci: &str, id: &str) -> GpuFacts {
        let text = serde_json::json!({
            "pci": pci, "unique_id": id, "vendor": vendor, "name": "card", "state": "usable", "evidence": [],
            "memory": {"shared": false}, "integrated": false, "visible": true, "mig": [],
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn a_card_may_be_named_by_either_identity() {
        let gpus = [
            gpu(GpuVendor::Amd, "0000:03:00.0", "0x18f68d0172fc1234"),
            gpu(GpuVendor::Nvidia, "0000:0a:00.0", "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ];
        for (named, expected) in [
            ("0000:03:00.0", Some("0000:03:00.0")),
            ("GPU-18f68d0172fc1234", Some("0000:03:00.0")),
            ("0x18F68D0172FC1234", Some("0000:03:00.0")),
            ("0000:0A:00.0", Some("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")),
            ("gpu-00010203-0405-0607-0809-0a0b0c0d0e0f", Some("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")),
            ("0000:04:00.0", None),
            ("1", None),
        ] {
            assert_eq!(plugins_identity(named, &gpus).as_deref(), expected, "{named}");
        }
    }
}
