//! A whole decoder layer as one program: what a plugin that fuses, reorders or reuses memory can
//! still get wrong when each op alone is right.

use super::{Check, Group, one};
use crate::blocks::Blocks;
use crate::case::{Case, CaseBuilder, Dim, Judge, Place};
use strata_backend_abi::{StrataActivation, StrataDType, StrataOpKind, StrataRopeStyle};

pub(super) fn groups(groups: &mut Vec<Group>) {
    for dtype in
        [StrataDType::F32, StrataDType::F16, StrataDType::Q8_0, StrataDType::Q4_1, StrataDType::Q4K, StrataDType::Q6K]
    {
        groups.push(Group::new("step", dtype.name(), Check::Values, move || {
            let build = |precise, tokens| one("layer", precise, tokens, true, |b| layer(b, dtype, precise, true));
            vec![build(true, 1), build(true, 7), build(false, 2), build(false, 33)]
        }));
        groups.push(Group::new("step", dtype.name(), Check::SameBits, move || {
            let build = |precise, tokens| {
                let case = one("layer", precise, tokens, true, |b| layer(b, dtype, precise, false));
                Case { carries_state: true, ..case }
            };
            vec![build(true, 9), build(false, 21)]
        }));
    }
}

const HEADS: u64 = 4;
const KV_HEADS: u64 = 2;
const VOCABULARY: u64 = 50;
const PAGE: u64 = 8;

/// The scratch tensors and weights of one layer under construction.
struct Layer<'a> {
    b: &'a mut CaseBuilder,
    dtype: StrataDType,
}

impl Layer<'_> {
    fn weight(&mut self, k: u64, m: u64) -> u32 {
        let w = self.b.tensor(Place::Weights, self.dtype, &[Dim::Fixed(k), Dim::Fixed(m)]);
        self.b.fill_blocks(w, 1.0 / (k as f64).sqrt(), Blocks::Usual);
        w
    }

    fn gamma(&mut self, width: u64) -> u32 {
        let w = self.b.tensor(Place::Weights, StrataDType::F32, &[Dim::Fixed(width)]);
        self.b.fill(w, |rng| 1.0 + 0.2 * rng.normal());
        w
    }

    fn mat_mul(&mut self, out: u32, x: u32, k: u64, m: u64) {
        let w = self.weight(k, m);
        self.b.op(StrataOpKind::MatMul, &[Some(out), Some(w), Some(x)], &[], &[]);
    }

    fn norm(&mut self, out: u32, x: u32, width: u64) {
        let w = self.gamma(width);
        self.b.op(StrataOpKind::RmsNorm, &[Some(out), Some(x), Some(w)], &[1e-5], &[]);
    }

    /// The same bytes as heads of `width`.
    fn as_heads(&mut self, id: u32, width: u64, heads: u64) -> u32 {
        let flat = self.b.get(id);
        let mut split = flat;
        split.ne = [width, heads, flat.ne[1], 1];
        split.nb = [4, 4 * width, flat.nb[1], flat.nb[1] * flat.ne[1]];
        split.dynamic = [0, 0, flat.dynamic[1], 0];
        self.b.add_tensor(split)
    }

    /// A tensor of other width over the same bytes, which are no longer needed.
    fn reuse(&mut self, id: u32, width: u64) -> u32 {
        let mut tensor = self.b.get(id);
        assert!(4 * width <= tensor.nb[1], "what is reused is large enough");
        tensor.ne[0] = width;
        tensor.nb[1] = 4 * width;
        self.b.add_tensor(tensor)
    }
}

fn layer(b: &mut CaseBuilder, dtype: StrataDType, precise: bool, gather: bool) {
    let hidden = 2 * (dtype.block_len() as u64).max(32);
    let ffn = hidden + dtype.block_len().max(32) as u64;
    let head = hidden / HEADS;
    let tokens = b.tokens();
    let mut layer = Layer { b, dtype };
    let row = |width: u64| [Dim::Fixed(width), Dim::Tokens];

    let ids: Vec<f64> = (0..tokens).map(|_| layer.b.rng.below(VOCABULARY) as f64).collect();
    let ids = layer.b.per_token(&ids);
    let (residual, normed) = (layer.b.result(&row(hidden)), layer.b.result(&row(hidden)));
    let table = layer.weight(hidden, VOCABULARY);
    layer.b.op(StrataOpKind::EmbeddingLookup, &[Some(residual), Some(table), Some(ids)], &[4.0], &[]);

    layer.norm(normed, residual, hidden);
    // Query, key and value lie side by side in one row that is large enough for the ffn later on.
    let work = layer.b.result(&row(2 * ffn));
    let mut part = layer.b.get(work);
    part.nb[1] = 4 * 2 * ffn;
    let mut parts = Vec::new();
    for (offset, width) in [(0, hidden), (hidden, head * KV_HEADS), (hidden + head * KV_HEADS, head * KV_HEADS)] {
        let mut view = part;
        view.ne[0] = width;
        view.offset += 4 * offset;
        let id = layer.b.add_tensor(view);
        layer.mat_mul(id, normed, hidden, width);
        parts.push(layer.as_heads(id, head, width / head));
    }
    let attended = attention_part(&mut layer, &parts, head, precise);
    let flat = layer.b.get(attended);
    let flat = layer.b.add_tensor(strata_backend_abi::StrataTensor {
        ne: [hidden, flat.ne[2], 1, 1],
        nb: [4, 4 * hidden, 4 * hidden * flat.ne[2], 4 * hidden * flat.ne[2]],
        dynamic: [0, flat.dynamic[2], 0, 0],
        ..flat
    });
    // The projection goes where the normed input was.
    let projected = layer.reuse(normed, hidden);
    layer.mat_mul(projected, flat, hidden, hidden);
    layer.b.op(StrataOpKind::Add, &[Some(residual), Some(residual), Some(projected)], &[1.0], &[]);

    layer.norm(normed, residual, hidden);
    // Gate and up go where query, key and value were.
    let mut gate = part;
    gate.ne[0] = ffn;
    let gate_id = layer.b.add_tensor(gate);
    gate.offset += 4 * ffn;
    let up_id = layer.b.add_tensor(gate);
    layer.mat_mul(gate_id, normed, hidden, ffn);
    layer.mat_mul(up_id, normed, hidden, ffn);
    let silu = [StrataActivation::Silu as i64];
    layer.b.op(StrataOpKind::Glu, &[Some(gate_id), Some(gate_id), Some(up_id)], &[], &silu);
    layer.mat_mul(projected, gate_id, ffn, hidden);
    layer.b.op(StrataOpKind::Add, &[Some(residual), Some(residual), Some(projected)], &[1.0], &[]);
    head_part(&mut layer, residual, hidden, gather);
    layer.b.check_last_only();
    layer.b.judge(Judge::RowScale(match (precise, dtype) {
        // About 15 roundings of f32 in a row, each within a few 1e-7 of its row's size.
        (true, _) => 2e-5,
        // The cache and activations in f16: 5e-4 each, twice through the layer.
        (false, StrataDType::F32 | StrataDType::F16 | StrataDType::BF16) => 5e-3,
        // Activations in 8 bits per block: a step is 1/127 of the block's greatest, so 0.5 % (blocks of
        // 32) to 0.8 % (256) of a row's size per product, six products deep; four times that spread.
        (false, dtype) if dtype.block_len() <= 32 => 5e-2,
        (false, _) => 8e-2,
    }));
}

/// Head norms, rotation, store, attention; returns [head, heads, T].
fn attention_part(layer: &mut Layer<'_>, parts: &[u32], head: u64, precise: bool) -> u32 {
    let tokens = layer.b.tokens();
    let [query, key, value] = [parts[0], parts[1], parts[2]];
    layer.norm(query, query, head);
    layer.norm(key, key, head);
    let pairs = head / 2;
    let table =
        layer.b.tensor(Place::Scratch, StrataDType::F32, &[Dim::Fixed(2), Dim::Fixed(pairs), Dim::Fixed(tokens)]);
    let angles: Vec<f64> = (0..tokens * pairs)
        .flat_map(|i| {
            let angle = (i / pairs) as f64 * 1e4_f64.powf(-2.0 * (i % pairs) as f64 / head as f64);
            [angle.cos(), angle.sin()]
        })
        .collect();
    layer.b.fill_list(table, &angles);
    let positions: Vec<f64> = (0..tokens).map(|t| t as f64).collect();
    let position = layer.b.per_token(&positions);
    let sequence = layer.b.per_token(&vec![0.0; tokens as usize]);
    for rotated in [query, key] {
        let operands = [Some(rotated), Some(rotated), Some(table), Some(position)];
        layer.b.op(StrataOpKind::Rope, &operands, &[], &[StrataRopeStyle::Neox as i64, head as i64]);
    }
    let n_pages = tokens.div_ceil(PAGE);
    let mut pages: Vec<f64> = (0..n_pages).map(|page| page as f64).collect();
    layer.b.rng.shuffle(&mut pages);
    let page_table = layer.b.tensor(Place::Scratch, StrataDType::I32, &[Dim::Fixed(n_pages), Dim::Fixed(1)]);
    layer.b.fill_list(page_table, &pages);
    let format = if precise { StrataDType::F32 } else { StrataDType::F16 };
    let dims = [Dim::Fixed(head), Dim::Fixed(KV_HEADS), Dim::Fixed(n_pages * PAGE)];
    let caches = [layer.b.tensor(Place::Cache, format, &dims), layer.b.tensor(Place::Cache, format, &dims)];
    for (cache, x) in caches.into_iter().zip([key, value]) {
        let operands = [cache, x, page_table, sequence, position].map(Some);
        layer.b.op(StrataOpKind::KvStore, &operands, &[], &[PAGE as i64]);
    }
    let attended = layer.b.result(&[Dim::Fixed(head), Dim::Fixed(HEADS), Dim::Tokens]);
    let operands = [attended, query, caches[0], caches[1], page_table, sequence, position].map(Some);
    layer.b.op(StrataOpKind::Attention, &operands, &[1.0 / (head as f64).sqrt()], &[PAGE as i64, 0]);
    attended
}

/// Final norm and logits, of all tokens or of two gathered rows.
fn head_part(layer: &mut Layer<'_>, residual: u32, hidden: u64, gather: bool) {
    let (count, source) = if gather {
        layer.b.set_outputs(2);
        let rows = layer.b.tensor(Place::Scratch, StrataDType::I32, &[Dim::Outputs]);
        let last = layer.b.tokens() - 1;
        layer.b.fill_list(rows, &[last as f64, 0.0]);
        let chosen = layer.b.result(&[Dim::Fixed(hidden), Dim::Outputs]);
        layer.b.op(StrataOpKind::GatherRows, &[Some(chosen), Some(residual), Some(rows)], &[], &[]);
        (Dim::Outputs, chosen)
    } else {
        (Dim::Tokens, residual)
    };
    let normed = layer.b.result(&[Dim::Fixed(hidden), count]);
    layer.norm(normed, source, hidden);
    let logits = layer.b.result(&[Dim::Fixed(VOCABULARY), count]);
    layer.mat_mul(logits, normed, hidden, VOCABULARY);
}
