//! How a server is set up, and what of that can be wrong.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Uri;
use sha2::{Digest, Sha256};

use crate::error::ServerError;

/// The shortest key that is taken.
const SHORTEST_KEY: usize = 8;
const LONGEST_KEY: usize = 1024;
const LONGEST_KEY_FILE: u64 = 1 << 20;

/// Everything that `strata serve` can set.
#[derive(Clone)]
pub struct ServerOptions {
    /// Where to listen.
    pub addresses: Vec<SocketAddr>,
    /// Who may ask. Empty: everybody who gets through.
    pub keys: Keys,
    /// Without keys an address that others reach is refused, unless this says that it is meant.
    pub no_key: bool,
    /// Names, beside `localhost` and IP addresses, that requests may be for. `*`: all.
    pub hosts: BTreeSet<String>,
    /// Origins of web pages that may ask. `*`: all.
    pub origins: BTreeSet<String>,
    /// Longest body of a request, bytes.
    pub most_body: u64,
    /// Requests that may wait while all slots are in use.
    pub most_waiting: usize,
    /// Connections at one time; further ones wait to be accepted.
    pub most_connections: usize,
    /// How long answers may go on after the server was told to stop.
    pub grace: Duration,
    /// Serve the web page.
    pub page: bool,
    /// Takes lines of talk: one a request, and what the operator should know.
    pub log: Log,
}

/// Takes a line of talk.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

impl std::fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerOptions")
            .field("addresses", &self.addresses)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

impl ServerOptions {
    /// What a server has when nothing is said: this machine only, no key.
    pub fn new(addresses: Vec<SocketAddr>, log: Log) -> ServerOptions {
        ServerOptions {
            addresses,
            keys: Keys::default(),
            no_key: false,
            hosts: BTreeSet::new(),
            origins: BTreeSet::new(),
            most_body: 32 << 20,
            most_waiting: 64,
            most_connections: 1024,
            grace: Duration::from_secs(10),
            page: true,
            log,
        }
    }

    /// Refuses a server that everybody in the network could use without anybody having said so.
    pub fn check(&self) -> Result<(), ServerError> {
        let open = self.addresses.iter().find(|address| !address.ip().is_loopback());
        match open {
            Some(address) if self.keys.is_empty() && !self.no_key => Err(ServerError::KeyNeeded { address: *address }),
            _ => self.origins.iter().try_for_each(|origin| check_origin(origin)),
        }
    }
}

/// `https://page.example`, as browsers send it: no path, no slash at the end.
fn check_origin(origin: &str) -> Result<(), ServerError> {
    let bad = || Err(ServerError::BadOrigin { origin: origin.to_owned() });
    if origin == "*" || origin == "null" {
        return Ok(());
    }
    match origin.parse::<Uri>() {
        Ok(uri)
            if uri.scheme().is_some() && uri.authority().is_some() && !origin.ends_with('/') && uri.path() == "/" =>
        {
            Ok(())
        }
        _ => bad(),
    }
}

/// The addresses that a host and port mean: an IP address, or a name that the system resolves.
pub fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, ServerError> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let failed = |problem: String| ServerError::BadHost { host: host.to_owned(), problem };
    let found: BTreeSet<SocketAddr> =
        (bare, port).to_socket_addrs().map_err(|error| failed(error.to_string()))?.collect();
    if found.is_empty() {
        return Err(failed("the name has no address".to_owned()));
    }
    Ok(found.into_iter().collect())
}

/// Keys, kept as digests: they are compared in constant time and can be shown to nobody.
#[derive(Clone, Default)]
pub struct Keys {
    digests: Vec<[u8; 32]>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys", self.digests.len())
    }
}

impl Keys {
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// Adds a key.
    pub fn add(&mut self, key: &str) -> Result<(), ServerError> {
        let bad = |problem: &str| Err(ServerError::BadKey { problem: problem.to_owned() });
        if key.len() < SHORTEST_KEY {
            return bad(&format!("it has {} characters, {SHORTEST_KEY} is the least", key.len()));
        }
        if key.len() > LONGEST_KEY {
            return bad(&format!("it has {} characters, {LONGEST_KEY} is the most", key.len()));
        }
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return bad("it has a blank or a character that is not printable ASCII, which no HTTP header holds");
        }
        self.digests.push(digest(key.as_bytes()));
        Ok(())
    }

    /// Adds the keys of a file, one a line. Gives what the operator should know about the file.
    pub fn add_file(&mut self, path: &Path) -> Result<Option<String>, ServerError> {
        let failed = |problem: String| ServerError::BadKeyFile { path: path.to_owned(), problem };
        let metadata = fs_err::metadata(path).map_err(|error| failed(error.to_string()))?;
        if metadata.len() > LONGEST_KEY_FILE {
            return Err(failed(format!("it has {} bytes, {LONGEST_KEY_FILE} is the most", metadata.len())));
        }
        let text = fs_err::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        let before = self.digests.len();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            self.add(line).map_err(|error| failed(format!("line {}: {error}", number + 1)))?;
        }
        if self.digests.len() == before {
            return Err(failed("it holds no key".to_owned()));
        }
        Ok(readable_by_others(&metadata)
            .then(|| format!("other users can read the keys in `{}`: `chmod 600 {}`", path.display(), path.display())))
    }

    /// Whether this is one of the keys. The time does not tell how much of it was right.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        let given = digest(key);
        let mut found = 0;
        for known in &self.digests {
            let difference = known.iter().zip(&given).fold(0, |all, (a, b)| all | (a ^ b));
            found |= u8::from(std::hint::black_box(difference) == 0);
        }
        found != 0
    }
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[cfg(unix)]
fn readable_by_others(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o077 != 0
}

#[cfg(not(unix))]
fn readable_by_others(_: &std::fs::Metadata) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_and_never_shown() {
        let mut keys = Keys::default();
        keys.add("right-key-1").unwrap();
        keys.add("right-key-2").unwrap();
        assert!(keys.has(b"right-key-1") && keys.has(b"right-key-2"));
        assert!(!keys.has(b"right-key-") && !keys.has(b"") && !keys.has(b"right-key-1 "));
        assert_eq!(format!("{keys:?}"), "2 keys");
        for (bad, why) in [("short", "5 characters"), ("with a blank in it", "blank"), ("schlüssel-lang", "ASCII")] {
            let error = keys.add(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(!error.contains(bad), "{error}");
        }
    }

    #[test]
    fn a_file_of_keys_is_read_by_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        fs_err::write(&path, "# for the office\n\nkey-number-one\n  key-number-two  \n").unwrap();
        let mut keys = Keys::default();
        keys.add_file(&path).unwrap();
        assert!(keys.has(b"key-number-one") && keys.has(b"key-number-two"));
        fs_err::write(&path, "# nothing\n").unwrap();
        assert!(Keys::default().add_file(&path).unwrap_err().to_string().contains("no key"));
        fs_err::write(&path, "good-enough\nbad\n").unwrap();
        assert!(Keys::default().add_file(&path).unwrap_err().to_string().contains("line 2"));
    }

    #[test]
    fn addresses_come_from_numbers_and_names() {
        assert_eq!(addresses("127.0.0.1", 1).unwrap(), ["127.0.0.1:1".parse().unwrap()]);
        assert_eq!(addresses("[::1]", 2).unwrap(), ["[::1]:2".parse().unwrap()]);
        assert!(addresses("localhost", 3).unwrap().iter().all(|address| address.ip().is_loopback()));
        assert!(addresses("no such name", 3).is_err());
    }

    #[test]
    fn an_open_address_needs_a_key_or_a_word() {
        let mut options = ServerOptions::new(vec!["0.0.0.0:1".parse().unwrap()], Arc::new(|_| {}));
        assert!(matches!(options.check(), Err(ServerError::KeyNeeded { .. })));
        options.no_key = true;
        options.check().unwrap();
        options.no_key = false;
        options.keys.add("long enough".replace(' ', "-").as_str()).unwrap();
        options.check().unwrap();
        options.origins.insert("page.example".to_owned());
        assert!(matches!(options.check(), Err(ServerError::BadOrigin { .. })));
        options.origins = ["https://page.example:8443".to_owned(), "*".to_owned(), "null".to_owned()].into();
        options.check().unwrap();
    }
}
