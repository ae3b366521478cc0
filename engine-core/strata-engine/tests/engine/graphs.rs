//! Each architecture's graph, and each thing that a file may say otherwise, against the oracle.

use std::sync::Arc;

use strata_engine::{Engine, EngineOptions};
use strata_model::gguf::writer::GgufWriter;
use strata_plugin_host::DeviceOptions;

use crate::oracle;
use crate::plugin::cpu;
use crate::support::{
    ARCHITECTURES, EMBD, EXPERT_FF, EXPERTS, HEAD_DIM, HEADS, HEADS_KV, LAYERS, Numbers, VOCAB, open, toy,
};

/// More than the toys' window, and not a whole number of steps or pages.
const N_TOKENS: usize = 75;

/// Largest difference of a logit, in units of the logits' own deviation.
fn distance(writer: &GgufWriter) -> f64 {
    let gguf = open(writer);
    let mut numbers = Numbers::new(21);
    let tokens: Vec<u32> = (0..N_TOKENS).map(|_| (numbers.next() % VOCAB) as u32).collect();
    let exact = oracle::forward(&gguf, &tokens);
    let options = EngineOptions { precise: true, ..EngineOptions::default() };
    let engine = Engine::load(Arc::clone(&gguf), cpu(&DeviceOptions::default()), &options).unwrap();
    let mut session = engine.session().unwrap();
    let mut greatest: f64 = 0.0;
    session
        .logits_for_all(&tokens, |position, logits| {
            let exact = &exact[position as usize];
            let deviation = (exact.iter().map(|x| x * x).sum::<f64>() / exact.len() as f64).sqrt();
            for (ours, exact) in logits.iter().zip(exact) {
                greatest = greatest.max((f64::from(*ours) - exact).abs() / deviation);
            }
            Ok(())
        })
        .unwrap();
    greatest
}

#[track_caller]
fn check(writer: &GgufWriter, what: &str) -> f64 {
    let distance = distance(writer);
    assert!(distance < 1e-4, "{what}: {distance}");
    distance
}

#[test]
fn every_architecture_computes_what_its_formulas_say() {
    for architecture in ARCHITECTURES {
        check(&toy(architecture), architecture);
    }
}

#[test]
fn llama_reads_rope_divisors_partial_rotation_scale_and_an_own_head() {
    let mut writer = toy("llama");
    let mut numbers = Numbers::new(31);
    writer.tensor_f32("output.weight", &[EMBD, VOCAB], &numbers.values(EMBD * VOCAB, 0.1, 0.0));
    writer.set("llama.rope.dimension_count", 20u32);
    writer.set("llama.rope.freq_base", 500_000.0f32);
    writer.set("llama.attention.scale", 0.25f32);
    let divisors: Vec<f32> = (0..10).map(|pair| 1.0 + pair as f32 * 0.7).collect();
    writer.tensor_f32("rope_freqs.weight", &[10], &divisors);
    check(&writer, "llama with everything");
}

#[test]
fn llama_with_experts_is_mixtral() {
    let mut writer = toy("llama");
    let mut numbers = Numbers::new(32);
    for layer in 0..LAYERS {
        for (stem, ne, deviation) in [
            ("ffn_gate_inp", [EMBD, EXPERTS, 1], 0.2),
            ("ffn_gate_exps", [EMBD, EXPERT_FF, EXPERTS], 0.1),
            ("ffn_up_exps", [EMBD, EXPERT_FF, EXPERTS], 0.1),
            ("ffn_down_exps", [EXPERT_FF, EMBD, EXPERTS], 0.12),
        ] {
            let used = if ne[2] == 1 { &ne[..2] } else { &ne[..] };
            let values = numbers.values(ne.iter().product(), deviation, 0.0);
            writer.tensor_f32(&format!("blk.{layer}.{stem}.weight"), used, &values);
        }
    }
    writer.set("llama.expert_count", EXPERTS as u32);
    writer.set("llama.expert_used_count", 2u32);
    writer.set("llama.expert_feed_forward_length", EXPERT_FF as u32);
    check(&writer, "mixtral");
}

/// A writer with the tensors of `toy`, some replaced: read back through the reader.
fn rebuilt(architecture: &str, mut replace: impl FnMut(&mut GgufWriter, &str, &[u64], &[f32]) -> bool) -> GgufWriter {
    let gguf = open(&toy(architecture));
    let mut writer = GgufWriter::new(architecture);
    for (key, value) in gguf.keys() {
        if let Some(number) = value.as_u64() {
            writer.set(key, number as u32);
        } else if let Some(number) = value.as_f64() {
            writer.set(key, number as f32);
        }
    }
    for tensor in gguf.tensors() {
        let mut values = vec![0.0; tensor.elements() as usize];
        strata_model::quant::dequantise_row(tensor.dtype, gguf.tensor_data(tensor), &mut values).unwrap();
        if !replace(&mut writer, &tensor.name, tensor.shape(), &values) {
            writer.tensor_f32(&tensor.name, tensor.shape(), &values);
        }
    }
    writer
}

#[test]
fn fused_q_k_v_equals_three_tensors() {
    let widths = (HEADS + 2 * HEADS_KV) * HEAD_DIM;
    // The toy lists q, k and v one after another, weights first.
    let (mut weight, mut bias) = (Vec::new(), Vec::new());
    let writer = rebuilt("qwen2", |writer, name, _, values| {
        let part = ["attn_q", "attn_k", "attn_v"].into_iter().find(|part| name.contains(&format!(".{part}.")));
        let Some(part) = part else { return false };
        let (all, ne) =
            if name.ends_with(".weight") { (&mut weight, vec![EMBD, widths]) } else { (&mut bias, vec![widths]) };
        all.extend_from_slice(values);
        if part == "attn_v" {
            writer.tensor_f32(
                &name.replace("attn_v.bias", "attn_qkv.bias").replace("attn_v.weight", "attn_qkv.weight"),
                &ne,
                all,
            );
            all.clear();
        }
        true
    });
    let fused = check(&writer, "fused q, k, v");
    assert!(fused.to_bits() == distance(&toy("qwen2")).to_bits(), "the same numbers in another tensor");
}

#[test]
fn fused_expert_gate_and_up_equals_two_tensors() {
    let mut gate = Vec::new();
    let writer = rebuilt("qwen3moe", |writer, name, _, values| {
        if name.ends_with("ffn_gate_exps.weight") {
            gate = values.to_vec();
            return true;
        }
        if !name.ends_with("ffn_up_exps.weight") {
            return false;
        }
        let one = (EMBD * EXPERT_FF) as usize;
        let both: Vec<f32> =
            gate.chunks(one).zip(values.chunks(one)).flat_map(|(gate, up)| [gate, up].concat()).collect();
        writer.tensor_f32(&name.replace("ffn_up_exps", "ffn_gate_up_exps"), &[EMBD, 2 * EXPERT_FF, EXPERTS], &both);
        true
    });
    check(&writer, "fused gate and up");
}

#[test]
fn qwen3moe_scales_the_weights_of_its_experts_when_told() {
    let mut writer = toy("qwen3moe");
    writer.set("qwen3moe.expert_weights_scale", 2.5f32);
    check(&writer, "scaled experts");
}

#[test]
fn gemma3_reads_patterns_bases_scaling_and_softcap() {
    let mut writer = toy("gemma3");
    writer.set("gemma3.final_logit_softcapping", 3.0f32);
    writer.set("gemma3.rope.freq_base_swa", 5000.0f32);
    writer.set("gemma3.rope.scaling.type", "linear");
    writer.set("gemma3.rope.scaling.factor", 8.0f32);
    writer.set("gemma3.attention.sliding_window_pattern", 3u32);
    check(&writer, "period 3");
    writer.set("gemma3.attention.sliding_window_pattern", vec![true, false, false, true, true, false, true]);
    check(&writer, "list");
}

/// Vectors that a file stores in half precision are widened while loading.
#[test]
fn norms_and_biases_in_other_formats_are_converted() {
    let writer = rebuilt("qwen2", |writer, name, shape, values| {
        let small = name.contains("norm.") || name.contains(".bias");
        if small {
            let bytes = values.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect();
            writer.tensor(name, strata_backend_abi::StrataDType::BF16, shape, bytes);
        }
        small
    });
    check(&writer, "BF16 vectors");
}
