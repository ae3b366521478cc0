//! The download engine: the only crate with a client socket. Files come in chunks of 8 MiB that a
//! journal records, over several connections, from mirrors in order; a file gets its name when its
//! size and digest are what was asked for.
//!
//! [`Fetcher::fetch`] blocks; inside it runs its own small runtime. It asks nothing and prints nothing:
//! an [`Observer`] hears what happens. strata-setup is its caller.

mod client;
mod error;
mod file;
mod journal;
mod pip;
mod source;

pub use error::FetchError;
pub use source::{HUB, hub_address};

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strata_manifest::Sha256Digest;

/// Bytes of a chunk: what is fetched again at most, for each connection, after a crash.
pub const CHUNK: u64 = 8 << 20;

/// How the network is used.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Bytes of a chunk.
    pub chunk: u64,
    /// Connections for one file.
    pub connections: usize,
    /// Certificates (PEM) to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// How long nothing may come before it is given up. Hours of bad network are survived.
    pub patience: Duration,
    /// How long a connection may be silent before it is opened anew.
    pub stall: Duration,
    /// Longest pause between two tries.
    pub longest_pause: Duration,
    /// Address of the model hub.
    pub hub: String,
    /// Token for the hub; sent to its address only.
    pub hub_token: Option<String>,
}

impl Settings {
    /// As the environment says: `HF_ENDPOINT`, `HF_TOKEN`. Proxies and certificates of the environment are always used.
    pub fn from_environment() -> Settings {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        Settings {
            chunk: CHUNK,
            connections: 4,
            ca_file: None,
            patience: Duration::from_secs(6 * 3600),
            stall: Duration::from_secs(30),
            longest_pause: Duration::from_secs(30),
            hub: variable("HF_ENDPOINT").unwrap_or_else(|| HUB.to_owned()),
            hub_token: variable("HF_TOKEN"),
        }
    }
}

/// One file to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// For people.
    pub name: String,
    /// Mirrors in order: `https:`, `hf:`, `pip:`.
    pub sources: Vec<String>,
    pub size: Option<u64>,
    pub sha256: Option<Sha256Digest>,
    pub to: PathBuf,
    /// Sent as `Authorization` to the origin of the source, and to no other.
    pub authorization: Option<String>,
}

/// One file that is there and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    pub path: PathBuf,
    pub size: u64,
    pub sha256: Sha256Digest,
    /// The source that gave it.
    pub source: String,
}

/// Who hears what happens; called from several threads.
pub trait Observer: Sync {
    /// A file begins, with `done` bytes of `total` there already.
    fn file(&self, _name: &str, _done: u64, _total: Option<u64>) {}
    fn advance(&self, _name: &str, _done: u64) {}
    fn file_done(&self, _name: &str, _size: u64) {}
    /// A cut, a pause, a mirror that was dropped.
    fn note(&self, _text: &str) {}
}

/// Nobody hears.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Observer for Silent {}

/// Asks a fetch to stop where it can be taken up again.
#[derive(Debug, Clone, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Fetches files.
#[derive(Debug)]
pub struct Fetcher {
    settings: Settings,
    client: client::Client,
    runtime: tokio::runtime::Runtime,
}

impl Fetcher {
    pub fn new(settings: Settings) -> Result<Fetcher, FetchError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|source| FetchError::Start { source })?;
        let client = client::Client::new(&settings)?;
        Ok(Fetcher { settings, client, runtime })
    }

    /// Fetches each file, one after the other; what is there already with the right digest is left.
    pub fn fetch(
        &self,
        requests: &[Request],
        observer: &dyn Observer,
        cancel: &CancelFlag,
    ) -> Result<Vec<Fetched>, FetchError> {
        requests.iter().map(|request| self.one(request, observer, cancel)).collect()
    }

    fn one(&self, request: &Request, observer: &dyn Observer, cancel: &CancelFlag) -> Result<Fetched, FetchError> {
        if let Some(there) = file::there(request, observer)? {
            return Ok(there);
        }
        let lock = file::lock(request, observer, cancel)?;
        // Another run may have brought it while this one waited.
        if let Some(there) = file::there(request, observer)? {
            return Ok(there);
        }
        let mut last = None;
        for source in &request.sources {
            let result = if source.starts_with("pip:") {
                pip::fetch(source, request, observer, cancel)
            } else {
                let handle = self.runtime.handle();
                handle.block_on(source::resolve(source, request, &self.settings, &self.client)).and_then(|resolved| {
                    file::fetch((&self.client, &self.settings, handle), request, &resolved, observer, cancel)
                })
            };
            match result {
                Ok(fetched) => {
                    observer.file_done(&request.name, fetched.size);
                    drop(lock);
                    return Ok(fetched);
                }
                Err(error) if error.is_final() => return Err(error),
                Err(error) => {
                    if request.sources.len() > 1 {
                        observer.note(&format!("{}: `{}` is dropped: {error}", request.name, source::shown(source)));
                    }
                    last = Some(error);
                }
            }
        }
        Err(last
            .unwrap_or_else(|| FetchError::Source { source_text: String::new(), why: "no source is named".to_owned() }))
    }
}
