//! The child's side: opens the plugin, tries each device, reports.

use super::ProbedDevice;
use super::report;
use crate::{DeviceInfo, DeviceOptions, OpenOptions, Plugin, PluginEntry, PluginError, numeric_check, raw};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use strata_child::PROBE_LINE;
use strata_diag::{Diagnostic, ExitStatus};

/// All that the probe mode of a binary does: tries the plugin of this descriptor and writes lines
/// for the parent to stdout. The result says how the process should end.
pub fn probe_child(descriptor: &Path) -> ExitStatus {
    raw::expendable();
    let mut say = |line: &Value| {
        let mut out = std::io::stdout().lock();
        // Starts on a line of its own, whatever the plugin has printed. A parent that is gone needs no report.
        let _ = write!(out, "\n{PROBE_LINE}{line}\n");
        let _ = out.flush();
    };
    match try_plugin(descriptor, &mut say) {
        Ok(devices) => {
            say(&report::of_devices(&devices));
            ExitStatus::Done
        }
        Err(error) => {
            say(&report::of_failure(&Diagnostic::of(&error)));
            ExitStatus::Failed
        }
    }
}

fn try_plugin(descriptor: &Path, say: &mut dyn FnMut(&Value)) -> Result<Vec<ProbedDevice>, PluginError> {
    let mut stage = |text: String| say(&json!({ "stage": text }));
    stage("opening the library".to_owned());
    let entry = PluginEntry::from_descriptor(descriptor)?;
    let plugin = Plugin::open(&entry, &OpenOptions::in_process())?;
    stage("listing its devices".to_owned());
    let mut devices = Vec::new();
    for (index, slot) in plugin.device_slots()?.into_iter().enumerate() {
        let tried = slot.map(|info| {
            let result = try_device(&plugin, &info, &mut stage);
            ProbedDevice { uid: info.uid, failure: result.err().map(|error| Diagnostic::of(&error)) }
        });
        devices.push(tried.unwrap_or_else(|error| ProbedDevice {
            uid: format!("device {index}"),
            failure: Some(Diagnostic::of(&error)),
        }));
    }
    Ok(devices)
}

fn try_device(plugin: &Plugin, info: &DeviceInfo, stage: &mut dyn FnMut(String)) -> Result<(), PluginError> {
    stage(format!("opening device {} ({})", info.index, info.name));
    let device = plugin.open_device(info.index, &DeviceOptions::default())?;
    stage(format!("computing on device {} ({})", info.index, info.name));
    numeric_check(&device)?;
    stage(format!("closing device {} ({})", info.index, info.name));
    drop(device);
    Ok(())
}
