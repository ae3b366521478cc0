//! A host as small as can be: opens the backend through the raw entry and calls the raw table.
#![expect(unsafe_code, reason = "plays the host in C")]

use std::ffi::c_void;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use strata_backend_sdk::abi::{
    STRATA_ABI_VERSION, STRATA_NO_OPERAND, SizedStruct, StrataBackend, StrataBufferDesc, StrataBufferKind, StrataDType,
    StrataDeviceOptions, StrataEntryArgs, StrataEntryResult, StrataHandle, StrataOp, StrataOpKind, StrataProgramDesc,
    StrataRunArgs, StrataStatus, StrataStr, StrataTensor, StrataTextOut,
};
use strata_backend_sdk::{Exported, entry};

/// Calls an entry of the table and returns the status.
macro_rules! call {
    ($table:expr, $entry:ident $(, $arg:expr)* $(,)?) => {{
        let entry = $table.$entry.expect(stringify!($entry));
        // SAFETY: the tests pass null or places of their own, which live through the call.
        let status = unsafe { entry($($arg),*) };
        strata_backend_sdk::abi::StrataStatus::from_number(status).expect("a known status")
    }};
}
pub(crate) use call;

/// The instance number that these tests use.
pub(crate) const INSTANCE: u64 = 41;

/// Scripted panics that reached the hook that was there before the SDK's.
pub(crate) static PRINTED_PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_printed_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload_as_str().is_some_and(|text| text.contains("scripted panic")) {
                PRINTED_PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(info);
        }));
    });
}

pub(crate) fn entry_args() -> StrataEntryArgs {
    StrataEntryArgs {
        struct_size: StrataEntryArgs::SIZE,
        abi_lowest: STRATA_ABI_VERSION,
        abi_highest: STRATA_ABI_VERSION,
        reserved: 0,
        instance: INSTANCE,
        host_version: StrataStr::from_static("0.0.1"),
        log: None,
        log_context: std::ptr::null_mut(),
    }
}

pub(crate) fn entry_result() -> StrataEntryResult {
    StrataEntryResult {
        struct_size: StrataEntryResult::SIZE,
        abi: 0,
        table: std::ptr::null(),
        reason: StrataStr::EMPTY,
    }
}

/// Calls the entry of any backend.
pub(crate) fn enter<B: Exported>(args: *const StrataEntryArgs, result: *mut StrataEntryResult) -> StrataStatus {
    count_printed_panics();
    // SAFETY: the tests pass null or structs of their own.
    let status = unsafe { entry::<B>(args, result) };
    StrataStatus::from_number(status).expect("a known status")
}

/// Reads a text that the plugin lent.
pub(crate) fn text(text: StrataStr) -> String {
    // SAFETY: the plugin guarantees pointer and length.
    unsafe { text.to_string_lossy(4096) }
}

/// The table of the toy, through the exported symbol.
pub(crate) fn toy() -> &'static StrataBackend {
    unsafe extern "C" {
        fn strata_backend_entry(args: *const StrataEntryArgs, result: *mut StrataEntryResult) -> i32;
    }
    count_printed_panics();
    let (args, mut result) = (entry_args(), entry_result());
    // SAFETY: both are structs of ours.
    let status = unsafe { strata_backend_entry(&raw const args, &raw mut result) };
    assert_eq!(status, StrataStatus::Ok as i32, "{}", text(result.reason));
    // SAFETY: with the status Ok the table lives as long as the process.
    unsafe { result.table.as_ref() }.expect("a table")
}

/// Reads text through a place of the given size; returns what was written and the whole length.
pub(crate) fn read_text(capacity: usize, read: impl FnOnce(*mut StrataTextOut)) -> (Vec<u8>, u64) {
    let mut place = vec![0xaa_u8; capacity + 8];
    let mut out = StrataTextOut { data: place.as_mut_ptr(), capacity: capacity as u64, len: u64::MAX };
    read(&raw mut out);
    assert!(place[capacity..].iter().all(|byte| *byte == 0xaa), "written past the capacity");
    place.truncate(capacity.min(out.len as usize));
    (place, out.len)
}

pub(crate) fn last_error(table: &StrataBackend) -> String {
    let entry = table.last_error.expect("last_error");
    // SAFETY: the place is ours.
    let (bytes, _) = read_text(4096, |out| unsafe { entry(out) });
    String::from_utf8(bytes).expect("UTF-8")
}

/// The device of the toy at `index` with a variant, or why not.
pub(crate) fn open(table: &StrataBackend, index: u32, variant: &'static str) -> Result<StrataHandle, StrataStatus> {
    let options = StrataDeviceOptions {
        struct_size: StrataDeviceOptions::SIZE,
        n_threads: 0,
        reserve_bytes: 0,
        variant: StrataStr::from_static(variant),
    };
    let mut device = StrataHandle::NONE;
    match call!(table, device_open, index, &raw const options, &raw mut device) {
        StrataStatus::Ok => Ok(device),
        status => Err(status),
    }
}

pub(crate) fn alloc(
    table: &StrataBackend,
    device: StrataHandle,
    kind: StrataBufferKind,
    bytes: u64,
) -> Result<StrataHandle, StrataStatus> {
    let desc = StrataBufferDesc {
        struct_size: StrataBufferDesc::SIZE,
        kind: kind as u32,
        bytes,
        label: StrataStr::from_static("test"),
    };
    let mut buffer = StrataHandle::NONE;
    match call!(table, buffer_alloc, device, &raw const desc, &raw mut buffer) {
        StrataStatus::Ok => Ok(buffer),
        status => Err(status),
    }
}

pub(crate) fn write(table: &StrataBackend, buffer: StrataHandle, offset: u64, data: &[u8]) -> StrataStatus {
    call!(table, buffer_write, buffer, offset, data.as_ptr().cast::<c_void>(), data.len() as u64)
}

pub(crate) fn read(table: &StrataBackend, buffer: StrataHandle, offset: u64, out: &mut [u8]) -> StrataStatus {
    call!(table, buffer_read, buffer, offset, out.as_mut_ptr().cast::<c_void>(), out.len() as u64)
}

/// A program of one `Copy` of up to 4 floats from buffer 1 to buffer 0. Fields may be spoiled
/// before [`Spec::desc`] is taken.
pub(crate) struct Spec {
    pub tensors: Vec<StrataTensor>,
    pub ops: Vec<StrataOp>,
    pub buffers: Vec<StrataHandle>,
    pub scalar_max: Vec<i64>,
}

impl Spec {
    pub(crate) fn copy(target: StrataHandle, source: StrataHandle) -> Spec {
        let tensor = StrataTensor {
            struct_size: StrataTensor::SIZE,
            dtype: StrataDType::F32 as u32,
            buffer: 0,
            flags: 0,
            offset: 0,
            ne: [4, 1, 1, 1],
            nb: [4, 16, 16, 16],
            dynamic: [0, 1, 0, 0],
        };
        let mut op = StrataOp {
            struct_size: StrataOp::SIZE,
            kind: StrataOpKind::Copy as u32,
            flags: 0,
            layer: -1,
            operand: [STRATA_NO_OPERAND; _],
            float: [0.0; _],
            int: [0; _],
        };
        op.operand[0] = 0;
        op.operand[1] = 1;
        Spec {
            tensors: vec![tensor, StrataTensor { buffer: 1, ..tensor }],
            ops: vec![op],
            buffers: vec![target, source],
            scalar_max: vec![4],
        }
    }

    pub(crate) fn desc(&self) -> StrataProgramDesc {
        StrataProgramDesc {
            struct_size: StrataProgramDesc::SIZE,
            flags: 0,
            name: StrataStr::from_static("copy"),
            tensors: self.tensors.as_ptr(),
            ops: self.ops.as_ptr(),
            buffers: self.buffers.as_ptr(),
            scalar_max: self.scalar_max.as_ptr(),
            n_tensors: self.tensors.len() as u32,
            tensor_stride: StrataTensor::SIZE,
            n_ops: self.ops.len() as u32,
            op_stride: StrataOp::SIZE,
            n_buffers: self.buffers.len() as u32,
            n_scalars: self.scalar_max.len() as u32,
        }
    }
}

pub(crate) fn compile(
    table: &StrataBackend,
    device: StrataHandle,
    desc: &StrataProgramDesc,
) -> Result<StrataHandle, StrataStatus> {
    let mut program = StrataHandle::NONE;
    match call!(table, program_compile, device, &raw const *desc, &raw mut program) {
        StrataStatus::Ok => Ok(program),
        status => Err(status),
    }
}

pub(crate) fn run(
    table: &StrataBackend,
    program: StrataHandle,
    scalars: &[i64],
    wait: &[StrataHandle],
    signal: StrataHandle,
) -> StrataStatus {
    let args = StrataRunArgs {
        struct_size: StrataRunArgs::SIZE,
        n_scalars: scalars.len() as u32,
        scalars: scalars.as_ptr(),
        wait: wait.as_ptr(),
        n_wait: wait.len() as u32,
        reserved: 0,
        signal,
    };
    call!(table, program_run, program, &raw const args)
}
