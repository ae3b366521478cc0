//! What every GPU plugin does with its vendor's runtime library: opens it at the first question, lists
//! the cards, opens one of them. A plugin's own part is its name, its kernels and the library.

use std::fmt;
use std::sync::{Arc, OnceLock};

use strata_backend_sdk::abi::{StrataDeviceKind, StrataLogLevel, StrataStatus};
use strata_backend_sdk::{DeviceInfo, DeviceOptions, Failure, Host, Result};

use crate::device::{GpuDevice, OpenSettings};
use crate::driver::Driver;
use crate::kernels::Module;

/// A card as its runtime lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedCard {
    /// Marketing name.
    pub name: String,
    /// What kernels are chosen by: `sm_90`, `gfx906:sramecc+:xnack-`.
    pub arch: String,
    /// Identity that survives a reboot.
    pub uid: String,
    /// Bytes.
    pub memory_total: u64,
}

/// A vendor's runtime library, open and initialised.
pub trait Runtime: fmt::Debug + Send + Sync + Sized + 'static {
    /// A card of it that is open.
    type Driver: Driver;
    /// What the runtime needs to find a card again.
    type Handle: Send + Sync;

    /// What messages call a card: `CUDA device`.
    const CARD: &'static str;

    /// Opens the library: where the system has it, or the one that tests name.
    ///
    /// # Errors
    /// There is none, or it does not start; the status tells why.
    fn start(named: Option<&str>) -> Result<Self>;
    /// The driver and its version.
    fn version_text(&self) -> String;
    /// All cards in the runtime's order. None is a failure with [`StrataStatus::NoDevice`].
    ///
    /// # Errors
    /// There is no card, or the runtime refuses to list them.
    fn cards(&self) -> Result<Vec<(Self::Handle, ListedCard)>>;
    /// Free and all memory of a card, without keeping it open.
    ///
    /// # Errors
    /// The runtime does not tell.
    fn memory_of(&self, handle: &Self::Handle, card: &ListedCard) -> Result<(u64, u64)>;
    /// Opens a card.
    ///
    /// # Errors
    /// The runtime refuses.
    fn open(self: &Arc<Self>, handle: &Self::Handle, card: &ListedCard) -> Result<Self::Driver>;
}

/// What a plugin is made of.
#[derive(Debug, Clone, Copy)]
pub struct GpuPlugin {
    /// Its kernels.
    pub modules: &'static [Module],
    /// Why it has none, if it has none.
    pub not_built: Option<&'static str>,
    /// Environment variable with another file than the library's usual name, for tests.
    pub library_variable: &'static str,
    /// `STRATA_DEVICE_*` of every card.
    pub flags: u32,
}

/// What a loader said: its wrapper says only that loading failed.
pub fn loader_words(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// A started plugin.
#[derive(Debug)]
pub struct GpuBackend<R: Runtime> {
    host: Host,
    plugin: GpuPlugin,
    runtime: OnceLock<Arc<R>>,
}

impl<R: Runtime> GpuBackend<R> {
    /// Refuses to start without kernels. Opens no library yet.
    ///
    /// # Errors
    /// The plugin was built without kernels.
    pub fn start(host: Host, name: &str, plugin: GpuPlugin) -> Result<GpuBackend<R>> {
        if let Some(why) = plugin.not_built {
            let text = format!("this {name} plugin was built without kernels: {why}");
            return Err(Failure::new(StrataStatus::KernelsNotBuilt, text));
        }
        Ok(GpuBackend { host, plugin, runtime: OnceLock::new() })
    }

    /// Over a runtime that is open already.
    pub fn with(host: Host, plugin: GpuPlugin, runtime: Arc<R>) -> GpuBackend<R> {
        GpuBackend { host, plugin, runtime: OnceLock::from(runtime) }
    }

    /// The runtime, opened at the first question.
    fn runtime(&self) -> Result<&Arc<R>> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let named = std::env::var(self.plugin.library_variable).ok();
        let runtime = Arc::new(R::start(named.as_deref())?);
        Ok(self.runtime.get_or_init(|| runtime))
    }

    /// All cards, those without kernels in this plugin too: the host says which it passes over and why.
    ///
    /// # Errors
    /// What [`Runtime::start`] and [`Runtime::cards`] say.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let runtime = self.runtime()?;
        let driver = runtime.version_text();
        let info = |(handle, card): (R::Handle, ListedCard)| {
            let (memory_free, memory_total) = runtime.memory_of(&handle, &card).unwrap_or_else(|failure| {
                self.host.log(StrataLogLevel::Warning, &failure.text);
                (0, card.memory_total)
            });
            DeviceInfo {
                kind: StrataDeviceKind::Gpu,
                flags: self.plugin.flags,
                name: card.name,
                arch: card.arch,
                uid: card.uid,
                driver: driver.clone(),
                memory_total,
                memory_free,
            }
        };
        Ok(runtime.cards()?.into_iter().map(info).collect())
    }

    /// Opens the card at `index` of the list.
    ///
    /// # Errors
    /// There is no such card, no kernels for it, or the runtime refuses.
    pub fn open(&self, index: u32, options: &DeviceOptions) -> Result<GpuDevice<R::Driver>> {
        if !options.variant.is_empty() {
            let text = format!("there is no variant `{}`: kernels are chosen by the card", options.variant);
            return Err(Failure::unsupported(text));
        }
        let runtime = self.runtime()?;
        let cards = runtime.cards()?;
        let n = cards.len();
        let (handle, card) = cards.into_iter().nth(index as usize).ok_or_else(|| {
            let text = format!("there is no {} {index}: the driver lists {n}", R::CARD);
            Failure::new(StrataStatus::NoDevice, text)
        })?;
        crate::kernels::held(self.plugin.modules, &format!("{} ({})", card.name, card.uid), &card.arch)?;
        let driver = runtime.open(&handle, &card)?;
        let settings = OpenSettings { reserve_bytes: options.reserve_bytes, modules: self.plugin.modules };
        GpuDevice::open(driver, &settings)
    }
}
