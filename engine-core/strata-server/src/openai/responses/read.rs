//! Reads requests for responses. Their items become messages of a chat.

use serde_json::{Map, Value, json};
use strata_engine::Limits;
use strata_model::chat::Message;

use crate::api_error::ApiError;
use crate::conversation::{self, Conversation};
use crate::drive::Asked;
use crate::fields::{Fields, item};
use crate::openai::read;
use crate::output::Expected;
use crate::room::{Form, Room};

/// A request that was read.
pub(super) struct Request {
    pub(super) conversation: Conversation,
    pub(super) asked: Asked,
    pub(super) stream: bool,
    pub(super) repeated: Map<String, Value>,
}

pub(super) fn request(json: &Value, room: &dyn Room) -> Result<Request, ApiError> {
    let mut fields = Fields::of(json, "")?;
    fields.text("model")?;
    let mut messages = Vec::new();
    if let Some(instructions) = fields.text("instructions")? {
        messages.push(Message::text("system", instructions));
    }
    input(&mut fields, &mut messages)?;
    let (tools, choice) = tools(&mut fields)?;
    let form = text_format(&mut fields)?;
    let mut variables = fields.object("chat_template_kwargs")?.cloned().unwrap_or_default();
    reasoning(&mut fields, &mut variables)?;
    let facts = room.facts();
    let sampling = read::sampling(&mut fields, &facts.sampling, facts.vocabulary)?;
    let max_tokens = fields.whole("max_output_tokens", 1..=u64::MAX)?;
    let one_call = fields.flag("parallel_tool_calls")? == Some(false) && !tools.is_empty();
    let stream = fields.flag("stream")?.unwrap_or(false);
    refused(&mut fields)?;
    fields.finish()?;
    let given = |name: &str| json.get(name).filter(|value| !value.is_null()).cloned();
    let or = |name: &str, usual: Value| (name.to_owned(), given(name).unwrap_or(usual));
    let repeated = [
        or("instructions", Value::Null),
        or("max_output_tokens", Value::Null),
        or("metadata", json!({})),
        or("parallel_tool_calls", json!(true)),
        or("reasoning", json!({ "effort": null, "summary": null })),
        or("temperature", json!(sampling.temperature)),
        or("text", json!({ "format": { "type": "text" } })),
        or("tool_choice", json!("auto")),
        or("tools", json!([])),
        or("top_p", json!(sampling.top_p)),
    ];
    let asked = Asked {
        prompts: Vec::new(),
        n: 1,
        sampling,
        limits: Limits { max_tokens, ..Limits::default() },
        top_log_probabilities: 0,
        form: None,
        expected: Expected::plain(),
        one_call,
    };
    let conversation = Conversation { messages, tools, choice, variables, form };
    Ok(Request { conversation, asked, stream, repeated: repeated.into_iter().collect() })
}

/// What needs a memory, or something else that is not here.
fn refused(fields: &mut Fields<'_>) -> Result<(), ApiError> {
    for field in ["previous_response_id", "conversation", "prompt"] {
        if fields.value(field).is_some() {
            let message = format!("this server keeps no conversations (`{field}`): send the whole one as `input`");
            return Err(ApiError::unsupported(field, message));
        }
    }
    if fields.flag("background")? == Some(true) {
        return Err(ApiError::unsupported("background", "this server answers at once; it keeps no responses"));
    }
    fields.word("truncation", &["auto", "disabled"])?;
    fields.flag("store")?;
    fields.ignore(&[
        "context_management",
        "include",
        "max_tool_calls",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "stream_options",
        "top_logprobs",
        "user",
    ]);
    Ok(())
}

/// `input`: a text, or items.
fn input(fields: &mut Fields<'_>, messages: &mut Vec<Message>) -> Result<(), ApiError> {
    let items = match fields.value("input") {
        None => return Err(fields.missing("input")),
        Some(Value::String(text)) => {
            messages.push(Message::text("user", text));
            return Ok(());
        }
        Some(Value::Array(items)) if items.is_empty() => {
            return Err(ApiError::field("input", "`input` is empty; at least one item is needed"));
        }
        Some(Value::Array(items)) => items,
        Some(other) => return Err(fields.wrong("input", "a string or an array of items", other)),
    };
    for (index, value) in items.iter().enumerate() {
        input_item(value, item("input", index), messages)?;
    }
    Ok(())
}

fn input_item(value: &Value, place: String, messages: &mut Vec<Message>) -> Result<(), ApiError> {
    let mut fields = Fields::of(value, place.clone())?;
    match fields.text("type")?.unwrap_or("message") {
        "message" => messages.push(read::message(value, place)?),
        "function_call" => {
            let id = fields.needed_text("call_id")?;
            let name = fields.needed_text("name")?;
            let arguments = fields.needed_text("arguments")?;
            let call = json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
            // Calls that stand together are of one message.
            if let Some(Value::Array(calls)) = messages.last_mut().and_then(|last| last.fields.get_mut("tool_calls")) {
                let one = Message::from_json(&json!({ "role": "assistant", "content": null, "tool_calls": [call] }));
                let one = one.map_err(|error| ApiError::field(place, error.to_string()))?;
                calls.extend(one.fields.get("tool_calls").and_then(Value::as_array).cloned().unwrap_or_default());
                return Ok(());
            }
            let message = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
            messages.push(Message::from_json(&message).map_err(|error| ApiError::field(place, error.to_string()))?);
        }
        "function_call_output" => {
            let id = fields.needed_text("call_id")?;
            let output = match fields.value("output") {
                None => return Err(fields.missing("output")),
                Some(Value::String(text)) => text.clone(),
                // Parts of text, or whatever the tool gave.
                Some(Value::Array(_)) => read::content_of(&mut fields, "output")?.unwrap_or_default(),
                Some(other) => other.to_string(),
            };
            let mut message = Message::text("tool", output);
            message.fields.insert("tool_call_id".to_owned(), Value::from(id));
            messages.push(message);
        }
        // What the model thought before is its own; templates leave it out of later turns.
        "reasoning" => {}
        other => {
            let shown: String = other.chars().take(40).collect();
            return Err(ApiError::unsupported(
                fields.name("type"),
                format!("this server has nothing for `{shown}` items"),
            ));
        }
    }
    Ok(())
}

fn tools(fields: &mut Fields<'_>) -> Result<(Vec<Value>, conversation::ToolChoice), ApiError> {
    let list = fields.array("tools")?.unwrap_or(&[]);
    let tool = |(index, value): (usize, &Value)| {
        let mut tool = Fields::of(value, item("tools", index))?;
        match tool.needed_text("type")? {
            "function" => read::function_tool(&mut tool),
            other => {
                let shown: String = other.chars().take(40).collect();
                let message = format!("`{shown}` is a tool of OpenAI's own servers; only functions can be called here");
                Err(ApiError::unsupported(tool.name("type"), message))
            }
        }
    };
    let tools: Vec<Value> = list.iter().enumerate().map(tool).collect::<Result<_, ApiError>>()?;
    conversation::check_tools(&tools)?;
    let choice = read::tool_choice(fields, &tools)?;
    Ok((tools, choice))
}

/// `text`: the form of the answer.
fn text_format(fields: &mut Fields<'_>) -> Result<Option<Form>, ApiError> {
    let Some(mut text) = fields.inner("text")? else { return Ok(None) };
    text.text("verbosity")?;
    let Some(mut format) = text.inner("format")? else { return Ok(None) };
    let kind = format.word("type", &["text", "json_object", "json_schema"])?;
    let form = match kind.ok_or_else(|| format.missing("type"))? {
        "json_object" => Some(Form::Json),
        "json_schema" => {
            format.text("name")?;
            format.text("description")?;
            format.flag("strict")?;
            let schema = format.object("schema")?.ok_or_else(|| format.missing("schema"))?;
            Some(Form::Schema(Value::Object(schema.clone())))
        }
        _ => None,
    };
    format.finish()?;
    text.finish()?;
    Ok(form)
}

fn reasoning(fields: &mut Fields<'_>, variables: &mut Map<String, Value>) -> Result<(), ApiError> {
    let Some(mut reasoning) = fields.inner("reasoning")? else { return Ok(()) };
    if let Some(effort) = reasoning.word("effort", &["none", "minimal", "low", "medium", "high", "xhigh"])? {
        read::effort_variables(effort, variables);
    }
    reasoning.ignore(&["summary", "generate_summary"]);
    reasoning.finish()
}
