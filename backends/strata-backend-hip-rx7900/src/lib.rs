//! The HIP plugin for RX 7900, 7800, 7700 and 7600 cards (gfx1100, gfx1101, gfx1102).
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

struct Rx7900(HipPlugin);

impl Backend for Rx7900 {
    const NAME: &'static str = "hip-rx7900";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Device = GpuDevice<HipDriver>;

    fn start(host: Host) -> Result<Rx7900> {
        HipPlugin::start(host, Self::NAME, kernels::MODULES, kernels::NOT_BUILT).map(Rx7900)
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.0.devices()
    }

    fn open(&self, index: u32, options: &DeviceOptions) -> Result<GpuDevice<HipDriver>> {
        self.0.open(index, options)
    }
}

export_backend!(Rx7900);
