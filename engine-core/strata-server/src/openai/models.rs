//! `GET /v1/models` and `/v1/models/{name}`.

use axum::http::StatusCode;
use serde_json::{Value, json};
use strata_diag::catalogue::general::MODEL_NOT_FOUND;

use crate::api_error::ApiError;
use crate::room::{Facts, Room};

/// Changes when the same seed may give another text: another model, backend or version.
pub(crate) fn fingerprint(facts: &Facts) -> String {
    let backend = facts.about.get("backend").and_then(|backend| backend.get("plugin")).and_then(Value::as_str);
    format!("strata-{}-{}", env!("CARGO_PKG_VERSION"), backend.unwrap_or("none"))
}

fn model(facts: &Facts) -> Value {
    json!({
        "id": facts.model,
        "object": "model",
        "created": facts.created,
        "owned_by": "strata",
        "context_length": facts.context,
        "meta": {
            "n_ctx": facts.context,
            "n_ctx_train": facts.trained_context,
            "n_vocab": facts.vocabulary,
            "n_params": facts.parameters,
            "chat_template": facts.template.is_some(),
            "embeddings": facts.embeds,
        },
    })
}

pub(crate) fn list(room: &dyn Room) -> Value {
    json!({ "object": "list", "data": [model(room.facts())] })
}

pub(crate) fn one(room: &dyn Room, name: &str) -> Result<Value, ApiError> {
    let facts = room.facts();
    if facts.model == name {
        return Ok(model(facts));
    }
    let shown: String = name.chars().take(100).collect();
    let message = format!("there is no model `{shown}` here; this server has `{}`", facts.model);
    Err(ApiError::new(StatusCode::NOT_FOUND, MODEL_NOT_FOUND, message).about("model").named("model_not_found"))
}
