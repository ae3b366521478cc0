//! An open card as the SDK wants it.

use std::sync::Arc;

use strata_backend_sdk::abi::StrataBufferKind;
use strata_backend_sdk::{Device, Failure, MemoryInfo, ProgramInfo, ProgramView, Result};

use crate::driver::{Driver, Pinned};
use crate::event::Event;
use crate::kernels::{KernelTable, Module, held};
use crate::memory::{Buffer, Core, Place, Staging, late};
use crate::program::Program;
use crate::support;

/// What a card is opened with.
#[derive(Debug, Clone, Copy)]
pub struct OpenSettings {
    /// Bytes of device memory that must stay free.
    pub reserve_bytes: u64,
    /// The plugin's kernels.
    pub modules: &'static [Module],
}

/// A card, its kernels and its transfers.
#[derive(Debug)]
pub struct GpuDevice<D: Driver> {
    core: Arc<Core<D>>,
    kernels: Arc<KernelTable>,
    staging: Staging<D>,
    /// Name of the program that ran last, for errors that show late.
    last: String,
    image: String,
}

impl<D: Driver> GpuDevice<D> {
    /// Opens what the driver has opened.
    ///
    /// # Errors
    /// No kernel for this card, or the driver refuses memory.
    pub fn open(driver: D, settings: &OpenSettings) -> Result<GpuDevice<D>> {
        let card = driver.card().clone();
        let target = held(settings.modules, &card.name, &card.arch)?;
        let core = Arc::new(Core::new(driver, settings.reserve_bytes));
        let staging = Staging::new(&core)?;
        let kernels = Arc::new(KernelTable::new(settings.modules, &card.arch));
        Ok(GpuDevice { core, kernels, staging, last: String::new(), image: target.to_owned() })
    }
}

impl<D: Driver> Drop for GpuDevice<D> {
    fn drop(&mut self) {
        self.staging.close(&self.core);
    }
}

impl<D: Driver> Device for GpuDevice<D> {
    type Buffer = Buffer<D>;
    type Program = Program<D>;
    type Event = Event<D>;

    const CAN_MAP: bool = true;
    const HAS_EVENTS: bool = true;

    fn memory(&self) -> Result<MemoryInfo> {
        let memory = self.core.driver.memory();
        let (free, total) = memory.map_err(|error| self.core.failure("asking for the free memory", &error))?;
        Ok(MemoryInfo { total, free, used_here: self.core.used() })
    }

    fn report(&self) -> String {
        let card = self.core.driver.card();
        format!("{}, {} {}; kernels {}", card.arch, card.n_units, card.unit, self.image)
    }

    fn synchronize(&mut self) -> Result<()> {
        self.core.driver.synchronize().map_err(|error| late(&self.core, &self.last, &error))
    }

    fn op_supported(&self, program: &ProgramView<'_>, op: usize) -> Result<()> {
        support::check(program, op, &self.kernels)
    }

    fn buffer_alloc(&mut self, kind: StrataBufferKind, bytes: u64, label: &str) -> Result<Buffer<D>> {
        if kind == StrataBufferKind::Device {
            return Ok(Buffer(Place::Device(self.core.take(bytes, label)?)));
        }
        let size = usize::try_from(bytes.max(1)).map_err(|_| Failure::host_bug("a buffer past the address space"))?;
        let pinned = self.core.driver.pin(size);
        let failed = |error| self.core.failure(&format!("taking {bytes} bytes of pinned memory for {label}"), &error);
        Ok(Buffer(Place::Host(pinned.map_err(failed)?)))
    }

    fn buffer_write(&mut self, buffer: &Buffer<D>, offset: u64, data: &[u8]) -> Result<()> {
        match &buffer.0 {
            Place::Device(block) => self.staging.write(&self.core, block.address + offset, data),
            Place::Host(pinned) => {
                self.core.driver.synchronize().map_err(|error| late(&self.core, &self.last, &error))?;
                pinned.write(offset as usize, data);
                Ok(())
            }
        }
    }

    fn buffer_read(&mut self, buffer: &Buffer<D>, offset: u64, out: &mut [u8]) -> Result<()> {
        match &buffer.0 {
            Place::Device(block) => self.staging.read(&self.core, block.address + offset, out),
            Place::Host(pinned) => {
                self.core.driver.synchronize().map_err(|error| late(&self.core, &self.last, &error))?;
                pinned.read(offset as usize, out);
                Ok(())
            }
        }
    }

    fn buffer_copy(
        &mut self,
        target: &Buffer<D>,
        target_offset: u64,
        source: &Buffer<D>,
        source_offset: u64,
        bytes: u64,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let copied = self.core.driver.copy(target.address() + target_offset, source.address() + source_offset, bytes);
        copied.map_err(|error| self.core.failure(&format!("copying {bytes} bytes"), &error))
    }

    fn buffer_map(&mut self, buffer: &Buffer<D>) -> Result<*mut u8> {
        match &buffer.0 {
            Place::Host(pinned) => Ok(pinned.pointer()),
            Place::Device(_) => Err(Failure::unsupported("device memory has no address on the host")),
        }
    }

    fn program_compile(&mut self, program: &ProgramView<'_>, buffers: &[Arc<Buffer<D>>]) -> Result<Program<D>> {
        for op in 0..program.ops.len() {
            support::check(program, op, &self.kernels)?;
        }
        Program::compile(&self.core, &self.kernels, program, buffers)
    }

    fn program_info(&self, program: &Program<D>) -> ProgramInfo {
        program.info()
    }

    fn program_run(
        &mut self,
        program: &mut Program<D>,
        scalars: &[i64],
        _wait: &[&Event<D>],
        signal: Option<&Event<D>>,
    ) -> Result<()> {
        if self.last != program.name() {
            program.name().clone_into(&mut self.last);
        }
        // There is one stream: what the run was told to wait for is in front of it.
        program.run(scalars)?;
        signal.map_or(Ok(()), Event::record)
    }

    fn event_create(&mut self) -> Result<Event<D>> {
        Event::new(&self.core)
    }

    fn event_query(event: &Event<D>) -> Result<bool> {
        event.is_reached()
    }

    fn event_wait(event: &Event<D>) -> Result<()> {
        event.wait()
    }
}
