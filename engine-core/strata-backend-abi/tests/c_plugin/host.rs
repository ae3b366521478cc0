//! A host as small as can be: makes and loads a library, enters it and calls its table.
#![expect(unsafe_code, reason = "loads a library and calls through its table")]

use std::path::{Path, PathBuf};
use std::process::Command;

use strata_backend_abi::{
    ENTRY_SYMBOL, STRATA_ABI_VERSION, STRATA_NO_OPERAND, SizedStruct, StrataBackend, StrataBufferDesc, StrataDType,
    StrataDeviceOptions, StrataEntryArgs, StrataEntryFn, StrataEntryResult, StrataHandle, StrataOp, StrataOpKind,
    StrataProgramDesc, StrataRunArgs, StrataStatus, StrataStr, StrataTensor, StrataTextOut,
};

const INSTANCE: u64 = 7;

macro_rules! call {
    ($table:expr, $entry:ident $(, $arg:expr)* $(,)?) => {{
        let entry = $table.$entry.expect(stringify!($entry));
        // SAFETY: the handles are live and the pointers are to places of the test.
        let status = unsafe { entry($($arg),*) };
        StrataStatus::from_number(status).expect("a known status")
    }};
}
pub(crate) use call;

pub(crate) fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A place that no other process uses.
pub(crate) fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()))
}

#[track_caller]
pub(crate) fn compile(compiler: (&str, &str), arguments: &[&str], source: &Path, output: Option<&Path>) {
    let program = std::env::var(compiler.0).unwrap_or_else(|_| compiler.1.to_owned());
    let mut command = Command::new(&program);
    command.args(arguments).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    command.arg("-I").arg(crate_folder().join("include")).arg(source);
    if let Some(output) = output {
        command.arg("-o").arg(output).arg("-lm");
    }
    let result = command.output().unwrap_or_else(|error| panic!("running {program}: {error}"));
    assert!(result.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&result.stderr));
}
/// Makes a library and loads it. `name` is the file's name in the folder of this crate's test files.
pub(crate) fn load(name: &str, source: &Path, more_flags: &[&str]) -> libloading::Library {
    // Made beside and moved into place: tests of other processes may be loading it.
    let (fresh, library) = (scratch(name), Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
    let mut flags = vec!["-std=c11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden"];
    flags.extend(more_flags);
    compile(("CC", "cc"), &flags, source, Some(&fresh));
    fs_err::rename(&fresh, &library).unwrap();
    // SAFETY: a plugin of ours, whose initialisers do nothing.
    unsafe { libloading::Library::new(&library) }.unwrap()
}

/// The entry of a library that is never unloaded.
pub(crate) fn entry_of(library: &'static libloading::Library) -> StrataEntryFn {
    // SAFETY: the header gives this symbol this type.
    let symbol = unsafe { library.get::<StrataEntryFn>(ENTRY_SYMBOL.as_bytes()) };
    *symbol.unwrap()
}

/// Calls an entry with the host's range of versions.
pub(crate) fn enter(entry: StrataEntryFn, lowest: u32, highest: u32) -> (StrataStatus, StrataEntryResult) {
    let args = StrataEntryArgs {
        struct_size: StrataEntryArgs::SIZE,
        abi_lowest: lowest,
        abi_highest: highest,
        reserved: 0,
        instance: INSTANCE,
        host_version: StrataStr::from_static("0"),
        log: None,
        log_context: std::ptr::null_mut(),
    };
    let mut result = StrataEntryResult {
        struct_size: StrataEntryResult::SIZE,
        abi: 0,
        table: std::ptr::null(),
        reason: StrataStr::EMPTY,
    };
    // SAFETY: both structs live through the call.
    let status = unsafe { entry(&raw const args, &raw mut result) };
    (StrataStatus::from_number(status).unwrap(), result)
}

/// The table that an entry gives to a host of this very version.
pub(crate) fn table(entry: StrataEntryFn) -> &'static StrataBackend {
    let (status, result) = enter(entry, STRATA_ABI_VERSION, STRATA_ABI_VERSION);
    assert_eq!(status, StrataStatus::Ok);
    // SAFETY: with the status Ok the table lives as long as the process.
    unsafe { result.table.as_ref() }.unwrap()
}

pub(crate) fn text(text: StrataStr) -> String {
    // SAFETY: the plugin's texts are static.
    unsafe { text.to_string_lossy(1000) }
}

pub(crate) fn last_error(table: &StrataBackend) -> String {
    let mut place = [0_u8; 300];
    let mut out = StrataTextOut { data: place.as_mut_ptr(), capacity: place.len() as u64, len: 0 };
    // SAFETY: the place is ours.
    unsafe { table.last_error.unwrap()(&raw mut out) };
    String::from_utf8(place[..out.len as usize].to_vec()).unwrap()
}

pub(crate) fn open(table: &StrataBackend) -> StrataHandle {
    let options = StrataDeviceOptions {
        struct_size: StrataDeviceOptions::SIZE,
        n_threads: 1,
        reserve_bytes: 0,
        variant: StrataStr::EMPTY,
    };
    let mut device = StrataHandle::NONE;
    assert_eq!(call!(table, device_open, 0, &raw const options, &raw mut device), StrataStatus::Ok);
    assert_eq!(device.instance, INSTANCE);
    device
}

pub(crate) fn alloc(table: &StrataBackend, device: StrataHandle, bytes: u64) -> Result<StrataHandle, StrataStatus> {
    let label = StrataStr::from_static("weights");
    let desc = StrataBufferDesc { struct_size: StrataBufferDesc::SIZE, kind: 0, bytes, label };
    let mut buffer = StrataHandle::NONE;
    match call!(table, buffer_alloc, device, &raw const desc, &raw mut buffer) {
        StrataStatus::Ok => Ok(buffer),
        status => Err(status),
    }
}

pub(crate) fn tensor(dtype: StrataDType, buffer: u32, offset: u64, ne: [u64; 2], dynamic: bool) -> StrataTensor {
    let row = ne[0] * 4;
    StrataTensor {
        struct_size: StrataTensor::SIZE,
        dtype: dtype as u32,
        buffer,
        flags: 0,
        offset,
        ne: [ne[0], ne[1], 1, 1],
        nb: [4, row, row * ne[1], row * ne[1]],
        // Scalar 0 is the token count.
        dynamic: [0, u32::from(dynamic), 0, 0],
    }
}

pub(crate) fn op(kind: StrataOpKind, operands: &[u32], float: f32) -> StrataOp {
    let mut op = StrataOp {
        struct_size: StrataOp::SIZE,
        kind: kind as u32,
        flags: 0,
        layer: -1,
        operand: [STRATA_NO_OPERAND; _],
        float: [0.0; _],
        int: [0; _],
    };
    op.operand[..operands.len()].copy_from_slice(operands);
    op.float[0] = float;
    op
}

/// A program over these; `scalar_max` lives as long as what is returned is used.
pub(crate) fn desc(
    tensors: &[StrataTensor],
    ops: &[StrataOp],
    buffers: &[StrataHandle],
    scalar_max: &[i64],
) -> StrataProgramDesc {
    StrataProgramDesc {
        struct_size: StrataProgramDesc::SIZE,
        flags: 0,
        name: StrataStr::from_static("test"),
        tensors: tensors.as_ptr(),
        ops: ops.as_ptr(),
        buffers: buffers.as_ptr(),
        scalar_max: scalar_max.as_ptr(),
        n_tensors: tensors.len() as u32,
        tensor_stride: StrataTensor::SIZE,
        n_ops: ops.len() as u32,
        op_stride: StrataOp::SIZE,
        n_buffers: buffers.len() as u32,
        n_scalars: scalar_max.len() as u32,
    }
}

/// Runs a program with these scalars.
pub(crate) fn run(table: &StrataBackend, program: StrataHandle, scalars: &[i64]) -> StrataStatus {
    let args = StrataRunArgs {
        struct_size: StrataRunArgs::SIZE,
        n_scalars: scalars.len() as u32,
        scalars: scalars.as_ptr(),
        wait: std::ptr::null(),
        n_wait: 0,
        reserved: 0,
        signal: StrataHandle::NONE,
    };
    call!(table, program_run, program, &raw const args)
}

/// Writes into a buffer.
pub(crate) fn write(table: &StrataBackend, buffer: StrataHandle, offset: u64, data: &[u8]) {
    let (pointer, bytes) = (data.as_ptr().cast(), data.len() as u64);
    assert_eq!(call!(table, buffer_write, buffer, offset, pointer, bytes), StrataStatus::Ok);
}
