//! `qwen3moe`: Qwen3 with routed experts in every layer. The dense width in its metadata is unused.

use strata_backend_abi::StrataRopeStyle;
use strata_model::gguf::Gguf;

use super::Architecture;
use super::blocks::{
    AttentionStyle, attention, attention_output, embedding, head, keep_output_rows, name, norm, routed_ffn,
};
use crate::error::EngineError;
use crate::graph::Graph;
use crate::hyperparameters::{Defaults, Hyperparameters};

#[derive(Debug)]
pub(super) struct Qwen3Moe;

impl Architecture for Qwen3Moe {
    fn key(&self) -> &'static str {
        "qwen3moe"
    }

    fn hyperparameters(&self, gguf: &Gguf) -> Result<Hyperparameters, EngineError> {
        let defaults = Defaults { rope_style: StrataRopeStyle::Neox, rope_base: 10_000.0, dense: false };
        let hyper = Hyperparameters::read(gguf, defaults)?;
        if hyper.experts.is_none() {
            return Err(EngineError::MissingKey { key: "qwen3moe.expert_count".to_owned() });
        }
        Ok(hyper)
    }

    fn build(&self, h: &Hyperparameters, g: &mut Graph<'_, '_>) {
        let Some(experts) = h.experts else { return };
        let style = AttentionStyle { rope_table: 0, window: None, head_norms: true, biases: false };
        let mut x = embedding(g, h, 1.0);
        for layer in 0..h.n_layers {
            g.enter_layer(Some(layer));
            let normed = norm(g, h, &name(layer, "attn_norm.weight"), x);
            let attended = attention(g, h, layer, normed, style);
            let [attended, residual] = keep_output_rows(g, h, layer, [attended, x]);
            let projected = attention_output(g, h, layer, attended);
            x = g.add(residual, projected);
            let normed = norm(g, h, &name(layer, "ffn_norm.weight"), x);
            let fed = routed_ffn(g, h, experts, layer, normed);
            x = g.add(x, fed);
        }
        head(g, h, x);
    }
}
