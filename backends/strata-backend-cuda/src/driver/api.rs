//! The library and what it says about the machine before any card is opened.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use libloading::Library;
use strata_backend_abi::StrataStatus;
use strata_backend_sdk::{Failure, Result};
use strata_gpu::{Cause, DriverError, DriverResult, ListedCard, Runtime};

use super::context::CudaDriver;

/// Where the driver's library may be called so.
const NAMES: [&str; 3] = ["libcuda.so.1", "libcuda.so", "nvcuda.dll"];
/// CUDA 11.2: the oldest driver whose PTX 7.2 the kernels are.
const LOWEST_VERSION: c_int = 11_020;

/// `CUdeviceptr` and opaque handles.
pub(super) type Pointer = u64;
pub(super) type Opaque = *mut c_void;

/// How a function is called: status out, arguments by C's rules.
macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $symbol:literal: fn($($argument:ty),*);)*) => {
        /// The driver's functions.
        #[derive(Debug)]
        pub(super) struct Functions { $($(#[$doc])* pub(super) $field: unsafe extern "C" fn($($argument),*) -> c_int),* }

        impl Functions {
            fn find(library: &Library, file: &str) -> Result<Functions> {
                Ok(Functions {
                    $($field: {
                        // SAFETY: the type is that of the driver's documented function of this name.
                        let symbol = unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> c_int>($symbol.as_bytes()) };
                        *symbol.map_err(|_| missing(file, $symbol))?
                    }),*
                })
            }
        }
    };
}

functions! {
    init = "cuInit": fn(c_uint);
    driver_version = "cuDriverGetVersion": fn(*mut c_int);
    device_count = "cuDeviceGetCount": fn(*mut c_int);
    device_get = "cuDeviceGet": fn(*mut c_int, c_int);
    device_name = "cuDeviceGetName": fn(*mut c_char, c_int, c_int);
    device_uuid = "cuDeviceGetUuid": fn(*mut [u8; 16], c_int);
    device_attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2": fn(*mut usize, c_int);
    context_retain = "cuDevicePrimaryCtxRetain": fn(*mut Opaque, c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2": fn(c_int);
    context_set = "cuCtxSetCurrent": fn(Opaque);
    memory_info = "cuMemGetInfo_v2": fn(*mut usize, *mut usize);
    alloc = "cuMemAlloc_v2": fn(*mut Pointer, usize);
    free = "cuMemFree_v2": fn(Pointer);
    host_alloc = "cuMemHostAlloc": fn(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost": fn(*mut c_void);
    host_pointer = "cuMemHostGetDevicePointer_v2": fn(*mut Pointer, *mut c_void, c_uint);
    upload = "cuMemcpyHtoDAsync_v2": fn(Pointer, *const c_void, usize, Opaque);
    download = "cuMemcpyDtoHAsync_v2": fn(*mut c_void, Pointer, usize, Opaque);
    copy = "cuMemcpyDtoDAsync_v2": fn(Pointer, Pointer, usize, Opaque);
    clear = "cuMemsetD8Async": fn(Pointer, u8, usize, Opaque);
    stream_create = "cuStreamCreate": fn(*mut Opaque, c_uint);
    stream_destroy = "cuStreamDestroy_v2": fn(Opaque);
    stream_synchronize = "cuStreamSynchronize": fn(Opaque);
    begin_capture = "cuStreamBeginCapture_v2": fn(Opaque, c_int);
    end_capture = "cuStreamEndCapture": fn(Opaque, *mut Opaque);
    graph_instantiate = "cuGraphInstantiateWithFlags": fn(*mut Opaque, Opaque, u64);
    graph_destroy = "cuGraphDestroy": fn(Opaque);
    graph_launch = "cuGraphLaunch": fn(Opaque, Opaque);
    graph_exec_destroy = "cuGraphExecDestroy": fn(Opaque);
    event_create = "cuEventCreate": fn(*mut Opaque, c_uint);
    event_record = "cuEventRecord": fn(Opaque, Opaque);
    event_synchronize = "cuEventSynchronize": fn(Opaque);
    event_query = "cuEventQuery": fn(Opaque);
    event_destroy = "cuEventDestroy_v2": fn(Opaque);
    module_load = "cuModuleLoadData": fn(*mut Opaque, *const c_void);
    module_function = "cuModuleGetFunction": fn(*mut Opaque, Opaque, *const c_char);
    function_attribute = "cuFuncSetAttribute": fn(Opaque, c_int, c_int);
    launch = "cuLaunchKernel": fn(
        Opaque, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Opaque, *mut *mut c_void, *mut *mut c_void
    );
    error_name = "cuGetErrorName": fn(c_int, *mut *const c_char);
    error_string = "cuGetErrorString": fn(c_int, *mut *const c_char);
}

/// `cuLaunchKernelEx` came with 11.8; without it kernels do not begin early.
pub(super) type LaunchEx =
    unsafe extern "C" fn(*const super::context::LaunchConfig, Opaque, *mut *mut c_void, *mut *mut c_void) -> c_int;

fn missing(file: &str, symbol: &str) -> Failure {
    let text = format!(
        "the NVIDIA driver's library {file} has no function {symbol}: the driver is too old, one for CUDA {} or later is needed",
        version_words(LOWEST_VERSION)
    );
    Failure::new(StrataStatus::DriverTooOld, text)
}

fn version_words(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The open library, initialised.
#[derive(Debug)]
pub(crate) struct Api {
    pub(super) functions: Functions,
    pub(super) launch_ex: Option<LaunchEx>,
    version: c_int,
    _library: Library,
}

/// A card as the driver lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(super) device: c_int,
    pub(crate) name: String,
    /// `GPU-…`, as nvidia-smi says it.
    pub(crate) uid: String,
    pub(super) memory_total: u64,
    pub(super) major: c_int,
    pub(super) minor: c_int,
}

impl Listed {
    /// `sm_90`.
    pub(crate) fn arch(&self) -> String {
        format!("sm_{}{}", self.major, self.minor)
    }
}

impl Api {
    /// Opens the driver's library and initialises it.
    pub(crate) fn open(named: Option<&str>) -> Result<Api> {
        let (library, file) = Api::library(named)?;
        let functions = Functions::find(&library, &file)?;
        // SAFETY: the type is that of the documented function; absence is an answer.
        let launch_ex = unsafe { library.get::<LaunchEx>(b"cuLaunchKernelEx") }.ok().map(|symbol| *symbol);
        let mut api = Api { functions, launch_ex, version: 0, _library: library };
        // SAFETY: no argument but the flags, which must be 0.
        api.status("cuInit", unsafe { (api.functions.init)(0) }).map_err(|error| Self::no_start(&error))?;
        let mut version = 0;
        // SAFETY: the place for the number lives through the call.
        let status = unsafe { (api.functions.driver_version)(&raw mut version) };
        api.status("cuDriverGetVersion", status).map_err(|error| Self::no_start(&error))?;
        api.version = version;
        if version < LOWEST_VERSION {
            let text = format!(
                "the NVIDIA driver is for CUDA {}: too old, one for CUDA {} or later is needed",
                version_words(version),
                version_words(LOWEST_VERSION)
            );
            return Err(Failure::new(StrataStatus::DriverTooOld, text));
        }
        Ok(api)
    }

    fn library(named: Option<&str>) -> Result<(Library, String)> {
        let names: Vec<&str> = named.map_or_else(|| NAMES.to_vec(), |name| vec![name]);
        let mut why = String::new();
        for name in &names {
            // SAFETY: the system's driver, or what a test names: opening it runs its initialisers, which are its vendor's.
            match unsafe { Library::new(*name) } {
                Ok(library) => return Ok((library, (*name).to_owned())),
                Err(error) if why.is_empty() => why = strata_gpu::loader_words(&error),
                Err(_) => {}
            }
        }
        let text = format!("the NVIDIA driver is not installed: its library {} cannot be opened ({why})", names[0]);
        Err(Failure::new(StrataStatus::DriverMissing, text))
    }

    /// Why `cuInit` does not work, as far as its number tells.
    fn no_start(error: &DriverError) -> Failure {
        match error.code {
            100 => Failure::new(StrataStatus::NoDevice, format!("the NVIDIA driver finds no card: {error}")),
            3 | 999 | 802 | 803 | 804 => {
                let text = format!(
                    "the NVIDIA driver does not start (its kernel module and its library must be of one version): {error}"
                );
                Failure::new(StrataStatus::DriverMissing, text)
            }
            _ => Failure::new(StrataStatus::DriverMissing, format!("the NVIDIA driver does not start: {error}")),
        }
    }

    /// A call's status as a result.
    pub(super) fn status(&self, call: &'static str, code: c_int) -> DriverResult<()> {
        if code == 0 {
            return Ok(());
        }
        let cause = match code {
            2 => Cause::OutOfMemory,
            // Context destroyed, and all that CUDA calls sticky: the context answers nothing else any more.
            4 | 46 | 201 | 214 | 700 | 702 | 709 | 710 | 714..=719 | 721 => Cause::Lost,
            200 | 209 | 218 | 222 => Cause::BadImage,
            _ => Cause::Other,
        };
        Err(DriverError { call, code, text: self.words(code), cause })
    }

    fn words(&self, code: c_int) -> String {
        let text = |function: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text: *const c_char = std::ptr::null();
            // SAFETY: the place for the pointer lives through the call.
            let status = unsafe { function(code, &raw mut text) };
            if status != 0 || text.is_null() {
                return None;
            }
            // SAFETY: the driver returns a static, NUL-terminated text on success.
            Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        match (text(self.functions.error_name), text(self.functions.error_string)) {
            (Some(name), Some(sentence)) => format!("{name}: {sentence}"),
            (Some(name), None) => name,
            _ => "an error that this driver has no name for".to_owned(),
        }
    }

    fn listing(&self, call: &'static str, code: c_int) -> Result<()> {
        self.status(call, code)
            .map_err(|error| Failure::new(error.status(), format!("listing the NVIDIA cards: {error}")))
    }

    /// All cards, in the driver's order.
    pub(crate) fn listed(&self) -> Result<Vec<Listed>> {
        let mut n = 0;
        // SAFETY: the place for the number lives through the call.
        let status = unsafe { (self.functions.device_count)(&raw mut n) };
        self.listing("cuDeviceGetCount", status)?;
        if n <= 0 {
            return Err(Failure::new(StrataStatus::NoDevice, "the NVIDIA driver lists no card"));
        }
        (0..n).map(|ordinal| self.card(ordinal)).collect()
    }

    fn card(&self, ordinal: c_int) -> Result<Listed> {
        let mut device = 0;
        // SAFETY: the place for the device lives through the call.
        let status = unsafe { (self.functions.device_get)(&raw mut device, ordinal) };
        self.listing("cuDeviceGet", status)?;
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: the driver writes at most the 255 characters that it is told of, and a NUL.
        let status = unsafe { (self.functions.device_name)(name.as_mut_ptr(), 255, device) };
        self.listing("cuDeviceGetName", status)?;
        let bytes: Vec<u8> = name.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
        let mut uuid = [0_u8; 16];
        // SAFETY: the driver writes the 16 bytes of a CUuuid.
        let status = unsafe { (self.functions.device_uuid)(&raw mut uuid, device) };
        self.listing("cuDeviceGetUuid", status)?;
        let mut memory = 0;
        // SAFETY: the place for the number lives through the call.
        let status = unsafe { (self.functions.device_memory)(&raw mut memory, device) };
        self.listing("cuDeviceTotalMem_v2", status)?;
        Ok(Listed {
            device,
            name: String::from_utf8_lossy(&bytes).into_owned(),
            uid: uid(&uuid),
            memory_total: memory as u64,
            major: self.attribute(device, 75)?,
            minor: self.attribute(device, 76)?,
        })
    }

    pub(super) fn attribute(&self, device: c_int, which: c_int) -> Result<c_int> {
        let mut value = 0;
        // SAFETY: the place for the value lives through the call.
        let status = unsafe { (self.functions.device_attribute)(&raw mut value, which, device) };
        self.listing("cuDeviceGetAttribute", status)?;
        Ok(value)
    }
}

impl Runtime for Api {
    type Driver = CudaDriver;
    type Handle = Listed;

    const CARD: &'static str = "CUDA device";

    fn start(named: Option<&str>) -> Result<Api> {
        Api::open(named)
    }

    fn version_text(&self) -> String {
        format!("CUDA {}", version_words(self.version))
    }

    fn cards(&self) -> Result<Vec<(Listed, ListedCard)>> {
        let entry = |card: Listed| {
            let listed = ListedCard {
                name: card.name.clone(),
                arch: card.arch(),
                uid: card.uid.clone(),
                memory_total: card.memory_total,
            };
            (card, listed)
        };
        Ok(self.listed()?.into_iter().map(entry).collect())
    }

    /// Free and all memory, without keeping the card open.
    fn memory_of(&self, handle: &Listed, card: &ListedCard) -> Result<(u64, u64)> {
        let context = super::context::Context::retain(self, handle)?;
        let memory = context.memory(self);
        context.release(self);
        memory
            .map_err(|error| Failure::new(error.status(), format!("asking {} for its free memory: {error}", card.name)))
    }

    fn open(self: &Arc<Self>, handle: &Listed, _card: &ListedCard) -> Result<CudaDriver> {
        CudaDriver::open(self, handle)
    }
}

/// `GPU-c5b7f0a2-…`: a UUID as nvidia-smi says it.
fn uid(bytes: &[u8; 16]) -> String {
    let hex = |range: std::ops::Range<usize>| {
        bytes[range].iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    };
    format!("GPU-{}-{}-{}-{}-{}", hex(0..4), hex(4..6), hex(6..8), hex(8..10), hex(10..16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_and_versions_read_as_the_vendors_tools_say_them() {
        let bytes = std::array::from_fn(|i| i as u8);
        assert_eq!(uid(&bytes), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
        assert_eq!(version_words(11_020), "11.2");
        assert_eq!(version_words(13_000), "13.0");
    }

    #[test]
    fn a_library_that_is_not_there_is_a_missing_driver() {
        let failure = Api::open(Some("/no/such/libcuda.so.1")).unwrap_err();
        assert_eq!(failure.status, StrataStatus::DriverMissing);
        assert!(failure.text.contains("not installed") && failure.text.contains("No such file"), "{}", failure.text);
    }
}
