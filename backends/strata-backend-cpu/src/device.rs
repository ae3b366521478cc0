//! The one device: choice of threads and kernels when it is opened, then the calls of the ABI.

use std::path::Path;
use std::sync::Arc;

use strata_backend_abi::StrataBufferKind;
use strata_backend_sdk::{Device, DeviceOptions, Failure, ForeignMemory, MemoryInfo, ProgramInfo, ProgramView, Result};

use crate::buffer::{Account, Buffer, Charge};
use crate::matmul::Variant;
use crate::memory::HostMemory;
use crate::ops::math::{self, Kernels};
use crate::ops::support;
use crate::pool::Pool;
use crate::program::{self, Compiled, Config};
use crate::topology::Topology;
use crate::variant::{self, FeatureSet};

/// The open CPU.
pub(crate) struct CpuDevice {
    pool: Pool,
    config: Config,
    account: Arc<Account>,
    report: String,
}

/// A compiled program and what it keeps alive.
pub(crate) struct CpuProgram {
    compiled: Arc<Compiled>,
    _buffers: Vec<Arc<Buffer>>,
    _charge: Charge,
}

/// The kernels of everything but products for a variant.
pub(crate) fn kernels(variant: Variant) -> &'static Kernels {
    #[cfg(target_arch = "x86_64")]
    if variant.has_avx2()
        && let Some(kernels) = crate::simd::ops_avx2::kernels()
    {
        return kernels;
    }
    let _ = variant;
    &math::SCALAR
}

impl CpuDevice {
    /// Opens the device of the machine below `root`.
    pub(crate) fn open(options: &DeviceOptions, root: &Path) -> Result<CpuDevice> {
        let choice = variant::choose(&FeatureSet::detect(), &options.variant)?;
        let threads = Topology::read(root).threads(options.n_threads as usize);
        let pool = Pool::new(threads.n_threads, &threads.pin_to)
            .map_err(|error| Failure::out_of_memory(format!("{} threads: {error}", threads.n_threads)))?;
        let config = Config { variant: choice.variant, kernels: kernels(choice.variant), n_workers: pool.n_workers() };
        Ok(CpuDevice {
            pool,
            config,
            account: Arc::new(Account::new(options.reserve_bytes, root.to_owned())),
            report: format!("{}; kernels {}", threads.sentence, choice.sentence),
        })
    }
}

impl Device for CpuDevice {
    type Buffer = Buffer;
    type Program = CpuProgram;
    type Event = ();

    const CAN_IMPORT: bool = true;
    const CAN_MAP: bool = true;

    fn memory(&self) -> Result<MemoryInfo> {
        let (total, free) = self.account.machine();
        Ok(MemoryInfo { total, free, used_here: self.account.used() })
    }

    fn report(&self) -> String {
        self.report.clone()
    }

    fn synchronize(&mut self) -> Result<()> {
        // Every run is over when its call returns.
        Ok(())
    }

    fn op_supported(&self, program: &ProgramView<'_>, op: usize) -> Result<()> {
        support::check(program, op, self.config.variant)
    }

    fn buffer_alloc(&mut self, _kind: StrataBufferKind, bytes: u64, label: &str) -> Result<Buffer> {
        // Both kinds are the same memory here.
        Buffer::alloc(&self.account, bytes, label)
    }

    fn buffer_import(&mut self, memory: ForeignMemory) -> Result<Buffer> {
        Ok(Buffer::import(memory))
    }

    fn buffer_write(&mut self, buffer: &Buffer, offset: u64, data: &[u8]) -> Result<()> {
        buffer.writable()?.write(size(offset)?, data);
        Ok(())
    }

    fn buffer_read(&mut self, buffer: &Buffer, offset: u64, out: &mut [u8]) -> Result<()> {
        buffer.memory().read(size(offset)?, out);
        Ok(())
    }

    fn buffer_copy(
        &mut self,
        target: &Buffer,
        target_offset: u64,
        source: &Buffer,
        source_offset: u64,
        bytes: u64,
    ) -> Result<()> {
        target.writable()?.copy(size(target_offset)?, source.memory(), size(source_offset)?, size(bytes)?);
        Ok(())
    }

    fn buffer_map(&mut self, buffer: &Buffer) -> Result<*mut u8> {
        Ok(buffer.writable()?.address())
    }

    fn program_compile(&mut self, program: &ProgramView<'_>, buffers: &[Arc<Buffer>]) -> Result<CpuProgram> {
        let memories: Vec<Arc<HostMemory>> = buffers.iter().map(|buffer| Arc::clone(buffer.memory())).collect();
        let compiled = program::compile(program, &memories, self.config)?;
        let label = format!("the workspace of program {}", program.name);
        let charge = self.account.charge(compiled.info().workspace_bytes, &label)?;
        Ok(CpuProgram { compiled, _buffers: buffers.to_vec(), _charge: charge })
    }

    fn program_info(&self, program: &CpuProgram) -> ProgramInfo {
        program.compiled.info()
    }

    fn program_run(
        &mut self,
        program: &mut CpuProgram,
        scalars: &[i64],
        _wait: &[&()],
        _signal: Option<&()>,
    ) -> Result<()> {
        program::run(&program.compiled, &mut self.pool, scalars)
    }
}

fn size(bytes: u64) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| Failure::host_bug(format_args!("{bytes} bytes are past the address space")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_backend_abi::StrataStatus;

    /// A machine of two cores and 1 GiB.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs_err::create_dir_all(root.path().join("sys/devices/system/cpu")).unwrap();
        fs_err::write(root.path().join("sys/devices/system/cpu/online"), "0-1\n").unwrap();
        fs_err::create_dir_all(root.path().join("proc")).unwrap();
        fs_err::write(root.path().join("proc/meminfo"), "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n").unwrap();
        root
    }

    fn options(n_threads: u32, variant: &str) -> DeviceOptions {
        DeviceOptions { n_threads, reserve_bytes: 0, variant: variant.to_owned() }
    }

    #[test]
    fn the_report_says_what_was_chosen_and_why() {
        let root = machine();
        let report = |n_threads, variant| CpuDevice::open(&options(n_threads, variant), root.path()).unwrap().report();
        let chosen = report(0, "");
        assert!(chosen.starts_with("2 threads: 2 physical cores of 2 usable CPUs, no quota; kernels "), "{chosen}");
        assert_eq!(
            report(1, "scalar"),
            "1 thread as asked for, 2 would be chosen: 2 physical cores of 2 usable CPUs, no quota; \
             kernels scalar as asked for"
        );
        assert!(report(3, "").contains("warning: more threads than usable CPUs"));
    }

    #[test]
    fn memory_is_counted_from_buffers_and_programs() {
        let root = machine();
        let mut device = CpuDevice::open(&options(1, ""), root.path()).unwrap();
        let buffer = device.buffer_alloc(StrataBufferKind::Device, 1 << 20, "kv").unwrap();
        let memory = device.memory().unwrap();
        assert_eq!((memory.total, memory.free, memory.used_here), (1 << 30, 1 << 29, 1 << 20));
        let failure = device.buffer_alloc(StrataBufferKind::Device, 1 << 30, "kv").unwrap_err();
        assert_eq!(failure.status, StrataStatus::OutOfMemory);
        drop(buffer);
        assert_eq!(device.memory().unwrap().used_here, 0);
    }

    #[test]
    fn host_visible_memory_has_an_address() {
        let root = machine();
        let mut device = CpuDevice::open(&options(1, ""), root.path()).unwrap();
        let buffer = device.buffer_alloc(StrataBufferKind::HostVisible, 4096, "io").unwrap();
        let address = device.buffer_map(&buffer).unwrap();
        assert_eq!(address, buffer.memory().address());
        device.buffer_write(&buffer, 8, &[1, 2, 3]).unwrap();
        device.buffer_copy(&buffer, 100, &buffer, 8, 3).unwrap();
        let mut out = [0; 4];
        device.buffer_read(&buffer, 100, &mut out).unwrap();
        assert_eq!(out, [1, 2, 3, 0]);
        let imported = device.buffer_import(ForeignMemory::from_static(&[5; 16])).unwrap();
        assert!(device.buffer_write(&imported, 0, &[1]).unwrap_err().text.contains("imported memory"));
    }
}
