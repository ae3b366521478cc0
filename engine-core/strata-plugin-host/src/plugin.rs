//! A plugin, from its descriptor to its devices. Verification of the file is `verify.rs`, the
//! child process is `probe.rs`, the calls are `raw.rs`. Called by whoever needs a device.

use crate::probe::{ProbeOptions, ProbeOutcome, probe};
use crate::raw::{self, RawDevice, Table};
use crate::verify::{Machine, verify};
use crate::{Device, DeviceInfo, DeviceOptions, LogSink, PluginError};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strata_backend_abi::{StrataDeviceKind, StrataLogLevel, StrataStatus};
use strata_manifest::{BackendKind, Document, PluginDescriptor, Receipt, Sha256Digest};

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

    /// The plugins of an installation, in the order in which they are considered. One whose
    /// descriptor cannot be used does not hide the others.
    pub fn from_receipt(prefix: &Path, receipt: &Receipt) -> Vec<(String, Result<PluginEntry, PluginError>)> {
        let entry = |descriptor: &str| {
            let relative = Path::new(descriptor);
            if relative.components().any(|part| !matches!(part, Component::Normal(_))) {
                let reason = "the receipt names a path that is not inside the installation".to_owned();
                return Err(PluginError::Descriptor { path: relative.to_owned(), reason });
            }
            PluginEntry::from_descriptor(&prefix.join(relative))
        };
        receipt.plugins.iter().map(|plugin| (plugin.name.clone(), entry(&plugin.descriptor))).collect()
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
    /// How it is tried in a child process first; `None`: not at all.
    pub probe: Option<ProbeOptions>,
    /// Takes the plugin's log lines, from any thread.
    pub log: LogSink,
}

impl OpenOptions {
    /// Opens at once, without a child process before: for tests, the conformance kit and the child itself.
    pub fn in_process() -> OpenOptions {
        OpenOptions { probe: None, log: Arc::new(|_: StrataLogLevel, _: &str| {}) }
    }

    /// The product's way: tried in a child first.
    pub fn probed(probe: ProbeOptions) -> OpenOptions {
        OpenOptions { probe: Some(probe), ..OpenOptions::in_process() }
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions").field("probe", &self.probe).finish_non_exhaustive()
    }
}

/// An open plugin. It stays open until the process ends.
#[derive(Clone)]
pub struct Plugin {
    table: Arc<Table>,
    entry: Arc<PluginEntry>,
    probe: Option<Arc<ProbeOutcome>>,
}

/// Libraries that this process has opened. A library is one set of static variables, so a second
/// `open` of the same file is the same plugin and not a second instance.
static OPENED: Mutex<BTreeMap<PathBuf, (Sha256Digest, Plugin)>> = Mutex::new(BTreeMap::new());

/// Never 0, so that a handle that a plugin forgot to fill in is noticed.
static NEXT_INSTANCE: AtomicU64 = AtomicU64::new(0x5354_0001);

impl Plugin {
    /// Verifies, tries in a child if so asked, and opens. When this process has it open already,
    /// that one is returned: neither is it tried again, nor is `options.log` used.
    pub fn open(entry: &PluginEntry, options: &OpenOptions) -> Result<Plugin, PluginError> {
        if let Some(plugin) = Plugin::opened(&opened(), entry)? {
            return Ok(plugin);
        }
        let machine = Machine::this();
        let library = verify(entry, &machine)?;
        // Without the lock: a child may take long, and other plugins need not wait for it.
        let outcome = options.probe.as_ref().map(|how| probe(entry, how, &machine, &options.log)).transpose()?;
        let mut plugin = Plugin::load(entry, &library, options)?;
        if let (Some(mut outcome), Some(how)) = (outcome, &options.probe) {
            // A card that was added since the plugin was tried has not been tried.
            if outcome.remembered && !plugin.all_tried(&outcome)? {
                let again = probe(entry, &ProbeOptions { retry: true, ..how.clone() }, &machine, &options.log);
                outcome = again.inspect_err(|_| drop(opened().remove(&entry.library_path())))?;
            }
            plugin.probe = Some(Arc::new(outcome));
        }
        if let Some((_, listed)) = opened().get_mut(&entry.library_path()) {
            listed.probe.clone_from(&plugin.probe);
        }
        Ok(plugin)
    }

    fn opened(
        opened: &BTreeMap<PathBuf, (Sha256Digest, Plugin)>,
        entry: &PluginEntry,
    ) -> Result<Option<Plugin>, PluginError> {
        let path = entry.library_path();
        match opened.get(&path) {
            None => Ok(None),
            Some((digest, plugin)) if *digest == entry.descriptor.sha256 => Ok(Some(plugin.clone())),
            Some(_) => {
                let message = "another library was opened from this path before, in this process".to_owned();
                Err(PluginError::Load { path, message })
            }
        }
    }

    fn load(entry: &PluginEntry, library: &Path, options: &OpenOptions) -> Result<Plugin, PluginError> {
        let mut opened = opened();
        // Another thread may have been quicker.
        if let Some(plugin) = Plugin::opened(&opened, entry)? {
            return Ok(plugin);
        }
        let instance = NEXT_INSTANCE.fetch_add(1, Ordering::Relaxed);
        let table = raw::load(library, entry.name(), instance, Arc::clone(&options.log))?;
        let (name, version) = table.identity();
        let descriptor = &entry.descriptor;
        for (what, library, said) in
            [("name", name, descriptor.name.clone()), ("version", version, descriptor.version.to_string())]
        {
            if library != said {
                return Err(PluginError::Identity { plugin: entry.name().to_owned(), what, library, descriptor: said });
            }
        }
        let plugin = Plugin { table: Arc::new(table), entry: Arc::new(entry.clone()), probe: None };
        opened.insert(entry.library_path(), (descriptor.sha256, plugin.clone()));
        Ok(plugin)
    }

    fn all_tried(&self, outcome: &ProbeOutcome) -> Result<bool, PluginError> {
        let tried = |uid: &str| outcome.devices.iter().any(|device| device.uid == uid);
        Ok(self.device_slots()?.iter().flatten().all(|info| tried(&info.uid)))
    }

    /// How it went when the plugin was tried; `None` when it was opened without.
    pub fn probe(&self) -> Option<&ProbeOutcome> {
        self.probe.as_deref()
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
        self.passed_probe(&info)?;
        let raw = RawDevice::open(&self.table, index, options.n_threads, options.reserve_bytes, &options.variant)?;
        Ok(Device::new(raw, info))
    }

    /// A device on which the plugin failed in the child is not opened here.
    pub fn passed_probe(&self, info: &DeviceInfo) -> Result<(), PluginError> {
        let tried = self.probe.iter().flat_map(|outcome| &outcome.devices);
        match tried.filter(|device| device.uid == info.uid).find_map(|device| device.failure.clone()) {
            Some(failure) => Err(PluginError::Reported(Box::new(failure))),
            None => Ok(()),
        }
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

fn opened() -> MutexGuard<'static, BTreeMap<PathBuf, (Sha256Digest, Plugin)>> {
    // Each change is one insertion, so what a panicking thread left is whole.
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("name", &self.name()).field("abi", &self.abi()).finish_non_exhaustive()
    }
}
