//! What the HIP plugins have in common: all but their name and their code objects.

use strata_backend_sdk::abi::STRATA_DEVICE_UNPROVEN;
use strata_backend_sdk::{DeviceInfo, DeviceOptions, Host, Result};
use strata_gpu::{GpuBackend, GpuDevice, GpuPlugin, Module};

use crate::driver::{HipDriver, HipRuntime};

/// Another file than the runtime's usual names: for tests, which bring a software device.
pub const LIBRARY_VARIABLE: &str = "STRATA_HIP_LIBRARY";

/// A started HIP plugin.
#[derive(Debug)]
pub struct HipPlugin(GpuBackend<HipRuntime>);

impl HipPlugin {
    /// Starts with these kernels. Every card is said to be unproven: no AMD card has run them yet.
    ///
    /// # Errors
    /// The plugin was built without kernels.
    pub fn start(
        host: Host,
        name: &str,
        modules: &'static [Module],
        not_built: Option<&'static str>,
    ) -> Result<HipPlugin> {
        let plugin =
            GpuPlugin { modules, not_built, library_variable: LIBRARY_VARIABLE, flags: STRATA_DEVICE_UNPROVEN };
        GpuBackend::start(host, name, plugin).map(HipPlugin)
    }

    /// All cards that the runtime lists.
    ///
    /// # Errors
    /// There is no runtime, no card, or no permission to use one.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.0.devices()
    }

    /// Opens the card at `index` of the list.
    ///
    /// # Errors
    /// No such card, no code object for it, or the runtime refuses.
    pub fn open(&self, index: u32, options: &DeviceOptions) -> Result<GpuDevice<HipDriver>> {
        self.0.open(index, options)
    }
}
