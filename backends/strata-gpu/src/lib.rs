//! What all GPU plugins share: programs become kernel launches here, over a small [`Driver`] trait.
//!
//! Memory is counted, weights go through two pinned staging areas, programs are planned once (which
//! kernel, which launches, what is fused) and short ones are recorded and replayed. It knows no
//! vendor and calls no library; a plugin brings the driver and the kernels' machine code. It
//! validates no program: the host does. Called by `strata-backend-cuda` and `strata-hip`.

mod device;
mod driver;
mod event;
mod kernels;
mod memory;
mod runtime;

mod params;
mod plan;
mod program;
mod support;
mod view;

pub use device::{GpuDevice, OpenSettings};
pub use driver::{Card, Cause, Driver, DriverError, DriverResult, LaunchCall, Pinned};
pub use event::Event;
pub use kernels::{Aligned, Image, Module, best_image, held, targets};
pub use memory::Buffer;
pub use program::Program;
pub use runtime::{GpuBackend, GpuPlugin, ListedCard, Runtime, loader_words};
