//! What the detector's facts mean for a user: a GPU that Strata has kernels for and that cannot be
//! used is wrong, one that it has none for is a note.

use super::{Check, Level, size};
use crate::device::Entries;
use crate::{env, instances};
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use strata_diag::Diagnostic;
use strata_manifest::HostFacts;
use strata_manifest::facts::{GpuFacts, GpuState};

/// Less free space than this stops a download of any model worth running.
const FREE_DISK: u64 = 2 << 30;

pub(super) fn checks(host: &HostFacts) -> Vec<Check> {
    let mut checks = vec![system(host), processor(host), memory(host)];
    checks.extend(host.disks.iter().map(|disk| {
        let level = if disk.free < FREE_DISK { Level::Note } else { Level::Fine };
        let text = format!("{}: {} free of {}", disk.path, size(disk.free), size(disk.total));
        Check::new("disk", level, text)
    }));
    checks.extend(host.gpus.iter().map(gpu));
    if host.gpus.is_empty() {
        let mut none = Check::new("gpu", Level::Note, "none was found");
        none.details = host.sources.iter().map(|source| format!("{}: {}", source.name, source.result)).collect();
        checks.push(none);
    }
    for mask in &host.masks {
        checks.push(Check::new("gpu", Level::Note, format!("{}={}: {}", mask.variable, mask.value, mask.effect)));
    }
    for source in host.sources.iter().filter(|source| source.failed && !host.gpus.is_empty()) {
        checks.push(Check::new("gpu", Level::Note, format!("{} gave nothing: {}", source.name, source.result)));
    }
    checks
}

fn system(host: &HostFacts) -> Check {
    let os = &host.os;
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let name = os.distribution.clone().unwrap_or_else(|| os.name.clone());
    let mut text = format!("{name}, kernel {}, glibc {}", known(&os.kernel), known(&os.libc));
    // Writing to a String cannot fail.
    if let Some(container) = &os.container {
        let _ = write!(text, ", in a container ({container})");
    }
    if os.wsl {
        text += ", WSL";
    }
    Check::new("system", Level::Fine, text)
}

fn processor(host: &HostFacts) -> Check {
    let cpu = &host.cpu;
    let mut text = cpu.model.clone().unwrap_or_else(|| cpu.arch.clone());
    // Writing to a String cannot fail.
    if let Some(level) = &cpu.isa_level {
        let _ = write!(text, " ({level})");
    }
    let numbers = [("physical cores", cpu.physical_cores), ("CPUs", cpu.logical_cpus), ("usable", cpu.usable_cpus)];
    for (name, number) in numbers {
        if let Some(number) = number {
            let _ = write!(text, ", {number} {name}");
        }
    }
    let mut check = Check::new("processor", Level::Fine, text);
    if let Some(quota) = cpu.quota {
        check = check.detail(format!("the control groups allow {quota:.1} CPUs"));
    }
    if let Some(efficiency) = cpu.efficiency_cpus {
        check = check.detail(format!("{efficiency} of its CPUs are efficiency cores"));
    }
    check
}

fn memory(host: &HostFacts) -> Check {
    let memory = &host.memory;
    let known = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), size);
    let check =
        Check::new("memory", Level::Fine, format!("{}, {} available", known(memory.total), known(memory.available)));
    match memory.limit {
        Some(limit) => check.detail(format!("the control groups allow {}", size(limit))),
        None => check,
    }
}

fn gpu(gpu: &GpuFacts) -> Check {
    let state = match gpu.state {
        GpuState::DriverMissing => "its driver is missing",
        GpuState::NoPermission => "this user may not use it",
        GpuState::DriverMismatched => "its driver does not fit",
        GpuState::Usable => "usable",
        GpuState::Undetermined | GpuState::Absent => "its state cannot be told",
    };
    let level = match (&gpu.plugin, gpu.state) {
        (Some(_), GpuState::Usable) if gpu.visible => Level::Fine,
        // Who hides a device wants it so; and a card without kernels would not run with a driver either.
        (Some(_), _) if gpu.visible => Level::Wrong,
        _ => Level::Note,
    };
    let place = gpu.pci.as_deref().or(gpu.unique_id.as_deref()).unwrap_or("no address");
    let target = gpu.target.as_deref().unwrap_or("target unknown");
    let hidden = if gpu.visible { "" } else { ", hidden by a variable" };
    let mut check = Check::new("gpu", level, format!("{} at {place} ({target}{hidden}): {state}", gpu.name));
    check.details.clone_from(&gpu.evidence);
    if let Some(driver) = &gpu.driver {
        check.details.push(format!("driver {driver}"));
    }
    if let Some(total) = gpu.memory.total {
        let shared = if gpu.memory.shared { ", shared with the machine" } else { "" };
        check.details.push(format!("memory {}{shared}", size(total)));
    }
    check.details.push(match &gpu.plugin {
        Some(plugin) => format!("plugin {plugin} is for it"),
        None => "no plugin is for it: models run on the CPU".to_owned(),
    });
    check.to_do.clone_from(&gpu.advice);
    check
}

/// Where the program keeps what it learns. Nothing is written to find out.
pub(super) fn state() -> Check {
    let Some(folder) = env::state_dir() else {
        return Check::new(
            "state",
            Level::Note,
            "neither STRATA_STATE_DIR nor HOME says where to keep what is learned",
        );
    };
    let place = folder.display();
    let there = folder.ancestors().find(|folder| folder.exists());
    let may_write = there.is_some_and(|there| {
        there.is_dir() && rustix::fs::access(there, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok()
    });
    if may_write {
        return Check::new("state", Level::Fine, format!("{place} can be written"));
    }
    Check::new("state", Level::Note, format!("{place} cannot be written by this user"))
        .detail("every start tries plugins anew, `strata ps` lists no servers, the chat keeps no history")
        .advise("name a folder that can be written in the variable STRATA_STATE_DIR")
}

/// Whether a server could have this port, or who has it.
pub(super) fn port(port: u16) -> Check {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let of_ours = instances::running().into_iter().find(|one| one.port() == Some(port.to_string().as_str()));
    if let Some(server) = of_ours {
        let text =
            format!("{}: `strata serve` answers there with {} (pid {})", server.address, server.model, server.pid);
        return Check::new("port", Level::Fine, text);
    }
    match strata_server::try_address(address) {
        Ok(()) => Check::new("port", Level::Fine, format!("{address} is free")),
        Err(error) => {
            let mut check = Check::failed("port", "`strata serve`", &Diagnostic::of(&error));
            // Another port does as well.
            check.level = Level::Note;
            check
        }
    }
}

/// Usable GPUs whose plugin is not installed.
pub(super) fn without_plugin(host: &HostFacts, entries: &Entries) -> Vec<Check> {
    let mut missing: Vec<&str> = host
        .gpus
        .iter()
        .filter(|gpu| gpu.visible && gpu.state == GpuState::Usable)
        .filter_map(|gpu| gpu.plugin.as_deref())
        .filter(|plugin| !entries.iter().any(|(name, _)| name == plugin))
        .collect();
    missing.sort_unstable();
    missing.dedup();
    let check = |plugin: &str| {
        let backend = plugin.split('-').next().unwrap_or(plugin);
        Check::new("plugin", Level::Wrong, format!("{plugin} is for a GPU of this machine and is not installed"))
            .advise(format!("`strata-setup --backend {backend}` installs it, where the release holds it"))
    };
    missing.into_iter().map(check).collect()
}
