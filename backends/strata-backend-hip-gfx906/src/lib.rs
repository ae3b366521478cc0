//! The HIP plugin for Radeon VII, Radeon Pro VII and MI50/MI60 cards (gfx906).
//!
//! Code objects and a name: everything else is `strata-hip` and `strata-gpu`. No AMD card has run it
//! yet, which every card's listing says; docs/AMD.md tells what is proven without one. Called through
//! `strata_backend_entry` only.

use strata_backend_sdk::{Backend, DeviceInfo, DeviceOptions, Host, Result, export_backend};
use strata_gpu::GpuDevice;
use strata_hip::{HipDriver, HipPlugin};

mod kernels {
    //! What the build script compiled.
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

strata_build_record::embed!();

struct Gfx906(HipPlugin);

impl Backend for Gfx906 {
    const NAME: &'static str = "hip-gfx906";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Device = GpuDevice<HipDriver>;

    fn start(host: Host) -> Result<Gfx906> {
        HipPlugin::start(host, Self::NAME, kernels::MODULES, kernels::NOT_BUILT).map(Gfx906)
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.0.devices()
    }

    fn open(&self, index: u32, options: &DeviceOptions) -> Result<GpuDevice<HipDriver>> {
        self.0.open(index, options)
    }
}

export_backend!(Gfx906);
