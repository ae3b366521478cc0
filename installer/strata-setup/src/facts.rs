//! From the detector's host facts to what the planner takes.

use crate::outcome::Outcome;
use std::path::Path;
use strata_install::plan::machine::Machine;

/// Facts of this machine, and the planner's view of them.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) machine: Machine,
}

// TEMPORARY until strata-probe is there.
pub(crate) fn machine(_root: Option<&Path>) -> Outcome<Facts> {
    Ok(Facts {
        machine: Machine {
            os: "linux".to_owned(),
            cpu_arch: std::env::consts::ARCH.to_owned(),
            libc: None,
            ram_bytes: Some(16 << 30),
            devices: Vec::new(),
            looked_at: vec!["/sys/class/kfd".to_owned()],
        },
    })
}
