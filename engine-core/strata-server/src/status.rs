//! `/health`, for probes, and `/v1/status`, for people and the web page.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use crate::app::{App, Phase, Recent};
use crate::metrics::resident_bytes;
use crate::room::{ActiveRequest, Trouble};
use crate::router::json_with;

/// 200 when requests are answered, 503 while the model loads and when the server stops. A busy
/// server is a healthy one.
pub(crate) fn health(app: &App) -> Response<Body> {
    let (status, body) = match app.phase() {
        Phase::Loading => {
            let (done, total) = app.progress.get();
            let why = if total == 0 {
                "the model is being read".to_owned()
            } else {
                format!("loading weights: {done} of {total} bytes")
            };
            (StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "loading", "why": why, "done": done, "total": total }))
        }
        Phase::Stopping => {
            (StatusCode::SERVICE_UNAVAILABLE, json!({ "status": "stopping", "why": "it was told to stop" }))
        }
        Phase::Ready(room) => {
            let facts = room.facts();
            let trouble = room.trouble();
            let body = json!({
                "status": word(trouble.as_ref()),
                "why": trouble.as_ref().map(|trouble| &trouble.why),
                "model": facts.model,
                "backend": facts.about.get("backend"),
            });
            let serves = trouble.is_none_or(|trouble| trouble.serves);
            (if serves { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, body)
        }
    };
    let mut response = json_with(status, &body);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("2"));
    }
    response
}

fn word(trouble: Option<&Trouble>) -> &'static str {
    match trouble {
        None => "ready",
        Some(trouble) if trouble.serves => "degraded",
        Some(_) => "failed",
    }
}

/// What the server is doing.
pub(crate) fn status(app: &App) -> Value {
    let mut status = json!({
        "status": "loading",
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": app.uptime().as_secs_f64(),
        "memory": resident_bytes().map(|(own, all)| json!({ "own_bytes": own, "resident_bytes": all })),
        "queue": { "taken": app.places.taken(), "most_waiting": app.options.most_waiting },
        "recent": app.recent().iter().map(recent).collect::<Vec<_>>(),
    });
    match app.phase() {
        Phase::Loading => {
            let (done, total) = app.progress.get();
            status["progress"] = json!({ "done": done, "total": total });
        }
        Phase::Stopping => status["status"] = json!("stopping"),
        Phase::Ready(room) => {
            let trouble = room.trouble();
            status["status"] = json!(word(trouble.as_ref()));
            status["why"] = json!(trouble.map(|trouble| trouble.why));
            let facts = room.facts();
            status["model"] = json!({
                "id": facts.model,
                "context": facts.context,
                "trained_context": facts.trained_context,
                "chat_template": facts.template.is_some(),
            });
            for (name, value) in &facts.about {
                status[name] = value.clone();
            }
            let figures = room.figures();
            status["slots"] = json!(facts.slots);
            status["queue"]["waiting"] = json!(figures.waiting);
            status["active"] = figures.active.iter().map(active).collect();
            status["totals"] = json!({
                "steps": figures.steps,
                "step_seconds": figures.step_seconds,
                "prompt_tokens": figures.prompt_tokens,
                "reused_tokens": figures.reused_tokens,
                "generated_tokens": figures.generated_tokens,
                "finished": figures.finished,
                "cancelled": figures.cancelled,
                "failed": figures.failed,
            });
            status["cache"] = json!({
                "pages": figures.cache.pages,
                "pages_in_use": figures.cache.pages_in_use,
                "page_tokens": figures.cache.page_tokens,
                "conversation_bytes": figures.cache.conversation_bytes,
                "conversation_budget": figures.cache.conversation_budget,
            });
            status["sampling"] = json!({
                "temperature": facts.sampling.temperature,
                "top_k": facts.sampling.top_k,
                "top_p": facts.sampling.top_p,
                "min_p": facts.sampling.min_p,
            });
        }
    }
    status
}

fn active(request: &ActiveRequest) -> Value {
    json!({
        "id": request.id,
        "slot": request.slot,
        "prompt_tokens": request.prompt,
        "reused_tokens": request.reused,
        "evaluated_tokens": request.evaluated,
        "generated_tokens": request.generated,
        "seconds": request.seconds,
        "tokens_per_second": request.decode_rate,
    })
}

fn recent(request: &Recent) -> Value {
    let ago: Duration = request.ended.elapsed();
    json!({
        "id": request.id,
        "path": request.path,
        "outcome": request.outcome,
        "prompt_tokens": request.prompt,
        "reused_tokens": request.reused,
        "generated_tokens": request.generated,
        "seconds": request.seconds,
        "first_token_seconds": request.first_token_seconds,
        "prompt_tokens_per_second": request.prompt_rate,
        "tokens_per_second": request.decode_rate,
        "ended_seconds_ago": ago.as_secs_f64(),
    })
}
