//! What asks NVIDIA's management library (NVML): all that `strata internal-nvml` does. It runs as a child of the
//! detector's, with a time limit, since a driver can hang or crash whoever asks it; the parent reads one line.
//!
//! The library is the driver's own and no plugin: it has no descriptor, and its name is all that is fixed about
//! it. So it is opened in this mode of the program only, which does nothing else.

use crate::raw::{self, NvmlDevice, NvmlError, NvmlLibrary};
use serde_json::{Map, Value, json};
use std::io::Write;
use strata_child::NVML_LINE;
use strata_diag::ExitStatus;

/// Names to try: the loader's own search, then where WSL keeps it.
const NAMES: [&str; 2] = ["libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"];
/// No machine has more.
const MAX_DEVICES: u32 = 256;
const MAX_SLICES: u32 = 64;

/// Asks about the cards at these PCI addresses, or about all when there are none, and writes one line to stdout.
pub fn nvml_child(addresses: &[String]) -> ExitStatus {
    raw::expendable();
    let (answer, status) = match ask(addresses) {
        Ok(answer) => (answer, ExitStatus::Done),
        Err(failed) => (json!({ "failed": failed }), ExitStatus::Failed),
    };
    let mut out = std::io::stdout().lock();
    // A parent that is gone needs no report.
    let _ = writeln!(out, "\n{NVML_LINE}{answer}");
    let _ = out.flush();
    status
}

fn ask(addresses: &[String]) -> Result<Value, Value> {
    let mut absent = String::new();
    let opened = NAMES.iter().find_map(|name| match NvmlLibrary::open(name) {
        Ok(library) => Some(library),
        Err(why) if absent.is_empty() => {
            absent = why;
            None
        }
        Err(_) => None,
    });
    let Some(library) = opened else {
        return Err(json!({ "absent": true, "text": format!("the library is not here: {absent}") }));
    };
    let nvml = library.start().map_err(|error| failure(&error))?;
    let devices: Vec<Value> = if addresses.is_empty() {
        let count = nvml.count().map_err(|error| failure(&error))?;
        (0..count.min(MAX_DEVICES)).map(|index| device(nvml.device(index), None)).collect()
    } else {
        addresses.iter().map(|address| device(nvml.device_at(address), Some(address))).collect()
    };
    Ok(json!({ "driver": nvml.driver().ok(), "devices": devices }))
}

fn failure(error: &NvmlError) -> Value {
    json!({ "code": error.code, "text": error.text })
}

fn memory(device: &NvmlDevice<'_>) -> Value {
    match device.memory() {
        Ok((total, free)) => json!({ "total": total, "free": free }),
        Err(error) => json!({ "code": error.code }),
    }
}

/// One card. What it does not tell is left out; one that cannot be used at all says why.
fn device(found: Result<NvmlDevice<'_>, NvmlError>, address: Option<&String>) -> Value {
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| out.insert(name.to_owned(), value);
    match found {
        Err(error) => {
            put("pci", json!(address));
            put("failed", failure(&error));
        }
        Ok(device) => {
            put("pci", json!(device.pci().ok().or(address.cloned())));
            put("uuid", json!(device.uuid().ok()));
            put("name", json!(device.name().ok()));
            put("memory", memory(&device));
            put("capability", json!(device.capability().ok()));
            put("display", json!(device.display().ok()));
            let slices = (0..device.slice_count().min(MAX_SLICES)).filter_map(|index| device.slice(index).ok());
            let slices = slices
                .map(|slice| json!({ "uuid": slice.uuid().ok(), "name": slice.name().ok(), "memory": memory(&slice) }));
            put("mig", Value::Array(slices.collect()));
        }
    }
    Value::Object(out)
}
