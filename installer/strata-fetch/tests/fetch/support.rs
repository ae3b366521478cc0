//! Settings that are quick to give up, and one way to fetch.

use std::path::{Path, PathBuf};
use std::time::Duration;
use strata_fetch::{CancelFlag, FetchError, Fetched, Fetcher, Observer, Request, Settings};
use strata_manifest::Sha256Digest;

pub(crate) const CHUNK: u64 = 16 << 10;

pub(crate) fn settings(patience: Duration) -> Settings {
    Settings {
        chunk: CHUNK,
        connections: 3,
        ca_file: None,
        patience,
        stall: Duration::from_millis(300),
        connect: Duration::from_secs(2),
        longest_pause: Duration::from_millis(20),
        hub: "http://127.0.0.1:9".to_owned(),
        hub_token: None,
        names: None,
    }
}

pub(crate) fn request(url: &str, to: &Path) -> Request {
    Request { name: "model.gguf".to_owned(), sources: vec![url.to_owned()], to: to.to_owned(), ..Request::default() }
}

/// Keeps what was said.
#[derive(Debug, Default)]
pub(crate) struct Notes(pub(crate) std::sync::Mutex<Vec<String>>);

impl Observer for Notes {
    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

pub(crate) fn fetch(settings: Settings, request: &Request) -> Result<Fetched, FetchError> {
    let fetcher = Fetcher::new(settings).unwrap();
    let mut got = fetcher.fetch(std::slice::from_ref(request), &Notes::default(), &CancelFlag::default())?;
    Ok(got.remove(0))
}

pub(crate) fn digest(bytes: &[u8]) -> Sha256Digest {
    Sha256Digest::of_bytes(bytes)
}

/// Names in a folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A file of the reference data beside the checkout.
pub(crate) fn case(path: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("STRATA_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let found = shared.join("cases").join(path);
    if !found.exists() {
        println!("skipped: no {}", found.display());
        return None;
    }
    Some(found)
}

/// The commit that the stand-in's branch names.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A hub with one repository `o/r` of large files, as its API and its pages of files answer.
pub(crate) fn hub(files: Vec<(String, Vec<u8>)>) -> strata_faultd::hub::Hub {
    strata_faultd::hub::Hub::start(strata_faultd::hub::Repository::new("o/r", COMMIT, files)).unwrap()
}
