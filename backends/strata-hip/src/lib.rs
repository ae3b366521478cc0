//! AMD's HIP runtime: its functions by name out of the library that the system has, one safe wrapper
//! a call, every status looked at; and what keeps it from finding a card, said in words.
//!
//! It holds no kernels and exports no plugin: `strata-backend-hip-gfx906` and
//! `strata-backend-hip-rx7900` add their code objects and a name to [`HipRuntime`]. What is not
//! AMD's lies in `strata-gpu`: memory, planning, recordings. No other library of ROCm is opened: no
//! rocBLAS, no hipBLASLt, no compiler.

mod driver;
mod machine;
mod plugin;

pub use driver::{HipDriver, HipRuntime};
pub use plugin::{HipPlugin, LIBRARY_VARIABLE};
