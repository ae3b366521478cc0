//! The CPU backend plugin: programs of the plugin ABI on the processor's cores.
//!
//! It plans a program once (kernels, workspace, stages) and runs it with its own worker threads;
//! nothing is allocated in a run. Weights are used where the host mapped them. It knows nothing of
//! models and files, and validates no program: the host does.
//!
//! Called through `strata_backend_entry` only. Suggested reading order is that of the modules.

mod plugin;

mod device;
mod program;

mod ops;

mod matmul;

mod pool;

mod buffer;
mod memory;

mod topology;
mod variant;

mod simd;

pub use plugin::strata_backend_entry;

strata_build_record::embed!();
