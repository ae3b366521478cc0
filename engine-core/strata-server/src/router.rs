//! The paths, and what each leads to.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode};
use axum::routing::{get, post};
use serde_json::Value;
use strata_diag::catalogue::serving::{NO_SUCH_PATH, SERVER_FAULT};

use crate::api_error::{ApiError, Dialect};
use crate::app::App;
use crate::connection::{RequestId, respond};
use crate::drive::Context;
use crate::openai::{chat, completions, embeddings, models, responses};
use crate::wire::Wire;
use crate::{anthropic, metrics, page, status};

/// All paths.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new()
        .route("/health", get(health))
        .route("/metrics", get(figures))
        .route("/openapi.json", get(description))
        .route("/v1/status", get(server_status))
        .route("/v1/models", get(model_list))
        .route("/v1/models/{*name}", get(model))
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/completions", post(text_completions))
        .route("/v1/responses", post(stateless_responses))
        .route("/v1/embeddings", post(embeddings_of_texts))
        .route("/v1/messages", post(messages))
        .route("/v1/messages/count_tokens", post(count_tokens))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method);
    if app.options.page {
        router = page::add(router);
    }
    router.with_state(Arc::clone(app))
}

/// A response of JSON.
pub(crate) fn json(value: &Value) -> Response<Body> {
    json_with(StatusCode::OK, value)
}

pub(crate) fn json_with(status: StatusCode, value: &Value) -> Response<Body> {
    text_with(status, "application/json", format!("{value}\n"))
}

pub(crate) fn text_with(status: StatusCode, kind: &'static str, text: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// What a handler that answers with the model needs.
fn context(app: &Arc<App>, request: &Request<Body>, path: &'static str) -> Result<Context, ApiError> {
    let missing = || ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, SERVER_FAULT, "the request lost its name");
    Ok(Context {
        app: Arc::clone(app),
        room: app.room()?,
        id: request.extensions().get::<RequestId>().cloned().ok_or_else(missing)?,
        wire: request.extensions().get::<Arc<Wire>>().cloned().ok_or_else(missing)?,
        path,
    })
}

async fn health(State(app): State<Arc<App>>) -> Response<Body> {
    status::health(&app)
}

/// What the paths take and give, for programs that generate clients or tests.
const DESCRIPTION: &str = include_str!("../openapi.json");

async fn description() -> Response<Body> {
    text_with(StatusCode::OK, "application/json", DESCRIPTION)
}

async fn figures(State(app): State<Arc<App>>) -> Response<Body> {
    text_with(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics::text(&app))
}

async fn server_status(State(app): State<Arc<App>>) -> Response<Body> {
    json(&status::status(&app))
}

async fn model_list(State(app): State<Arc<App>>) -> Response<Body> {
    respond(app.room().map(|room| json(&models::list(&*room))), Dialect::OpenAi)
}

async fn model(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response<Body> {
    let answer = app.room().and_then(|room| models::one(&*room, &name)).map(|model| json(&model));
    respond(answer, Dialect::OpenAi)
}

/// A handler that answers with the model: its name, path, dialect and work.
macro_rules! answered {
    ($name:ident, $path:literal, $dialect:ident, $work:path) => {
        async fn $name(State(app): State<Arc<App>>, request: Request<Body>) -> Response<Body> {
            let answer = match context(&app, &request, $path) {
                Ok(context) => $work(context, request).await,
                Err(error) => Err(error),
            };
            respond(answer, Dialect::$dialect)
        }
    };
}
answered!(chat_completions, "/v1/chat/completions", OpenAi, chat::answer);
answered!(text_completions, "/v1/completions", OpenAi, completions::answer);
answered!(stateless_responses, "/v1/responses", OpenAi, responses::answer);
answered!(embeddings_of_texts, "/v1/embeddings", OpenAi, embeddings::answer);
answered!(messages, "/v1/messages", Anthropic, anthropic::answer);
answered!(count_tokens, "/v1/messages/count_tokens", Anthropic, anthropic::count);

async fn no_such_path(request: Request<Body>) -> Response<Body> {
    let path = request.uri().path();
    let shown: String = path.chars().take(100).collect();
    ApiError::new(StatusCode::NOT_FOUND, NO_SUCH_PATH, format!("there is nothing at `{shown}`"))
        .hint("the base address of OpenAI's clients ends in `/v1`, that of Anthropic's does not")
        .into_response(Dialect::of_path(path))
}

async fn no_such_method(method: Method, request: Request<Body>) -> Response<Body> {
    let path = request.uri().path();
    let message = format!("`{path}` is not for {method}");
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, NO_SUCH_PATH, message).into_response(Dialect::of_path(path))
}
