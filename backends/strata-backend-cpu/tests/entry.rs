//! The plugin through its one exported function, as a host calls it: a program of two ops.
#![expect(unsafe_code, reason = "calls the C entry and the table it gives")]

use strata_backend_abi::{
    STRATA_ABI_VERSION, STRATA_MAX_FLOATS, STRATA_MAX_INTS, STRATA_MAX_OPERANDS, STRATA_NO_OPERAND, StrataBackend,
    StrataBufferDesc, StrataDType, StrataDeviceOptions, StrataEntryArgs, StrataEntryResult, StrataHandle, StrataOp,
    StrataOpKind, StrataProgramDesc, StrataRunArgs, StrataStatus, StrataStr, StrataTensor, StrataTextOut,
};
use strata_backend_cpu::strata_backend_entry;

fn size<T>() -> u32 {
    size_of::<T>() as u32
}

/// A table entry that must be there.
macro_rules! call {
    ($table:ident.$entry:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the arguments are what docs/ABI.md asks for: live pointers, handles of this plugin.
        StrataStatus::from_number(unsafe { ($table.$entry.expect("a required entry"))($($argument),*) }).expect("a status")
    };
}

fn table() -> StrataBackend {
    let args = StrataEntryArgs {
        struct_size: size::<StrataEntryArgs>(),
        abi_lowest: STRATA_ABI_VERSION,
        abi_highest: STRATA_ABI_VERSION,
        reserved: 0,
        instance: 7,
        host_version: StrataStr::from_static("0.1.0"),
        log: None,
        log_context: std::ptr::null_mut(),
    };
    let mut result = StrataEntryResult {
        struct_size: size::<StrataEntryResult>(),
        abi: 0,
        table: std::ptr::null(),
        reason: StrataStr::EMPTY,
    };
    // SAFETY: both structs live through the call and carry their sizes.
    let status = unsafe { strata_backend_entry(&raw const args, &raw mut result) };
    assert_eq!(StrataStatus::from_number(status), Ok(StrataStatus::Ok));
    // SAFETY: an entry that returns `Ok` has set a table that lives as long as the process.
    unsafe { *result.table }
}

fn text(fill: impl FnOnce(&mut StrataTextOut)) -> String {
    let mut bytes = [0_u8; 512];
    let mut out = StrataTextOut { data: bytes.as_mut_ptr(), capacity: bytes.len() as u64, len: 0 };
    fill(&mut out);
    let len = out.len.min(512) as usize;
    String::from_utf8_lossy(&bytes[..len]).into_owned()
}

fn tensor(index: u64) -> StrataTensor {
    StrataTensor {
        struct_size: size::<StrataTensor>(),
        dtype: StrataDType::F32 as u32,
        buffer: 0,
        flags: 0,
        offset: index * 256,
        ne: [8, 2, 1, 1],
        nb: [4, 32, 64, 64],
        dynamic: [0, 1, 0, 0],
    }
}

fn op(kind: StrataOpKind, operands: &[u32], factor: f32) -> StrataOp {
    let mut op = StrataOp {
        struct_size: size::<StrataOp>(),
        kind: kind as u32,
        flags: 0,
        layer: -1,
        operand: [STRATA_NO_OPERAND; STRATA_MAX_OPERANDS],
        float: [0.0; STRATA_MAX_FLOATS],
        int: [0; STRATA_MAX_INTS],
    };
    op.operand[..operands.len()].copy_from_slice(operands);
    op.float[0] = factor;
    op
}

#[test]
fn a_program_of_two_ops_through_the_table() {
    let table = table();
    let mut n_devices = 0;
    assert_eq!(call!(table.device_count(&raw mut n_devices)), StrataStatus::Ok);
    assert_eq!(n_devices, 1);
    let options = StrataDeviceOptions {
        struct_size: size::<StrataDeviceOptions>(),
        n_threads: 2,
        reserve_bytes: 0,
        variant: StrataStr::EMPTY,
    };
    let mut device = StrataHandle::NONE;
    assert_eq!(call!(table.device_open(0, &raw const options, &raw mut device)), StrataStatus::Ok);
    assert_eq!(device.instance, 7);
    let report = text(|out| assert_eq!(call!(table.device_report(device, out)), StrataStatus::Ok));
    assert!(report.starts_with("2 threads") && report.contains("kernels "), "{report}");

    let desc =
        StrataBufferDesc { struct_size: size::<StrataBufferDesc>(), kind: 0, bytes: 1024, label: StrataStr::EMPTY };
    let mut buffer = StrataHandle::NONE;
    assert_eq!(call!(table.buffer_alloc(device, &raw const desc, &raw mut buffer)), StrataStatus::Ok);
    let values: Vec<f32> = (0..16).map(|i| i as f32).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(call!(table.buffer_write(buffer, 0, bytes.as_ptr().cast(), 64)), StrataStatus::Ok);

    // b = 3 a; c = a + 2 b
    let tensors = [tensor(0), tensor(1), tensor(2)];
    let ops = [op(StrataOpKind::Scale, &[1, 0], 3.0), op(StrataOpKind::Add, &[2, 0, 1], 2.0)];
    let scalar_max = [2_i64];
    let program_desc = StrataProgramDesc {
        struct_size: size::<StrataProgramDesc>(),
        flags: 0,
        name: StrataStr::from_static("two ops"),
        tensors: tensors.as_ptr(),
        ops: ops.as_ptr(),
        buffers: &raw const buffer,
        scalar_max: scalar_max.as_ptr(),
        n_tensors: 3,
        tensor_stride: size::<StrataTensor>(),
        n_ops: 2,
        op_stride: size::<StrataOp>(),
        n_buffers: 1,
        n_scalars: 1,
    };
    let mut program = StrataHandle::NONE;
    assert_eq!(call!(table.program_compile(device, &raw const program_desc, &raw mut program)), StrataStatus::Ok);
    let tokens = [1_i64];
    let run = StrataRunArgs {
        struct_size: size::<StrataRunArgs>(),
        n_scalars: 1,
        scalars: tokens.as_ptr(),
        wait: std::ptr::null(),
        n_wait: 0,
        reserved: 0,
        signal: StrataHandle::NONE,
    };
    assert_eq!(call!(table.program_run(program, &raw const run)), StrataStatus::Ok);
    let mut out = [0_u8; 64];
    assert_eq!(call!(table.buffer_read(buffer, 512, out.as_mut_ptr().cast(), 64)), StrataStatus::Ok);
    let got: Vec<f32> = out.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    // One token of two: the second row stays as it was.
    let expected: Vec<f32> = (0..16).map(|i| if i < 8 { 7.0 * i as f32 } else { 0.0 }).collect();
    assert_eq!(got, expected);

    assert_eq!(call!(table.program_free(program)), StrataStatus::Ok);
    assert_eq!(call!(table.buffer_free(buffer)), StrataStatus::Ok);
    assert_eq!(call!(table.device_close(device)), StrataStatus::Ok);
}

#[test]
fn a_variant_that_is_not_there_is_refused_by_name() {
    let table = table();
    let options = StrataDeviceOptions {
        struct_size: size::<StrataDeviceOptions>(),
        n_threads: 1,
        reserve_bytes: 0,
        variant: StrataStr::from_static("sse9"),
    };
    let mut device = StrataHandle::NONE;
    assert_eq!(call!(table.device_open(0, &raw const options, &raw mut device)), StrataStatus::Unsupported);
    let last_error = table.last_error.expect("a required entry");
    // SAFETY: the text place lives through the call.
    let error = text(|out| unsafe { last_error(out) });
    assert!(error.contains("`sse9`") && error.contains("scalar"), "{error}");
}
