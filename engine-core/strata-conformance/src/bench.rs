//! Running cases on a plugin's devices, through the plugin host like the product does.

use crate::case::{Case, Place};
use crate::memory::Memory;
use std::sync::Arc;
use strata_backend_abi::StrataBufferKind;
use strata_plugin_host::{
    Buffer, Device, DeviceOptions, HostMemory, Plugin, PluginError, Program, ProgramSpec, Support,
};

/// A plugin's device, opened with one thread, two and three.
#[derive(Debug)]
pub struct Bench {
    devices: Vec<Device>,
    /// As asked for; empty for the plugin's best.
    pub variant: String,
    pub backend: String,
}

/// Why a case gave no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    Unsupported(String),
    Failed(String),
}

impl From<PluginError> for Stop {
    fn from(error: PluginError) -> Stop {
        Stop::Failed(error.to_string())
    }
}

/// Thread counts that must agree.
pub(crate) const THREADS: [u32; 3] = [2, 1, 3];

impl Bench {
    pub fn open(plugin: &Plugin, device: u32, variant: &str) -> Result<Bench, PluginError> {
        let open = |n_threads| {
            let options = DeviceOptions { n_threads, reserve_bytes: 0, variant: variant.to_owned() };
            plugin.open_device(device, &options)
        };
        let devices = THREADS.into_iter().map(open).collect::<Result<_, _>>()?;
        Ok(Bench { devices, variant: variant.to_owned(), backend: plugin.name().to_owned() })
    }

    /// The device that values are checked on.
    pub fn device(&self) -> &Device {
        &self.devices[0]
    }

    /// The same device with other thread counts.
    pub fn others(&self) -> impl Iterator<Item = (u32, &Device)> {
        THREADS.into_iter().zip(&self.devices).skip(1)
    }
}

/// Host memory whose first byte lies on a page, as a mapped model file does.
struct Mapped {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Mapped {
    const PAGE: usize = 4096;

    fn new(contents: &[u8]) -> Mapped {
        let mut bytes = vec![0; contents.len() + Mapped::PAGE];
        let start = bytes.as_ptr().align_offset(Mapped::PAGE);
        bytes[start..start + contents.len()].copy_from_slice(contents);
        Mapped { bytes, start, len: contents.len() }
    }
}

impl HostMemory for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

/// A case's buffers on a device.
#[derive(Debug)]
pub(crate) struct Loaded<'a> {
    device: &'a Device,
    buffers: Vec<Buffer>,
}

impl<'a> Loaded<'a> {
    /// Asks whether every op is supported, then makes the buffers and fills them.
    pub(crate) fn new(device: &'a Device, case: &Case, memory: &Memory) -> Result<Loaded<'a>, Stop> {
        let program = spec(case);
        for (index, op) in program.ops.iter().enumerate() {
            if let Support::No(reason) = device.supports(&program, index)? {
                return Err(Stop::Unsupported(format!("op {index} of kind {}: {reason}", op.kind)));
            }
        }
        let mut buffers = Vec::new();
        for (storage, bytes) in case.storages.iter().zip(&memory.buffers) {
            let imported = if case.import_weights && storage.place == Place::Weights {
                device.import(Arc::new(Mapped::new(bytes)))?
            } else {
                None
            };
            buffers.push(match imported {
                Some(buffer) => buffer,
                None => device.alloc(StrataBufferKind::Device, bytes.len() as u64, label(storage.place))?,
            });
        }
        let loaded = Loaded { device, buffers };
        loaded.write(memory)?;
        Ok(loaded)
    }

    /// Puts `memory` into the buffers again.
    pub(crate) fn write(&self, memory: &Memory) -> Result<(), Stop> {
        for (buffer, bytes) in self.buffers.iter().zip(&memory.buffers) {
            if !buffer.is_imported() {
                buffer.write(0, bytes)?;
            }
        }
        Ok(())
    }

    pub(crate) fn compile(&self, case: &Case) -> Result<Program, Stop> {
        Ok(self.device.compile(&spec(case), &self.buffers)?)
    }

    /// Runs and returns what all buffers hold afterwards.
    pub(crate) fn run(&self, program: &mut Program, case: &Case) -> Result<Memory, Stop> {
        program.run(&case.scalars)?;
        self.device.synchronize()?;
        let mut buffers = Vec::new();
        for buffer in &self.buffers {
            let mut bytes = vec![0; buffer.len() as usize];
            buffer.read(0, &mut bytes)?;
            buffers.push(bytes);
        }
        Ok(Memory { buffers })
    }
}

/// Load, compile, run once.
pub(crate) fn run(device: &Device, case: &Case, memory: &Memory) -> Result<Memory, Stop> {
    let loaded = Loaded::new(device, case, memory)?;
    let mut program = loaded.compile(case)?;
    loaded.run(&mut program, case)
}

fn label(place: Place) -> &'static str {
    match place {
        Place::Weights => "weights",
        Place::Scratch => "scratch",
        Place::Cache => "kv",
    }
}

pub(crate) fn spec(case: &Case) -> ProgramSpec {
    ProgramSpec {
        name: case.name.clone(),
        precise: case.precise,
        tensors: case.tensors.clone(),
        ops: case.ops.clone(),
        scalar_max: case.scalar_max.to_vec(),
    }
}
