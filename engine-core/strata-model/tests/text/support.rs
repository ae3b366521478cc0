//! Where models and reference data lie, and small GGUF files made on the spot.

use std::path::PathBuf;
use strata_model::gguf::Gguf;
use strata_model::gguf::writer::{GgufWriter, Meta};

/// A cached real model; `None`, said aloud, when it is not there.
pub(crate) fn model(file: &str) -> Option<Gguf> {
    let folder = std::env::var_os("STRATA_TEST_MODELS").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(PathBuf::from(home).join(".cache/strata/models"))
    });
    let path = folder.unwrap_or_default().join(file);
    if !path.exists() {
        println!("skipped: no model `{}`", path.display());
        return None;
    }
    Some(Gguf::open(&path).unwrap())
}

/// A file of the shared reference data; `None`, said aloud, when it is not there.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("STRATA_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")), PathBuf::from);
    let path = folder.join(path);
    if !path.exists() {
        println!("skipped: no reference data `{}`", path.display());
        return None;
    }
    Some(path)
}

/// The same, parsed.
pub(crate) fn shared_json(path: &str) -> Option<serde_json::Value> {
    Some(serde_json::from_str(&fs_err::read_to_string(shared(path)?).unwrap()).unwrap())
}

/// A GGUF with nothing but metadata.
pub(crate) fn gguf(values: &[(&str, Meta)]) -> Gguf {
    let mut writer = GgufWriter::new("llama");
    for (key, value) in values {
        writer.set(key, value.clone());
    }
    Gguf::from_bytes("made-up", writer.to_bytes()).unwrap()
}
