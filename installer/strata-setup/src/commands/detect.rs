//! `strata-setup detect`: what this machine has, with evidence, and what would run on it.

use crate::cli::DetectArgs;
use crate::context::Context;
use crate::facts;
use crate::outcome::Outcome;
use std::fmt::Write;
use strata_diag::ExitStatus;
use strata_install::bytes;
use strata_install::plan::machine::DeviceState;
use strata_manifest::HostFacts;
use strata_manifest::facts::{GpuFacts, GpuState};

pub(crate) fn run(context: &Context, args: &DetectArgs) -> Outcome {
    let facts = facts::machine(args.root.as_deref())?;
    context.answer(&text(&facts.host, context.common.verbose), &facts.host)?;
    Ok(ExitStatus::Done)
}

fn text(host: &HostFacts, verbose: bool) -> String {
    let mut out = String::new();
    let unknown = || "unknown".to_owned();
    let os = &host.os;
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "system: {}, kernel {}, glibc {}{}{}",
        os.distribution.clone().unwrap_or_else(|| os.name.clone()),
        os.kernel.clone().unwrap_or_else(unknown),
        os.libc.clone().unwrap_or_else(unknown),
        os.container.as_ref().map(|name| format!(", in a container ({name})")).unwrap_or_default(),
        if os.wsl { ", WSL" } else { "" }
    );
    let cpu = &host.cpu;
    let number = |value: Option<u64>| value.map_or_else(unknown, |value| value.to_string());
    let _ = writeln!(
        out,
        "processor: {} ({}), {} cores, {} CPUs, {} usable{}{}",
        cpu.model.clone().unwrap_or_else(|| cpu.arch.clone()),
        cpu.isa_level.clone().unwrap_or_else(unknown),
        number(cpu.physical_cores),
        number(cpu.logical_cpus),
        number(cpu.usable_cpus),
        cpu.quota.map(|quota| format!(", limited to {quota:.1}")).unwrap_or_default(),
        cpu.efficiency_cpus.map(|count| format!(", {count} of them efficiency cores")).unwrap_or_default()
    );
    let memory = &host.memory;
    let limit = memory.limit.map(|limit| format!(", limited to {}", bytes(limit))).unwrap_or_default();
    let _ = writeln!(out, "memory: {}{limit}", memory.total.map_or_else(unknown, bytes));
    for disk in &host.disks {
        let kind = match disk.rotational {
            Some(true) => ", spinning",
            Some(false) => ", solid state",
            None => "",
        };
        let _ = writeln!(out, "disk at {}: {} free of {}{kind}", disk.path, bytes(disk.free), bytes(disk.total));
    }
    for (index, gpu) in host.gpus.iter().enumerate() {
        device(&mut out, index, gpu);
    }
    if host.gpus.is_empty() {
        out += "GPU: none found\n";
    }
    for backend in host.backends.iter().filter(|backend| backend.state == GpuState::Absent) {
        let (vendor, target) = if backend.backend == "hip" { ("AMD", "gfx906") } else { ("NVIDIA", "sm_90") };
        let _ = writeln!(
            out,
            "{}: absent: no {vendor} GPU is here; for one that is not: `--target {target}` and the like",
            backend.backend
        );
    }
    for mask in &host.masks {
        let _ = writeln!(out, "{}={}: {}", mask.variable, mask.value, mask.effect);
    }
    for source in host.sources.iter().filter(|source| verbose || source.failed || host.gpus.is_empty()) {
        let mark = if source.failed { "failed" } else { "looked at" };
        let _ = writeln!(out, "{mark}: {}: {}", source.name, source.result);
    }
    out
}

fn device(out: &mut String, index: usize, gpu: &GpuFacts) {
    let state = match gpu.state {
        GpuState::DriverMissing => DeviceState::DriverMissing,
        GpuState::NoPermission => DeviceState::NoPermission,
        GpuState::DriverMismatched => DeviceState::DriverMismatched,
        GpuState::Usable => DeviceState::Usable,
        GpuState::Undetermined | GpuState::Absent => DeviceState::Undetermined,
    };
    let place = gpu.pci.as_deref().or(gpu.unique_id.as_deref()).unwrap_or("no address");
    let target = gpu.target.as_deref().unwrap_or("target unknown");
    let memory = match (gpu.memory.total, gpu.memory.shared) {
        (Some(total), true) => format!(", {} shared with the machine", bytes(total)),
        (Some(total), false) => format!(", {}", bytes(total)),
        (None, _) => ", memory unknown".to_owned(),
    };
    let display = if gpu.display == Some(true) { ", drives a screen" } else { "" };
    let hidden = if gpu.visible { "" } else { ", hidden" };
    let asleep = if gpu.asleep { ", asleep" } else { "" };
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "GPU {index}: {} at {place} ({target}{memory}{display}{asleep}{hidden}): {}",
        gpu.name,
        state.word()
    );
    if let Some(link) = &gpu.link {
        let most = link.max_width.map(|width| format!(" of x{width}")).unwrap_or_default();
        let _ = writeln!(out, "  link: x{}{most}, {}", link.width, link.speed);
    }
    let plugin = match (&gpu.plugin, &gpu.target) {
        (Some(plugin), _) => format!("plugin {plugin}"),
        (None, Some(target)) => format!("no plugin is for {target}: models run on the CPU"),
        (None, None) => "no plugin can be named: models run on the CPU".to_owned(),
    };
    let _ = writeln!(out, "  {plugin}");
    for line in &gpu.evidence {
        let _ = writeln!(out, "  seen: {line}");
    }
    if let Some(advice) = &gpu.advice {
        let _ = writeln!(out, "  to do: {advice}");
    }
    for slice in &gpu.mig {
        let size = slice.memory.map_or("memory unknown".to_owned(), bytes);
        let hidden = if slice.visible { "" } else { ", hidden" };
        let _ = writeln!(out, "  slice {} ({}, {size}{hidden})", slice.uuid, slice.profile);
    }
}
