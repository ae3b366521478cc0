//! `qwen2`: Qwen2 and Qwen2.5, dense. Llama's graph with biases on q, k and v, and halves rotate.

use strata_backend_abi::{StrataActivation, StrataRopeStyle};
use strata_model::gguf::Gguf;

use super::Architecture;
use super::blocks::{
    AttentionStyle, attention, attention_output, embedding, gated_ffn, head, keep_output_rows, name, norm,
};
use crate::error::EngineError;
use crate::graph::Graph;
use crate::hyperparameters::{Defaults, Hyperparameters};

#[derive(Debug)]
pub(super) struct Qwen2;

impl Architecture for Qwen2 {
    fn key(&self) -> &'static str {
        "qwen2"
    }

    fn hyperparameters(&self, gguf: &Gguf) -> Result<Hyperparameters, EngineError> {
        let defaults = Defaults { rope_style: StrataRopeStyle::Neox, rope_base: 10_000.0, dense: true };
        Hyperparameters::read(gguf, defaults)
    }

    fn build(&self, h: &Hyperparameters, g: &mut Graph<'_, '_>) {
        let style = AttentionStyle { rope_table: 0, window: None, head_norms: false, biases: true };
        let mut x = embedding(g, h, 1.0);
        for layer in 0..h.n_layers {
            g.enter_layer(Some(layer));
            let normed = norm(g, h, &name(layer, "attn_norm.weight"), x);
            let attended = attention(g, h, layer, normed, style);
            let [attended, residual] = keep_output_rows(g, h, layer, [attended, x]);
            let projected = attention_output(g, h, layer, attended);
            x = g.add(residual, projected);
            let normed = norm(g, h, &name(layer, "ffn_norm.weight"), x);
            let fed = gated_ffn(g, h, layer, normed, StrataActivation::Silu);
            x = g.add(x, fed);
        }
        head(g, h, x);
    }
}
