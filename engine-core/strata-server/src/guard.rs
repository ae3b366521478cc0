//! Who may ask: the host that a request is for, the web page that it comes from, its key.
//!
//! A page that somebody visits can send requests to servers on their machine, and make a name of its
//! own mean 127.0.0.1. So a server without a key takes only requests for hosts and from origins that
//! nobody else can have. With a key neither helps an attacker, since browsers do not add the key by
//! themselves.

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, AUTHORIZATION, HOST, ORIGIN,
    VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use std::net::IpAddr;
use strata_diag::catalogue::serving::{BAD_REQUEST, NOT_ALLOWED, WRONG_KEY};

use crate::api_error::ApiError;
use crate::options::ServerOptions;

/// Paths that need no key: whether the server is well, and files that are the same for everybody.
pub(crate) fn is_public(path: &str) -> bool {
    matches!(path, "/health" | "/" | "/favicon.ico") || crate::page::is_file(path)
}

/// Whether this request may go on. Its body was not touched yet.
pub(crate) fn check(options: &ServerOptions, request: &Request<Body>) -> Result<(), ApiError> {
    if options.keys.is_empty() {
        check_host(options, request)?;
        return check_origin(options, request);
    }
    if is_public(request.uri().path()) { Ok(()) } else { check_key(options, request.headers()) }
}

/// The host that a request is for, without its port.
fn host(request: &Request<Body>) -> Option<&str> {
    request.uri().host().or_else(|| {
        let value = request.headers().get(HOST)?.to_str().ok()?;
        Some(match value.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or(rest),
            None => value.split(':').next().unwrap_or(value),
        })
    })
}

fn check_host(options: &ServerOptions, request: &Request<Body>) -> Result<(), ApiError> {
    let Some(host) = host(request) else {
        // No browser leaves it out.
        return if request.version() == Version::HTTP_11 {
            Err(ApiError::new(StatusCode::BAD_REQUEST, BAD_REQUEST, "the request has no `Host` header"))
        } else {
            Ok(())
        };
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    let is_own = host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok();
    let is_named = options.hosts.iter().any(|name| name == "*" || name.eq_ignore_ascii_case(host));
    if is_own || is_named {
        return Ok(());
    }
    let shown: String = host.chars().take(100).collect();
    Err(ApiError::new(
        StatusCode::FORBIDDEN,
        NOT_ALLOWED,
        format!("this server does not answer for the host `{shown}`"),
    )
    .hint(format!("if the name is yours, start the server with `--allow-host {shown}`")))
}

fn allows_origin(options: &ServerOptions, origin: &str) -> bool {
    options.origins.iter().any(|allowed| allowed == "*" || allowed == origin)
}

/// Whether the page has the address that the request goes to: the server's own.
fn is_own_origin(headers: &HeaderMap, origin: &str) -> bool {
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    let host = headers.get(HOST).and_then(|value| value.to_str().ok());
    authority.is_some() && authority == host
}

fn check_origin(options: &ServerOptions, request: &Request<Body>) -> Result<(), ApiError> {
    let Some(origin) = request.headers().get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or("?");
    if is_public(request.uri().path()) || is_own_origin(request.headers(), origin) || allows_origin(options, origin) {
        return Ok(());
    }
    let shown: String = origin.chars().take(100).collect();
    let message = format!("this server does not answer web pages of `{shown}`");
    Err(ApiError::new(StatusCode::FORBIDDEN, NOT_ALLOWED, message)
        .hint(format!("if the page may use it, start the server with `--cors-origin {shown}`")))
}

fn check_key(options: &ServerOptions, headers: &HeaderMap) -> Result<(), ApiError> {
    let key = key(headers);
    let message = match key {
        Some(key) if options.keys.has(key) => return Ok(()),
        Some(_) => "the key is none of this server's",
        None => "a key is needed: `Authorization: Bearer KEY`",
    };
    Err(ApiError::new(StatusCode::UNAUTHORIZED, WRONG_KEY, message).named("invalid_api_key"))
}

/// The key that a request carries, in the header of OpenAI's clients or of Anthropic's.
fn key(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked("bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes().trim_ascii()))
}

/// The answer to a browser that asks before it sends a page's request.
pub(crate) fn preflight(options: &ServerOptions, request: &Request<Body>) -> Option<Response<Body>> {
    if request.method() != Method::OPTIONS {
        return None;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let asked = request.headers();
    let headers = response.headers_mut();
    headers.insert("allow", HeaderValue::from_static("GET, POST, OPTIONS"));
    if add_origin(options, asked, headers) {
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, OPTIONS"));
        let wanted = asked.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        let usual = HeaderValue::from_static("authorization, content-type, x-api-key, anthropic-version");
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.unwrap_or(usual));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        if asked.contains_key("access-control-request-private-network") {
            headers.insert("access-control-allow-private-network", HeaderValue::from_static("true"));
        }
    }
    Some(response)
}

/// Lets the page that asked read the response, if its origin was named.
pub(crate) fn add_origin(options: &ServerOptions, asked: &HeaderMap, headers: &mut HeaderMap) -> bool {
    if options.origins.is_empty() {
        return false;
    }
    headers.append(VARY, HeaderValue::from_static("origin"));
    let Some(origin) = asked.get(ORIGIN) else { return false };
    if !origin.to_str().is_ok_and(|origin| allows_origin(options, origin)) {
        return false;
    }
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("x-request-id, request-id, retry-after"));
    true
}
