//! The plugin as the host finds it: name, version, kernels, the exported entry.

use strata_backend_sdk::{Backend, DeviceInfo, DeviceOptions, Host, Result, export_backend};
use strata_gpu::{GpuBackend, GpuDevice, GpuPlugin};

use crate::driver::{Api, CudaDriver};
use crate::kernels::{MODULES, NOT_BUILT};

const PLUGIN: GpuPlugin =
    GpuPlugin { modules: MODULES, not_built: NOT_BUILT, library_variable: "STRATA_CUDA_LIBRARY", flags: 0 };

pub(crate) struct CudaBackend(GpuBackend<Api>);

impl Backend for CudaBackend {
    const NAME: &'static str = "cuda";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Device = GpuDevice<CudaDriver>;

    fn start(host: Host) -> Result<CudaBackend> {
        GpuBackend::start(host, "CUDA", PLUGIN).map(CudaBackend)
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.0.devices()
    }

    fn open(&self, index: u32, options: &DeviceOptions) -> Result<GpuDevice<CudaDriver>> {
        self.0.open(index, options)
    }
}

export_backend!(CudaBackend);
