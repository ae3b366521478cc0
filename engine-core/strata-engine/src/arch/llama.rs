//! `llama`: Llama 2 and 3, SmolLM, Mistral, and with experts Mixtral. Neighbouring elements rotate,
//! since the converter permuted q and k.

use strata_backend_abi::{StrataActivation, StrataRopeStyle};
use strata_model::gguf::Gguf;

use super::Architecture;
use super::blocks::{
    AttentionStyle, attention, attention_output, embedding, gated_ffn, head, keep_output_rows, name, norm, routed_ffn,
};
use crate::error::EngineError;
use crate::graph::Graph;
use crate::hyperparameters::{Defaults, Hyperparameters};

#[derive(Debug)]
pub(super) struct Llama;

impl Architecture for Llama {
    fn key(&self) -> &'static str {
        "llama"
    }

    fn hyperparameters(&self, gguf: &Gguf) -> Result<Hyperparameters, EngineError> {
        let defaults = Defaults { rope_style: StrataRopeStyle::Norm, rope_base: 10_000.0, dense: true };
        Hyperparameters::read(gguf, defaults)
    }

    fn build(&self, h: &Hyperparameters, g: &mut Graph<'_, '_>) {
        let style = AttentionStyle { rope_table: 0, window: None, head_norms: false, biases: false };
        let mut x = embedding(g, h, 1.0);
        for layer in 0..h.n_layers {
            g.enter_layer(Some(layer));
            let normed = norm(g, h, &name(layer, "attn_norm.weight"), x);
            let attended = attention(g, h, layer, normed, style);
            let [attended, residual] = keep_output_rows(g, h, layer, [attended, x]);
            let projected = attention_output(g, h, layer, attended);
            x = g.add(residual, projected);
            let normed = norm(g, h, &name(layer, "ffn_norm.weight"), x);
            let fed = match h.experts {
                Some(experts) => routed_ffn(g, h, experts, layer, normed),
                None => gated_ffn(g, h, layer, normed, StrataActivation::Silu),
            };
            x = g.add(x, fed);
        }
        head(g, h, x);
    }
}
