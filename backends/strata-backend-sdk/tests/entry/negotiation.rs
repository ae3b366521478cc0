//! The entry: versions, struct sizes, starting, what the table holds.
#![expect(unsafe_code, reason = "hands structs of odd sizes to the entry, as a newer host would")]

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use strata_backend_sdk::abi::{
    STRATA_ABI_VERSION, SizedStruct, StrataBackend, StrataBufferKind, StrataEntryArgs, StrataEntryResult, StrataStatus,
    StrataStr, abi_version,
};
use strata_backend_sdk::{
    Backend, Device, DeviceInfo, DeviceOptions, Exported, Exports, Failure, Host, MemoryInfo, ProgramView, Result,
};

use crate::backend::Toy;
use crate::raw_host::{INSTANCE, enter, entry_args, entry_result, text, toy};

/// Enters the toy with changed arguments; status, version and reason of the result.
fn enter_with(change: impl FnOnce(&mut StrataEntryArgs)) -> (StrataStatus, StrataEntryResult, String) {
    let (mut args, mut result) = (entry_args(), entry_result());
    change(&mut args);
    let status = enter::<Toy>(&raw const args, &raw mut result);
    let reason = text(result.reason);
    (status, result, reason)
}

#[test]
fn the_lower_minor_of_one_major_is_in_force() {
    let table = [
        // Host's range, and what comes of it with a plugin that speaks 1.0.
        ((1, 0), (1, 0), Some((1, 0))),
        ((1, 0), (1, 7), Some((1, 0))),
        ((1, 0), (2, 3), Some((1, 0))),
        ((0, 9), (1, 0), Some((1, 0))),
        ((1, 1), (1, 7), None),
        ((2, 0), (2, 3), None),
        ((0, 1), (0, 9), None),
    ];
    for (lowest, highest, expected) in table {
        let (status, result, reason) = enter_with(|args| {
            args.abi_lowest = abi_version(lowest.0, lowest.1);
            args.abi_highest = abi_version(highest.0, highest.1);
        });
        if let Some((major, minor)) = expected {
            assert_eq!(status, StrataStatus::Ok, "{lowest:?} to {highest:?}: {reason}");
            assert_eq!(result.abi, abi_version(major, minor));
            assert!(!result.table.is_null());
            assert_eq!(reason, "");
        } else {
            assert_eq!(status, StrataStatus::AbiMismatch, "{lowest:?} to {highest:?}");
            assert_eq!(result.abi, STRATA_ABI_VERSION, "the plugin's highest");
            assert!(result.table.is_null());
            let (low, high) = (format!("{}.{}", lowest.0, lowest.1), format!("{}.{}", highest.0, highest.1));
            assert!(reason.contains(&low) && reason.contains(&high) && reason.contains("1.0"), "{reason}");
        }
    }
}

#[test]
fn null_and_short_structs_are_refused() {
    let mut result = entry_result();
    assert_eq!(enter::<Toy>(std::ptr::null(), &raw mut result), StrataStatus::InvalidCall);
    assert_eq!(text(result.reason), "host bug: StrataEntryArgs is a null pointer");
    let args = entry_args();
    assert_eq!(enter::<Toy>(&raw const args, std::ptr::null_mut()), StrataStatus::InvalidCall);

    for size in [0, 3, 4, StrataEntryArgs::SIZE - 1] {
        let (status, _, reason) = enter_with(|args| args.struct_size = size);
        assert_eq!(status, StrataStatus::InvalidCall);
        assert!(reason.contains(&format!("StrataEntryArgs says {size} bytes")), "{reason}");
    }
    for size in [0, 4, StrataEntryResult::SIZE - 1] {
        let mut result = StrataEntryResult { struct_size: size, ..entry_result() };
        assert_eq!(enter::<Toy>(&raw const args, &raw mut result), StrataStatus::InvalidCall);
        assert!(result.table.is_null() && result.reason.data.is_null(), "a struct of {size} bytes was written to");
    }
    let (status, _, reason) = enter_with(|args| args.instance = 0);
    assert_eq!(status, StrataStatus::InvalidCall, "{reason}");
}

/// What a host of a later minor passes: our struct and a tail.
#[repr(C)]
struct Longer<T> {
    known: T,
    tail: [u8; 24],
}

#[test]
fn longer_structs_are_read_and_their_tails_left_alone() {
    let mut args = Longer { known: entry_args(), tail: [0x5a; 24] };
    args.known.struct_size = size_of::<Longer<StrataEntryArgs>>() as u32;
    let mut result = Longer { known: entry_result(), tail: [0x5a; 24] };
    result.known.struct_size = size_of::<Longer<StrataEntryResult>>() as u32;
    let status = enter::<Toy>((&raw const args).cast(), (&raw mut result).cast());
    assert_eq!(status, StrataStatus::Ok);
    assert_eq!(result.tail, [0x5a; 24]);
    assert_eq!(result.known.struct_size as usize, size_of_val(&result), "the caller's size stays");
}

#[test]
fn the_table_is_complete_and_the_same_each_time() {
    let table = toy();
    assert!(std::ptr::eq(table, toy()));
    assert_eq!(table.struct_size, StrataBackend::SIZE);
    assert_eq!(table.abi, STRATA_ABI_VERSION);
    assert_eq!((text(table.name).as_str(), text(table.version).as_str()), ("toy", "1.2.3"));
    assert!(table.buffer_import.is_some() && table.buffer_map.is_some());
    assert!(table.event_create.is_some() && table.event_query.is_some());
    assert!(table.event_wait.is_some() && table.event_free.is_some());
}

/// A backend of which only starting matters; it can do nothing optional.
struct Bare;
struct BareDevice;
static BARE_STARTS: AtomicU32 = AtomicU32::new(0);

impl Exported for Bare {
    fn exports() -> &'static Exports<Bare> {
        static EXPORTS: Exports<Bare> = Exports::new();
        &EXPORTS
    }
}

impl Backend for Bare {
    const NAME: &'static str = "bare";
    const VERSION: &'static str = "0";
    type Device = BareDevice;

    fn start(host: Host) -> Result<Bare> {
        assert_eq!(host.version(), "0.0.1");
        match BARE_STARTS.fetch_add(1, Ordering::SeqCst) {
            0 => Err(Failure::new(StrataStatus::DriverMissing, "no driver at the first try")),
            1 => panic!("scripted panic in start"),
            // Taken for success by a host that believes it; the SDK must not let it through.
            2 => Err(Failure::new(StrataStatus::Ok, "a failure that says Ok")),
            _ => Ok(Bare),
        }
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }

    fn open(&self, index: u32, _options: &DeviceOptions) -> Result<BareDevice> {
        Err(Failure::new(StrataStatus::NoDevice, format!("no device {index}")))
    }
}

impl Device for BareDevice {
    type Buffer = ();
    type Program = ();
    type Event = ();

    fn memory(&self) -> Result<MemoryInfo> {
        Ok(MemoryInfo::default())
    }
    fn report(&self) -> String {
        String::new()
    }
    fn synchronize(&mut self) -> Result<()> {
        Ok(())
    }
    fn op_supported(&self, _program: &ProgramView<'_>, _op: usize) -> Result<()> {
        Ok(())
    }
    fn buffer_alloc(&mut self, _kind: StrataBufferKind, _bytes: u64, _label: &str) -> Result<()> {
        Ok(())
    }
    fn buffer_write(&mut self, _buffer: &(), _offset: u64, _data: &[u8]) -> Result<()> {
        Ok(())
    }
    fn buffer_read(&mut self, _buffer: &(), _offset: u64, _out: &mut [u8]) -> Result<()> {
        Ok(())
    }
    fn buffer_copy(&mut self, _target: &(), _to: u64, _source: &(), _from: u64, _bytes: u64) -> Result<()> {
        Ok(())
    }
    fn program_compile(&mut self, _program: &ProgramView<'_>, _buffers: &[std::sync::Arc<()>]) -> Result<()> {
        Ok(())
    }
    fn program_run(&mut self, _program: &mut (), _scalars: &[i64], _wait: &[&()], _signal: Option<&()>) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_start_that_fails_refuses_with_its_reason_and_is_tried_again() {
    let mut refused = Vec::new();
    let table = loop {
        let (args, mut result) = (entry_args(), entry_result());
        match enter::<Bare>(&raw const args, &raw mut result) {
            // SAFETY: with the status Ok the table lives as long as the process.
            StrataStatus::Ok => break unsafe { result.table.as_ref() }.unwrap(),
            status => refused.push((status, text(result.reason))),
        }
        assert!(result.table.is_null());
    };
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert_eq!(refused[0], (StrataStatus::DriverMissing, "no driver at the first try".to_owned()));
    assert_eq!(refused[1].0, StrataStatus::Internal);
    assert!(refused[1].1.starts_with("the plugin panicked: scripted panic in start ("), "{}", refused[1].1);
    assert_eq!(refused[2], (StrataStatus::Internal, "a failure that says Ok".to_owned()));

    // Started once for good, and nothing optional in the table.
    let (args, mut result) = (entry_args(), entry_result());
    assert_eq!(enter::<Bare>(&raw const args, &raw mut result), StrataStatus::Ok);
    assert_eq!(BARE_STARTS.load(Ordering::SeqCst), 4);
    assert!(table.buffer_import.is_none() && table.buffer_map.is_none());
    assert!(table.event_create.is_none() && table.event_query.is_none());
    assert!(table.event_wait.is_none() && table.event_free.is_none());
}

/// A backend that keeps the host, to see that its log arrives.
struct Talker;

impl Exported for Talker {
    fn exports() -> &'static Exports<Talker> {
        static EXPORTS: Exports<Talker> = Exports::new();
        &EXPORTS
    }
}

impl Backend for Talker {
    const NAME: &'static str = "talker";
    const VERSION: &'static str = "0";
    type Device = BareDevice;

    fn start(host: Host) -> Result<Talker> {
        assert_eq!(host.abi(), STRATA_ABI_VERSION);
        std::thread::spawn(move || host.log(strata_backend_sdk::abi::StrataLogLevel::Warning, "from a thread"))
            .join()
            .unwrap();
        Ok(Talker)
    }
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }
    fn open(&self, _index: u32, _options: &DeviceOptions) -> Result<BareDevice> {
        Ok(BareDevice)
    }
}

unsafe extern "C" fn take_line(context: *mut c_void, level: u32, line: StrataStr) {
    // SAFETY: the context is the static below.
    let lines = unsafe { context.cast::<Mutex<Vec<(u32, String)>>>().as_ref() }.unwrap();
    lines.lock().unwrap().push((level, text(line)));
}

#[test]
fn the_log_reaches_the_host_from_any_thread() {
    static LINES: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());
    let mut args = entry_args();
    args.log = Some(take_line);
    args.log_context = (&raw const LINES).cast_mut().cast();
    let mut result = entry_result();
    assert_eq!(enter::<Talker>(&raw const args, &raw mut result), StrataStatus::Ok);
    assert_eq!(*LINES.lock().unwrap(), [(2, "from a thread".to_owned())]);
}

#[test]
fn an_instance_number_reaches_the_handles() {
    let device = crate::raw_host::open(toy(), 0, "").unwrap();
    assert_eq!(device.instance, INSTANCE);
    assert_ne!(device.id, 0);
}
