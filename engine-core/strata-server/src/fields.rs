//! Reads the fields of JSON objects that somebody sent: each reader says which field, what was
//! given and what is allowed, and at the end which fields the interface does not have.
//!
//! It knows no interface; the modules that read requests call it.

use serde_json::{Map, Value};
use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::api_error::ApiError;

/// An object whose fields are asked for one by one.
#[derive(Debug)]
pub(crate) struct Fields<'v> {
    /// Where the object is: empty for the body itself, else `messages[2]`.
    place: String,
    object: &'v Map<String, Value>,
    asked: Vec<&'static str>,
}

/// What a value is, for messages. Long texts are cut.
fn given(value: &Value) -> String {
    const LONGEST: usize = 60;
    let kind = match value {
        Value::Null => return "null".to_owned(),
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    // Containers may be megabytes; only short values are worth showing.
    match value {
        Value::Array(items) => format!("{kind} of {} items", items.len()),
        Value::Object(fields) => format!("{kind} of {} fields", fields.len()),
        Value::String(text) if text.chars().count() > LONGEST => {
            format!("{kind} of {} characters", text.chars().count())
        }
        other => format!("{kind} ({other})"),
    }
}

/// `messages` and 2: `messages[2]`.
pub(crate) fn item(place: &str, index: usize) -> String {
    format!("{place}[{index}]")
}

impl<'v> Fields<'v> {
    /// The fields of a value that must be an object.
    pub(crate) fn of(value: &'v Value, place: impl Into<String>) -> Result<Fields<'v>, ApiError> {
        let place = place.into();
        match value {
            Value::Object(object) => Ok(Fields { place, object, asked: Vec::new() }),
            other if place.is_empty() => {
                let message = format!("the body has to be a JSON object, and is {}", given(other));
                Err(ApiError::new(
                    axum::http::StatusCode::BAD_REQUEST,
                    strata_diag::catalogue::serving::BAD_REQUEST,
                    message,
                ))
            }
            other => {
                let message = format!("`{place}` has to be an object, and is {}", given(other));
                Err(ApiError::field(place, message))
            }
        }
    }

    /// The full name of a field, as error messages have it.
    pub(crate) fn name(&self, field: &str) -> String {
        if self.place.is_empty() { field.to_owned() } else { format!("{}.{field}", self.place) }
    }

    /// The value of a field; `null` counts as absent, as the official clients mean it.
    pub(crate) fn value(&mut self, field: &'static str) -> Option<&'v Value> {
        self.asked.push(field);
        self.object.get(field).filter(|value| !value.is_null())
    }

    /// Fields that may be there and change nothing here.
    pub(crate) fn ignore(&mut self, fields: &[&'static str]) {
        self.asked.extend_from_slice(fields);
    }

    pub(crate) fn wrong(&self, field: &str, expected: impl Display, value: &Value) -> ApiError {
        let name = self.name(field);
        let message = format!("`{name}` has to be {expected}, and is {}", given(value));
        ApiError::field(name, message).named("invalid_type")
    }

    pub(crate) fn missing(&self, field: &str) -> ApiError {
        let name = self.name(field);
        let message = format!("`{name}` is needed, and is absent");
        ApiError::field(name, message).named("missing_required_parameter")
    }

    pub(crate) fn text(&mut self, field: &'static str) -> Result<Option<&'v str>, ApiError> {
        match self.value(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(field, "a string", other)),
        }
    }

    pub(crate) fn needed_text(&mut self, field: &'static str) -> Result<&'v str, ApiError> {
        self.text(field)?.ok_or_else(|| self.missing(field))
    }

    /// One of some words.
    pub(crate) fn word(&mut self, field: &'static str, words: &[&str]) -> Result<Option<&'v str>, ApiError> {
        match self.text(field)? {
            Some(word) if !words.contains(&word) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                let value = Value::String(word.to_owned());
                Err(self.wrong(field, format!("one of {}", quoted.join(", ")), &value).named("invalid_value"))
            }
            other => Ok(other),
        }
    }

    pub(crate) fn flag(&mut self, field: &'static str) -> Result<Option<bool>, ApiError> {
        match self.value(field) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.wrong(field, "true or false", other)),
        }
    }

    pub(crate) fn number(&mut self, field: &'static str, range: RangeInclusive<f64>) -> Result<Option<f64>, ApiError> {
        let Some(value) = self.value(field) else { return Ok(None) };
        let expected = format!("a number from {} to {}", range.start(), range.end());
        match value.as_f64() {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(self.wrong(field, expected, value)),
        }
    }

    pub(crate) fn whole(&mut self, field: &'static str, range: RangeInclusive<u64>) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.value(field) else { return Ok(None) };
        // Clients in languages with one kind of number write 16.0.
        let whole = value.as_u64().or_else(|| {
            let number = value.as_f64()?;
            (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as u64)
        });
        match whole {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => {
                let expected = match *range.end() {
                    u64::MAX => format!("a whole number of at least {}", range.start()),
                    most => format!("a whole number from {} to {most}", range.start()),
                };
                Err(self.wrong(field, expected, value))
            }
        }
    }

    pub(crate) fn array(&mut self, field: &'static str) -> Result<Option<&'v [Value]>, ApiError> {
        match self.value(field) {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(self.wrong(field, "an array", other)),
        }
    }

    pub(crate) fn object(&mut self, field: &'static str) -> Result<Option<&'v Map<String, Value>>, ApiError> {
        match self.value(field) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(other) => Err(self.wrong(field, "an object", other)),
        }
    }

    /// The fields of an object within this one.
    pub(crate) fn inner(&mut self, field: &'static str) -> Result<Option<Fields<'v>>, ApiError> {
        let name = self.name(field);
        self.value(field).map(|value| Fields::of(value, name)).transpose()
    }

    /// One string or several.
    pub(crate) fn texts(&mut self, field: &'static str, most: usize) -> Result<Vec<String>, ApiError> {
        let items = match self.value(field) {
            None => return Ok(Vec::new()),
            Some(Value::String(text)) => return Ok(vec![text.clone()]),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(self.wrong(field, "a string or an array of strings", other)),
        };
        if items.len() > most {
            let name = self.name(field);
            let message = format!("`{name}` has {} entries, {most} is the most", items.len());
            return Err(ApiError::field(name, message).named("array_above_max_length"));
        }
        let text = |(index, value): (usize, &Value)| match value {
            Value::String(text) => Ok(text.clone()),
            other => Err(self.wrong(&item(field, index), "a string", other)),
        };
        items.iter().enumerate().map(text).collect()
    }

    /// Refuses what nobody asked for: a field that is misspelt would else be ignored in silence.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        let unknown = self.object.keys().find(|key| !self.asked.contains(&key.as_str()));
        match unknown {
            None => Ok(()),
            Some(key) => {
                let shown: String = key.chars().take(80).collect();
                let name = self.name(&shown);
                let message = format!("unknown parameter: `{name}`");
                Err(ApiError::field(name, message).named("unknown_parameter"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message<T>(result: Result<T, ApiError>) -> String {
        result.err().map(|error| error.message().to_owned()).unwrap_or_default()
    }

    #[test]
    fn each_message_names_the_field_and_what_was_given() {
        let body = json!({
            "t": 3, "f": "yes", "n": 2.5, "x": [1, 2], "w": "b", "stop": ["a", 1], "big": "x".repeat(100), "null": null,
        });
        let mut fields = Fields::of(&body, "").unwrap();
        assert_eq!(message(fields.text("t")), "`t` has to be a string, and is a number (3)");
        assert_eq!(message(fields.flag("f")), "`f` has to be true or false, and is a string (\"yes\")");
        assert_eq!(
            message(fields.whole("n", 1..=8)),
            "`n` has to be a whole number from 1 to 8, and is a number (2.5)"
        );
        assert_eq!(message(fields.number("n", 0.0..=2.0)), "`n` has to be a number from 0 to 2, and is a number (2.5)");
        assert_eq!(message(fields.text("x")), "`x` has to be a string, and is an array of 2 items");
        assert_eq!(message(fields.word("w", &["a"])), "`w` has to be one of `a`, and is a string (\"b\")");
        assert_eq!(message(fields.texts("stop", 4)), "`stop[1]` has to be a string, and is a number (1)");
        assert_eq!(message(fields.flag("big")), "`big` has to be true or false, and is a string of 100 characters");
        assert_eq!(fields.text("null").unwrap(), None);
        assert_eq!(message(fields.needed_text("absent")), "`absent` is needed, and is absent");
        assert_eq!(message(fields.finish()), "");
    }

    #[test]
    fn a_field_that_nobody_asked_for_is_an_error() {
        let body = json!({ "model": "m", "temprature": 1 });
        let mut fields = Fields::of(&body, "").unwrap();
        fields.text("model").unwrap();
        assert_eq!(message(fields.finish()), "unknown parameter: `temprature`");
        let list = json!([1]);
        assert_eq!(message(Fields::of(&list, "")), "the body has to be a JSON object, and is an array of 1 items");
        assert_eq!(
            message(Fields::of(&list, "tools[0]")),
            "`tools[0]` has to be an object, and is an array of 1 items"
        );
    }

    #[test]
    fn whole_numbers_may_be_written_as_floats() {
        let body = json!({ "n": 16.0, "m": -1, "h": 1e300 });
        let mut fields = Fields::of(&body, "").unwrap();
        assert_eq!(fields.whole("n", 0..=u64::MAX).unwrap(), Some(16));
        assert!(message(fields.whole("m", 0..=u64::MAX)).contains("at least 0"));
        assert!(fields.whole("h", 0..=u64::MAX).is_err());
    }
}
