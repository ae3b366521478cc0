//! The only unsafe code of the crate: opening one library, calling its entry, and calling its
//! table. Everything that leaves this file is safe to use: handles are made here only, carry the
//! plugin's instance id, are freed when dropped, and keep alive what they depend on (a program its
//! buffers, a buffer its device and its imported memory). Every call on a device holds the
//! device's lock, which is the ABI's rule "one thread at a time".
//!
//! It checks what a plugin gives back (status numbers, handles, addresses), but nothing about
//! what is asked of it: sizes, ranges and programs are checked by the callers, `device.rs`,
//! `buffer.rs` and `program.rs`. `plugin.rs` verifies the file before it gets here.
#![expect(unsafe_code, reason = "dlopen and calls through a C table; see the module's first paragraph")]

use crate::{HostMemory, PluginError};
use std::ffi::c_void;
use std::mem::offset_of;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strata_backend_abi::{
    ENTRY_SYMBOL, STRATA_ABI_MAJOR, STRATA_ABI_VERSION, SizedStruct, StrataBackend, StrataBufferDesc, StrataBufferKind,
    StrataDeviceInfo, StrataDeviceOptions, StrataEntryArgs, StrataEntryFn, StrataEntryResult, StrataHandle,
    StrataLogLevel, StrataMemoryInfo, StrataOp, StrataProgramDesc, StrataProgramInfo, StrataRunArgs, StrataStatus,
    StrataStr, StrataTensor, StrataTextOut, abi_version, read_sized,
};

/// Lowest and highest ABI version that this host speaks.
pub(crate) const HOST_ABI: (u32, u32) = (abi_version(STRATA_ABI_MAJOR, 0), STRATA_ABI_VERSION);

/// Takes the plugin's talk; called from any thread.
pub type LogSink = Arc<dyn Fn(StrataLogLevel, &str) + Send + Sync>;

/// More text than this from a plugin is cut.
const MAX_TEXT: usize = 64 << 10;
/// First try for texts that are seldom long.
const USUAL_TEXT: usize = 2 << 10;
/// No machine has more devices; a plugin that says so is wrong.
const MAX_DEVICES: u32 = 4096;
/// Bytes of a table that end with the last entry that is not optional.
const REQUIRED_TABLE_BYTES: usize = offset_of!(StrataBackend, event_create);

/// A plugin's table, copied out of the plugin, and who it belongs to.
pub(crate) struct Table {
    calls: StrataBackend,
    instance: u64,
    plugin: String,
}

/// Opens the library at an absolute path and asks its entry for a table. The library stays open
/// until the process ends: plugins start threads and register callbacks, and nothing tells when
/// the last of their code has run.
pub(crate) fn load(path: &Path, plugin: &str, instance: u64, log: LogSink) -> Result<Table, PluginError> {
    let entry = entry_of(path)?;
    // The plugin may log until the process ends, so the context is never freed.
    let context: &'static LogSink = Box::leak(Box::new(log));
    let args = StrataEntryArgs {
        struct_size: StrataEntryArgs::SIZE,
        abi_lowest: HOST_ABI.0,
        abi_highest: HOST_ABI.1,
        reserved: 0,
        instance,
        host_version: StrataStr::from_static(env!("CARGO_PKG_VERSION")),
        log: Some(log_line),
        log_context: ptr::from_ref(context).cast_mut().cast(),
    };
    let mut result = StrataEntryResult {
        struct_size: StrataEntryResult::SIZE,
        abi: 0,
        table: ptr::null(),
        reason: StrataStr::EMPTY,
    };
    // SAFETY: the symbol has the entry's type by the ABI's rule for its name; both structs live
    // through the call and say their size.
    let status = unsafe { entry(&raw const args, &raw mut result) };
    if status != StrataStatus::Ok as i32 {
        return Err(refusal(plugin, status, &result));
    }
    check_version(plugin, result.abi)?;
    copy_table(plugin, &result).map(|table| Table { calls: table, instance, plugin: plugin.to_owned() })
}

#[cfg(unix)]
fn open_library(path: &Path) -> Result<libloading::Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // SAFETY: opening runs the library's initialisers. `plugin.rs` has compared its bytes with the
    // descriptor's digest and tried it in a child process, so this is code that was chosen.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(libloading::Library::from)
}

#[cfg(not(unix))]
fn open_library(path: &Path) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: as for unix: the bytes were compared with the descriptor's digest before.
    unsafe { libloading::Library::new(path) }
}

fn entry_of(path: &Path) -> Result<StrataEntryFn, PluginError> {
    let library = open_library(path)
        .map_err(|error| PluginError::Load { path: path.to_owned(), message: loader_words(&error) })?;
    // SAFETY: the ABI gives the symbol of this name this type; only `load` calls it.
    let symbol = unsafe { library.get::<StrataEntryFn>(ENTRY_SYMBOL) };
    let entry = symbol.map(|symbol| *symbol).map_err(|error| PluginError::EntryMissing {
        path: path.to_owned(),
        symbol: ENTRY_SYMBOL,
        message: loader_words(&error),
    });
    // Never closed, also when it turns out to be no plugin: its initialisers have run.
    std::mem::forget(library);
    entry
}

/// What the system's loader itself said, without the wrapper's words.
fn loader_words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

unsafe extern "C" fn log_line(context: *mut c_void, level: u32, text: StrataStr) {
    let level = match level {
        0 => StrataLogLevel::Debug,
        1 => StrataLogLevel::Info,
        2 => StrataLogLevel::Warning,
        _ => StrataLogLevel::Error,
    };
    // SAFETY: the plugin promises (docs/ABI.md) that the text is readable for the call.
    let text = unsafe { text.to_string_lossy(MAX_TEXT) };
    // SAFETY: `load` made the context from a leaked `LogSink` and gave it with this function.
    let sink = unsafe { &*context.cast::<LogSink>() };
    // A panic must not unwind into the plugin; a lost log line is the smaller harm.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sink(level, &text)));
}

fn refusal(plugin: &str, status: i32, result: &StrataEntryResult) -> PluginError {
    if status == StrataStatus::AbiMismatch as i32 {
        return PluginError::Abi { plugin: plugin.to_owned(), ours: HOST_ABI, theirs: (result.abi, result.abi) };
    }
    // SAFETY: `reason` is empty as the host set it or a static text of the plugin (the entry's contract).
    let reason = unsafe { result.reason.to_string_lossy(MAX_TEXT) };
    PluginError::Refused { plugin: plugin.to_owned(), status, reason }
}

fn check_version(plugin: &str, abi: u32) -> Result<(), PluginError> {
    if abi < HOST_ABI.0 || abi > HOST_ABI.1 {
        return Err(PluginError::Abi { plugin: plugin.to_owned(), ours: HOST_ABI, theirs: (abi, abi) });
    }
    Ok(())
}

fn copy_table(plugin: &str, result: &StrataEntryResult) -> Result<StrataBackend, PluginError> {
    let plugin = plugin.to_owned();
    if result.table.is_null() {
        return Err(PluginError::NullTable { plugin });
    }
    if !result.table.is_aligned() {
        return Err(PluginError::Misbehaved {
            plugin,
            call: ENTRY_SYMBOL,
            what: format!("the table's address {:p} is not aligned", result.table),
        });
    }
    // SAFETY: the plugin answered `Ok` with a table that is not null, which it promises to be readable for the
    // bytes that its first field says and unchanged for the process's life.
    let table = unsafe { read_sized(result.table) };
    if (table.struct_size as usize) < REQUIRED_TABLE_BYTES {
        return Err(PluginError::ShortTable { plugin, got: table.struct_size, needs: REQUIRED_TABLE_BYTES as u32 });
    }
    check_version(&plugin, table.abi)?;
    if let Some(entry) = first_hole(&table) {
        return Err(PluginError::NullEntry { plugin, entry });
    }
    let events = [
        table.event_create.is_some(),
        table.event_query.is_some(),
        table.event_wait.is_some(),
        table.event_free.is_some(),
    ];
    if events.contains(&true) && events.contains(&false) {
        return Err(PluginError::NullEntry { plugin, entry: "event_create, event_query, event_wait, event_free" });
    }
    Ok(table)
}

fn first_hole(table: &StrataBackend) -> Option<&'static str> {
    macro_rules! holes {
        ($($entry:ident)*) => { [$((stringify!($entry), table.$entry.is_none())),*] };
    }
    let entries = holes! {
        last_error device_count device_info device_open device_close device_memory synchronize op_supported
        buffer_alloc buffer_free buffer_write buffer_read buffer_copy program_compile program_run program_free
    };
    entries.into_iter().find(|(_, hole)| *hole).map(|(entry, _)| entry)
}

/// A device's description with its texts copied out.
pub(crate) struct RawDeviceInfo {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) name: String,
    pub(crate) arch: String,
    pub(crate) uid: String,
    pub(crate) driver: String,
    pub(crate) memory_total: u64,
    pub(crate) memory_free: u64,
}

impl Table {
    pub(crate) fn plugin(&self) -> &str {
        &self.plugin
    }

    pub(crate) fn abi(&self) -> u32 {
        self.calls.abi
    }

    pub(crate) fn can_import(&self) -> bool {
        self.calls.buffer_import.is_some()
    }

    pub(crate) fn can_map(&self) -> bool {
        self.calls.buffer_map.is_some()
    }

    pub(crate) fn has_events(&self) -> bool {
        self.calls.event_create.is_some()
    }

    /// Name and version as the library itself says them.
    pub(crate) fn identity(&self) -> (String, String) {
        // SAFETY: texts of the table are static by the ABI.
        let name = unsafe { self.calls.name.to_string_lossy(USUAL_TEXT) };
        // SAFETY: as above.
        let version = unsafe { self.calls.version.to_string_lossy(USUAL_TEXT) };
        (name, version)
    }

    fn entry<F>(&self, function: Option<F>, entry: &'static str) -> Result<F, PluginError> {
        function.ok_or_else(|| PluginError::NullEntry { plugin: self.plugin.clone(), entry })
    }

    pub(crate) fn misbehaved(&self, call: &'static str, what: impl Into<String>) -> PluginError {
        PluginError::Misbehaved { plugin: self.plugin.clone(), call, what: what.into() }
    }

    /// Turns a status into a result; must run on the thread of the failed call.
    fn check(&self, call: &'static str, status: i32) -> Result<(), PluginError> {
        if status == StrataStatus::Ok as i32 {
            return Ok(());
        }
        Err(self.failure(call, status))
    }

    #[cold]
    fn failure(&self, call: &'static str, status: i32) -> PluginError {
        match StrataStatus::from_number(status) {
            Err(number) => self.misbehaved(call, format!("returned status {number}, which this ABI does not know")),
            Ok(status) => PluginError::Call { plugin: self.plugin.clone(), call, status, text: self.last_error() },
        }
    }

    fn last_error(&self) -> String {
        let Some(last_error) = self.calls.last_error else { return String::new() };
        let mut room = TextRoom::new(USUAL_TEXT);
        let mut out = room.out();
        // SAFETY: `out` names a buffer of `capacity` bytes that lives through the call.
        unsafe { last_error(&raw mut out) };
        room.take(out)
    }

    fn handle(&self, call: &'static str, handle: StrataHandle) -> Result<StrataHandle, PluginError> {
        if handle.instance != self.instance {
            let what = format!("returned a handle of instance {}, its own is {}", handle.instance, self.instance);
            return Err(self.misbehaved(call, what));
        }
        if handle.id == 0 {
            return Err(self.misbehaved(call, "returned no handle and no failure"));
        }
        Ok(handle)
    }

    pub(crate) fn device_count(&self) -> Result<u32, PluginError> {
        let device_count = self.entry(self.calls.device_count, "device_count")?;
        let mut count = 0;
        // SAFETY: `count` lives through the call.
        let status = unsafe { device_count(&raw mut count) };
        self.check("device_count", status)?;
        if count > MAX_DEVICES {
            return Err(self.misbehaved("device_count", format!("says that there are {count} devices")));
        }
        Ok(count)
    }

    pub(crate) fn device_info(&self, index: u32) -> Result<RawDeviceInfo, PluginError> {
        let device_info = self.entry(self.calls.device_info, "device_info")?;
        let mut info = StrataDeviceInfo {
            struct_size: StrataDeviceInfo::SIZE,
            kind: 0,
            flags: 0,
            reserved: 0,
            name: StrataStr::EMPTY,
            arch: StrataStr::EMPTY,
            uid: StrataStr::EMPTY,
            driver: StrataStr::EMPTY,
            memory_total: 0,
            memory_free: 0,
        };
        // SAFETY: `info` lives through the call and says its size.
        let status = unsafe { device_info(index, &raw mut info) };
        self.check("device_info", status)?;
        let text = |text: StrataStr| {
            // SAFETY: texts of a device's description live as long as the plugin, by the ABI.
            unsafe { text.to_string_lossy(USUAL_TEXT) }
        };
        Ok(RawDeviceInfo {
            kind: info.kind,
            flags: info.flags,
            name: text(info.name),
            arch: text(info.arch),
            uid: text(info.uid),
            driver: text(info.driver),
            memory_total: info.memory_total,
            memory_free: info.memory_free,
        })
    }
}

/// A place for a plugin's text.
struct TextRoom(Vec<u8>);

impl TextRoom {
    fn new(capacity: usize) -> TextRoom {
        TextRoom(vec![0; capacity])
    }

    fn out(&mut self) -> StrataTextOut {
        StrataTextOut { data: self.0.as_mut_ptr(), capacity: self.0.len() as u64, len: 0 }
    }

    /// The text, with whatever the callee claims about its length cut to the room.
    fn take(self, out: StrataTextOut) -> String {
        let len = usize::try_from(out.len).unwrap_or(usize::MAX).min(self.0.len());
        String::from_utf8_lossy(&self.0[..len]).into_owned()
    }
}

/// An open device.
pub(crate) struct RawDevice {
    table: Arc<Table>,
    handle: StrataHandle,
    lock: Mutex<()>,
}

impl RawDevice {
    pub(crate) fn open(
        table: &Arc<Table>,
        index: u32,
        n_threads: u32,
        reserve_bytes: u64,
        variant: &str,
    ) -> Result<RawDevice, PluginError> {
        let device_open = table.entry(table.calls.device_open, "device_open")?;
        let options = StrataDeviceOptions {
            struct_size: StrataDeviceOptions::SIZE,
            n_threads,
            reserve_bytes,
            variant: StrataStr::borrow(variant),
        };
        let mut handle = StrataHandle::NONE;
        // SAFETY: options, their text and `handle` live through the call.
        let status = unsafe { device_open(index, &raw const options, &raw mut handle) };
        table.check("device_open", status)?;
        let handle = table.handle("device_open", handle)?;
        Ok(RawDevice { table: Arc::clone(table), handle, lock: Mutex::new(()) })
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// The device's turn. Nothing of ours panics in between, so a poisoned lock is as good as any.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn memory(&self) -> Result<(u64, u64, u64), PluginError> {
        let device_memory = self.table.entry(self.table.calls.device_memory, "device_memory")?;
        let mut info =
            StrataMemoryInfo { struct_size: StrataMemoryInfo::SIZE, reserved: 0, total: 0, free: 0, used_here: 0 };
        let _turn = self.turn();
        // SAFETY: the handle is alive (`self` owns it) and `info` lives through the call.
        let status = unsafe { device_memory(self.handle, &raw mut info) };
        self.table.check("device_memory", status)?;
        Ok((info.total, info.free, info.used_here))
    }

    pub(crate) fn report(&self) -> Result<String, PluginError> {
        let Some(device_report) = self.table.calls.device_report else { return Ok(String::new()) };
        let mut capacity = USUAL_TEXT;
        loop {
            let mut room = TextRoom::new(capacity);
            let mut out = room.out();
            let status = {
                let _turn = self.turn();
                // SAFETY: the handle is alive and `out` names `capacity` bytes that live through the call.
                unsafe { device_report(self.handle, &raw mut out) }
            };
            self.table.check("device_report", status)?;
            if out.len <= capacity as u64 || capacity == MAX_TEXT {
                return Ok(room.take(out));
            }
            capacity = MAX_TEXT;
        }
    }

    pub(crate) fn synchronize(&self) -> Result<(), PluginError> {
        let synchronize = self.table.entry(self.table.calls.synchronize, "synchronize")?;
        let _turn = self.turn();
        // SAFETY: the handle is alive.
        let status = unsafe { synchronize(self.handle) };
        self.table.check("synchronize", status)
    }

    /// `None` when the op is supported, else why not.
    pub(crate) fn op_supported(&self, desc: &Desc<'_>, index: u32) -> Result<Option<String>, PluginError> {
        let op_supported = self.table.entry(self.table.calls.op_supported, "op_supported")?;
        let desc = desc.raw(&[]);
        let mut room = TextRoom::new(USUAL_TEXT);
        let mut out = room.out();
        let _turn = self.turn();
        // SAFETY: the handle is alive; the description's arrays are borrowed by `Desc` and live through the
        // call, as does the room for the reason.
        let status = unsafe { op_supported(self.handle, &raw const desc, index, &raw mut out) };
        if status == StrataStatus::Unsupported as i32 {
            let reason = room.take(out);
            return Ok(Some(if reason.is_empty() { self.table.last_error() } else { reason }));
        }
        self.table.check("op_supported", status).map(|()| None)
    }
}

impl Drop for RawDevice {
    fn drop(&mut self) {
        let Some(device_close) = self.table.calls.device_close else { return };
        // SAFETY: buffers, programs and events hold this device, so this is the last use of the handle.
        // A failure leaves nothing to do: the device is gone either way.
        let _ = unsafe { device_close(self.handle) };
    }
}

/// A buffer of a device.
pub(crate) struct RawBuffer {
    device: Arc<RawDevice>,
    handle: StrataHandle,
    bytes: u64,
    memory: Option<Arc<dyn HostMemory>>,
}

impl RawBuffer {
    pub(crate) fn alloc(
        device: &Arc<RawDevice>,
        kind: StrataBufferKind,
        bytes: u64,
        label: &str,
    ) -> Result<RawBuffer, PluginError> {
        let table = &device.table;
        let buffer_alloc = table.entry(table.calls.buffer_alloc, "buffer_alloc")?;
        let desc = StrataBufferDesc {
            struct_size: StrataBufferDesc::SIZE,
            kind: kind as u32,
            bytes,
            label: StrataStr::borrow(label),
        };
        let mut handle = StrataHandle::NONE;
        let _turn = device.turn();
        // SAFETY: the device is alive; description, label and `handle` live through the call.
        let status = unsafe { buffer_alloc(device.handle, &raw const desc, &raw mut handle) };
        table.check("buffer_alloc", status)?;
        let handle = table.handle("buffer_alloc", handle)?;
        Ok(RawBuffer { device: Arc::clone(device), handle, bytes, memory: None })
    }

    /// `None` when the plugin cannot use host memory in place.
    pub(crate) fn import(
        device: &Arc<RawDevice>,
        memory: Arc<dyn HostMemory>,
    ) -> Result<Option<RawBuffer>, PluginError> {
        let table = &device.table;
        let Some(buffer_import) = table.calls.buffer_import else { return Ok(None) };
        let (data, bytes) = {
            let slice = memory.bytes();
            (slice.as_ptr(), slice.len() as u64)
        };
        let mut handle = StrataHandle::NONE;
        let turn = device.turn();
        // SAFETY: the device is alive. `data` is readable for `bytes` for as long as `memory` is shared: nobody can
        // hold it mutably while the buffer keeps its `Arc`, and the buffer is freed before that `Arc` is.
        let status = unsafe { buffer_import(device.handle, data.cast(), bytes, &raw mut handle) };
        if status == StrataStatus::Unsupported as i32 {
            return Ok(None);
        }
        table.check("buffer_import", status)?;
        let handle = table.handle("buffer_import", handle)?;
        drop(turn);
        Ok(Some(RawBuffer { device: Arc::clone(device), handle, bytes, memory: Some(memory) }))
    }

    pub(crate) fn device(&self) -> &Arc<RawDevice> {
        &self.device
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_imported(&self) -> bool {
        self.memory.is_some()
    }

    /// The caller has checked that the range lies within the buffer.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<(), PluginError> {
        let table = &self.device.table;
        let buffer_write = table.entry(table.calls.buffer_write, "buffer_write")?;
        let _turn = self.device.turn();
        // SAFETY: the buffer is alive and `data` is readable for its length.
        let status = unsafe { buffer_write(self.handle, offset, data.as_ptr().cast(), data.len() as u64) };
        table.check("buffer_write", status)
    }

    /// The caller has checked that the range lies within the buffer.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), PluginError> {
        let table = &self.device.table;
        let buffer_read = table.entry(table.calls.buffer_read, "buffer_read")?;
        let _turn = self.device.turn();
        // SAFETY: the buffer is alive and `out` is writable for its length.
        let status = unsafe { buffer_read(self.handle, offset, out.as_mut_ptr().cast(), out.len() as u64) };
        table.check("buffer_read", status)
    }

    /// The caller has checked both ranges, that they do not overlap, and that both buffers are of one device.
    pub(crate) fn copy_to(
        &self,
        source_offset: u64,
        target: &RawBuffer,
        target_offset: u64,
        bytes: u64,
    ) -> Result<(), PluginError> {
        let table = &self.device.table;
        let buffer_copy = table.entry(table.calls.buffer_copy, "buffer_copy")?;
        let _turn = self.device.turn();
        // SAFETY: both buffers are alive and belong to the device whose turn this is.
        let status = unsafe { buffer_copy(target.handle, target_offset, self.handle, source_offset, bytes) };
        table.check("buffer_copy", status)
    }

    /// Waits for the device's work, then hands out the buffer's bytes while the device is held.
    pub(crate) fn with_mapped<R>(&self, use_bytes: impl FnOnce(&mut [u8]) -> R) -> Result<R, PluginError> {
        let table = &self.device.table;
        let buffer_map = table.entry(table.calls.buffer_map, "buffer_map")?;
        let synchronize = table.entry(table.calls.synchronize, "synchronize")?;
        let _turn = self.device.turn();
        // SAFETY: the device is alive.
        let status = unsafe { synchronize(self.device.handle) };
        table.check("synchronize", status)?;
        let mut address: *mut c_void = ptr::null_mut();
        // SAFETY: the buffer is alive and `address` lives through the call.
        let status = unsafe { buffer_map(self.handle, &raw mut address) };
        table.check("buffer_map", status)?;
        if address.is_null() {
            return Err(table.misbehaved("buffer_map", "returned a null address and no failure"));
        }
        let len = usize::try_from(self.bytes)
            .map_err(|_| table.misbehaved("buffer_map", "mapped more than the address space holds"))?;
        // SAFETY: the plugin gives the address of the whole buffer, `bytes` long, alive while the handle is. Its
        // work is done and the held turn keeps new work and other mappings away, so nothing else touches it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(address.cast::<u8>(), len) };
        Ok(use_bytes(bytes))
    }
}

impl Drop for RawBuffer {
    fn drop(&mut self) {
        let Some(buffer_free) = self.device.table.calls.buffer_free else { return };
        let _turn = self.device.turn();
        // SAFETY: programs hold their buffers, so this is the last use of the handle; imported memory is
        // dropped after it. A failure leaves nothing to do.
        let _ = unsafe { buffer_free(self.handle) };
    }
}

/// A program as it is given across, with its arrays borrowed.
pub(crate) struct Desc<'a> {
    pub(crate) flags: u32,
    pub(crate) name: &'a str,
    pub(crate) tensors: &'a [StrataTensor],
    pub(crate) ops: &'a [StrataOp],
    pub(crate) scalar_max: &'a [i64],
}

impl Desc<'_> {
    fn raw(&self, buffers: &[StrataHandle]) -> StrataProgramDesc {
        StrataProgramDesc {
            struct_size: StrataProgramDesc::SIZE,
            flags: self.flags,
            name: StrataStr::borrow(self.name),
            tensors: self.tensors.as_ptr(),
            ops: self.ops.as_ptr(),
            buffers: buffers.as_ptr(),
            scalar_max: self.scalar_max.as_ptr(),
            n_tensors: self.tensors.len() as u32,
            tensor_stride: size_of::<StrataTensor>() as u32,
            n_ops: self.ops.len() as u32,
            op_stride: size_of::<StrataOp>() as u32,
            n_buffers: buffers.len() as u32,
            n_scalars: self.scalar_max.len() as u32,
        }
    }
}

/// A compiled program.
pub(crate) struct RawProgram {
    device: Arc<RawDevice>,
    handle: StrataHandle,
    /// Freed after the program.
    _buffers: Vec<Arc<RawBuffer>>,
}

/// Events a run can wait for without an allocation.
const USUAL_WAITS: usize = 8;

impl RawProgram {
    /// The caller has validated the program against these buffers, all of this device.
    pub(crate) fn compile(
        device: &Arc<RawDevice>,
        desc: &Desc<'_>,
        buffers: Vec<Arc<RawBuffer>>,
    ) -> Result<RawProgram, PluginError> {
        let table = &device.table;
        let program_compile = table.entry(table.calls.program_compile, "program_compile")?;
        let handles: Vec<StrataHandle> = buffers.iter().map(|buffer| buffer.handle).collect();
        let desc = desc.raw(&handles);
        let mut handle = StrataHandle::NONE;
        let _turn = device.turn();
        // SAFETY: device and buffers are alive; the description's arrays live through the call.
        let status = unsafe { program_compile(device.handle, &raw const desc, &raw mut handle) };
        table.check("program_compile", status)?;
        let handle = table.handle("program_compile", handle)?;
        Ok(RawProgram { device: Arc::clone(device), handle, _buffers: buffers })
    }

    pub(crate) fn device(&self) -> &Arc<RawDevice> {
        &self.device
    }

    /// Launches, workspace bytes, bytes of rearranged constants.
    pub(crate) fn info(&self) -> Result<(u32, u64, u64), PluginError> {
        let table = &self.device.table;
        let Some(program_info) = table.calls.program_info else { return Ok((0, 0, 0)) };
        let mut info = StrataProgramInfo {
            struct_size: StrataProgramInfo::SIZE,
            n_launches: 0,
            workspace_bytes: 0,
            constant_bytes: 0,
        };
        let _turn = self.device.turn();
        // SAFETY: the program is alive and `info` lives through the call.
        let status = unsafe { program_info(self.handle, &raw mut info) };
        table.check("program_info", status)?;
        Ok((info.n_launches, info.workspace_bytes, info.constant_bytes))
    }

    /// The caller has checked the scalars and that the events are of this device.
    pub(crate) fn run(
        &mut self,
        scalars: &[i64],
        wait: &[&RawEvent],
        signal: Option<&RawEvent>,
    ) -> Result<(), PluginError> {
        let table = &self.device.table;
        let program_run = table.entry(table.calls.program_run, "program_run")?;
        let mut few = [StrataHandle::NONE; USUAL_WAITS];
        let many: Vec<StrataHandle>;
        let handles: &[StrataHandle] = if wait.len() <= USUAL_WAITS {
            for (slot, event) in few.iter_mut().zip(wait) {
                *slot = event.handle;
            }
            &few[..wait.len()]
        } else {
            many = wait.iter().map(|event| event.handle).collect();
            &many
        };
        let args = StrataRunArgs {
            struct_size: StrataRunArgs::SIZE,
            n_scalars: scalars.len() as u32,
            scalars: scalars.as_ptr(),
            wait: handles.as_ptr(),
            n_wait: handles.len() as u32,
            reserved: 0,
            signal: signal.map_or(StrataHandle::NONE, |event| event.handle),
        };
        let _turn = self.device.turn();
        // SAFETY: program, its buffers and the events are alive; the arrays live through the call.
        let status = unsafe { program_run(self.handle, &raw const args) };
        table.check("program_run", status)
    }
}

impl Drop for RawProgram {
    fn drop(&mut self) {
        let Some(program_free) = self.device.table.calls.program_free else { return };
        let _turn = self.device.turn();
        // SAFETY: this is the last use of the handle; the buffers are dropped after it.
        let _ = unsafe { program_free(self.handle) };
    }
}

/// An event of a device.
pub(crate) struct RawEvent {
    device: Arc<RawDevice>,
    handle: StrataHandle,
}

impl RawEvent {
    /// `None` when the plugin has no events.
    pub(crate) fn create(device: &Arc<RawDevice>) -> Result<Option<RawEvent>, PluginError> {
        let table = &device.table;
        let Some(event_create) = table.calls.event_create else { return Ok(None) };
        let mut handle = StrataHandle::NONE;
        let _turn = device.turn();
        // SAFETY: the device is alive and `handle` lives through the call.
        let status = unsafe { event_create(device.handle, &raw mut handle) };
        table.check("event_create", status)?;
        let handle = table.handle("event_create", handle)?;
        Ok(Some(RawEvent { device: Arc::clone(device), handle }))
    }

    pub(crate) fn device(&self) -> &Arc<RawDevice> {
        &self.device
    }

    pub(crate) fn is_done(&self) -> Result<bool, PluginError> {
        let table = &self.device.table;
        let event_query = table.entry(table.calls.event_query, "event_query")?;
        let _turn = self.device.turn();
        // SAFETY: the event is alive.
        let status = unsafe { event_query(self.handle) };
        if status == StrataStatus::NotReady as i32 {
            return Ok(false);
        }
        table.check("event_query", status).map(|()| true)
    }

    pub(crate) fn wait(&self) -> Result<(), PluginError> {
        let table = &self.device.table;
        let event_wait = table.entry(table.calls.event_wait, "event_wait")?;
        let _turn = self.device.turn();
        // SAFETY: the event is alive.
        let status = unsafe { event_wait(self.handle) };
        table.check("event_wait", status)
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        let Some(event_free) = self.device.table.calls.event_free else { return };
        let _turn = self.device.turn();
        // SAFETY: a run borrows its events only for the call, so this is the last use of the handle.
        let _ = unsafe { event_free(self.handle) };
    }
}
