//! A plugin, from its descriptor to its devices. Verification of the file is `verify.rs`, the
//! child process is `probe.rs`, the calls are `raw.rs`. Called by whoever needs a device.

use crate::raw::{self, RawDevice, Table};
use crate::{Device, DeviceInfo, DeviceOptions, LogSink, PluginError};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use strata_backend_abi::{StrataDeviceKind, StrataLogLevel, StrataStatus};
use strata_manifest::{BackendKind, Document, PluginDescriptor, Sha256Digest};

/// A descriptor that was read, and where it lies: the right to open one library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginEntry {
    descriptor: PluginDescriptor,
    path: PathBuf,
}

impl PluginEntry {
    /// Reads `<stem>.plugin.json`. Opens nothing else yet.
    pub fn from_descriptor(path: &Path) -> Result<PluginEntry, PluginError> {
        let wrong = |reason: String| PluginError::Descriptor { path: path.to_owned(), reason };
        let path = std::path::absolute(path).map_err(|error| wrong(error.to_string()))?;
        let descriptor = PluginDescriptor::read(&path).map_err(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            wrong(format!("{error}{cause}"))
        })?;
        Ok(PluginEntry { descriptor, path })
    }

    pub fn descriptor(&self) -> &PluginDescriptor {
        &self.descriptor
    }

    /// Where the descriptor lies, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn name(&self) -> &str {
        &self.descriptor.name
    }

    pub fn kind(&self) -> BackendKind {
        self.descriptor.kind
    }

    /// Where the library should lie: the descriptor's own folder.
    pub fn library_path(&self) -> PathBuf {
        self.path.with_file_name(&self.descriptor.library)
    }
}

/// How a plugin is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// Takes the plugin's log lines, from any thread.
    pub log: LogSink,
}

impl OpenOptions {
    /// Opens at once, without a child process before: for tests, the conformance kit and the child itself.
    pub fn in_process() -> OpenOptions {
        OpenOptions { log: Arc::new(|_: StrataLogLevel, _: &str| {}) }
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions").finish_non_exhaustive()
    }
}

/// An open plugin. It stays open until the process ends.
#[derive(Clone)]
pub struct Plugin {
    table: Arc<Table>,
    entry: Arc<PluginEntry>,
}

/// Libraries that this process has opened. A library is one set of static variables, so a second
/// `open` of the same file is the same plugin and not a second instance.
static OPENED: Mutex<Option<HashMap<PathBuf, (Sha256Digest, Plugin)>>> = Mutex::new(None);

/// Never 0, so that a handle that a plugin forgot to fill in is noticed.
static NEXT_INSTANCE: AtomicU64 = AtomicU64::new(0x5354_0001);

impl Plugin {
    /// Verifies and opens. When this process has it open already, that one is returned and
    /// `options.log` is not used.
    pub fn open(entry: &PluginEntry, options: &OpenOptions) -> Result<Plugin, PluginError> {
        let library = entry.library_path();
        let digest = entry.descriptor.sha256;
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = opened.get_or_insert_default();
        if let Some((before, plugin)) = opened.get(&library) {
            if *before == digest {
                return Ok(plugin.clone());
            }
            let message = "another library was opened from this path before, in this process".to_owned();
            return Err(PluginError::Load { path: library, message });
        }
        let instance = NEXT_INSTANCE.fetch_add(1, Ordering::Relaxed);
        let table = raw::load(&library, entry.name(), instance, Arc::clone(&options.log))?;
        let plugin = Plugin { table: Arc::new(table), entry: Arc::new(entry.clone()) };
        opened.insert(library, (digest, plugin.clone()));
        Ok(plugin)
    }

    pub fn name(&self) -> &str {
        self.table.plugin()
    }

    /// The product's version that the plugin was built as.
    pub fn version(&self) -> String {
        self.entry.descriptor.version.to_string()
    }

    /// ABI version in force, `(major, minor)`.
    pub fn abi(&self) -> (u32, u32) {
        (self.table.abi() >> 16, self.table.abi() & 0xffff)
    }

    pub fn descriptor(&self) -> &PluginDescriptor {
        &self.entry.descriptor
    }

    /// Every device with its description, or why there is none of it. The outer failure is one of
    /// the plugin as a whole.
    pub fn device_slots(&self) -> Result<Vec<Result<DeviceInfo, PluginError>>, PluginError> {
        let count = self.table.device_count()?;
        Ok((0..count).map(|index| self.device_info(index)).collect())
    }

    /// The devices that can be described; an error when there are some and none can.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>, PluginError> {
        let mut first_failure = None;
        let mut devices = Vec::new();
        for slot in self.device_slots()? {
            match slot {
                Ok(info) => devices.push(info),
                Err(error) => first_failure = first_failure.or(Some(error)),
            }
        }
        match first_failure {
            Some(error) if devices.is_empty() => Err(error),
            _ => Ok(devices),
        }
    }

    /// Opens a device by the index in its description.
    pub fn open_device(&self, index: u32, options: &DeviceOptions) -> Result<Device, PluginError> {
        let count = self.table.device_count()?;
        if index >= count {
            let reason = format!("device {index} of {count}");
            return Err(PluginError::InvalidCall { call: "open_device", reason });
        }
        let info = self.device_info(index)?;
        let raw = RawDevice::open(&self.table, index, options.n_threads, options.reserve_bytes, &options.variant)?;
        Ok(Device::new(raw, info))
    }

    fn device_info(&self, index: u32) -> Result<DeviceInfo, PluginError> {
        let info = self.table.device_info(index).map_err(|error| match error.status() {
            Some(StrataStatus::NoDevice) => self
                .table
                .misbehaved("device_count", format!("counts a device {index} that `device_info` does not know")),
            _ => error,
        })?;
        let kind = match info.kind {
            0 => StrataDeviceKind::Cpu,
            1 => StrataDeviceKind::Gpu,
            2 => StrataDeviceKind::Accelerator,
            other => return Err(self.table.misbehaved("device_info", format!("device kind {other}"))),
        };
        Ok(DeviceInfo {
            index,
            kind,
            flags: info.flags,
            name: info.name,
            arch: info.arch,
            uid: info.uid,
            driver: info.driver,
            memory_total: info.memory_total,
            memory_free: info.memory_free,
        })
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("name", &self.name()).field("abi", &self.abi()).finish_non_exhaustive()
    }
}
