//! The web page: its files are part of the program, so that it works without any network. They are
//! plain JavaScript and CSS, the same for everybody, and hold nothing secret.
//!
//! The policy that goes with them lets the page load and ask nothing but this server.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY};
use axum::http::{HeaderValue, Request, Response, StatusCode};
use axum::routing::get;
use strata_diag::catalogue::serving::NO_SUCH_PATH;

use crate::api_error::{ApiError, Dialect};
use crate::app::App;
use crate::router::text_with;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Name, type and content.
const FILES: &[(&str, &str, &str)] = &[
    ("app.js", "text/javascript; charset=utf-8", include_str!("../page/app.js")),
    ("icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
    ("markdown.js", "text/javascript; charset=utf-8", include_str!("../page/markdown.js")),
    ("monitor.js", "text/javascript; charset=utf-8", include_str!("../page/monitor.js")),
    ("server.js", "text/javascript; charset=utf-8", include_str!("../page/server.js")),
    ("store.js", "text/javascript; charset=utf-8", include_str!("../page/store.js")),
    ("style.css", "text/css; charset=utf-8", include_str!("../page/style.css")),
];
const INDEX: &str = include_str!("../page/index.html");

/// Whether a path is one of the page's files.
pub(crate) fn is_file(path: &str) -> bool {
    path.strip_prefix("/page/").is_some_and(|name| FILES.iter().any(|(known, _, _)| *known == name))
}

/// Adds the page's paths.
pub(crate) fn add(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router.route("/", get(index)).route("/page/{name}", get(file)).route("/favicon.ico", get(icon))
}

async fn index() -> Response<Body> {
    page("text/html; charset=utf-8", INDEX)
}

async fn icon() -> Response<Body> {
    page("image/svg+xml", include_str!("../page/icon.svg"))
}

async fn file(Path(name): Path<String>, request: Request<Body>) -> Response<Body> {
    if let Some((_, kind, text)) = FILES.iter().find(|(known, _, _)| *known == name) {
        return page(kind, text);
    }
    let shown: String = request.uri().path().chars().take(100).collect();
    let message = format!("there is nothing at `{shown}`");
    ApiError::new(StatusCode::NOT_FOUND, NO_SUCH_PATH, message).into_response(Dialect::OpenAi)
}

fn page(kind: &'static str, text: &'static str) -> Response<Body> {
    let mut response = text_with(StatusCode::OK, kind, text);
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // Another version of the program has another page at the same address.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
