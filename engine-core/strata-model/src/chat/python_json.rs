//! The filter `tojson` as Hugging Face's templates have it: `json.dumps` of Python, with its
//! spacing, its floats and its options. The models were trained on exactly this text; Jinja's own
//! `tojson` would put no blanks and escape for HTML.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use std::fmt::Write;

/// Deeper values than a template can have from messages are made up to exhaust the stack.
const DEEPEST: usize = 128;

/// `value | tojson(indent=…, ensure_ascii=…, separators=…, sort_keys=…)`.
#[expect(clippy::needless_pass_by_value, reason = "minijinja hands filters their keyword arguments by value")]
pub(super) fn tojson(state: &State<'_, '_>, value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<Value> = options.get("indent")?;
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    let separators: Option<Value> = options.get("separators")?;
    options.assert_all_used()?;
    let indent = indent.filter(|indent| !indent.is_none()).map(|indent| indent_text(&indent)).transpose()?;
    let (item, key) = match separators.filter(|separators| !separators.is_none()) {
        Some(separators) => {
            let part = |index| separators.get_item_by_index(index).map(|part| part.to_string());
            (part(0)?, part(1)?)
        }
        None => ((if indent.is_some() { "," } else { ", " }).to_owned(), ": ".to_owned()),
    };
    let mut writer = Writer {
        text: String::new(),
        indent,
        item,
        key,
        ensure_ascii: ensure_ascii.unwrap_or(false),
        sort_keys: sort_keys.unwrap_or(false),
        depth: 0,
    };
    writer.value(value)?;
    state.consume_fuel(writer.text.len() as u64 / 64)?;
    Ok(writer.text)
}

/// `indent=4` is four blanks, `indent="\t"` that string.
fn indent_text(indent: &Value) -> Result<String, Error> {
    match indent.as_str() {
        Some(text) if text.len() <= 64 => Ok(text.to_owned()),
        None if indent.is_integer() => Ok(" ".repeat(indent.as_i64().unwrap_or(0).clamp(0, 64) as usize)),
        _ => Err(Error::new(ErrorKind::InvalidOperation, "indent of tojson is neither a number nor a short string")),
    }
}

struct Writer {
    text: String,
    indent: Option<String>,
    item: String,
    key: String,
    ensure_ascii: bool,
    sort_keys: bool,
    depth: usize,
}

impl Writer {
    fn value(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self.text.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.text.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => self.list(value)?,
            ValueKind::Map => self.dictionary(value)?,
            other => {
                let problem = format!("{other} cannot be written as JSON");
                return Err(Error::new(ErrorKind::BadSerialization, problem));
            }
        }
        Ok(())
    }

    fn list(&mut self, value: &Value) -> Result<(), Error> {
        self.open('[')?;
        let mut empty = true;
        for item in value.try_iter()? {
            self.between(empty);
            empty = false;
            self.value(&item)?;
        }
        self.close(']', empty);
        Ok(())
    }

    fn dictionary(&mut self, value: &Value) -> Result<(), Error> {
        self.open('{')?;
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort_keys {
            keys.sort();
        }
        let empty = keys.is_empty();
        for (index, key) in keys.iter().enumerate() {
            self.between(index == 0);
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default()),
                ValueKind::None => self.string("null"),
                ValueKind::Bool => self.string(if key.is_true() { "true" } else { "false" }),
                _ => self.string(&number(key)),
            }
            self.text.push_str(&self.key);
            self.value(&value.get_item(key)?)?;
        }
        self.close('}', empty);
        Ok(())
    }

    fn open(&mut self, bracket: char) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Error::new(ErrorKind::BadSerialization, "the value is nested too deeply for tojson"));
        }
        self.text.push(bracket);
        Ok(())
    }

    fn between(&mut self, first: bool) {
        if !first {
            self.text.push_str(&self.item);
        }
        self.line();
    }

    fn close(&mut self, bracket: char, empty: bool) {
        self.depth -= 1;
        if !empty {
            self.line();
        }
        self.text.push(bracket);
    }

    fn line(&mut self) {
        if let Some(indent) = &self.indent {
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n(indent.as_str(), self.depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.text.push('"');
        for character in text.chars() {
            match character {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                '\0'..='\u{1f}' => self.escape(character),
                // Python leaves DEL alone when it does not have to write ASCII only, and then too.
                _ if self.ensure_ascii && !character.is_ascii() => self.escape(character),
                _ => self.text.push(character),
            }
        }
        self.text.push('"');
    }

    fn escape(&mut self, character: char) {
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(self.text, "\\u{unit:04x}");
        }
    }
}

/// A number as Python's `repr` writes it.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(number) => float(number),
        Err(_) => value.to_string(),
    }
}

/// The shortest digits that read back as the number; with an exponent below 1e-4 and from 1e16 on.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return (if number > 0.0 { "Infinity" } else { "-Infinity" }).to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if number != 0.0 && !(-4..16).contains(&exponent) {
        return format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    let plain = number.to_string();
    if plain.contains('.') { plain } else { plain + ".0" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_does() {
        for (number, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (2.5, "2.5"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (-1.25e-7, "-1.25e-07"),
            (f64::INFINITY, "Infinity"),
        ] {
            assert_eq!(float(number), text);
        }
    }
}
