//! `POST /v1/completions`: text that goes on from a prompt as it is, without the chat template.

use axum::body::Body;
use axum::http::{Request, Response};
use serde_json::{Value, json};
use std::sync::Arc;
use strata_engine::Limits;

use super::write::{finish_reason, now, text_log_probabilities, timings, usage};
use super::{chat, read};
use crate::api_error::ApiError;
use crate::connection::random_name;
use crate::drive::{self, Answering, Asked, Context, Step, Whole, Writer};
use crate::fields::Fields;
use crate::output::{Expected, Part};
use crate::room::{Choice, Room};
use crate::sse::Sse;
use crate::{body, router};

const MOST_CHOICES: u64 = 128;
const MOST_PROMPTS: usize = 128;
const MOST_TOP: u64 = 20;
/// What the interface gives when nothing is said.
const USUAL_TOKENS: u64 = 16;

struct Wanted {
    stream: bool,
    usage: bool,
    log_probabilities: bool,
    /// Texts of the prompts, to be repeated before the answers.
    echo: Option<Vec<String>>,
    n: usize,
}

pub(crate) async fn answer(context: Context, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let json = body::json(request, context.app.options.most_body).await?;
    let room = Arc::clone(&context.room);
    // Tokenizing megabytes takes a while.
    let (asked, wanted) = drive::blocking(move || read(&json, &*room)).await??;
    let stream = wanted.stream;
    let head = Head { id: format!("cmpl-{}", random_name()), created: now(), room: Arc::clone(&context.room), wanted };
    let mut answering = drive::begin(context, asked).await?;
    if stream {
        let lengths = vec![0; answering.choices()];
        return drive::stream(answering, Chunks { head, lengths }).await;
    }
    let wholes = drive::collect(&mut answering).await?;
    Ok(router::json(&head.whole(&wholes, &answering)))
}

fn read(json: &Value, room: &dyn Room) -> Result<(Asked, Wanted), ApiError> {
    let mut fields = Fields::of(json, "")?;
    fields.text("model")?;
    let prompts = prompts(&mut fields, room)?;
    let facts = room.facts();
    let sampling = read::sampling(&mut fields, &facts.sampling, facts.vocabulary)?;
    let stop = read::stops(&mut fields)?;
    let max_tokens = fields.whole("max_tokens", 1..=u64::MAX)?.unwrap_or(USUAL_TOKENS);
    let n = fields.whole("n", 1..=MOST_CHOICES)?.unwrap_or(1) as usize;
    let top = fields.whole("logprobs", 0..=MOST_TOP)?;
    let form = read::response_format(&mut fields)?;
    let echo = fields.flag("echo")?.unwrap_or(false);
    let ignore_end = fields.flag("ignore_eos")?.unwrap_or(false);
    let (stream, usage) = chat::stream(&mut fields)?;
    if let Some(best) = fields.whole("best_of", 1..=MOST_CHOICES)?.filter(|best| *best != n as u64) {
        let message = format!("this server gives all answers that it makes: `best_of` is {best}, `n` is {n}");
        return Err(ApiError::unsupported("best_of", message));
    }
    if fields.text("suffix")?.is_some_and(|suffix| !suffix.is_empty()) {
        return Err(ApiError::unsupported("suffix", "this server continues texts; it does not fill gaps (`suffix`)"));
    }
    fields.ignore(&["cache_prompt", "user"]);
    fields.finish()?;
    let (tokens, texts) = prompts.into_iter().unzip();
    let limits = Limits { max_tokens: Some(max_tokens), stop, ignore_end, log_probabilities: top.is_some() };
    let asked = Asked {
        prompts: tokens,
        n,
        sampling,
        limits,
        top_log_probabilities: top.unwrap_or(0) as usize,
        form,
        expected: Expected::plain(),
        one_call: false,
    };
    let echo = echo.then_some(texts);
    Ok((asked, Wanted { stream, usage, log_probabilities: top.is_some(), echo, n }))
}

/// Tokens and text of each prompt: a string, several, token ids, or several lists of them.
fn prompts(fields: &mut Fields<'_>, room: &dyn Room) -> Result<Vec<(Vec<u32>, String)>, ApiError> {
    let expected = "a string, an array of strings, or an array of token ids";
    let of_text = |text: &str| (room.tokenize(text), text.to_owned());
    let value = fields.value("prompt").ok_or_else(|| fields.missing("prompt"))?;
    let vocabulary = room.facts().vocabulary;
    let ids = |items: &[Value]| -> Option<Vec<u32>> {
        items.iter().map(|item| item.as_u64().filter(|id| *id < vocabulary).map(|id| id as u32)).collect()
    };
    let of_ids = |ids: Vec<u32>| {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| room.token_bytes(*id)).collect();
        (ids, String::from_utf8_lossy(&bytes).into_owned())
    };
    let wrong = |fields: &Fields<'_>| fields.wrong("prompt", expected, value);
    match value {
        Value::String(text) => Ok(vec![of_text(text)]),
        Value::Array(items) if items.is_empty() => Err(wrong(fields)),
        Value::Array(items) if items[0].is_number() => {
            let message = format!("`prompt` holds something that is no token id below {vocabulary}");
            let ids = ids(items).ok_or_else(|| ApiError::field("prompt", message))?;
            Ok(vec![of_ids(ids)])
        }
        Value::Array(items) if items.len() > MOST_PROMPTS => {
            let message = format!("`prompt` has {} entries, {MOST_PROMPTS} is the most", items.len());
            Err(ApiError::field("prompt", message))
        }
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::String(text) => Ok(of_text(text)),
                Value::Array(items) => ids(items).map(of_ids).ok_or_else(|| wrong(fields)),
                _ => Err(wrong(fields)),
            })
            .collect(),
        _ => Err(wrong(fields)),
    }
}

/// A choice, or what is new of it.
fn choice(index: usize, text: &str, log_probabilities: &Value, finish: Option<&str>) -> Value {
    json!({ "index": index, "text": text, "logprobs": log_probabilities, "finish_reason": finish })
}

struct Head {
    id: String,
    created: u64,
    room: Arc<dyn Room>,
    wanted: Wanted,
}

impl Head {
    fn object(&self) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.room.facts().model,
            "system_fingerprint": super::models::fingerprint(self.room.facts()),
        })
    }

    fn echo(&self, index: usize) -> &str {
        let texts = self.wanted.echo.as_ref();
        texts.and_then(|texts| texts.get(index / self.wanted.n)).map_or("", String::as_str)
    }

    fn log_probabilities(&self, tokens: &[Choice], offset: usize) -> Value {
        if self.wanted.log_probabilities { text_log_probabilities(&*self.room, tokens, offset) } else { Value::Null }
    }

    fn whole(&self, wholes: &[Whole], answering: &Answering) -> Value {
        let of_whole = |(index, whole): (usize, &Whole)| {
            let echo = self.echo(index);
            let log_probabilities = self.log_probabilities(&whole.tokens, echo.chars().count());
            let finish = whole.end.as_ref().map(|(reason, _)| finish_reason(reason));
            choice(index, &format!("{echo}{}", whole.text), &log_probabilities, finish)
        };
        let mut object = self.object();
        object["choices"] = wholes.iter().enumerate().map(of_whole).collect();
        object["usage"] = usage(answering.totals());
        if let Some(finished) = answering.last() {
            object["timings"] = timings(finished);
        }
        object
    }
}

/// A stream of parts of `text_completion`.
struct Chunks {
    head: Head,
    /// Characters of each choice that went out.
    lengths: Vec<usize>,
}

impl Chunks {
    fn chunk(&self, choice: &Value) -> Value {
        let mut chunk = self.head.object();
        chunk["choices"] = json!([choice]);
        if self.head.wanted.usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

impl Writer for Chunks {
    fn begin(&mut self, _: &Answering, out: &mut Sse) {
        for index in 0..self.lengths.len() {
            let echo = self.head.echo(index).to_owned();
            if !echo.is_empty() {
                self.lengths[index] += echo.chars().count();
                out.data(&self.chunk(&choice(index, &echo, &Value::Null, None)));
            }
        }
    }

    fn step(&mut self, step: Step, out: &mut Sse) {
        match step {
            Step::Parts { index, parts, tokens } => {
                let text: String = parts
                    .into_iter()
                    .map(|part| match part {
                        Part::Text(text) => text,
                        _ => String::new(),
                    })
                    .collect();
                let log_probabilities = self.head.log_probabilities(&tokens, self.lengths[index]);
                self.lengths[index] += text.chars().count();
                out.data(&self.chunk(&choice(index, &text, &log_probabilities, None)));
            }
            Step::Finished { index, reason, finished } => {
                let finish = Some(finish_reason(&reason));
                let mut chunk = self.chunk(&choice(index, "", &Value::Null, finish));
                chunk["timings"] = timings(&finished);
                out.data(&chunk);
            }
        }
    }

    fn end(&mut self, answering: &Answering, out: &mut Sse) {
        if self.head.wanted.usage {
            let mut chunk = self.head.object();
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
