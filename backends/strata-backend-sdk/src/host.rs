//! What the host lends to a plugin: its log, and memory to use in place.
#![expect(unsafe_code, reason = "calls the host's log function and borrows the host's memory")]

use core::ffi::c_void;

use strata_backend_abi::{StrataLogFn, StrataLogLevel, StrataStr};

/// The host as the plugin sees it. Cheap to clone; may be used from any thread.
#[derive(Debug, Clone)]
pub struct Host {
    log: Option<StrataLogFn>,
    context: *mut c_void,
    version: String,
    abi: u32,
}

// SAFETY: the ABI lets the log be called from any thread; the context is only passed back to it.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

impl Host {
    pub(crate) fn new(log: Option<StrataLogFn>, context: *mut c_void, version: String, abi: u32) -> Host {
        Host { log, context, version, abi }
    }

    /// A host without a log, for a plugin's own tests.
    pub fn silent() -> Host {
        Host::new(None, core::ptr::null_mut(), String::new(), strata_backend_abi::STRATA_ABI_VERSION)
    }

    /// Gives one line of talk to the host; dropped when the host takes none.
    pub fn log(&self, level: StrataLogLevel, line: &str) {
        if let Some(log) = self.log {
            // SAFETY: the host guarantees function and context for as long as the process lives
            // (docs/ABI.md, "Lifetimes"); the text lives through the call.
            unsafe { log(self.context, level as u32, StrataStr::borrow(line)) };
        }
    }

    /// The host's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The ABI version in force, `major << 16 | minor`.
    pub fn abi(&self) -> u32 {
        self.abi
    }
}

/// Memory of the host that a buffer uses in place. The host keeps it valid and unchanged until the
/// buffer is freed, and the SDK refuses to free a buffer that a program still uses.
#[derive(Debug)]
pub struct ForeignMemory {
    data: *const u8,
    bytes: usize,
}

// SAFETY: memory that nobody writes may be read from any thread.
unsafe impl Send for ForeignMemory {}
// SAFETY: as above.
unsafe impl Sync for ForeignMemory {}

impl ForeignMemory {
    /// Takes over a borrow that the ABI stretches until `buffer_free`.
    ///
    /// # Safety
    /// `data` is valid for reading and unchanged for as long as the value lives.
    pub(crate) unsafe fn new(data: &[u8]) -> ForeignMemory {
        ForeignMemory { data: data.as_ptr(), bytes: data.len() }
    }

    /// Memory that lives as long as the process, for a plugin's own tests.
    pub fn from_static(data: &'static [u8]) -> ForeignMemory {
        ForeignMemory { data: data.as_ptr(), bytes: data.len() }
    }

    /// The bytes. They have no alignment beyond what the host's file mapping gives.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: `new` was promised validity for the life of `self`.
        unsafe { core::slice::from_raw_parts(self.data, self.bytes) }
    }

    /// Address of the first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.data
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}
