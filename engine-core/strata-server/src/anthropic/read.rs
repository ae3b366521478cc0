//! Reads requests of Anthropic's interface. Conversations become OpenAI's form, which is what chat
//! templates know.

use serde_json::{Map, Value, json};
use strata_engine::{Limits, SamplerSettings};
use strata_model::chat::Message as ChatMessage;

use crate::api_error::ApiError;
use crate::conversation::{self, Conversation, ToolChoice};
use crate::drive::Asked;
use crate::fields::{Fields, item};
use crate::output::Expected;
use crate::room::{Form, Room};

const MOST_STOPS: usize = 32;

/// A request that was read.
pub(super) struct Message {
    pub(super) conversation: Conversation,
    pub(super) asked: Asked,
    pub(super) stream: bool,
    pub(super) shows_thinking: bool,
}

pub(super) fn message(json: &Value, room: &dyn Room) -> Result<Message, ApiError> {
    let mut fields = Fields::of(json, "")?;
    let (conversation, thinks, one_call) = conversation(&mut fields)?;
    let max_tokens = fields.whole("max_tokens", 1..=u64::MAX)?.ok_or_else(|| fields.missing("max_tokens"))?;
    let sampling = sampling(&mut fields, &room.facts().sampling)?;
    let stop = fields.texts("stop_sequences", MOST_STOPS)?;
    if stop.iter().any(String::is_empty) {
        return Err(ApiError::field("stop_sequences", "`stop_sequences` holds an empty text"));
    }
    let stream = fields.flag("stream")?.unwrap_or(false);
    fields.ignore(&["metadata", "service_tier", "inference_geo", "speed"]);
    fields.finish()?;
    let asked = Asked {
        prompts: Vec::new(),
        n: 1,
        sampling,
        limits: Limits { max_tokens: Some(max_tokens), stop, ignore_end: false, log_probabilities: false },
        top_log_probabilities: 0,
        form: None,
        expected: Expected::plain(),
        one_call,
    };
    Ok(Message { conversation, asked, stream, shows_thinking: thinks })
}

/// What is to be counted.
pub(super) fn counted(json: &Value) -> Result<Conversation, ApiError> {
    let mut fields = Fields::of(json, "")?;
    let (conversation, _, _) = conversation(&mut fields)?;
    fields.finish()?;
    Ok(conversation)
}

fn sampling(fields: &mut Fields<'_>, usual: &SamplerSettings) -> Result<SamplerSettings, ApiError> {
    let mut settings = usual.clone();
    if let Some(value) = fields.number("temperature", 0.0..=1.0)? {
        settings.temperature = value as f32;
    }
    match fields.number("top_p", 0.0..=1.0)? {
        Some(0.0) => settings.top_k = 1,
        Some(value) => settings.top_p = value as f32,
        None => {}
    }
    if let Some(value) = fields.whole("top_k", 0..=u64::from(u32::MAX))? {
        settings.top_k = value as u32;
    }
    Ok(settings)
}

/// The conversation, whether reasoning is to be shown, whether one call is the most.
fn conversation(fields: &mut Fields<'_>) -> Result<(Conversation, bool, bool), ApiError> {
    fields.text("model")?;
    let mut messages: Vec<ChatMessage> = system(fields)?.into_iter().collect();
    let list = fields.array("messages")?.ok_or_else(|| fields.missing("messages"))?;
    if list.is_empty() {
        return Err(ApiError::field("messages", "`messages` is empty; at least one message is needed"));
    }
    for (index, value) in list.iter().enumerate() {
        turn(value, item("messages", index), &mut messages)?;
    }
    if messages.last().is_some_and(|last| last.role == "assistant") {
        let message = "the last message is the assistant's; this server begins answers and does not continue them";
        return Err(ApiError::unsupported("messages", message));
    }
    let tools = tools(fields)?;
    let (choice, one_call) = tool_choice(fields, &tools)?;
    let mut variables = Map::new();
    let thinks = thinking(fields, &mut variables)?;
    let form = form(fields, &mut variables)?;
    for field in ["container", "mcp_servers", "context_management"] {
        if fields.value(field).is_some_and(|value| value.as_array().is_none_or(|list| !list.is_empty())) {
            return Err(ApiError::unsupported(field, format!("this server has nothing for `{field}`")));
        }
    }
    fields.ignore(&["cache_control"]);
    Ok((Conversation { messages, tools, choice, variables, form }, thinks, one_call))
}

/// `system`: a text, or blocks of text.
fn system(fields: &mut Fields<'_>) -> Result<Option<ChatMessage>, ApiError> {
    let text = match fields.value("system") {
        None => return Ok(None),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => texts(blocks, "system")?,
        Some(other) => return Err(fields.wrong("system", "a string or an array of text blocks", other)),
    };
    Ok((!text.is_empty()).then(|| ChatMessage::text("system", text)))
}

/// The texts of blocks that may be text only.
fn texts(blocks: &[Value], place: &str) -> Result<String, ApiError> {
    let text = |(index, value): (usize, &Value)| {
        let mut block = Fields::of(value, item(place, index))?;
        match block.needed_text("type")? {
            "text" => Ok(block.needed_text("text")?.to_owned()),
            kind => Err(not_text(&block, kind)),
        }
    };
    let texts: Vec<String> = blocks.iter().enumerate().map(text).collect::<Result<_, ApiError>>()?;
    Ok(texts.join("\n"))
}

fn not_text(block: &Fields<'_>, kind: &str) -> ApiError {
    let shown: String = kind.chars().take(40).collect();
    ApiError::unsupported(block.name("type"), format!("this model reads text only, and a block is `{shown}`"))
}

/// What a message's blocks hold.
#[derive(Default)]
struct Turn {
    texts: Vec<String>,
    reasoning: Vec<String>,
    calls: Vec<Value>,
    /// Ids and texts.
    results: Vec<(String, String)>,
}

fn turn(value: &Value, place: String, messages: &mut Vec<ChatMessage>) -> Result<(), ApiError> {
    let mut fields = Fields::of(value, place)?;
    let role = fields.word("role", &["user", "assistant"])?.ok_or_else(|| fields.missing("role"))?;
    let mut turn = Turn::default();
    match fields.value("content") {
        None => return Err(fields.missing("content")),
        Some(Value::String(text)) => turn.texts.push(text.clone()),
        Some(Value::Array(blocks)) => {
            let name = fields.name("content");
            for (index, block) in blocks.iter().enumerate() {
                turn.block(Fields::of(block, item(&name, index))?, role)?;
            }
        }
        Some(other) => return Err(fields.wrong("content", "a string or an array of blocks", other)),
    }
    fields.finish()?;
    turn.put(role, messages)
}

impl Turn {
    fn block(&mut self, mut block: Fields<'_>, role: &str) -> Result<(), ApiError> {
        let is_assistant = role == "assistant";
        match block.needed_text("type")? {
            "text" => self.texts.push(block.needed_text("text")?.to_owned()),
            "thinking" if is_assistant => self.reasoning.push(block.needed_text("thinking")?.to_owned()),
            "redacted_thinking" if is_assistant => {}
            "tool_use" if is_assistant => {
                let id = block.needed_text("id")?;
                let name = block.needed_text("name")?;
                let input = block.object("input")?.ok_or_else(|| block.missing("input"))?;
                self.calls.push(json!({
                    "id": id, "type": "function", "function": { "name": name, "arguments": Value::Object(input.clone()).to_string() },
                }));
            }
            "tool_result" if !is_assistant => {
                let id = block.needed_text("tool_use_id")?.to_owned();
                let place = block.name("content");
                let text = match block.value("content") {
                    None => String::new(),
                    Some(Value::String(text)) => text.clone(),
                    Some(Value::Array(blocks)) => texts(blocks, &place)?,
                    Some(other) => return Err(block.wrong("content", "a string or an array of blocks", other)),
                };
                let failed = block.flag("is_error")?.unwrap_or(false);
                self.results.push((id, if failed { format!("error: {text}") } else { text }));
            }
            kind => return Err(not_text(&block, kind)),
        }
        Ok(())
    }

    fn put(self, role: &str, messages: &mut Vec<ChatMessage>) -> Result<(), ApiError> {
        for (id, text) in self.results {
            let mut message = ChatMessage::text("tool", text);
            message.fields.insert("tool_call_id".to_owned(), Value::from(id));
            messages.push(message);
        }
        if role == "user" {
            if !self.texts.is_empty() {
                messages.push(ChatMessage::text("user", self.texts.join("\n")));
            }
            return Ok(());
        }
        let mut object = json!({ "role": "assistant", "content": self.texts.join("\n") });
        if !self.calls.is_empty() {
            object["tool_calls"] = Value::Array(self.calls);
        }
        if !self.reasoning.is_empty() {
            object["reasoning_content"] = Value::from(self.reasoning.join("\n"));
        }
        let message = ChatMessage::from_json(&object);
        messages.push(message.map_err(|error| ApiError::field("messages", error.to_string()))?);
        Ok(())
    }
}

fn tools(fields: &mut Fields<'_>) -> Result<Vec<Value>, ApiError> {
    let list = fields.array("tools")?.unwrap_or(&[]);
    let tool = |(index, value): (usize, &Value)| {
        let mut tool = Fields::of(value, item("tools", index))?;
        if let Some(kind) = tool.text("type")?.filter(|kind| *kind != "custom") {
            let shown: String = kind.chars().take(40).collect();
            let message =
                format!("`{shown}` is a tool of Anthropic's own servers; only tools of your own can be called");
            return Err(ApiError::unsupported(tool.name("type"), message));
        }
        let name = tool.needed_text("name")?;
        conversation::check_name(&tool, "name", name)?;
        let description = tool.text("description")?;
        let schema = tool.object("input_schema")?.ok_or_else(|| tool.missing("input_schema"))?;
        Ok(conversation::tool(name, description, Some(schema)))
    };
    let tools: Vec<Value> = list.iter().enumerate().map(tool).collect::<Result<_, ApiError>>()?;
    conversation::check_tools(&tools)?;
    Ok(tools)
}

fn tool_choice(fields: &mut Fields<'_>, tools: &[Value]) -> Result<(ToolChoice, bool), ApiError> {
    let Some(mut choice) = fields.inner("tool_choice")? else { return Ok((ToolChoice::Auto, false)) };
    let kind = choice.word("type", &["auto", "any", "tool", "none"])?.ok_or_else(|| choice.missing("type"))?;
    let chosen = match kind {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "tool" => ToolChoice::Named(choice.needed_text("name")?.to_owned()),
        _ => ToolChoice::None,
    };
    let one_call = choice.flag("disable_parallel_tool_use")?.unwrap_or(false);
    choice.finish()?;
    if tools.is_empty() && matches!(chosen, ToolChoice::Required | ToolChoice::Named(_)) {
        return Err(ApiError::field("tool_choice", "`tool_choice` asks for a call, and there are no `tools`"));
    }
    Ok((chosen, one_call))
}

/// Whether reasoning is wanted. Without a word of it the model does as it likes, and none is shown.
fn thinking(fields: &mut Fields<'_>, variables: &mut Map<String, Value>) -> Result<bool, ApiError> {
    let Some(mut thinking) = fields.inner("thinking")? else { return Ok(false) };
    let kind = thinking.word("type", &["enabled", "disabled", "adaptive"])?.ok_or_else(|| thinking.missing("type"))?;
    thinking.whole("budget_tokens", 1..=u64::MAX)?;
    thinking.text("display")?;
    thinking.finish()?;
    let wanted = kind != "disabled";
    variables.insert("enable_thinking".to_owned(), Value::from(wanted));
    Ok(wanted)
}

/// What the answer's text must be.
fn form(fields: &mut Fields<'_>, variables: &mut Map<String, Value>) -> Result<Option<Form>, ApiError> {
    let mut form = None;
    if let Some(mut config) = fields.inner("output_config")? {
        if let Some(effort) = config.word("effort", &["low", "medium", "high", "xhigh", "max"])? {
            variables.insert("reasoning_effort".to_owned(), Value::from(effort));
        }
        if let Some(format) = config.inner("format")? {
            form = Some(schema(format)?);
        }
        config.finish()?;
    }
    if let Some(format) = fields.inner("output_format")? {
        form = Some(schema(format)?);
    }
    Ok(form)
}

fn schema(mut format: Fields<'_>) -> Result<Form, ApiError> {
    format.word("type", &["json_schema"])?.ok_or_else(|| format.missing("type"))?;
    let schema = format.object("schema")?.ok_or_else(|| format.missing("schema"))?;
    let form = Form::Schema(Value::Object(schema.clone()));
    format.finish()?;
    Ok(form)
}
