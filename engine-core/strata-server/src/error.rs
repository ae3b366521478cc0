//! Why a server does not start.

use std::net::SocketAddr;
use std::path::PathBuf;

use strata_diag::catalogue::serving;
use strata_diag::{Code, Diagnose};

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("{address} is taken{}", holder.as_ref().map(|holder| format!(" by {holder}")).unwrap_or_default())]
    PortInUse {
        address: SocketAddr,
        /// The program that listens there, where the system tells.
        holder: Option<String>,
    },

    #[error("cannot listen at {address}")]
    Listen { address: SocketAddr, source: std::io::Error },

    #[error("`{host}` is no address of this machine: {problem}")]
    BadHost { host: String, problem: String },

    #[error("{address} can be reached by other machines, and no key was given")]
    KeyNeeded { address: SocketAddr },

    /// Says nothing of the key itself.
    #[error("this key cannot be used: {problem}")]
    BadKey { problem: String },

    #[error("`{}` gives no keys: {problem}", path.display())]
    BadKeyFile { path: PathBuf, problem: String },

    #[error("`{origin}` is no origin of a web page")]
    BadOrigin { origin: String },

    #[error("the system gives no {what}")]
    System { what: &'static str, source: std::io::Error },
}

impl Diagnose for ServerError {
    fn code(&self) -> &'static Code {
        match self {
            ServerError::PortInUse { .. } => serving::PORT_IN_USE,
            ServerError::Listen { .. } | ServerError::BadHost { .. } => serving::LISTEN_FAILED,
            ServerError::KeyNeeded { .. } => serving::KEY_NEEDED,
            ServerError::BadKey { .. } | ServerError::BadKeyFile { .. } => serving::BAD_KEY_FILE,
            ServerError::BadOrigin { .. } => strata_diag::catalogue::general::BAD_OPTION,
            ServerError::System { .. } => serving::SERVER_FAULT,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        match self {
            ServerError::PortInUse { address, holder } => {
                let mut facts = vec![("address", address.ip().to_string()), ("port", address.port().to_string())];
                facts.extend(holder.clone().map(|holder| ("held by", holder)));
                facts
            }
            ServerError::Listen { address, .. } | ServerError::KeyNeeded { address } => {
                vec![("address", address.ip().to_string()), ("port", address.port().to_string())]
            }
            ServerError::BadHost { host, .. } => vec![("host", host.clone())],
            ServerError::BadKeyFile { path, .. } => vec![("file", path.display().to_string())],
            ServerError::BadOrigin { origin } => vec![("origin", origin.clone())],
            ServerError::BadKey { .. } | ServerError::System { .. } => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            ServerError::PortInUse { address, .. } => {
                vec![format!("take another: `--port {}`", address.port().checked_add(1).unwrap_or(8080))]
            }
            ServerError::Listen { address, .. } if address.port() < 1024 && address.port() != 0 => {
                vec!["ports below 1024 are for the system's own programs: `--port 8080`".to_owned()]
            }
            ServerError::Listen { .. } | ServerError::BadHost { .. } => {
                vec!["for this machine only, leave `--host` out; for all of its addresses, `--host 0.0.0.0`".to_owned()]
            }
            ServerError::KeyNeeded { .. } => vec![
                "give one: `--api-key-file FILE`, or the environment variable STRATA_API_KEY".to_owned(),
                "or say that everybody who reaches it may use it: `--no-api-key`".to_owned(),
            ],
            ServerError::BadKey { .. } | ServerError::BadKeyFile { .. } => {
                vec!["make one: `openssl rand -hex 24`".to_owned()]
            }
            ServerError::BadOrigin { .. } => {
                vec!["scheme and host as browsers send them: `--cors-origin https://page.example`".to_owned()]
            }
            ServerError::System { .. } => Vec::new(),
        }
    }
}
