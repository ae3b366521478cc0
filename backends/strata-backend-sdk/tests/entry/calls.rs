//! What the calls do when all is well: data, programs, events, texts, lifetimes.
#![expect(unsafe_code, reason = "reads through the mapped address")]

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use strata_backend_sdk::abi::{
    SizedStruct, StrataBufferKind, StrataDeviceInfo, StrataDeviceKind, StrataHandle, StrataMemoryInfo,
    StrataProgramInfo, StrataStatus, StrataStr,
};

use crate::backend::LIVE_BUFFERS;
use crate::raw_host::{Spec, alloc, call, compile, last_error, open, read, read_text, run, text, toy, write};

pub(crate) fn empty_info() -> StrataDeviceInfo {
    StrataDeviceInfo {
        struct_size: StrataDeviceInfo::SIZE,
        kind: 77,
        flags: 77,
        reserved: 0,
        name: StrataStr::EMPTY,
        arch: StrataStr::EMPTY,
        uid: StrataStr::EMPTY,
        driver: StrataStr::EMPTY,
        memory_total: 0,
        memory_free: 0,
    }
}

#[test]
fn devices_are_listed() {
    let table = toy();
    let mut count = 0;
    assert_eq!(call!(table, device_count, &raw mut count), StrataStatus::Ok);
    assert_eq!(count, 2);
    let mut info = empty_info();
    assert_eq!(call!(table, device_info, 1, &raw mut info), StrataStatus::Ok);
    assert_eq!(info.kind, StrataDeviceKind::Accelerator as u32);
    assert_eq!((text(info.name).as_str(), text(info.uid).as_str()), ("Toy with an ä", "toy-1"));
    assert_eq!(text(info.driver), "");
    assert_eq!((info.memory_total, info.memory_free), (1 << 30, 1 << 29));

    // Texts are kept once, however often they are asked for.
    let mut again = empty_info();
    assert_eq!(call!(table, device_info, 1, &raw mut again), StrataStatus::Ok);
    assert_eq!(info.name.data, again.name.data);
}

#[test]
fn memory_and_report() {
    let table = toy();
    let device = open(table, 0, "").unwrap();
    let mut memory =
        StrataMemoryInfo { struct_size: StrataMemoryInfo::SIZE, reserved: 0, total: 0, free: 0, used_here: 0 };
    assert_eq!(call!(table, device_memory, device, &raw mut memory), StrataStatus::Ok);
    assert_eq!((memory.total, memory.free, memory.used_here), (100, 60, 7));

    // "grüße" is 7 bytes; a cut is told by the length and may split a character.
    let whole = "grüße".as_bytes();
    for capacity in [0, 1, 3, 6, 7, 20] {
        let (bytes, len) = read_text(capacity, |out| {
            assert_eq!(call!(table, device_report, device, out), StrataStatus::Ok);
        });
        assert_eq!(len, whole.len() as u64);
        assert_eq!(bytes, &whole[..capacity.min(whole.len())]);
    }
    // A host that only wants the length passes no place.
    let mut out = strata_backend_sdk::abi::StrataTextOut { data: std::ptr::null_mut(), capacity: 100, len: 0 };
    assert_eq!(call!(table, device_report, device, &raw mut out), StrataStatus::Ok);
    assert_eq!(out.len, 7);
}

#[test]
fn data_goes_in_and_out() {
    let table = toy();
    let device = open(table, 0, "").unwrap();
    let first = alloc(table, device, StrataBufferKind::Device, 16).unwrap();
    let second = alloc(table, device, StrataBufferKind::HostVisible, 16).unwrap();
    assert_eq!(write(table, first, 4, b"abcd"), StrataStatus::Ok);
    let mut out = [0; 6];
    assert_eq!(read(table, first, 3, &mut out), StrataStatus::Ok);
    assert_eq!(&out, b"\0abcd\0");

    assert_eq!(call!(table, buffer_copy, second, 8, first, 4, 4), StrataStatus::Ok);
    let mut address: *mut c_void = std::ptr::null_mut();
    assert_eq!(call!(table, buffer_map, second, &raw mut address), StrataStatus::Ok);
    // SAFETY: a mapped buffer of 16 bytes that nobody else uses.
    let mapped = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), 16) };
    assert_eq!(mapped, b"\0\0\0\0\0\0\0\0abcd\0\0\0\0");

    // Within one buffer, apart from each other.
    assert_eq!(call!(table, buffer_copy, first, 12, first, 4, 4), StrataStatus::Ok);
    assert_eq!(read(table, first, 12, &mut out[..4]), StrataStatus::Ok);
    assert_eq!(&out[..4], b"abcd");

    // Nothing is a valid amount, with a null pointer too.
    assert_eq!(call!(table, buffer_write, first, 16, std::ptr::null(), 0), StrataStatus::Ok);
    assert_eq!(call!(table, buffer_read, first, 16, std::ptr::null_mut(), 0), StrataStatus::Ok);
    let empty = alloc(table, device, StrataBufferKind::Device, 0).unwrap();
    assert_eq!(write(table, empty, 0, b""), StrataStatus::Ok);
    for buffer in [first, second, empty] {
        assert_eq!(call!(table, buffer_free, buffer), StrataStatus::Ok);
    }
    assert_eq!(call!(table, device_close, device), StrataStatus::Ok);
}

#[test]
fn a_program_runs_with_its_scalars() {
    let table = toy();
    let device = open(table, 0, "").unwrap();
    let target = alloc(table, device, StrataBufferKind::Device, 16).unwrap();
    let source = alloc(table, device, StrataBufferKind::Device, 16).unwrap();
    assert_eq!(write(table, source, 0, &[7; 16]), StrataStatus::Ok);
    let spec = Spec::copy(target, source);
    let program = compile(table, device, &spec.desc()).unwrap();
    assert_eq!(call!(table, synchronize, device), StrataStatus::Ok);

    let mut info = StrataProgramInfo {
        struct_size: StrataProgramInfo::SIZE,
        n_launches: 0,
        workspace_bytes: 0,
        constant_bytes: 0,
    };
    assert_eq!(call!(table, program_info, program, &raw mut info), StrataStatus::Ok);
    assert_eq!((info.n_launches, info.workspace_bytes, info.constant_bytes), (1, 2, 3));

    for count in [2_usize, 4] {
        assert_eq!(run(table, program, &[count as i64], &[], StrataHandle::NONE), StrataStatus::Ok);
        let mut out = [0; 16];
        assert_eq!(read(table, target, 0, &mut out), StrataStatus::Ok);
        assert!(out.iter().enumerate().all(|(at, byte)| *byte == if at < count * 4 { 7 } else { 0 }));
    }
    assert_eq!(call!(table, program_free, program), StrataStatus::Ok);
}

#[test]
fn support_is_told_with_a_reason() {
    let table = toy();
    let device = open(table, 0, "").unwrap();
    // Buffers need not exist: the handles are nobody's.
    let mut spec = Spec::copy(StrataHandle::NONE, StrataHandle::NONE);
    spec.buffers.clear();
    let supported = |spec: &Spec, capacity: usize| {
        let (desc, mut status) = (spec.desc(), StrataStatus::Internal);
        let (reason, _) = read_text(capacity, |out| {
            status = call!(table, op_supported, device, &raw const desc, 0, out);
        });
        (status, String::from_utf8(reason).unwrap())
    };
    assert_eq!(supported(&spec, 200), (StrataStatus::Ok, String::new()));
    spec.ops[0].kind = strata_backend_sdk::abi::StrataOpKind::Add as u32;
    let expected = "the toy only copies, it has no Some(Add)";
    assert_eq!(supported(&spec, 200), (StrataStatus::Unsupported, expected.to_owned()));
    assert_eq!(supported(&spec, 7), (StrataStatus::Unsupported, "the toy".to_owned()));
    // A kind of a later version is unsupported, not an error.
    spec.ops[0].kind = 4000;
    assert_eq!(supported(&spec, 200).0, StrataStatus::Unsupported);
    // Nobody has to want the reason.
    let desc = spec.desc();
    let status = call!(table, op_supported, device, &raw const desc, 0, std::ptr::null_mut());
    assert_eq!(status, StrataStatus::Unsupported);
}

#[test]
fn events_are_signalled_by_runs_and_waited_for_elsewhere() {
    let table = toy();
    let device = open(table, 0, "").unwrap();
    let buffer = alloc(table, device, StrataBufferKind::Device, 32).unwrap();
    let program = compile(table, device, &Spec::copy(buffer, buffer).desc()).unwrap();
    let mut event = StrataHandle::NONE;
    assert_eq!(call!(table, event_create, device, &raw mut event), StrataStatus::Ok);
    assert_eq!(call!(table, event_query, event), StrataStatus::NotReady);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| call!(table, event_wait, event));
        assert_eq!(run(table, program, &[1], &[], event), StrataStatus::Ok);
        assert_eq!(waiter.join().unwrap(), StrataStatus::Ok);
    });
    assert_eq!(call!(table, event_query, event), StrataStatus::Ok);
    assert_eq!(run(table, program, &[1], &[event], StrataHandle::NONE), StrataStatus::Ok);

    // An event of another device is a mix-up of the host's.
    let other = open(table, 1, "").unwrap();
    let mut foreign = StrataHandle::NONE;
    assert_eq!(call!(table, event_create, other, &raw mut foreign), StrataStatus::Ok);
    assert_eq!(run(table, program, &[1], &[foreign], StrataHandle::NONE), StrataStatus::InvalidCall);
    assert!(last_error(table).contains("of another device"), "{}", last_error(table));
    assert_eq!(run(table, program, &[1], &[], foreign), StrataStatus::InvalidCall);
    assert_eq!(call!(table, event_free, event), StrataStatus::Ok);
    assert_eq!(call!(table, event_query, event), StrataStatus::InvalidCall);
}

#[test]
fn a_program_keeps_its_buffers_and_closing_frees_everything() {
    let table = toy();
    let device = open(table, 0, "count").unwrap();
    let target = alloc(table, device, StrataBufferKind::Device, 16).unwrap();
    let source = alloc(table, device, StrataBufferKind::Device, 16).unwrap();
    let unused = alloc(table, device, StrataBufferKind::Device, 16).unwrap();
    let program = compile(table, device, &Spec::copy(target, source).desc()).unwrap();
    assert_eq!(LIVE_BUFFERS.load(Ordering::SeqCst), 3);
    for buffer in [target, source, unused] {
        assert_eq!(call!(table, buffer_free, buffer), StrataStatus::Ok);
    }
    assert_eq!(LIVE_BUFFERS.load(Ordering::SeqCst), 2, "the program's two live on");
    assert_eq!(run(table, program, &[4], &[], StrataHandle::NONE), StrataStatus::Ok);
    let kept = alloc(table, device, StrataBufferKind::Device, 16).unwrap();
    assert_eq!(call!(table, device_close, device), StrataStatus::Ok);
    assert_eq!(LIVE_BUFFERS.load(Ordering::SeqCst), 0);
    for (what, status) in [
        ("device", call!(table, synchronize, device)),
        ("buffer", call!(table, buffer_free, kept)),
        ("program", run(table, program, &[4], &[], StrataHandle::NONE)),
    ] {
        assert_eq!(status, StrataStatus::InvalidCall, "{what} after closing");
    }
}

#[test]
fn imported_memory_is_used_in_place_and_outlives_its_programs() {
    let table = toy();
    let device = open(table, 0, "").unwrap();
    let weights: Vec<u8> = (0..16).collect();
    let mut source = StrataHandle::NONE;
    let status = call!(table, buffer_import, device, weights.as_ptr().cast(), weights.len() as u64, &raw mut source);
    assert_eq!(status, StrataStatus::Ok);
    let target = alloc(table, device, StrataBufferKind::Device, 16).unwrap();
    let program = compile(table, device, &Spec::copy(target, source).desc()).unwrap();
    assert_eq!(run(table, program, &[4], &[], StrataHandle::NONE), StrataStatus::Ok);
    let mut out = [0; 16];
    assert_eq!(read(table, target, 0, &mut out), StrataStatus::Ok);
    assert_eq!(out, *weights);

    assert_eq!(write(table, source, 0, b"x"), StrataStatus::InvalidCall);
    assert_eq!(call!(table, buffer_copy, source, 0, target, 0, 1), StrataStatus::InvalidCall);
    assert_eq!(call!(table, buffer_free, source), StrataStatus::InvalidCall);
    assert!(last_error(table).contains("freed while a program uses it"), "{}", last_error(table));
    assert_eq!(call!(table, program_free, program), StrataStatus::Ok);
    assert_eq!(call!(table, buffer_free, source), StrataStatus::Ok);
}

#[test]
fn devices_work_at_the_same_time() {
    let table = toy();
    std::thread::scope(|scope| {
        for index in 0..4_u8 {
            scope.spawn(move || {
                let device = open(table, u32::from(index % 2), "").unwrap();
                for round in 0..20 {
                    let buffer = alloc(table, device, StrataBufferKind::Device, 8).unwrap();
                    assert_eq!(write(table, buffer, 0, &[index ^ round; 8]), StrataStatus::Ok);
                    let mut out = [0; 8];
                    assert_eq!(read(table, buffer, 0, &mut out), StrataStatus::Ok);
                    assert_eq!(out, [index ^ round; 8]);
                    assert_eq!(call!(table, buffer_free, buffer), StrataStatus::Ok);
                }
                assert_eq!(call!(table, device_close, device), StrataStatus::Ok);
            });
        }
    });
}
