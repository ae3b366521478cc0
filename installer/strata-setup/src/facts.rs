//! From the detector's host facts to what the planner takes.

use crate::outcome::Outcome;
use std::path::{Path, PathBuf};
use strata_diag::Diagnostic;
use strata_diag::catalogue::general::FILE_UNREADABLE;
use strata_install::plan::fit::Memory;
use strata_install::plan::machine::{DeviceState, Machine, MachineDevice, Vendor};
use strata_manifest::HostFacts;
use strata_manifest::facts::{GpuFacts, GpuState, GpuVendor};
use strata_probe::{Helper, Options, Root, probe};

/// Facts of a machine, and the planner's view of them.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) host: HostFacts,
    pub(crate) machine: Machine,
}

/// Looks at this machine, or at the copy of another one's files below `root`.
pub(crate) fn machine(root: Option<&Path>) -> Outcome<Facts> {
    let root = match root {
        None => Root::live(),
        Some(path) if path.is_dir() => Root::at(path),
        Some(path) => {
            return Err(Diagnostic::new(FILE_UNREADABLE, format!("`{}` is no folder", path.display())).into());
        }
    };
    let nvml = if root.is_live() { companion().map(|strata| Helper::nvml(&strata)) } else { None };
    let host = probe(&root, &Options { nvml, ..Options::default() });
    Ok(Facts { machine: view(&host), host })
}

/// The program `strata` of the package that this program came in.
fn companion() -> Option<PathBuf> {
    let own = fs_err::canonicalize(std::env::current_exe().ok()?).ok()?;
    Some(own.with_file_name("strata")).filter(|path| path.is_file())
}

/// The planner's view of host facts.
pub(crate) fn view(host: &HostFacts) -> Machine {
    let sources = host.sources.iter().map(|source| format!("{} ({})", source.name, source.result));
    Machine {
        os: host.os.name.clone(),
        cpu_arch: host.cpu.arch.clone(),
        libc: host.os.libc.clone(),
        ram_bytes: host.memory.usable(),
        devices: host.gpus.iter().map(device).collect(),
        looked_at: sources.collect(),
    }
}

fn device(gpu: &GpuFacts) -> MachineDevice {
    let mut other_ids: Vec<String> = gpu.unique_id.iter().cloned().collect();
    other_ids.extend(gpu.mig.iter().map(|slice| slice.uuid.clone()));
    let mut evidence = gpu.evidence.join("; ");
    let hidden = !gpu.visible && gpu.state == GpuState::Usable;
    if hidden {
        evidence = format!("a variable of the environment hides it ({evidence})");
    }
    // A slice is what a program gets of a divided card.
    let slices = gpu.mig.iter().filter(|slice| slice.visible);
    let memory_bytes =
        if gpu.mig.is_empty() { gpu.memory.total } else { slices.map(|slice| slice.memory).max().flatten() };
    MachineDevice {
        uid: gpu.pci.clone().or_else(|| gpu.unique_id.clone()).unwrap_or_else(|| "no address".to_owned()),
        other_ids,
        vendor: match gpu.vendor {
            GpuVendor::Amd => Vendor::Amd,
            GpuVendor::Nvidia => Vendor::Nvidia,
            GpuVendor::Intel => Vendor::Intel,
            GpuVendor::Other => Vendor::Other,
        },
        name: gpu.name.clone(),
        target: gpu.target.clone(),
        state: match gpu.state {
            _ if hidden => DeviceState::Undetermined,
            GpuState::DriverMissing => DeviceState::DriverMissing,
            GpuState::NoPermission => DeviceState::NoPermission,
            GpuState::DriverMismatched => DeviceState::DriverMismatched,
            GpuState::Usable => DeviceState::Usable,
            GpuState::Undetermined | GpuState::Absent => DeviceState::Undetermined,
        },
        evidence,
        advice: if hidden {
            Some("unset the variable that hides it; `strata-setup detect` names it".to_owned())
        } else {
            gpu.advice.clone()
        },
        memory_bytes,
        display: gpu.display == Some(true),
    }
}

/// Memory that a model can count on when every usable GPU is used.
pub(crate) fn memory(machine: &Machine) -> Memory {
    let usable = |device: &&MachineDevice| {
        device.state == DeviceState::Usable && device.vendor.backend().is_some() && device.target.is_some()
    };
    let sizes: Vec<Option<u64>> = machine.devices.iter().filter(usable).map(|device| device.memory_bytes).collect();
    Memory { ram: machine.ram_bytes, vram: sizes.iter().copied().sum(), gpus: sizes.len() as u64 }
}
