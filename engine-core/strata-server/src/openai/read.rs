//! Reads what OpenAI's request bodies share: how tokens are chosen, messages, tools, response formats.

use serde_json::{Map, Value};
use strata_engine::SamplerSettings;
use strata_model::chat::Message;

use crate::api_error::ApiError;
use crate::conversation::{self, ToolChoice};
use crate::fields::{Fields, item};
use crate::room::Form;

/// Most stop texts of a request. OpenAI allows 4; there is no reason for so few.
const MOST_STOPS: usize = 32;
const MOST_BIASES: usize = 1024;

/// How the next token is chosen, with the room's own settings where nothing is said.
pub(crate) fn sampling(
    fields: &mut Fields<'_>,
    usual: &SamplerSettings,
    vocabulary: u64,
) -> Result<SamplerSettings, ApiError> {
    let mut settings = usual.clone();
    if let Some(value) = fields.number("temperature", 0.0..=2.0)? {
        settings.temperature = value as f32;
    }
    if let Some(value) = fields.number("top_p", 0.0..=1.0)? {
        // Nothing reaches a probability of 0 but the most likely token alone.
        if value == 0.0 {
            settings.top_k = 1;
        } else {
            settings.top_p = value as f32;
        }
    }
    if let Some(value) = fields.whole("top_k", 0..=u64::from(u32::MAX))? {
        settings.top_k = value as u32;
    }
    if let Some(value) = fields.number("min_p", 0.0..=1.0)? {
        settings.min_p = value as f32;
    }
    if let Some(value) = fields.number("repeat_penalty", 0.01..=100.0)? {
        settings.repeat_penalty = value as f32;
    }
    if let Some(value) = fields.whole("repeat_last_n", 0..=1 << 20)? {
        settings.repeat_window = value as u32;
    }
    if let Some(value) = fields.number("presence_penalty", -2.0..=2.0)? {
        settings.presence_penalty = value as f32;
    }
    if let Some(value) = fields.number("frequency_penalty", -2.0..=2.0)? {
        settings.frequency_penalty = value as f32;
    }
    if let Some(seed) = seed(fields)? {
        settings.seed = Some(seed);
    }
    if let Some(biases) = fields.object("logit_bias")? {
        settings.logit_bias = logit_bias(biases, vocabulary)?;
    }
    Ok(settings)
}

/// Any whole number, negative ones too.
fn seed(fields: &mut Fields<'_>) -> Result<Option<u64>, ApiError> {
    match fields.value("seed") {
        None => Ok(None),
        Some(value) => match (value.as_u64(), value.as_i64()) {
            (Some(seed), _) => Ok(Some(seed)),
            (None, Some(seed)) => Ok(Some(seed as u64)),
            (None, None) => Err(fields.wrong("seed", "a whole number", value)),
        },
    }
}

fn logit_bias(biases: &Map<String, Value>, vocabulary: u64) -> Result<Vec<(u32, f32)>, ApiError> {
    if biases.len() > MOST_BIASES {
        let message = format!("`logit_bias` has {} entries, {MOST_BIASES} is the most", biases.len());
        return Err(ApiError::field("logit_bias", message));
    }
    let entry = |(token, bias): (&String, &Value)| {
        let shown: String = token.chars().take(20).collect();
        let name = format!("logit_bias.{shown}");
        let id = token.parse::<u32>().ok().filter(|id| u64::from(*id) < vocabulary);
        let bias = bias.as_f64().filter(|bias| (-100.0..=100.0).contains(bias));
        match (id, bias) {
            (Some(id), Some(bias)) => Ok((id, bias as f32)),
            (None, _) => {
                let message = format!("`{name}`: a token id from 0 to {} is needed", vocabulary.saturating_sub(1));
                Err(ApiError::field(name, message))
            }
            (_, None) => Err(ApiError::field(name.clone(), format!("`{name}` has to be a number from -100 to 100"))),
        }
    };
    biases.iter().map(entry).collect()
}

pub(crate) fn stops(fields: &mut Fields<'_>) -> Result<Vec<String>, ApiError> {
    let stops = fields.texts("stop", MOST_STOPS)?;
    if stops.iter().any(String::is_empty) {
        return Err(ApiError::field("stop", "`stop` holds an empty text, which would end every answer at once"));
    }
    Ok(stops)
}

/// `messages` of a chat.
pub(crate) fn messages(fields: &mut Fields<'_>) -> Result<Vec<Message>, ApiError> {
    let list = fields.array("messages")?.ok_or_else(|| fields.missing("messages"))?;
    list.iter().enumerate().map(|(index, value)| message(value, item("messages", index))).collect()
}

/// A message of a conversation.
pub(crate) fn message(value: &Value, place: String) -> Result<Message, ApiError> {
    let mut fields = Fields::of(value, place)?;
    let role = fields.word("role", &["system", "developer", "user", "assistant", "tool"])?;
    let role = role.ok_or_else(|| fields.missing("role"))?;
    let content = content_of(&mut fields, "content")?;
    let mut object = Map::new();
    // Models are trained with the older word.
    let role = if role == "developer" { "system" } else { role };
    object.insert("role".to_owned(), Value::from(role));
    let calls = if role == "assistant" { calls(&mut fields)? } else { None };
    match content {
        Some(text) => object.insert("content".to_owned(), Value::from(text)),
        None if role == "assistant" && calls.is_some() => object.insert("content".to_owned(), Value::Null),
        // An answer that was refused, or that was reasoning only.
        None if role == "assistant" => object.insert("content".to_owned(), Value::from("")),
        None => return Err(fields.missing("content")),
    };
    if let Some(calls) = calls {
        object.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    for field in ["name", "reasoning_content"] {
        if let Some(text) = fields.text(field)? {
            object.insert(field.to_owned(), Value::from(text));
        }
    }
    if role == "tool" {
        object.insert("tool_call_id".to_owned(), Value::from(fields.needed_text("tool_call_id")?));
    }
    // Clients send back messages as they got them, with fields of other servers: those say nothing to
    // the model, and are no reason to refuse.
    let place = fields.name("");
    Message::from_json(&Value::Object(object)).map_err(|error| {
        let place = place.trim_end_matches('.').to_owned();
        ApiError::field(place.clone(), format!("`{place}`: {error}"))
    })
}

/// A text, or the texts of parts joined by lines.
pub(crate) fn content_of(fields: &mut Fields<'_>, field: &'static str) -> Result<Option<String>, ApiError> {
    let parts = match fields.value(field) {
        None => return Ok(None),
        Some(Value::String(text)) => return Ok(Some(text.clone())),
        Some(Value::Array(parts)) => parts,
        Some(other) => return Err(fields.wrong(field, "a string or an array of parts", other)),
    };
    let name = fields.name(field);
    let mut texts = Vec::with_capacity(parts.len());
    for (index, value) in parts.iter().enumerate() {
        let mut part = Fields::of(value, item(&name, index))?;
        match part.needed_text("type")? {
            "text" | "input_text" | "output_text" => texts.push(part.needed_text("text")?.to_owned()),
            "refusal" => texts.push(part.needed_text("refusal")?.to_owned()),
            kind @ ("image_url" | "input_image" | "input_audio" | "file" | "input_file") => {
                let name = part.name("type");
                return Err(ApiError::unsupported(name, format!("this model reads text only, and a part is `{kind}`")));
            }
            other => {
                let value = Value::String(other.to_owned());
                return Err(part.wrong("type", "`text`", &value));
            }
        }
    }
    Ok(Some(texts.join("\n")))
}

/// Calls that an earlier answer made.
fn calls(fields: &mut Fields<'_>) -> Result<Option<Vec<Value>>, ApiError> {
    let name = fields.name("tool_calls");
    let Some(list) = fields.array("tool_calls")? else { return Ok(None) };
    let call = |(index, value): (usize, &Value)| {
        let mut call = Fields::of(value, item(&name, index))?;
        let id = call.text("id")?.unwrap_or("");
        call.word("type", &["function"])?;
        let mut function = call.inner("function")?.ok_or_else(|| call.missing("function"))?;
        let name = function.needed_text("name")?;
        let arguments = function.needed_text("arguments")?;
        let object = serde_json::json!({
            "id": id, "type": "function", "function": { "name": name, "arguments": arguments },
        });
        Ok(object)
    };
    let calls: Vec<Value> = list.iter().enumerate().map(call).collect::<Result<_, ApiError>>()?;
    Ok((!calls.is_empty()).then_some(calls))
}

/// `tools` and `tool_choice` of a chat.
pub(crate) fn tools(fields: &mut Fields<'_>) -> Result<(Vec<Value>, ToolChoice), ApiError> {
    let list = fields.array("tools")?.unwrap_or(&[]);
    let tool = |(index, value): (usize, &Value)| {
        let mut tool = Fields::of(value, item("tools", index))?;
        tool.word("type", &["function"])?.ok_or_else(|| tool.missing("type"))?;
        let mut function = tool.inner("function")?.ok_or_else(|| tool.missing("function"))?;
        function_tool(&mut function)
    };
    let tools: Vec<Value> = list.iter().enumerate().map(tool).collect::<Result<_, ApiError>>()?;
    conversation::check_tools(&tools)?;
    let choice = tool_choice(fields, &tools)?;
    Ok((tools, choice))
}

/// `tool_choice` of a chat with these tools.
pub(crate) fn tool_choice(fields: &mut Fields<'_>, tools: &[Value]) -> Result<ToolChoice, ApiError> {
    let choice = match fields.value("tool_choice") {
        None => ToolChoice::Auto,
        Some(Value::String(word)) => match word.as_str() {
            "none" => ToolChoice::None,
            "auto" => ToolChoice::Auto,
            "required" => ToolChoice::Required,
            _ => {
                let value = Value::String(word.clone());
                return Err(fields.wrong("tool_choice", "`none`, `auto`, `required` or an object", &value));
            }
        },
        Some(value) => {
            let mut choice = Fields::of(value, "tool_choice")?;
            choice.word("type", &["function"])?;
            // The responses interface has the name one level higher.
            let name = match choice.inner("function")? {
                Some(mut function) => function.needed_text("name")?,
                None => choice.needed_text("name")?,
            };
            ToolChoice::Named(name.to_owned())
        }
    };
    let needs_tools = matches!(choice, ToolChoice::Required | ToolChoice::Named(_));
    if needs_tools && tools.is_empty() {
        return Err(ApiError::field("tool_choice", "`tool_choice` asks for a call, and there are no `tools`"));
    }
    Ok(choice)
}

/// A function's fields: `name`, `description`, `parameters`.
pub(crate) fn function_tool(function: &mut Fields<'_>) -> Result<Value, ApiError> {
    let name = function.needed_text("name")?;
    conversation::check_name(function, "name", name)?;
    let description = function.text("description")?;
    let parameters = function.object("parameters")?;
    function.flag("strict")?;
    Ok(conversation::tool(name, description, parameters))
}

/// `response_format` of a chat.
pub(crate) fn response_format(fields: &mut Fields<'_>) -> Result<Option<Form>, ApiError> {
    let Some(mut format) = fields.inner("response_format")? else { return Ok(None) };
    let form = match format.word("type", &["text", "json_object", "json_schema"])? {
        None => return Err(format.missing("type")),
        Some("json_object") => {
            // Some servers take a schema here.
            Some(format.object("schema")?.map_or(Form::Json, |schema| Form::Schema(Value::Object(schema.clone()))))
        }
        Some("json_schema") => {
            let mut schema = format.inner("json_schema")?.ok_or_else(|| format.missing("json_schema"))?;
            schema.text("name")?;
            schema.text("description")?;
            schema.flag("strict")?;
            let object = schema.object("schema")?.ok_or_else(|| schema.missing("schema"))?;
            schema.finish()?;
            Some(Form::Schema(Value::Object(object.clone())))
        }
        Some(_) => None,
    };
    format.finish()?;
    Ok(form)
}

/// Variables of the template: whatever is given, and the effort of reasoning.
pub(crate) fn variables(fields: &mut Fields<'_>) -> Result<Map<String, Value>, ApiError> {
    let mut variables = fields.object("chat_template_kwargs")?.cloned().unwrap_or_default();
    if let Some(effort) = fields.word("reasoning_effort", &["none", "minimal", "low", "medium", "high", "xhigh"])? {
        effort_variables(effort, &mut variables);
    }
    Ok(variables)
}

/// Templates that know efforts get the word; those that only know whether, get that.
pub(crate) fn effort_variables(effort: &str, variables: &mut Map<String, Value>) {
    variables.entry("reasoning_effort").or_insert(Value::from(effort));
    variables.entry("enable_thinking").or_insert(Value::from(!matches!(effort, "none" | "minimal")));
}
