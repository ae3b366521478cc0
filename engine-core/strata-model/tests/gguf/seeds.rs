//! Seeds of the fuzz target: small files that between them have something of everything.
//! `examples/gguf_seeds.rs` writes them out, the replay test reads them.

use strata_backend_abi::StrataDType;
use strata_model::gguf::writer::{GgufWriter, Meta};

pub(crate) fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = vec![("rich".to_owned(), rich()), ("empty".to_owned(), Vec::new())];
    seeds.push(("keys".to_owned(), GgufWriter::new("llama").version(2).to_bytes()));
    for dtype in StrataDType::ALL {
        let data = (0..dtype.block_bytes()).map(|byte| byte as u8).collect();
        let mut writer = GgufWriter::new("x");
        writer.tensor("t", *dtype, &[dtype.block_len() as u64], data);
        seeds.push((dtype.name().to_lowercase(), writer.to_bytes()));
    }
    let mut part = GgufWriter::new("llama");
    part.set("split.no", 0_u16).set("split.count", 2_u16).set("split.tensors.count", 1).tensor_f32("t", &[1], &[1.0]);
    seeds.push(("part".to_owned(), part.to_bytes()));
    seeds.push(("foreign".to_owned(), GgufWriter::new("x").raw_tensor("t", 34, &[256], vec![0; 54]).to_bytes()));
    seeds
}

/// A file with values of many types, nested arrays, an alignment, and two tensors.
pub(crate) fn rich() -> Vec<u8> {
    let mut writer = GgufWriter::new("llama");
    writer
        .alignment(64)
        .set("general.name", "Toy")
        .set("general.file_type", 15_u32)
        .set("llama.block_count", 1_u32)
        .set("llama.context_length", 128_u64)
        .set("llama.embedding_length", 8_u16)
        .set("llama.attention.head_count", 2_u32)
        .set("llama.attention.head_count_kv", vec![1_u32])
        .set("llama.rope.freq_base", 10000.0_f32)
        .set("tokenizer.ggml.tokens", vec!["<s>".to_owned(), String::new(), "▁a".to_owned()])
        .set("tokenizer.ggml.scores", vec![0.0_f32, -1.0, -2.0])
        .set("a.flag", true)
        .set("a.flags", vec![true, false])
        .set("a.nest", Meta::Arrays(vec![vec![1_u32, 2].into(), vec!["x".to_owned()].into()]))
        .tensor_f32("token_embd.weight", &[4, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
        .tensor("blk.0.ffn_up.weight", StrataDType::Q4K, &[256, 2], vec![3; 288]);
    writer.to_bytes()
}
