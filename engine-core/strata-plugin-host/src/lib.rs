//! Verifies, tries, opens and wraps a backend plugin: the only crate that opens libraries.
//!
//! A plugin comes from a receipt entry or one explicit descriptor, never from a scan of a folder.
//! In order: its descriptor is read and its library's bytes are compared with it ([`PluginEntry`]);
//! a child process opens it first and computes something known on each device (`probe`); then this
//! process opens it ([`Plugin`]) and hands out devices, buffers and programs that cannot be misused
//! ([`Device`], [`Buffer`], [`Program`]). Programs are made with [`ProgramBuilder`] and checked by
//! [`validate`], so that a plugin may assume valid arguments. [`select`] decides which device
//! computes and says why.
//!
//! It knows no model, no file format and no kernel. The engine and the conformance kit call it;
//! the binaries call `select` and give `probe` a way to start themselves as its child.
//!
//! All unsafe code is in `raw.rs` and its submodules.

mod builder;
mod check;
mod describe;
mod descriptor;
mod device;
mod elf;
mod error;
mod nvml;
mod plugin;
mod probe;
mod raw;
pub mod select;
mod signature;
mod spec;
mod validate;
mod verify;

pub use builder::{
    Attention, Dim, ExpertMatMul, KvStore, ProgramBuilder, Rope, RouterTopK, ScalarMax, TensorId, contiguous_strides,
};
pub use check::numeric_check;
pub use describe::describe;
pub use descriptor::describe_library;
pub use device::{Buffer, Device, DeviceInfo, DeviceOptions, Event, HostMemory, MemoryInfo, Program, ProgramInfo};
pub use error::{AbiRange, PluginError, status_text};
pub use nvml::nvml_child;
pub use plugin::{OpenOptions, Plugin, PluginEntry};
pub use probe::{ProbeCommand, ProbeOptions, ProbeOutcome, ProbedDevice, probe_child};
pub use raw::LogSink;
pub use spec::{ProgramSpec, Support};
pub use strata_backend_abi as abi;
pub use validate::validate;
