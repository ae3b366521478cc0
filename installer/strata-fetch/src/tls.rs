//! Whom a connection believes: the system's authorities, those of the environment, and the file that was
//! named; one adds to the other.

use crate::{FetchError, Settings};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bundles of distributions, in the order in which one is taken.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

pub(crate) fn config(settings: &Settings) -> Result<rustls::ClientConfig, FetchError> {
    let mut roots = rustls::RootCertStore::empty();
    let mut add = |file: Option<&Path>, folder: Option<&Path>| {
        let found = rustls_native_certs::load_certs_from_paths(file, folder);
        let count = found.certs.len();
        roots.add_parsable_certificates(found.certs);
        count
    };
    if let Some(bundle) = BUNDLES.iter().map(Path::new).find(|path| path.is_file()) {
        add(Some(bundle), None);
    }
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = variable("SSL_CERT_FILE") {
        add(Some(&file), None);
    }
    if let Some(folder) = variable("SSL_CERT_DIR") {
        add(None, Some(&folder));
    }
    if let Some(file) = &settings.ca_file
        && add(Some(file), None) == 0
    {
        let source = std::io::Error::other("it holds no certificate in PEM form");
        return Err(FetchError::Unreadable { path: file.clone(), source });
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| FetchError::Start { source: std::io::Error::other(error) })?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
