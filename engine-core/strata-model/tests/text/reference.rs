//! Token ids, round trips and rendered chats of the two real models, against llama.cpp's.

use crate::support::{model, shared, shared_json};
use serde_json::Value;
use strata_model::chat::{ChatTemplate, Message, RenderOptions};
use strata_model::gguf::Gguf;
use strata_model::tokenizer::{StopMatcher, Tokenizer};

const SMOLLM: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const GEMMA: &str = "gemma-3-270m-q4_k_m.gguf";

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

fn check_tokens(file: &str, reference: &str) {
    let (Some(gguf), Some(reference)) = (model(file), shared_json(reference)) else { return };
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let cases = reference["cases"].as_array().unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let text = case["text"].as_str().unwrap();
        let plain = tokenizer.encode(text, false, false);
        assert_eq!(plain, ids(&case["plain"]), "plain ids of {text:?}");
        assert_eq!(tokenizer.encode(text, true, true), ids(&case["special"]), "special ids of {text:?}");
        assert_eq!(tokenizer.decode(&plain, false) == text, case["roundtrip_equal"].as_bool().unwrap(), "{text:?}");
        let mut decoder = tokenizer.decoder();
        let mut streamed: String = plain.iter().map(|id| decoder.push(*id)).collect();
        streamed += &decoder.finish();
        assert_eq!(streamed, tokenizer.decode(&plain, false));
    }
}

#[test]
fn smollm2_tokens_equal_the_reference() {
    check_tokens(SMOLLM, "reference/tokenize-smollm2-135m-instruct-q4_1.json");
}

#[test]
fn gemma3_tokens_equal_the_reference() {
    check_tokens(GEMMA, "reference/tokenize-gemma-3-270m-q4_k_m.json");
}

#[test]
fn smollm2_chats_render_and_tokenize_as_the_reference() {
    let (Some(gguf), Some(reference)) =
        (model(SMOLLM), shared_json("reference/greedy-smollm2-135m-instruct-q4_1.json"))
    else {
        return;
    };
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let template = ChatTemplate::from_gguf(&gguf, &tokenizer).unwrap();
    let cases = reference["chat"].as_array().unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let messages: Vec<Message> = case["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|message| Message::text(message["role"].as_str().unwrap(), message["content"].as_str().unwrap()))
            .collect();
        let rendered = template.render(&messages, None, &RenderOptions::answer()).unwrap();
        assert_eq!(rendered, case["rendered"].as_str().unwrap());
        assert_eq!(tokenizer.encode(&rendered, true, true), ids(&case["prompt_tokens"]));
    }
}

#[test]
fn ends_of_the_real_models() {
    if let Some(gguf) = model(SMOLLM) {
        let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
        assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.end_of_turn()), (Some(1), Some(2), Some(2)));
        assert!(tokenizer.is_eog(0) && tokenizer.is_eog(2) && !tokenizer.is_eog(1));
        assert!(tokenizer.notes().is_empty());
    }
    if let Some(gguf) = model(GEMMA) {
        let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
        assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.end_of_turn()), (Some(2), Some(1), Some(106)));
        assert_eq!(tokenizer.eog_ids(), [1, 106]);
        // HTML's strike-through is text to the model; an answer goes on behind it.
        let strike = tokenizer.token_id("</s>").unwrap();
        assert!(!tokenizer.is_eog(strike));
        assert_eq!(tokenizer.decode(&[strike], false), "</s>");
    }
}

#[test]
fn long_runs_of_blanks_come_back() {
    let Some(path) = shared("cases/e08-long-blank-runs/vocab-noprefix.gguf") else { return };
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).unwrap();
    for count in [1, 2, 4, 31, 32, 33, 47, 48, 49, 200, 1000] {
        let text = " ".repeat(count) + "x";
        let ids = tokenizer.encode(&text, false, false);
        assert_eq!(tokenizer.decode(&ids, false), text);
    }
    assert_eq!(tokenizer.decode(&[268], false), " ".repeat(48));
    assert_eq!(tokenizer.piece_bytes(268).unwrap().len(), 48);
}

#[test]
fn held_back_text_comes_out() {
    let Some(cases) = shared_json("cases/e12-held-back-text/pieces.json") else { return };
    for case in cases.as_array().unwrap() {
        let stops = case["stop"].as_array().unwrap().iter().map(|stop| stop.as_str().unwrap());
        let mut matcher = StopMatcher::new(stops);
        let mut text = String::new();
        let mut stopped = false;
        for piece in case["pieces"].as_array().unwrap() {
            let output = matcher.push(piece.as_str().unwrap());
            text.push_str(&output.text);
            stopped = output.stop.is_some();
        }
        text.push_str(&matcher.finish());
        assert_eq!((text.as_str(), stopped), (case["text"].as_str().unwrap(), case["end"] == "stop"));
    }
}

/// A megabyte without a blank, and one of nothing but blanks: minutes if merging were quadratic.
#[test]
fn a_megabyte_is_tokenized_in_seconds() {
    for file in [SMOLLM, GEMMA] {
        let Some(gguf) = model(file) else { continue };
        let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
        for unit in ["a", "ab1", " ", "\n", "\t", "日本", "🍕", "<", "abcdefghijklmnopqrstuvwxyz"] {
            let text = unit.repeat((1 << 20) / unit.len());
            let ids = tokenizer.encode(&text, false, true);
            assert!(tokenizer.decode(&ids, false) == text, "{unit:?} in {file}");
        }
    }
}
