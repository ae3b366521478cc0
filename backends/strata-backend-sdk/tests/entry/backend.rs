//! The backend under test: a device whose buffers are vectors and whose only op is `Copy` of F32.
//! A device opened with the variant `panic:NAME` panics in the call of that name.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use strata_backend_sdk::abi::{StrataBufferKind, StrataDeviceKind, StrataLogLevel, StrataOpKind, StrataStatus};
use strata_backend_sdk::{
    Backend, Device, DeviceInfo, DeviceOptions, Failure, ForeignMemory, Host, MemoryInfo, ProgramInfo, ProgramView,
    Result, catch,
};

pub(crate) struct Toy;

strata_backend_sdk::export_backend!(Toy);

/// Buffers that exist now, over all devices with the counting variant.
pub(crate) static LIVE_BUFFERS: AtomicUsize = AtomicUsize::new(0);

impl Backend for Toy {
    const NAME: &'static str = "toy";
    const VERSION: &'static str = "1.2.3";
    type Device = ToyDevice;

    fn start(host: Host) -> Result<Toy> {
        host.log(StrataLogLevel::Info, "toy starts");
        Ok(Toy)
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let info = DeviceInfo {
            kind: StrataDeviceKind::Accelerator,
            flags: 0,
            name: "Toy with an ä".to_owned(),
            arch: "toy".to_owned(),
            uid: "toy-0".to_owned(),
            driver: String::new(),
            memory_total: 1 << 30,
            memory_free: 1 << 29,
        };
        Ok(vec![info.clone(), DeviceInfo { uid: "toy-1".to_owned(), ..info }])
    }

    fn open(&self, index: u32, options: &DeviceOptions) -> Result<ToyDevice> {
        if index == 99 {
            return Err(Failure::new(StrataStatus::NoPermission, "device 99 is not yours"));
        }
        let device = ToyDevice { variant: options.variant.clone() };
        device.maybe_panic("open");
        Ok(device)
    }
}

pub(crate) struct ToyDevice {
    variant: String,
}

impl ToyDevice {
    fn maybe_panic(&self, call: &str) {
        assert_ne!(self.variant, format!("panic:{call}"), "scripted panic in {call}");
    }

    fn counts(&self) -> bool {
        self.variant == "count"
    }
}

impl Drop for ToyDevice {
    fn drop(&mut self) {
        self.maybe_panic("close");
    }
}

pub(crate) struct ToyBuffer {
    bytes: Bytes,
    counted: bool,
    panics: bool,
}

enum Bytes {
    Owned(Mutex<Box<[u8]>>),
    Foreign(ForeignMemory),
}

impl ToyBuffer {
    fn read(&self) -> Vec<u8> {
        match &self.bytes {
            Bytes::Owned(bytes) => bytes.lock().unwrap().to_vec(),
            Bytes::Foreign(memory) => memory.as_bytes().to_vec(),
        }
    }

    fn write(&self, offset: u64, data: &[u8]) {
        let Bytes::Owned(bytes) = &self.bytes else { panic!("the SDK lets nobody write foreign memory") };
        bytes.lock().unwrap()[offset as usize..][..data.len()].copy_from_slice(data);
    }
}

impl Drop for ToyBuffer {
    fn drop(&mut self) {
        if self.counted {
            LIVE_BUFFERS.fetch_sub(1, Ordering::SeqCst);
        }
        assert!(!self.panics, "scripted panic in buffer_free");
    }
}

pub(crate) struct ToyProgram {
    source: (Arc<ToyBuffer>, u64),
    target: (Arc<ToyBuffer>, u64),
    panics: bool,
}

impl Drop for ToyProgram {
    fn drop(&mut self) {
        assert!(!self.panics, "scripted panic in program_free");
    }
}

#[derive(Default)]
pub(crate) struct ToyEvent(AtomicBool);

impl Device for ToyDevice {
    type Buffer = ToyBuffer;
    type Program = ToyProgram;
    type Event = ToyEvent;
    const CAN_IMPORT: bool = true;
    const CAN_MAP: bool = true;
    const HAS_EVENTS: bool = true;

    fn memory(&self) -> Result<MemoryInfo> {
        self.maybe_panic("memory");
        Ok(MemoryInfo { total: 100, free: 60, used_here: 7 })
    }

    fn report(&self) -> String {
        self.maybe_panic("report");
        "grüße".to_owned()
    }

    fn synchronize(&mut self) -> Result<()> {
        if self.variant == "panic:worker" {
            // What a thread pool does: the worker catches, the caller returns what it caught.
            return std::thread::spawn(|| catch(|| -> Result<()> { panic!("scripted panic in worker") }))
                .join()
                .unwrap();
        }
        self.maybe_panic("synchronize");
        Ok(())
    }

    fn op_supported(&self, program: &ProgramView<'_>, op: usize) -> Result<()> {
        self.maybe_panic("op_supported");
        match program.kind(op) {
            Some(StrataOpKind::Copy) => Ok(()),
            kind => Err(Failure::unsupported(format!("the toy only copies, it has no {kind:?}"))),
        }
    }

    fn buffer_alloc(&mut self, _kind: StrataBufferKind, bytes: u64, label: &str) -> Result<ToyBuffer> {
        self.maybe_panic("buffer_alloc");
        if bytes > 1 << 20 {
            return Err(Failure::out_of_memory(format!("{bytes} bytes for `{label}` are too much for a toy")));
        }
        if self.counts() {
            LIVE_BUFFERS.fetch_add(1, Ordering::SeqCst);
        }
        let bytes = Bytes::Owned(Mutex::new(vec![0; bytes as usize].into_boxed_slice()));
        Ok(ToyBuffer { bytes, counted: self.counts(), panics: self.variant == "panic:buffer_free" })
    }

    fn buffer_import(&mut self, memory: ForeignMemory) -> Result<ToyBuffer> {
        self.maybe_panic("buffer_import");
        Ok(ToyBuffer { bytes: Bytes::Foreign(memory), counted: false, panics: false })
    }

    fn buffer_write(&mut self, buffer: &ToyBuffer, offset: u64, data: &[u8]) -> Result<()> {
        self.maybe_panic("buffer_write");
        buffer.write(offset, data);
        Ok(())
    }

    fn buffer_read(&mut self, buffer: &ToyBuffer, offset: u64, out: &mut [u8]) -> Result<()> {
        self.maybe_panic("buffer_read");
        out.copy_from_slice(&buffer.read()[offset as usize..][..out.len()]);
        Ok(())
    }

    fn buffer_copy(
        &mut self,
        target: &ToyBuffer,
        target_offset: u64,
        source: &ToyBuffer,
        source_offset: u64,
        bytes: u64,
    ) -> Result<()> {
        self.maybe_panic("buffer_copy");
        let data = source.read()[source_offset as usize..][..bytes as usize].to_vec();
        target.write(target_offset, &data);
        Ok(())
    }

    fn buffer_map(&mut self, buffer: &ToyBuffer) -> Result<*mut u8> {
        self.maybe_panic("buffer_map");
        match &buffer.bytes {
            Bytes::Owned(bytes) => Ok(bytes.lock().unwrap().as_mut_ptr()),
            Bytes::Foreign(_) => Err(Failure::unsupported("foreign memory has its own address")),
        }
    }

    fn program_compile(&mut self, program: &ProgramView<'_>, buffers: &[Arc<ToyBuffer>]) -> Result<ToyProgram> {
        self.maybe_panic("program_compile");
        let place = |slot| {
            let tensor = program.operand(0, slot).ok_or_else(|| Failure::internal("no such operand"))?;
            Ok((Arc::clone(&buffers[tensor.buffer as usize]), tensor.offset))
        };
        let panics = self.variant == "panic:program_free";
        Ok(ToyProgram { target: place(0)?, source: place(1)?, panics })
    }

    fn program_info(&self, _program: &ToyProgram) -> ProgramInfo {
        self.maybe_panic("program_info");
        ProgramInfo { n_launches: 1, workspace_bytes: 2, constant_bytes: 3 }
    }

    /// Copies as many floats as scalar 0 says.
    fn program_run(
        &mut self,
        program: &mut ToyProgram,
        scalars: &[i64],
        wait: &[&ToyEvent],
        signal: Option<&ToyEvent>,
    ) -> Result<()> {
        self.maybe_panic("program_run");
        if wait.iter().any(|event| !event.0.load(Ordering::SeqCst)) {
            return Err(Failure::internal("the toy runs at once and cannot wait"));
        }
        let bytes = scalars[0] as usize * size_of::<f32>();
        let ((source, from), (target, to)) = (&program.source, &program.target);
        target.write(*to, &source.read()[*from as usize..][..bytes]);
        if let Some(event) = signal {
            event.0.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    fn event_create(&mut self) -> Result<ToyEvent> {
        self.maybe_panic("event_create");
        Ok(ToyEvent::default())
    }

    fn event_query(event: &ToyEvent) -> Result<bool> {
        Ok(event.0.load(Ordering::SeqCst))
    }

    fn event_wait(event: &ToyEvent) -> Result<()> {
        while !event.0.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Ok(())
    }
}
