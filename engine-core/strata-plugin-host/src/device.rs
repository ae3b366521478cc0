//! An open device and its buffers, programs and events: what the engine and the conformance kit
//! hold. Checks every argument before it reaches the plugin, so that a plugin may assume valid
//! ones. It decides nothing about which device is used (select.rs) and does not look inside a
//! program (validate.rs).
//!
//! All of these are handles that may be cloned or sent to other threads; calls on one device are
//! put one after another by its lock.

use crate::raw::{Desc, RawBuffer, RawDevice, RawEvent, RawProgram};
use crate::validate::{self, validate};
use crate::{PluginError, ProgramSpec, Support};
use std::fmt;
use std::sync::Arc;
use strata_backend_abi::{
    STRATA_DEVICE_DISPLAY, STRATA_DEVICE_HOST_MEMORY, STRATA_DEVICE_UNPROVEN, STRATA_PROGRAM_PRECISE, StrataBufferKind,
    StrataDeviceKind, StrataScalar,
};

/// What a plugin says about a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The plugin's own number for it; valid in this process only.
    pub index: u32,
    pub kind: StrataDeviceKind,
    /// `STRATA_DEVICE_*`.
    pub flags: u32,
    /// Marketing name.
    pub name: String,
    /// What kernels are chosen by: `x86-64 avx2 fma f16c`, `sm_90`, `gfx906`.
    pub arch: String,
    /// Identity that survives a reboot.
    pub uid: String,
    /// Driver and its version, empty for the CPU.
    pub driver: String,
    /// Bytes.
    pub memory_total: u64,
    /// Bytes.
    pub memory_free: u64,
}

impl DeviceInfo {
    /// Importing host memory costs nothing: the device computes in it.
    pub fn is_host_memory(&self) -> bool {
        self.flags & STRATA_DEVICE_HOST_MEMORY != 0
    }

    pub fn drives_display(&self) -> bool {
        self.flags & STRATA_DEVICE_DISPLAY != 0
    }

    /// No device of this kind has run this plugin yet.
    pub fn is_unproven(&self) -> bool {
        self.flags & STRATA_DEVICE_UNPROVEN != 0
    }
}

/// How a device is opened. `Default` leaves everything to the plugin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceOptions {
    /// CPU: worker threads, the calling one included; 0: one per usable physical core.
    pub n_threads: u32,
    /// Bytes of device memory that must stay free.
    pub reserve_bytes: u64,
    /// Kernel variant instead of the best one, empty for the best.
    pub variant: String,
}

/// Memory of a device, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    pub total: u64,
    pub free: u64,
    /// Taken by this plugin on this device.
    pub used_here: u64,
}

/// What a compiled program costs beside the host's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProgramInfo {
    /// Launches of one run, 0 when the plugin has no such notion.
    pub n_launches: u32,
    pub workspace_bytes: u64,
    pub constant_bytes: u64,
}

/// Memory of the host that a device may read in place, such as a mapped model file. The bytes
/// must not change while a buffer made from it lives.
pub trait HostMemory: Send + Sync {
    fn bytes(&self) -> &[u8];
}

impl HostMemory for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// An open device. Closed when the last clone and everything on it is dropped.
#[derive(Clone)]
pub struct Device {
    raw: Arc<RawDevice>,
    info: Arc<DeviceInfo>,
}

impl Device {
    pub(crate) fn new(raw: RawDevice, info: DeviceInfo) -> Device {
        Device { raw: Arc::new(raw), info: Arc::new(info) }
    }

    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Name of the plugin.
    pub fn plugin(&self) -> &str {
        self.raw.table().plugin()
    }

    pub fn memory(&self) -> Result<MemoryInfo, PluginError> {
        let (total, free, used_here) = self.raw.memory()?;
        Ok(MemoryInfo { total, free, used_here })
    }

    /// What the plugin chose when it opened the device and why, one line; empty when it does not say.
    pub fn report(&self) -> String {
        self.raw.report().unwrap_or_else(|error| format!("no report: {error}"))
    }

    /// Waits until all work given to the device is done.
    pub fn synchronize(&self) -> Result<(), PluginError> {
        self.raw.synchronize()
    }

    /// Takes memory whose contents are undefined at first. `bytes` is at least 1.
    pub fn alloc(&self, kind: StrataBufferKind, bytes: u64, label: &str) -> Result<Buffer, PluginError> {
        if bytes == 0 {
            return Err(invalid("alloc", format!("a buffer `{label}` of 0 bytes")));
        }
        if kind == StrataBufferKind::HostVisible && !self.raw.table().can_map() {
            return Err(PluginError::Call {
                plugin: self.plugin().to_owned(),
                call: "buffer_map",
                status: strata_backend_abi::StrataStatus::Unsupported,
                text: "the plugin has no host-visible buffers".to_owned(),
            });
        }
        let raw = RawBuffer::alloc(&self.raw, kind, bytes, label)?;
        Ok(Buffer { raw: Arc::new(raw), kind })
    }

    /// Uses host memory in place, for reading only, or says `None`: then the caller copies. The
    /// memory is kept alive by the buffer. Its start has to be aligned as the tensors in it need.
    pub fn import(&self, memory: Arc<dyn HostMemory>) -> Result<Option<Buffer>, PluginError> {
        if memory.bytes().is_empty() {
            return Err(invalid("import", "no bytes"));
        }
        let raw = RawBuffer::import(&self.raw, memory)?;
        Ok(raw.map(|raw| Buffer { raw: Arc::new(raw), kind: StrataBufferKind::HostVisible }))
    }

    /// Whether the plugin can use host memory in place at all.
    pub fn can_import(&self) -> bool {
        self.raw.table().can_import()
    }

    /// Whether the device can run op number `op`. Only shapes, formats and parameters count; the
    /// spec is validated as if its buffers were large enough.
    pub fn supports(&self, spec: &ProgramSpec, op: usize) -> Result<Support, PluginError> {
        if op >= spec.ops.len() {
            return Err(invalid("supports", format!("op {op} of a program with {}", spec.ops.len())));
        }
        validate::validate_op(spec, op)?;
        let reason = self.raw.op_supported(&desc(spec), op as u32)?;
        Ok(reason.map_or(Support::Yes, Support::No))
    }

    /// The same for every op of a program, validated once; the answers are in op order.
    pub fn supports_all(&self, spec: &ProgramSpec) -> Result<Vec<Support>, PluginError> {
        validate::validate_shapes(spec)?;
        let desc = desc(spec);
        (0..spec.ops.len() as u32)
            .map(|op| Ok(self.raw.op_supported(&desc, op)?.map_or(Support::Yes, Support::No)))
            .collect()
    }

    /// Validates the program against the buffers, then lets the plugin compile it. Data that the
    /// tensors marked constant hold must be in place before and must not change after.
    pub fn compile(&self, spec: &ProgramSpec, buffers: &[Buffer]) -> Result<Program, PluginError> {
        for (index, buffer) in buffers.iter().enumerate() {
            if !Arc::ptr_eq(buffer.raw.device(), &self.raw) {
                return Err(invalid("compile", format!("buffer {index} belongs to another device")));
            }
        }
        let sizes: Vec<u64> = buffers.iter().map(Buffer::len).collect();
        validate(spec, &sizes)?;
        validate::validate_read_only(spec, |buffer| buffers[buffer].raw.is_imported())?;
        let raws = buffers.iter().map(|buffer| Arc::clone(&buffer.raw)).collect();
        let raw = RawProgram::compile(&self.raw, &desc(spec), raws)?;
        Ok(Program { raw, name: spec.name.clone(), scalar_max: spec.scalar_max.clone().into_boxed_slice() })
    }

    /// Whether the plugin has events; without them `synchronize` is what there is.
    pub fn has_events(&self) -> bool {
        self.raw.table().has_events()
    }

    /// `None` when the plugin has no events.
    pub fn event(&self) -> Result<Option<Event>, PluginError> {
        Ok(RawEvent::create(&self.raw)?.map(|raw| Event { raw: Arc::new(raw) }))
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("plugin", &self.plugin()).field("info", &self.info).finish_non_exhaustive()
    }
}

fn desc(spec: &ProgramSpec) -> Desc<'_> {
    Desc {
        flags: if spec.precise { STRATA_PROGRAM_PRECISE } else { 0 },
        name: &spec.name,
        tensors: &spec.tensors,
        ops: &spec.ops,
        scalar_max: &spec.scalar_max,
    }
}

fn invalid(call: &'static str, reason: impl Into<String>) -> PluginError {
    PluginError::InvalidCall { call, reason: reason.into() }
}

/// Memory of a device. Freed when the last clone and every program on it is dropped.
#[derive(Clone)]
pub struct Buffer {
    raw: Arc<RawBuffer>,
    kind: StrataBufferKind,
}

impl Buffer {
    /// Bytes; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> u64 {
        self.raw.bytes()
    }

    /// Host memory used in place: it can be read, not written.
    pub fn is_imported(&self) -> bool {
        self.raw.is_imported()
    }

    /// Waits for work that uses the buffer, then copies `data` to `offset`.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), PluginError> {
        self.writable("write")?;
        self.range("write", offset, data.len() as u64)?;
        if data.is_empty() { Ok(()) } else { self.raw.write(offset, data) }
    }

    /// Waits for work that uses the buffer, then copies from `offset` to `out`.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), PluginError> {
        self.range("read", offset, out.len() as u64)?;
        if out.is_empty() { Ok(()) } else { self.raw.read(offset, out) }
    }

    /// Copies to another buffer of the same device, in order with its work. The ranges must not overlap.
    pub fn copy_to(
        &self,
        source_offset: u64,
        target: &Buffer,
        target_offset: u64,
        bytes: u64,
    ) -> Result<(), PluginError> {
        target.writable("copy_to")?;
        self.range("copy_to", source_offset, bytes)?;
        target.range("copy_to", target_offset, bytes)?;
        if !Arc::ptr_eq(self.raw.device(), target.raw.device()) {
            return Err(invalid("copy_to", "the buffers belong to different devices"));
        }
        if Arc::ptr_eq(&self.raw, &target.raw) && source_offset.abs_diff(target_offset) < bytes {
            return Err(invalid("copy_to", "source and target overlap"));
        }
        if bytes == 0 { Ok(()) } else { self.raw.copy_to(source_offset, &target.raw, target_offset, bytes) }
    }

    /// Waits for the device's work, then gives the bytes of a host-visible buffer in place. The
    /// device is held meanwhile: `use_bytes` must not call anything on it.
    pub fn with_mapped<R>(&self, use_bytes: impl FnOnce(&mut [u8]) -> R) -> Result<R, PluginError> {
        self.writable("with_mapped")?;
        if self.kind != StrataBufferKind::HostVisible {
            return Err(invalid("with_mapped", "the buffer is not host-visible"));
        }
        self.raw.with_mapped(use_bytes)
    }

    fn writable(&self, call: &'static str) -> Result<(), PluginError> {
        if self.raw.is_imported() {
            return Err(invalid(call, "imported memory is for reading only"));
        }
        Ok(())
    }

    fn range(&self, call: &'static str, offset: u64, bytes: u64) -> Result<(), PluginError> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.len()) {
            let reason = format!("{bytes} bytes at {offset} of a buffer of {}", self.len());
            return Err(invalid(call, reason));
        }
        Ok(())
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len()).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A compiled program. Keeps its buffers alive.
pub struct Program {
    raw: RawProgram,
    name: String,
    scalar_max: Box<[i64]>,
}

impl Program {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs once with these scalars, in the order of `StrataScalar`. May return before the work is
    /// done; reads and `synchronize` wait for it.
    pub fn run(&mut self, scalars: &[i64]) -> Result<(), PluginError> {
        self.check_scalars(scalars)?;
        self.raw.run(scalars, &[], None)
    }

    /// The same, after `wait` are signalled, and signalling `signal` when done.
    pub fn run_with(&mut self, scalars: &[i64], wait: &[&Event], signal: Option<&Event>) -> Result<(), PluginError> {
        self.check_scalars(scalars)?;
        if wait.iter().copied().chain(signal).any(|event| !Arc::ptr_eq(event.raw.device(), self.raw.device())) {
            return Err(invalid("run", "an event of another device"));
        }
        let wait: Vec<&RawEvent> = wait.iter().map(|event| event.raw.as_ref()).collect();
        self.raw.run(scalars, &wait, signal.map(|event| event.raw.as_ref()))
    }

    pub fn info(&self) -> Result<ProgramInfo, PluginError> {
        let (n_launches, workspace_bytes, constant_bytes) = self.raw.info()?;
        Ok(ProgramInfo { n_launches, workspace_bytes, constant_bytes })
    }

    fn check_scalars(&self, scalars: &[i64]) -> Result<(), PluginError> {
        if scalars.len() != self.scalar_max.len() {
            let reason = format!("{} scalars, program `{}` has {}", scalars.len(), self.name, self.scalar_max.len());
            return Err(invalid("run", reason));
        }
        for (index, (value, max)) in scalars.iter().zip(&self.scalar_max).enumerate() {
            // A step that is no contiguous run of one sequence says so with -1.
            let least = if index == StrataScalar::Position as usize { -1 } else { 0 };
            if value < &least || value > max {
                let reason = format!("scalar {index} is {value}, program `{}` takes {least} to {max}", self.name);
                return Err(invalid("run", reason));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A point in a device's work that can be waited for.
#[derive(Clone)]
pub struct Event {
    raw: Arc<RawEvent>,
}

impl Event {
    /// Whether the work before it is done.
    pub fn is_done(&self) -> Result<bool, PluginError> {
        self.raw.is_done()
    }

    /// Blocks until it is.
    pub fn wait(&self) -> Result<(), PluginError> {
        self.raw.wait()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").finish_non_exhaustive()
    }
}
