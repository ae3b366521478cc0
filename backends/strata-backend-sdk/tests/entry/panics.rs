//! A panic in any call becomes a status and a text, is printed nowhere, and leaves the device out
//! of order but closable.
#![expect(unsafe_code, reason = "calls the table, as a host in C does")]

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use strata_backend_sdk::abi::{
    SizedStruct, StrataBackend, StrataBufferKind, StrataHandle, StrataMemoryInfo, StrataProgramInfo, StrataStatus,
    StrataTextOut,
};

use crate::raw_host::{PRINTED_PANICS, Spec, alloc, call, compile, last_error, open, read, run, toy, write};

/// Makes the call that is to panic, on a device made for it.
type Trigger = fn(&StrataBackend, StrataHandle) -> StrataStatus;

fn buffer(table: &StrataBackend, device: StrataHandle) -> StrataHandle {
    alloc(table, device, StrataBufferKind::HostVisible, 32).unwrap()
}

fn program(table: &StrataBackend, device: StrataHandle) -> StrataHandle {
    let buffer = buffer(table, device);
    compile(table, device, &Spec::copy(buffer, buffer).desc()).unwrap()
}

fn text_out() -> StrataTextOut {
    StrataTextOut { data: std::ptr::null_mut(), capacity: 0, len: 0 }
}

/// Each call of the table that reaches the plugin through an open device.
const CALLS: &[(&str, Trigger)] = &[
    ("panic:memory", |table, device| {
        let mut memory =
            StrataMemoryInfo { struct_size: StrataMemoryInfo::SIZE, reserved: 0, total: 0, free: 0, used_here: 0 };
        call!(table, device_memory, device, &raw mut memory)
    }),
    ("panic:report", |table, device| {
        let mut out = text_out();
        call!(table, device_report, device, &raw mut out)
    }),
    ("panic:synchronize", |table, device| call!(table, synchronize, device)),
    ("panic:op_supported", |table, device| {
        let spec = Spec::copy(StrataHandle::NONE, StrataHandle::NONE);
        let (desc, mut out) = (spec.desc(), text_out());
        call!(table, op_supported, device, &raw const desc, 0, &raw mut out)
    }),
    ("panic:buffer_alloc", |table, device| alloc(table, device, StrataBufferKind::Device, 8).unwrap_err()),
    ("panic:buffer_import", |table, device| {
        let mut out = StrataHandle::NONE;
        let data: &'static [u8] = b"weights";
        call!(table, buffer_import, device, data.as_ptr().cast::<c_void>(), data.len() as u64, &raw mut out)
    }),
    ("panic:buffer_write", |table, device| write(table, buffer(table, device), 0, b"x")),
    ("panic:buffer_read", |table, device| read(table, buffer(table, device), 0, &mut [0])),
    ("panic:buffer_copy", |table, device| {
        let buffer = buffer(table, device);
        call!(table, buffer_copy, buffer, 0, buffer, 8, 4)
    }),
    ("panic:buffer_map", |table, device| {
        let mut address = std::ptr::null_mut();
        call!(table, buffer_map, buffer(table, device), &raw mut address)
    }),
    ("panic:program_compile", |table, device| {
        let buffer = buffer(table, device);
        compile(table, device, &Spec::copy(buffer, buffer).desc()).unwrap_err()
    }),
    ("panic:program_info", |table, device| {
        let mut info = StrataProgramInfo {
            struct_size: StrataProgramInfo::SIZE,
            n_launches: 0,
            workspace_bytes: 0,
            constant_bytes: 0,
        };
        call!(table, program_info, program(table, device), &raw mut info)
    }),
    ("panic:program_run", |table, device| run(table, program(table, device), &[1], &[], StrataHandle::NONE)),
    ("panic:event_create", |table, device| {
        let mut event = StrataHandle::NONE;
        call!(table, event_create, device, &raw mut event)
    }),
];

#[test]
fn a_panic_in_a_call_breaks_only_that_device() {
    let table = toy();
    let bystander = open(table, 1, "").unwrap();
    for (variant, trigger) in CALLS {
        let device = open(table, 0, variant).unwrap();
        assert_eq!(trigger(table, device), StrataStatus::Internal, "{variant}");
        let name = variant.strip_prefix("panic:").unwrap();
        let text = last_error(table);
        assert!(text.starts_with("the plugin panicked: "), "{text}");
        assert!(text.contains(&format!("scripted panic in {name}")), "{text}");
        assert!(text.contains("backend.rs:"), "{text} says the place");

        // From then on the device says what happened to it, and can still be closed.
        assert_eq!(call!(table, synchronize, device), StrataStatus::DeviceLost, "{variant}");
        assert!(last_error(table).contains(&format!("scripted panic in {name}")), "{}", last_error(table));
        assert_eq!(call!(table, device_close, device), StrataStatus::Ok, "{variant}: {}", last_error(table));
        assert_eq!(call!(table, synchronize, bystander), StrataStatus::Ok);
    }
    assert_eq!(PRINTED_PANICS.load(Ordering::SeqCst), 0);
}

#[test]
fn a_panic_while_opening_makes_no_device() {
    let table = toy();
    assert_eq!(open(table, 0, "panic:open"), Err(StrataStatus::Internal));
    assert!(last_error(table).contains("scripted panic in open"), "{}", last_error(table));
}

#[test]
fn a_panic_in_a_destructor_is_told_and_the_rest_is_freed() {
    let table = toy();
    let device = open(table, 0, "panic:buffer_free").unwrap();
    let first = buffer(table, device);
    assert_eq!(call!(table, buffer_free, first), StrataStatus::Internal);
    assert!(last_error(table).contains("scripted panic in buffer_free"));
    assert_eq!(call!(table, buffer_free, first), StrataStatus::InvalidCall, "it is gone all the same");

    let device = open(table, 0, "panic:program_free").unwrap();
    assert_eq!(call!(table, program_free, program(table, device)), StrataStatus::Internal);
    // Two programs whose destructors both panic: closing goes through and tells the first.
    program(table, device);
    program(table, device);
    assert_eq!(call!(table, device_close, device), StrataStatus::Internal);
    assert!(last_error(table).contains("scripted panic in program_free"));
    assert_eq!(call!(table, device_close, device), StrataStatus::InvalidCall);

    let device = open(table, 0, "panic:close").unwrap();
    assert_eq!(call!(table, device_close, device), StrataStatus::Internal);
    assert!(last_error(table).contains("scripted panic in close"));
    assert_eq!(PRINTED_PANICS.load(Ordering::SeqCst), 0);
}

#[test]
fn a_panic_in_a_worker_thread_is_told_once_by_the_call_it_worked_for() {
    let table = toy();
    let device = open(table, 0, "panic:worker").unwrap();
    assert_eq!(call!(table, synchronize, device), StrataStatus::Internal);
    let text = last_error(table);
    assert_eq!(text.matches("scripted panic in worker").count(), 1, "{text}");
    assert_eq!(PRINTED_PANICS.load(Ordering::SeqCst), 0, "printed by a hook");
}
