//! Where Jinja in Python and minijinja differ and templates notice: a few string methods, and the
//! tests that tell a text from a list of parts.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};

/// Puts them into the environment.
pub(super) fn install(environment: &mut Environment<'_>) {
    environment.set_unknown_method_callback(method);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
    environment.add_filter("int", int);
}

/// `None` is not iterable; templates ask that to tell content from no content.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Whatever has a length and takes an index, strings and dictionaries among them.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Undefined | ValueKind::Seq | ValueKind::Map | ValueKind::String)
        || (value.kind() == ValueKind::Iterable && value.len().is_some())
}

/// What is no number becomes the default, 0 if none is given.
fn int(state: &State<'_, '_>, value: &Value, default: Option<Value>, base: Option<u32>, options: Kwargs) -> Value {
    let otherwise = default.clone().or_else(|| options.get("default").ok()).unwrap_or_else(|| Value::from(0));
    filters::int(state, value, default, base, options).unwrap_or(otherwise)
}

/// Methods that the contributed set lacks; the rest goes there.
fn method(state: &mut State<'_, '_>, value: &Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let (Some(text), Some(part)) = (value.as_str(), arguments.first().and_then(Value::as_str)) else {
        return minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments);
    };
    let empty =
        || if part.is_empty() { Err(Error::new(ErrorKind::InvalidOperation, "empty separator")) } else { Ok(()) };
    let three = |(before, middle, after): (&str, &str, &str)| Value::from_iter([before, middle, after]);
    Ok(match (name, arguments.len()) {
        ("removeprefix", 1) => Value::from(text.strip_prefix(part).unwrap_or(text)),
        ("removesuffix", 1) => Value::from(text.strip_suffix(part).unwrap_or(text)),
        ("partition", 1) => {
            empty()?;
            three(text.split_once(part).map_or((text, "", ""), |(before, after)| (before, part, after)))
        }
        ("rpartition", 1) => {
            empty()?;
            three(text.rsplit_once(part).map_or(("", "", text), |(before, after)| (before, part, after)))
        }
        ("rsplit", 1 | 2) => {
            empty()?;
            // A negative number of cuts means all, as in Python.
            let cuts = arguments.get(1).and_then(Value::as_i64).and_then(|cuts| usize::try_from(cuts).ok());
            let mut parts: Vec<&str> = text.rsplitn(cuts.map_or(usize::MAX, |cuts| cuts + 1), part).collect();
            parts.reverse();
            Value::from_iter(parts)
        }
        _ => return minijinja_contrib::pycompat::unknown_method_callback(state, value, name, arguments),
    })
}
