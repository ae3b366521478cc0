//! Known gaps as data: what a backend is allowed not to support, or to get wrong for now, and why.
//!
//! A gap that no longer shows is a failure too, so the list cannot go stale.

use crate::ConformError;
use std::path::Path;

/// What a gap looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The plugin says that it does not support the op.
    Unsupported,
    /// The result is wrong.
    Wrong,
}

/// One entry. `op` and `format` may be `*`, then without the formats in `except`; `case` is a part
/// of the case's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub backend: String,
    pub op: String,
    pub format: String,
    pub except: Vec<String>,
    pub case: Option<String>,
    pub variant: Option<String>,
    pub expect: Expect,
    pub reason: String,
}

/// All entries of a file.
#[derive(Debug, Clone, Default)]
pub struct Gaps(Vec<Gap>);

/// What a case is, as gaps see it.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub backend: &'a str,
    pub variant: &'a str,
    pub op: &'a str,
    pub format: &'a str,
    pub case: &'a str,
}

impl Gaps {
    /// The gaps of this repository's own backends.
    pub fn built_in() -> Result<Gaps, ConformError> {
        Gaps::parse(include_str!("../known_gaps.toml")).map_err(|what| ConformError::Gaps { path: None, what })
    }

    pub fn read(path: &Path) -> Result<Gaps, ConformError> {
        let fail = |what: String| ConformError::Gaps { path: Some(path.to_owned()), what };
        let text = fs_err::read_to_string(path).map_err(|error| fail(error.to_string()))?;
        Gaps::parse(&text).map_err(fail)
    }

    /// Entries are `[[gap]]` tables; an unknown field is an error, a typo must not hide a failure.
    pub fn parse(text: &str) -> Result<Gaps, String> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        if let Some(key) = table.keys().find(|key| *key != "gap") {
            return Err(format!("unknown key `{key}`"));
        }
        let entries = match table.get("gap") {
            None => return Ok(Gaps::default()),
            Some(toml::Value::Array(entries)) => entries,
            Some(_) => return Err("`gap` is not a list of tables".to_owned()),
        };
        entries
            .iter()
            .enumerate()
            .map(|(i, entry)| gap(entry).map_err(|what| format!("gap {}: {what}", i + 1)))
            .collect()
    }

    /// The entry for a case, if there is one.
    pub fn find(&self, place: Place<'_>) -> Option<&Gap> {
        let matches = |pattern: &str, text: &str| pattern == "*" || pattern == text;
        self.0.iter().find(|gap| {
            gap.backend == place.backend
                && matches(&gap.op, place.op)
                && matches(&gap.format, place.format)
                && !gap.except.iter().any(|format| format == place.format)
                && gap.case.as_ref().is_none_or(|part| place.case.contains(part.as_str()))
                && gap.variant.as_ref().is_none_or(|variant| variant == place.variant)
        })
    }
}

impl FromIterator<Gap> for Gaps {
    fn from_iter<I: IntoIterator<Item = Gap>>(entries: I) -> Gaps {
        Gaps(entries.into_iter().collect())
    }
}

const FIELDS: [&str; 8] = ["backend", "op", "format", "except", "case", "variant", "expect", "reason"];

fn gap(entry: &toml::Value) -> Result<Gap, String> {
    let table = entry.as_table().ok_or("not a table")?;
    if let Some(key) = table.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        return Err(format!("unknown field `{key}`"));
    }
    let optional = |name: &str| match table.get(name) {
        None => Ok(None),
        Some(toml::Value::String(text)) if !text.trim().is_empty() => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{name}` is not a text, or empty")),
    };
    let required = |name: &str| optional(name)?.ok_or(format!("no `{name}`"));
    let except = match table.get("except") {
        None => Vec::new(),
        Some(toml::Value::Array(formats)) => formats
            .iter()
            .map(|format| {
                format.as_str().map(str::to_owned).ok_or("`except` holds something that is no text".to_owned())
            })
            .collect::<Result<_, _>>()?,
        Some(_) => return Err("`except` is not a list of formats".to_owned()),
    };
    let expect = match optional("expect")?.as_deref() {
        None | Some("unsupported") => Expect::Unsupported,
        Some("wrong") => Expect::Wrong,
        Some(other) => return Err(format!("`expect` is `{other}`, not `unsupported` or `wrong`")),
    };
    Ok(Gap {
        backend: required("backend")?,
        op: required("op")?,
        format: required("format")?,
        except,
        case: optional("case")?,
        variant: optional("variant")?,
        expect,
        reason: required("reason")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_match_by_what_they_name() {
        let gaps = Gaps::parse(
            "[[gap]]\nbackend = 'x'\nop = 'attention'\nformat = '*'\ncase = 'sinks'\nreason = 'not written yet'",
        )
        .unwrap();
        let place = Place { backend: "x", variant: "", op: "attention", format: "F16", case: "default D64 sinks T1" };
        assert_eq!(gaps.find(place).unwrap().reason, "not written yet");
        assert!(gaps.find(Place { case: "default D64 T1", ..place }).is_none());
        assert!(gaps.find(Place { backend: "y", ..place }).is_none());
        assert!(gaps.find(Place { op: "mat_mul", ..place }).is_none());

        let gaps = Gaps::parse(
            "[[gap]]\nbackend = 'x'\nop = 'mat_mul'\nformat = '*'\nexcept = ['F32', 'F16']\nreason = 'floats only'",
        )
        .unwrap();
        let place = Place { op: "mat_mul", format: "Q4_K", ..place };
        assert!(gaps.find(place).is_some());
        assert!(gaps.find(Place { format: "F16", ..place }).is_none());
    }

    #[test]
    fn a_typo_or_a_missing_reason_is_refused() {
        let base = "[[gap]]\nbackend = 'x'\nop = 'rope'\nformat = 'F32'\n";
        assert!(Gaps::parse(base).unwrap_err().contains("no `reason`"));
        assert!(Gaps::parse(&format!("{base}reason = ' '")).unwrap_err().contains("empty"));
        assert!(Gaps::parse(&format!("{base}reason = 'r'\nformt = 'F16'")).unwrap_err().contains("formt"));
        assert!(Gaps::parse(&format!("{base}reason = 'r'\nexpect = 'slow'")).unwrap_err().contains("slow"));
        assert!(Gaps::parse("[[gaps]]\n").unwrap_err().contains("gaps"));
    }
}
