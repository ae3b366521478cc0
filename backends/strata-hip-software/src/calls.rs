//! The runtime's functions, with the signatures and answers of the real one.
//!
//! Pointers that a caller passes are trusted but for null: this is a test's library.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::code_object::{self, CodeObject};
use crate::host::LaunchOp;
use crate::memory::Block;
use crate::state::{Module, State, answer};
use crate::stream::{Capture, Op, Stream};
use crate::{Answer, code};

/// Markers of the other way to pass arguments: one buffer.
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;
const BUFFER_END: usize = 3;
/// Shared memory of a block, bytes.
const MOST_SHARED: u32 = 65_536;

/// Writes a result for the caller.
fn put<T>(out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: not null; the caller's place for a result of this type.
    unsafe { out.write(value) };
    Ok(())
}

fn handle(number: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(number as usize)
}

/// Exports functions whose bodies answer with `Answer`, each under its own name.
macro_rules! calls {
    ($(fn $name:ident($($argument:ident: $type:ty),*) |$state:ident| $body:block)*) => {
        $(
            #[doc = "See the runtime's own documentation."]
            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $name($($argument: $type),*) -> c_int {
                answer(stringify!($name), |$state: &mut State| $body)
            }
        )*
    };
}

calls! {
    fn hipInit(flags: c_uint) |state| {
        if flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        // As the real one: another number than the one that counting gives.
        if state.settings.devices == 0 { Err(code::INVALID_DEVICE) } else { Ok(()) }
    }
    fn hipRuntimeGetVersion(out: *mut c_int) |state| { put(out, state.settings.version) }
    fn hipDriverGetVersion(out: *mut c_int) |state| { put(out, state.settings.version) }
    fn hipGetDeviceCount(out: *mut c_int) |state| {
        put(out, state.settings.devices.cast_signed())?;
        if state.settings.devices == 0 { Err(code::NO_DEVICE) } else { Ok(()) }
    }
    fn hipDeviceGet(out: *mut c_int, ordinal: c_int) |state| { put(out, state.device(ordinal)?) }
    fn hipDeviceGetName(out: *mut c_char, length: c_int, device: c_int) |state| {
        state.device(device)?;
        put_text(out, length, &device_name(state))
    }
    fn hipDeviceGetPCIBusId(out: *mut c_char, length: c_int, device: c_int) |state| {
        state.device(device)?;
        put_text(out, length, &format!("0000:{:02X}:00.0", device + 3))
    }
    fn hipDeviceGetAttribute(out: *mut c_int, which: c_int, device: c_int) |state| {
        state.device(device)?;
        match which {
            63 => put(out, 60),
            74 => put(out, MOST_SHARED.cast_signed()),
            87 => put(out, if state.settings.target.starts_with("gfx9") { 64 } else { 32 }),
            _ => Err(code::INVALID_VALUE),
        }
    }
    fn hipDeviceTotalMem(out: *mut usize, device: c_int) |state| {
        state.device(device)?;
        put(out, state.settings.memory as usize)
    }
    fn hipGetDevicePropertiesR0600(out: *mut u8, device: c_int) |state| { properties(state, out, device, 1472, 1160) }
    fn hipGetDeviceProperties(out: *mut u8, device: c_int) |state| { properties(state, out, device, 792, 396) }
    fn hipSetDevice(device: c_int) |state| { state.set_current(device) }
    fn hipMemGetInfo(free: *mut usize, total: *mut usize) |state| {
        let all = state.settings.memory;
        put(free, all.saturating_sub(state.used(State::current())) as usize)?;
        put(total, all as usize)
    }
    fn hipMalloc(out: *mut *mut c_void, bytes: usize) |state| {
        state.not_while_recording()?;
        let device = state.device(State::current())?;
        if bytes as u64 > state.settings.memory.saturating_sub(state.used(device)) {
            return Err(code::OUT_OF_MEMORY);
        }
        let block = Block::new(bytes, device)?;
        put(out, handle(block.address))?;
        state.blocks.insert(block.address, block);
        Ok(())
    }
    fn hipFree(memory: *mut c_void) |state| {
        let device = state.blocks.get(&(memory.addr() as u64)).ok_or(code::INVALID_VALUE)?.device;
        // The real one waits as well. A card that is lost has nothing to wait for.
        let _ = state.drain_device(device);
        state.blocks.remove(&(memory.addr() as u64));
        Ok(())
    }
    fn hipHostMalloc(out: *mut *mut c_void, bytes: usize, _flags: c_uint) |state| {
        state.not_while_recording()?;
        let block = Block::new(bytes, State::current())?;
        put(out, handle(block.address))?;
        state.pinned.insert(block.address, block);
        Ok(())
    }
    fn hipHostFree(memory: *mut c_void) |state| {
        let device = state.pinned.get(&(memory.addr() as u64)).ok_or(code::INVALID_VALUE)?.device;
        let _ = state.drain_device(device);
        state.pinned.remove(&(memory.addr() as u64));
        Ok(())
    }
    fn hipHostGetDevicePointer(out: *mut *mut c_void, memory: *mut c_void, _flags: c_uint) |state| {
        state.on_card(memory.addr() as u64, 0)?;
        put(out, memory)
    }
    fn hipMemcpyHtoDAsync(to: *mut c_void, from: *const c_void, bytes: usize, stream: *mut c_void) |state| {
        state.on_card(to.addr() as u64, bytes as u64)?;
        state.push(stream.addr() as u64, Op::Copy(to.addr() as u64, from.addr() as u64, bytes as u64))
    }
    fn hipMemcpyDtoHAsync(to: *mut c_void, from: *mut c_void, bytes: usize, stream: *mut c_void) |state| {
        state.on_card(from.addr() as u64, bytes as u64)?;
        state.push(stream.addr() as u64, Op::Copy(to.addr() as u64, from.addr() as u64, bytes as u64))
    }
    fn hipMemcpyDtoDAsync(to: *mut c_void, from: *mut c_void, bytes: usize, stream: *mut c_void) |state| {
        state.on_card(to.addr() as u64, bytes as u64)?;
        state.on_card(from.addr() as u64, bytes as u64)?;
        state.push(stream.addr() as u64, Op::Copy(to.addr() as u64, from.addr() as u64, bytes as u64))
    }
    fn hipMemsetD8Async(to: *mut c_void, value: u8, bytes: usize, stream: *mut c_void) |state| {
        state.on_card(to.addr() as u64, bytes as u64)?;
        state.push(stream.addr() as u64, Op::Fill(to.addr() as u64, value, bytes as u64))
    }
    fn hipStreamCreateWithFlags(out: *mut *mut c_void, _flags: c_uint) |state| {
        let (id, device) = (state.handle(), state.device(State::current())?);
        state.streams.insert(id, Stream::new(device));
        put(out, handle(id))
    }
    fn hipStreamDestroy(stream: *mut c_void) |state| {
        let id = stream.addr() as u64;
        state.stream(id)?;
        let done = state.drain(id, None);
        state.streams.remove(&id);
        done
    }
    fn hipStreamSynchronize(stream: *mut c_void) |state| {
        state.not_while_recording()?;
        state.drain(stream.addr() as u64, None)
    }
    fn hipStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) |state| {
        state.stream(stream.addr() as u64)?;
        // What comes later must find the event's work done: doing it now is the earliest that is allowed.
        wait_for(state, event)
    }
    fn hipEventCreateWithFlags(out: *mut *mut c_void, _flags: c_uint) |state| {
        let id = state.handle();
        state.events.insert(id, None);
        put(out, handle(id))
    }
    fn hipEventRecord(event: *mut c_void, stream: *mut c_void) |state| {
        let (event, stream) = (event.addr() as u64, stream.addr() as u64);
        if !state.events.contains_key(&event) {
            return Err(code::INVALID_HANDLE);
        }
        state.push(stream, Op::Signal(event))?;
        state.events.insert(event, Some(stream));
        Ok(())
    }
    fn hipEventSynchronize(event: *mut c_void) |state| {
        state.not_while_recording()?;
        wait_for(state, event)
    }
    fn hipEventQuery(event: *mut c_void) |state| {
        // As with waits: the work is done when somebody asks, which is as late as is allowed.
        wait_for(state, event)
    }
    fn hipEventDestroy(event: *mut c_void) |state| {
        state.events.remove(&(event.addr() as u64)).map(drop).ok_or(code::INVALID_HANDLE)
    }
    fn hipModuleLoadData(out: *mut *mut c_void, image: *const c_void) |state| {
        state.not_while_recording()?;
        let object = read_image(image).ok_or(code::INVALID_IMAGE)?;
        if !object.fits(&state.settings.target) {
            return Err(code::NO_BINARY_FOR_GPU);
        }
        let (id, device) = (state.handle(), state.device(State::current())?);
        state.modules.insert(id, Module { object, device });
        put(out, handle(id))
    }
    fn hipModuleUnload(module: *mut c_void) |state| {
        state.modules.remove(&(module.addr() as u64)).map(drop).ok_or(code::INVALID_HANDLE)
    }
    fn hipModuleGetFunction(out: *mut *mut c_void, module: *mut c_void, name: *const c_char) |state| {
        if name.is_null() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller's NUL-terminated text.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let module = state.modules.get(&(module.addr() as u64)).ok_or(code::INVALID_HANDLE)?;
        let kernel = module.object.kernels.iter().find(|kernel| kernel.name == name).ok_or(code::NOT_FOUND)?;
        let function = (module.device, kernel.clone());
        let id = state.handle();
        state.functions.insert(id, function);
        put(out, handle(id))
    }
    fn hipModuleLaunchKernel(
        function: *mut c_void, x: c_uint, y: c_uint, z: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: *mut c_void, params: *mut *mut c_void, extra: *mut *mut c_void
    ) |state| {
        let op = launch(state, function, [x, y, z], [bx, by, bz], shared, params, extra)?;
        let recording = state.stream(stream.addr() as u64)?.capture.is_some();
        state.count(if recording { "recorded" } else { "launches" });
        state.push(stream.addr() as u64, Op::Launch(op))
    }
    fn hipStreamBeginCapture(stream: *mut c_void, _mode: c_int) |state| {
        let stream = state.stream(stream.addr() as u64)?;
        if stream.capture.is_some() {
            return Err(code::INVALID_VALUE);
        }
        stream.capture = Some(Capture::default());
        Ok(())
    }
    fn hipStreamEndCapture(stream: *mut c_void, out: *mut *mut c_void) |state| {
        let capture = state.stream(stream.addr() as u64)?.capture.take().ok_or(code::INVALID_VALUE)?;
        put(out, std::ptr::null_mut())?;
        if capture.invalid {
            return Err(code::CAPTURE_INVALIDATED);
        }
        let id = state.handle();
        state.graphs.insert(id, capture.ops);
        put(out, handle(id))
    }
    fn hipGraphInstantiateWithFlags(out: *mut *mut c_void, graph: *mut c_void, _flags: u64) |state| {
        let ops = state.graphs.get(&(graph.addr() as u64)).cloned().ok_or(code::INVALID_VALUE)?;
        let id = state.handle();
        state.graphs.insert(id, ops);
        put(out, handle(id))
    }
    fn hipGraphDestroy(graph: *mut c_void) |state| {
        state.graphs.remove(&(graph.addr() as u64)).map(drop).ok_or(code::INVALID_VALUE)
    }
    fn hipGraphExecDestroy(graph: *mut c_void) |state| {
        state.graphs.remove(&(graph.addr() as u64)).map(drop).ok_or(code::INVALID_VALUE)
    }
    fn hipGraphLaunch(graph: *mut c_void, stream: *mut c_void) |state| {
        let ops = state.graphs.get(&(graph.addr() as u64)).cloned().ok_or(code::INVALID_VALUE)?;
        state.count("replays");
        ops.into_iter().try_for_each(|op| state.push(stream.addr() as u64, op))
    }
}

/// The name of an error's number; unknown ones too have one.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipGetErrorName(error: c_int) -> *const c_char {
    let name = match error {
        code::INVALID_VALUE => c"hipErrorInvalidValue",
        code::OUT_OF_MEMORY => c"hipErrorOutOfMemory",
        code::NO_DEVICE => c"hipErrorNoDevice",
        code::INVALID_DEVICE => c"hipErrorInvalidDevice",
        code::INVALID_IMAGE => c"hipErrorInvalidImage",
        code::NO_BINARY_FOR_GPU => c"hipErrorNoBinaryForGpu",
        code::INVALID_HANDLE => c"hipErrorInvalidHandle",
        code::NOT_FOUND => c"hipErrorNotFound",
        code::LAUNCH_FAILURE => c"hipErrorLaunchFailure",
        code::CAPTURE_UNSUPPORTED => c"hipErrorStreamCaptureUnsupported",
        code::CAPTURE_INVALIDATED => c"hipErrorStreamCaptureInvalidated",
        _ => c"hipErrorUnknown",
    };
    name.as_ptr()
}

/// A sentence about it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipGetErrorString(_error: c_int) -> *const c_char {
    c"said by the software device".as_ptr()
}

fn device_name(state: &State) -> String {
    let processor = state.settings.target.split(':').next().unwrap_or_default();
    format!("Software {processor}")
}

fn put_text(out: *mut c_char, length: c_int, text: &str) -> Answer {
    let room = usize::try_from(length).map_err(|_| code::INVALID_VALUE)?;
    if out.is_null() || room <= text.len() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: there is room for the text and a NUL.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out, text.len()) };
    // SAFETY: one place behind the text, inside the room.
    let end = unsafe { out.add(text.len()) };
    // SAFETY: inside the room.
    unsafe { end.write(0) };
    Ok(())
}

/// A properties struct of the size of one of the two forms, with name and architecture in it.
fn properties(state: &State, out: *mut u8, device: c_int, bytes: usize, arch_at: usize) -> Answer {
    state.device(device)?;
    if out.is_null() {
        return Err(code::INVALID_VALUE);
    }
    let mut all = vec![0_u8; bytes];
    let name = device_name(state);
    all[..name.len()].copy_from_slice(name.as_bytes());
    let arch = state.settings.target.as_bytes();
    all[arch_at..arch_at + arch.len()].copy_from_slice(arch);
    // SAFETY: the caller has room for the struct of this function's name.
    unsafe { std::ptr::copy_nonoverlapping(all.as_ptr(), out, bytes) };
    Ok(())
}

fn wait_for(state: &mut State, event: *mut c_void) -> Answer {
    let event = event.addr() as u64;
    match state.events.get(&event) {
        None => Err(code::INVALID_HANDLE),
        Some(None) => Ok(()),
        Some(Some(stream)) => {
            let stream = *stream;
            state.drain(stream, Some(event))
        }
    }
}

/// The code object at an address: its header tells how long it is.
fn read_image(image: *const c_void) -> Option<CodeObject> {
    if image.is_null() {
        return None;
    }
    // SAFETY: not null; whoever loads a module passes at least an ELF header.
    let header = unsafe { image.cast::<[u8; 64]>().read_unaligned() };
    let length = code_object::length(&header)?;
    // SAFETY: the file's own header says that so many bytes are there.
    let bytes = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), length) };
    CodeObject::read(bytes)
}

/// Checks a launch as the runtime does and copies its arguments.
fn launch(
    state: &mut State,
    function: *mut c_void,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<LaunchOp, i32> {
    let (device, kernel) = state.functions.get(&(function.addr() as u64)).ok_or(code::INVALID_HANDLE)?;
    if *device != State::current() {
        return Err(code::INVALID_HANDLE);
    }
    let items = block.iter().try_fold(1_u32, |all, n| all.checked_mul(*n)).unwrap_or(0);
    let too_many =
        grid.iter().zip(block).any(|(blocks, items)| u64::from(*blocks) * u64::from(items) > u64::from(u32::MAX));
    if grid.contains(&0) || items == 0 || items > kernel.most_items || too_many {
        return Err(code::INVALID_VALUE);
    }
    if kernel.shared.saturating_add(shared) > MOST_SHARED {
        return Err(code::INVALID_VALUE);
    }
    // Kernels here take one struct and blocks of one dimension.
    let [(0, size)] = kernel.arguments[..] else { return Err(code::INVALID_VALUE) };
    let from = arguments(size, params, extra)?;
    let mut bytes = vec![0_u8; size];
    // SAFETY: the caller's argument, of the size that the kernel's notes tell.
    unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), size) };
    let (kernel, wave) = (kernel.name.clone(), kernel.wave);
    Ok(LaunchOp { kernel, wave, grid, block: items, shared, params: bytes })
}

/// Where the one argument lies.
fn arguments(size: usize, params: *mut *mut c_void, extra: *mut *mut c_void) -> Result<*const u8, i32> {
    if !params.is_null() {
        // SAFETY: not null, and the kernel has an argument, so the caller's array has one entry.
        let first = unsafe { params.read() };
        return if first.is_null() { Err(code::INVALID_VALUE) } else { Ok(first.cast_const().cast()) };
    }
    if extra.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: the caller's array of five: two markers with a value each, and the end.
    let words = unsafe { extra.cast::<[*mut c_void; 5]>().read() };
    let markers = [words[0].addr(), words[2].addr(), words[4].addr()];
    if markers != [BUFFER_POINTER, BUFFER_SIZE, BUFFER_END] || words[1].is_null() || words[3].is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: the caller's number of bytes.
    let n = unsafe { words[3].cast::<usize>().read() };
    if n < size { Err(code::INVALID_VALUE) } else { Ok(words[1].cast_const().cast()) }
}
