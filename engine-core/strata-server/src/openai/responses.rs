//! `POST /v1/responses`, without memory: each request brings its whole conversation, and no response
//! is kept.

mod read;

use axum::body::Body;
use axum::http::{Request, Response};
use serde_json::{Map, Value, json};
use std::sync::Arc;

use super::write::now;
use crate::api_error::{ApiError, Dialect};
use crate::blocks::{Block, Blocks, Change, Kind};
use crate::connection::random_name;
use crate::drive::{self, Answering, Context, Reason, Step, Totals, Whole, Writer};
use crate::output::Part;
use crate::room::Room;
use crate::sse::Sse;
use crate::{body, conversation, router};

pub(crate) async fn answer(context: Context, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let json = body::json(request, context.app.options.most_body).await?;
    let read::Request { conversation, mut asked, stream, repeated } = read::request(&json, &*context.room)?;
    drop(json);
    let prepared = conversation::prepare(&context.room, conversation).await?;
    asked.prompts = vec![prepared.prompt];
    asked.form = prepared.form;
    asked.expected = prepared.expected;
    let head =
        Head { id: format!("resp_{}", random_name()), created: now(), room: Arc::clone(&context.room), repeated };
    let mut answering = drive::begin(context, asked).await?;
    if stream {
        let events = Events { head, blocks: Blocks::default(), ids: Vec::new(), number: 0, end: None };
        return drive::stream(answering, events).await;
    }
    let mut wholes = drive::collect(&mut answering).await?;
    let whole = wholes.pop().unwrap_or_default();
    let reason = whole.end.as_ref().map(|(reason, _)| reason.clone());
    let items: Vec<Value> = blocks(whole).iter().map(|block| item(block, &Ids::fresh(), "completed")).collect();
    Ok(router::json(&head.response(State::of(reason.as_ref()), &items, Some(answering.totals()))))
}

/// The blocks of a whole answer.
fn blocks(whole: Whole) -> Vec<Block> {
    let mut blocks = Blocks::default();
    if !whole.reasoning.is_empty() {
        blocks.part(Part::Reasoning(whole.reasoning));
    }
    if !whole.text.is_empty() {
        blocks.part(Part::Text(whole.text));
    }
    for call in whole.calls {
        blocks.part(Part::Call { name: call.name });
        blocks.part(Part::Arguments(call.arguments));
        blocks.part(Part::CallEnd);
    }
    blocks.all
}

/// The names of an item.
struct Ids {
    item: String,
    call: String,
}

impl Ids {
    fn fresh() -> Ids {
        Ids { item: random_name(), call: format!("call_{}", random_name()) }
    }
}

fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// An item of the output.
fn item(block: &Block, ids: &Ids, status: &str) -> Value {
    let begun = status == "in_progress";
    match &block.kind {
        Kind::Reasoning => json!({
            "type": "reasoning",
            "id": format!("rs_{}", ids.item),
            "summary": [],
            "content": if begun { json!([]) } else { json!([{ "type": "reasoning_text", "text": block.text }]) },
            "status": status,
        }),
        Kind::Text => json!({
            "type": "message",
            "id": format!("msg_{}", ids.item),
            "role": "assistant",
            "content": if begun { json!([]) } else { json!([text_part(&block.text)]) },
            "status": status,
        }),
        Kind::Call { name } => json!({
            "type": "function_call",
            "id": format!("fc_{}", ids.item),
            "call_id": ids.call,
            "name": name,
            "arguments": block.text,
            "status": status,
        }),
    }
}

fn item_id(block: &Block, ids: &Ids) -> String {
    let prefix = match block.kind {
        Kind::Reasoning => "rs",
        Kind::Text => "msg",
        Kind::Call { .. } => "fc",
    };
    format!("{prefix}_{}", ids.item)
}

/// How far a response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    InProgress,
    Completed,
    /// Cut off by its limit.
    Incomplete,
    Failed,
}

impl State {
    fn of(reason: Option<&Reason>) -> State {
        if reason == Some(&Reason::Length) { State::Incomplete } else { State::Completed }
    }

    fn word(self) -> &'static str {
        match self {
            State::InProgress => "in_progress",
            State::Completed => "completed",
            State::Incomplete => "incomplete",
            State::Failed => "failed",
        }
    }
}

/// What all parts of a response repeat.
struct Head {
    id: String,
    created: u64,
    room: Arc<dyn Room>,
    /// Fields of the request that the response has too.
    repeated: Map<String, Value>,
}

impl Head {
    fn response(&self, state: State, output: &[Value], totals: Option<Totals>) -> Value {
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": state.word(),
            "error": null,
            "incomplete_details": if state == State::Incomplete { json!({ "reason": "max_output_tokens" }) } else { Value::Null },
            "model": self.room.facts().model,
            "output": output,
            "previous_response_id": null,
            "store": false,
            "truncation": "disabled",
            "usage": totals.map(usage),
            "user": null,
        });
        for (name, value) in &self.repeated {
            response[name] = value.clone();
        }
        response
    }
}

fn usage(totals: Totals) -> Value {
    json!({
        "input_tokens": totals.prompt,
        "input_tokens_details": { "cached_tokens": totals.reused },
        "output_tokens": totals.generated,
        "output_tokens_details": { "reasoning_tokens": totals.reasoning },
        "total_tokens": totals.prompt + totals.generated,
    })
}

/// The named, numbered events of a stream.
struct Events {
    head: Head,
    blocks: Blocks,
    ids: Vec<Ids>,
    number: u64,
    end: Option<Reason>,
}

impl Events {
    fn send(&mut self, out: &mut Sse, name: &str, mut value: Value) {
        value["type"] = json!(name);
        value["sequence_number"] = json!(self.number);
        self.number += 1;
        out.event(name, &value);
    }

    fn items(&self) -> Vec<Value> {
        self.blocks.all.iter().zip(&self.ids).map(|(block, ids)| item(block, ids, "completed")).collect()
    }

    fn change(&mut self, change: Change, out: &mut Sse) {
        match change {
            Change::Open(at) => self.open(at, out),
            Change::Add(at, text) => {
                let (block, ids) = (&self.blocks.all[at], &self.ids[at]);
                let id = item_id(block, ids);
                match block.kind {
                    Kind::Reasoning => {
                        let value = json!({ "item_id": id, "output_index": at, "content_index": 0, "delta": text });
                        self.send(out, "response.reasoning_text.delta", value);
                    }
                    Kind::Text => {
                        let value = json!({
                            "item_id": id, "output_index": at, "content_index": 0, "delta": text, "logprobs": [],
                        });
                        self.send(out, "response.output_text.delta", value);
                    }
                    Kind::Call { .. } => {
                        let value = json!({ "item_id": id, "output_index": at, "delta": text });
                        self.send(out, "response.function_call_arguments.delta", value);
                    }
                }
            }
            Change::Close(at) => self.close(at, out),
        }
    }

    fn open(&mut self, at: usize, out: &mut Sse) {
        self.ids.push(Ids::fresh());
        let (block, ids) = (&self.blocks.all[at], &self.ids[at]);
        let empty = Block { kind: block.kind.clone(), text: String::new() };
        let item = item(&empty, ids, "in_progress");
        let id = item_id(block, ids);
        let part = match block.kind {
            Kind::Text => Some(text_part("")),
            Kind::Reasoning => Some(json!({ "type": "reasoning_text", "text": "" })),
            Kind::Call { .. } => None,
        };
        self.send(out, "response.output_item.added", json!({ "output_index": at, "item": item }));
        if let Some(part) = part {
            let value = json!({ "item_id": id, "output_index": at, "content_index": 0, "part": part });
            self.send(out, "response.content_part.added", value);
        }
    }

    fn close(&mut self, at: usize, out: &mut Sse) {
        let (block, ids) = (&self.blocks.all[at], &self.ids[at]);
        let id = item_id(block, ids);
        let item = item(block, ids, "completed");
        let text = block.text.clone();
        match block.kind.clone() {
            Kind::Text => {
                let value = json!({
                    "item_id": id, "output_index": at, "content_index": 0, "text": text, "logprobs": [],
                });
                self.send(out, "response.output_text.done", value);
                let value = json!({ "item_id": id, "output_index": at, "content_index": 0, "part": text_part(&text) });
                self.send(out, "response.content_part.done", value);
            }
            Kind::Reasoning => {
                let value = json!({ "item_id": id, "output_index": at, "content_index": 0, "text": text });
                self.send(out, "response.reasoning_text.done", value);
                let part = json!({ "type": "reasoning_text", "text": text });
                let value = json!({ "item_id": id, "output_index": at, "content_index": 0, "part": part });
                self.send(out, "response.content_part.done", value);
            }
            Kind::Call { name } => {
                let value = json!({ "item_id": id, "output_index": at, "name": name, "arguments": text });
                self.send(out, "response.function_call_arguments.done", value);
            }
        }
        self.send(out, "response.output_item.done", json!({ "output_index": at, "item": item }));
    }
}

impl Writer for Events {
    fn begin(&mut self, _: &Answering, out: &mut Sse) {
        for name in ["response.created", "response.in_progress"] {
            let response = self.head.response(State::InProgress, &[], None);
            self.send(out, name, json!({ "response": response }));
        }
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
        let state = State::of(self.end.as_ref());
        let response = self.head.response(state, &self.items(), Some(answering.totals()));
        self.send(out, &format!("response.{}", state.word()), json!({ "response": response }));
    }

    fn failed(&mut self, error: &ApiError, out: &mut Sse) {
        let mut response = self.head.response(State::Failed, &self.items(), None);
        let json = error.to_json(Dialect::OpenAi);
        response["error"] = json!({ "code": "server_error", "message": json["error"]["message"] });
        self.send(out, "response.failed", json!({ "response": response }));
    }
}
