//! `strata stop`: asks servers of this machine to end, and waits until they have. A server ends the
//! requests that it is answering first.

use crate::cli::StopArgs;
use crate::instances::{self, Instance};
use crate::outcome::Outcome;
use crate::printer;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};
use strata_diag::catalogue::engine::{NOT_RUNNING, STILL_RUNNING};
use strata_diag::{Diagnostic, ExitStatus};

/// Between two looks at whether a process is still there.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &StopArgs) -> Outcome {
    let running = instances::running();
    let chosen = choose(&running, args)?;
    for instance in &chosen {
        signal(instance, Signal::TERM)?;
    }
    let end = Instant::now() + Duration::from_secs(args.timeout);
    for instance in &chosen {
        if wait(instance, end) {
            printer::talk(&format!("stopped {} at {} (pid {})", instance.model, instance.address, instance.pid));
            continue;
        }
        if !args.force {
            return Err(Diagnostic::new(STILL_RUNNING, format!("pid {} did not end in time", instance.pid))
                .fact("address", &instance.address)
                .fact("seconds", args.timeout)
                .hint(format!("`strata stop {} --force` ends it without waiting for its answers", instance.pid))
                .into());
        }
        signal(instance, Signal::KILL)?;
        wait(instance, Instant::now() + Duration::from_secs(5));
        printer::talk(&format!("ended {} at {} (pid {}) by force", instance.model, instance.address, instance.pid));
    }
    Ok(ExitStatus::Done)
}

/// All, the one that is named, or the only one.
fn choose(running: &[Instance], args: &StopArgs) -> Result<Vec<Instance>, Diagnostic> {
    let list = || running.iter().map(|one| format!("{} ({}, {})", one.pid, one.address, one.model)).collect::<Vec<_>>();
    let nothing = |message: String| {
        let diagnostic = Diagnostic::new(NOT_RUNNING, message);
        let diagnostic = list().iter().fold(diagnostic, |diagnostic, one| diagnostic.fact("running", one));
        diagnostic.hint("`strata ps` lists the servers that run")
    };
    let Some(name) = args.server.as_deref().filter(|_| !args.all) else {
        return match running {
            [] => Err(nothing("no server runs".to_owned())),
            [_, _, ..] if !args.all => Err(nothing("several servers run, say which one or `--all`".to_owned())),
            all => Ok(all.to_vec()),
        };
    };
    let is_meant = |one: &&Instance| {
        one.pid.to_string() == name || one.port() == Some(name) || one.address == name || one.model == name
    };
    let chosen: Vec<Instance> = running.iter().filter(is_meant).cloned().collect();
    match chosen.len() {
        0 => Err(nothing(format!("no server is `{name}`"))),
        1 => Ok(chosen),
        n => Err(nothing(format!("`{name}` means {n} servers, say which pid or port"))),
    }
}

fn signal(instance: &Instance, signal: Signal) -> Result<(), Diagnostic> {
    // Asked again just before: a number may have passed to another process.
    let pid = i32::try_from(instance.pid).ok().and_then(Pid::from_raw).filter(|_| instance.is_running());
    let Some(pid) = pid else { return Ok(()) };
    match kill_process(pid, signal) {
        Err(error) if instance.is_running() => {
            Err(Diagnostic::new(STILL_RUNNING, format!("pid {} cannot be asked to end", instance.pid))
                .fact("because", error))
        }
        _ => Ok(()),
    }
}

/// Whether it has ended by then.
fn wait(instance: &Instance, end: Instant) -> bool {
    while instance.is_running() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}
