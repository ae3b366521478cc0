//! One HTTP request: proxies, redirects by hand so that credentials stay at their origin, addresses that
//! expire, and every failure told as what it is.
//!
//! Each connection has a [`Line`], a runtime of one thread and a client of its own: the thread that waits for
//! bytes is the one that reads them, so nothing is handed from thread to thread on the way to the disk.

use crate::source::Resolved;
use crate::{FetchError, Names, Settings, tls};
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderValue, IF_RANGE, LOCATION, RANGE, RETRY_AFTER,
};
use reqwest::{Method, Response};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use url::Url;

const MAX_REDIRECTS: usize = 10;
/// How often a server that was redirected to may refuse a freshly made address, before that is believed.
const MAX_REFUSALS: u32 = 4;
/// Longest pause that a server can ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(15 * 60);
/// More of a small answer is not read.
const MAX_TEXT: usize = 32 << 20;

/// Makes lines, and keeps those that are not in use.
#[derive(Debug)]
pub(crate) struct Clients {
    config: rustls::ClientConfig,
    stall: Duration,
    connect: Duration,
    names: Option<Names>,
    idle: Mutex<Vec<Line>>,
}

/// A thread's own way to the network.
#[derive(Debug)]
pub(crate) struct Line {
    runtime: Option<tokio::runtime::Runtime>,
    http: reqwest::Client,
}

impl Drop for Line {
    fn drop(&mut self) {
        // A name that is being looked up must not hold the program up.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Line {
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        match &self.runtime {
            Some(runtime) => runtime.block_on(work),
            None => unreachable!("only dropping takes it"),
        }
    }
}

/// A line that goes back to the others when it is dropped.
#[derive(Debug)]
pub(crate) struct Lent<'a> {
    line: Option<Line>,
    clients: &'a Clients,
}

impl std::ops::Deref for Lent<'_> {
    type Target = Line;

    fn deref(&self) -> &Line {
        match &self.line {
            Some(line) => line,
            None => unreachable!("only dropping takes it"),
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.clients.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(self.line.take());
    }
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

/// The way to a file: its address, and where that redirected to last. What a redirection names may hold a
/// signature that expires, so it is kept in memory only and asked for anew when it is refused.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) origin: Url,
    authorization: Option<HeaderValue>,
    through: Mutex<Option<Url>>,
    refusals: AtomicU32,
}

impl Route {
    pub(crate) fn new(resolved: &Resolved) -> Result<Route, FetchError> {
        let bad = || FetchError::Source {
            source_text: resolved.source.clone(),
            why: "its token holds bytes that no header may hold".to_owned(),
        };
        let value = resolved.authorization.as_deref().map(|text| {
            let mut value = HeaderValue::from_str(text).map_err(|_| bad())?;
            value.set_sensitive(true);
            Ok::<_, FetchError>(value)
        });
        Ok(Route {
            origin: resolved.url.clone(),
            authorization: value.transpose()?,
            through: Mutex::new(None),
            refusals: AtomicU32::new(0),
        })
    }

    fn through(&self) -> Option<Url> {
        self.through.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_through(&self, url: Option<Url>) {
        *self.through.lock().unwrap_or_else(PoisonError::into_inner) = url;
    }
}

impl Clients {
    pub(crate) fn new(settings: &Settings) -> Result<Clients, FetchError> {
        Ok(Clients {
            config: tls::config(settings)?,
            stall: settings.stall,
            connect: settings.connect,
            names: settings.names.clone(),
            idle: Mutex::new(Vec::new()),
        })
    }

    /// A line for the calling thread.
    pub(crate) fn line(&self) -> Result<Lent<'_>, FetchError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let line = match idle {
            Some(line) => line,
            None => self.make()?,
        };
        Ok(Lent { line: Some(line), clients: self })
    }

    fn make(&self) -> Result<Line, FetchError> {
        // A star means everything, addresses of numbers too.
        let all_direct = ["NO_PROXY", "no_proxy"]
            .iter()
            .any(|name| std::env::var(name).is_ok_and(|value| value.split(',').any(|part| part.trim() == "*")));
        let mut builder = reqwest::Client::builder();
        if all_direct {
            builder = builder.no_proxy();
        }
        if let Some(names) = &self.names {
            builder = builder.dns_resolver(Arc::new(names.clone()));
        }
        let http = builder
            .tls_backend_preconfigured(self.config.clone())
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(self.connect)
            .read_timeout(self.stall)
            .tcp_keepalive(Duration::from_secs(20))
            .user_agent(concat!("strata-setup/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| FetchError::Start { source: std::io::Error::other(chain(&error)) })?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| FetchError::Start { source })?;
        Ok(Line { runtime: Some(runtime), http })
    }
}

impl Line {
    /// Headers of the first answer that is no redirection inside the origin: what the hub says of a file
    /// before it sends anybody to its store.
    pub(crate) async fn head(&self, route: &Route, name: &str) -> Result<Response, Trouble> {
        let mut url = route.origin.clone();
        for _ in 0..MAX_REDIRECTS {
            let response = self.send(Method::HEAD, route, &url, None).await?;
            match redirection(&response, &url) {
                Redirection::To(next) if next.origin() == url.origin() => url = next,
                // Elsewhere: what stands in these headers is what was asked for.
                Redirection::To(_) | Redirection::Refused => return Ok(response),
                Redirection::None => return judged(response, name),
            }
        }
        Err(Trouble::Final(lost(&url, name, format!("more than {MAX_REDIRECTS} redirections"))))
    }

    /// A small answer as text, with its headers.
    pub(crate) async fn text(&self, route: &Route, name: &str) -> Result<(HeaderMap, String), Trouble> {
        let mut response = self.get(route, None, name).await?;
        let headers = response.headers().clone();
        let mut bytes = Vec::new();
        while let Some(more) = response.chunk().await.map_err(|error| failed(&error, &route.origin))? {
            if bytes.len() + more.len() > MAX_TEXT {
                let what = format!("an answer of more than {MAX_TEXT} bytes");
                return Err(Trouble::Final(lost(&route.origin, name, what)));
            }
            bytes.extend_from_slice(&more);
        }
        Ok((headers, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Asks for a file or a part of it, following redirects.
    pub(crate) async fn get(&self, route: &Route, part: Option<&Part>, name: &str) -> Result<Response, Trouble> {
        if let Some(url) = route.through() {
            let response = self.send(Method::GET, route, &url, part).await;
            match response {
                Ok(response) if matches!(response.status().as_u16(), 200 | 206 | 416) => return Ok(response),
                // Expired, moved or withdrawn: the origin knows where it is now.
                Ok(response) if response.status().is_redirection() || response.status().is_client_error() => {
                    route.set_through(None);
                    if response.status().as_u16() == 429 {
                        return judged(response, name);
                    }
                }
                Ok(response) => {
                    route.set_through(None);
                    return judged(response, name);
                }
                Err(trouble) => {
                    route.set_through(None);
                    return Err(trouble);
                }
            }
        }
        let mut url = route.origin.clone();
        for hops in 0..MAX_REDIRECTS {
            let response = self.send(Method::GET, route, &url, part).await?;
            match redirection(&response, &url) {
                Redirection::To(next) => url = next,
                Redirection::Refused => {
                    return Err(Trouble::Final(lost(&url, name, "a redirection that leads nowhere".into())));
                }
                Redirection::None => return settled(route, response, (&url, hops), name),
            }
        }
        Err(Trouble::Final(lost(&url, name, format!("more than {MAX_REDIRECTS} redirections"))))
    }

    async fn send(&self, method: Method, route: &Route, url: &Url, part: Option<&Part>) -> Result<Response, Trouble> {
        let mut request =
            self.http.request(method, url.clone()).header(ACCEPT, "*/*").header(ACCEPT_ENCODING, "identity");
        if url.origin() == route.origin.origin()
            && let Some(authorization) = &route.authorization
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

/// Where an answer sends to.
enum Redirection {
    None,
    To(Url),
    /// Nowhere, or where nobody should go.
    Refused,
}

fn redirection(response: &Response, url: &Url) -> Redirection {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Redirection::None;
    }
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let next = location.and_then(|location| url.join(location).ok());
    let next = next.filter(|next| matches!(next.scheme(), "http" | "https"));
    // Never from a protected connection to an open one.
    let next = next.filter(|next| !(url.scheme() == "https" && next.scheme() == "http"));
    next.map_or(Redirection::Refused, Redirection::To)
}

/// The answer at the end of `hops` redirections.
fn settled(route: &Route, response: Response, (url, hops): (&Url, usize), name: &str) -> Result<Response, Trouble> {
    let status = response.status().as_u16();
    if hops > 0 && matches!(status, 400 | 401 | 403 | 404 | 410) {
        // An address may expire between being made and being used; a real refusal stays one.
        let refusals = route.refusals.fetch_add(1, Ordering::Relaxed);
        if refusals < MAX_REFUSALS {
            let why = format!("{} answers {status} to an address that was made just now", host(url));
            return Err(Trouble::Again { why, pause: None });
        }
    }
    let response = judged(response, name)?;
    route.refusals.store(0, Ordering::Relaxed);
    if hops > 0 {
        route.set_through(Some(url.clone()));
    }
    Ok(response)
}

fn lost(url: &Url, name: &str, what: String) -> FetchError {
    FetchError::Page { name: name.to_owned(), host: host(url), what }
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

pub(crate) fn failed(error: &reqwest::Error, url: &Url) -> Trouble {
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
        _ => {
            let reason = response.headers().get("x-error-message").and_then(|value| value.to_str().ok());
            let reason = reason.map(|text| text.chars().filter(|c| !c.is_control()).take(200).collect());
            let (name, host) = (name.to_owned(), host(response.url()));
            Err(Trouble::Final(FetchError::Status { name, host, status, reason }))
        }
    }
}

/// Seconds, or a date; never longer than a clock that jumps or a server that lies should cost.
fn retry_after(text: &str) -> Option<Duration> {
    let pause = match text.trim().parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::now()).ok()?,
    };
    Some(pause.min(LONGEST_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_that_servers_ask_for_are_bounded() {
        assert_eq!(retry_after("3"), Some(Duration::from_secs(3)));
        assert_eq!(retry_after("99999999999"), Some(LONGEST_RETRY_AFTER));
        let far = SystemTime::now() + Duration::from_secs(10 * 365 * 24 * 3600);
        assert_eq!(retry_after(&httpdate::fmt_http_date(far)), Some(LONGEST_RETRY_AFTER));
        assert_eq!(retry_after("Fri, 31 Dec 1999 23:59:59 GMT"), None);
        assert_eq!(retry_after("soon"), None);
    }
}
