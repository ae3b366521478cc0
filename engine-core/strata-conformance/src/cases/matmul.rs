//! `MatMul` and `EmbeddingLookup` over every weight format.

use super::{Check, Group, both_modes, one, weight_formats};
use crate::blocks::Blocks;
use crate::case::{Case, CaseBuilder, Dim, Place};
use crate::rng::Rng;
use strata_backend_abi::{StrataDType, StrataOpKind};

pub(super) fn groups(groups: &mut Vec<Group>) {
    for dtype in weight_formats() {
        groups.push(Group::new("embedding_lookup", dtype.name(), Check::Values, move || embedding(dtype)));
    }
    for dtype in weight_formats() {
        groups.push(Group::new("mat_mul", dtype.name(), Check::Values, move || values(dtype)));
        groups.push(Group::new("mat_mul", dtype.name(), Check::SameBits, move || same_bits(dtype)));
    }
}

/// One matrix product.
#[derive(Clone, Copy)]
struct Shape {
    m: u64,
    k: u64,
    x: StrataDType,
    bias: bool,
    /// Gaps between the rows of weights (blocks), activations and results (elements).
    gaps: [u64; 3],
    blocks: Blocks,
    import: bool,
}

impl Shape {
    fn plain(m: u64, k: u64) -> Shape {
        Shape { m, k, x: StrataDType::F32, bias: false, gaps: [0; 3], blocks: Blocks::Usual, import: false }
    }

    fn name(&self) -> String {
        let Shape { m, k, x, bias, gaps, blocks, import } = self;
        let mut name = format!("M{m} K{k} x {x}");
        for (said, word) in [
            (*bias, " bias"),
            (*gaps != [0; 3], " strided"),
            (*blocks == Blocks::Extreme, " extreme"),
            (*import, " imported"),
        ] {
            name.push_str(if said { word } else { "" });
        }
        name
    }

    fn build(&self, b: &mut CaseBuilder, dtype: StrataDType) {
        if self.import {
            b.import_weights();
        }
        let (m, k) = (Dim::Fixed(self.m), Dim::Fixed(self.k));
        let out = b.strided(Place::Scratch, StrataDType::F32, &[m, Dim::Tokens], [self.gaps[2], 0, 0]);
        let w = b.strided(Place::Weights, dtype, &[k, m], [self.gaps[0], 0, 0]);
        b.fill_blocks(w, 0.05, self.blocks);
        let x = b.strided(Place::Scratch, self.x, &[k, Dim::Tokens], [self.gaps[1], 0, 0]);
        if self.blocks == Blocks::Extreme {
            // Full-scale activations of one size: every 8-bit code is ±127, most of one sign.
            b.fill(x, |rng| if rng.chance(0.9) { 3.0 } else { -3.0 });
        } else {
            b.fill_activations(x, 1.0);
        }
        let bias = self.bias.then(|| {
            let bias = b.tensor(Place::Weights, StrataDType::F32, &[m]);
            b.fill(bias, Rng::normal);
            bias
        });
        b.op(StrataOpKind::MatMul, &[Some(out), Some(w), Some(x), bias], &[], &[]);
    }
}

/// Widths for a format: one block, several, odd multiples, and those of small real models.
fn widths(dtype: StrataDType) -> [u64; 5] {
    match dtype.block_len() {
        256 => [256, 512, 768, 1280, 2560],
        32 => [32, 96, 576, 640, 2560],
        _ => [7, 100, 576, 640, 2560],
    }
}

fn values(dtype: StrataDType) -> Vec<Case> {
    let [k0, k1, k2, k3, k4] = widths(dtype);
    let plain = Shape::plain;
    let shapes = [
        (1, plain(1, k0)),
        (1, plain(3, k3)),
        (1, plain(67, k4)),
        (2, plain(17, k1)),
        (7, plain(3, k2)),
        (7, Shape { x: StrataDType::F16, ..plain(17, k3) }),
        (1, Shape { x: StrataDType::F16, bias: true, ..plain(33, k1) }),
        (33, Shape { bias: true, ..plain(17, k2) }),
        (33, plain(40, k0)),
        (5, Shape { gaps: [1, 4, 3], ..plain(9, k1) }),
        (16, Shape { gaps: [2, 1, 1], x: StrataDType::F16, ..plain(16, k1) }),
        (1, Shape { blocks: Blocks::Extreme, ..plain(16, k3) }),
        (7, Shape { blocks: Blocks::Extreme, ..plain(5, k2) }),
        (1, plain(301, k1)),
        (64, plain(130, k1)),
        (2, Shape { import: true, ..plain(12, k2) }),
        (8, Shape { import: true, bias: true, ..plain(31, k1) }),
    ];
    let mut cases = Vec::new();
    for (tokens, shape) in shapes {
        both_modes(&mut cases, &shape.name(), tokens, |b| shape.build(b, dtype));
    }
    cases
}

fn same_bits(dtype: StrataDType) -> Vec<Case> {
    let [_, k1, k2, ..] = widths(dtype);
    let mut cases = Vec::new();
    for precise in [true, false] {
        let shape = Shape { bias: true, ..Shape::plain(19, k2) };
        cases.push(one(&shape.name(), precise, 37, true, |b| shape.build(b, dtype)));
        let shape = Shape { gaps: [0, 1, 2], x: StrataDType::F16, ..Shape::plain(35, k1) };
        cases.push(one(&shape.name(), precise, 10, true, |b| shape.build(b, dtype)));
    }
    cases
}

fn embedding(dtype: StrataDType) -> Vec<Case> {
    let [k0, k1, k2, ..] = widths(dtype);
    let mut cases = Vec::new();
    for (tokens, width, rows, factor, gap) in
        [(1, k0, 1, 1.0, 0), (2, k1, 300, 1.0, 0), (7, k2, 11, (k2 as f64).sqrt(), 0), (33, k1, 19, -0.5, 2)]
    {
        both_modes(&mut cases, &format!("H{width} V{rows} gap {gap}"), tokens, |b| {
            let width = Dim::Fixed(width);
            let out = b.strided(Place::Scratch, StrataDType::F32, &[width, Dim::Tokens], [gap, 0, 0]);
            let table = b.strided(Place::Weights, dtype, &[width, Dim::Fixed(rows)], [gap, 0, 0]);
            b.fill_blocks(table, 0.7, Blocks::Usual);
            let mut ids: Vec<f64> = (0..b.tokens()).map(|_| b.rng.below(rows) as f64).collect();
            ids[0] = (rows - 1) as f64;
            let ids = b.per_token(&ids);
            b.op(StrataOpKind::EmbeddingLookup, &[Some(out), Some(table), Some(ids)], &[factor], &[]);
        });
    }
    cases
}
