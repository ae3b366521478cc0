//! The recorded cases of wrong files that other programs were reported to mishandle.

use crate::{check_error, shared};
use std::path::PathBuf;
use strata_diag::catalogue::model::{BAD_MODEL, MISSING_TENSOR, TRUNCATED_MODEL};
use strata_diag::{Diagnose, Diagnostic};
use strata_model::gguf::Gguf;

/// The case's folder, or why the test does nothing.
fn case(name: &str) -> Option<PathBuf> {
    let folder = shared().map(|shared| shared.join("cases").join(name)).filter(|folder| folder.is_dir());
    if folder.is_none() {
        println!("skipped: no case {name} beside the checkout");
    }
    folder
}

#[test]
fn e01_size_wraps() {
    let Some(folder) = case("e01-size-wraps") else { return };
    assert_eq!(Gguf::open(&folder.join("good.gguf")).unwrap().tensors().len(), 1);
    for (file, number) in [
        ("dims.gguf", "4611686018427387905"),
        ("dims2.gguf", "2199023255553"),
        ("offset.gguf", "18446744073709551584"),
        ("sum.gguf", "2147483648"),
        ("negative.gguf", "9223372036854775812"),
    ] {
        let error = Gguf::open(&folder.join(file)).unwrap_err();
        check_error(&error, BAD_MODEL, &[file, "tensor `", number]);
    }
}

#[test]
fn e04_truncated() {
    let Some(folder) = case("e04-truncated") else { return };
    assert!(Gguf::open(&folder.join("good.gguf")).is_ok());
    for length in [0, 3, 4, 20, 23, 60, 128, 159] {
        let file = format!("cut-{length}.gguf");
        let error = Gguf::open(&folder.join(&file)).unwrap_err();
        check_error(
            &error,
            TRUNCATED_MODEL,
            &[&file, &format!("present bytes: {length}"), "needed bytes: ", "download"],
        );
    }
    let error = Gguf::open(&folder.join("cut-159.gguf")).unwrap_err();
    check_error(&error, TRUNCATED_MODEL, &["tensor `token_embd.weight`", "needed bytes: 160"]);
}

#[test]
fn e05_not_truncated() {
    let Some(folder) = case("e05-not-truncated") else { return };
    let complete = Gguf::open(&folder.join("complete.gguf")).unwrap();
    let error = complete.require_tensor("blk.0.ffn_up.weight").unwrap_err();
    check_error(&error, MISSING_TENSOR, &["complete.gguf", "blk.0.ffn_up.weight"]);
    let arch = Gguf::open(&folder.join("arch.gguf")).unwrap();
    let unsupported = strata_model::ModelError::UnsupportedArch {
        path: arch.path().to_owned(),
        architecture: arch.architecture().unwrap().to_owned(),
        known: "llama".to_owned(),
    };
    check_error(&unsupported, strata_diag::catalogue::model::UNSUPPORTED_ARCH, &["strata-unknown"]);
    for error in [error, unsupported] {
        // The file's own name holds one of the words.
        let text = Diagnostic::of(&error).to_text().replace("e05-not-truncated", "").to_lowercase();
        for word in ["truncated", "corrupt", "incomplete"] {
            assert!(!text.contains(word), "`{word}` is in:\n{text}");
        }
        assert_ne!(error.code(), TRUNCATED_MODEL);
    }
}

#[test]
fn e08_long_blank_runs() {
    let Some(folder) = case("e08-long-blank-runs") else { return };
    let gguf = Gguf::open(&folder.join("vocab-noprefix.gguf")).unwrap();
    let tokens = gguf.require_array("tokenizer.ggml.tokens").unwrap();
    assert_eq!(tokens.str_at(268), Some("\u{2581}".repeat(48).as_str()));
}
