//! The CUDA plugin: programs of the plugin ABI on NVIDIA cards.
//!
//! It opens the driver at run time and links nothing of NVIDIA's, so it builds and is tested on any
//! machine. What is not the driver's lies in `strata-gpu`: memory, planning, recordings. It knows
//! nothing of models and files, and validates no program: the host does. Called through
//! `strata_backend_entry` only.

mod plugin;

mod driver;

#[cfg(test)]
mod standin;

pub use plugin::strata_backend_entry;

mod kernels {
    //! What the build script compiled.
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

strata_build_record::embed!();
