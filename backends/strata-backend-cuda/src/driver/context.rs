//! An open card: its context, one stream, and the calls that `strata-gpu` makes.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::Arc;

use strata_backend_sdk::{Failure, Result};
use strata_gpu::{Card, Driver, DriverResult, LaunchCall, Pinned};

use super::api::{Api, Listed, Opaque, Pointer};

/// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
const MULTIPROCESSORS: c_int = 16;
/// `CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN`.
const MOST_SHARED: c_int = 97;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const FUNCTION_SHARED: c_int = 8;
/// `CU_STREAM_NON_BLOCKING`.
const STREAM_ALONE: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads may go on with other cards.
const CAPTURE_OF_THREAD: c_int = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const EVENT_PLAIN: c_uint = 2;
/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: c_int = 600;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
const HOST_MAPPED: c_uint = 3;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
const EARLY_LAUNCH: c_uint = 6;

/// `CUlaunchAttribute`: a number, padding, and a value of 64 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct LaunchAttribute {
    id: c_uint,
    pad: [u8; 4],
    value: [u32; 16],
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: Opaque,
    attributes: *const LaunchAttribute,
    n_attributes: c_uint,
}

/// A card's primary context, which other libraries of the process share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    device: c_int,
    context: Opaque,
}

// SAFETY: the driver's contexts may be made current on any thread.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks inside.
unsafe impl Sync for Context {}

impl Context {
    pub(super) fn retain(api: &Api, card: &Listed) -> Result<Context> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the place for the context lives through the call.
        let status = unsafe { (api.functions.context_retain)(&raw mut context, card.device) };
        api.status("cuDevicePrimaryCtxRetain", status)
            .map_err(|error| Failure::new(error.status(), format!("opening {} ({}): {error}", card.name, card.uid)))?;
        Ok(Context { device: card.device, context })
    }

    pub(super) fn release(self, api: &Api) {
        // SAFETY: retained once by `retain`. There is nothing to do about a failure.
        let _ = unsafe { (api.functions.context_release)(self.device) };
    }

    fn enter(self, api: &Api) -> DriverResult<()> {
        // SAFETY: a context that was retained and not yet released.
        api.status("cuCtxSetCurrent", unsafe { (api.functions.context_set)(self.context) })
    }

    pub(super) fn memory(self, api: &Api) -> DriverResult<(u64, u64)> {
        self.enter(api)?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the places for the numbers live through the call.
        api.status("cuMemGetInfo_v2", unsafe { (api.functions.memory_info)(&raw mut free, &raw mut total) })?;
        Ok((free as u64, total as u64))
    }
}

/// The open card and its stream.
#[derive(Debug)]
pub(crate) struct Shared {
    api: Arc<Api>,
    context: Context,
    stream: Opaque,
}

// SAFETY: streams may be used from any thread; the SDK lets one call at a time through.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn enter(&self) -> DriverResult<()> {
        self.context.enter(&self.api)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.enter().is_ok() {
            // SAFETY: the stream was made by `CudaDriver::open` and is not used after this.
            let _ = unsafe { (self.api.functions.stream_destroy)(self.stream) };
        }
        self.context.release(&self.api);
    }
}

/// The driver of one card.
#[derive(Debug)]
pub(crate) struct CudaDriver {
    shared: Arc<Shared>,
    card: Card,
}

impl CudaDriver {
    /// Opens a card.
    pub(crate) fn open(api: &Arc<Api>, listed: &Listed) -> Result<CudaDriver> {
        let context = Context::retain(api, listed)?;
        let name = format!("{} ({})", listed.name, listed.uid);
        let failed = |error| {
            context.release(api);
            let error: strata_gpu::DriverError = error;
            Failure::new(error.status(), format!("opening {name}: {error}"))
        };
        context.enter(api).map_err(failed)?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the place for the stream lives through the call.
        let status = unsafe { (api.functions.stream_create)(&raw mut stream, STREAM_ALONE) };
        api.status("cuStreamCreate", status).map_err(failed)?;
        let shared = Arc::new(Shared { api: Arc::clone(api), context, stream });
        let card = Card {
            arch: listed.arch(),
            n_units: api.attribute(listed.device, MULTIPROCESSORS)?.cast_unsigned(),
            most_shared: api.attribute(listed.device, MOST_SHARED)?.cast_unsigned(),
            unit: "multiprocessors",
            can_record: true,
            early_launch: listed.major >= 9 && api.launch_ex.is_some(),
            name,
        };
        Ok(CudaDriver { shared, card })
    }

    fn functions(&self) -> &super::api::Functions {
        &self.shared.api.functions
    }

    /// Makes the card current, calls, looks at the status.
    fn call(&self, name: &'static str, call: impl FnOnce() -> c_int) -> DriverResult<()> {
        self.shared.enter()?;
        self.shared.api.status(name, call())
    }
}

/// Pinned memory.
#[derive(Debug)]
pub(crate) struct PinnedMemory {
    shared: Arc<Shared>,
    pointer: *mut c_void,
    address: Pointer,
    bytes: usize,
}

// SAFETY: memory of the host that only this value names.
unsafe impl Send for PinnedMemory {}
// SAFETY: reads and writes go through calls that the SDK lets through one at a time.
unsafe impl Sync for PinnedMemory {}

impl Pinned for PinnedMemory {
    fn address(&self) -> u64 {
        self.address
    }

    fn pointer(&self) -> *mut u8 {
        self.pointer.cast()
    }

    fn write(&self, offset: usize, data: &[u8]) {
        assert!(offset.checked_add(data.len()).is_some_and(|end| end <= self.bytes), "a write past pinned memory");
        // SAFETY: the range was just checked.
        let to = unsafe { self.pointer.cast::<u8>().add(offset) };
        // SAFETY: the range is inside the allocation, and nobody else uses it now.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        assert!(offset.checked_add(out.len()).is_some_and(|end| end <= self.bytes), "a read past pinned memory");
        // SAFETY: the range was just checked.
        let from = unsafe { self.pointer.cast::<u8>().add(offset) };
        // SAFETY: the range is inside the allocation, and the card does not write to it now.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.shared.enter().is_ok() {
            // SAFETY: allocated by `pin` and freed once.
            let _ = unsafe { (self.shared.api.functions.host_free)(self.pointer) };
        }
    }
}

fn opaque(number: u64) -> Opaque {
    std::ptr::with_exposed_provenance_mut(number as usize)
}

fn number(handle: Opaque) -> u64 {
    handle.expose_provenance() as u64
}

impl Driver for CudaDriver {
    type Pinned = PinnedMemory;

    fn card(&self) -> &Card {
        &self.card
    }

    fn memory(&self) -> DriverResult<(u64, u64)> {
        self.shared.context.memory(&self.shared.api)
    }

    fn alloc(&self, bytes: u64) -> DriverResult<u64> {
        let mut address = 0;
        // SAFETY: the place for the address lives through the call.
        self.call("cuMemAlloc_v2", || unsafe { (self.functions().alloc)(&raw mut address, bytes as usize) })?;
        Ok(address)
    }

    fn free(&self, address: u64) {
        // SAFETY: an address of `alloc`, freed once by its block.
        let _ = self.call("cuMemFree_v2", || unsafe { (self.functions().free)(address) });
    }

    fn pin(&self, bytes: usize) -> DriverResult<PinnedMemory> {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the place for the pointer lives through the call.
        let take = || unsafe { (self.functions().host_alloc)(&raw mut pointer, bytes, HOST_MAPPED) };
        self.call("cuMemHostAlloc", take)?;
        let mut memory = PinnedMemory { shared: Arc::clone(&self.shared), pointer, address: 0, bytes };
        // SAFETY: memory that was taken mapped; the place for the address lives through the call.
        let map = || unsafe { (self.functions().host_pointer)(&raw mut memory.address, pointer, 0) };
        self.call("cuMemHostGetDevicePointer_v2", map)?;
        Ok(memory)
    }

    fn upload(&self, to: u64, from: &PinnedMemory, offset: usize, bytes: usize) -> DriverResult<()> {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= from.bytes), "a copy past pinned memory");
        // SAFETY: the range was just checked.
        let source = unsafe { from.pointer.cast::<u8>().add(offset) };
        let stream = self.shared.stream;
        // SAFETY: both ranges are inside allocations that live until the stream is waited for.
        self.call("cuMemcpyHtoDAsync_v2", || unsafe { (self.functions().upload)(to, source.cast(), bytes, stream) })
    }

    fn download(&self, to: &PinnedMemory, offset: usize, from: u64, bytes: usize) -> DriverResult<()> {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= to.bytes), "a copy past pinned memory");
        // SAFETY: the range was just checked.
        let target = unsafe { to.pointer.cast::<u8>().add(offset) };
        let stream = self.shared.stream;
        // SAFETY: both ranges are inside allocations that live until the stream is waited for.
        self.call("cuMemcpyDtoHAsync_v2", || unsafe { (self.functions().download)(target.cast(), from, bytes, stream) })
    }

    fn copy(&self, to: u64, from: u64, bytes: u64) -> DriverResult<()> {
        let stream = self.shared.stream;
        // SAFETY: ranges of buffers that the SDK has checked.
        self.call("cuMemcpyDtoDAsync_v2", || unsafe { (self.functions().copy)(to, from, bytes as usize, stream) })
    }

    fn clear(&self, to: u64, bytes: u64) -> DriverResult<()> {
        let stream = self.shared.stream;
        // SAFETY: a range of memory that this device has taken.
        self.call("cuMemsetD8Async", || unsafe { (self.functions().clear)(to, 0, bytes as usize, stream) })
    }

    fn synchronize(&self) -> DriverResult<()> {
        // SAFETY: the stream lives as long as `shared`.
        self.call("cuStreamSynchronize", || unsafe { (self.functions().stream_synchronize)(self.shared.stream) })
    }

    fn event(&self) -> DriverResult<u64> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the place for the event lives through the call.
        self.call("cuEventCreate", || unsafe { (self.functions().event_create)(&raw mut event, EVENT_PLAIN) })?;
        Ok(number(event))
    }

    fn record(&self, event: u64) -> DriverResult<()> {
        let stream = self.shared.stream;
        // SAFETY: an event of `event`, not yet freed.
        self.call("cuEventRecord", || unsafe { (self.functions().event_record)(opaque(event), stream) })
    }

    fn wait(&self, event: u64) -> DriverResult<()> {
        // SAFETY: an event of `event`, not yet freed.
        self.call("cuEventSynchronize", || unsafe { (self.functions().event_synchronize)(opaque(event)) })
    }

    fn reached(&self, event: u64) -> DriverResult<bool> {
        // SAFETY: an event of `event`, not yet freed.
        match self.call("cuEventQuery", || unsafe { (self.functions().event_query)(opaque(event)) }) {
            Ok(()) => Ok(true),
            Err(error) if error.code == NOT_READY => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn free_event(&self, event: u64) {
        // SAFETY: an event of `event`, freed once.
        let _ = self.call("cuEventDestroy_v2", || unsafe { (self.functions().event_destroy)(opaque(event)) });
    }

    fn load(&self, image: &[u8]) -> DriverResult<u64> {
        // PTX is a text that must end with a NUL; machine code does not mind one.
        let mut bytes = image.to_vec();
        bytes.push(0);
        let mut module = std::ptr::null_mut();
        // SAFETY: the image lives through the call and ends with a NUL.
        self.call("cuModuleLoadData", || unsafe {
            (self.functions().module_load)(&raw mut module, bytes.as_ptr().cast())
        })?;
        Ok(number(module))
    }

    fn function(&self, module: u64, name: &str) -> DriverResult<u64> {
        let name = CString::new(name).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        let find =
            // SAFETY: a module of `load`; name and place live through the call.
            || unsafe { (self.functions().module_function)(&raw mut function, opaque(module), name.as_ptr()) };
        self.call("cuModuleGetFunction", find)?;
        Ok(number(function))
    }

    fn allow_shared(&self, function: u64, bytes: u32) -> DriverResult<()> {
        // SAFETY: a function of `function`.
        let set =
            || unsafe { (self.functions().function_attribute)(opaque(function), FUNCTION_SHARED, bytes as c_int) };
        self.call("cuFuncSetAttribute", set)
    }

    fn launch(&self, call: &LaunchCall<'_>) -> DriverResult<()> {
        let mut params: [*mut c_void; 1] = [call.params.as_ptr().cast_mut().cast()];
        let params = params.as_mut_ptr();
        let ([x, y, z], function, stream) = (call.grid, opaque(call.function), self.shared.stream);
        let none = std::ptr::null_mut();
        if let (true, Some(launch_ex)) = (call.early, self.shared.api.launch_ex) {
            let mut attribute = LaunchAttribute { id: EARLY_LAUNCH, pad: [0; 4], value: [0; 16] };
            attribute.value[0] = 1;
            let config = LaunchConfig {
                grid: call.grid,
                block: [call.block, 1, 1],
                shared: call.shared,
                stream,
                attributes: &raw const attribute,
                n_attributes: 1,
            };
            // SAFETY: configuration, attribute and parameters live through the call, which copies them; the plan
            // made the parameters for this very kernel.
            return self.call("cuLaunchKernelEx", || unsafe { launch_ex(&raw const config, function, params, none) });
        }
        let launch = self.functions().launch;
        let (block, shared) = (call.block, call.shared);
        // SAFETY: the parameters live through the call, which copies them; the plan made them for this very kernel.
        self.call("cuLaunchKernel", || unsafe { launch(function, x, y, z, block, 1, 1, shared, stream, params, none) })
    }

    fn begin_capture(&self) -> DriverResult<()> {
        let stream = self.shared.stream;
        // SAFETY: the stream lives as long as `shared`.
        let begin = || unsafe { (self.functions().begin_capture)(stream, CAPTURE_OF_THREAD) };
        self.call("cuStreamBeginCapture_v2", begin)
    }

    fn end_capture(&self) -> DriverResult<u64> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the place for the graph lives through the call.
        let end = || unsafe { (self.functions().end_capture)(self.shared.stream, &raw mut graph) };
        self.call("cuStreamEndCapture", end)?;
        let mut replayable = std::ptr::null_mut();
        // SAFETY: the graph was just made; the place for the executable one lives through the call.
        let make = || unsafe { (self.functions().graph_instantiate)(&raw mut replayable, graph, 0) };
        let made = self.call("cuGraphInstantiateWithFlags", make);
        // SAFETY: an executable graph does not need the graph that it was made of.
        let _ = self.call("cuGraphDestroy", || unsafe { (self.functions().graph_destroy)(graph) });
        made?;
        Ok(number(replayable))
    }

    fn replay(&self, graph: u64) -> DriverResult<()> {
        let stream = self.shared.stream;
        // SAFETY: a graph of `end_capture`, not yet freed.
        self.call("cuGraphLaunch", || unsafe { (self.functions().graph_launch)(opaque(graph), stream) })
    }

    fn free_graph(&self, graph: u64) {
        // SAFETY: a graph of `end_capture`, freed once.
        let _ = self.call("cuGraphExecDestroy", || unsafe { (self.functions().graph_exec_destroy)(opaque(graph)) });
    }
}
