//! `gemma3`: Gemma 3, text only. Scaled embedding, norms before and after each block, tanh GELU,
//! and local layers (short window, own rope base) between global ones.

use strata_backend_abi::{StrataActivation, StrataRopeStyle};
use strata_model::gguf::Gguf;

use super::Architecture;
use super::blocks::{
    AttentionStyle, attention, attention_output, embedding, gated_ffn, head, keep_output_rows, name, norm,
};
use crate::error::EngineError;
use crate::graph::Graph;
use crate::hyperparameters::{Defaults, Hyperparameters, Keys};
use crate::rope::RopeTable;

/// Rope base of local layers when the file does not say.
const LOCAL_BASE: f64 = 10_000.0;
/// Layers after which the pattern of local layers and one global repeats.
const PATTERN: u64 = 6;
/// The 27B is the only size that scales scores by hidden/heads instead of the head size; the file
/// does not say so, its layer count does.
const LAYERS_OF_27B: u64 = 62;
/// Numbers of the rope tables.
const GLOBAL: usize = 0;
const LOCAL: usize = 1;

#[derive(Debug)]
pub(super) struct Gemma3;

impl Architecture for Gemma3 {
    fn key(&self) -> &'static str {
        "gemma3"
    }

    fn hyperparameters(&self, gguf: &Gguf) -> Result<Hyperparameters, EngineError> {
        let defaults = Defaults { rope_style: StrataRopeStyle::Neox, rope_base: 1_000_000.0, dense: true };
        let mut hyper = Hyperparameters::read(gguf, defaults)?;
        let keys = Keys { gguf, architecture: self.key() };
        if hyper.n_layers == LAYERS_OF_27B && keys.value("attention.scale").is_none() {
            hyper.attention_scale = (1.0 / (hyper.n_embd as f64 / hyper.n_heads as f64).sqrt()) as f32;
        }
        hyper.final_softcap = keys.positive("final_logit_softcapping")?.map(|cap| cap as f32);
        hyper.window = keys.integer("attention.sliding_window", 0, 1 << 31)?.filter(|window| *window > 0);
        if hyper.window.is_some() {
            hyper.local_layers = local_layers(&keys, hyper.n_layers)?;
        }
        hyper.local_rope_base = Some(keys.positive("rope.freq_base_swa")?.unwrap_or(LOCAL_BASE));
        Ok(hyper)
    }

    /// Scaling (the larger sizes' linear factor) is for the global layers only.
    fn rope_tables(&self, hyper: &Hyperparameters, divisors: Option<&[f32]>) -> Vec<RopeTable> {
        let local_base = hyper.local_rope_base.unwrap_or(LOCAL_BASE);
        vec![
            RopeTable::new(&hyper.rope, hyper.rope.base, true, divisors),
            RopeTable::new(&hyper.rope, local_base, false, None),
        ]
    }

    fn build(&self, h: &Hyperparameters, g: &mut Graph<'_, '_>) {
        let mut x = embedding(g, h, (h.n_embd as f64).sqrt() as f32);
        for layer in 0..h.n_layers {
            g.enter_layer(Some(layer));
            let local = h.local_layers.get(layer as usize).copied().unwrap_or(false);
            let style = AttentionStyle {
                rope_table: if local { LOCAL } else { GLOBAL },
                window: if local { h.window } else { None },
                head_norms: true,
                biases: false,
            };
            let normed = norm(g, h, &name(layer, "attn_norm.weight"), x);
            let attended = attention(g, h, layer, normed, style);
            let [attended, residual] = keep_output_rows(g, h, layer, [attended, x]);
            let projected = attention_output(g, h, layer, attended);
            let projected = norm(g, h, &name(layer, "post_attention_norm.weight"), projected);
            x = g.add(residual, projected);
            let normed = norm(g, h, &name(layer, "ffn_norm.weight"), x);
            let fed = gated_ffn(g, h, layer, normed, StrataActivation::GeluTanh);
            let fed = norm(g, h, &name(layer, "post_ffw_norm.weight"), fed);
            x = g.add(x, fed);
        }
        head(g, h, x);
    }
}

/// Which layers are local: all but each sixth, unless the file gives another period or a list.
fn local_layers(keys: &Keys<'_>, n_layers: u64) -> Result<Vec<bool>, EngineError> {
    const KEY: &str = "attention.sliding_window_pattern";
    if let Some(list) = keys.value(KEY).and_then(|value| value.as_array()) {
        let flag = |layer: u64| {
            let layer = layer as usize;
            list.bool_at(layer).or_else(|| list.u64_at(layer).map(|number| number != 0))
        };
        return (0..n_layers).map(flag).collect::<Option<Vec<bool>>>().ok_or_else(|| EngineError::BadHyperparameter {
            key: keys.name(KEY),
            value: format!("a list of {}", list.len()),
            why: format!("one flag for each of {n_layers} layers is needed"),
        });
    }
    let pattern = keys.integer(KEY, 1, n_layers.max(PATTERN))?.unwrap_or(PATTERN);
    Ok((0..n_layers).map(|layer| layer % pattern < pattern - 1).collect())
}
