//! `RouterTopK`, `ExpertMatMul`, `ExpertCombine`.

use super::{Check, Group, both_modes, one, weight_formats};
use crate::blocks::Blocks;
use crate::case::{Case, CaseBuilder, Dim, Place};
use crate::oracle::{Choice, Router};
use crate::rng::Rng;
use strata_backend_abi::{StrataDType, StrataOpKind, StrataRouterScore};

pub(super) fn groups(groups: &mut Vec<Group>) {
    for (name, score) in SCORES {
        groups.push(Group::new("router_top_k", name, Check::Values, move || routers(score)));
        groups.push(Group::new("router_top_k", name, Check::SameBits, move || {
            let route = Route { experts: 40, k: 6, bias: true, normalise: true, ..Route::BASE };
            vec![one(&route.name(), false, 9, true, |b| route.build(b, score))]
        }));
    }
    for dtype in weight_formats() {
        groups.push(Group::new("expert_mat_mul", dtype.name(), Check::Values, move || products(dtype)));
        groups.push(Group::new("expert_mat_mul", dtype.name(), Check::SameBits, move || product_bits(dtype)));
    }
    groups.push(Group::new("expert_combine", "F32", Check::Values, combines));
    groups.push(Group::new("expert_combine", "F32", Check::SameBits, || {
        vec![one("H131 k6", true, 9, true, |b| combine(b, 131, 6, 1))]
    }));
}

const SCORES: [(&str, StrataRouterScore); 4] = [
    ("softmax", StrataRouterScore::Softmax),
    ("softmax_of_chosen", StrataRouterScore::SoftmaxOfChosen),
    ("sigmoid", StrataRouterScore::Sigmoid),
    ("sqrt_softplus", StrataRouterScore::SqrtSoftplus),
];

/// A router.
#[derive(Clone, Copy)]
struct Route {
    experts: usize,
    k: usize,
    bias: bool,
    normalise: bool,
    factor: f64,
    least_sum: f64,
    groups: usize,
    kept: usize,
    /// Logits are drawn from this many different values; few make exact ties.
    levels: u64,
}

impl Route {
    const BASE: Route = Route {
        experts: 8,
        k: 2,
        bias: false,
        normalise: false,
        factor: 1.0,
        least_sum: 0.0,
        groups: 0,
        kept: 0,
        levels: 4096,
    };

    fn name(&self) -> String {
        let Route { experts, k, bias, normalise, factor, least_sum, groups, kept, levels } = self;
        format!(
            "E{experts} k{k}{}{} x{factor} floor {least_sum} groups {groups}/{kept} levels {levels}",
            if *bias { " bias" } else { "" },
            if *normalise { " norm" } else { "" },
        )
    }

    /// Draws a token's logits until no two different scores that matter are nearly equal: which
    /// of those goes first is nobody's fault.
    fn logits(&self, b: &mut CaseBuilder, router: &Router, bias: Option<&[f64]>) -> Vec<f64> {
        for _ in 0..10_000 {
            let mut draw = || 6.0 * (b.rng.below(self.levels) as f64 / self.levels as f64) - 3.0;
            let logits: Vec<f64> = (0..self.experts).map(|_| f64::from(draw() as f32)).collect();
            let Choice { margin, .. } = router.choose(&logits, bias);
            if margin > 1e-5 {
                return logits;
            }
        }
        unreachable!("logits without near ties are common")
    }

    fn build(&self, b: &mut CaseBuilder, score: StrataRouterScore) {
        let (experts, k) = (Dim::Fixed(self.experts as u64), Dim::Fixed(self.k as u64));
        let ids = b.tensor(Place::Scratch, StrataDType::I32, &[k, Dim::Tokens]);
        let weights = b.result(&[k, Dim::Tokens]);
        let logits = b.strided(Place::Scratch, StrataDType::F32, &[experts, Dim::Tokens], [3, 0, 0]);
        let router = Router {
            score: score as i64,
            k: self.k,
            normalise: self.normalise,
            factor: self.factor,
            least_sum: f64::from(self.least_sum as f32),
            n_groups: self.groups,
            n_kept: self.kept,
        };
        let bias = self.bias.then(|| {
            // In steps of 1/64 with ties kept where the logits tie.
            let values: Vec<f64> = (0..self.experts).map(|_| b.rng.below(16) as f64 / 64.0 - 0.125).collect();
            let id = b.tensor(Place::Weights, StrataDType::F32, &[experts]);
            b.fill_list(id, &values);
            (id, values)
        });
        let values: Vec<f64> = (0..b.tokens())
            .flat_map(|_| self.logits(b, &router, bias.as_ref().map(|(_, values)| values.as_slice())))
            .collect();
        b.fill_list(logits, &values);
        let operands = [Some(ids), Some(weights), Some(logits), bias.map(|(id, _)| id)];
        let ints = [score as i64, i64::from(self.normalise), self.groups as i64, self.kept as i64];
        b.op(StrataOpKind::RouterTopK, &operands, &[self.factor, self.least_sum], &ints);
    }
}

fn routers(score: StrataRouterScore) -> Vec<Case> {
    let base = Route::BASE;
    let mut cases = Vec::new();
    for (tokens, route) in [
        (1, base),
        (7, Route { experts: 64, k: 8, normalise: true, least_sum: 6.1e-5, ..base }),
        (2, Route { experts: 512, k: 10, normalise: true, ..base }),
        (33, Route { experts: 32, k: 4, bias: true, factor: 2.5, ..base }),
        (3, Route { experts: 5, k: 5, ..base }),
        (2, Route { experts: 7, k: 1, normalise: true, least_sum: 3.0, ..base }),
        // Ties: sixteen experts on three values.
        (9, Route { experts: 16, k: 6, levels: 3, ..base }),
        (2, Route { experts: 16, k: 4, levels: 1, normalise: true, ..base }),
        (7, Route { experts: 64, k: 6, bias: true, normalise: true, groups: 8, kept: 3, ..base }),
        (2, Route { experts: 32, k: 4, groups: 4, kept: 1, ..base }),
        (4, Route { experts: 24, k: 5, groups: 6, kept: 6, levels: 2, ..base }),
    ] {
        both_modes(&mut cases, &route.name(), tokens, |b| route.build(b, score));
    }
    cases
}

/// Products with chosen experts.
#[derive(Clone, Copy)]
struct Product {
    m: u64,
    k: u64,
    experts: u64,
    chosen: u64,
    /// Each chosen expert has an input row of its own.
    own_rows: bool,
    /// Only every other expert lies in `w`, found through the table.
    table: bool,
    gap: u64,
}

impl Product {
    fn name(&self) -> String {
        let Product { m, k, experts, chosen, own_rows, table, gap } = self;
        let own = if *own_rows { " own rows" } else { "" };
        let table = if *table { " table" } else { "" };
        format!("M{m} K{k} E{experts} top {chosen}{own}{table} gap {gap}")
    }

    fn build(&self, b: &mut CaseBuilder, dtype: StrataDType) {
        let [m, k, chosen] = [self.m, self.k, self.chosen].map(Dim::Fixed);
        let out = b.strided(Place::Scratch, StrataDType::F32, &[m, chosen, Dim::Tokens], [self.gap, 0, 0]);
        let slots = if self.table { self.experts / 2 + 1 } else { self.experts };
        let w = b.strided(Place::Weights, dtype, &[k, m, Dim::Fixed(slots)], [0, self.gap.min(1), 0]);
        b.fill_blocks(w, 0.05, Blocks::Usual);
        let rows = if self.own_rows { chosen } else { Dim::Fixed(1) };
        let x = b.strided(Place::Scratch, StrataDType::F32, &[k, rows, Dim::Tokens], [0, self.gap, 0]);
        b.fill_activations(x, 1.0);
        let ids = b.tensor(Place::Scratch, StrataDType::I32, &[chosen, Dim::Tokens]);
        let mut picks = Vec::new();
        for _ in 0..b.tokens() {
            // Low numbers are hot, so that some experts get many tokens and some none.
            let mut experts: Vec<u64> = (0..self.experts).collect();
            let hot = (self.experts / 2).max(self.chosen) as usize;
            b.rng.shuffle(&mut experts[..hot]);
            if b.rng.chance(0.3) {
                b.rng.shuffle(&mut experts);
            }
            picks.extend(experts[..self.chosen as usize].iter().map(|expert| *expert as f64));
        }
        b.fill_list(ids, &picks);
        let table = self.table.then(|| {
            let mut free: Vec<u64> = (0..slots).collect();
            b.rng.shuffle(&mut free);
            let place = |expert: u64| if expert.is_multiple_of(2) { free[(expert / 2) as usize] as f64 } else { -1.0 };
            let places: Vec<f64> = (0..self.experts).map(place).collect();
            let table = b.tensor(Place::Scratch, StrataDType::I32, &[Dim::Fixed(self.experts)]);
            b.fill_list(table, &places);
            table
        });
        b.op(StrataOpKind::ExpertMatMul, &[Some(out), Some(w), Some(x), Some(ids), table], &[], &[]);
    }
}

fn products(dtype: StrataDType) -> Vec<Case> {
    let block = dtype.block_len().max(16) as u64;
    let base = Product { m: 5, k: block, experts: 4, chosen: 2, own_rows: false, table: false, gap: 0 };
    let mut cases = Vec::new();
    for (tokens, product) in [
        (1, base),
        (2, Product { m: 17, k: 3 * block, experts: 6, chosen: 3, own_rows: true, ..base }),
        (7, Product { m: 3, k: 2 * block, experts: 6, chosen: 3, table: true, ..base }),
        (33, Product { m: 9, experts: 8, own_rows: true, table: true, ..base }),
        (1, Product { m: 33, k: 3 * block, experts: 3, chosen: 3, table: true, gap: 2, ..base }),
        (5, Product { m: 1, experts: 1, chosen: 1, gap: 1, ..base }),
        (17, Product { m: 16, k: 2 * block, experts: 5, chosen: 1, ..base }),
    ] {
        both_modes(&mut cases, &product.name(), tokens, |b| product.build(b, dtype));
    }
    cases
}

fn product_bits(dtype: StrataDType) -> Vec<Case> {
    let k = 3 * dtype.block_len().max(16) as u64;
    let shared = Product { m: 19, k, experts: 6, chosen: 3, own_rows: false, table: true, gap: 0 };
    let own = Product { own_rows: true, table: false, gap: 1, ..shared };
    vec![
        one(&shared.name(), true, 12, true, |b| shared.build(b, dtype)),
        one(&own.name(), false, 19, true, |b| own.build(b, dtype)),
    ]
}

fn combine(b: &mut CaseBuilder, width: u64, k: u64, gap: u64) {
    let (width, k) = (Dim::Fixed(width), Dim::Fixed(k));
    let out = b.strided(Place::Scratch, StrataDType::F32, &[width, Dim::Tokens], [gap, 0, 0]);
    let x = b.strided(Place::Scratch, StrataDType::F32, &[width, k, Dim::Tokens], [gap, 2 * gap, 0]);
    b.fill_activations(x, 1.0);
    let weights = b.tensor(Place::Scratch, StrataDType::F32, &[k, Dim::Tokens]);
    b.fill(weights, Rng::unit);
    b.op(StrataOpKind::ExpertCombine, &[Some(out), Some(x), Some(weights)], &[], &[]);
}

fn combines() -> Vec<Case> {
    let mut cases = Vec::new();
    for (tokens, width, k, gap) in [(1, 576, 1, 0), (2, 37, 10, 3), (7, 640, 8, 0), (33, 1, 2, 0)] {
        both_modes(&mut cases, &format!("H{width} k{k} gap {gap}"), tokens, |b| combine(b, width, k, gap));
    }
    cases
}
