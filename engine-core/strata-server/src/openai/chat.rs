//! `POST /v1/chat/completions`.

use axum::body::Body;
use axum::http::{Request, Response};
use serde_json::{Value, json};
use std::sync::Arc;
use strata_engine::Limits;

use super::read;
use super::write::{chat_log_probabilities, finish_reason, now, timings, usage};
use crate::api_error::ApiError;
use crate::connection::random_name;
use crate::conversation::{self, Conversation};
use crate::drive::{self, Answering, Asked, Context, Step, Whole, Writer};
use crate::fields::Fields;
use crate::output::{CallStyle, Part, Style};
use crate::room::{Choice, Room};
use crate::sse::Sse;
use crate::{body, router};

const MOST_CHOICES: u64 = 128;
const MOST_TOP: u64 = 20;

/// What a request asks of the response's form.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    stream: bool,
    usage: bool,
    log_probabilities: bool,
}

pub(crate) async fn answer(context: Context, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let json = body::json(request, context.app.options.most_body).await?;
    let (conversation, mut asked, wanted) = read(&json, &*context.room)?;
    drop(json);
    let prepared = conversation::prepare(&context.room, conversation).await?;
    asked.prompts = vec![prepared.prompt];
    asked.form = prepared.form;
    asked.expected = prepared.expected;
    let head = Head::new(&context, wanted);
    let mut answering = drive::begin(context, asked).await?;
    if wanted.stream {
        let begun = vec![Begun::default(); answering.choices()];
        return drive::stream(answering, Chunks { head, begun }).await;
    }
    let wholes = drive::collect(&mut answering).await?;
    Ok(router::json(&head.whole(&wholes, &answering)))
}

fn read(json: &Value, room: &dyn Room) -> Result<(Conversation, Asked, Wanted), ApiError> {
    let mut fields = Fields::of(json, "")?;
    fields.text("model")?;
    let messages = read::messages(&mut fields)?;
    let (tools, choice) = read::tools(&mut fields)?;
    let form = read::response_format(&mut fields)?;
    let variables = read::variables(&mut fields)?;
    let facts = room.facts();
    let sampling = read::sampling(&mut fields, &facts.sampling, facts.vocabulary)?;
    let stop = read::stops(&mut fields)?;
    let older = fields.whole("max_tokens", 1..=u64::MAX)?;
    let max_tokens = fields.whole("max_completion_tokens", 1..=u64::MAX)?.or(older);
    let n = fields.whole("n", 1..=MOST_CHOICES)?.unwrap_or(1) as usize;
    let log_probabilities = fields.flag("logprobs")?.unwrap_or(false);
    let top = fields.whole("top_logprobs", 0..=MOST_TOP)?;
    if top.is_some_and(|top| top > 0) && !log_probabilities {
        return Err(ApiError::field("top_logprobs", "`top_logprobs` needs `logprobs` to be true"));
    }
    let one_call = fields.flag("parallel_tool_calls")? == Some(false);
    let (stream, usage) = stream(&mut fields)?;
    ignored(&mut fields)?;
    fields.finish()?;
    let asked = Asked {
        prompts: Vec::new(),
        n,
        sampling,
        limits: Limits { max_tokens, stop, ignore_end: false, log_probabilities },
        top_log_probabilities: top.unwrap_or(0) as usize,
        form: None,
        expected: crate::output::Expected::plain(),
        one_call: one_call && !tools.is_empty(),
    };
    let conversation = Conversation { messages, tools, choice, variables, form };
    Ok((conversation, asked, Wanted { stream, usage, log_probabilities }))
}

/// `stream` and `stream_options`: whether to stream, and whether to end with usage.
pub(super) fn stream(fields: &mut Fields<'_>) -> Result<(bool, bool), ApiError> {
    let stream = fields.flag("stream")?.unwrap_or(false);
    let Some(mut options) = fields.inner("stream_options")? else { return Ok((stream, false)) };
    let usage = options.flag("include_usage")?.unwrap_or(false);
    options.flag("include_obfuscation")?;
    options.finish()?;
    if !stream {
        return Err(ApiError::field("stream_options", "`stream_options` is only for `stream`: true"));
    }
    Ok((stream, usage))
}

/// What changes nothing here, and what would change something that is not to be had.
fn ignored(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    fields.ignore(&[
        "cache_prompt",
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
        "verbosity",
    ]);
    if let Some(kinds) = fields.array("modalities")?
        && kinds.iter().any(|kind| kind != "text")
    {
        return Err(ApiError::unsupported("modalities", "this model writes text only; `modalities` asks for more"));
    }
    for (field, instead) in [
        ("audio", "this model writes text only"),
        ("web_search_options", "this server does not search the web"),
        ("functions", "`functions` gave way to `tools`, which this server takes"),
        ("function_call", "`function_call` gave way to `tool_choice`, which this server takes"),
    ] {
        if fields.value(field).is_some() {
            return Err(ApiError::unsupported(field, instead));
        }
    }
    Ok(())
}

/// What all parts of a response repeat.
struct Head {
    id: String,
    created: u64,
    room: Arc<dyn Room>,
    wanted: Wanted,
    /// Templates of some models demand ids of their own kind.
    short_ids: bool,
}

impl Head {
    fn new(context: &Context, wanted: Wanted) -> Head {
        let style = Style::of_template(context.room.facts().template.as_deref());
        Head {
            id: format!("chatcmpl-{}", random_name()),
            created: now(),
            room: Arc::clone(&context.room),
            wanted,
            short_ids: style.calls == CallStyle::Listed,
        }
    }

    fn call_id(&self) -> String {
        let name = random_name();
        if self.short_ids { name[..9].to_owned() } else { format!("call_{name}") }
    }

    fn object(&self, kind: &str) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.room.facts().model,
            "system_fingerprint": super::models::fingerprint(self.room.facts()),
        })
    }

    fn log_probabilities(&self, tokens: &[Choice]) -> Value {
        if self.wanted.log_probabilities { chat_log_probabilities(&*self.room, tokens) } else { Value::Null }
    }

    fn whole(&self, wholes: &[Whole], answering: &Answering) -> Value {
        let choice = |(index, whole): (usize, &Whole)| {
            let content = if whole.text.is_empty() && !whole.calls.is_empty() { None } else { Some(&whole.text) };
            let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
            if !whole.reasoning.is_empty() {
                message["reasoning_content"] = json!(whole.reasoning);
            }
            if !whole.calls.is_empty() {
                let call = |call: &drive::WholeCall| {
                    json!({
                        "id": self.call_id(),
                        "type": "function",
                        "function": { "name": call.name, "arguments": arguments(&call.arguments) },
                    })
                };
                message["tool_calls"] = whole.calls.iter().map(call).collect();
            }
            json!({
                "index": index,
                "message": message,
                "logprobs": self.log_probabilities(&whole.tokens),
                "finish_reason": whole.end.as_ref().map(|(reason, _)| finish_reason(reason)),
            })
        };
        let mut object = self.object("chat.completion");
        object["choices"] = wholes.iter().enumerate().map(choice).collect();
        object["usage"] = usage(answering.totals());
        if let Some(finished) = answering.last() {
            object["timings"] = timings(finished);
        }
        object
    }
}

/// A call without arguments has an empty object of them.
fn arguments(text: &str) -> &str {
    if text.trim().is_empty() { "{}" } else { text }
}

/// What of a choice was sent.
#[derive(Debug, Clone, Default)]
struct Begun {
    calls: usize,
    /// The call that goes on has arguments.
    has_arguments: bool,
}

/// A stream of `chat.completion.chunk`.
struct Chunks {
    head: Head,
    begun: Vec<Begun>,
}

impl Chunks {
    fn chunk(&self, index: usize, delta: &Value, tokens: Option<&[Choice]>, finish: Option<&str>) -> Value {
        let mut chunk = self.head.object("chat.completion.chunk");
        let log_probabilities = tokens.map_or(Value::Null, |tokens| self.head.log_probabilities(tokens));
        chunk["choices"] =
            json!([{ "index": index, "delta": delta, "logprobs": log_probabilities, "finish_reason": finish }]);
        if self.head.wanted.usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn delta(&mut self, index: usize, part: Part) -> Option<Value> {
        let begun = &mut self.begun[index];
        let call = |begun: &Begun, function: Value| json!({ "tool_calls": [{ "index": begun.calls - 1, "function": function }] });
        Some(match part {
            Part::Reasoning(text) => json!({ "reasoning_content": text }),
            Part::Text(text) => json!({ "content": text }),
            Part::Call { name } => {
                begun.calls += 1;
                begun.has_arguments = false;
                json!({ "tool_calls": [{
                    "index": begun.calls - 1,
                    "id": self.head.call_id(),
                    "type": "function",
                    "function": { "name": name, "arguments": "" },
                }] })
            }
            Part::Arguments(text) => {
                begun.has_arguments |= !text.trim().is_empty();
                call(begun, json!({ "arguments": text }))
            }
            Part::CallEnd if begun.has_arguments => return None,
            Part::CallEnd => call(begun, json!({ "arguments": "{}" })),
        })
    }
}

impl Writer for Chunks {
    fn begin(&mut self, _: &Answering, out: &mut Sse) {
        for index in 0..self.begun.len() {
            let delta = json!({ "role": "assistant", "content": "", "refusal": null });
            out.data(&self.chunk(index, &delta, None, None));
        }
    }

    fn step(&mut self, step: Step, out: &mut Sse) {
        match step {
            Step::Parts { index, parts, tokens } => {
                let mut tokens = Some(tokens);
                for part in parts {
                    let Some(delta) = self.delta(index, part) else { continue };
                    let tokens = tokens.take().filter(|tokens| !tokens.is_empty());
                    out.data(&self.chunk(index, &delta, tokens.as_deref(), None));
                }
                // Tokens whose text was held back to the end and came to nothing.
                if let Some(tokens) = tokens.filter(|tokens| !tokens.is_empty()) {
                    out.data(&self.chunk(index, &json!({ "content": "" }), Some(&tokens), None));
                }
            }
            Step::Finished { index, reason, finished } => {
                let mut chunk = self.chunk(index, &json!({}), None, Some(finish_reason(&reason)));
                chunk["timings"] = timings(&finished);
                out.data(&chunk);
            }
        }
    }

    fn end(&mut self, answering: &Answering, out: &mut Sse) {
        if self.head.wanted.usage {
            let mut chunk = self.head.object("chat.completion.chunk");
            chunk["choices"] = json!([]);
            chunk["usage"] = usage(answering.totals());
            out.data(&chunk);
        }
        out.done();
    }

    fn failed(&mut self, error: &ApiError, out: &mut Sse) {
        out.data(&error.to_json(crate::api_error::Dialect::OpenAi));
    }
}
