//! From the detector's host facts to what the planner takes.

use crate::outcome::Outcome;
use std::path::Path;
use strata_install::plan::fit::Memory;
use strata_install::plan::machine::{DeviceState, Machine};

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

/// Memory that a model can count on when every usable GPU is used.
pub(crate) fn memory(machine: &Machine) -> Memory {
    let usable = |device: &&strata_install::plan::machine::MachineDevice| {
        device.state == DeviceState::Usable && device.vendor.backend().is_some() && device.target.is_some()
    };
    let sizes: Vec<Option<u64>> = machine.devices.iter().filter(usable).map(|device| device.memory_bytes).collect();
    Memory { ram: machine.ram_bytes, vram: sizes.iter().copied().sum(), gpus: sizes.len() as u64 }
}
