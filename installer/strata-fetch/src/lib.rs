//! The download engine: the only crate with a client socket. Files come in chunks of 8 MiB that a
//! journal records, over several connections, from mirrors in order; a file gets its name when its
//! size and digest are what was asked for.
//!
//! [`Fetcher::fetch`] blocks; inside it runs its own small runtime. It asks nothing and prints nothing:
//! an [`Observer`] hears what happens. strata-setup is its caller.

mod adopt;
mod answer;
mod behind;
mod client;
mod error;
mod hub;
mod job;
mod journal;
mod names;
mod parts;
mod pip;
mod place;
mod retry;
mod running;
mod shards;
mod source;
mod tls;
mod whole;

pub use adopt::{Audit, audit};
pub use error::FetchError;
pub use hub::{HUB, HubFile, hub_address};
pub use names::Names;
pub use shards::{Shard, choose};
pub use source::shown;

use client::Line;
use retry::Asker;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strata_manifest::{LockedFile, Sha256Digest};

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
    /// How long a connection may take to be made.
    pub connect: Duration,
    /// Longest pause between two tries.
    pub longest_pause: Duration,
    /// Address of the model hub.
    pub hub: String,
    /// Token for the hub; sent to its address only.
    pub hub_token: Option<String>,
    /// Who turns names into addresses; `None`: the system.
    pub names: Option<Names>,
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
            connect: Duration::from_secs(20),
            longest_pause: Duration::from_secs(30),
            hub: variable("HF_ENDPOINT").unwrap_or_else(|| HUB.to_owned()),
            hub_token: variable("HF_TOKEN").map(|token| token.trim().to_owned()),
            names: None,
        }
    }
}

/// One file to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
    /// Digests of its pieces of [`Settings::chunk`] bytes, where the index has them: a wrong piece is found when it
    /// comes and not at the end.
    pub chunks: Vec<Sha256Digest>,
    /// What a lock file says of it: size, digest and what its source was resolved to.
    pub pin: Option<LockedFile>,
    /// Files that may hold bytes of it: unfinished downloads of other programs, older versions.
    pub adopt: Vec<PathBuf>,
    /// What is there at `to` is known to be damaged: it becomes the unfinished file itself, and only its broken
    /// pieces are fetched.
    pub mend: bool,
    /// Read every piece of an unfinished file again before it counts.
    pub audit: bool,
}

impl Request {
    /// With what its pin says where nobody says otherwise.
    fn pinned(&self) -> Request {
        let mut request = self.clone();
        let fits = |pin: &&LockedFile| {
            self.size.is_none_or(|size| size == pin.size) && self.sha256.is_none_or(|sha256| sha256 == pin.sha256)
        };
        request.pin = self.pin.as_ref().filter(fits).cloned();
        if let Some(pin) = &request.pin {
            request.size = Some(pin.size);
            request.sha256 = Some(pin.sha256);
        }
        request
    }
}

/// One file that is there and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    pub path: PathBuf,
    pub size: u64,
    pub sha256: Sha256Digest,
    /// The source that gave it.
    pub source: String,
    /// What a lock file is to say of it, if it was fetched now or was pinned before.
    pub locked: Option<LockedFile>,
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
    clients: client::Clients,
}

impl Fetcher {
    pub fn new(settings: Settings) -> Result<Fetcher, FetchError> {
        let clients = client::Clients::new(&settings)?;
        Ok(Fetcher { settings, clients })
    }

    /// Fetches each file, one after the other; what is there already with the right digest is left.
    pub fn fetch(
        &self,
        requests: &[Request],
        observer: &dyn Observer,
        cancel: &CancelFlag,
    ) -> Result<Vec<Fetched>, FetchError> {
        requests.iter().map(|request| self.one(&request.pinned(), observer, cancel)).collect()
    }

    /// The files of a model of the hub, `owner/repo@revision/path` or `owner/repo@revision:what`, with sizes and
    /// pins: of a split set all shards.
    pub fn hub(
        &self,
        reference: &str,
        observer: &dyn Observer,
        cancel: &CancelFlag,
    ) -> Result<Vec<HubFile>, FetchError> {
        let name = format!("hf:{reference}");
        hub::model(reference, &self.asker(&name, &self.settings.hub, observer, cancel), &self.clients)
    }

    fn asker<'a>(
        &'a self,
        name: &'a str,
        address: &str,
        observer: &'a dyn Observer,
        cancel: &'a CancelFlag,
    ) -> Asker<'a> {
        let host = url::Url::parse(address).map_or_else(|_| shown(address), |url| client::host(&url));
        Asker { settings: &self.settings, observer, cancel, name, host }
    }

    fn one(&self, request: &Request, observer: &dyn Observer, cancel: &CancelFlag) -> Result<Fetched, FetchError> {
        if let Some(there) = place::there(request, observer)? {
            return Ok(there);
        }
        let lock = place::lock(request, observer, cancel)?;
        // Another run may have brought it while this one waited.
        if let Some(there) = place::there(request, observer)? {
            return Ok(there);
        }
        let mut last = None;
        for source in &request.sources {
            match self.from(source, request, &lock, observer, cancel) {
                Ok(fetched) => {
                    observer.file_done(&request.name, fetched.size);
                    drop(lock);
                    return Ok(fetched);
                }
                Err(error) if error.is_final() => return Err(error),
                Err(error) => {
                    if request.sources.len() > 1 {
                        observer.note(&format!("{}: `{}` is dropped: {error}", request.name, shown(source)));
                    }
                    last = Some(error);
                }
            }
        }
        Err(last
            .unwrap_or_else(|| FetchError::Source { source_text: String::new(), why: "no source is named".to_owned() }))
    }

    fn from(
        &self,
        source: &str,
        request: &Request,
        lock: &place::FileLock,
        observer: &dyn Observer,
        cancel: &CancelFlag,
    ) -> Result<Fetched, FetchError> {
        let address = if source.starts_with("hf:") { &self.settings.hub } else { source };
        let asker = self.asker(&request.name, address, observer, cancel);
        if source.starts_with("pip:") {
            return pip::fetch(source, request, lock, &asker);
        }
        let resolved = source::resolve(source, request, &asker, &self.clients)?;
        let brought = job::fetch((&self.clients, &self.settings), request, &resolved, lock, (observer, cancel));
        if brought.is_err() && journal::Journal::open(&lock.journal, &lock.part).is_none() {
            // Bytes without a journal are of no use to anybody.
            let _ = fs_err::remove_file(&lock.part);
            let _ = fs_err::remove_file(&lock.journal);
        }
        brought
    }
}
