//! The traits that a plugin implements. Nothing here is unsafe and nothing here mentions handles,
//! sizes of structs or C: that is the business of the modules behind.

use std::sync::Arc;

use strata_backend_abi::{StrataBufferKind, StrataDeviceKind};

use crate::{Failure, ForeignMemory, Host, ProgramView, Result};

/// What `device_info` tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// CPU, GPU or other.
    pub kind: StrataDeviceKind,
    /// `STRATA_DEVICE_*`.
    pub flags: u32,
    /// Marketing name.
    pub name: String,
    /// What kernels are chosen by: `x86-64 avx2 fma f16c`, `sm_90`, `gfx906`.
    pub arch: String,
    /// Identity that survives a reboot: PCI address or UUID; `cpu` for the CPU.
    pub uid: String,
    /// Driver and its version, empty for the CPU.
    pub driver: String,
    /// Bytes.
    pub memory_total: u64,
    /// Bytes.
    pub memory_free: u64,
}

/// What a device is opened with. Zero and empty mean: the plugin chooses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceOptions {
    /// CPU: worker threads, the calling one included; 0: one per usable physical core.
    pub n_threads: u32,
    /// Bytes of device memory that must stay free.
    pub reserve_bytes: u64,
    /// Kernel variant to use instead of the best one, empty for the best.
    pub variant: String,
}

/// Memory of an open device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryInfo {
    /// What the device has.
    pub total: u64,
    /// What could be taken now.
    pub free: u64,
    /// Taken by this plugin on this device.
    pub used_here: u64,
}

/// What a compiled program costs beside the host's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProgramInfo {
    /// Launches of one run after fusing; 0 when there is no such notion.
    pub n_launches: u32,
    /// Bytes of device memory taken for this program.
    pub workspace_bytes: u64,
    /// Bytes taken for rearranged constant tensors.
    pub constant_bytes: u64,
}

/// A plugin: lists devices and opens them. One value of it lives as long as the process.
pub trait Backend: Send + Sync + Sized + 'static {
    /// `cpu`, `cuda`, `hip-gfx906`: as in the descriptor.
    const NAME: &'static str;
    /// The product's version, as in the descriptor.
    const VERSION: &'static str;
    /// An open device.
    type Device: Device;

    /// Called once, before anything else. Failing here refuses the plugin with the failure's text.
    fn start(host: Host) -> Result<Self>;

    /// Looks at the machine. Order and number must be stable between two calls on an unchanged
    /// machine: a device's index is its place in this list. `device_info` answers from the list
    /// that the last `device_count` got.
    fn devices(&self) -> Result<Vec<DeviceInfo>>;

    /// Opens the device at `index` of the list.
    fn open(&self, index: u32, options: &DeviceOptions) -> Result<Self::Device>;
}

/// An open device. Calls come one at a time (the SDK holds a lock per device); the order of calls
/// is the order of work.
///
/// A call that panics leaves the device in an unknown state, so the SDK answers every later call
/// on it with `DeviceLost` and the text of that panic. Frees still work.
pub trait Device: Send + 'static {
    /// Memory of the device. Shared between the host's handle and the programs compiled over it;
    /// dropped when the last of them goes.
    type Buffer: Send + Sync + 'static;
    /// A compiled program.
    type Program: Send + 'static;
    /// A point in the device's work that the host can wait for; `()` without events.
    type Event: Send + Sync + 'static;

    /// `buffer_import` is implemented. The table's entry is null otherwise.
    const CAN_IMPORT: bool = false;
    /// `buffer_map` is implemented. The table's entry is null otherwise.
    const CAN_MAP: bool = false;
    /// `event_create`, `event_query` and `event_wait` are implemented. The table's entries are null otherwise.
    const HAS_EVENTS: bool = false;

    /// Memory now, in bytes.
    fn memory(&self) -> Result<MemoryInfo>;

    /// What was chosen when the device was opened, and why: one line.
    fn report(&self) -> String;

    /// Waits until all work given to the device is done.
    fn synchronize(&mut self) -> Result<()>;

    /// Whether this op can be computed: `Ok`, or `Failure::unsupported` with the reason. Only the
    /// shapes, formats and parameters matter; the program has no buffers yet.
    fn op_supported(&self, program: &ProgramView<'_>, op: usize) -> Result<()>;

    /// Contents are undefined at first. `bytes` may be 0. The start is aligned to
    /// `STRATA_BUFFER_ALIGNMENT`.
    fn buffer_alloc(&mut self, kind: StrataBufferKind, bytes: u64, label: &str) -> Result<Self::Buffer>;

    /// Uses the host's memory in place, for reading only.
    fn buffer_import(&mut self, memory: ForeignMemory) -> Result<Self::Buffer> {
        let _ = memory;
        Err(Failure::unsupported("this device cannot use the host's memory in place"))
    }

    /// Waits for work that uses the buffer, then copies from the host. The range is inside the buffer.
    fn buffer_write(&mut self, buffer: &Self::Buffer, offset: u64, data: &[u8]) -> Result<()>;

    /// Waits for work that uses the buffer, then copies to the host. The range is inside the buffer.
    fn buffer_read(&mut self, buffer: &Self::Buffer, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Copies between two buffers of this device, in order with its work. The ranges are inside
    /// the buffers and do not overlap; both buffers may be the same one.
    fn buffer_copy(
        &mut self,
        target: &Self::Buffer,
        target_offset: u64,
        source: &Self::Buffer,
        source_offset: u64,
        bytes: u64,
    ) -> Result<()>;

    /// Address of a host-visible buffer, the same for the buffer's whole life.
    fn buffer_map(&mut self, buffer: &Self::Buffer) -> Result<*mut u8> {
        let _ = buffer;
        Err(Failure::unsupported("this device has no host-visible buffers"))
    }

    /// Compiles. `buffers` is what the tensors' `buffer` field indexes; keep clones of those that
    /// the program uses. May rearrange constant tensors into memory of its own.
    fn program_compile(&mut self, program: &ProgramView<'_>, buffers: &[Arc<Self::Buffer>]) -> Result<Self::Program>;

    /// What the program costs, for reports.
    fn program_info(&self, program: &Self::Program) -> ProgramInfo {
        let _ = program;
        ProgramInfo::default()
    }

    /// Runs once. There is one scalar for each `scalar_max` of the program, none above its
    /// greatest value. May return before the work is done. `wait` and `signal` are empty unless
    /// the device has events.
    fn program_run(
        &mut self,
        program: &mut Self::Program,
        scalars: &[i64],
        wait: &[&Self::Event],
        signal: Option<&Self::Event>,
    ) -> Result<()>;

    /// Makes an event that is not signalled.
    fn event_create(&mut self) -> Result<Self::Event> {
        Err(Failure::unsupported("this device has no events"))
    }

    /// Whether the event is signalled. Takes no device: it must not wait for a running call.
    fn event_query(event: &Self::Event) -> Result<bool> {
        let _ = event;
        Err(Failure::unsupported("this device has no events"))
    }

    /// Blocks until the event is signalled. Takes no device, for the same reason.
    fn event_wait(event: &Self::Event) -> Result<()> {
        let _ = event;
        Err(Failure::unsupported("this device has no events"))
    }
}
