//! For authors of backend plugins in Rust: implement [`Backend`] and [`Device`], name the type in
//! [`export_backend!`], and the library exports `strata_backend_entry` with a complete table.
//!
//! The crate owns everything that is the same in all plugins: negotiating the version, reading and
//! writing structs by their size, handle tables, the lock per device, turning panics and failures
//! into a status and a text. A plugin contains no unsafe code for its boundary.
//!
//! It knows nothing of ops, formats or hardware, and it does not validate programs beyond the
//! indices inside them: the host does. Called by the crates under `backends/`; the host never
//! links it.
//!
//! The contract in words is docs/ABI.md. A whole backend, which can do nothing but scale a vector of
//! F32 in the host's memory:
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use strata_backend_sdk::abi::{StrataBufferKind, StrataDType, StrataDeviceKind, StrataOpKind, StrataTensor};
//! use strata_backend_sdk::{
//!     Backend, Device, DeviceInfo, DeviceOptions, Failure, Host, MemoryInfo, ProgramView, Result, export_backend,
//! };
//!
//! struct Tiny;
//! export_backend!(Tiny);
//!
//! impl Backend for Tiny {
//!     const NAME: &'static str = "tiny";
//!     const VERSION: &'static str = env!("CARGO_PKG_VERSION");
//!     type Device = TinyDevice;
//!
//!     fn start(_host: Host) -> Result<Tiny> {
//!         Ok(Tiny)
//!     }
//!     fn devices(&self) -> Result<Vec<DeviceInfo>> {
//!         let (name, arch, uid) = ("tiny".to_owned(), "any".to_owned(), "cpu".to_owned());
//!         let kind = StrataDeviceKind::Cpu;
//!         Ok(vec![DeviceInfo { kind, flags: 0, name, arch, uid, driver: String::new(), memory_total: 0, memory_free: 0 }])
//!     }
//!     fn open(&self, _index: u32, _options: &DeviceOptions) -> Result<TinyDevice> {
//!         Ok(TinyDevice)
//!     }
//! }
//!
//! struct TinyDevice;
//! type Floats = Mutex<Vec<f32>>;
//! struct Scale { from: Arc<Floats>, to: Arc<Floats>, factor: f32, offset: f32 }
//!
//! impl Device for TinyDevice {
//!     type Buffer = Floats;
//!     type Program = Vec<Scale>;
//!     type Event = ();
//!
//!     fn memory(&self) -> Result<MemoryInfo> {
//!         Ok(MemoryInfo::default())
//!     }
//!     fn report(&self) -> String {
//!         "one loop".to_owned()
//!     }
//!     fn synchronize(&mut self) -> Result<()> {
//!         Ok(()) // every run is done when it returns
//!     }
//!     fn op_supported(&self, program: &ProgramView<'_>, op: usize) -> Result<()> {
//!         let whole = |tensor: &StrataTensor| tensor.dtype == StrataDType::F32 as u32 && tensor.offset == 0;
//!         let whole = (0..2).all(|slot| program.operand(op, slot).is_some_and(whole));
//!         match program.kind(op) {
//!             Some(StrataOpKind::Scale) if whole => Ok(()),
//!             _ => Err(Failure::unsupported("tiny scales whole buffers")),
//!         }
//!     }
//!     fn buffer_alloc(&mut self, _kind: StrataBufferKind, bytes: u64, _label: &str) -> Result<Floats> {
//!         Ok(Mutex::new(vec![0.0; bytes as usize / 4]))
//!     }
//!     fn buffer_write(&mut self, buffer: &Floats, offset: u64, data: &[u8]) -> Result<()> {
//!         let mut floats = buffer.lock().map_err(|_| Failure::internal("a poisoned buffer"))?;
//!         for (float, bytes) in floats[offset as usize / 4..].iter_mut().zip(data.chunks_exact(4)) {
//!             *float = f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
//!         }
//!         Ok(())
//!     }
//!     fn buffer_read(&mut self, buffer: &Floats, offset: u64, out: &mut [u8]) -> Result<()> {
//!         let floats = buffer.lock().map_err(|_| Failure::internal("a poisoned buffer"))?;
//!         for (float, bytes) in floats[offset as usize / 4..].iter().zip(out.chunks_exact_mut(4)) {
//!             bytes.copy_from_slice(&float.to_ne_bytes());
//!         }
//!         Ok(())
//!     }
//!     fn buffer_copy(&mut self, to: &Floats, to_at: u64, from: &Floats, from_at: u64, bytes: u64) -> Result<()> {
//!         let mut data = vec![0; bytes as usize];
//!         self.buffer_read(from, from_at, &mut data)?;
//!         self.buffer_write(to, to_at, &data)
//!     }
//!     fn program_compile(&mut self, program: &ProgramView<'_>, buffers: &[Arc<Floats>]) -> Result<Vec<Scale>> {
//!         let step = |op| {
//!             self.op_supported(program, op)?;
//!             let buffer = |slot| program.operand(op, slot).map(|tensor| Arc::clone(&buffers[tensor.buffer as usize]));
//!             let (Some(to), Some(from)) = (buffer(0), buffer(1)) else { return Err(Failure::internal("no operand")) };
//!             let [factor, offset, ..] = program.ops[op].float;
//!             Ok(Scale { from, to, factor, offset })
//!         };
//!         (0..program.ops.len()).map(step).collect()
//!     }
//!     fn program_run(&mut self, steps: &mut Vec<Scale>, _: &[i64], _: &[&()], _: Option<&()>) -> Result<()> {
//!         for step in steps {
//!             let from = step.from.lock().map_err(|_| Failure::internal("a poisoned buffer"))?.clone();
//!             let mut to = step.to.lock().map_err(|_| Failure::internal("a poisoned buffer"))?;
//!             for (to, from) in to.iter_mut().zip(from) {
//!                 *to = step.factor * from + step.offset;
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//! # let _ = strata_backend_entry;
//! ```

#![warn(missing_docs)]

mod backend;
mod failure;
mod guard;
mod host;
mod view;

mod handles;
mod instance;
mod raw;

mod exports;

pub use backend::{Backend, Device, DeviceInfo, DeviceOptions, MemoryInfo, ProgramInfo};
pub use exports::{Exported, entry};
pub use failure::{Failure, Result};
pub use guard::catch;
pub use host::{ForeignMemory, Host};
pub use instance::Exports;
pub use view::ProgramView;

/// The ABI that this SDK was built with, so that a plugin needs no other dependency.
pub use strata_backend_abi as abi;

/// Exports `strata_backend_entry` for a [`Backend`]. Once per library.
#[macro_export]
macro_rules! export_backend {
    ($backend:ty) => {
        impl $crate::Exported for $backend {
            fn exports() -> &'static $crate::Exports<Self> {
                static EXPORTS: $crate::Exports<$backend> = $crate::Exports::new();
                &EXPORTS
            }
        }

        /// The one exported symbol.
        ///
        /// # Safety
        /// The pointers are null or valid as the ABI says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn strata_backend_entry(
            args: *const $crate::abi::StrataEntryArgs,
            result: *mut $crate::abi::StrataEntryResult,
        ) -> i32 {
            // SAFETY: this function's own contract is the one that `entry` asks for.
            unsafe { $crate::entry::<$backend>(args, result) }
        }
    };
}
