//! Reading and writing a document: bounded, schema checked first, written atomically.

use crate::ManifestError;
use serde::Serialize;
use serde::de::DeserializeOwned;
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

    /// Parses a text; `path` is for messages.
    fn parse(text: &str, path: &Path) -> Result<Self, ManifestError> {
        let malformed =
            |error: serde_json::Error| ManifestError::Malformed { path: path.to_owned(), why: error.to_string() };
        let value: serde_json::Value = serde_json::from_str(text).map_err(malformed)?;
        let found = value.get("schema").and_then(serde_json::Value::as_str).unwrap_or("none").to_owned();
        // A higher minor only adds fields, which are ignored; a higher major may mean anything.
        let name_and_major = |schema: &str| schema.split('.').next().map(str::to_owned);
        if name_and_major(&found) != name_and_major(Self::SCHEMA) {
            return Err(ManifestError::WrongSchema {
                path: path.to_owned(),
                found: found.chars().take(80).collect(),
                expected: Self::SCHEMA.to_owned(),
            });
        }
        serde_json::from_value(value).map_err(malformed)
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
        file.write_all(self.to_text().as_bytes()).and_then(|()| file.sync_all()).map_err(unwritable)?;
        fs_err::rename(&beside, path).map_err(unwritable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Receipt;
    use strata_diag::Diagnose;

    fn receipt() -> Receipt {
        let version = "0.1.45+3".parse().unwrap();
        let schema = Receipt::SCHEMA.to_owned();
        Receipt { schema, version, files: Vec::new(), plugins: Vec::new(), models: Vec::new() }
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
        for bad in ["", "[]", "{}", "{\"schema\": 1}", "{\"schema\": \"strata-receipt/1.0\"}"] {
            assert!(Receipt::parse(bad, path).is_err(), "{bad}");
        }
    }
}
