//! What goes wrong with one request, and how each interface says so: OpenAI's error object,
//! Anthropic's, both with Strata's own code, facts and hints beside the fields that they define.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};
use strata_diag::catalogue::{plugin, serving};
use strata_diag::{Code, Diagnostic};

use crate::room::{Failure, FailureKind};

/// Whose clients are spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    OpenAi,
    Anthropic,
}

impl Dialect {
    /// By the path of a request.
    pub(crate) fn of_path(path: &str) -> Dialect {
        let anthropic = path == "/v1/messages" || path.starts_with("/v1/messages/");
        if anthropic { Dialect::Anthropic } else { Dialect::OpenAi }
    }
}

/// A request that gets no answer, with the reason.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) diagnostic: Box<Diagnostic>,
    /// The request's field, when one is at fault.
    pub(crate) param: Option<String>,
    /// OpenAI's own name for the fault, where it has one that clients look at.
    name: Option<&'static str>,
    retry_after: Option<u64>,
    /// Further fields of the error object.
    numbers: Vec<(&'static str, u64)>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static Code, message: impl Into<String>) -> ApiError {
        let diagnostic = Box::new(Diagnostic::new(code, message));
        ApiError { status, diagnostic, param: None, name: None, retry_after: None, numbers: Vec::new() }
    }

    /// A field that is not what it has to be.
    pub(crate) fn field(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, serving::BAD_REQUEST, message).about(param)
    }

    /// A field that asks for what is not here.
    pub(crate) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, serving::UNSUPPORTED, message).about(param).named("unsupported_value")
    }

    pub(crate) fn about(mut self, param: impl Into<String>) -> ApiError {
        self.param = Some(param.into());
        self
    }

    pub(crate) fn named(mut self, name: &'static str) -> ApiError {
        self.name = Some(name);
        self
    }

    pub(crate) fn hint(mut self, line: impl Into<String>) -> ApiError {
        self.diagnostic.hints.push(line.into());
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> ApiError {
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) fn message(&self) -> &str {
        &self.diagnostic.message
    }

    /// OpenAI's word for the class of fault.
    fn openai_type(&self) -> &'static str {
        match self.status {
            _ if self.diagnostic.code == plugin::OUT_OF_MEMORY => "out_of_memory",
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn anthropic_type(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            status if status.is_server_error() => "api_error",
            _ => "invalid_request_error",
        }
    }

    /// The error object in the interface's own form; also what an event of a broken stream holds.
    pub(crate) fn to_json(&self, dialect: Dialect) -> Value {
        let strata = json!({
            "code": self.diagnostic.code.id,
            "kind": self.diagnostic.code.name.replace('-', "_"),
            "facts": self.diagnostic.facts.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect::<Map<_, _>>(),
            "hints": self.diagnostic.hints,
        });
        let mut message = self.diagnostic.message.clone();
        for cause in &self.diagnostic.causes {
            message = format!("{message}: {cause}");
        }
        match dialect {
            Dialect::OpenAi => {
                let mut error = json!({
                    "message": message,
                    "type": self.openai_type(),
                    "param": self.param,
                    "code": self.name,
                    "strata": strata,
                });
                for (name, number) in &self.numbers {
                    error[*name] = json!(number);
                }
                json!({ "error": error })
            }
            Dialect::Anthropic => {
                let message = match &self.param {
                    Some(param) if !message.contains(param.as_str()) => format!("{param}: {message}"),
                    _ => message,
                };
                let error = json!({ "type": self.anthropic_type(), "message": message, "strata": strata });
                json!({ "type": "error", "error": error })
            }
        }
    }

    pub(crate) fn into_response(self, dialect: Dialect) -> Response<Body> {
        let mut response = Response::new(Body::from(format!("{}\n", self.to_json(dialect))));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> ApiError {
        let Failure { kind, diagnostic } = failure;
        let (status, name, numbers, param) = match kind {
            FailureKind::Refused { param } => (StatusCode::BAD_REQUEST, None, Vec::new(), param),
            FailureKind::TooLong { prompt, context } => (
                StatusCode::BAD_REQUEST,
                Some("context_length_exceeded"),
                vec![("n_prompt_tokens", prompt), ("n_ctx", context)],
                None,
            ),
            FailureKind::OutOfMemory => (StatusCode::SERVICE_UNAVAILABLE, Some("out_of_memory"), Vec::new(), None),
            FailureKind::Stopping => (StatusCode::SERVICE_UNAVAILABLE, Some("not_ready"), Vec::new(), None),
            FailureKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, None, Vec::new(), None),
        };
        let retry_after = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(1);
        ApiError { status, diagnostic, param: param.map(str::to_owned), name, retry_after, numbers }
    }
}
