//! The only unsafe code of the crate: opening one library, calling its entry, and calling its
//! table (what lives on a device: raw/objects.rs). Everything that leaves this file is safe to use: handles are made here only, carry the
//! plugin's instance id, are freed when dropped, and keep alive what they depend on (a program its
//! buffers, a buffer its device and its imported memory). Every call on a device holds the
//! device's lock, which is the ABI's rule "one thread at a time".
//!
//! It checks what a plugin gives back (status numbers, handles, addresses), but nothing about
//! what is asked of it: sizes, ranges and programs are checked by the callers, `device.rs`,
//! `buffer.rs` and `program.rs`. `plugin.rs` verifies the file before it gets here.
#![expect(unsafe_code, reason = "dlopen and calls through a C table; see the module's first paragraph")]

mod nvml;
mod objects;

pub(crate) use nvml::{NvmlDevice, NvmlError, NvmlLibrary};
pub(crate) use objects::{Desc, RawBuffer, RawDevice, RawEvent, RawProgram};

use crate::PluginError;
use std::ffi::c_void;
use std::mem::offset_of;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use strata_backend_abi::{
    ENTRY_SYMBOL, STRATA_ABI_MAJOR, STRATA_ABI_VERSION, SizedStruct, StrataBackend, StrataDeviceInfo, StrataEntryArgs,
    StrataEntryFn, StrataEntryResult, StrataHandle, StrataLogLevel, StrataStatus, StrataStr, StrataTextOut,
    abi_version, read_sized,
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

/// Version of the C library that this process runs with, when it is glibc.
#[cfg(target_env = "gnu")]
pub(crate) fn glibc_version() -> Option<String> {
    // SAFETY: takes nothing and gives a static text that ends with NUL.
    let version = unsafe { libc::gnu_get_libc_version() };
    // SAFETY: as above.
    let version = unsafe { std::ffi::CStr::from_ptr(version) };
    version.to_str().ok().map(str::to_owned)
}

#[cfg(not(target_env = "gnu"))]
pub(crate) fn glibc_version() -> Option<String> {
    None
}

/// Prepares a process that may be about to crash: no core file, and no life without its parent.
pub(crate) fn expendable() {
    #[cfg(target_os = "linux")]
    {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the struct lives through the call. A failure costs a core file.
        let _ = unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
        // SAFETY: takes a signal number by value. A failure costs a stray process.
        let _ = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    }
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
