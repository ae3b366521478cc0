//! What lives on an open plugin: devices, buffers, programs and events. Each owns its handle.

use super::{MAX_TEXT, Table, TextRoom, USUAL_TEXT};
use crate::{HostMemory, PluginError};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strata_backend_abi::{
    SizedStruct, StrataBufferDesc, StrataBufferKind, StrataDeviceOptions, StrataHandle, StrataMemoryInfo, StrataOp,
    StrataProgramDesc, StrataProgramInfo, StrataRunArgs, StrataStatus, StrataStr, StrataTensor,
};

/// An open device.
pub(crate) struct RawDevice {
    table: Arc<Table>,
    handle: StrataHandle,
    lock: Mutex<()>,
    /// Work was given to the device and not waited for since.
    busy: AtomicBool,
    /// It answered `DeviceLost`, or `Internal`, after which nobody knows its state: only closing is left.
    lost: AtomicBool,
    /// Imported memory of buffers that were dropped after that; the device may look at it until it is closed.
    orphans: Mutex<Vec<Arc<dyn HostMemory>>>,
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
        Ok(RawDevice {
            table: Arc::clone(table),
            handle,
            lock: Mutex::new(()),
            busy: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            orphans: Mutex::default(),
        })
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// The device's turn, for a call of this name.
    fn turn(&self, call: &'static str) -> Result<MutexGuard<'_, ()>, PluginError> {
        // Nothing of ours panics in between, so a poisoned lock is as good as any.
        let turn = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.alive(call).map(|()| turn)
    }

    fn alive(&self, call: &'static str) -> Result<(), PluginError> {
        if !self.lost.load(Ordering::Acquire) {
            return Ok(());
        }
        let text = "an earlier call on this device failed in a way that leaves only closing it".to_owned();
        Err(PluginError::Call { plugin: self.table.plugin.clone(), call, status: StrataStatus::DeviceLost, text })
    }

    /// Turns a status of a call on this device into a result; on the thread of the call.
    fn check(&self, call: &'static str, status: i32) -> Result<(), PluginError> {
        if status == StrataStatus::DeviceLost as i32 || status == StrataStatus::Internal as i32 {
            self.lost.store(true, Ordering::Release);
        }
        self.table.check(call, status)
    }

    /// The device's turn for freeing something, its work waited for; `None` when the device is lost, and
    /// closing it frees all.
    fn last_turn(&self) -> Option<MutexGuard<'_, ()>> {
        let turn = self.turn("synchronize").ok()?;
        if self.busy.load(Ordering::Relaxed) {
            // What failed was told, or is told by the next call; here it only matters that the work ended.
            let _ = self.wait(&turn);
        }
        (!self.lost.load(Ordering::Acquire)).then_some(turn)
    }

    /// Keeps memory that a lost device may still look at.
    fn orphan(&self, memory: Option<Arc<dyn HostMemory>>) {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner).extend(memory);
    }

    fn wait(&self, _turn: &MutexGuard<'_, ()>) -> Result<(), PluginError> {
        let synchronize = self.table.entry(self.table.calls.synchronize, "synchronize")?;
        // SAFETY: the handle is alive, and the caller has the device's turn.
        let status = unsafe { synchronize(self.handle) };
        self.busy.store(false, Ordering::Relaxed);
        self.check("synchronize", status)
    }

    pub(crate) fn memory(&self) -> Result<(u64, u64, u64), PluginError> {
        let device_memory = self.table.entry(self.table.calls.device_memory, "device_memory")?;
        let mut info =
            StrataMemoryInfo { struct_size: StrataMemoryInfo::SIZE, reserved: 0, total: 0, free: 0, used_here: 0 };
        let _turn = self.turn("device_memory")?;
        // SAFETY: the handle is alive (`self` owns it) and `info` lives through the call.
        let status = unsafe { device_memory(self.handle, &raw mut info) };
        self.check("device_memory", status)?;
        Ok((info.total, info.free, info.used_here))
    }

    pub(crate) fn report(&self) -> Result<String, PluginError> {
        let Some(device_report) = self.table.calls.device_report else { return Ok(String::new()) };
        let mut capacity = USUAL_TEXT;
        loop {
            let mut room = TextRoom::new(capacity);
            let mut out = room.out();
            let status = {
                let _turn = self.turn("device_report")?;
                // SAFETY: the handle is alive and `out` names `capacity` bytes that live through the call.
                unsafe { device_report(self.handle, &raw mut out) }
            };
            self.check("device_report", status)?;
            if out.len <= capacity as u64 || capacity == MAX_TEXT {
                return Ok(room.take(out));
            }
            capacity = MAX_TEXT;
        }
    }

    pub(crate) fn synchronize(&self) -> Result<(), PluginError> {
        let turn = self.turn("synchronize")?;
        self.wait(&turn)
    }

    /// `None` when the op is supported, else why not.
    pub(crate) fn op_supported(&self, desc: &Desc<'_>, index: u32) -> Result<Option<String>, PluginError> {
        let op_supported = self.table.entry(self.table.calls.op_supported, "op_supported")?;
        let desc = desc.raw(&[]);
        let mut room = TextRoom::new(USUAL_TEXT);
        let mut out = room.out();
        let _turn = self.turn("op_supported")?;
        // SAFETY: the handle is alive; the description's arrays are borrowed by `Desc` and live through the
        // call, as does the room for the reason.
        let status = unsafe { op_supported(self.handle, &raw const desc, index, &raw mut out) };
        if status == StrataStatus::Unsupported as i32 {
            let reason = room.take(out);
            return Ok(Some(if reason.is_empty() { self.table.last_error() } else { reason }));
        }
        self.check("op_supported", status).map(|()| None)
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
        let _turn = device.turn("buffer_alloc")?;
        // SAFETY: the device is alive; description, label and `handle` live through the call.
        let status = unsafe { buffer_alloc(device.handle, &raw const desc, &raw mut handle) };
        device.check("buffer_alloc", status)?;
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
        let turn = device.turn("buffer_import")?;
        // SAFETY: the device is alive. `data` is readable for `bytes` for as long as `memory` is shared: nobody can
        // hold it mutably while the buffer keeps its `Arc`, and the buffer is freed before that `Arc` is.
        let status = unsafe { buffer_import(device.handle, data.cast(), bytes, &raw mut handle) };
        if status == StrataStatus::Unsupported as i32 {
            return Ok(None);
        }
        device.check("buffer_import", status)?;
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
        let _turn = self.device.turn("buffer_write")?;
        // SAFETY: the buffer is alive and `data` is readable for its length.
        let status = unsafe { buffer_write(self.handle, offset, data.as_ptr().cast(), data.len() as u64) };
        self.device.check("buffer_write", status)
    }

    /// The caller has checked that the range lies within the buffer.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), PluginError> {
        let table = &self.device.table;
        let buffer_read = table.entry(table.calls.buffer_read, "buffer_read")?;
        let _turn = self.device.turn("buffer_read")?;
        // SAFETY: the buffer is alive and `out` is writable for its length.
        let status = unsafe { buffer_read(self.handle, offset, out.as_mut_ptr().cast(), out.len() as u64) };
        self.device.check("buffer_read", status)
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
        let _turn = self.device.turn("buffer_copy")?;
        self.device.busy.store(true, Ordering::Relaxed);
        // SAFETY: both buffers are alive and belong to the device whose turn this is.
        let status = unsafe { buffer_copy(target.handle, target_offset, self.handle, source_offset, bytes) };
        self.device.check("buffer_copy", status)
    }

    /// Waits for the device's work, then hands out the buffer's bytes while the device is held.
    pub(crate) fn with_mapped<R>(&self, use_bytes: impl FnOnce(&mut [u8]) -> R) -> Result<R, PluginError> {
        let table = &self.device.table;
        let buffer_map = table.entry(table.calls.buffer_map, "buffer_map")?;
        let turn = self.device.turn("buffer_map")?;
        self.device.wait(&turn)?;
        let mut address: *mut c_void = ptr::null_mut();
        // SAFETY: the buffer is alive and `address` lives through the call.
        let status = unsafe { buffer_map(self.handle, &raw mut address) };
        self.device.check("buffer_map", status)?;
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
        let Some(_turn) = self.device.last_turn() else {
            self.device.orphan(self.memory.take());
            return;
        };
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
        let _turn = device.turn("program_compile")?;
        // SAFETY: device and buffers are alive; the description's arrays live through the call.
        let status = unsafe { program_compile(device.handle, &raw const desc, &raw mut handle) };
        device.check("program_compile", status)?;
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
        let _turn = self.device.turn("program_info")?;
        // SAFETY: the program is alive and `info` lives through the call.
        let status = unsafe { program_info(self.handle, &raw mut info) };
        self.device.check("program_info", status)?;
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
        let _turn = self.device.turn("program_run")?;
        self.device.busy.store(true, Ordering::Relaxed);
        // SAFETY: program, its buffers and the events are alive; the arrays live through the call.
        let status = unsafe { program_run(self.handle, &raw const args) };
        self.device.check("program_run", status)
    }
}

impl Drop for RawProgram {
    fn drop(&mut self) {
        let Some(program_free) = self.device.table.calls.program_free else { return };
        let Some(_turn) = self.device.last_turn() else { return };
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
        let _turn = device.turn("event_create")?;
        // SAFETY: the device is alive and `handle` lives through the call.
        let status = unsafe { event_create(device.handle, &raw mut handle) };
        device.check("event_create", status)?;
        let handle = table.handle("event_create", handle)?;
        Ok(Some(RawEvent { device: Arc::clone(device), handle }))
    }

    pub(crate) fn device(&self) -> &Arc<RawDevice> {
        &self.device
    }

    pub(crate) fn is_done(&self) -> Result<bool, PluginError> {
        let table = &self.device.table;
        let event_query = table.entry(table.calls.event_query, "event_query")?;
        self.device.alive("event_query")?;
        // SAFETY: the event is alive; the ABI allows this call beside any other.
        let status = unsafe { event_query(self.handle) };
        if status == StrataStatus::NotReady as i32 {
            return Ok(false);
        }
        self.device.check("event_query", status).map(|()| true)
    }

    pub(crate) fn wait(&self) -> Result<(), PluginError> {
        let table = &self.device.table;
        let event_wait = table.entry(table.calls.event_wait, "event_wait")?;
        self.device.alive("event_wait")?;
        // SAFETY: the event is alive; the ABI allows this call beside any other, so that one thread can
        // wait while another gives the device more work.
        let status = unsafe { event_wait(self.handle) };
        self.device.check("event_wait", status)
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        let Some(event_free) = self.device.table.calls.event_free else { return };
        let Some(_turn) = self.device.last_turn() else { return };
        // SAFETY: a run borrows its events only for the call, so this is the last use of the handle.
        let _ = unsafe { event_free(self.handle) };
    }
}
