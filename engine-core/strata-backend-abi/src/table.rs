//! The entry point and the table of calls.

use crate::{
    StrataBufferDesc, StrataDeviceInfo, StrataDeviceOptions, StrataHandle, StrataMemoryInfo, StrataProgramDesc,
    StrataProgramInfo, StrataRunArgs, StrataStr, StrataTextOut, sized_struct,
};
use core::ffi::c_void;

/// Level of a log line.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StrataLogLevel {
    Debug = 0,
    Info = 1,
    Warning = 2,
    Error = 3,
}

/// Takes one line of talk from the plugin. May be called from any thread.
pub type StrataLogFn = unsafe extern "C" fn(context: *mut c_void, level: u32, text: StrataStr);

/// What the host gives the entry. It calls the entry once per library and process.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StrataEntryArgs {
    pub struct_size: u32,
    /// Lowest ABI version that the host speaks, `major << 16 | minor`.
    pub abi_lowest: u32,
    /// Highest ABI version that the host speaks.
    pub abi_highest: u32,
    pub reserved: u32,
    /// Number that the plugin puts into each handle it makes.
    pub instance: u64,
    pub host_version: StrataStr,
    /// A `StrataLogFn`. Optional; default: no log. Function and context stay valid while the process lives.
    pub log: Option<unsafe extern "C" fn(context: *mut c_void, level: u32, text: StrataStr)>,
    pub log_context: *mut c_void,
}
sized_struct!(StrataEntryArgs);

/// What the entry fills in.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StrataEntryResult {
    pub struct_size: u32,
    /// ABI version in force when the status is `Ok`; the plugin's highest when it is `AbiMismatch`.
    pub abi: u32,
    /// The table; lives as long as the process. Null unless the status is `Ok`.
    pub table: *const StrataBackend,
    /// Why not, when the status is not `Ok`. Static text of the plugin.
    pub reason: StrataStr,
}
sized_struct!(StrataEntryResult);

/// The one exported symbol, `strata_backend_entry`. Returns a `StrataStatus`.
pub type StrataEntryFn = unsafe extern "C" fn(args: *const StrataEntryArgs, result: *mut StrataEntryResult) -> i32;

/// The table. Required entries are never null in a table that a host accepts; entries marked
/// optional may be null and then have the default that is said with them. Every call returns a
/// `StrataStatus` unless it returns nothing. Calls on one device come from one thread at a time;
/// calls on different devices may come at once.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StrataBackend {
    pub struct_size: u32,
    /// ABI version in force.
    pub abi: u32,
    /// `cpu`, `cuda`, `hip-gfx906`: as in the descriptor.
    pub name: StrataStr,
    /// The product's version, as in the descriptor.
    pub version: StrataStr,

    /// Text of this thread's last failed call, more than the status says. May be empty.
    pub last_error: Option<unsafe extern "C" fn(out: *mut StrataTextOut)>,

    /// Looks at the machine: how many devices this plugin could open.
    pub device_count: Option<unsafe extern "C" fn(count: *mut u32) -> i32>,
    /// Describes the device at an index below the last `device_count`.
    pub device_info: Option<unsafe extern "C" fn(index: u32, out: *mut StrataDeviceInfo) -> i32>,
    /// Opens the device at an index below the last `device_count`.
    pub device_open:
        Option<unsafe extern "C" fn(index: u32, options: *const StrataDeviceOptions, out: *mut StrataHandle) -> i32>,
    /// Frees the device and everything on it.
    pub device_close: Option<unsafe extern "C" fn(device: StrataHandle) -> i32>,
    /// Memory of the device as it is now.
    pub device_memory: Option<unsafe extern "C" fn(device: StrataHandle, out: *mut StrataMemoryInfo) -> i32>,
    /// Optional; default: empty. What was chosen when the device was opened and why, one line.
    pub device_report: Option<unsafe extern "C" fn(device: StrataHandle, out: *mut StrataTextOut) -> i32>,
    /// Waits until all work given to the device is done.
    pub synchronize: Option<unsafe extern "C" fn(device: StrataHandle) -> i32>,

    /// `Ok` or `Unsupported`, with the reason in `reason`. Buffers need not exist yet: only the
    /// shapes, formats and parameters of the op at `op_index` are looked at.
    pub op_supported: Option<
        unsafe extern "C" fn(
            device: StrataHandle,
            program: *const StrataProgramDesc,
            op_index: u32,
            reason: *mut StrataTextOut,
        ) -> i32,
    >,

    /// Allocates; the buffer starts at a multiple of `STRATA_BUFFER_ALIGNMENT`.
    pub buffer_alloc: Option<
        unsafe extern "C" fn(device: StrataHandle, desc: *const StrataBufferDesc, out: *mut StrataHandle) -> i32,
    >,
    /// Optional; default: not possible, the host copies. Uses the host's memory in place, for
    /// reading only; it stays valid and unchanged until the buffer is freed. The start has the alignment
    /// of the host's memory (32 in a GGUF file), not `STRATA_BUFFER_ALIGNMENT`.
    pub buffer_import: Option<
        unsafe extern "C" fn(device: StrataHandle, data: *const c_void, bytes: u64, out: *mut StrataHandle) -> i32,
    >,
    /// Frees. The host frees the programs that use the buffer first.
    pub buffer_free: Option<unsafe extern "C" fn(buffer: StrataHandle) -> i32>,
    /// Waits for work that uses the buffer, then copies from the host.
    pub buffer_write:
        Option<unsafe extern "C" fn(buffer: StrataHandle, offset: u64, data: *const c_void, bytes: u64) -> i32>,
    /// Waits for work that uses the buffer, then copies to the host.
    pub buffer_read:
        Option<unsafe extern "C" fn(buffer: StrataHandle, offset: u64, data: *mut c_void, bytes: u64) -> i32>,
    /// Copies between two buffers of one device, in order with its work. Ranges do not overlap.
    pub buffer_copy: Option<
        unsafe extern "C" fn(
            target: StrataHandle,
            target_offset: u64,
            source: StrataHandle,
            source_offset: u64,
            bytes: u64,
        ) -> i32,
    >,
    /// Optional; default: no host-visible buffers. Address of a host-visible buffer, the same for its whole
    /// life. What the host wrote there is seen by the next run; a run's results are seen after a wait.
    pub buffer_map: Option<unsafe extern "C" fn(buffer: StrataHandle, out: *mut *mut c_void) -> i32>,

    /// Compiles; may rearrange constant tensors into memory of its own.
    pub program_compile: Option<
        unsafe extern "C" fn(device: StrataHandle, desc: *const StrataProgramDesc, out: *mut StrataHandle) -> i32,
    >,
    /// Optional; default: zeros. What the program costs.
    pub program_info: Option<unsafe extern "C" fn(program: StrataHandle, out: *mut StrataProgramInfo) -> i32>,
    /// Runs once. A failure of work that goes on after the return is told by the next call on the device.
    pub program_run: Option<unsafe extern "C" fn(program: StrataHandle, args: *const StrataRunArgs) -> i32>,
    /// Waits for its work, then frees.
    pub program_free: Option<unsafe extern "C" fn(program: StrataHandle) -> i32>,

    /// Optional, all four event entries or none; default: no events, the host synchronises instead. An event
    /// that no run has signalled yet is not signalled.
    pub event_create: Option<unsafe extern "C" fn(device: StrataHandle, out: *mut StrataHandle) -> i32>,
    /// Optional, see `event_create`. `Ok` or `NotReady`. From any thread, also beside other calls on the device.
    pub event_query: Option<unsafe extern "C" fn(event: StrataHandle) -> i32>,
    /// Optional, see `event_create`. Blocks the caller until the event is signalled. From any thread, also
    /// beside other calls on the device.
    pub event_wait: Option<unsafe extern "C" fn(event: StrataHandle) -> i32>,
    /// Optional, see `event_create`.
    pub event_free: Option<unsafe extern "C" fn(event: StrataHandle) -> i32>,
}
sized_struct!(StrataBackend);

// SAFETY: the table is immutable once handed out and its texts are static.
unsafe impl Sync for StrataBackend {}
// SAFETY: as above.
unsafe impl Send for StrataBackend {}
