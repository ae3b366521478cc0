//! An open card: one stream, and the calls that `strata-gpu` makes.

use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::Arc;

use strata_backend_sdk::{Failure, Result};
use strata_gpu::{Card, Cause, Driver, DriverError, DriverResult, LaunchCall, Pinned};

use super::api::{Functions, Graphs, HipRuntime, Opaque};
use super::card::Listed;

/// `hipStreamNonBlocking`.
const STREAM_ALONE: c_uint = 1;
/// `hipStreamCaptureModeThreadLocal`: other threads may go on with other cards.
const CAPTURE_OF_THREAD: c_int = 1;
/// `hipEventDisableTiming`.
const EVENT_PLAIN: c_uint = 2;
/// `hipErrorNotReady`.
const NOT_READY: c_int = 600;
/// `hipHostMallocPortable | hipHostMallocMapped`.
const HOST_MAPPED: c_uint = 3;

/// The open card and its stream.
#[derive(Debug)]
struct Shared {
    runtime: Arc<HipRuntime>,
    listed: Listed,
    stream: Opaque,
}

// SAFETY: streams may be used from any thread; the SDK lets one call at a time through.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn enter(&self) -> DriverResult<()> {
        self.listed.enter(&self.runtime)
    }

    /// Makes the card current, calls, looks at the status.
    fn call(&self, name: &'static str, call: impl FnOnce(&Functions) -> c_int) -> DriverResult<()> {
        self.enter()?;
        self.runtime.status(name, call(&self.runtime.functions))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the stream was made by `HipDriver::open` and is not used after this.
        let _ = self.call("hipStreamDestroy", |functions| unsafe { (functions.stream_destroy)(self.stream) });
    }
}

/// The driver of one card.
#[derive(Debug)]
pub struct HipDriver {
    shared: Arc<Shared>,
    card: Card,
}

impl HipDriver {
    /// Opens a card.
    pub(super) fn open(runtime: &Arc<HipRuntime>, listed: &Listed) -> Result<HipDriver> {
        let name = format!("{} ({})", listed.name, listed.pci);
        let failed = |error: DriverError| Failure::new(error.status(), format!("opening {name}: {error}"));
        listed.enter(runtime).map_err(failed)?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: the place for the stream lives through the call.
        let status = unsafe { (runtime.functions.stream_create)(&raw mut stream, STREAM_ALONE) };
        runtime.status("hipStreamCreateWithFlags", status).map_err(failed)?;
        let card = Card {
            arch: listed.arch.clone(),
            n_units: listed.units,
            unit: "compute units",
            most_shared: listed.most_shared,
            early_launch: false,
            can_record: runtime.graphs.is_some(),
            name,
        };
        let shared = Shared { runtime: Arc::clone(runtime), listed: listed.clone(), stream };
        Ok(HipDriver { shared: Arc::new(shared), card })
    }

    fn call(&self, name: &'static str, call: impl FnOnce(&Functions) -> c_int) -> DriverResult<()> {
        self.shared.call(name, call)
    }

    /// A call of the group that may be absent. `strata-gpu` asks [`Card::can_record`] first.
    fn graph_call(&self, name: &'static str, call: impl FnOnce(&Graphs) -> c_int) -> DriverResult<()> {
        self.shared.enter()?;
        if let Some(graphs) = &self.shared.runtime.graphs {
            return self.shared.runtime.status(name, call(graphs));
        }
        let text = "this HIP runtime has no graphs".to_owned();
        Err(DriverError { call: name, code: 801, text, cause: Cause::Other })
    }
}

/// Pinned memory.
#[derive(Debug)]
pub struct PinnedMemory {
    shared: Arc<Shared>,
    pointer: *mut c_void,
    address: u64,
    bytes: usize,
}

// SAFETY: memory of the host that only this value names.
unsafe impl Send for PinnedMemory {}
// SAFETY: reads and writes go through calls that the SDK lets through one at a time.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// The place of a range that must lie inside.
    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "a range past pinned memory");
        // SAFETY: the range was just checked.
        unsafe { self.pointer.cast::<u8>().add(offset) }
    }
}

impl Pinned for PinnedMemory {
    fn address(&self) -> u64 {
        self.address
    }

    fn pointer(&self) -> *mut u8 {
        self.pointer.cast()
    }

    fn write(&self, offset: usize, data: &[u8]) {
        let to = self.at(offset, data.len());
        // SAFETY: `at` gives a place with room for the data, and nobody else uses it now.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        let from = self.at(offset, out.len());
        // SAFETY: `at` gives a place with that many bytes, and the card does not write to it now.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `pin` and freed once.
        let _ = self.shared.call("hipHostFree", |functions| unsafe { (functions.host_free)(self.pointer) });
    }
}

fn opaque(number: u64) -> Opaque {
    std::ptr::with_exposed_provenance_mut(number as usize)
}

fn number(handle: Opaque) -> u64 {
    handle.expose_provenance() as u64
}

impl Driver for HipDriver {
    type Pinned = PinnedMemory;

    fn card(&self) -> &Card {
        &self.card
    }

    fn memory(&self) -> DriverResult<(u64, u64)> {
        self.shared.listed.memory(&self.shared.runtime)
    }

    fn alloc(&self, bytes: u64) -> DriverResult<u64> {
        let mut address = std::ptr::null_mut();
        // SAFETY: the place for the address lives through the call.
        self.call("hipMalloc", |functions| unsafe { (functions.alloc)(&raw mut address, bytes as usize) })?;
        Ok(number(address))
    }

    fn free(&self, address: u64) {
        // SAFETY: an address of `alloc`, freed once by its block.
        let _ = self.call("hipFree", |functions| unsafe { (functions.free)(opaque(address)) });
    }

    fn pin(&self, bytes: usize) -> DriverResult<PinnedMemory> {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the place for the pointer lives through the call.
        self.call("hipHostMalloc", |functions| unsafe {
            (functions.host_alloc)(&raw mut pointer, bytes, HOST_MAPPED)
        })?;
        let mut memory = PinnedMemory { shared: Arc::clone(&self.shared), pointer, address: 0, bytes };
        let mut address = std::ptr::null_mut();
        // SAFETY: memory that was taken mapped; the place for the address lives through the call.
        self.call("hipHostGetDevicePointer", |functions| unsafe {
            (functions.host_pointer)(&raw mut address, pointer, 0)
        })?;
        memory.address = number(address);
        Ok(memory)
    }

    fn upload(&self, to: u64, from: &PinnedMemory, offset: usize, bytes: usize) -> DriverResult<()> {
        let source = from.at(offset, bytes);
        let stream = self.shared.stream;
        // SAFETY: both ranges are inside allocations that live until the stream is waited for.
        self.call("hipMemcpyHtoDAsync", |functions| unsafe {
            (functions.upload)(opaque(to), source.cast(), bytes, stream)
        })
    }

    fn download(&self, to: &PinnedMemory, offset: usize, from: u64, bytes: usize) -> DriverResult<()> {
        let target = to.at(offset, bytes);
        let stream = self.shared.stream;
        // SAFETY: both ranges are inside allocations that live until the stream is waited for.
        self.call("hipMemcpyDtoHAsync", |functions| unsafe {
            (functions.download)(target.cast(), opaque(from), bytes, stream)
        })
    }

    fn copy(&self, to: u64, from: u64, bytes: u64) -> DriverResult<()> {
        let stream = self.shared.stream;
        // SAFETY: ranges of buffers that the SDK has checked.
        self.call("hipMemcpyDtoDAsync", |functions| unsafe {
            (functions.copy)(opaque(to), opaque(from), bytes as usize, stream)
        })
    }

    fn clear(&self, to: u64, bytes: u64) -> DriverResult<()> {
        let stream = self.shared.stream;
        // SAFETY: a range of memory that this device has taken.
        self.call("hipMemsetD8Async", |functions| unsafe { (functions.clear)(opaque(to), 0, bytes as usize, stream) })
    }

    fn synchronize(&self) -> DriverResult<()> {
        // SAFETY: the stream lives as long as `shared`.
        self.call("hipStreamSynchronize", |functions| unsafe { (functions.stream_synchronize)(self.shared.stream) })
    }

    fn event(&self) -> DriverResult<u64> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the place for the event lives through the call.
        self.call("hipEventCreateWithFlags", |functions| unsafe {
            (functions.event_create)(&raw mut event, EVENT_PLAIN)
        })?;
        Ok(number(event))
    }

    fn record(&self, event: u64) -> DriverResult<()> {
        let stream = self.shared.stream;
        // SAFETY: an event of `event`, not yet freed.
        self.call("hipEventRecord", |functions| unsafe { (functions.event_record)(opaque(event), stream) })
    }

    fn wait(&self, event: u64) -> DriverResult<()> {
        // SAFETY: an event of `event`, not yet freed.
        self.call("hipEventSynchronize", |functions| unsafe { (functions.event_synchronize)(opaque(event)) })
    }

    fn reached(&self, event: u64) -> DriverResult<bool> {
        // SAFETY: an event of `event`, not yet freed.
        match self.call("hipEventQuery", |functions| unsafe { (functions.event_query)(opaque(event)) }) {
            Ok(()) => Ok(true),
            Err(error) if error.code == NOT_READY => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn free_event(&self, event: u64) {
        // SAFETY: an event of `event`, freed once.
        let _ = self.call("hipEventDestroy", |functions| unsafe { (functions.event_destroy)(opaque(event)) });
    }

    fn load(&self, image: &[u8]) -> DriverResult<u64> {
        let mut module = std::ptr::null_mut();
        // SAFETY: a whole code object, whose ELF header says where it ends.
        self.call("hipModuleLoadData", |functions| unsafe {
            (functions.module_load)(&raw mut module, image.as_ptr().cast())
        })?;
        Ok(number(module))
    }

    fn function(&self, module: u64, name: &str) -> DriverResult<u64> {
        let name = CString::new(name).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        // SAFETY: a module of `load`; name and place live through the call.
        self.call("hipModuleGetFunction", |functions| unsafe {
            (functions.module_function)(&raw mut function, opaque(module), name.as_ptr())
        })?;
        Ok(number(function))
    }

    /// AMD's cards give a block all that a unit has without being asked.
    fn allow_shared(&self, _function: u64, bytes: u32) -> DriverResult<()> {
        if bytes <= self.card.most_shared {
            return Ok(());
        }
        let text = format!("a kernel wants {bytes} bytes of shared memory, a block has {}", self.card.most_shared);
        Err(DriverError { call: "hipModuleLaunchKernel", code: 1, text, cause: Cause::Other })
    }

    fn launch(&self, call: &LaunchCall<'_>) -> DriverResult<()> {
        let mut params: [*mut c_void; 1] = [call.params.as_ptr().cast_mut().cast()];
        let params = params.as_mut_ptr();
        let ([x, y, z], function, stream) = (call.grid, opaque(call.function), self.shared.stream);
        let (block, shared, none) = (call.block, call.shared, std::ptr::null_mut());
        // SAFETY: the parameters live through the call, which copies them; the plan made them for this very kernel.
        self.call("hipModuleLaunchKernel", |functions| unsafe {
            (functions.launch)(function, x, y, z, block, 1, 1, shared, stream, params, none)
        })
    }

    fn begin_capture(&self) -> DriverResult<()> {
        let stream = self.shared.stream;
        // SAFETY: the stream lives as long as `shared`.
        self.graph_call("hipStreamBeginCapture", |graphs| unsafe { (graphs.begin_capture)(stream, CAPTURE_OF_THREAD) })
    }

    fn end_capture(&self) -> DriverResult<u64> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: the place for the graph lives through the call.
        self.graph_call("hipStreamEndCapture", |graphs| unsafe {
            (graphs.end_capture)(self.shared.stream, &raw mut graph)
        })?;
        let mut replayable = std::ptr::null_mut();
        // SAFETY: the graph was just made; the place for the executable one lives through the call.
        let made = self.graph_call("hipGraphInstantiateWithFlags", |graphs| unsafe {
            (graphs.instantiate)(&raw mut replayable, graph, 0)
        });
        // SAFETY: an executable graph does not need the graph that it was made of.
        let _ = self.graph_call("hipGraphDestroy", |graphs| unsafe { (graphs.destroy)(graph) });
        made?;
        Ok(number(replayable))
    }

    fn replay(&self, graph: u64) -> DriverResult<()> {
        let stream = self.shared.stream;
        // SAFETY: a graph of `end_capture`, not yet freed.
        self.graph_call("hipGraphLaunch", |graphs| unsafe { (graphs.launch)(opaque(graph), stream) })
    }

    fn free_graph(&self, graph: u64) {
        // SAFETY: a graph of `end_capture`, freed once.
        let _ = self.graph_call("hipGraphExecDestroy", |graphs| unsafe { (graphs.exec_destroy)(opaque(graph)) });
    }
}
