//! Tests of the plugin on a machine without a card: a stand-in for the driver's library, compiled by
//! the system's C compiler, whose every call can be told to fail.
#![expect(unsafe_code, reason = "calls the stand-in's own control functions")]

use std::ffi::{CString, c_char, c_int, c_long};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use libloading::Library;
use strata_backend_abi::{
    STRATA_MAX_FLOATS, STRATA_MAX_INTS, STRATA_MAX_OPERANDS, STRATA_NO_OPERAND, SizedStruct, StrataBufferKind,
    StrataDType, StrataOp, StrataOpKind, StrataStatus, StrataTensor,
};
use strata_backend_sdk::{Device, DeviceOptions, Failure, Host, ProgramView};
use strata_gpu::{Buffer, GpuBackend, GpuDevice, GpuPlugin, Image, Module, OpenSettings};

use crate::driver::{Api, CudaDriver};

/// Kernels that the stand-in pretends to load.
static MODULES: [Module; 1] = [Module {
    name: "elementwise",
    entries: &["unary", "binary"],
    images: &[Image { target: "compute_80", bytes: b".version 7.2" }],
}];

/// The compiled stand-in; each test loads a copy of its own, with a state of its own.
fn compiled(define: &str) -> Option<PathBuf> {
    static BUILT: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().ok()?;
        for (name, define) in [("whole", "WHOLE"), ("short", "WITHOUT_ERROR_STRING")] {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/standin/libcuda.c");
            let out = folder.path().join(format!("{name}.so"));
            let status = Command::new("cc")
                .args(["-std=c11", "-shared", "-fPIC", "-Wall", "-Werror", &format!("-D{define}"), "-o"])
                .arg(out)
                .arg(source)
                .status();
            status.ok().filter(std::process::ExitStatus::success)?;
        }
        Some(folder)
    });
    folder.as_ref().map(|folder| folder.path().join(format!("{define}.so")))
}

struct Standin {
    _folder: tempfile::TempDir,
    path: String,
    library: Library,
}

impl Standin {
    fn new(which: &str) -> Option<Standin> {
        let Some(built) = compiled(which) else {
            eprintln!("skipped: no C compiler for the stand-in driver");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libcuda.so.1");
        fs_err::copy(built, &path).unwrap();
        // SAFETY: our own library, which has no initialisers.
        let library = unsafe { Library::new(&path) }.unwrap();
        Some(Standin { path: path.to_str().unwrap().to_owned(), _folder: folder, library })
    }

    fn fail(&self, call: &str, code: i32, after: i32) {
        let call = CString::new(call).unwrap();
        // SAFETY: the type is that of the function in libcuda.c.
        let fail = unsafe { self.library.get::<unsafe extern "C" fn(*const c_char, c_int, c_int)>(b"standin_fail") };
        // SAFETY: the text lives through the call.
        unsafe { fail.unwrap()(call.as_ptr(), code, after) };
    }

    fn set(&self, what: &str, value: i64) {
        let what = CString::new(what).unwrap();
        // SAFETY: the type is that of the function in libcuda.c.
        let set = unsafe { self.library.get::<unsafe extern "C" fn(*const c_char, c_long)>(b"standin_set") };
        // SAFETY: the text lives through the call.
        unsafe { set.unwrap()(what.as_ptr(), value) };
    }

    fn get(&self, what: &str) -> i64 {
        let what = CString::new(what).unwrap();
        // SAFETY: the type is that of the function in libcuda.c.
        let get = unsafe { self.library.get::<unsafe extern "C" fn(*const c_char) -> c_long>(b"standin_get") };
        // SAFETY: the text lives through the call.
        unsafe { get.unwrap()(what.as_ptr()) }
    }

    fn api(&self) -> Result<Arc<Api>, Failure> {
        Api::open(Some(&self.path)).map(Arc::new)
    }

    fn device(&self, reserve_bytes: u64) -> Result<GpuDevice<CudaDriver>, Failure> {
        let api = self.api()?;
        let card = api.listed()?.remove(0);
        GpuDevice::open(CudaDriver::open(&api, &card)?, &OpenSettings { reserve_bytes, modules: &MODULES })
    }
}

fn backend(standin: &Standin) -> GpuBackend<Api> {
    let plugin = GpuPlugin { modules: &MODULES, not_built: None, library_variable: "STRATA_CUDA_LIBRARY", flags: 0 };
    GpuBackend::with(Host::silent(), plugin, standin.api().unwrap())
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

fn buffer(device: &mut GpuDevice<CudaDriver>, bytes: u64) -> Arc<Buffer<CudaDriver>> {
    Arc::new(device.buffer_alloc(StrataBufferKind::Device, bytes, "weights").unwrap())
}

#[test]
fn what_keeps_the_driver_from_starting_is_said_each_in_its_words() {
    for (call, code, status, words) in [
        ("cuInit", 100, StrataStatus::NoDevice, "finds no card"),
        ("cuInit", 999, StrataStatus::DriverMissing, "kernel module"),
        ("cuInit", 803, StrataStatus::DriverMissing, "of one version"),
        ("cuDriverGetVersion", 1, StrataStatus::DriverMissing, "does not start"),
    ] {
        let Some(standin) = Standin::new("whole") else { return };
        standin.fail(call, code, 0);
        let failure = standin.api().unwrap_err();
        assert_eq!(failure.status, status, "{}", failure.text);
        assert!(failure.text.contains(words) && failure.text.contains(call), "{}", failure.text);
    }
}

#[test]
fn an_old_driver_is_named_with_the_version_that_is_needed() {
    let Some(standin) = Standin::new("whole") else { return };
    standin.set("version", 10_020);
    let failure = standin.api().unwrap_err();
    assert_eq!(failure.status, StrataStatus::DriverTooOld);
    assert_eq!(failure.text, "the NVIDIA driver is for CUDA 10.2: too old, one for CUDA 11.2 or later is needed");
}

#[test]
fn a_function_that_is_missing_is_named() {
    let Some(standin) = Standin::new("short") else { return };
    let failure = standin.api().unwrap_err();
    assert_eq!(failure.status, StrataStatus::DriverTooOld);
    assert!(failure.text.contains("has no function cuGetErrorString"), "{}", failure.text);
}

#[test]
fn cards_are_listed_by_identity() {
    let Some(standin) = Standin::new("whole") else { return };
    standin.set("devices", 2);
    let backend = backend(&standin);
    let infos = backend.devices().unwrap();
    let uids: Vec<&str> = infos.iter().map(|info| info.uid.as_str()).collect();
    assert_eq!(uids, ["GPU-00000000-0000-0000-0000-000000000000", "GPU-00000000-0000-0000-0000-000000000001"]);
    assert_eq!((infos[1].arch.as_str(), infos[1].driver.as_str()), ("sm_90", "CUDA 13.0"));
    assert_eq!((infos[0].memory_total, infos[0].memory_free), (1 << 30, 1 << 30));
    let failure = backend.open(2, &DeviceOptions::default()).unwrap_err();
    assert_eq!(
        (failure.status, failure.text.as_str()),
        (StrataStatus::NoDevice, "there is no CUDA device 2: the driver lists 2")
    );
}

#[test]
fn no_card_is_an_answer() {
    let Some(standin) = Standin::new("whole") else { return };
    standin.set("devices", 0);
    let failure = backend(&standin).devices().unwrap_err();
    assert_eq!((failure.status, failure.text.as_str()), (StrataStatus::NoDevice, "the NVIDIA driver lists no card"));
}

#[test]
fn a_card_that_no_kernel_fits_is_told_what_there_is() {
    let Some(standin) = Standin::new("whole") else { return };
    standin.set("major", 7);
    standin.set("minor", 5);
    let failure = standin.device(0).unwrap_err();
    assert_eq!(failure.status, StrataStatus::ArchMissing);
    assert!(failure.text.starts_with("no kernels for Stand-in 0 (GPU-"), "{}", failure.text);
    assert!(failure.text.contains("(sm_75): this plugin holds compute_80"), "{}", failure.text);
}

#[test]
fn a_module_that_does_not_load_names_the_kernel_and_the_card() {
    let Some(standin) = Standin::new("whole") else { return };
    let mut device = standin.device(0).unwrap();
    let buffer = buffer(&mut device, 4096);
    standin.fail("cuModuleLoadData", 218, 0);
    let failure = device.program_compile(&program(), &[buffer]).unwrap_err();
    assert_eq!(failure.status, StrataStatus::ArchMissing);
    assert!(failure.text.contains("loading kernel unary on Stand-in 0"), "{}", failure.text);
}

#[test]
fn memory_that_is_not_there_is_refused_with_the_numbers() {
    let Some(standin) = Standin::new("whole") else { return };
    let mut device = standin.device(1 << 28).unwrap();
    let kept = buffer(&mut device, 1 << 29);
    assert_eq!(device.memory().unwrap().used_here, 1 << 29);
    let failure = device.buffer_alloc(StrataBufferKind::Device, 1 << 29, "kv").unwrap_err();
    assert_eq!(failure.status, StrataStatus::OutOfMemory);
    for words in
        ["536870912 bytes for kv on Stand-in 0", "the reserve would be touched", "268435456 are kept in reserve"]
    {
        assert!(failure.text.contains(words), "{}", failure.text);
    }
    drop(kept);
    assert_eq!((device.memory().unwrap().used_here, standin.get("live")), (0, 0));
    standin.fail("cuMemAlloc_v2", 2, 0);
    let failure = device.buffer_alloc(StrataBufferKind::Device, 4096, "scratch").unwrap_err();
    assert_eq!(failure.status, StrataStatus::OutOfMemory);
    assert!(failure.text.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{}", failure.text);
}

#[test]
fn writes_larger_than_the_staging_areas_arrive_whole() {
    let Some(standin) = Standin::new("whole") else { return };
    let mut device = standin.device(0).unwrap();
    let data: Vec<u8> = (0..40_000_003_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let buffer = buffer(&mut device, data.len() as u64 + 8);
    device.buffer_write(&buffer, 5, &data).unwrap();
    let mut back = vec![0; data.len()];
    device.buffer_read(&buffer, 5, &mut back).unwrap();
    assert!(back == data, "what was written came back changed");
    standin.fail("cuMemcpyHtoDAsync_v2", 1, 2);
    let failure = device.buffer_write(&buffer, 0, &data).unwrap_err();
    assert!(failure.text.contains("copying to the card on Stand-in 0"), "{}", failure.text);
}

#[test]
fn short_runs_are_recorded_once_and_replayed() {
    let Some(standin) = Standin::new("whole") else { return };
    let mut device = standin.device(0).unwrap();
    let buffer = buffer(&mut device, 4096);
    let mut program = device.program_compile(&program(), &[buffer]).unwrap();
    assert_eq!(device.program_info(&program).n_launches, 1);
    for tokens in [1, 1, 2, 1, 2] {
        device.program_run(&mut program, &[tokens], &[], None).unwrap();
    }
    device.synchronize().unwrap();
    assert_eq!((standin.get("replays"), standin.get("launches"), standin.get("recorded")), (5, 0, 1));
}

#[test]
fn an_event_is_reached_once_a_run_has_signalled_it() {
    let Some(standin) = Standin::new("whole") else { return };
    let mut device = standin.device(0).unwrap();
    let buffer = buffer(&mut device, 4096);
    let mut program = device.program_compile(&program(), &[buffer]).unwrap();
    let event = Arc::new(device.event_create().unwrap());
    assert!(!GpuDevice::<CudaDriver>::event_query(&event).unwrap());
    // Somebody may wait before the run that signals is handed over.
    let waiting = std::thread::spawn({
        let event = Arc::clone(&event);
        move || GpuDevice::<CudaDriver>::event_wait(&event)
    });
    device.program_run(&mut program, &[1], &[], Some(&event)).unwrap();
    waiting.join().unwrap().unwrap();
    assert!(GpuDevice::<CudaDriver>::event_query(&event).unwrap());
    // 600: not yet.
    standin.fail("cuEventQuery", 600, 0);
    assert!(!GpuDevice::<CudaDriver>::event_query(&event).unwrap());
    standin.fail("cuEventSynchronize", 719, 0);
    let failure = GpuDevice::<CudaDriver>::event_wait(&event).unwrap_err();
    assert_eq!(failure.status, StrataStatus::DeviceLost);
    assert!(failure.text.contains("cuEventSynchronize answered 719"), "{}", failure.text);
}

#[test]
fn a_launch_that_fails_names_op_layer_program_and_card() {
    let Some(standin) = Standin::new("whole") else { return };
    let mut device = standin.device(0).unwrap();
    let buffer = buffer(&mut device, 4096);
    let mut program = device.program_compile(&program(), &[buffer]).unwrap();
    standin.fail("cuLaunchKernel", 701, 0);
    let failure = device.program_run(&mut program, &[1], &[], None).unwrap_err();
    assert_eq!(failure.status, StrataStatus::DeviceFailed);
    assert!(failure.text.contains("Scale (op 0 in layer 3) of program double on Stand-in 0 (GPU-"), "{}", failure.text);
}

#[test]
fn a_card_that_is_lost_while_it_works_is_told_by_the_next_wait() {
    let Some(standin) = Standin::new("whole") else { return };
    let mut device = standin.device(0).unwrap();
    let buffer = buffer(&mut device, 4096);
    let mut program = device.program_compile(&program(), &[buffer]).unwrap();
    device.program_run(&mut program, &[1], &[], None).unwrap();
    standin.fail("cuStreamSynchronize", 719, 0);
    let failure = device.synchronize().unwrap_err();
    assert_eq!(failure.status, StrataStatus::DeviceLost);
    assert!(failure.text.starts_with("waiting for program double on Stand-in 0"), "{}", failure.text);
    assert!(failure.text.contains("CUDA_ERROR_LAUNCH_FAILED"), "{}", failure.text);
}

#[test]
fn ops_without_a_kernel_are_refused_with_its_name() {
    let Some(standin) = Standin::new("whole") else { return };
    let device = standin.device(0).unwrap();
    let mut softmax = program();
    softmax.ops[0].kind = StrataOpKind::Softmax as u32;
    let failure = device.op_supported(&softmax, 0).unwrap_err();
    assert_eq!(
        (failure.status, failure.text.as_str()),
        (StrataStatus::Unsupported, "Softmax: this plugin has no kernel rows")
    );
    device.op_supported(&program(), 0).unwrap();
}
