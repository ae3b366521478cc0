//! Messages as templates see them: dictionaries with a role, content, and whatever else the
//! model's own format knows.

use crate::TextError;
use minijinja::Value;
use serde_json::{Map, Value as Json};

/// One message of a chat.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool`.
    pub role: String,
    pub content: Content,
    /// Everything else, in order: `tool_calls`, `tool_call_id`, `name`, `reasoning_content`.
    pub fields: Map<String, Json>,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    Text(String),
    /// Typed parts, `{"type": "text", "text": …}`.
    Parts(Vec<Json>),
    /// `null`, as in an answer that only calls tools.
    Null,
    /// The key is not there. Some templates tell that from `null`.
    Absent,
}

impl Message {
    pub fn text(role: impl Into<String>, content: impl Into<String>) -> Self {
        Message { role: role.into(), content: Content::Text(content.into()), fields: Map::new() }
    }

    /// From an object of the OpenAI API. Arguments of tool calls, which come as a string there,
    /// become the object that they hold: that is what templates expect.
    pub fn from_json(json: &Json) -> Result<Self, TextError> {
        let refuse = |text: &str| TextError::TemplateRefused { text: text.to_owned() };
        let Json::Object(object) = json else { return Err(refuse("a message is not an object")) };
        let mut fields = object.clone();
        let Some(Json::String(role)) = fields.shift_remove("role") else {
            return Err(refuse("a message has no role, or it is not a string"));
        };
        let content = match fields.shift_remove("content") {
            None => Content::Absent,
            Some(Json::Null) => Content::Null,
            Some(Json::String(text)) => Content::Text(text),
            Some(Json::Array(parts)) => Content::Parts(parts),
            Some(_) => return Err(refuse("the content of a message is not a string, a list of parts or null")),
        };
        if let Some(Json::Array(calls)) = fields.get_mut("tool_calls") {
            for call in calls {
                let Some(arguments) = call.pointer_mut("/function/arguments") else { continue };
                if let Some(object) = arguments.as_str().and_then(|text| serde_json::from_str::<Json>(text).ok())
                    && object.is_object()
                {
                    *arguments = object;
                }
            }
        }
        Ok(Message { role, content, fields })
    }

    pub(super) fn to_value(&self) -> Value {
        let content = match &self.content {
            Content::Text(text) => Some(Value::from(text)),
            Content::Parts(parts) => Some(parts.iter().map(to_value).collect()),
            Content::Null => Some(Value::from(())),
            Content::Absent => None,
        };
        let first = [("role", Some(Value::from(&self.role))), ("content", content)];
        let first = first.into_iter().filter_map(|(name, value)| Some((Value::from(name), value?)));
        let others = self.fields.iter().map(|(name, value)| (Value::from(name), to_value(value)));
        Value::from_pairs(first.chain(others))
    }

    /// Bytes of text in it: what a template has to work through.
    pub(super) fn text_bytes(&self) -> usize {
        let content = match &self.content {
            Content::Text(text) => text.len(),
            Content::Parts(parts) => parts.iter().map(text_bytes).sum(),
            Content::Null | Content::Absent => 0,
        };
        content + self.fields.values().map(text_bytes).sum::<usize>() + self.role.len()
    }
}

/// A template's value from JSON, with the order of keys kept.
pub(super) fn to_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text),
        Json::Array(items) => items.iter().map(to_value).collect(),
        Json::Object(object) => {
            Value::from_pairs(object.iter().map(|(key, value)| (Value::from(key), to_value(value))))
        }
    }
}

/// Bytes of text, and one for everything that has none.
pub(super) fn text_bytes(json: &Json) -> usize {
    match json {
        Json::String(text) => text.len() + 1,
        Json::Array(items) => 1 + items.iter().map(text_bytes).sum::<usize>(),
        Json::Object(object) => 1 + object.iter().map(|(key, value)| key.len() + 1 + text_bytes(value)).sum::<usize>(),
        Json::Null | Json::Bool(_) | Json::Number(_) => 8,
    }
}
