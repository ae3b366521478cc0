//! Reads the body of a request: bounded in bytes and in time, then as JSON.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{Request, StatusCode};
use bytes::Buf;
use http_body_util::BodyExt;
use serde_json::Value;
use strata_diag::catalogue::serving::{BAD_REQUEST, TOO_LARGE, TOO_SLOW};

use crate::api_error::ApiError;

/// A body that stands still for so long is given up.
const PIECE: Duration = Duration::from_secs(10);
/// A body may take this long in all, and a second more for so many bytes: slower is an attack or no use.
const WHOLE: Duration = Duration::from_secs(30);
const BYTES_PER_SECOND: u64 = 16 << 10;

/// The whole body. Refused as soon as it is known to be longer than `most` bytes.
pub(crate) async fn read(request: Request<Body>, most: u64) -> Result<Vec<u8>, ApiError> {
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if let Some(length) = announced.filter(|length| *length > most) {
        return Err(too_large(Some(length), most));
    }
    let mut body = request.into_body();
    let mut bytes = Vec::new();
    let start = tokio::time::Instant::now();
    loop {
        let allowed = WHOLE + Duration::from_secs(bytes.len() as u64 / BYTES_PER_SECOND);
        let deadline = (tokio::time::Instant::now() + PIECE).min(start + allowed);
        let frame = tokio::time::timeout_at(deadline, body.frame()).await;
        let frame = frame.map_err(|_| too_slow(bytes.len(), start.elapsed()))?;
        let Some(frame) = frame else { return Ok(bytes) };
        let frame = frame.map_err(|error| {
            ApiError::new(StatusCode::BAD_REQUEST, BAD_REQUEST, format!("the body broke off: {error}"))
        })?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() as u64 + data.remaining() as u64 > most {
            return Err(too_large(None, most));
        }
        bytes.extend_from_slice(data);
    }
}

/// The body as JSON.
pub(crate) async fn json(request: Request<Body>, most: u64) -> Result<Value, ApiError> {
    let bytes = read(request, most).await?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(bad("the body is empty; a JSON object is needed".to_owned()));
    }
    // Nested deeper than 128 is refused by the parser, before its stack is in danger.
    serde_json::from_slice(&bytes).map_err(|error| bad(format!("the body is not JSON: {error}")))
}

fn bad(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, BAD_REQUEST, message)
}

fn too_large(length: Option<u64>, most: u64) -> ApiError {
    let length = length.map_or_else(|| "more".to_owned(), |length| format!("{length} bytes"));
    let message = format!("the body has {length}, {most} bytes is the most");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, TOO_LARGE, message)
}

fn too_slow(bytes: usize, taken: Duration) -> ApiError {
    let message = format!("the body did not arrive in time: {bytes} bytes in {} seconds", taken.as_secs());
    ApiError::new(StatusCode::REQUEST_TIMEOUT, TOO_SLOW, message)
}
