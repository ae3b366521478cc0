//! The sound plugin of tests/bad through the whole API.

use crate::support::{Folder, expect};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use strata_backend_abi::{StrataBufferKind, StrataDType, StrataLogLevel, StrataUnary};
use strata_plugin_host::{
    Buffer, Device, DeviceOptions, Dim, HostMemory, OpenOptions, Plugin, ProgramBuilder, ProgramSpec, ScalarMax,
    Support, numeric_check,
};

fn device() -> (Folder, Device) {
    let folder = Folder::compiled(&[]);
    let device = folder.open().unwrap().open_device(0, &DeviceOptions::default()).unwrap();
    (folder, device)
}

const MAX: ScalarMax = ScalarMax { tokens: 4, outputs: 1, kv_length: 16, position: 15 };

/// `out = a + 2·b` over rows of 8.
fn addition() -> ProgramSpec {
    let mut builder = ProgramBuilder::new("addition", MAX);
    let rows = [Dim::Fixed(8), Dim::TOKENS];
    let a = builder.tensor(StrataDType::F32, 0, 0, &rows);
    let b = builder.tensor(StrataDType::F32, 1, 0, &rows);
    let out = builder.tensor(StrataDType::F32, 0, 256, &rows);
    builder.add(out, a, b, 2.0);
    builder.finish()
}

fn floats(buffer: &Buffer, offset: u64, n: usize) -> Vec<f32> {
    let mut bytes = vec![0; n * 4];
    buffer.read(offset, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

#[test]
fn a_program_runs_with_the_tokens_of_the_run() {
    let (_folder, device) = device();
    numeric_check(&device).unwrap();
    let a = device.alloc(StrataBufferKind::Device, 512, "a").unwrap();
    let b = device.import(Arc::new(bytes((0..32).map(|i| i as f32)))).unwrap().unwrap();
    assert!(b.is_imported() && !a.is_imported());
    a.write(0, &bytes([0.5; 128])).unwrap();
    let mut program = device.compile(&addition(), &[a.clone(), b.clone()]).unwrap();
    program.run(&[2, 1, 1, -1]).unwrap();
    device.synchronize().unwrap();
    let out = floats(&a, 256, 32);
    for (i, value) in out.iter().enumerate() {
        let wanted = if i < 16 { 0.5 + 2.0 * i as f32 } else { 0.5 };
        assert!((value - wanted).abs() < 1e-6, "{i}: {value}");
    }
    assert_eq!(program.info().unwrap(), strata_plugin_host::ProgramInfo::default());
    // The program keeps its buffers, the buffers their device.
    drop((a, b, device));
    program.run(&[4, 1, 1, 0]).unwrap();
}

#[test]
fn everything_is_freed() {
    let (_folder, device) = device();
    let before = device.memory().unwrap();
    let a = device.alloc(StrataBufferKind::Device, 512, "a").unwrap();
    let b = device.alloc(StrataBufferKind::Device, 512, "b").unwrap();
    assert_eq!(device.memory().unwrap().used_here, before.used_here + 1024);
    let program = device.compile(&addition(), &[a.clone(), b.clone()]).unwrap();
    drop((a, b));
    assert_eq!(device.memory().unwrap().used_here, before.used_here + 1024);
    drop(program);
    assert_eq!(device.memory().unwrap().used_here, before.used_here);
}

#[test]
fn imported_memory_lives_as_long_as_the_buffer() {
    struct Watched(Vec<u8>, Arc<Mutex<bool>>);
    impl HostMemory for Watched {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }
    impl Drop for Watched {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = true;
        }
    }
    let (_folder, device) = device();
    let is_dropped = Arc::new(Mutex::new(false));
    let memory = Arc::new(Watched(bytes([1.0; 32]), Arc::clone(&is_dropped)));
    let b = device.import(memory).unwrap().unwrap();
    let a = device.alloc(StrataBufferKind::Device, 512, "a").unwrap();
    let program = device.compile(&addition(), &[a, b]).unwrap();
    assert!(!*is_dropped.lock().unwrap());
    drop(program);
    assert!(*is_dropped.lock().unwrap());
}

#[test]
fn calls_that_the_host_must_not_make_do_not_reach_the_plugin() {
    let (_folder, device) = device();
    let a = device.alloc(StrataBufferKind::Device, 512, "a").unwrap();
    let b = device.import(Arc::new(vec![0; 512])).unwrap().unwrap();
    expect(device.alloc(StrataBufferKind::Device, 0, "none"), "invalid-call", "0 bytes");
    expect(device.import(Arc::new(Vec::new())), "invalid-call", "no bytes");
    expect(a.write(505, &[0; 8]), "invalid-call", "8 bytes at 505 of a buffer of 512");
    expect(a.read(u64::MAX, &mut [0; 8]), "invalid-call", "of a buffer of 512");
    a.write(512, &[]).unwrap();
    expect(b.write(0, &[0; 8]), "invalid-call", "for reading only");
    expect(b.with_mapped(|_| ()), "invalid-call", "for reading only");
    expect(a.with_mapped(|_| ()), "invalid-call", "not host-visible");
    expect(a.copy_to(0, &b, 0, 8), "invalid-call", "for reading only");
    expect(a.copy_to(0, &a, 4, 8), "invalid-call", "overlap");
    expect(a.copy_to(0, &a, 508, 8), "invalid-call", "at 508");
    a.copy_to(0, &a, 8, 8).unwrap();
    b.copy_to(0, &a, 0, 512).unwrap();

    let mut program = device.compile(&addition(), &[a.clone(), b.clone()]).unwrap();
    expect(program.run(&[2, 1, 1]), "invalid-call", "3 scalars");
    expect(program.run(&[5, 1, 1, 0]), "invalid-call", "scalar 0 is 5, program `addition` takes 0 to 4");
    expect(program.run(&[-1, 1, 1, 0]), "invalid-call", "scalar 0 is -1");
    expect(program.run(&[2, 1, 1, -2]), "invalid-call", "takes -1 to 15");
    program.run(&[0, 0, 0, -1]).unwrap();

    // A result in imported memory, too few buffers, a buffer of another device.
    expect(device.compile(&addition(), &[b.clone(), b.clone()]), "invalid-call", "imported for reading only");
    expect(device.compile(&addition(), std::slice::from_ref(&a)), "invalid-call", "buffer 1, the program has 1");
    let (_folder, other) = self::device();
    let foreign = other.alloc(StrataBufferKind::Device, 512, "a").unwrap();
    expect(device.compile(&addition(), &[a.clone(), foreign.clone()]), "invalid-call", "belongs to another device");
    expect(a.copy_to(0, &foreign, 0, 8), "invalid-call", "different devices");
}

#[test]
fn events_order_runs() {
    let (_folder, device) = device();
    let a = device.alloc(StrataBufferKind::Device, 512, "a").unwrap();
    let mut program = device.compile(&addition(), &[a.clone(), a.clone()]).unwrap();
    assert!(device.has_events());
    let events: Vec<_> = (0..12).map(|_| device.event().unwrap().unwrap()).collect();
    let none = device.event().unwrap().unwrap();
    expect(none.wait(), "invalid-call", "it would wait for ever");
    assert!(!none.is_done().unwrap());
    for event in &events {
        program.run_with(&[1, 1, 1, 0], &[], Some(event)).unwrap();
        assert!(event.is_done().unwrap());
        event.wait().unwrap();
    }
    // More than fit the call's own room.
    let all: Vec<_> = events.iter().collect();
    program.run_with(&[1, 1, 1, 0], &all, None).unwrap();
    let and_one: Vec<_> = all.iter().copied().chain([&none]).collect();
    expect(program.run_with(&[1, 1, 1, 0], &and_one, None), "invalid-call", "it would wait for ever");
    let (_folder, other) = self::device();
    let foreign = other.event().unwrap().unwrap();
    expect(program.run_with(&[1, 1, 1, 0], &[&foreign], None), "invalid-call", "an event of another device");
}

/// The plugin ends the process when something is freed while work is pending; here it is not waited for.
#[test]
fn nothing_is_freed_under_work() {
    let (_folder, device) = device();
    let a = device.alloc(StrataBufferKind::Device, 512, "a").unwrap();
    let mut program = device.compile(&addition(), &[a.clone(), a.clone()]).unwrap();
    let event = device.event().unwrap().unwrap();
    let spare = device.alloc(StrataBufferKind::Device, 512, "spare").unwrap();
    for freed in [Box::new(spare) as Box<dyn std::any::Any>, Box::new(event), Box::new(a)] {
        program.run(&[4, 1, 1, 0]).unwrap();
        drop(freed);
    }
    program.run(&[4, 1, 1, 0]).unwrap();
    drop(program);
}

/// The plugin ends the process when a lost device is asked for anything but to be closed.
#[test]
fn a_lost_device_is_only_closed() {
    let folder = Folder::compiled(&["FAULT_LOST"]);
    let device = folder.open().unwrap().open_device(0, &DeviceOptions::default()).unwrap();
    let a = device.alloc(StrataBufferKind::Device, 512, "a").unwrap();
    let b = device.import(Arc::new(vec![0; 512])).unwrap().unwrap();
    let mut program = device.compile(&addition(), &[a.clone(), b.clone()]).unwrap();
    let event = device.event().unwrap().unwrap();
    expect(program.run(&[1, 1, 1, 0]), "device-failed", "fell off the bus");
    expect(program.run(&[1, 1, 1, 0]), "device-failed", "an earlier call on this device failed");
    expect(a.write(0, &[1]), "device-failed", "leaves only closing it");
    expect(event.wait(), "device-failed", "leaves only closing it");
    expect(device.synchronize(), "device-failed", "leaves only closing it");
    assert!(device.report().starts_with("no report: "), "{}", device.report());
    drop((program, a, b, event, device));
}

#[test]
fn a_host_visible_buffer_is_mapped() {
    let (_folder, device) = device();
    let a = device.alloc(StrataBufferKind::HostVisible, 16, "a").unwrap();
    a.with_mapped(|bytes| bytes.copy_from_slice(&[7; 16])).unwrap();
    let mut out = [0; 16];
    a.read(0, &mut out).unwrap();
    assert_eq!(out, [7; 16]);
}

#[test]
fn support_is_answered_per_op() {
    let (_folder, device) = device();
    let mut spec = addition();
    let mut builder = ProgramBuilder::new("two", MAX);
    let x = builder.tensor(StrataDType::F32, 0, 0, &[Dim::Fixed(8), Dim::TOKENS]);
    builder.add(x, x, x, 1.0);
    builder.unary(x, x, StrataUnary::Exp, 0.0);
    let two = builder.finish();
    assert_eq!(device.supports(&spec, 0).unwrap(), Support::Yes);
    assert_eq!(device.supports_all(&two).unwrap(), [Support::Yes, Support::No("not one of the three".to_owned())]);
    expect(device.supports(&spec, 1), "invalid-call", "op 1 of a program with 1");
    spec.tensors[1].ne[0] = 9;
    expect(device.supports(&spec, 0), "invalid-call", "nb[1] is 32, elements would share bytes");
    let huge = device.alloc(StrataBufferKind::Device, 1 << 40, "huge");
    expect(huge, "out-of-memory", "more than there is");
}

#[test]
fn the_plugin_s_log_arrives() {
    let folder = Folder::compiled(&[]);
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    let log = Arc::new(move |level: StrataLogLevel, text: &str| sink.lock().unwrap().push((level, text.to_owned())));
    let plugin = Plugin::open(&folder.entry().unwrap(), &OpenOptions { log, ..OpenOptions::in_process() }).unwrap();
    assert_eq!(*lines.lock().unwrap(), [(StrataLogLevel::Info, "entry called".to_owned())]);
    // The same file is the same plugin: its entry is not called again.
    let twin = folder.open().unwrap();
    assert_eq!(lines.lock().unwrap().len(), 1);
    assert_eq!((plugin.name(), twin.abi(), plugin.version()), ("test", (1, 0), env!("CARGO_PKG_VERSION").to_owned()));
}

#[test]
fn devices_and_programs_may_be_used_from_several_threads() {
    let (_folder, device) = device();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let a = device.alloc(StrataBufferKind::Device, 512, "a").unwrap();
                let b = device.import(Arc::new(bytes([1.0; 32]))).unwrap().unwrap();
                let mut program = device.compile(&addition(), &[a.clone(), b]).unwrap();
                for _ in 0..200 {
                    a.write(0, &bytes([0.0; 32])).unwrap();
                    program.run(&[4, 1, 1, 0]).unwrap();
                    assert!(floats(&a, 256, 32).iter().all(|value| (value - 2.0).abs() < 1e-6));
                }
            });
        }
    });
}

/// The host's part of a run: what is left when the plugin has nothing to do.
#[test]
fn a_run_costs_the_host_little() {
    let (_folder, device) = device();
    let a = device.alloc(StrataBufferKind::Device, 512, "a").unwrap();
    let b = device.alloc(StrataBufferKind::Device, 512, "b").unwrap();
    let mut program = device.compile(&addition(), &[a, b]).unwrap();
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let started = Instant::now();
        for _ in 0..1000 {
            program.run(&[0, 1, 1, 0]).unwrap();
        }
        best = best.min(started.elapsed().as_secs_f64() / 1000.0);
    }
    println!("host and an empty run: {:.0} ns", best * 1e9);
    assert!(best < 1e-6, "{best}");
}
