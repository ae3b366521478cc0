//! Ops on one row at a time: norms, softmax, rotation, gathering, arg max.

use super::{Check, Group, both_modes, one};
use crate::case::{Case, CaseBuilder, Dim, Place};
use strata_backend_abi::{StrataDType, StrataOpKind, StrataRopeStyle};

pub(super) fn groups(groups: &mut Vec<Group>) {
    for (name, kind) in [("rms_norm", StrataOpKind::RmsNorm), ("l2_norm", StrataOpKind::L2Norm)] {
        groups.push(Group::new(name, "F32", Check::Values, move || norms(kind)));
        groups.push(Group::new(name, "F32", Check::SameBits, move || norm_bits(kind)));
    }
    groups.push(Group::new("softmax", "F32", Check::Values, softmaxes));
    groups.push(Group::new("softmax", "F32", Check::SameBits, || {
        vec![one("V1000", true, 9, true, |b| softmax(b, 1000, 0.7, 5.0, false))]
    }));
    groups.push(Group::new("rope", "F32", Check::Values, ropes));
    groups.push(Group::new("rope", "F32", Check::SameBits, || {
        let rope = Rope { width: 80, heads: 3, rotated: 48, style: StrataRopeStyle::Neox, in_place: false, gap: 0 };
        vec![one("neox D80 n48", true, 9, true, move |b| rope.build(b))]
    }));
    groups.push(Group::new("gather_rows", "F32", Check::Values, gathers));
    groups.push(Group::new("arg_max", "F32", Check::Values, arg_maxes));
}

/// A norm over rows of one width.
#[derive(Clone, Copy)]
struct Norm {
    width: u64,
    /// Heads per token; 0: rows are tokens.
    heads: u64,
    weighted: bool,
    in_place: bool,
    gap: u64,
    epsilon: f64,
    size: f64,
}

impl Norm {
    fn build(&self, b: &mut CaseBuilder, kind: StrataOpKind) {
        let width = Dim::Fixed(self.width);
        let dims: &[Dim] =
            if self.heads == 0 { &[width, Dim::Tokens] } else { &[width, Dim::Fixed(self.heads), Dim::Tokens] };
        let x = b.strided(Place::Scratch, StrataDType::F32, dims, [self.gap, self.gap * 3, 0]);
        b.fill_activations(x, self.size);
        let out = if self.in_place { x } else { b.strided(Place::Scratch, StrataDType::F32, dims, [0, self.gap, 0]) };
        let w = (self.weighted && kind == StrataOpKind::RmsNorm).then(|| {
            let w = b.tensor(Place::Weights, StrataDType::F32, &[width]);
            b.fill(w, |rng| 1.0 + 0.3 * rng.normal());
            w
        });
        b.op(kind, &[Some(out), Some(x), w], &[self.epsilon], &[]);
    }
}

fn norms(kind: StrataOpKind) -> Vec<Case> {
    let base = Norm { width: 576, heads: 0, weighted: true, in_place: false, gap: 0, epsilon: 1e-5, size: 1.0 };
    let shapes = [
        (1, "H1", Norm { width: 1, ..base }),
        (1, "H576", base),
        (2, "H640 in place", Norm { width: 640, in_place: true, ..base }),
        (7, "H33 strided", Norm { width: 33, gap: 3, ..base }),
        (33, "H2560", Norm { width: 2560, epsilon: 1e-6, ..base }),
        (7, "heads 3 x 64", Norm { width: 64, heads: 3, ..base }),
        (7, "heads 4 x 256 in place", Norm { width: 256, heads: 4, in_place: true, ..base }),
        (3, "heads 5 x 96 strided", Norm { width: 96, heads: 5, gap: 8, ..base }),
        (2, "no weights", Norm { weighted: false, ..base }),
        (2, "large", Norm { size: 1e4, ..base }),
        (2, "small against epsilon", Norm { size: 1e-4, ..base }),
    ];
    let mut cases = Vec::new();
    for (tokens, name, norm) in shapes {
        both_modes(&mut cases, name, tokens, |b| norm.build(b, kind));
    }
    cases
}

fn norm_bits(kind: StrataOpKind) -> Vec<Case> {
    let norm = Norm { width: 640, heads: 0, weighted: true, in_place: false, gap: 0, epsilon: 1e-6, size: 1.0 };
    let heads = Norm { width: 65, heads: 3, gap: 1, in_place: true, ..norm };
    vec![
        one("H640", true, 9, true, |b| norm.build(b, kind)),
        one("heads 3 x 65 in place", false, 9, true, |b| heads.build(b, kind)),
    ]
}

fn softmax(b: &mut CaseBuilder, width: u64, factor: f64, size: f64, in_place: bool) {
    let dims = [Dim::Fixed(width), Dim::Tokens];
    let x = b.strided(Place::Scratch, StrataDType::F32, &dims, [width % 5, 0, 0]);
    b.fill(x, |rng| rng.normal() * size);
    let out = if in_place { x } else { b.result(&dims) };
    b.op(StrataOpKind::Softmax, &[Some(out), Some(x)], &[factor], &[]);
}

fn softmaxes() -> Vec<Case> {
    let mut cases = Vec::new();
    for (tokens, width, factor, size, in_place) in [
        (1, 1, 1.0, 1.0, false),
        (2, 7, 0.125, 3.0, true),
        (7, 576, 1.0, 8.0, false),
        (33, 1003, 0.5, 4.0, true),
        (1, 49152, 1.0, 3.0, false),
        // Logits so far apart that exp without the greatest subtracted overflows.
        (2, 64, 1.0, 200.0, false),
        (2, 64, -1.0, 5.0, false),
    ] {
        both_modes(&mut cases, &format!("V{width} size {size} factor {factor}"), tokens, |b| {
            softmax(b, width, factor, size, in_place);
        });
    }
    cases
}

/// A rotation.
#[derive(Clone, Copy)]
struct Rope {
    width: u64,
    heads: u64,
    rotated: u64,
    style: StrataRopeStyle,
    in_place: bool,
    gap: u64,
}

impl Rope {
    fn build(&self, b: &mut CaseBuilder) {
        let dims = [Dim::Fixed(self.width), Dim::Fixed(self.heads), Dim::Tokens];
        let x = b.strided(Place::Scratch, StrataDType::F32, &dims, [self.gap, 2 * self.gap, 0]);
        b.fill_activations(x, 1.0);
        let out = if self.in_place { x } else { b.result(&dims) };
        let n_rows = b.tokens() + 5;
        let pairs = [Dim::Fixed(2), Dim::Fixed(self.rotated / 2), Dim::Fixed(n_rows)];
        let table = b.tensor(Place::Scratch, StrataDType::F32, &pairs);
        let mut angles = Vec::new();
        for row in 0..n_rows {
            for pair in 0..self.rotated / 2 {
                let angle = (row * 17) as f64 * 1e4_f64.powf(-2.0 * pair as f64 / self.rotated as f64);
                // An attention factor of 1.2 is in the table.
                angles.extend([1.2 * angle.cos(), 1.2 * angle.sin()]);
            }
        }
        b.fill_list(table, &angles);
        let rows: Vec<f64> = (0..b.tokens()).map(|_| b.rng.below(n_rows) as f64).collect();
        let rows = b.per_token(&rows);
        let ints = [self.style as i64, self.rotated as i64];
        b.op(StrataOpKind::Rope, &[Some(out), Some(x), Some(table), Some(rows)], &[], &ints);
    }
}

fn ropes() -> Vec<Case> {
    let mut cases = Vec::new();
    for (word, style) in [("norm", StrataRopeStyle::Norm), ("neox", StrataRopeStyle::Neox)] {
        for (tokens, width, heads, rotated, in_place, gap) in [
            (1, 64, 9, 64, true, 0),
            (2, 2, 1, 2, false, 0),
            (7, 256, 4, 64, false, 0),
            (7, 128, 3, 128, true, 4),
            (33, 96, 2, 40, true, 0),
            (5, 34, 3, 22, false, 1),
        ] {
            let rope = Rope { width, heads, rotated, style, in_place, gap };
            let place = if in_place { "in place" } else { "" };
            both_modes(&mut cases, &format!("{word} D{width} heads {heads} n{rotated} {place}"), tokens, |b| {
                rope.build(b);
            });
        }
    }
    cases
}

fn gathers() -> Vec<Case> {
    let mut cases = Vec::new();
    for (tokens, outputs, width, gap) in [(1, 1, 576, 0), (7, 1, 33, 0), (33, 9, 640, 3), (7, 7, 64, 0), (2, 5, 17, 1)]
    {
        both_modes(&mut cases, &format!("H{width} O{outputs} gap {gap}"), tokens, |b| {
            b.set_outputs(outputs);
            let width = Dim::Fixed(width);
            let x = b.strided(Place::Scratch, StrataDType::F32, &[width, Dim::Tokens], [gap, 0, 0]);
            b.fill_activations(x, 1.0);
            let out = b.strided(Place::Scratch, StrataDType::F32, &[width, Dim::Outputs], [gap, 0, 0]);
            let rows = b.tensor(Place::Scratch, StrataDType::I32, &[Dim::Outputs]);
            let tokens = b.tokens();
            b.fill(rows, |rng| rng.below(tokens) as f64);
            b.op(StrataOpKind::GatherRows, &[Some(out), Some(x), Some(rows)], &[], &[]);
        });
    }
    cases
}

fn arg_maxes() -> Vec<Case> {
    let mut cases = Vec::new();
    // `levels`: how many different values there are; few of them make ties.
    for (tokens, width, levels) in [(1, 1, 3), (2, 7, 2), (7, 1000, 4), (33, 577, 1 << 20), (1, 49152, 100), (3, 40, 1)]
    {
        both_modes(&mut cases, &format!("V{width} levels {levels}"), tokens, |b| {
            let x = b.strided(Place::Scratch, StrataDType::F32, &[Dim::Fixed(width), Dim::Tokens], [width % 3, 0, 0]);
            // All negative, so that an unset accumulator of 0 would win.
            b.fill(x, |rng| -1.0 - rng.below(levels) as f64 / 64.0);
            let out = b.tensor(Place::Scratch, StrataDType::I32, &[Dim::Tokens]);
            b.op(StrataOpKind::ArgMax, &[Some(out), Some(x)], &[], &[]);
        });
    }
    // A step that went wrong must be seen by what it chose.
    both_modes(&mut cases, "V5000 with NaN and infinities", 5, |b| {
        let x = b.tensor(Place::Scratch, StrataDType::F32, &[Dim::Fixed(5000), Dim::Tokens]);
        b.fill(x, |rng| match rng.below(2000) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2..1000 => f64::NEG_INFINITY,
            other => other as f64,
        });
        let out = b.tensor(Place::Scratch, StrataDType::I32, &[Dim::Tokens]);
        b.op(StrataOpKind::ArgMax, &[Some(out), Some(x)], &[], &[]);
    });
    cases
}
