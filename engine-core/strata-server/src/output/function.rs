//! Calls written as `<function=name><parameter=key>value</parameter></function>`.

use serde_json::{Map, Value};

/// The tool's name and its arguments as JSON. `None`: it is no such call.
pub(super) fn read(text: &str, tools: &[Value]) -> Option<(String, String)> {
    let (_, rest) = text.split_once("<function=")?;
    let (name, mut rest) = rest.split_once('>')?;
    let name = name.trim();
    let mut arguments = Map::new();
    while let Some((_, parameter)) = rest.split_once("<parameter=") {
        let Some((key, after)) = parameter.split_once('>') else { break };
        // A value that was cut off goes to the end.
        let (value, after) = after.split_once("</parameter>").unwrap_or((after, ""));
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.trim().to_owned(), typed(value, schema(tools, name, key.trim())));
        rest = after;
    }
    Some((name.to_owned(), Value::Object(arguments).to_string()))
}

fn schema<'t>(tools: &'t [Value], name: &str, key: &str) -> Option<&'t Value> {
    let tool = tools.iter().find(|tool| tool.pointer("/function/name").and_then(Value::as_str) == Some(name))?;
    tool.pointer("/function/parameters/properties")?.get(key)
}

/// What is written without quotes is a string where the tool wants one, else whatever JSON it is.
fn typed(text: &str, schema: Option<&Value>) -> Value {
    let wanted = schema.and_then(|schema| schema.get("type")).and_then(Value::as_str);
    if wanted == Some("string") {
        return Value::String(text.to_owned());
    }
    // Python's words.
    let text_or = match text.trim() {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        other => other,
    };
    serde_json::from_str(text_or).unwrap_or_else(|_| Value::String(text.to_owned()))
}
