//! What OpenAI's responses share: usage, figures, tokens with their log-probabilities.

use serde_json::{Map, Value, json};
use strata_engine::Finished;

use crate::drive::{Reason, Totals};
use crate::room::{Choice, Room};

pub(crate) fn usage(totals: Totals) -> Value {
    json!({
        "prompt_tokens": totals.prompt,
        "completion_tokens": totals.generated,
        "total_tokens": totals.prompt + totals.generated,
        "prompt_tokens_details": { "cached_tokens": totals.reused },
        "completion_tokens_details": { "reasoning_tokens": totals.reasoning },
    })
}

/// Speeds and lengths of an answer, in the fields that clients of other local servers read.
pub(crate) fn timings(finished: &Finished) -> Value {
    let stats = &finished.stats;
    json!({
        "cache_n": stats.prompt_reused,
        "prompt_n": stats.prompt_new,
        "prompt_ms": stats.prompt_seconds * 1e3,
        "prompt_per_second": stats.prompt_rate(),
        "predicted_n": stats.generated,
        "predicted_ms": stats.decode_seconds * 1e3,
        "predicted_per_second": stats.decode_rate(),
        "context": stats.end_context,
        "context_size": stats.context_size,
        "seed": finished.seed,
    })
}

pub(crate) fn finish_reason(reason: &Reason) -> &'static str {
    match reason {
        Reason::End | Reason::StopText(_) => "stop",
        Reason::Length => "length",
        Reason::Calls => "tool_calls",
    }
}

/// A token as chats tell it.
fn token(room: &dyn Room, id: u32, log_probability: f64) -> Map<String, Value> {
    let bytes = room.token_bytes(id);
    let mut object = Map::new();
    object.insert("token".to_owned(), Value::from(String::from_utf8_lossy(&bytes).into_owned()));
    // −∞ is no JSON; this is what the interface has for "next to nothing".
    object.insert("logprob".to_owned(), Value::from(log_probability.max(-9999.0)));
    object.insert("bytes".to_owned(), Value::from(bytes));
    object
}

/// `logprobs` of a chat.
pub(crate) fn chat_log_probabilities(room: &dyn Room, tokens: &[Choice]) -> Value {
    let entry = |choice: &Choice| {
        let mut object = token(room, choice.token, choice.log_probability.unwrap_or(f64::NEG_INFINITY));
        let top = choice.top.iter().map(|(id, value)| Value::Object(token(room, *id, *value))).collect();
        object.insert("top_logprobs".to_owned(), Value::Array(top));
        Value::Object(object)
    };
    json!({ "content": tokens.iter().map(entry).collect::<Vec<_>>(), "refusal": null })
}

/// `logprobs` of a completion, whose form is older. `offset` is where the text begins, in characters.
pub(crate) fn text_log_probabilities(room: &dyn Room, tokens: &[Choice], mut offset: usize) -> Value {
    let text = |id: u32| String::from_utf8_lossy(&room.token_bytes(id)).into_owned();
    let mut offsets = Vec::with_capacity(tokens.len());
    for choice in tokens {
        offsets.push(offset);
        offset += text(choice.token).chars().count();
    }
    let value = |value: f64| value.max(-9999.0);
    let top = |choice: &Choice| -> Map<String, Value> {
        choice.top.iter().map(|(id, log)| (text(*id), Value::from(value(*log)))).collect()
    };
    json!({
        "tokens": tokens.iter().map(|choice| text(choice.token)).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(|choice| choice.log_probability.map(value)).collect::<Vec<_>>(),
        "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
