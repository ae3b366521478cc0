//! `strata ps`: the servers that run on this machine.

use crate::instances::{self, Instance};
use crate::outcome::Outcome;
use crate::printer;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};
use strata_diag::ExitStatus;
use strata_manifest::report::{InstanceReport, PsReport};

pub(crate) fn run(json: bool) -> Outcome {
    let running = instances::running();
    if json {
        let servers = running.iter().map(report).collect();
        printer::document(&PsReport { schema: "strata-ps/1.0", servers })?;
        return Ok(ExitStatus::Done);
    }
    if running.is_empty() {
        printer::talk("no server runs; `strata serve MODEL` starts one");
        return Ok(ExitStatus::Done);
    }
    let mut text = format!("{:<8} {:<22} {:<8} {:<10} MODEL\n", "PID", "ADDRESS", "BACKEND", "UP");
    for instance in &running {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<8} {:<22} {:<8} {:<10} {}",
            instance.pid,
            instance.address,
            instance.backend,
            duration(seconds_up(instance)),
            instance.model
        );
    }
    printer::data(&text)?;
    Ok(ExitStatus::Done)
}

fn seconds_up(instance: &Instance) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    now.saturating_sub(instance.since)
}

fn report(instance: &Instance) -> InstanceReport {
    InstanceReport {
        pid: instance.pid,
        model: instance.model.clone(),
        address: instance.address.clone(),
        backend: instance.backend.clone(),
        version: instance.version.clone(),
        seconds_up: seconds_up(instance),
    }
}

/// `3d 4h`, `5h 2m`, `12m 3s`, `8s`.
fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}
