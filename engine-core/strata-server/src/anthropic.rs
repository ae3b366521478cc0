//! Anthropic's interface: `POST /v1/messages` and `/v1/messages/count_tokens`.

mod read;

use axum::body::Body;
use axum::http::{Request, Response};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::api_error::{ApiError, Dialect};
use crate::blocks::{Blocks, Change, Kind};
use crate::connection::random_name;
use crate::drive::{self, Answering, Context, Reason, Step, Totals, Whole, Writer};
use crate::room::Room;
use crate::sse::Sse;
use crate::{body, conversation, router};

pub(crate) async fn answer(context: Context, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let json = body::json(request, context.app.options.most_body).await?;
    let read::Message { conversation, mut asked, stream, shows_thinking } = read::message(&json, &*context.room)?;
    drop(json);
    let prepared = conversation::prepare(&context.room, conversation).await?;
    asked.prompts = vec![prepared.prompt];
    asked.form = prepared.form;
    asked.expected = prepared.expected;
    let head = Head { id: format!("msg_{}", random_name()), room: Arc::clone(&context.room), shows_thinking };
    let mut answering = drive::begin(context, asked).await?;
    if stream {
        let events = Events { head, blocks: Blocks::default(), shown: Vec::new(), next: 0, end: None };
        return drive::stream(answering, events).await;
    }
    let mut wholes = drive::collect(&mut answering).await?;
    let whole = wholes.pop().unwrap_or_default();
    Ok(router::json(&head.whole(&whole, answering.totals())))
}

pub(crate) async fn count(context: Context, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let json = body::json(request, context.app.options.most_body).await?;
    let conversation = read::counted(&json)?;
    let prepared = conversation::prepare(&context.room, conversation).await?;
    Ok(router::json(&json!({ "input_tokens": prepared.prompt.len() })))
}

/// What all parts of a response repeat.
struct Head {
    id: String,
    room: Arc<dyn Room>,
    shows_thinking: bool,
}

fn usage(totals: Totals) -> Value {
    json!({
        "input_tokens": totals.prompt.saturating_sub(totals.reused),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": totals.reused,
        "output_tokens": totals.generated,
    })
}

/// `stop_reason` and `stop_sequence`.
fn stop(reason: Option<&Reason>) -> (Value, Value) {
    match reason {
        None => (Value::Null, Value::Null),
        Some(Reason::End) => (json!("end_turn"), Value::Null),
        Some(Reason::Length) => (json!("max_tokens"), Value::Null),
        Some(Reason::Calls) => (json!("tool_use"), Value::Null),
        Some(Reason::StopText(text)) => (json!("stop_sequence"), json!(text)),
    }
}

fn call_id() -> String {
    format!("toolu_{}", random_name())
}

impl Head {
    fn message(&self, content: &Value, reason: Option<&Reason>, totals: Totals) -> Value {
        let (stop_reason, stop_sequence) = stop(reason);
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.room.facts().model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": stop_sequence,
            "usage": usage(totals),
        })
    }

    fn whole(&self, whole: &Whole, totals: Totals) -> Value {
        let mut content = Vec::new();
        if self.shows_thinking && !whole.reasoning.is_empty() {
            content.push(json!({ "type": "thinking", "thinking": whole.reasoning, "signature": "" }));
        }
        if !whole.text.is_empty() {
            content.push(json!({ "type": "text", "text": whole.text }));
        }
        for call in &whole.calls {
            let input = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
            content.push(json!({ "type": "tool_use", "id": call_id(), "name": call.name, "input": input }));
        }
        self.message(&Value::Array(content), whole.end.as_ref().map(|(reason, _)| reason), totals)
    }
}

/// The named events of a stream.
struct Events {
    head: Head,
    blocks: Blocks,
    /// For each block, its index among those that are shown.
    shown: Vec<Option<usize>>,
    next: usize,
    end: Option<Reason>,
}

impl Events {
    fn change(&mut self, change: Change, out: &mut Sse) {
        match change {
            Change::Open(at) => {
                let kind = &self.blocks.all[at].kind;
                let is_shown = *kind != Kind::Reasoning || self.head.shows_thinking;
                self.shown.push(is_shown.then_some(self.next));
                if !is_shown {
                    return;
                }
                let block = match kind {
                    Kind::Reasoning => json!({ "type": "thinking", "thinking": "", "signature": "" }),
                    Kind::Text => json!({ "type": "text", "text": "" }),
                    Kind::Call { name } => json!({ "type": "tool_use", "id": call_id(), "name": name, "input": {} }),
                };
                let value = json!({ "type": "content_block_start", "index": self.next, "content_block": block });
                out.event("content_block_start", &value);
                self.next += 1;
            }
            Change::Add(at, text) => {
                let Some(index) = self.shown.get(at).copied().flatten() else { return };
                let delta = match &self.blocks.all[at].kind {
                    Kind::Reasoning => json!({ "type": "thinking_delta", "thinking": text }),
                    Kind::Text => json!({ "type": "text_delta", "text": text }),
                    Kind::Call { .. } => json!({ "type": "input_json_delta", "partial_json": text }),
                };
                let value = json!({ "type": "content_block_delta", "index": index, "delta": delta });
                out.event("content_block_delta", &value);
            }
            Change::Close(at) => {
                let Some(index) = self.shown.get(at).copied().flatten() else { return };
                if self.blocks.all[at].kind == Kind::Reasoning {
                    let delta = json!({ "type": "signature_delta", "signature": "" });
                    let value = json!({ "type": "content_block_delta", "index": index, "delta": delta });
                    out.event("content_block_delta", &value);
                }
                out.event("content_block_stop", &json!({ "type": "content_block_stop", "index": index }));
            }
        }
    }
}

impl Writer for Events {
    fn begin(&mut self, answering: &Answering, out: &mut Sse) {
        let totals = Totals { generated: 0, ..answering.totals() };
        let message = self.head.message(&json!([]), None, totals);
        out.event("message_start", &json!({ "type": "message_start", "message": message }));
        out.event("ping", &json!({ "type": "ping" }));
    }

    fn step(&mut self, step: Step, out: &mut Sse) {
        match step {
            Step::Parts { parts, .. } => {
                for part in parts {
                    for change in self.blocks.part(part) {
                        self.change(change, out);
                    }
                }
            }
            Step::Finished { reason, .. } => {
                for change in self.blocks.end() {
                    self.change(change, out);
                }
                self.end = Some(reason);
            }
        }
    }

    fn end(&mut self, answering: &Answering, out: &mut Sse) {
        let (stop_reason, stop_sequence) = stop(self.end.as_ref());
        let delta = json!({ "stop_reason": stop_reason, "stop_sequence": stop_sequence });
        let value = json!({ "type": "message_delta", "delta": delta, "usage": usage(answering.totals()) });
        out.event("message_delta", &value);
        out.event("message_stop", &json!({ "type": "message_stop" }));
    }

    fn failed(&mut self, error: &ApiError, out: &mut Sse) {
        out.event("error", &error.to_json(Dialect::Anthropic));
    }
}
