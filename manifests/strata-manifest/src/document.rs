//! Reading and writing a document: bounded, schema checked first, written atomically.

use crate::ManifestError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::Path;

/// No document of ours comes near this; what is larger is not read at all.
pub const MAX_DOCUMENT_BYTES: u64 = 64 << 20;

/// A JSON document with a `schema` field of the form `name/major.minor`.
pub trait Document: Serialize + DeserializeOwned {
    /// `strata-receipt/1.0`.
    const SCHEMA: &'static str;

    /// Reads a file of at most [`MAX_DOCUMENT_BYTES`].
    fn read(path: &Path) -> Result<Self, ManifestError> {
        let unreadable = |source| ManifestError::Unreadable { path: path.to_owned(), source };
        // Asked before opening: a pipe that nobody writes to would never open.
        let metadata = fs_err::metadata(path).map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(unreadable(std::io::Error::other("it is no ordinary file")));
        }
        let bytes = metadata.len();
        if bytes > MAX_DOCUMENT_BYTES {
            return Err(ManifestError::TooLarge { path: path.to_owned(), bytes, limit: MAX_DOCUMENT_BYTES });
        }
        let mut text = String::new();
        let file = fs_err::File::open(path).map_err(unreadable)?;
        file.take(MAX_DOCUMENT_BYTES).read_to_string(&mut text).map_err(unreadable)?;
        Self::parse(&text, path)
    }

    /// Parses a text; `path` is for messages. A document with [`Document::faults`] is refused.
    fn parse(text: &str, path: &Path) -> Result<Self, ManifestError> {
        let document: Self = parse_schema(text, path)?;
        match document.faults() {
            faults if faults.is_empty() => Ok(document),
            faults => Err(ManifestError::Malformed { path: path.to_owned(), why: few(&faults) }),
        }
    }

    /// What is wrong between the fields of the document, a sentence each; kinds without such rules have none.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// The document's text: pretty, ending in a newline, the same bytes for the same content.
    fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("documents hold nothing that JSON cannot");
        text.push('\n');
        text
    }

    /// Writes beside the target and renames, so that a reader sees the old or the new text.
    fn write(&self, path: &Path) -> Result<(), ManifestError> {
        let unwritable = |source| ManifestError::Unwritable { path: path.to_owned(), source };
        let beside = path.with_extension(format!("new-{}", std::process::id()));
        let mut file = fs_err::File::create(&beside).map_err(unwritable)?;
        let written = file.write_all(self.to_text().as_bytes()).and_then(|()| file.sync_all());
        // What is left of a full disk is not left there.
        written
            .and_then(|()| fs_err::rename(&beside, path))
            .inspect_err(|_| drop(fs_err::remove_file(&beside)))
            .map_err(unwritable)
    }
}

/// The one field that every document has.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    schema: serde_json::Value,
}

/// Parses a text whose schema has the right name and major; the document's own rules are not looked at.
pub(crate) fn parse_schema<D: Document>(text: &str, path: &Path) -> Result<D, ManifestError> {
    let malformed =
        |error: serde_json::Error| ManifestError::Malformed { path: path.to_owned(), why: error.to_string() };
    // The text is read twice rather than held as a tree: a tree takes many times the text's memory,
    // and would not notice a field that stands there twice.
    let head: Head = serde_json::from_str(text).map_err(malformed)?;
    let found = head.schema.as_str().unwrap_or("none").to_owned();
    // A higher minor only adds fields, which are ignored; a higher major may mean anything.
    let name_and_major = |schema: &str| schema.split('.').next().map(str::to_owned);
    if name_and_major(&found) != name_and_major(D::SCHEMA) {
        return Err(ManifestError::WrongSchema {
            path: path.to_owned(),
            found: found.chars().take(80).collect(),
            expected: D::SCHEMA.to_owned(),
        });
    }
    serde_json::from_str(text).map_err(malformed)
}

/// The first faults of many, and how many more there are.
fn few(faults: &[String]) -> String {
    let mut text = faults.iter().take(5).map(String::as_str).collect::<Vec<_>>().join("; ");
    if faults.len() > 5 {
        // Writing to a String cannot fail.
        let _ = write!(text, "; and {} more", faults.len() - 5);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Receipt;
    use strata_diag::Diagnose;

    fn receipt() -> Receipt {
        let version = "0.1.45+3".parse().unwrap();
        let schema = Receipt::SCHEMA.to_owned();
        Receipt { schema, version, files: Vec::new(), plugins: Vec::new(), models: Vec::new(), install: None }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = std::env::temp_dir().join(format!("strata-document-{}", std::process::id()));
        fs_err::create_dir_all(&folder).unwrap();
        let path = folder.join("receipt.json");
        receipt().write(&path).unwrap();
        assert_eq!(Receipt::read(&path).unwrap(), receipt());
        // Nothing is left beside it.
        assert_eq!(fs_err::read_dir(&folder).unwrap().count(), 1);
        let error = receipt().write(&folder.join("no such folder/receipt.json")).unwrap_err();
        assert_eq!(error.code().id, "S0004");
        let error = Receipt::read(&folder.join("absent.json")).unwrap_err();
        assert_eq!(error.code().id, "S0003");
        fs_err::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn unknown_fields_are_ignored_and_unknown_majors_refused() {
        let text = receipt().to_text();
        let path = Path::new("receipt.json");
        let newer = text.replacen("strata-receipt/1.0", "strata-receipt/1.7", 1).replacen('{', "{\"later\": 1,", 1);
        assert_eq!(Receipt::parse(&newer, path).unwrap().version, receipt().version);
        for (from, to) in [("strata-receipt/1.0", "strata-receipt/2.0"), ("strata-receipt/1.0", "strata-plugin/1.0")] {
            let error = Receipt::parse(&text.replacen(from, to, 1), path).unwrap_err();
            assert!(matches!(error, ManifestError::WrongSchema { .. }), "{error}");
        }
        let twice = text.replacen("\"files\"", "\"files\": [], \"files\"", 1);
        assert!(Receipt::parse(&twice, path).unwrap_err().to_string().contains("duplicate field"));
        for bad in ["", "[]", "{}", "{\"schema\": 1}", "{\"schema\": \"strata-receipt/1.0\"}"] {
            assert!(Receipt::parse(bad, path).is_err(), "{bad}");
        }
    }
}
