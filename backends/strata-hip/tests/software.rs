//! The plugin's host side over the software HIP device, without kernels that run: what is said when
//! something is absent or fails, which card is which, and that work is given in the right order.
//!
//! `STRATA_TEST_HIP_LIBRARY` names the device's library; else it is built now.
#![expect(unsafe_code, reason = "calls the software device's own control functions")]
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on fails, and says what it skips")]

mod support;

use std::sync::Arc;

use strata_backend_abi::{
    STRATA_MAX_FLOATS, STRATA_MAX_INTS, STRATA_MAX_OPERANDS, STRATA_NO_OPERAND, SizedStruct, StrataBufferKind,
    StrataDType, StrataOp, StrataOpKind, StrataStatus, StrataTensor,
};
use strata_backend_sdk::{Device, DeviceOptions, Failure, Host, ProgramView};
use strata_gpu::{Buffer, GpuBackend, GpuDevice, GpuPlugin, Runtime};
use strata_hip::{HipDriver, HipRuntime};
use support::{Software, modules};

fn start(software: &Software) -> Result<Arc<HipRuntime>, Failure> {
    HipRuntime::start(Some(software.path())).map(Arc::new)
}

/// A plugin with kernels for a target, over the software device.
fn backend(software: &Software, targets: &[&'static str]) -> Option<GpuBackend<HipRuntime>> {
    let plugin = GpuPlugin { modules: modules(targets)?, not_built: None, library_variable: "STRATA_NONE", flags: 0 };
    Some(GpuBackend::with(Host::silent(), plugin, start(software).unwrap()))
}

fn device(software: &Software, reserve_bytes: u64) -> Option<GpuDevice<HipDriver>> {
    let options = DeviceOptions { reserve_bytes, ..DeviceOptions::default() };
    Some(backend(software, &["gfx906"])?.open(0, &options).unwrap())
}

fn tensor(offset: u64) -> StrataTensor {
    StrataTensor {
        struct_size: StrataTensor::SIZE,
        dtype: StrataDType::F32 as u32,
        buffer: 0,
        flags: 0,
        offset,
        ne: [64, 4, 1, 1],
        nb: [4, 256, 1024, 1024],
        dynamic: [0, 1, 0, 0],
    }
}

/// y = 2 x over up to four tokens.
fn program() -> ProgramView<'static> {
    let mut op = StrataOp {
        struct_size: StrataOp::SIZE,
        kind: StrataOpKind::Scale as u32,
        flags: 0,
        layer: 3,
        operand: [STRATA_NO_OPERAND; STRATA_MAX_OPERANDS],
        float: [0.0; STRATA_MAX_FLOATS],
        int: [0; STRATA_MAX_INTS],
    };
    op.operand[..2].copy_from_slice(&[1, 0]);
    op.float[0] = 2.0;
    let tensors = vec![tensor(0), tensor(1024)];
    ProgramView { name: "double", precise: false, flags: 0, tensors, ops: vec![op], scalar_max: vec![4] }
}

fn buffer(device: &mut GpuDevice<HipDriver>, bytes: u64) -> Arc<Buffer<HipDriver>> {
    Arc::new(device.buffer_alloc(StrataBufferKind::Device, bytes, "weights").unwrap())
}

#[test]
fn no_card_is_said_by_either_number_of_either_call() {
    for (call, code) in [("hipInit", 100), ("hipInit", 101), ("hipGetDeviceCount", 100), ("hipGetDeviceCount", 101)] {
        let software = Software::new("");
        software.fail(call, code, 0);
        let failure = start(&software).and_then(|runtime| runtime.cards()).unwrap_err();
        // This machine may have a card of AMD's that cannot be used, which is another answer.
        let known = [StrataStatus::NoDevice, StrataStatus::DriverMissing, StrataStatus::NoPermission];
        assert!(known.contains(&failure.status), "{}", failure.text);
        let answered = format!("libamdhip64.so.7: {call} answered {code} (hipError");
        assert!(failure.text.contains(&answered), "{}", failure.text);
    }
    let software = Software::new("devices=0");
    let failure = start(&software).unwrap_err();
    assert!(failure.text.contains("hipInit answered 101"), "{}", failure.text);
}

#[test]
fn a_runtime_that_does_not_start_or_is_old_is_named_with_its_file() {
    let software = Software::new("");
    software.fail("hipInit", 999, 0);
    let failure = start(&software).unwrap_err();
    assert_eq!(failure.status, StrataStatus::DriverMissing);
    let words = format!("the HIP runtime {} does not start: hipInit answered 999", software.path());
    assert!(failure.text.starts_with(&words), "{}", failure.text);

    let software = Software::new("version=40321300");
    let failure = start(&software).unwrap_err();
    assert_eq!(failure.status, StrataStatus::DriverTooOld);
    assert!(failure.text.contains("is HIP 4.3.21300: too old, ROCm 5 or later"), "{}", failure.text);
}

#[test]
fn a_function_that_is_missing_is_named() {
    let software = Software::without("", &["hipStreamCreateWithFlags"]);
    let failure = start(&software).unwrap_err();
    assert_eq!(failure.status, StrataStatus::DriverTooOld);
    assert!(failure.text.contains("has no function hipStreamCreateWithFlags"), "{}", failure.text);
}

#[test]
fn cards_are_listed_by_identity_and_the_loaded_file_is_named() {
    let software = Software::new("devices=2");
    let Some(backend) = backend(&software, &["gfx906"]) else { return };
    let infos = backend.devices().unwrap();
    let uids: Vec<&str> = infos.iter().map(|info| info.uid.as_str()).collect();
    assert_eq!(uids, ["0000:03:00.0", "0000:04:00.0"]);
    assert_eq!(infos[1].arch, "gfx906:sramecc+:xnack-");
    assert_eq!(infos[0].driver, format!("HIP 7.0.51831 ({})", software.path()));
    assert_eq!((infos[0].memory_total, infos[0].memory_free), (1 << 30, 1 << 30));
    let failure = backend.open(2, &DeviceOptions::default()).unwrap_err();
    assert_eq!(failure.text, "there is no HIP device 2: the driver lists 2");
    let device = backend.open(1, &DeviceOptions::default()).unwrap();
    assert_eq!(device.report(), "gfx906:sramecc+:xnack-, 60 compute units; kernels gfx906");
}

#[test]
fn the_old_form_of_the_properties_is_read_where_the_new_one_is_not() {
    let software = Software::without("target=gfx906:sramecc-:xnack-", &["hipGetDevicePropertiesR0600"]);
    let cards = start(&software).unwrap().cards().unwrap();
    assert_eq!(cards[0].1.arch, "gfx906:sramecc-:xnack-");
}

#[test]
fn a_card_that_no_code_object_fits_is_refused_before_anything_is_opened() {
    for (target, held) in [("gfx900:xnack-", "gfx906"), ("gfx1030", "gfx906")] {
        let software = Software::new(&format!("target={target}"));
        let Some(backend) = backend(&software, &["gfx906"]) else { return };
        // It is listed: which cards are passed over, and why, is the host's to say.
        assert_eq!(backend.devices().unwrap().len(), 1);
        let failure = backend.open(0, &DeviceOptions::default()).unwrap_err();
        assert_eq!(failure.status, StrataStatus::ArchMissing);
        let name = target.split(':').next().unwrap();
        let words = format!("no kernels for Software {name} (0000:03:00.0) ({target}): this plugin holds {held}");
        assert_eq!(failure.text, words);
        assert_eq!((software.count("launches"), software.count("pinned")), (0, 0));
    }
}

#[test]
fn among_several_code_objects_the_cards_own_is_taken() {
    for (target, taken) in [("gfx1101", "gfx1101"), ("gfx1100", "gfx1100"), ("gfx906:sramecc+:xnack-", "gfx906")] {
        let software = Software::new(&format!("target={target}"));
        let Some(backend) = backend(&software, &["gfx1100", "gfx906", "gfx1101"]) else { return };
        let mut device = backend.open(0, &DeviceOptions::default()).unwrap();
        assert!(device.report().ends_with(&format!("kernels {taken}")), "{}", device.report());
        // The software device refuses a code object that is for another card.
        let buffer = buffer(&mut device, 4096);
        device.program_compile(&program(), &[buffer]).unwrap();
    }
}

#[test]
fn a_bad_image_and_a_missing_kernel_name_kernel_and_card() {
    for (call, code, status, said) in [
        ("hipModuleLoadData", 209, StrataStatus::ArchMissing, "hipErrorNoBinaryForGpu"),
        ("hipModuleLoadData", 200, StrataStatus::ArchMissing, "hipErrorInvalidImage"),
        ("hipModuleGetFunction", 500, StrataStatus::DeviceFailed, "hipErrorNotFound"),
    ] {
        let software = Software::new("");
        let Some(mut device) = device(&software, 0) else { return };
        let buffer = buffer(&mut device, 4096);
        software.fail(call, code, 0);
        let failure = device.program_compile(&program(), &[buffer]).unwrap_err();
        assert_eq!(failure.status, status, "{}", failure.text);
        let words = format!("loading kernel unary on Software gfx906 (0000:03:00.0): {call} answered {code} ({said}");
        assert!(failure.text.starts_with(&words), "{}", failure.text);
    }
}

#[test]
fn memory_that_is_not_there_is_refused_with_the_numbers() {
    let software = Software::new("");
    let Some(mut device) = device(&software, 1 << 28) else { return };
    let kept = buffer(&mut device, 1 << 29);
    assert_eq!(device.memory().unwrap().used_here, 1 << 29);
    let failure = device.buffer_alloc(StrataBufferKind::Device, 1 << 29, "kv").unwrap_err();
    assert_eq!(failure.status, StrataStatus::OutOfMemory);
    for words in
        ["536870912 bytes for kv on Software gfx906", "the reserve would be touched", "268435456 are kept in reserve"]
    {
        assert!(failure.text.contains(words), "{}", failure.text);
    }
    drop(kept);
    assert_eq!((device.memory().unwrap().used_here, software.count("live")), (0, 0));
    software.fail("hipMalloc", 2, 0);
    let failure = device.buffer_alloc(StrataBufferKind::Device, 4096, "scratch").unwrap_err();
    assert_eq!(failure.status, StrataStatus::OutOfMemory);
    assert!(failure.text.contains("hipErrorOutOfMemory"), "{}", failure.text);
}

#[test]
fn writes_larger_than_the_staging_areas_arrive_whole() {
    let software = Software::new("");
    let Some(mut device) = device(&software, 0) else { return };
    let data: Vec<u8> = (0..40_000_003_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let buffer = buffer(&mut device, data.len() as u64 + 8);
    device.buffer_write(&buffer, 5, &data).unwrap();
    // The device has not copied all of it yet: a staging area that was used again too early would show.
    assert!(software.count("queued") > 0);
    let mut back = vec![0; data.len()];
    device.buffer_read(&buffer, 5, &mut back).unwrap();
    assert!(back == data, "what was written came back changed");
    software.fail("hipMemcpyHtoDAsync", 1, 2);
    let failure = device.buffer_write(&buffer, 0, &data).unwrap_err();
    assert!(failure.text.contains("copying to the card on Software gfx906"), "{}", failure.text);
}

#[test]
fn short_runs_are_recorded_once_and_replayed() {
    let software = Software::new("");
    let Some(mut device) = device(&software, 0) else { return };
    let buffer = buffer(&mut device, 4096);
    let mut program = device.program_compile(&program(), &[buffer]).unwrap();
    for tokens in [1, 1, 2, 1, 2] {
        device.program_run(&mut program, &[tokens], &[], None).unwrap();
    }
    assert_eq!(software.count("kernels"), 0);
    device.synchronize().unwrap();
    let counts = ["replays", "launches", "recorded", "kernels"].map(|what| software.count(what));
    assert_eq!(counts, [5, 0, 2, 5]);
}

#[test]
fn a_runtime_without_graphs_is_given_launch_by_launch() {
    let software = Software::without("", &["hipStreamBeginCapture"]);
    let Some(mut device) = device(&software, 0) else { return };
    let buffer = buffer(&mut device, 4096);
    let mut program = device.program_compile(&program(), &[buffer]).unwrap();
    for tokens in [1, 2, 1] {
        device.program_run(&mut program, &[tokens], &[], None).unwrap();
    }
    device.synchronize().unwrap();
    let counts = ["replays", "launches", "recorded", "kernels"].map(|what| software.count(what));
    assert_eq!(counts, [0, 3, 0, 3]);
}

#[test]
fn a_launch_that_is_refused_names_op_layer_program_and_card() {
    let software = Software::new("");
    let Some(mut device) = device(&software, 0) else { return };
    let buffer = buffer(&mut device, 4096);
    let mut program = device.program_compile(&program(), &[buffer]).unwrap();
    software.fail("hipModuleLaunchKernel", 701, 0);
    let failure = device.program_run(&mut program, &[1], &[], None).unwrap_err();
    assert_eq!(failure.status, StrataStatus::DeviceFailed);
    let words = "Scale (op 0 in layer 3) of program double on Software gfx906 (0000:03:00.0)";
    assert!(failure.text.contains(words), "{}", failure.text);
}

#[test]
fn a_kernel_that_fails_while_it_runs_is_told_by_the_next_wait_and_the_card_stays_lost() {
    let software = Software::new("");
    let Some(mut device) = device(&software, 0) else { return };
    let buffer = buffer(&mut device, 4096);
    let mut program = device.program_compile(&program(), &[buffer]).unwrap();
    software.fail("kernel", 719, 0);
    device.program_run(&mut program, &[1], &[], None).unwrap();
    let failure = device.synchronize().unwrap_err();
    assert_eq!(failure.status, StrataStatus::DeviceLost);
    assert!(failure.text.starts_with("waiting for program double on Software gfx906"), "{}", failure.text);
    assert!(failure.text.contains("hipErrorLaunchFailure"), "{}", failure.text);
    let failure = device.program_run(&mut program, &[1], &[], None).unwrap_err();
    assert_eq!(failure.status, StrataStatus::DeviceLost, "{}", failure.text);
    drop((program, device));
    assert_eq!((software.count("live"), software.count("pinned")), (0, 0));
}
