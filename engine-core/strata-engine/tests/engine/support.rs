//! Toy models and where real ones are.

use std::path::PathBuf;
use std::sync::Arc;

use strata_model::gguf::Gguf;
use strata_model::gguf::writer::GgufWriter;

/// Small integers in a row that looks random, the same on every run.
#[derive(Debug, Clone)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// About normally distributed, deviation 1.
    pub(crate) fn normal(&mut self) -> f32 {
        let sum: u64 = (0..4).map(|_| self.next() >> 40).sum();
        (sum as f32 / (1u64 << 24) as f32 - 2.0) * 1.732
    }

    pub(crate) fn values(&mut self, n: u64, deviation: f32, mean: f32) -> Vec<f32> {
        (0..n).map(|_| mean + deviation * self.normal()).collect()
    }
}

/// Shapes of a toy model: small, and no two of them equal, so that a swapped one is noticed.
pub(crate) const LAYERS: u64 = 7;
pub(crate) const EMBD: u64 = 96;
pub(crate) const HEADS: u64 = 6;
pub(crate) const HEADS_KV: u64 = 2;
pub(crate) const HEAD_DIM: u64 = 32;
pub(crate) const FF: u64 = 160;
pub(crate) const VOCAB: u64 = 320;
pub(crate) const EXPERTS: u64 = 8;
pub(crate) const EXPERT_FF: u64 = 64;

/// A toy model of the architecture, all F32, with every tensor that it needs.
pub(crate) fn toy(architecture: &str) -> GgufWriter {
    let mut writer = GgufWriter::new(architecture);
    let key = |suffix: &str| format!("{architecture}.{suffix}");
    for (suffix, value) in [
        ("block_count", LAYERS),
        ("context_length", 256),
        ("embedding_length", EMBD),
        ("feed_forward_length", FF),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", HEADS_KV),
        ("attention.key_length", HEAD_DIM),
        ("attention.value_length", HEAD_DIM),
    ] {
        writer.set(&key(suffix), value as u32);
    }
    writer.set(&key("attention.layer_norm_rms_epsilon"), 1e-5f32);
    let mut numbers = Numbers::new(1);
    let mut add = |name: &str, ne: &[u64], deviation: f32, mean: f32| {
        let values = numbers.values(ne.iter().product(), deviation, mean);
        writer.tensor_f32(name, ne, &values);
    };
    add("token_embd.weight", &[EMBD, VOCAB], 1.0, 0.0);
    add("output_norm.weight", &[EMBD], 0.1, 1.0);
    let matrix = |n_in: u64| 1.0 / (n_in as f32).sqrt();
    for layer in 0..LAYERS {
        let name = |stem: &str| format!("blk.{layer}.{stem}");
        add(&name("attn_norm.weight"), &[EMBD], 0.1, 1.0);
        add(&name("ffn_norm.weight"), &[EMBD], 0.1, 1.0);
        add(&name("attn_q.weight"), &[EMBD, HEADS * HEAD_DIM], matrix(EMBD), 0.0);
        add(&name("attn_k.weight"), &[EMBD, HEADS_KV * HEAD_DIM], matrix(EMBD), 0.0);
        add(&name("attn_v.weight"), &[EMBD, HEADS_KV * HEAD_DIM], matrix(EMBD), 0.0);
        add(&name("attn_output.weight"), &[HEADS * HEAD_DIM, EMBD], matrix(HEADS * HEAD_DIM), 0.0);
        if architecture == "qwen2" {
            add(&name("attn_q.bias"), &[HEADS * HEAD_DIM], 0.3, 0.0);
            add(&name("attn_k.bias"), &[HEADS_KV * HEAD_DIM], 0.3, 0.0);
            add(&name("attn_v.bias"), &[HEADS_KV * HEAD_DIM], 0.3, 0.0);
        }
        if architecture != "llama" && architecture != "qwen2" {
            add(&name("attn_q_norm.weight"), &[HEAD_DIM], 0.1, 1.5);
            add(&name("attn_k_norm.weight"), &[HEAD_DIM], 0.1, 1.0);
        }
        if architecture == "gemma3" {
            add(&name("post_attention_norm.weight"), &[EMBD], 0.1, 0.5);
            add(&name("post_ffw_norm.weight"), &[EMBD], 0.1, 0.5);
        }
        if architecture == "qwen3moe" {
            add(&name("ffn_gate_inp.weight"), &[EMBD, EXPERTS], 2.0 * matrix(EMBD), 0.0);
            add(&name("ffn_gate_exps.weight"), &[EMBD, EXPERT_FF, EXPERTS], matrix(EMBD), 0.0);
            add(&name("ffn_up_exps.weight"), &[EMBD, EXPERT_FF, EXPERTS], matrix(EMBD), 0.0);
            add(&name("ffn_down_exps.weight"), &[EXPERT_FF, EMBD, EXPERTS], matrix(EXPERT_FF), 0.0);
        } else {
            add(&name("ffn_gate.weight"), &[EMBD, FF], matrix(EMBD), 0.0);
            add(&name("ffn_up.weight"), &[EMBD, FF], matrix(EMBD), 0.0);
            add(&name("ffn_down.weight"), &[FF, EMBD], matrix(FF), 0.0);
        }
    }
    match architecture {
        "qwen3moe" => {
            writer.set(&key("expert_count"), EXPERTS as u32);
            writer.set(&key("expert_used_count"), 3u32);
            writer.set(&key("expert_feed_forward_length"), EXPERT_FF as u32);
        }
        "gemma3" => {
            writer.set(&key("attention.sliding_window"), 24u32);
            writer.set(&key("rope.freq_base"), 1e6f32);
        }
        _ => {}
    }
    writer
}

pub(crate) const ARCHITECTURES: [&str; 5] = ["llama", "qwen2", "qwen3", "gemma3", "qwen3moe"];

pub(crate) fn open(writer: &GgufWriter) -> Arc<Gguf> {
    Arc::new(Gguf::from_bytes("toy", writer.to_bytes()).unwrap())
}

/// A real model, or why the test cannot run.
pub(crate) fn real_model(file: &str) -> Option<Arc<Gguf>> {
    let path = models_dir().join(file);
    if !path.is_file() {
        println!("skipped: {} is absent (`cargo xtask models` fetches it)", path.display());
        return None;
    }
    Some(Arc::new(Gguf::open(&path).unwrap()))
}

pub(crate) fn models_dir() -> PathBuf {
    let named = std::env::var_os("STRATA_TEST_MODELS").map(PathBuf::from);
    named.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/strata/models"))
}

/// A file of the reference data that lies beside the checkout, or why the test cannot run.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let path = std::env::var_os("STRATA_SHARED").map_or_else(beside, PathBuf::from).join(path);
    if !path.exists() {
        println!("skipped: {} is absent", path.display());
        return None;
    }
    Some(path)
}

pub(crate) const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
pub(crate) const GEMMA3: &str = "gemma-3-270m-q4_k_m.gguf";
