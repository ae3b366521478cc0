//! The functions, and what the runtime says about the machine before any card is opened.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::Arc;

use libloading::Library;
use strata_backend_abi::StrataStatus;
use strata_backend_sdk::{Failure, Result};
use strata_gpu::{Cause, DriverError, DriverResult, ListedCard, Runtime};

use super::card::Listed;
use super::context::HipDriver;
use super::library::{self, Opened};
use crate::machine;

/// ROCm 5.0; anything older is not tried.
const LOWEST_VERSION: c_int = 50_000_000;

/// Opaque handles and device addresses, which are pointers here.
pub(super) type Opaque = *mut c_void;

/// How functions are found: those that must be there, and groups that may be absent as a whole.
macro_rules! functions {
    ($(#[$doc:meta])* $name:ident, { $($field:ident = $symbol:literal: fn($($argument:ty),*);)* }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name { $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> c_int),* }

        impl $name {
            /// All of them, or the name of the first that is absent.
            fn find(library: &Library) -> std::result::Result<$name, &'static str> {
                Ok($name {
                    $($field: {
                        // SAFETY: the type is that of the runtime's documented function of this name.
                        let symbol = unsafe { library.get::<unsafe extern "C" fn($($argument),*) -> c_int>($symbol.as_bytes()) };
                        *symbol.map_err(|_| $symbol)?
                    }),*
                })
            }
        }
    };
}

functions! {
    /// What every runtime since ROCm 5 has. Devices are ordinals.
    Functions, {
    init = "hipInit": fn(c_uint);
    version = "hipRuntimeGetVersion": fn(*mut c_int);
    device_count = "hipGetDeviceCount": fn(*mut c_int);
    device_get = "hipDeviceGet": fn(*mut c_int, c_int);
    device_name = "hipDeviceGetName": fn(*mut c_char, c_int, c_int);
    device_pci = "hipDeviceGetPCIBusId": fn(*mut c_char, c_int, c_int);
    device_attribute = "hipDeviceGetAttribute": fn(*mut c_int, c_int, c_int);
    device_memory = "hipDeviceTotalMem": fn(*mut usize, c_int);
    set_device = "hipSetDevice": fn(c_int);
    memory_info = "hipMemGetInfo": fn(*mut usize, *mut usize);
    alloc = "hipMalloc": fn(*mut Opaque, usize);
    free = "hipFree": fn(Opaque);
    host_alloc = "hipHostMalloc": fn(*mut *mut c_void, usize, c_uint);
    host_free = "hipHostFree": fn(*mut c_void);
    host_pointer = "hipHostGetDevicePointer": fn(*mut Opaque, *mut c_void, c_uint);
    upload = "hipMemcpyHtoDAsync": fn(Opaque, *const c_void, usize, Opaque);
    download = "hipMemcpyDtoHAsync": fn(*mut c_void, Opaque, usize, Opaque);
    copy = "hipMemcpyDtoDAsync": fn(Opaque, Opaque, usize, Opaque);
    clear = "hipMemsetD8Async": fn(Opaque, u8, usize, Opaque);
    stream_create = "hipStreamCreateWithFlags": fn(*mut Opaque, c_uint);
    stream_destroy = "hipStreamDestroy": fn(Opaque);
    stream_synchronize = "hipStreamSynchronize": fn(Opaque);
    event_create = "hipEventCreateWithFlags": fn(*mut Opaque, c_uint);
    event_record = "hipEventRecord": fn(Opaque, Opaque);
    event_synchronize = "hipEventSynchronize": fn(Opaque);
    event_query = "hipEventQuery": fn(Opaque);
    event_destroy = "hipEventDestroy": fn(Opaque);
    module_load = "hipModuleLoadData": fn(*mut Opaque, *const c_void);
    module_function = "hipModuleGetFunction": fn(*mut Opaque, Opaque, *const c_char);
    launch = "hipModuleLaunchKernel": fn(
        Opaque, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Opaque, *mut *mut c_void, *mut *mut c_void
    );
    }
}

functions! {
    /// Recording work and replaying it.
    Graphs, {
    begin_capture = "hipStreamBeginCapture": fn(Opaque, c_int);
    end_capture = "hipStreamEndCapture": fn(Opaque, *mut Opaque);
    instantiate = "hipGraphInstantiateWithFlags": fn(*mut Opaque, Opaque, u64);
    destroy = "hipGraphDestroy": fn(Opaque);
    launch = "hipGraphLaunch": fn(Opaque, Opaque);
    exec_destroy = "hipGraphExecDestroy": fn(Opaque);
    }
}

/// A text for an error's number.
type ErrorText = unsafe extern "C" fn(c_int) -> *const c_char;
/// Fills in a `hipDeviceProp_t` of the runtime's own size.
pub(super) type Properties = unsafe extern "C" fn(*mut u8, c_int) -> c_int;

/// How a card's properties are asked for: the struct changed once and its new form has a new name.
#[derive(Debug, Clone, Copy)]
pub(super) struct PropertiesCall {
    pub(super) call: &'static str,
    pub(super) function: Properties,
    /// Where `gcnArchName` begins.
    pub(super) arch_at: usize,
}

/// Since ROCm 6, then the form of ROCm 5.
const PROPERTIES: [(&str, usize); 2] = [("hipGetDevicePropertiesR0600", 1160), ("hipGetDeviceProperties", 396)];

/// The open runtime, initialised.
#[derive(Debug)]
pub struct HipRuntime {
    pub(super) functions: Functions,
    pub(super) graphs: Option<Graphs>,
    pub(super) properties: PropertiesCall,
    error_name: Option<ErrorText>,
    error_string: Option<ErrorText>,
    version: c_int,
    path: String,
    _library: Library,
}

impl HipRuntime {
    /// Opens the runtime's library and initialises it.
    fn start_below(named: Option<&str>, root: &Path) -> Result<HipRuntime> {
        let Opened { library, path } = library::open(named)?;
        let functions = Functions::find(&library).map_err(|symbol| missing(&path, symbol))?;
        let properties = PROPERTIES.iter().find_map(|(call, arch_at)| {
            // SAFETY: the type is that of the documented functions; absence is an answer.
            let function = unsafe { library.get::<Properties>(call.as_bytes()) }.ok()?;
            Some(PropertiesCall { call, function: *function, arch_at: *arch_at })
        });
        let properties = properties.ok_or_else(|| missing(&path, PROPERTIES[1].0))?;
        let text = |symbol: &[u8]| {
            // SAFETY: the type is that of the documented functions; absence is an answer.
            unsafe { library.get::<ErrorText>(symbol) }.ok().map(|symbol| *symbol)
        };
        let mut runtime = HipRuntime {
            graphs: Graphs::find(&library).ok(),
            error_name: text(b"hipGetErrorName"),
            error_string: text(b"hipGetErrorString"),
            functions,
            properties,
            version: 0,
            path,
            _library: library,
        };
        // SAFETY: no argument but the flags, which must be 0.
        let status = unsafe { (runtime.functions.init)(0) };
        runtime.status("hipInit", status).map_err(|error| runtime.no_start(&error, root))?;
        let mut version = 0;
        // SAFETY: the place for the number lives through the call.
        let status = unsafe { (runtime.functions.version)(&raw mut version) };
        runtime.status("hipRuntimeGetVersion", status).map_err(|error| runtime.no_start(&error, root))?;
        runtime.version = version;
        if version < LOWEST_VERSION {
            let text = format!(
                "the HIP runtime {} is HIP {}: too old, ROCm 5 or later is needed",
                runtime.path,
                version_words(version)
            );
            return Err(Failure::new(StrataStatus::DriverTooOld, text));
        }
        Ok(runtime)
    }

    /// Why the runtime does not start. It knows one number for "no card": what the machine shows tells
    /// whether there is none, whether its driver is absent, or whether this user may not open it.
    fn no_start(&self, error: &DriverError, root: &Path) -> Failure {
        if is_no_device(error.code) {
            return machine::why_no_card(root, &format!("{}: {error}", self.path));
        }
        let text = format!("the HIP runtime {} does not start: {error}", self.path);
        Failure::new(StrataStatus::DriverMissing, text)
    }

    /// A call's status as a result.
    pub(super) fn status(&self, call: &'static str, code: c_int) -> DriverResult<()> {
        if code == 0 {
            return Ok(());
        }
        let cause = match code {
            2 => Cause::OutOfMemory,
            // Deinitialised, memory error not corrected, illegal address, timeout, assert, launch failure:
            // the runtime answers nothing else on this card any more.
            4 | 214 | 700 | 702 | 709 | 710 | 718 | 719 => Cause::Lost,
            // Function or image for another processor, not readable, no image at all.
            98 | 200 | 209 | 218 | 303 => Cause::BadImage,
            _ => Cause::Other,
        };
        Err(DriverError { call, code, text: self.words(code), cause })
    }

    fn words(&self, code: c_int) -> String {
        let text = |function: Option<ErrorText>| {
            // SAFETY: any number may be asked for.
            let text = unsafe { function?(code) };
            if text.is_null() {
                return None;
            }
            // SAFETY: the runtime returns a static, NUL-terminated text.
            Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        match (text(self.error_name), text(self.error_string)) {
            (Some(name), Some(sentence)) if name != sentence => format!("{name}: {sentence}"),
            (Some(text), _) | (None, Some(text)) => text,
            (None, None) => "an error that this runtime has no name for".to_owned(),
        }
    }

    /// An error of a call about cards that are not open yet.
    pub(super) fn listing(&self, call: &'static str, code: c_int) -> Result<()> {
        self.status(call, code).map_err(|error| Failure::new(error.status(), format!("listing the AMD cards: {error}")))
    }

    fn cards_below(&self, root: &Path) -> Result<Vec<Listed>> {
        let mut n = 0;
        // SAFETY: the place for the number lives through the call.
        let status = unsafe { (self.functions.device_count)(&raw mut n) };
        match self.status("hipGetDeviceCount", status) {
            Err(error) if is_no_device(error.code) => {
                return Err(machine::why_no_card(root, &format!("{}: {error}", self.path)));
            }
            Err(_) => self.listing("hipGetDeviceCount", status)?,
            Ok(()) => {}
        }
        if n <= 0 {
            return Err(machine::why_no_card(root, &format!("{}: it lists none", self.path)));
        }
        (0..n).map(|ordinal| Listed::ask(self, ordinal)).collect()
    }
}

/// Both numbers mean it, from any call: `hipInit` answers 101 where `hipGetDeviceCount` answers 100.
fn is_no_device(code: c_int) -> bool {
    code == 100 || code == 101
}

fn missing(path: &str, symbol: &str) -> Failure {
    let text = format!("the HIP runtime {path} has no function {symbol}: ROCm 5 or later is needed");
    Failure::new(StrataStatus::DriverTooOld, text)
}

/// `5.2.21153` of 50221153.
fn version_words(version: c_int) -> String {
    format!("{}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000)
}

impl Runtime for HipRuntime {
    type Driver = HipDriver;
    type Handle = Listed;

    const CARD: &'static str = "HIP device";

    fn start(named: Option<&str>) -> Result<HipRuntime> {
        HipRuntime::start_below(named, Path::new("/"))
    }

    fn version_text(&self) -> String {
        format!("HIP {} ({})", version_words(self.version), self.path)
    }

    fn cards(&self) -> Result<Vec<(Listed, ListedCard)>> {
        let cards = self.cards_below(Path::new("/"))?;
        Ok(cards.into_iter().map(|card| (card.clone(), card.entry())).collect())
    }

    fn memory_of(&self, handle: &Listed, card: &ListedCard) -> Result<(u64, u64)> {
        handle
            .memory(self)
            .map_err(|error| Failure::new(error.status(), format!("asking {} for its free memory: {error}", card.name)))
    }

    fn open(self: &Arc<Self>, handle: &Listed, _card: &ListedCard) -> Result<HipDriver> {
        HipDriver::open(self, handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_rocm_says_them() {
        assert_eq!(version_words(50_221_153), "5.2.21153");
        assert_eq!(version_words(60_443_482), "6.4.43482");
    }

    #[test]
    fn both_numbers_mean_no_card() {
        assert!(is_no_device(100) && is_no_device(101) && !is_no_device(1));
    }
}
