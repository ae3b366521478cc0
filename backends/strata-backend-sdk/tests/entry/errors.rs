//! Calls that a host should not make: each is answered with `InvalidCall` (or the backend's own
//! status) and a text, and changes nothing.
#![expect(unsafe_code, reason = "calls the table, as a host in C does")]

use strata_backend_sdk::abi::{
    SizedStruct, StrataBackend, StrataBufferDesc, StrataBufferKind, StrataHandle, StrataMemoryInfo, StrataOp,
    StrataProgramDesc, StrataRunArgs, StrataStatus, StrataStr, StrataTensor,
};

use crate::calls::empty_info;
use crate::raw_host::{Spec, alloc, call, compile, last_error, open, read, run, toy, write};

#[track_caller]
fn refused(table: &StrataBackend, status: StrataStatus, words: &str) {
    let text = last_error(table);
    assert_eq!(status, StrataStatus::InvalidCall, "{text}");
    assert!(text.starts_with("host bug: ") && text.contains(words), "{text:?} lacks {words:?}");
}

#[test]
fn null_places_and_structs() {
    let table = toy();
    let device = open(table, 0, "").unwrap();
    let desc = Spec::copy(StrataHandle::NONE, StrataHandle::NONE).desc();
    let null = "null pointer";
    refused(table, call!(table, device_count, std::ptr::null_mut()), null);
    refused(table, call!(table, device_info, 0, std::ptr::null_mut()), null);
    refused(table, call!(table, device_open, 0, std::ptr::null(), std::ptr::null_mut()), null);
    let mut handle = StrataHandle::NONE;
    refused(table, call!(table, device_open, 0, std::ptr::null(), &raw mut handle), null);
    refused(table, call!(table, device_memory, device, std::ptr::null_mut()), null);
    refused(table, call!(table, device_report, device, std::ptr::null_mut()), null);
    refused(table, call!(table, op_supported, device, std::ptr::null(), 0, std::ptr::null_mut()), null);
    refused(table, call!(table, buffer_alloc, device, std::ptr::null(), &raw mut handle), null);
    refused(table, call!(table, buffer_import, device, std::ptr::null(), 8, &raw mut handle), null);
    refused(table, call!(table, program_compile, device, std::ptr::null(), &raw mut handle), null);
    refused(table, call!(table, program_compile, device, &raw const desc, std::ptr::null_mut()), null);
    refused(table, call!(table, event_create, device, std::ptr::null_mut()), null);
    assert_eq!(handle, StrataHandle::NONE, "nothing was made");

    let buffer = alloc(table, device, StrataBufferKind::HostVisible, 8).unwrap();
    refused(table, call!(table, buffer_write, buffer, 0, std::ptr::null(), 8), null);
    refused(table, call!(table, buffer_read, buffer, 0, std::ptr::null_mut(), 8), null);
    refused(table, call!(table, buffer_map, buffer, std::ptr::null_mut()), null);
    let program = compile(table, device, &Spec::copy(buffer, buffer).desc()).unwrap();
    refused(table, call!(table, program_run, program, std::ptr::null()), null);
    refused(table, call!(table, program_info, program, std::ptr::null_mut()), null);
}

#[test]
fn structs_that_are_too_short() {
    let table = toy();
    let device = open(table, 0, "").unwrap();
    let mut info = empty_info();
    info.struct_size -= 1;
    refused(table, call!(table, device_info, 0, &raw mut info), "StrataDeviceInfo says 95 bytes, the least is 96");
    assert_eq!(info.kind, 77, "nothing was written");
    let mut memory = StrataMemoryInfo { struct_size: 0, reserved: 0, total: 9, free: 9, used_here: 9 };
    refused(table, call!(table, device_memory, device, &raw mut memory), "StrataMemoryInfo says 0 bytes");
    assert_eq!(memory.total, 9);
    let desc = StrataBufferDesc { struct_size: 8, kind: 0, bytes: 8, label: StrataStr::EMPTY };
    let mut handle = StrataHandle::NONE;
    refused(table, call!(table, buffer_alloc, device, &raw const desc, &raw mut handle), "StrataBufferDesc says 8");

    let buffer = alloc(table, device, StrataBufferKind::Device, 16).unwrap();
    let program = compile(table, device, &Spec::copy(buffer, buffer).desc()).unwrap();
    let args = StrataRunArgs {
        struct_size: StrataRunArgs::SIZE - 8,
        n_scalars: 0,
        scalars: std::ptr::null(),
        wait: std::ptr::null(),
        n_wait: 0,
        reserved: 0,
        signal: StrataHandle::NONE,
    };
    refused(table, call!(table, program_run, program, &raw const args), "StrataRunArgs says");
}

#[test]
fn handles_that_are_not_valid() {
    let table = toy();
    let device = open(table, 0, "").unwrap();
    let buffer = alloc(table, device, StrataBufferKind::Device, 16).unwrap();
    let foreign = StrataHandle { instance: device.instance + 1, id: device.id };
    refused(table, call!(table, synchronize, foreign), "belongs to plugin instance 41, not 42");
    refused(table, call!(table, synchronize, StrataHandle::NONE), "no device handle was given");
    let never = StrataHandle { instance: device.instance, id: u64::MAX };
    refused(table, call!(table, synchronize, never), "was never made by this plugin");
    refused(table, call!(table, synchronize, buffer), "no live device: it was freed, or is of another kind");
    refused(table, write(table, device, 0, b"x"), "no live buffer");
    refused(table, run(table, buffer, &[], &[], StrataHandle::NONE), "no live program");
    refused(table, call!(table, event_wait, buffer), "no live event");
    refused(table, call!(table, buffer_free, foreign), "no live buffer");

    assert_eq!(call!(table, buffer_free, buffer), StrataStatus::Ok);
    refused(table, call!(table, buffer_free, buffer), "it was freed");
    let next = alloc(table, device, StrataBufferKind::Device, 16).unwrap();
    assert!(next.id > buffer.id, "numbers are never used again");
    assert_eq!(call!(table, device_close, device), StrataStatus::Ok);
    refused(table, call!(table, device_close, device), "it was freed");
    refused(table, call!(table, buffer_free, next), "it was freed");
}

#[test]
fn ranges_outside_a_buffer() {
    let table = toy();
    let device = open(table, 0, "").unwrap();
    let buffer = alloc(table, device, StrataBufferKind::Device, 16).unwrap();
    refused(table, write(table, buffer, 13, b"abcd"), "a write of 4 bytes at 13 in a buffer of 16 bytes");
    refused(table, write(table, buffer, u64::MAX, b"abcd"), "in a buffer of 16 bytes");
    refused(table, read(table, buffer, 17, &mut []), "a read of 0 bytes at 17");
    refused(table, call!(table, buffer_copy, buffer, 0, buffer, 12, 8), "a copy's source");
    refused(table, call!(table, buffer_copy, buffer, 12, buffer, 0, 8), "a copy's target");
    refused(table, call!(table, buffer_copy, buffer, 0, buffer, 4, 8), "overlaps itself");
    let mut out = [9_u8; 1];
    let status = call!(table, buffer_read, buffer, 0, out.as_mut_ptr().cast(), u64::MAX);
    refused(table, status, "more than memory can hold");
    let mut address = std::ptr::null_mut();
    refused(table, call!(table, buffer_map, buffer, &raw mut address), "only a host-visible buffer");
    let other = alloc(table, open(table, 1, "").unwrap(), StrataBufferKind::Device, 16).unwrap();
    refused(table, call!(table, buffer_copy, buffer, 0, other, 0, 8), "two devices");
    let desc = StrataBufferDesc { struct_size: StrataBufferDesc::SIZE, kind: 9, bytes: 8, label: StrataStr::EMPTY };
    let mut handle = StrataHandle::NONE;
    refused(table, call!(table, buffer_alloc, device, &raw const desc, &raw mut handle), "9 is no buffer kind");
}

#[test]
fn the_backends_own_failures_keep_their_status() {
    let table = toy();
    assert_eq!(open(table, 99, ""), Err(StrataStatus::NoPermission));
    assert_eq!(last_error(table), "device 99 is not yours");
    let device = open(table, 0, "").unwrap();
    assert_eq!(alloc(table, device, StrataBufferKind::Device, 1 << 21), Err(StrataStatus::OutOfMemory));
    assert_eq!(last_error(table), "2097152 bytes for `test` are too much for a toy");
    let mut info = empty_info();
    assert_eq!(call!(table, device_info, 2, &raw mut info), StrataStatus::NoDevice);
    assert_eq!(last_error(table), "there is no device 2, only 2");
}

#[test]
fn the_last_error_is_the_threads_own() {
    let table = toy();
    assert_eq!(open(table, 99, ""), Err(StrataStatus::NoPermission));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(last_error(table), "");
            refused(table, call!(table, synchronize, StrataHandle::NONE), "no device");
        });
    });
    // A call that works does not wipe it: it is the text of the last failed one.
    open(table, 0, "").unwrap();
    assert_eq!(last_error(table), "device 99 is not yours");
}

#[test]
fn programs_with_bad_indices_or_sizes() {
    let table = toy();
    let device = open(table, 0, "").unwrap();
    let buffer = alloc(table, device, StrataBufferKind::Device, 16).unwrap();
    let check = |words: &str, spoil: &dyn Fn(&mut Spec), spoil_desc: &dyn Fn(&mut StrataProgramDesc)| {
        let mut spec = Spec::copy(buffer, buffer);
        spoil(&mut spec);
        let mut desc = spec.desc();
        spoil_desc(&mut desc);
        refused(table, compile(table, device, &desc).unwrap_err(), words);
    };
    let keep: &dyn Fn(&mut StrataProgramDesc) = &|_| {};
    check("op 0 names tensor 2 of 2", &|spec| spec.ops[0].operand[3] = 2, keep);
    check("tensor 1 names scalar 6, the program has 1", &|spec| spec.tensors[1].dynamic[2] = 7, keep);
    check("tensor 1 names buffer 2, the program has 2", &|spec| spec.tensors[1].buffer = 2, keep);
    check("StrataTensor says 4 bytes", &|spec| spec.tensors[0].struct_size = 4, keep);
    check("StrataOp 0 says 4096 bytes, more than its stride", &|spec| spec.ops[0].struct_size = 4096, keep);
    let no_spoil: &dyn Fn(&mut Spec) = &|_| {};
    check("the stride of StrataTensor is 8 bytes", no_spoil, &|desc| desc.tensor_stride = 8);
    check("the stride of StrataOp is 0 bytes", no_spoil, &|desc| desc.op_stride = 0);
    check("StrataTensor is a null pointer", no_spoil, &|desc| desc.tensors = std::ptr::null());
    check("scalar_max is a null pointer", no_spoil, &|desc| desc.scalar_max = std::ptr::null());
    check("buffers is a null pointer", no_spoil, &|desc| desc.buffers = std::ptr::null());
    check("StrataProgramDesc says 79 bytes", no_spoil, &|desc| desc.struct_size = 79);
    check("is not UTF-8", no_spoil, &|desc| desc.name = StrataStr { data: [0xff_u8].as_ptr(), len: 1 });
    check("no live buffer", &|spec| spec.buffers[0] = device, keep);
    let other = alloc(table, open(table, 1, "").unwrap(), StrataBufferKind::Device, 16).unwrap();
    check("is of another device", &|spec| spec.buffers[0] = other, keep);

    let spec = Spec::copy(buffer, buffer);
    let desc = spec.desc();
    let status = call!(table, op_supported, device, &raw const desc, 1, std::ptr::null_mut());
    refused(table, status, "asked for op 1 of a program of 1");
}

#[test]
fn runs_with_bad_scalars() {
    let table = toy();
    let device = open(table, 0, "").unwrap();
    let buffer = alloc(table, device, StrataBufferKind::Device, 32).unwrap();
    let program = compile(table, device, &Spec::copy(buffer, buffer).desc()).unwrap();
    refused(table, run(table, program, &[], &[], StrataHandle::NONE), "0 scalars, the program has 1");
    refused(table, run(table, program, &[1, 2], &[], StrataHandle::NONE), "2 scalars, the program has 1");
    let words = "scalar 0 is 5 in this run, the program was compiled for at most 4";
    refused(table, run(table, program, &[5], &[], StrataHandle::NONE), words);
}

/// What a host of a later minor writes: our structs with tails, at its own stride.
#[test]
fn programs_of_a_newer_host_are_read_with_its_stride() {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Newer<T> {
        known: T,
        tail: [u64; 3],
    }
    let table = toy();
    let device = open(table, 0, "").unwrap();
    let target = alloc(table, device, StrataBufferKind::Device, 16).unwrap();
    let source = alloc(table, device, StrataBufferKind::Device, 16).unwrap();
    assert_eq!(write(table, source, 0, &[3; 16]), StrataStatus::Ok);
    let spec = Spec::copy(target, source);
    let newer_tensor = |tensor: &StrataTensor| {
        let known = StrataTensor { struct_size: size_of::<Newer<StrataTensor>>() as u32, ..*tensor };
        Newer { known, tail: [u64::MAX; 3] }
    };
    let newer_op = |op: &StrataOp| {
        let known = StrataOp { struct_size: size_of::<Newer<StrataOp>>() as u32, ..*op };
        Newer { known, tail: [u64::MAX; 3] }
    };
    let tensors: Vec<_> = spec.tensors.iter().map(newer_tensor).collect();
    let ops: Vec<_> = spec.ops.iter().map(newer_op).collect();
    let mut desc = spec.desc();
    desc.tensors = tensors.as_ptr().cast();
    desc.tensor_stride = size_of::<Newer<StrataTensor>>() as u32;
    desc.ops = ops.as_ptr().cast();
    desc.op_stride = size_of::<Newer<StrataOp>>() as u32;
    let program = compile(table, device, &desc).unwrap();
    assert_eq!(run(table, program, &[4], &[], StrataHandle::NONE), StrataStatus::Ok);
    let mut out = [0; 16];
    assert_eq!(read(table, target, 0, &mut out), StrataStatus::Ok);
    assert_eq!(out, [3; 16]);
}
