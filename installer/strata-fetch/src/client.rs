//! One HTTP request: trust, proxies, redirects by hand so that credentials stay at their origin, and every
//! failure told as what it is.

use crate::source::Resolved;
use crate::{FetchError, Settings};
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, IF_RANGE, LOCATION, RANGE, RETRY_AFTER};
use reqwest::{Method, Response};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use url::Url;

const MAX_REDIRECTS: usize = 10;
/// Bundles of distributions, in the order in which one is taken.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
}

/// Why a request gave nothing to use.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Worth another try, after this pause if the server named one.
    Again { why: String, pause: Option<Duration> },
    /// Trying again changes nothing.
    Final(FetchError),
}

/// Bytes `first..=last`, and the validator that they have to belong to.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) first: u64,
    pub(crate) last: Option<u64>,
    pub(crate) validator: Option<String>,
}

impl Client {
    pub(crate) fn new(settings: &Settings) -> Result<Client, FetchError> {
        let config = tls(settings)?;
        // A star means everything, addresses of numbers too.
        let all_direct = ["NO_PROXY", "no_proxy"]
            .iter()
            .any(|name| std::env::var(name).is_ok_and(|value| value.split(',').any(|part| part.trim() == "*")));
        let builder = reqwest::Client::builder();
        let builder = if all_direct { builder.no_proxy() } else { builder };
        let http = builder
            .tls_backend_preconfigured(config)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(20))
            .read_timeout(settings.stall)
            .tcp_keepalive(Duration::from_secs(20))
            .user_agent(concat!("strata-setup/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| FetchError::Start { source: std::io::Error::other(chain(&error)) })?;
        Ok(Client { http })
    }

    /// Headers of the first answer, redirects not followed.
    pub(crate) async fn head(&self, resolved: &Resolved) -> Result<HeaderMap, Trouble> {
        let response = self.send(Method::HEAD, resolved, &resolved.url, None).await?;
        Ok(response.headers().clone())
    }

    /// Asks for a file or a part of it, following redirects.
    pub(crate) async fn get(&self, resolved: &Resolved, part: Option<&Part>, name: &str) -> Result<Response, Trouble> {
        let mut url = resolved.url.clone();
        for _ in 0..MAX_REDIRECTS {
            let response = self.send(Method::GET, resolved, &url, part).await?;
            let status = response.status();
            if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                return judged(response, name);
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let next = location.and_then(|location| url.join(location).ok());
            let next = next.filter(|next| matches!(next.scheme(), "http" | "https"));
            // Never from a protected connection to an open one.
            let next = next.filter(|next| !(url.scheme() == "https" && next.scheme() == "http"));
            let Some(next) = next else {
                let host = host(&url);
                let what = "a redirection that leads nowhere".to_owned();
                return Err(Trouble::Final(FetchError::Page { name: name.to_owned(), host, what }));
            };
            url = next;
        }
        let what = format!("more than {MAX_REDIRECTS} redirections");
        Err(Trouble::Final(FetchError::Page { name: name.to_owned(), host: host(&url), what }))
    }

    async fn send(
        &self,
        method: Method,
        resolved: &Resolved,
        url: &Url,
        part: Option<&Part>,
    ) -> Result<Response, Trouble> {
        let mut request =
            self.http.request(method, url.clone()).header(ACCEPT, "*/*").header(ACCEPT_ENCODING, "identity");
        if url.origin() == resolved.url.origin()
            && let Some(authorization) = &resolved.authorization
        {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some(part) = part {
            let last = part.last.map(|last| last.to_string()).unwrap_or_default();
            request = request.header(RANGE, format!("bytes={}-{last}", part.first));
            if let Some(validator) = &part.validator {
                request = request.header(IF_RANGE, validator);
            }
        }
        request.send().await.map_err(|error| failed(&error, url))
    }
}

pub(crate) fn host(url: &Url) -> String {
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => "nowhere".to_owned(),
    }
}

/// An error with what caused it, without addresses, which may hold signatures.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        let text = text.split(" for url (").next().unwrap_or(&text).to_owned();
        if words.last().is_none_or(|last| !last.contains(&text)) {
            words.push(text);
        }
        next = error.source();
    }
    words.join(": ")
}

fn failed(error: &reqwest::Error, url: &Url) -> Trouble {
    let why = chain(error);
    let lower = why.to_ascii_lowercase();
    if lower.contains("invalid peer certificate") || lower.contains("certificate") && lower.contains("unknown") {
        return Trouble::Final(FetchError::Tls { host: host(url), why });
    }
    Trouble::Again { why, pause: None }
}

/// Sorts answers into those to use, to try again and to give up on.
fn judged(response: Response, name: &str) -> Result<Response, Trouble> {
    let status = response.status().as_u16();
    match status {
        200 | 206 | 416 => Ok(response),
        408 | 425 | 429 | 500..=599 => {
            let pause = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(retry_after);
            Err(Trouble::Again { why: format!("{} answers {status}", host(response.url())), pause })
        }
        _ => Err(Trouble::Final(FetchError::Status { name: name.to_owned(), host: host(response.url()), status })),
    }
}

/// Seconds, or a date.
fn retry_after(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).ok()
}

/// The system's authorities, those of the environment, and the file that was named: one adds to the other.
fn tls(settings: &Settings) -> Result<rustls::ClientConfig, FetchError> {
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
