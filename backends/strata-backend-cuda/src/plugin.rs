//! The plugin as the host finds it: name, version, the cards, the exported entry.

use std::sync::{Arc, OnceLock};

use strata_backend_abi::{StrataDeviceKind, StrataLogLevel, StrataStatus};
use strata_backend_sdk::{Backend, DeviceInfo, DeviceOptions, Failure, Host, Result, export_backend};
use strata_gpu::{GpuDevice, OpenSettings};

use crate::driver::{Api, CudaDriver};
use crate::kernels::{MODULES, NOT_BUILT};

/// Another file than the driver's usual name: for the tests, which bring a stand-in.
const LIBRARY_VARIABLE: &str = "STRATA_CUDA_LIBRARY";

pub(crate) struct CudaBackend {
    host: Host,
    api: OnceLock<Arc<Api>>,
}

impl CudaBackend {
    /// Over a driver that is open already.
    #[cfg(test)]
    pub(crate) fn with(host: Host, api: Arc<Api>) -> CudaBackend {
        CudaBackend { host, api: OnceLock::from(api) }
    }

    /// The driver, opened at the first question.
    fn api(&self) -> Result<&Arc<Api>> {
        if let Some(api) = self.api.get() {
            return Ok(api);
        }
        let named = std::env::var(LIBRARY_VARIABLE).ok();
        let api = Arc::new(Api::open(named.as_deref())?);
        Ok(self.api.get_or_init(|| api))
    }
}

impl Backend for CudaBackend {
    const NAME: &'static str = "cuda";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Device = GpuDevice<CudaDriver>;

    fn start(host: Host) -> Result<CudaBackend> {
        if let Some(why) = NOT_BUILT {
            let text = format!("this CUDA plugin was built without kernels: {why}");
            return Err(Failure::new(StrataStatus::KernelsNotBuilt, text));
        }
        Ok(CudaBackend { host, api: OnceLock::new() })
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let api = self.api()?;
        let driver = api.version_text();
        let cards = api.cards()?;
        let mut infos = Vec::with_capacity(cards.len());
        for card in cards {
            let (memory_free, memory_total) = api.memory_of(&card).unwrap_or_else(|failure| {
                self.host.log(StrataLogLevel::Warning, &failure.text);
                (0, card.memory_total)
            });
            infos.push(DeviceInfo {
                kind: StrataDeviceKind::Gpu,
                flags: 0,
                name: card.name.clone(),
                arch: card.arch(),
                uid: card.uid.clone(),
                driver: driver.clone(),
                memory_total,
                memory_free,
            });
        }
        Ok(infos)
    }

    fn open(&self, index: u32, options: &DeviceOptions) -> Result<GpuDevice<CudaDriver>> {
        if !options.variant.is_empty() {
            let text = format!("there is no variant `{}`: kernels are chosen by the card", options.variant);
            return Err(Failure::unsupported(text));
        }
        let api = self.api()?;
        let cards = api.cards()?;
        let n = cards.len();
        let card = cards.into_iter().nth(index as usize).ok_or_else(|| {
            Failure::new(StrataStatus::NoDevice, format!("there is no CUDA device {index}: the driver lists {n}"))
        })?;
        let driver = CudaDriver::open(api, &card)?;
        GpuDevice::open(driver, &OpenSettings { reserve_bytes: options.reserve_bytes, modules: MODULES })
    }
}

export_backend!(CudaBackend);
