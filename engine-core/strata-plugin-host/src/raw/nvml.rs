//! Calls into NVIDIA's management library, by its published C interface. Every function is looked up by name, so a
//! driver that lacks one costs what it tells and no more. Device handles are the library's; they live as long as
//! it is started, which the borrow holds.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

const SUCCESS: c_int = 0;
/// What we say of a function that the library lacks; NVML's own number for it.
const FUNCTION_NOT_FOUND: c_int = 13;
/// The longest text that NVML's interface names is 96 bytes; more room costs nothing.
const TEXT: usize = 256;

type Handle = *mut c_void;

/// A failure in NVML's own number and words.
#[derive(Debug, Clone)]
pub(crate) struct NvmlError {
    pub(crate) code: c_int,
    pub(crate) text: String,
}

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlPciInfo_t` of version 3.
#[repr(C)]
struct PciInfo {
    legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

/// The library, opened and not started.
pub(crate) struct NvmlLibrary {
    library: Library,
}

/// The library at work; stopped when dropped.
pub(crate) struct Nvml {
    library: Library,
}

pub(crate) struct NvmlDevice<'a> {
    nvml: &'a Nvml,
    handle: Handle,
}

impl NvmlLibrary {
    /// Opens it by the loader's search, or at an absolute path; the error is the loader's own sentence.
    pub(crate) fn open(name: &str) -> Result<NvmlLibrary, String> {
        // SAFETY: opening runs the initialisers of the driver's library. This process exists for that alone and
        // is a child that its parent can lose.
        let opened = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        opened.map(|library| NvmlLibrary { library }).map_err(|error| super::loader_words(&error))
    }

    pub(crate) fn start(self) -> Result<Nvml, NvmlError> {
        let nvml = Nvml { library: self.library };
        let start = nvml.get::<unsafe extern "C" fn() -> c_int>(c"nvmlInit_v2")?;
        // SAFETY: takes nothing, by NVML's interface for this name.
        let code = unsafe { start() };
        nvml.check(code)?;
        Ok(nvml)
    }
}

impl Nvml {
    /// A function by its name; `F` is its type by NVML's interface.
    fn get<F>(&self, name: &CStr) -> Result<Symbol<F>, NvmlError> {
        // SAFETY: each caller names the type that NVML's interface gives the function of that name.
        let symbol = unsafe { self.library.get::<F>(name.to_bytes_with_nul()) };
        symbol.map_err(|_| NvmlError {
            code: FUNCTION_NOT_FOUND,
            text: format!("the driver's library has no {}", name.to_string_lossy()),
        })
    }

    fn check(&self, code: c_int) -> Result<(), NvmlError> {
        if code == SUCCESS {
            return Ok(());
        }
        let words =
            self.get::<unsafe extern "C" fn(c_int) -> *const c_char>(c"nvmlErrorString").ok().and_then(|words| {
                // SAFETY: takes a number and gives a static text, by NVML's interface.
                let text = unsafe { words(code) };
                if text.is_null() {
                    return None;
                }
                // SAFETY: not null, and the library's own static text that ends with NUL.
                let text = unsafe { CStr::from_ptr(text) };
                Some(text.to_string_lossy().into_owned())
            });
        Err(NvmlError { code, text: words.unwrap_or_else(|| format!("error {code}")) })
    }

    pub(crate) fn driver(&self) -> Result<String, NvmlError> {
        let call = self.get::<unsafe extern "C" fn(*mut c_char, c_uint) -> c_int>(c"nvmlSystemGetDriverVersion")?;
        // SAFETY: the buffer lives through the call and its length is told.
        self.text(|buffer, length| unsafe { call(buffer, length) })
    }

    pub(crate) fn count(&self) -> Result<u32, NvmlError> {
        let call = self.get::<unsafe extern "C" fn(*mut c_uint) -> c_int>(c"nvmlDeviceGetCount_v2")?;
        let mut count = 0;
        // SAFETY: writes one number, which lives through the call.
        let code = unsafe { call(&raw mut count) };
        self.check(code).map(|()| count)
    }

    pub(crate) fn device(&self, index: u32) -> Result<NvmlDevice<'_>, NvmlError> {
        let call = self.get::<unsafe extern "C" fn(c_uint, *mut Handle) -> c_int>(c"nvmlDeviceGetHandleByIndex_v2")?;
        // SAFETY: writes one handle, which lives through the call.
        self.handle(|handle| unsafe { call(index, handle) })
    }

    pub(crate) fn device_at(&self, address: &str) -> Result<NvmlDevice<'_>, NvmlError> {
        let call =
            self.get::<unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int>(c"nvmlDeviceGetHandleByPciBusId_v2")?;
        let address = CString::new(address)
            .map_err(|_| NvmlError { code: FUNCTION_NOT_FOUND, text: "the address holds a NUL".to_owned() })?;
        // SAFETY: reads a text that ends with NUL and writes one handle; both live through the call.
        self.handle(|handle| unsafe { call(address.as_ptr(), handle) })
    }

    fn handle(&self, call: impl FnOnce(*mut Handle) -> c_int) -> Result<NvmlDevice<'_>, NvmlError> {
        let mut handle: Handle = std::ptr::null_mut();
        let code = call(&raw mut handle);
        self.check(code).map(|()| NvmlDevice { nvml: self, handle })
    }

    /// A text that the library writes into a buffer of ours.
    fn text(&self, call: impl FnOnce(*mut c_char, c_uint) -> c_int) -> Result<String, NvmlError> {
        let mut buffer = [0_u8; TEXT];
        // One byte less than there are: the last one stays NUL whatever is written.
        let code = call(buffer.as_mut_ptr().cast(), TEXT as c_uint - 1);
        self.check(code)?;
        let text = CStr::from_bytes_until_nul(&buffer).map(CStr::to_string_lossy);
        Ok(text.unwrap_or_default().into_owned())
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        if let Ok(stop) = self.get::<unsafe extern "C" fn() -> c_int>(c"nvmlShutdown") {
            // SAFETY: takes nothing; no handle of ours outlives `self`. The process ends next, whatever it says.
            let _ = unsafe { stop() };
        }
    }
}

impl<'a> NvmlDevice<'a> {
    pub(crate) fn uuid(&self) -> Result<String, NvmlError> {
        self.text(c"nvmlDeviceGetUUID")
    }

    pub(crate) fn name(&self) -> Result<String, NvmlError> {
        self.text(c"nvmlDeviceGetName")
    }

    fn text(&self, name: &CStr) -> Result<String, NvmlError> {
        let call = self.nvml.get::<unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> c_int>(name)?;
        // SAFETY: the handle is this library's; the buffer lives through the call and its length is told.
        self.nvml.text(|buffer, length| unsafe { call(self.handle, buffer, length) })
    }

    /// Total and free bytes.
    pub(crate) fn memory(&self) -> Result<(u64, u64), NvmlError> {
        let call = self.nvml.get::<unsafe extern "C" fn(Handle, *mut Memory) -> c_int>(c"nvmlDeviceGetMemoryInfo")?;
        let mut memory = Memory::default();
        // SAFETY: the handle is this library's; the struct is the one that NVML's interface names.
        let code = unsafe { call(self.handle, &raw mut memory) };
        self.nvml.check(code).map(|()| (memory.total, memory.free))
    }

    /// Compute capability: major and minor.
    pub(crate) fn capability(&self) -> Result<[i32; 2], NvmlError> {
        type Call = unsafe extern "C" fn(Handle, *mut c_int, *mut c_int) -> c_int;
        let call = self.nvml.get::<Call>(c"nvmlDeviceGetCudaComputeCapability")?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the handle is this library's; writes two numbers, which live through the call.
        let code = unsafe { call(self.handle, &raw mut major, &raw mut minor) };
        self.nvml.check(code).map(|()| [major, minor])
    }

    /// PCI address as the library writes it: `00000000:01:00.0`.
    pub(crate) fn pci(&self) -> Result<String, NvmlError> {
        let call = self.nvml.get::<unsafe extern "C" fn(Handle, *mut PciInfo) -> c_int>(c"nvmlDeviceGetPciInfo_v3")?;
        let mut info =
            PciInfo { legacy: [0; 16], domain: 0, bus: 0, device: 0, device_id: 0, subsystem_id: 0, bus_id: [0; 32] };
        // SAFETY: the handle is this library's; the struct is the one that NVML's interface names.
        let code = unsafe { call(self.handle, &raw mut info) };
        self.nvml.check(code)?;
        Ok(info.bus_id.iter().take_while(|byte| **byte != 0).map(|byte| char::from(byte.to_ne_bytes()[0])).collect())
    }

    /// Whether a screen shows what it draws.
    pub(crate) fn display(&self) -> Result<bool, NvmlError> {
        self.number(c"nvmlDeviceGetDisplayActive").map(|active| active != 0)
    }

    /// How many slices it could have; none for a card that cannot be divided.
    pub(crate) fn slice_count(&self) -> u32 {
        self.number(c"nvmlDeviceGetMaxMigDeviceCount").unwrap_or(0)
    }

    fn number(&self, name: &CStr) -> Result<u32, NvmlError> {
        let call = self.nvml.get::<unsafe extern "C" fn(Handle, *mut c_uint) -> c_int>(name)?;
        let mut number = 0;
        // SAFETY: the handle is this library's; writes one number, which lives through the call.
        let code = unsafe { call(self.handle, &raw mut number) };
        self.nvml.check(code).map(|()| number)
    }

    pub(crate) fn slice(&self, index: u32) -> Result<NvmlDevice<'a>, NvmlError> {
        type Call = unsafe extern "C" fn(Handle, c_uint, *mut Handle) -> c_int;
        let call = self.nvml.get::<Call>(c"nvmlDeviceGetMigDeviceHandleByIndex")?;
        // SAFETY: the handle is this library's; writes one handle, which lives through the call.
        self.nvml.handle(|handle| unsafe { call(self.handle, index, handle) })
    }
}
