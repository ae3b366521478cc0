//! The C side: the entry, the table and one function per call of the table. Each function reads
//! its arguments through `raw`, hands over to `Exports` and writes the result, all inside `guard`.
//!
//! Safety contract of all of them: pointers are null or valid as docs/ABI.md says. That is the
//! host's to hold, and what each SAFETY comment means by "the ABI".
#![expect(unsafe_code, reason = "these are the functions that the host calls through the table")]

use core::ffi::c_void;

use strata_backend_abi::{
    STRATA_ABI_MAJOR, STRATA_ABI_VERSION, SizedStruct, StrataBackend, StrataBufferDesc, StrataDeviceInfo,
    StrataDeviceOptions, StrataEntryArgs, StrataEntryResult, StrataHandle, StrataMemoryInfo, StrataProgramDesc,
    StrataProgramInfo, StrataRunArgs, StrataStatus, StrataStr, StrataTextOut, abi_version, negotiate,
};

use crate::guard::{catch, guard, last_error as last_error_text};
use crate::{Backend, Device, DeviceInfo, DeviceOptions, Exports, Failure, Host, ProgramView, Result, raw};

/// Lowest version that plugins of this SDK speak.
const ABI_LOWEST: u32 = abi_version(STRATA_ABI_MAJOR, 0);

/// A backend with a place for its state. Implemented by [`export_backend!`](crate::export_backend).
pub trait Exported: Backend {
    /// The one state of this plugin.
    fn exports() -> &'static Exports<Self>;
}

/// What `strata_backend_entry` does: settles on a version, starts the backend, gives out the table.
///
/// # Safety
/// `args` is null or valid for reading, `result` is null or valid for writing, as many bytes as
/// their `struct_size` says; log function and context of `args` stay valid while the process lives.
pub unsafe fn entry<B: Exported>(args: *const StrataEntryArgs, result: *mut StrataEntryResult) -> i32 {
    guard(|| {
        // SAFETY: the caller's guarantee.
        unsafe { raw::check_target(result) }?;
        let mut answer = StrataEntryResult {
            struct_size: StrataEntryResult::SIZE,
            abi: STRATA_ABI_VERSION,
            table: core::ptr::null(),
            reason: StrataStr::EMPTY,
        };
        // SAFETY: the caller's guarantee.
        let outcome = catch(|| unsafe { open::<B>(args) });
        match &outcome {
            Ok(table) => {
                answer.abi = table.abi;
                answer.table = core::ptr::from_ref(*table);
            }
            Err(failure) => answer.reason = StrataStr::from_static(B::exports().keep_text(&failure.text)),
        }
        // SAFETY: the caller's guarantee.
        unsafe { raw::write(result, &answer) }?;
        outcome.map(|_| ())
    })
}

/// # Safety
/// As for [`entry`].
unsafe fn open<B: Exported>(args: *const StrataEntryArgs) -> Result<&'static StrataBackend> {
    // SAFETY: the caller's guarantee.
    let args = unsafe { raw::read(args) }?;
    let Some(abi) = negotiate((args.abi_lowest, args.abi_highest), (ABI_LOWEST, STRATA_ABI_VERSION)) else {
        let text = format!(
            "the host speaks ABI {} to {}, this plugin {} to {}",
            version_text(args.abi_lowest),
            version_text(args.abi_highest),
            version_text(ABI_LOWEST),
            version_text(STRATA_ABI_VERSION)
        );
        return Err(Failure::new(StrataStatus::AbiMismatch, text));
    };
    if args.instance == 0 {
        return Err(Failure::host_bug("instance number 0 is no instance"));
    }
    // SAFETY: the caller guarantees the text for the call.
    let version = unsafe { raw::text(args.host_version, "the host's version") }?;
    let host = Host::new(args.log, args.log_context, version.to_owned(), abi);
    B::exports().start(args.instance, host)?;
    Ok(B::exports().table(abi, || table::<B>(abi)))
}

fn version_text(version: u32) -> String {
    format!("{}.{}", version >> 16, version & 0xffff)
}

fn table<B: Exported>(abi: u32) -> StrataBackend {
    let (imports, maps) = (<B::Device as Device>::CAN_IMPORT, <B::Device as Device>::CAN_MAP);
    let events = <B::Device as Device>::HAS_EVENTS;
    StrataBackend {
        struct_size: StrataBackend::SIZE,
        abi,
        name: StrataStr::from_static(B::NAME),
        version: StrataStr::from_static(B::VERSION),
        last_error: Some(last_error),
        device_count: Some(device_count::<B>),
        device_info: Some(device_info::<B>),
        device_open: Some(device_open::<B>),
        device_close: Some(device_close::<B>),
        device_memory: Some(device_memory::<B>),
        device_report: Some(device_report::<B>),
        synchronize: Some(synchronize::<B>),
        op_supported: Some(op_supported::<B>),
        buffer_alloc: Some(buffer_alloc::<B>),
        buffer_import: imports.then_some(buffer_import::<B>),
        buffer_free: Some(buffer_free::<B>),
        buffer_write: Some(buffer_write::<B>),
        buffer_read: Some(buffer_read::<B>),
        buffer_copy: Some(buffer_copy::<B>),
        buffer_map: maps.then_some(buffer_map::<B>),
        program_compile: Some(program_compile::<B>),
        program_info: Some(program_info::<B>),
        program_run: Some(program_run::<B>),
        program_free: Some(program_free::<B>),
        event_create: events.then_some(event_create::<B>),
        event_query: events.then_some(event_query::<B>),
        event_wait: events.then_some(event_wait::<B>),
        event_free: events.then_some(event_free::<B>),
    }
}

unsafe extern "C" fn last_error(out: *mut StrataTextOut) {
    // A panic here would have nowhere to be told; the guard keeps it from unwinding.
    let _ = guard(|| {
        // SAFETY: the ABI guarantees `out`.
        unsafe { raw::put_text(out, &last_error_text()) };
        Ok(())
    });
}

unsafe extern "C" fn device_count<B: Exported>(count: *mut u32) -> i32 {
    guard(|| {
        raw::check_place(count, "count")?;
        let found = B::exports().device_count()?;
        // SAFETY: the ABI guarantees `count`.
        unsafe { raw::put(count, found, "count") }
    })
}

unsafe extern "C" fn device_info<B: Exported>(index: u32, out: *mut StrataDeviceInfo) -> i32 {
    guard(|| {
        // SAFETY: the ABI guarantees `out`.
        unsafe { raw::check_target(out) }?;
        let DeviceInfo { kind, flags, name, arch, uid, driver, memory_total, memory_free } =
            B::exports().device_info(index)?;
        let keep = |text: &str| StrataStr::from_static(B::exports().keep_text(text));
        let info = StrataDeviceInfo {
            struct_size: StrataDeviceInfo::SIZE,
            kind: kind as u32,
            flags,
            reserved: 0,
            name: keep(&name),
            arch: keep(&arch),
            uid: keep(&uid),
            driver: keep(&driver),
            memory_total,
            memory_free,
        };
        // SAFETY: the ABI guarantees `out`.
        unsafe { raw::write(out, &info) }
    })
}

unsafe extern "C" fn device_open<B: Exported>(
    index: u32,
    options: *const StrataDeviceOptions,
    out: *mut StrataHandle,
) -> i32 {
    guard(|| {
        raw::check_place(out, "the device's handle")?;
        // SAFETY: the ABI guarantees `options`.
        let options = unsafe { raw::read(options) }?;
        // SAFETY: the ABI guarantees the texts of `options`.
        let variant = unsafe { raw::text(options.variant, "the variant") }?;
        let options = DeviceOptions {
            n_threads: options.n_threads,
            reserve_bytes: options.reserve_bytes,
            variant: variant.to_owned(),
        };
        let device = B::exports().device_open(index, &options)?;
        // SAFETY: the ABI guarantees `out`.
        unsafe { raw::put(out, device, "the device's handle") }
    })
}

unsafe extern "C" fn device_close<B: Exported>(device: StrataHandle) -> i32 {
    guard(|| B::exports().device_close(device))
}

unsafe extern "C" fn device_memory<B: Exported>(device: StrataHandle, out: *mut StrataMemoryInfo) -> i32 {
    guard(|| {
        // SAFETY: the ABI guarantees `out`.
        unsafe { raw::check_target(out) }?;
        let memory = B::exports().device_memory(device)?;
        let info = StrataMemoryInfo {
            struct_size: StrataMemoryInfo::SIZE,
            reserved: 0,
            total: memory.total,
            free: memory.free,
            used_here: memory.used_here,
        };
        // SAFETY: the ABI guarantees `out`.
        unsafe { raw::write(out, &info) }
    })
}

unsafe extern "C" fn device_report<B: Exported>(device: StrataHandle, out: *mut StrataTextOut) -> i32 {
    guard(|| {
        raw::check_place(out, "the report's place")?;
        let report = B::exports().device_report(device)?;
        // SAFETY: the ABI guarantees `out`.
        unsafe { raw::put_text(out, &report) };
        Ok(())
    })
}

unsafe extern "C" fn synchronize<B: Exported>(device: StrataHandle) -> i32 {
    guard(|| B::exports().synchronize(device))
}

unsafe extern "C" fn op_supported<B: Exported>(
    device: StrataHandle,
    program: *const StrataProgramDesc,
    op_index: u32,
    reason: *mut StrataTextOut,
) -> i32 {
    guard(|| {
        // SAFETY: the ABI guarantees the description for the call.
        let (view, _) = unsafe { ProgramView::read(program) }?;
        let outcome = B::exports().op_supported(device, &view, op_index);
        let text = outcome.as_ref().err().map_or("", |failure| failure.text.as_str());
        // SAFETY: the ABI guarantees `reason`.
        unsafe { raw::put_text(reason, text) };
        outcome
    })
}

unsafe extern "C" fn buffer_alloc<B: Exported>(
    device: StrataHandle,
    desc: *const StrataBufferDesc,
    out: *mut StrataHandle,
) -> i32 {
    guard(|| {
        raw::check_place(out, "the buffer's handle")?;
        // SAFETY: the ABI guarantees `desc`.
        let desc = unsafe { raw::read(desc) }?;
        // SAFETY: the ABI guarantees the texts of `desc`.
        let label = unsafe { raw::text(desc.label, "the buffer's label") }?;
        let buffer = B::exports().buffer_alloc(device, desc.kind, desc.bytes, label)?;
        // SAFETY: the ABI guarantees `out`.
        unsafe { raw::put(out, buffer, "the buffer's handle") }
    })
}

unsafe extern "C" fn buffer_import<B: Exported>(
    device: StrataHandle,
    data: *const c_void,
    bytes: u64,
    out: *mut StrataHandle,
) -> i32 {
    guard(|| {
        raw::check_place(out, "the buffer's handle")?;
        // SAFETY: the ABI guarantees the memory until the buffer is freed.
        let memory = unsafe { raw::bytes(data, bytes, "the imported memory") }?;
        // SAFETY: as above; `buffer_free` drops the value before it returns.
        let memory = unsafe { crate::ForeignMemory::new(memory) };
        let buffer = B::exports().buffer_import(device, memory)?;
        // SAFETY: the ABI guarantees `out`.
        unsafe { raw::put(out, buffer, "the buffer's handle") }
    })
}

unsafe extern "C" fn buffer_free<B: Exported>(buffer: StrataHandle) -> i32 {
    guard(|| B::exports().buffer_free(buffer))
}

unsafe extern "C" fn buffer_write<B: Exported>(
    buffer: StrataHandle,
    offset: u64,
    data: *const c_void,
    bytes: u64,
) -> i32 {
    guard(|| {
        // SAFETY: the ABI guarantees the data for the call.
        let data = unsafe { raw::bytes(data, bytes, "the data") }?;
        B::exports().buffer_write(buffer, offset, data)
    })
}

unsafe extern "C" fn buffer_read<B: Exported>(buffer: StrataHandle, offset: u64, data: *mut c_void, bytes: u64) -> i32 {
    guard(|| {
        // SAFETY: the ABI guarantees the place for the call.
        let out = unsafe { raw::bytes_mut(data, bytes, "the place for the data") }?;
        B::exports().buffer_read(buffer, offset, out)
    })
}

unsafe extern "C" fn buffer_copy<B: Exported>(
    target: StrataHandle,
    target_offset: u64,
    source: StrataHandle,
    source_offset: u64,
    bytes: u64,
) -> i32 {
    guard(|| B::exports().buffer_copy((target, target_offset), (source, source_offset), bytes))
}

unsafe extern "C" fn buffer_map<B: Exported>(buffer: StrataHandle, out: *mut *mut c_void) -> i32 {
    guard(|| {
        raw::check_place(out, "the address")?;
        let address = B::exports().buffer_map(buffer)?;
        // SAFETY: the ABI guarantees `out`.
        unsafe { raw::put(out, address.cast::<c_void>(), "the address") }
    })
}

unsafe extern "C" fn program_compile<B: Exported>(
    device: StrataHandle,
    desc: *const StrataProgramDesc,
    out: *mut StrataHandle,
) -> i32 {
    guard(|| {
        raw::check_place(out, "the program's handle")?;
        // SAFETY: the ABI guarantees the description for the call.
        let (view, buffers) = unsafe { ProgramView::read(desc) }?;
        let program = B::exports().program_compile(device, &view, &buffers)?;
        // SAFETY: the ABI guarantees `out`.
        unsafe { raw::put(out, program, "the program's handle") }
    })
}

unsafe extern "C" fn program_info<B: Exported>(program: StrataHandle, out: *mut StrataProgramInfo) -> i32 {
    guard(|| {
        // SAFETY: the ABI guarantees `out`.
        unsafe { raw::check_target(out) }?;
        let info = B::exports().program_info(program)?;
        let info = StrataProgramInfo {
            struct_size: StrataProgramInfo::SIZE,
            n_launches: info.n_launches,
            workspace_bytes: info.workspace_bytes,
            constant_bytes: info.constant_bytes,
        };
        // SAFETY: the ABI guarantees `out`.
        unsafe { raw::write(out, &info) }
    })
}

unsafe extern "C" fn program_run<B: Exported>(program: StrataHandle, args: *const StrataRunArgs) -> i32 {
    guard(|| {
        // SAFETY: the ABI guarantees `args`.
        let args = unsafe { raw::read(args) }?;
        // SAFETY: the ABI guarantees `n_scalars` values.
        let scalars = unsafe { raw::array(args.scalars, args.n_scalars, "scalars") }?;
        // SAFETY: the ABI guarantees `n_wait` handles.
        let wait = unsafe { raw::array(args.wait, args.n_wait, "the events to wait for") }?;
        B::exports().program_run(program, &scalars, &wait, args.signal)
    })
}

unsafe extern "C" fn program_free<B: Exported>(program: StrataHandle) -> i32 {
    guard(|| B::exports().program_free(program))
}

unsafe extern "C" fn event_create<B: Exported>(device: StrataHandle, out: *mut StrataHandle) -> i32 {
    guard(|| {
        raw::check_place(out, "the event's handle")?;
        let event = B::exports().event_create(device)?;
        // SAFETY: the ABI guarantees `out`.
        unsafe { raw::put(out, event, "the event's handle") }
    })
}

unsafe extern "C" fn event_query<B: Exported>(event: StrataHandle) -> i32 {
    guard(|| B::exports().event_query(event))
}

unsafe extern "C" fn event_wait<B: Exported>(event: StrataHandle) -> i32 {
    guard(|| B::exports().event_wait(event))
}

unsafe extern "C" fn event_free<B: Exported>(event: StrataHandle) -> i32 {
    guard(|| B::exports().event_free(event))
}
