//! Which files the engine takes, and what it says about those that it does not.

use strata_backend_abi::StrataDType;
use strata_diag::catalogue::{general, model};
use strata_diag::{Code, Diagnose};
use strata_engine::{EngineError, EngineOptions, RopeScaling, can_run, known_architectures};
use strata_model::gguf::Gguf;
use strata_model::gguf::writer::GgufWriter;

use crate::support::{self, ARCHITECTURES, GEMMA3, LAYERS, SMOLLM2, open, toy};

fn refusal(writer: &GgufWriter) -> EngineError {
    can_run(&open(writer), &EngineOptions::default()).unwrap_err()
}

fn check(writer: &GgufWriter, code: &Code, text: &str) {
    let error = refusal(writer);
    assert_eq!(error.code(), code, "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn every_known_architecture_has_a_toy_that_runs() {
    assert_eq!(known_architectures(), ARCHITECTURES);
    for architecture in ARCHITECTURES {
        let summary = can_run(&open(&toy(architecture)), &EngineOptions::default()).unwrap();
        assert_eq!(summary.context, 256, "{architecture}");
        assert_eq!(summary.unused, Vec::<String>::new(), "{architecture}");
        // Two heads of 32 for keys and for values, F16.
        assert_eq!(summary.kv_bytes_per_token, LAYERS * 2 * 2 * 32 * 2, "{architecture}");
        assert_eq!(summary.kv_bytes, summary.kv_bytes_per_token * 256, "{architecture}");
    }
}

#[test]
fn a_missing_tensor_is_named_and_not_called_a_truncated_file() {
    let Some(path) = support::shared("cases/e05-not-truncated") else { return };
    let complete = Gguf::open(&path.join("complete.gguf")).unwrap();
    let error = can_run(&complete, &EngineOptions::default()).unwrap_err();
    assert_eq!(error.code(), model::MISSING_TENSOR);
    let EngineError::MissingTensors { names, .. } = &error else { panic!("{error}") };
    assert!(names.contains(&"blk.0.ffn_up.weight".to_owned()), "{names:?}");
    let unknown = Gguf::open(&path.join("arch.gguf")).unwrap();
    let other = can_run(&unknown, &EngineOptions::default()).unwrap_err();
    assert_eq!(other.code(), model::UNSUPPORTED_ARCH);
    assert!(other.to_string().contains("strata-unknown"));
    for error in [&error, &other] {
        let all = format!("{error} {:?} {:?} {}", error.facts(), error.hints(), error.code().title);
        for word in ["truncated", "corrupt", "incomplete"] {
            assert!(!all.contains(word), "{all}");
        }
    }
}

#[test]
fn dense_tensors_absent_beside_experts_are_explained() {
    let mut writer = GgufWriter::new("llama");
    for (key, value) in [
        ("llama.block_count", 1u32),
        ("llama.context_length", 8),
        ("llama.embedding_length", 4),
        ("llama.feed_forward_length", 4),
        ("llama.attention.head_count", 1),
    ] {
        writer.set(key, value);
    }
    writer.tensor_f32("token_embd.weight", &[4, 2], &[0.0; 8]);
    writer.tensor_f32("blk.0.ffn_up_exps.weight", &[4, 4, 2], &[0.0; 32]);
    let error = refusal(&writer);
    assert!(error.hints().iter().any(|hint| hint.contains("expert_count")), "{:?}", error.hints());
}

#[test]
fn a_wrong_shape_is_named_with_both_shapes() {
    for architecture in ARCHITECTURES {
        let mut writer = toy(architecture);
        writer.set(&format!("{architecture}.attention.head_count_kv"), 3u32);
        let error = refusal(&writer);
        assert_eq!(error.code(), model::BAD_TENSOR_SHAPE, "{architecture}: {error}");
        assert_eq!(
            error.to_string(),
            "tensor 'blk.0.attn_k.weight' has shape [96, 64], [96, 96] is needed",
            "{architecture}"
        );
    }
}

#[test]
fn numbers_that_cannot_be_are_named() {
    let with = |key: &str, value: u32| {
        let mut writer = toy("llama");
        writer.set(key, value);
        writer
    };
    check(&with("llama.attention.head_count", 0), model::BAD_MODEL, "llama.attention.head_count");
    check(&with("llama.attention.head_count_kv", 4), model::BAD_MODEL, "6 query heads cannot share 4");
    check(&with("llama.block_count", u32::MAX), model::BAD_MODEL, "llama.block_count");
    check(&with("llama.embedding_length", u32::MAX), model::BAD_MODEL, "llama.embedding_length");
    check(&with("llama.context_length", 0), model::BAD_MODEL, "llama.context_length");
    check(&with("llama.rope.dimension_count", 31), model::BAD_MODEL, "must be even");
    check(&with("llama.rope.dimension_count", 34), model::BAD_MODEL, "at most the head size 32");
    // More layers than there are tensors for is no reason to work for long.
    check(&with("llama.block_count", 16_000), model::MISSING_TENSOR, "blk.7.attn_norm.weight");
    for key in ["block_count", "embedding_length", "attention.head_count", "context_length", "feed_forward_length"] {
        let mut writer = toy("llama");
        writer.remove(&format!("llama.{key}"));
        check(&writer, model::MISSING_KEY, key);
    }
    let mut writer = toy("llama");
    writer.remove("llama.attention.layer_norm_rms_epsilon");
    check(&writer, model::MISSING_KEY, "layer_norm_rms_epsilon");
    writer.set("llama.attention.layer_norm_rms_epsilon", f32::NAN);
    check(&writer, model::BAD_MODEL, "layer_norm_rms_epsilon");
}

#[test]
fn experts_out_of_range_are_refused() {
    let mut writer = toy("qwen3moe");
    writer.set("qwen3moe.expert_used_count", 9u32);
    check(&writer, model::BAD_MODEL, "between 1 and 8");
    writer.set("qwen3moe.expert_count", 0u32);
    check(&writer, model::MISSING_KEY, "expert_count");
}

#[test]
fn rope_scalings_are_read_or_refused() {
    let mut writer = toy("qwen2");
    writer.set("qwen2.rope.scaling.type", "dynamic");
    check(&writer, model::UNSUPPORTED_ARCH, "'dynamic'");
    writer.set("qwen2.rope.scaling.type", "yarn");
    check(&writer, model::MISSING_KEY, "rope.scaling.factor");
    writer.set("qwen2.rope.scaling.factor", 4.0f32);
    writer.set("qwen2.rope.scaling.original_context_length", 128u32);
    let summary = can_run(&open(&writer), &EngineOptions::default()).unwrap();
    let RopeScaling::Yarn(yarn) = summary.hyperparameters.rope.scaling else { panic!() };
    assert_eq!((yarn.factor, yarn.original_context), (4.0, 128));
    // LongRoPE needs its factors.
    writer.set("qwen2.rope.scaling.type", "longrope");
    assert_eq!(refusal(&writer).code(), model::MISSING_TENSOR);
    writer.tensor_f32("rope_factors_long.weight", &[16], &[0.0; 16]);
    check(&writer, model::BAD_MODEL, "rope_factors_long.weight");
}

#[test]
fn options_are_checked_before_the_model() {
    let gguf = open(&toy("llama"));
    let refused = |options: EngineOptions| can_run(&gguf, &options).unwrap_err();
    let q8 = refused(EngineOptions { kv_v: Some(StrataDType::Q8_0), ..EngineOptions::default() });
    assert_eq!(q8.code(), general::BAD_OPTION);
    assert!(q8.to_string().contains("--kv (values) is q8_0"), "{q8}");
    let long = refused(EngineOptions { max_context: Some(1 << 40), ..EngineOptions::default() });
    assert_eq!(long.code(), general::BAD_OPTION);
}

#[test]
fn a_tensor_that_is_not_used_is_listed() {
    let mut writer = toy("qwen3");
    writer.tensor_f32("blk.0.attn_sinks.weight", &[6], &[0.0; 6]);
    let summary = can_run(&open(&writer), &EngineOptions::default()).unwrap();
    assert_eq!(summary.unused, ["blk.0.attn_sinks.weight"]);
}

#[test]
fn real_models_are_as_their_makers_say() {
    if let Some(gguf) = support::real_model(SMOLLM2) {
        let summary = can_run(&gguf, &EngineOptions::default()).unwrap();
        let h = &summary.hyperparameters;
        assert_eq!((h.n_layers, h.n_embd, h.n_ff, h.n_vocab), (30, 576, 1536, 49_152));
        assert_eq!((h.n_heads, h.n_heads_kv, h.head_dim_k, h.rope.base), (9, 3, 64, 100_000.0));
        assert_eq!(summary.n_parameters, 134_515_008);
        assert_eq!(summary.unused, Vec::<String>::new());
    }
    if let Some(gguf) = support::real_model(GEMMA3) {
        let summary = can_run(&gguf, &EngineOptions::default()).unwrap();
        let h = &summary.hyperparameters;
        assert_eq!((h.n_layers, h.n_embd, h.n_ff, h.n_vocab), (18, 640, 2048, 262_144));
        assert_eq!((h.n_heads, h.n_heads_kv, h.head_dim_k, h.window), (4, 1, 256, Some(512)));
        assert_eq!(h.local_layers.iter().filter(|local| **local).count(), 15);
        assert!(!h.local_layers[5] && h.local_layers[6]);
        assert_eq!(summary.unused, Vec::<String>::new());
    }
}
