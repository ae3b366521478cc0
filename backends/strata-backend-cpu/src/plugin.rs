//! The plugin as the host finds it: name, version, one device, the exported entry.

use std::path::Path;

use strata_backend_abi::{STRATA_DEVICE_HOST_MEMORY, StrataDeviceKind, StrataStatus};
use strata_backend_sdk::{Backend, DeviceInfo, DeviceOptions, Failure, Host, Result, export_backend};

use crate::device::CpuDevice;
use crate::topology;
use crate::variant::FeatureSet;

/// The machine's files are below here; tests of topology.rs use another root.
const ROOT: &str = "/";

pub(crate) struct CpuBackend;

impl Backend for CpuBackend {
    const NAME: &'static str = "cpu";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    type Device = CpuDevice;

    fn start(_host: Host) -> Result<CpuBackend> {
        Ok(CpuBackend)
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let root = Path::new(ROOT);
        let (memory_total, memory_free) = topology::memory(root);
        Ok(vec![DeviceInfo {
            kind: StrataDeviceKind::Cpu,
            flags: STRATA_DEVICE_HOST_MEMORY,
            name: topology::cpu_name(root),
            arch: arch(),
            uid: "cpu".to_owned(),
            driver: String::new(),
            memory_total,
            memory_free,
        }])
    }

    fn open(&self, index: u32, options: &DeviceOptions) -> Result<CpuDevice> {
        if index != 0 {
            return Err(Failure::new(StrataStatus::NoDevice, format!("there is one CPU device, not a number {index}")));
        }
        CpuDevice::open(options, Path::new(ROOT))
    }
}

/// `x86-64 avx2 fma f16c`: the architecture and the extensions that kernels are chosen by.
fn arch() -> String {
    let mut arch = std::env::consts::ARCH.replace('_', "-");
    let features = FeatureSet::detect();
    for name in ["avx2", "fma", "f16c", "avx512vnni"].into_iter().filter(|name| features.0.contains(name)) {
        arch.push(' ');
        arch.push_str(name);
    }
    arch
}

export_backend!(CpuBackend);
