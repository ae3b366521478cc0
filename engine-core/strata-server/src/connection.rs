//! One connection: HTTP/1.1 over its socket, with limits on heads and idleness; every request passes
//! the guard, then goes to the router.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, Version};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;

use crate::api_error::{ApiError, Dialect};
use crate::app::{App, Stage};
use crate::guard;
use crate::wire::{Busy, SharedSocket, Wire, linger};

/// A head must be there in this time, and a connection without a request is closed after it.
const HEAD: Duration = Duration::from_secs(30);
/// Longest head, bytes.
const LONGEST_HEAD: usize = 64 << 10;
const MOST_HEADERS: usize = 100;

/// Serves a connection until it ends, its client goes, or the server stops.
pub(crate) async fn serve(stream: TcpStream, app: Arc<App>, router: Router) {
    // Tokens shall go out as they come.
    let _ = stream.set_nodelay(true);
    let stream = Arc::new(stream);
    let wire = Arc::new(Wire::default());
    let service = TowerToHyperService::new(router);
    let answer = |request: Request<Incoming>| {
        let (app, service, wire) = (Arc::clone(&app), service.clone(), Arc::clone(&wire));
        async move { Ok::<_, Infallible>(answer(&app, &service, &wire, request.map(Body::new)).await) }
    };
    let socket = SharedSocket { stream: Arc::clone(&stream), wire: Arc::clone(&wire) };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(LONGEST_HEAD)
        .max_headers(MOST_HEADERS)
        // The wire tells who has gone.
        .half_close(true);
    let connection = http.serve_connection(TokioIo::new(socket), service_fn(answer));
    let mut connection = std::pin::pin!(connection);
    let mut stage = app.stage.subscribe();
    let mut gone = std::pin::pin!(wire.wait_for_gone(&stream));
    loop {
        tokio::select! {
            // Whatever ended it, the client sees the same: a closed connection.
            _ = connection.as_mut() => break,
            () = gone.as_mut() => return,
            changed = stage.wait_for(|stage| *stage != Stage::Running), if *app.stage.borrow() == Stage::Running => {
                drop(changed);
                connection.as_mut().graceful_shutdown();
            }
        }
    }
    linger(&stream).await;
}

async fn answer(
    app: &Arc<App>,
    service: &TowerToHyperService<Router>,
    wire: &Arc<Wire>,
    mut request: Request<Body>,
) -> Response<Body> {
    let busy = wire.busy(request.version() < Version::HTTP_11);
    let id = RequestId::fresh();
    let asked = request.headers().clone();
    let path = request.uri().path().to_owned();
    let dialect = Dialect::of_path(&path);
    request.extensions_mut().insert(id.clone());
    request.extensions_mut().insert(Arc::clone(wire));
    let mut response = match guard::preflight(&app.options, &request) {
        Some(response) => response,
        None => match guard::check(&app.options, &request) {
            Ok(()) => match service.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
            Err(error) => error.into_response(dialect),
        },
    };
    guard::add_origin(&app.options, &asked, response.headers_mut());
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        headers.insert("x-request-id", value.clone());
        headers.insert("request-id", value);
    }
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    app.metrics.responded(&path, response.status());
    let failed = response.status().is_client_error() || response.status().is_server_error();
    // Probes ask again and again while a model is loaded.
    if failed && path != "/health" {
        app.log(&format!("{} {path}: {}", id.0, response.status()));
    }
    wire.begin_response();
    response.map(|body| Body::new(Guarded { body, _busy: busy }))
}

/// The name of a request in logs, headers and tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestId(pub(crate) String);

impl RequestId {
    fn fresh() -> RequestId {
        RequestId(format!("req_{}", random_name()))
    }
}

/// 24 characters that nobody guesses.
pub(crate) fn random_name() -> String {
    const LETTERS: &[u8] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = [0; 24];
    // Without the system's randomness names would only be less unique.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}

/// A body that keeps its request's mark until it has gone out.
struct Guarded {
    body: Body,
    _busy: Busy,
}

impl hyper::body::Body for Guarded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What every handler may fail with, as a response.
pub(crate) fn respond(result: Result<Response<Body>, ApiError>, dialect: Dialect) -> Response<Body> {
    result.unwrap_or_else(|error| error.into_response(dialect))
}
