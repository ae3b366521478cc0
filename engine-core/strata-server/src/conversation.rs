//! Conversations and tools, as all interfaces bring them to the room: messages in OpenAI's form, the
//! tools that may be called, and what a template that knows no tools is told instead.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::sync::Arc;
use strata_diag::catalogue::serving::BAD_REQUEST;
use strata_model::chat::{Content, Message};

use crate::api_error::ApiError;
use crate::drive::blocking;
use crate::fields::Fields;
use crate::output::{CallStyle, Expected, Style};
use crate::room::{Chat, Form, Rendered, Room, ToolForm};

/// More tools than any model can choose from.
const MOST_TOOLS: usize = 128;
const LONGEST_NAME: usize = 64;

/// Which tools may be called, and whether one must be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ToolChoice {
    None,
    Auto,
    /// Any.
    Required,
    Named(String),
}

/// A tool in OpenAI's form, checked.
pub(crate) fn tool(name: &str, description: Option<&str>, parameters: Option<&Map<String, Value>>) -> Value {
    let mut function = json!({ "name": name });
    if let Some(description) = description {
        function["description"] = json!(description);
    }
    let empty = || json!({ "type": "object", "properties": {} });
    function["parameters"] = parameters.map_or_else(empty, |parameters| Value::Object(parameters.clone()));
    json!({ "type": "function", "function": function })
}

pub(crate) fn tool_name(tool: &Value) -> &str {
    tool.pointer("/function/name").and_then(Value::as_str).unwrap_or("")
}

/// Checks the name of a tool.
pub(crate) fn check_name(fields: &Fields<'_>, field: &str, name: &str) -> Result<(), ApiError> {
    let is_good = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if is_good {
        return Ok(());
    }
    let expected = format!("1 to {LONGEST_NAME} letters, digits, `_` and `-`");
    Err(fields.wrong(field, expected, &Value::String(name.to_owned())))
}

/// Refuses two tools of a name, and more than can be meant.
pub(crate) fn check_tools(tools: &[Value]) -> Result<(), ApiError> {
    if tools.len() > MOST_TOOLS {
        return Err(ApiError::field("tools", format!("`tools` has {} entries, {MOST_TOOLS} is the most", tools.len())));
    }
    for (index, tool) in tools.iter().enumerate() {
        let name = tool_name(tool);
        if tools[..index].iter().any(|other| tool_name(other) == name) {
            let message = format!("`tools[{index}]`: there is another tool named `{name}`");
            return Err(ApiError::field(format!("tools[{index}]"), message));
        }
    }
    Ok(())
}

/// A conversation that was read.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    pub(crate) tools: Vec<Value>,
    pub(crate) choice: ToolChoice,
    pub(crate) variables: Map<String, Value>,
    /// What the answer's text must be, when no call is asked for.
    pub(crate) form: Option<Form>,
}

/// A conversation in the room's words.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) prompt: Vec<u32>,
    pub(crate) form: Option<Form>,
    pub(crate) expected: Expected,
}

/// Renders a conversation with the model's own template.
pub(crate) async fn prepare(room: &Arc<dyn Room>, conversation: Conversation) -> Result<Prepared, ApiError> {
    let style = Style::of_template(room.facts().template.as_deref());
    let Conversation { mut messages, tools, choice, mut variables, form } = conversation;
    if messages.is_empty() {
        return Err(ApiError::field("messages", "`messages` is empty; at least one message is needed"));
    }
    let tools = if choice == ToolChoice::None { Vec::new() } else { tools };
    let form = match &choice {
        ToolChoice::Required => Some(tool_form(style, &tools)),
        ToolChoice::Named(name) => Some(tool_form(style, &named(&tools, name)?)),
        _ => form,
    };
    if form.is_some() && style.thinks {
        // The form holds from the first token on, so there is no room for reasoning.
        variables.entry("enable_thinking").or_insert(json!(false));
    }
    let shown = if tools.is_empty() || style.knows_tools {
        (!tools.is_empty()).then(|| Value::Array(tools.clone()))
    } else {
        describe_tools(&mut messages, &tools);
        None
    };
    if !style.knows_tools {
        messages = messages.into_iter().map(without_calls).collect();
    }
    let chat = Chat { messages, tools: shown, variables };
    let worker = Arc::clone(room);
    let rendered = blocking(move || worker.render(&chat)).await?;
    let Rendered { tokens, tail } = rendered.map_err(ApiError::from)?;
    let forced = matches!(choice, ToolChoice::Required | ToolChoice::Named(_));
    let in_reasoning = form.is_none() && style.begins_in_reasoning(&tail);
    let expected = Expected { style, tools, forced, in_reasoning, plain: false };
    Ok(Prepared { prompt: tokens, form, expected })
}

fn named(tools: &[Value], name: &str) -> Result<Vec<Value>, ApiError> {
    let found: Vec<Value> = tools.iter().filter(|tool| tool_name(tool) == name).cloned().collect();
    if found.is_empty() {
        let message = format!("`tool_choice` names `{name}`, which is none of `tools`");
        return Err(ApiError::new(StatusCode::BAD_REQUEST, BAD_REQUEST, message).about("tool_choice"));
    }
    Ok(found)
}

/// The form of a call, as this model writes calls.
fn tool_form(style: Style, tools: &[Value]) -> Form {
    let form = |tool: &Value| {
        let name = Value::String(tool_name(tool).to_owned());
        let schema = tool.pointer("/function/parameters").cloned().unwrap_or_else(|| json!({ "type": "object" }));
        let (before, after) = match style.calls {
            CallStyle::Tagged => {
                (format!("<tool_call>\n{{\"name\": {name}, \"arguments\": "), "}\n</tool_call>".to_owned())
            }
            CallStyle::Listed => (format!("[{{\"name\": {name}, \"arguments\": "), "}]".to_owned()),
            CallStyle::Bare => (format!("{{\"name\": {name}, \"parameters\": "), "}".to_owned()),
        };
        ToolForm { before, schema, after }
    };
    Form::Tools(tools.iter().map(form).collect())
}

/// For templates that show the model no tools: a system message that does.
fn describe_tools(messages: &mut Vec<Message>, tools: &[Value]) {
    let mut text = String::from("You can call these functions. Each is described by a line of JSON:\n\n");
    for tool in tools {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", tool.get("function").unwrap_or(&Value::Null));
    }
    text += "\nTo call one, write this and nothing else, with the function's name and its arguments:\n\n\
             <tool_call>\n{\"name\": \"FUNCTION\", \"arguments\": {\"ARGUMENT\": \"VALUE\"}}\n</tool_call>\n\n\
             The result comes in the next message. Answer without a call when you need none.";
    match messages.first_mut() {
        Some(Message { role, content: Content::Text(system), .. }) if role == "system" => {
            *system = format!("{system}\n\n{text}");
        }
        _ => messages.insert(0, Message::text("system", text)),
    }
}

/// For the same templates: calls and their results as the text that the system message speaks of.
fn without_calls(mut message: Message) -> Message {
    if message.role == "tool" {
        let result = match &message.content {
            Content::Text(text) => text.clone(),
            _ => String::new(),
        };
        return Message::text("user", format!("<tool_response>\n{result}\n</tool_response>"));
    }
    let Some(Value::Array(calls)) = message.fields.shift_remove("tool_calls") else { return message };
    let mut text = match message.content {
        Content::Text(text) => text,
        _ => String::new(),
    };
    for call in &calls {
        let name = call.pointer("/function/name").unwrap_or(&Value::Null);
        let arguments = call.pointer("/function/arguments").unwrap_or(&Value::Null);
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = write!(text, "<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n</tool_call>");
    }
    message.content = Content::Text(text);
    message
}
