//! Reading GGUF files: what is accepted, and how each kind of wrong file is refused.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests: a panic is the report, a skip is said")]

mod cases;
mod hostile;
mod inspect;
mod memory;
mod properties;
mod replay;
mod seeds;
mod split;
mod walk;
mod whole;

use std::path::PathBuf;
use strata_diag::{Code, Diagnose};
use strata_model::ModelError;
use strata_model::gguf::Gguf;
use strata_model::gguf::writer::GgufWriter;

/// A small model: two keys, a string array, and two tensors.
fn small() -> GgufWriter {
    let mut writer = GgufWriter::new("llama");
    writer
        .set("llama.block_count", 1_u32)
        .set("tokenizer.ggml.tokens", vec!["<s>".to_owned(), String::new(), "▁a".to_owned()])
        .tensor_f32("token_embd.weight", &[4, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
        .tensor_f32("output_norm.weight", &[4], &[1.0; 4]);
    writer
}

fn open(bytes: Vec<u8>) -> Result<Gguf, ModelError> {
    Gguf::from_bytes("toy.gguf", bytes)
}

/// The file must be refused with this code; the whole diagnostic must hold each of the texts.
fn check_refused(bytes: Vec<u8>, code: &Code, texts: &[&str]) {
    check_error(&open(bytes).expect_err("the file was accepted"), code, texts);
}

fn check_error(error: &ModelError, code: &Code, texts: &[&str]) {
    assert_eq!(error.code(), code, "{error}");
    let whole = strata_diag::Diagnostic::of(error).to_text();
    for text in texts {
        assert!(whole.contains(text), "`{text}` is not in:\n{whole}");
    }
}

/// Replaces the only occurrence of `from`, which has the length of `to`.
fn patched(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let places: Vec<usize> = (0..=bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
    assert_eq!(places.len(), 1, "the pattern must occur once");
    bytes[places[0]..][..to.len()].copy_from_slice(to);
    bytes
}

/// Overwrites bytes.
fn with(mut bytes: Vec<u8>, at: usize, new: &[u8]) -> Vec<u8> {
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// The folder of cases and references that lies beside the checkout, if it is there.
fn shared() -> Option<PathBuf> {
    let root = std::env::var_os("STRATA_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")), PathBuf::from);
    root.is_dir().then_some(root)
}

/// The folder of real models, if it is there.
fn models() -> Option<PathBuf> {
    let root = match std::env::var_os("STRATA_TEST_MODELS") {
        Some(root) => PathBuf::from(root),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache/strata/models"),
    };
    root.is_dir().then_some(root)
}
