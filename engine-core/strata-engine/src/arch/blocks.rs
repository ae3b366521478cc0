//! Pieces that several architectures share. What differs between two of them is a parameter only
//! when it is one number or one flag; anything more is written in the architecture's own file.

use strata_backend_abi::StrataActivation;
use strata_plugin_host::{Dim, TensorId};

use crate::graph::Graph;
use crate::hyperparameters::{Experts, Hyperparameters};
use crate::weights::Weight;

/// Least sum that routers divide by: the smallest normal half-precision number, as in training.
const LEAST_ROUTER_SUM: f32 = 6.103_515_6e-5;

pub(super) fn name(layer: u64, stem: &str) -> String {
    format!("blk.{layer}.{stem}")
}

/// Rows of the embedding table, times `scale`.
pub(super) fn embedding(g: &mut Graph<'_, '_>, h: &Hyperparameters, scale: f32) -> TensorId {
    let table = g.weights.matrix("token_embd.weight", &[h.n_embd, h.n_vocab]);
    g.embedding(&table, scale)
}

/// RMS norm with the gamma of this name, as wide as the residual stream.
pub(super) fn norm(g: &mut Graph<'_, '_>, h: &Hyperparameters, name: &str, x: TensorId) -> TensorId {
    let gamma = g.weights.vector(name, &[h.n_embd]);
    g.rms_norm(x, &gamma, h.eps())
}

/// What differs in the attention of dense decoders.
#[derive(Debug, Clone, Copy)]
pub(super) struct AttentionStyle {
    pub(super) rope_table: usize,
    pub(super) window: Option<u64>,
    /// q and k are normed per head before they are rotated.
    pub(super) head_norms: bool,
    /// The q, k and v biases must be there; otherwise they are used when they are.
    pub(super) biases: bool,
}

/// Attention of normed `x`, up to but without the output projection: [heads·Dv, T].
pub(super) fn attention(
    g: &mut Graph<'_, '_>,
    h: &Hyperparameters,
    layer: u64,
    x: TensorId,
    style: AttentionStyle,
) -> TensorId {
    let projections = projections(g, h, layer, style.biases);
    let [q, k, v] = projections.map(|(weight, bias)| g.mat_mul(&weight, x, bias.as_ref()));
    let q = g.reshape(q, &[Dim::Fixed(h.head_dim_k), Dim::Fixed(h.n_heads), Dim::TOKENS]);
    let k = g.reshape(k, &[Dim::Fixed(h.head_dim_k), Dim::Fixed(h.n_heads_kv), Dim::TOKENS]);
    let v = g.reshape(v, &[Dim::Fixed(h.head_dim_v), Dim::Fixed(h.n_heads_kv), Dim::TOKENS]);
    if style.head_norms {
        let q_gamma = g.weights.vector(&name(layer, "attn_q_norm.weight"), &[h.head_dim_k]);
        let k_gamma = g.weights.vector(&name(layer, "attn_k_norm.weight"), &[h.head_dim_k]);
        g.rms_norm_in_place(q, &q_gamma, h.eps());
        g.rms_norm_in_place(k, &k_gamma, h.eps());
    }
    g.rope(q, style.rope_table, h.rope.style);
    g.rope(k, style.rope_table, h.rope.style);
    g.attention(layer, [q, k, v], h.attention_scale, None, style.window)
}

type Projection = (Weight, Option<Weight>);

/// The q, k and v matrices and biases, out of one fused tensor where the file has them so.
fn projections(g: &mut Graph<'_, '_>, h: &Hyperparameters, layer: u64, biases: bool) -> [Projection; 3] {
    let q = h.head_dim_k * h.n_heads;
    let k = h.head_dim_k * h.n_heads_kv;
    let v = h.head_dim_v * h.n_heads_kv;
    let parts = [(0, q), (q, k), (q + k, v)];
    let fused = name(layer, "attn_qkv.weight");
    if g.weights.has(&fused) {
        let whole = g.weights.matrix(&fused, &[h.n_embd, q + k + v]);
        let bias = bias(g, &name(layer, "attn_qkv.bias"), q + k + v, biases);
        return parts.map(|(first, n)| (whole.rows(first, n), bias.map(|bias| bias.elements(first, n))));
    }
    let stems = ["attn_q", "attn_k", "attn_v"];
    std::array::from_fn(|i| {
        let width = parts[i].1;
        let weight = g.weights.matrix(&name(layer, &format!("{}.weight", stems[i])), &[h.n_embd, width]);
        (weight, bias(g, &name(layer, &format!("{}.bias", stems[i])), width, biases))
    })
}

fn bias(g: &mut Graph<'_, '_>, name: &str, width: u64, required: bool) -> Option<Weight> {
    if required { Some(g.weights.vector(name, &[width])) } else { g.weights.optional_vector(name, &[width]) }
}

fn optional_bias(g: &mut Graph<'_, '_>, layer: u64, stem: &str, width: u64) -> Option<Weight> {
    g.weights.optional_vector(&name(layer, stem), &[width])
}

/// The output projection, back to the residual stream's width.
pub(super) fn attention_output(g: &mut Graph<'_, '_>, h: &Hyperparameters, layer: u64, x: TensorId) -> TensorId {
    let weight = g.weights.matrix(&name(layer, "attn_output.weight"), &[h.head_dim_v * h.n_heads, h.n_embd]);
    let bias = optional_bias(g, layer, "attn_output.bias", h.n_embd);
    g.mat_mul(&weight, x, bias.as_ref())
}

/// `down(act(gate x) · (up x))`.
pub(super) fn gated_ffn(
    g: &mut Graph<'_, '_>,
    h: &Hyperparameters,
    layer: u64,
    x: TensorId,
    activation: StrataActivation,
) -> TensorId {
    let gate = g.weights.matrix(&name(layer, "ffn_gate.weight"), &[h.n_embd, h.n_ff]);
    let up = g.weights.matrix(&name(layer, "ffn_up.weight"), &[h.n_embd, h.n_ff]);
    let down = g.weights.matrix(&name(layer, "ffn_down.weight"), &[h.n_ff, h.n_embd]);
    let gate_bias = optional_bias(g, layer, "ffn_gate.bias", h.n_ff);
    let up_bias = optional_bias(g, layer, "ffn_up.bias", h.n_ff);
    let down_bias = optional_bias(g, layer, "ffn_down.bias", h.n_embd);
    let gate = g.mat_mul(&gate, x, gate_bias.as_ref());
    let up = g.mat_mul(&up, x, up_bias.as_ref());
    let inner = g.glu(gate, up, activation);
    g.mat_mul(&down, inner, down_bias.as_ref())
}

/// Routed experts: the best of a softmax over all, their weights divided by their sum and applied
/// after the down projection.
pub(super) fn routed_ffn(
    g: &mut Graph<'_, '_>,
    h: &Hyperparameters,
    experts: Experts,
    layer: u64,
    x: TensorId,
) -> TensorId {
    let Experts { count, used, n_ff, weights_scale } = experts;
    let router = g.weights.matrix(&name(layer, "ffn_gate_inp.weight"), &[h.n_embd, count]);
    let (gate, up) = expert_gate_up(g, h, experts, layer);
    let down = g.weights.matrix(&name(layer, "ffn_down_exps.weight"), &[n_ff, h.n_embd, count]);
    let logits = g.mat_mul(&router, x, None);
    let (ids, weights) = g.router(logits, used, weights_scale, LEAST_ROUTER_SUM);
    let gate = g.expert_mat_mul(&gate, x, ids);
    let up = g.expert_mat_mul(&up, x, ids);
    let inner = g.glu(gate, up, StrataActivation::Silu);
    let out = g.expert_mat_mul(&down, inner, ids);
    g.expert_combine(out, weights)
}

/// Newer files keep gate and up of an expert in one tensor, gate rows first.
fn expert_gate_up(g: &mut Graph<'_, '_>, h: &Hyperparameters, experts: Experts, layer: u64) -> (Weight, Weight) {
    let Experts { count, n_ff, .. } = experts;
    let fused = name(layer, "ffn_gate_up_exps.weight");
    if g.weights.has(&fused) {
        let whole = g.weights.matrix(&fused, &[h.n_embd, 2 * n_ff, count]);
        return (whole.rows(0, n_ff), whole.rows(n_ff, n_ff));
    }
    let gate = g.weights.matrix(&name(layer, "ffn_gate_exps.weight"), &[h.n_embd, n_ff, count]);
    let up = g.weights.matrix(&name(layer, "ffn_up_exps.weight"), &[h.n_embd, n_ff, count]);
    (gate, up)
}

/// From the last layer on, only the rows of which logits are wanted are computed: after attention
/// no token looks at another.
pub(super) fn keep_output_rows(
    g: &mut Graph<'_, '_>,
    h: &Hyperparameters,
    layer: u64,
    tensors: [TensorId; 2],
) -> [TensorId; 2] {
    if layer + 1 == h.n_layers { tensors.map(|tensor| g.output_rows(tensor)) } else { tensors }
}

/// Final norm and head; a file without `output.weight` uses its embedding table.
pub(super) fn head(g: &mut Graph<'_, '_>, h: &Hyperparameters, x: TensorId) {
    g.enter_layer(None);
    let x = norm(g, h, "output_norm.weight", x);
    let tied = !g.weights.has("output.weight");
    let name = if tied { "token_embd.weight" } else { "output.weight" };
    let weight = g.weights.matrix(name, &[h.n_embd, h.n_vocab]);
    g.logits(&weight, x, h.final_softcap);
}
