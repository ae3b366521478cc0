//! The summary of a file: what it counts and derives, and what it shows.

use crate::{models, open};
use strata_backend_abi::StrataDType;
use strata_model::gguf::Gguf;
use strata_model::gguf::writer::GgufWriter;
use strata_model::inspect::{KvShape, Summary, Verdict};

fn model() -> GgufWriter {
    let mut writer = GgufWriter::new("qwen3");
    writer
        .set("general.name", "Toy")
        .set("general.file_type", 15_u32)
        .set("qwen3.block_count", 4_u32)
        .set("qwen3.context_length", 1000_u32)
        .set("qwen3.embedding_length", 256_u32)
        .set("qwen3.attention.head_count", 8_u32)
        .set("qwen3.attention.head_count_kv", 2_u32)
        .set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "qwen2")
        .set("tokenizer.ggml.tokens", (0..100).map(|n| format!("t{n}")).collect::<Vec<_>>())
        .tensor("a", StrataDType::Q4K, &[256, 2], vec![0; 288])
        .tensor("b", StrataDType::Q4K, &[256], vec![0; 144])
        .tensor_f32("c", &[8], &[0.0; 8]);
    writer
}

fn summary(writer: &GgufWriter) -> Summary {
    Summary::of(&open(writer.to_bytes()).unwrap())
}

#[test]
fn counts_and_figures() {
    let summary = summary(&model());
    assert_eq!(summary.parameters, 776);
    assert_eq!(summary.tensor_bytes, 288 + 144 + 32);
    assert_eq!(summary.vocabulary, Some(100));
    assert_eq!(summary.tokenizer.as_deref(), Some("gpt2 (qwen2)"));
    assert_eq!(summary.file_type.as_deref(), Some("Q4_K_M"));
    let formats: Vec<_> = summary.formats.iter().map(|f| (f.name.as_str(), f.tensors, f.elements, f.bytes)).collect();
    assert_eq!(formats, [("Q4_K", 2, 768, Some(432)), ("F32", 1, 8, Some(32))]);
    let kv = summary.kv.unwrap();
    assert_eq!(kv, KvShape { heads: 8, key_length: 32, value_length: 32 });
    assert_eq!(kv.bytes_per_token(StrataDType::F16, StrataDType::F16), Some(8 * 64 * 2));
    assert_eq!(kv.bytes_per_token(StrataDType::Q8_0, StrataDType::F16), Some(8 * (34 + 64)));
    assert_eq!(kv.bytes_per_token(StrataDType::Q4K, StrataDType::F16), None);
}

#[test]
fn kv_of_other_layouts() {
    let kv = |writer: &GgufWriter| summary(writer).kv;
    let mut per_layer = model();
    per_layer.set("qwen3.attention.head_count_kv", vec![1_u32, 0, 2, 0, 9]);
    assert_eq!(kv(&per_layer).unwrap().heads, 3);
    assert_eq!(kv(model().set("qwen3.full_attention_interval", 4_u32)).unwrap().heads, 2);
    assert_eq!(kv(model().set("qwen3.full_attention_interval", 0_u32)), None);
    assert_eq!(kv(model().set("qwen3.attention.key_length", 256_u32)).unwrap().key_length, 256);
    assert_eq!(kv(model().remove("qwen3.attention.head_count_kv")).unwrap().heads, 32);
    assert_eq!(kv(model().set("qwen3.attention.kv_lora_rank", 512_u32)), None);
    assert_eq!(kv(model().remove("qwen3.block_count")), None);
    // A file may claim anything; figures that wrap are not given.
    let mut greedy = model();
    greedy.set("qwen3.block_count", u64::MAX).set("qwen3.attention.head_count_kv", u64::MAX);
    assert_eq!(kv(&greedy), None);
    greedy.set("qwen3.attention.head_count_kv", 1_u64).set("qwen3.attention.key_length", u64::MAX - 31);
    assert_eq!(kv(&greedy).unwrap().bytes_per_token(StrataDType::F16, StrataDType::F16), None);
    let _ = summary(&greedy).to_text(true);
}

#[test]
fn text_is_for_people() {
    let mut summary = summary(model().set("general.name", "Toy\u{1b}[31m"));
    summary.verdict = Some(Verdict { can_run: false, reasons: vec!["no such thing".to_owned()] });
    let text = summary.to_text(false);
    for part in [
        "architecture    qwen3",
        "name            Toy\\u{1b}[31m",
        "KV cache f16    1024 bytes a token, 1.0 MiB for the whole context",
        "this build      cannot run it\n                no such thing",
        "tokenizer.ggml.tokens (array of str) = 100: [\"t0\", \"t1\", \"t2\", \"t3\", \"t4\", \"t5\", \"t6\", \"t7\", …]",
        "Q4_K             2 tensors",
    ] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    assert!(!text.contains("\ntensors"));
    assert!(summary.to_text(true).contains("[256, 2] 288 bytes"));
}

#[test]
fn json_is_for_programs() {
    let json = summary(model().set("odd", f32::NAN)).to_json();
    assert_eq!(json["architecture"], "qwen3");
    assert_eq!(json["kv_bytes_per_token"]["f16"], 1024);
    assert_eq!(json["tensors"][0]["shape"], serde_json::json!([256, 2]));
    let entry = |key: &str| json["metadata"].as_array().unwrap().iter().find(|entry| entry["key"] == key).unwrap();
    assert_eq!(entry("tokenizer.ggml.tokens")["length"], 100);
    assert_eq!(entry("tokenizer.ggml.tokens")["first"].as_array().unwrap().len(), 8);
    assert_eq!(entry("odd")["value"], "NaN");
    assert!(json["verdict"].is_null());
}

#[test]
fn unreadable_formats_are_listed() {
    let mut writer = model();
    writer.raw_tensor("d", 34, &[256], vec![0; 54]);
    let gguf = Gguf::from_bytes_lenient("toy.gguf", writer.to_bytes()).unwrap();
    let summary = Summary::of(&gguf);
    assert_eq!(summary.formats.last().unwrap().name, "TQ1_0 (unreadable)");
    assert_eq!(summary.formats.last().unwrap().bytes, None);
    assert_eq!(summary.parameters, 776 + 256);
    assert!(summary.to_text(true).contains("unknown bytes"));
}

#[test]
fn real_models_by_their_figures() {
    let Some(models) = models() else { return println!("skipped: no folder of real models") };
    let path = models.join("SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.is_file() {
        return println!("skipped: no {}", path.display());
    }
    let summary = Summary::of(&Gguf::open(&path).unwrap());
    assert_eq!(summary.architecture.as_deref(), Some("llama"));
    assert_eq!(summary.parameters, 134_515_008);
    assert_eq!((summary.layers, summary.context_length), (Some(30), Some(8192)));
    assert_eq!(summary.kv.unwrap().bytes_per_token(StrataDType::F16, StrataDType::F16), Some(30 * 3 * 64 * 2 * 2));
    assert!(summary.has_chat_template);
}
