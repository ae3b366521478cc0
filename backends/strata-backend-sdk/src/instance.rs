//! What lies between the table and the plugin: the state of a loaded plugin and every call in safe
//! terms (handles and slices in, values out). The C side of each call is in `exports`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use strata_backend_abi::{StrataBackend, StrataBufferKind, StrataHandle, StrataStatus};

use crate::guard::caught;
use crate::handles::{Numbers, Table};
use crate::{Backend, Device, DeviceInfo, DeviceOptions, Failure, ForeignMemory, Host, MemoryInfo, ProgramInfo};
use crate::{ProgramView, Result};

/// An open device. A panic inside a call leaves it out of order.
pub(crate) struct DeviceSlot<D> {
    instance: u64,
    device: Mutex<D>,
    /// Text of the panic after which the device takes no more calls.
    broken: OnceLock<String>,
}

impl<D: Device> DeviceSlot<D> {
    /// Calls the device. The panic is caught under the lock, so the lock is never poisoned by us.
    fn call<T>(&self, call: impl FnOnce(&mut D) -> Result<T>) -> Result<T> {
        let mut device = self.lock();
        if let Some(text) = self.broken.get() {
            let text = format!("the device is out of order since an earlier call failed: {text}");
            return Err(Failure::new(StrataStatus::DeviceLost, text));
        }
        match caught(|| call(&mut device)) {
            Ok(result) => result,
            Err(panic) => {
                let _ = self.broken.set(panic.text.clone());
                Err(panic)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, D> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct BufferSlot<D: Device> {
    device: Arc<DeviceSlot<D>>,
    buffer: Arc<D::Buffer>,
    bytes: u64,
    kind: StrataBufferKind,
    imported: bool,
}

impl<D: Device> BufferSlot<D> {
    fn check_range(&self, what: &str, offset: u64, bytes: u64) -> Result<()> {
        if offset.checked_add(bytes).is_some_and(|end| end <= self.bytes) {
            return Ok(());
        }
        let size = self.bytes;
        Err(Failure::host_bug(format_args!("{what} of {bytes} bytes at {offset} in a buffer of {size} bytes")))
    }

    fn check_writable(&self, what: &str) -> Result<()> {
        if self.imported {
            return Err(Failure::host_bug(format_args!("{what} into imported memory, which is for reading only")));
        }
        Ok(())
    }
}

pub(crate) struct ProgramSlot<D: Device> {
    device: Arc<DeviceSlot<D>>,
    /// Keeps the buffers alive that the program was compiled over, whatever the plugin keeps.
    buffers: Vec<Arc<D::Buffer>>,
    scalar_max: Vec<i64>,
    program: Mutex<D::Program>,
}

pub(crate) struct EventSlot<D: Device> {
    device: Arc<DeviceSlot<D>>,
    event: D::Event,
}

/// State of a plugin in this process, behind the table. Made by [`export_backend!`](crate::export_backend).
pub struct Exports<B: Backend> {
    backend: OnceLock<B>,
    starting: Mutex<()>,
    /// Number of the newest entry call; devices opened from then on carry it.
    instance: AtomicU64,
    tables: Mutex<Vec<&'static StrataBackend>>,
    texts: Mutex<Vec<&'static str>>,
    listed: Mutex<Option<Vec<DeviceInfo>>>,
    numbers: Numbers,
    devices: Table<DeviceSlot<B::Device>>,
    buffers: Table<BufferSlot<B::Device>>,
    programs: Table<ProgramSlot<B::Device>>,
    events: Table<EventSlot<B::Device>>,
}

impl<B: Backend> core::fmt::Debug for Exports<B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Exports").field("name", &B::NAME).finish_non_exhaustive()
    }
}

impl<B: Backend> Default for Exports<B> {
    fn default() -> Self {
        Exports::new()
    }
}

impl<B: Backend> Exports<B> {
    /// A plugin that is not started.
    pub const fn new() -> Exports<B> {
        Exports {
            backend: OnceLock::new(),
            starting: Mutex::new(()),
            instance: AtomicU64::new(0),
            tables: Mutex::new(Vec::new()),
            texts: Mutex::new(Vec::new()),
            listed: Mutex::new(None),
            numbers: Numbers::new(),
            devices: Table::new("device"),
            buffers: Table::new("buffer"),
            programs: Table::new("program"),
            events: Table::new("event"),
        }
    }

    /// Starts the backend unless an earlier entry call did. A start that failed is tried again by
    /// the next entry call.
    pub(crate) fn start(&self, instance: u64, host: Host) -> Result<()> {
        let _one_at_a_time = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.backend.get().is_none() {
            let backend = B::start(host)?;
            // Cannot be taken: only this function sets it, under the lock.
            let _ = self.backend.set(backend);
        }
        self.instance.store(instance, Ordering::Release);
        Ok(())
    }

    /// The table for an ABI version; one per version and process, kept for good.
    pub(crate) fn table(&self, abi: u32, make: impl FnOnce() -> StrataBackend) -> &'static StrataBackend {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = tables.iter().find(|table| table.abi == abi) {
            return table;
        }
        let table: &'static StrataBackend = Box::leak(Box::new(make()));
        tables.push(table);
        table
    }

    /// A text that lives as long as the plugin. Each distinct text is kept once, so memory grows
    /// with what the machine has, not with how often it is asked.
    pub(crate) fn keep_text(&self, text: &str) -> &'static str {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = texts.iter().find(|kept| **kept == text) {
            return kept;
        }
        let kept: &'static str = Box::leak(Box::from(text));
        texts.push(kept);
        kept
    }

    fn backend(&self) -> Result<&B> {
        self.backend.get().ok_or_else(|| Failure::host_bug("a call before the entry said Ok"))
    }

    pub(crate) fn device_count(&self) -> Result<u32> {
        let found = self.backend()?.devices()?;
        let count = u32::try_from(found.len()).map_err(|_| Failure::internal("more devices than 32 bits can count"))?;
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        Ok(count)
    }

    pub(crate) fn device_info(&self, index: u32) -> Result<DeviceInfo> {
        let backend = self.backend()?;
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let list = match listed.take() {
            Some(list) => list,
            None => backend.devices()?,
        };
        let list = listed.insert(list);
        let count = list.len();
        let found = list.get(index as usize).cloned();
        found.ok_or_else(|| Failure::new(StrataStatus::NoDevice, format!("there is no device {index}, only {count}")))
    }

    pub(crate) fn device_open(&self, index: u32, options: &DeviceOptions) -> Result<StrataHandle> {
        let device = self.backend()?.open(index, options)?;
        let instance = self.instance.load(Ordering::Acquire);
        let slot = DeviceSlot { instance, device: Mutex::new(device), broken: OnceLock::new() };
        Ok(self.devices.insert(&self.numbers, instance, Arc::new(slot)))
    }

    /// Frees the device and everything on it: programs before the buffers they use. Goes on when a
    /// destructor panics and reports the first that did.
    pub(crate) fn device_close(&self, handle: StrataHandle) -> Result<()> {
        let device = self.devices.remove(&self.numbers, handle)?;
        let mut outcome = Ok(());
        for program in self.programs.remove_where(|slot| Arc::ptr_eq(&slot.device, &device)) {
            outcome = outcome.and(caught(|| drop(program)));
        }
        for event in self.events.remove_where(|slot| Arc::ptr_eq(&slot.device, &device)) {
            outcome = outcome.and(caught(|| drop(event)));
        }
        for buffer in self.buffers.remove_where(|slot| Arc::ptr_eq(&slot.device, &device)) {
            outcome = outcome.and(caught(|| drop(buffer)));
        }
        outcome.and(caught(|| drop(device)))
    }

    pub(crate) fn device_memory(&self, device: StrataHandle) -> Result<MemoryInfo> {
        self.devices.get(&self.numbers, device)?.call(|device| device.memory())
    }

    pub(crate) fn device_report(&self, device: StrataHandle) -> Result<String> {
        self.devices.get(&self.numbers, device)?.call(|device| Ok(device.report()))
    }

    pub(crate) fn synchronize(&self, device: StrataHandle) -> Result<()> {
        self.devices.get(&self.numbers, device)?.call(Device::synchronize)
    }

    pub(crate) fn op_supported(&self, device: StrataHandle, program: &ProgramView<'_>, op: u32) -> Result<()> {
        let slot = self.devices.get(&self.numbers, device)?;
        let n_ops = program.ops.len();
        if op as usize >= n_ops {
            return Err(Failure::host_bug(format_args!("asked for op {op} of a program of {n_ops}")));
        }
        slot.call(|device| device.op_supported(program, op as usize))
    }

    pub(crate) fn buffer_alloc(
        &self,
        device: StrataHandle,
        kind: u32,
        bytes: u64,
        label: &str,
    ) -> Result<StrataHandle> {
        let device = self.devices.get(&self.numbers, device)?;
        let kind = match kind {
            0 => StrataBufferKind::Device,
            1 => StrataBufferKind::HostVisible,
            other => return Err(Failure::host_bug(format_args!("{other} is no buffer kind of this ABI"))),
        };
        let buffer = device.call(|device| device.buffer_alloc(kind, bytes, label))?;
        Ok(self.keep_buffer(BufferSlot { device, buffer: Arc::new(buffer), bytes, kind, imported: false }))
    }

    pub(crate) fn buffer_import(&self, device: StrataHandle, memory: ForeignMemory) -> Result<StrataHandle> {
        let device = self.devices.get(&self.numbers, device)?;
        let (bytes, kind) = (memory.len() as u64, StrataBufferKind::Device);
        let buffer = device.call(|device| device.buffer_import(memory))?;
        Ok(self.keep_buffer(BufferSlot { device, buffer: Arc::new(buffer), bytes, kind, imported: true }))
    }

    fn keep_buffer(&self, slot: BufferSlot<B::Device>) -> StrataHandle {
        let instance = slot.device.instance;
        self.buffers.insert(&self.numbers, instance, Arc::new(slot))
    }

    /// An allocated buffer lives on while a program uses it. Imported memory is the host's and may
    /// vanish after this call, so there a program that still uses it is refused as a host bug.
    pub(crate) fn buffer_free(&self, handle: StrataHandle) -> Result<()> {
        let slot = self.buffers.get(&self.numbers, handle)?;
        let uses = |program: &ProgramSlot<_>| program.buffers.iter().any(|buffer| Arc::ptr_eq(buffer, &slot.buffer));
        if slot.imported && self.programs.any(uses) {
            let id = handle.id;
            return Err(Failure::host_bug(format_args!("imported buffer {id} is freed while a program uses it")));
        }
        drop(self.buffers.remove(&self.numbers, handle)?);
        release(slot)
    }

    pub(crate) fn buffer_write(&self, buffer: StrataHandle, offset: u64, data: &[u8]) -> Result<()> {
        let slot = self.buffers.get(&self.numbers, buffer)?;
        slot.check_writable("a write")?;
        slot.check_range("a write", offset, data.len() as u64)?;
        slot.device.call(|device| device.buffer_write(&slot.buffer, offset, data))
    }

    pub(crate) fn buffer_read(&self, buffer: StrataHandle, offset: u64, out: &mut [u8]) -> Result<()> {
        let slot = self.buffers.get(&self.numbers, buffer)?;
        slot.check_range("a read", offset, out.len() as u64)?;
        slot.device.call(|device| device.buffer_read(&slot.buffer, offset, out))
    }

    pub(crate) fn buffer_copy(
        &self,
        (target, target_offset): (StrataHandle, u64),
        (source, source_offset): (StrataHandle, u64),
        bytes: u64,
    ) -> Result<()> {
        let to = self.buffers.get(&self.numbers, target)?;
        let from = self.buffers.get(&self.numbers, source)?;
        if !Arc::ptr_eq(&to.device, &from.device) {
            return Err(Failure::host_bug("a copy between buffers of two devices"));
        }
        to.check_writable("a copy")?;
        to.check_range("a copy's target", target_offset, bytes)?;
        from.check_range("a copy's source", source_offset, bytes)?;
        // Both sums are within a buffer by now.
        let apart = target_offset + bytes <= source_offset || source_offset + bytes <= target_offset;
        if target == source && !apart {
            return Err(Failure::host_bug(format_args!(
                "a copy of {bytes} bytes from {source_offset} to {target_offset} of one buffer overlaps itself"
            )));
        }
        to.device.call(|device| device.buffer_copy(&to.buffer, target_offset, &from.buffer, source_offset, bytes))
    }

    pub(crate) fn buffer_map(&self, buffer: StrataHandle) -> Result<*mut u8> {
        let slot = self.buffers.get(&self.numbers, buffer)?;
        if slot.kind != StrataBufferKind::HostVisible {
            return Err(Failure::host_bug("only a host-visible buffer has an address"));
        }
        slot.device.call(|device| device.buffer_map(&slot.buffer))
    }

    pub(crate) fn program_compile(
        &self,
        device: StrataHandle,
        program: &ProgramView<'_>,
        buffers: &[StrataHandle],
    ) -> Result<StrataHandle> {
        let device = self.devices.get(&self.numbers, device)?;
        program.check_buffers(buffers.len())?;
        let mut used = Vec::with_capacity(buffers.len());
        for handle in buffers {
            let slot = self.buffers.get(&self.numbers, *handle)?;
            if !Arc::ptr_eq(&slot.device, &device) {
                let id = handle.id;
                return Err(Failure::host_bug(format_args!("buffer {id} is of another device")));
            }
            used.push(Arc::clone(&slot.buffer));
        }
        let compiled = device.call(|device| device.program_compile(program, &used))?;
        let instance = device.instance;
        let scalar_max = program.scalar_max.clone();
        let slot = ProgramSlot { device, buffers: used, scalar_max, program: Mutex::new(compiled) };
        Ok(self.programs.insert(&self.numbers, instance, Arc::new(slot)))
    }

    pub(crate) fn program_info(&self, program: StrataHandle) -> Result<ProgramInfo> {
        let slot = self.programs.get(&self.numbers, program)?;
        slot.device.call(|device| Ok(device.program_info(&slot.lock())))
    }

    pub(crate) fn program_run(
        &self,
        program: StrataHandle,
        scalars: &[i64],
        wait: &[StrataHandle],
        signal: StrataHandle,
    ) -> Result<()> {
        let slot = self.programs.get(&self.numbers, program)?;
        slot.check_scalars(scalars)?;
        let event_of = |handle: StrataHandle| -> Result<Arc<EventSlot<B::Device>>> {
            let event = self.events.get(&self.numbers, handle)?;
            if Arc::ptr_eq(&event.device, &slot.device) {
                return Ok(event);
            }
            let id = handle.id;
            Err(Failure::host_bug(format_args!("event {id} is of another device than the program")))
        };
        let wait: Vec<_> = wait.iter().map(|handle| event_of(*handle)).collect::<Result<_>>()?;
        let wait: Vec<_> = wait.iter().map(|event| &event.event).collect();
        let signal = if signal == StrataHandle::NONE { None } else { Some(event_of(signal)?) };
        let signal = signal.as_ref().map(|event| &event.event);
        slot.device.call(|device| device.program_run(&mut slot.lock(), scalars, &wait, signal))
    }

    pub(crate) fn program_free(&self, program: StrataHandle) -> Result<()> {
        let slot = self.programs.remove(&self.numbers, program)?;
        release(slot)
    }

    pub(crate) fn event_create(&self, device: StrataHandle) -> Result<StrataHandle> {
        let device = self.devices.get(&self.numbers, device)?;
        let event = device.call(Device::event_create)?;
        let instance = device.instance;
        Ok(self.events.insert(&self.numbers, instance, Arc::new(EventSlot { device, event })))
    }

    /// Not under the device's lock: the host may ask while another thread's call is at work.
    pub(crate) fn event_query(&self, event: StrataHandle) -> Result<()> {
        let slot = self.events.get(&self.numbers, event)?;
        if <B::Device as Device>::event_query(&slot.event)? {
            return Ok(());
        }
        Err(Failure::new(StrataStatus::NotReady, "the event is not signalled yet"))
    }

    pub(crate) fn event_wait(&self, event: StrataHandle) -> Result<()> {
        let slot = self.events.get(&self.numbers, event)?;
        <B::Device as Device>::event_wait(&slot.event)
    }

    pub(crate) fn event_free(&self, event: StrataHandle) -> Result<()> {
        let slot = self.events.remove(&self.numbers, event)?;
        release(slot)
    }
}

impl<D: Device> ProgramSlot<D> {
    fn lock(&self) -> MutexGuard<'_, D::Program> {
        // A panic in a run breaks the whole device, so a poisoned program is never run again.
        self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_scalars(&self, scalars: &[i64]) -> Result<()> {
        let (given, wanted) = (scalars.len(), self.scalar_max.len());
        if given != wanted {
            return Err(Failure::host_bug(format_args!("a run with {given} scalars, the program has {wanted}")));
        }
        let bad = scalars.iter().zip(&self.scalar_max).position(|(value, most)| value > most);
        match bad {
            Some(scalar) => Err(Failure::host_bug(format_args!(
                "scalar {scalar} is {} in this run, the program was compiled for at most {}",
                scalars[scalar], self.scalar_max[scalar]
            ))),
            None => Ok(()),
        }
    }
}

/// Drops a value that has left its table, under the lock of its device.
fn release<D: Device, T: OnDevice<D>>(value: Arc<T>) -> Result<()> {
    let device = Arc::clone(value.device());
    let _calls_wait = device.lock();
    caught(|| drop(value))
}

/// What every value of a device has.
trait OnDevice<D> {
    fn device(&self) -> &Arc<DeviceSlot<D>>;
}

impl<D: Device> OnDevice<D> for BufferSlot<D> {
    fn device(&self) -> &Arc<DeviceSlot<D>> {
        &self.device
    }
}

impl<D: Device> OnDevice<D> for ProgramSlot<D> {
    fn device(&self) -> &Arc<DeviceSlot<D>> {
        &self.device
    }
}

impl<D: Device> OnDevice<D> for EventSlot<D> {
    fn device(&self) -> &Arc<DeviceSlot<D>> {
        &self.device
    }
}
