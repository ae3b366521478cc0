//! Add, Mul, Scale, Unary, Glu, Copy.

use super::{Check, Group, both_modes, one};
use crate::case::{Case, CaseBuilder, Dim, Place};
use strata_backend_abi::{StrataActivation, StrataDType, StrataOpKind, StrataUnary};

pub(super) fn groups(groups: &mut Vec<Group>) {
    groups.push(Group::new("glu", "F32", Check::Values, glus));
    groups.push(Group::new("glu", "F32", Check::SameBits, || {
        let bits = |(name, activation)| {
            one(name, false, 9, true, |b| glu(b, activation, &GluShape { width: 131, ..GluShape::BASE }))
        };
        ACTIVATIONS.map(bits).into()
    }));
    groups.push(Group::new("add", "F32", Check::Values, || sums(StrataOpKind::Add)));
    groups.push(Group::new("mul", "F32", Check::Values, || sums(StrataOpKind::Mul)));
    groups.push(Group::new("scale", "F32", Check::Values, scales));
    groups.push(Group::new("unary", "F32", Check::Values, unaries));
    groups.push(Group::new("unary", "F32", Check::SameBits, || {
        UNARIES.map(|(name, function)| one(name, false, 9, true, |b| unary(b, function, 131, false))).into()
    }));
    for from in FLOATS {
        for to in FLOATS {
            let format = format!("{from}->{to}");
            groups.push(Group::new("copy", format, Check::Values, move || copies(from, to)));
        }
    }
}

const FLOATS: [StrataDType; 3] = [StrataDType::F32, StrataDType::F16, StrataDType::BF16];

const ACTIVATIONS: [(&str, StrataActivation); 5] = [
    ("silu", StrataActivation::Silu),
    ("gelu tanh", StrataActivation::GeluTanh),
    ("gelu erf", StrataActivation::GeluErf),
    ("relu squared", StrataActivation::ReluSquared),
    ("swiglu oai", StrataActivation::SwigluOai),
];

const UNARIES: [(&str, StrataUnary); 7] = [
    ("silu", StrataUnary::Silu),
    ("gelu tanh", StrataUnary::GeluTanh),
    ("sigmoid", StrataUnary::Sigmoid),
    ("tanh", StrataUnary::Tanh),
    ("softplus", StrataUnary::Softplus),
    ("exp", StrataUnary::Exp),
    ("softcap", StrataUnary::Softcap),
];

/// Where a gated unit's operands lie.
#[derive(Clone, Copy)]
struct GluShape {
    width: u64,
    /// Experts per token; 0: rows are tokens.
    experts: u64,
    /// Gate and up are the two halves of one row.
    fused: bool,
    in_place: InPlace,
}

/// Which operand the result is written over.
#[derive(Clone, Copy, PartialEq)]
enum InPlace {
    Neither,
    First,
    Second,
}

impl InPlace {
    fn word(self) -> &'static str {
        match self {
            InPlace::Neither => "",
            InPlace::First => " in place",
            InPlace::Second => " in place of the second",
        }
    }
}

impl GluShape {
    const BASE: GluShape = GluShape { width: 1536, experts: 0, fused: false, in_place: InPlace::Neither };
}

fn glu(b: &mut CaseBuilder, activation: StrataActivation, shape: &GluShape) {
    let dims = |width: u64| {
        let mut dims = vec![Dim::Fixed(width)];
        if shape.experts > 0 {
            dims.push(Dim::Fixed(shape.experts));
        }
        dims.push(Dim::Tokens);
        dims
    };
    let (gate, up) = if shape.fused {
        let both = b.tensor(Place::Scratch, StrataDType::F32, &dims(2 * shape.width));
        b.fill_activations(both, 2.0);
        let mut half = b.get(both);
        half.ne[0] = shape.width;
        let gate = b.add_tensor(half);
        half.offset += 4 * shape.width;
        (gate, b.add_tensor(half))
    } else {
        (b.activations(&dims(shape.width), 2.0), b.activations(&dims(shape.width), 2.0))
    };
    let out = match shape.in_place {
        InPlace::Neither => b.result(&dims(shape.width)),
        InPlace::First => gate,
        InPlace::Second => up,
    };
    let floats = if activation == StrataActivation::SwigluOai { [7.0, 1.702] } else { [0.0; 2] };
    b.op(StrataOpKind::Glu, &[Some(out), Some(gate), Some(up)], &floats, &[activation as i64]);
}

fn glus() -> Vec<Case> {
    let base = GluShape::BASE;
    let mut cases = Vec::new();
    for (name, activation) in ACTIVATIONS {
        for (tokens, word, shape) in [
            (1, "F1", GluShape { width: 1, ..base }),
            (2, "F1536 in place", GluShape { in_place: InPlace::First, ..base }),
            (5, "F96 in place of up", GluShape { width: 96, in_place: InPlace::Second, ..base }),
            (4, "F40 fused in place", GluShape { width: 40, fused: true, in_place: InPlace::First, ..base }),
            (7, "F37 fused", GluShape { width: 37, fused: true, ..base }),
            (33, "F100", GluShape { width: 100, ..base }),
            (3, "experts 4 x 40 fused", GluShape { width: 40, experts: 4, fused: true, ..base }),
            (2, "experts 3 x 33 in place", GluShape { width: 33, experts: 3, in_place: InPlace::First, ..base }),
        ] {
            both_modes(&mut cases, &format!("{name} {word}"), tokens, |b| glu(b, activation, &shape));
        }
    }
    cases
}

/// Operand 2 against operand 1.
fn sums(kind: StrataOpKind) -> Vec<Case> {
    let (h, one_wide) = (Dim::Fixed(37), Dim::Fixed(1));
    let heads = Dim::Fixed(5);
    let t = Dim::Tokens;
    let shapes: [(&str, &[Dim], &[Dim]); 7] = [
        ("same", &[h, t], &[h, t]),
        ("row", &[h, t], &[h]),
        ("number per token", &[h, t], &[one_wide, t]),
        ("three dims", &[h, heads, t], &[h, heads, t]),
        ("over heads", &[h, heads, t], &[h, one_wide, t]),
        ("over tokens", &[h, heads, t], &[h, heads]),
        ("one number", &[h, heads, t], &[one_wide]),
    ];
    let mut cases = Vec::new();
    for (name, a_dims, b_dims) in shapes {
        for (tokens, in_place, gap, factor) in [
            (1, InPlace::First, 0, 1.0),
            (7, InPlace::Neither, 3, -0.75),
            (33, InPlace::First, 0, 1.0),
            (2, InPlace::Second, 0, 2.5),
        ] {
            // Only an operand of the result's own shape can be written over.
            if in_place == InPlace::Second && !matches!(name, "same" | "three dims") {
                continue;
            }
            both_modes(&mut cases, &format!("{name}{}", in_place.word()), tokens, |b| {
                let left = b.strided(Place::Scratch, StrataDType::F32, a_dims, [gap, 0, 0]);
                b.fill_activations(left, 1.0);
                let right = b.activations(b_dims, 1.0);
                let out = match in_place {
                    InPlace::Neither => b.strided(Place::Scratch, StrataDType::F32, a_dims, [0, gap, 0]),
                    InPlace::First => left,
                    InPlace::Second => right,
                };
                let floats: &[f64] = if kind == StrataOpKind::Add { &[factor] } else { &[] };
                b.op(kind, &[Some(out), Some(left), Some(right)], floats, &[]);
            });
        }
    }
    cases
}

fn scales() -> Vec<Case> {
    let mut cases = Vec::new();
    for (tokens, width, factor, offset, in_place) in
        [(1, 1, 2.0, 0.0, false), (7, 577, 0.0441, -1.5, true), (33, 40, -1.0, 0.0, false), (2, 2560, 1.0, 1.0, true)]
    {
        both_modes(&mut cases, &format!("{factor}x+{offset} H{width}"), tokens, |b| {
            let dims = [Dim::Fixed(width), Dim::Tokens];
            let x = b.activations(&dims, 3.0);
            let out = if in_place { x } else { b.result(&dims) };
            b.op(StrataOpKind::Scale, &[Some(out), Some(x)], &[factor, offset], &[]);
        });
    }
    cases
}

fn unary(b: &mut CaseBuilder, function: StrataUnary, width: u64, in_place: bool) {
    let dims = [Dim::Fixed(width), Dim::Tokens];
    let x = b.tensor(Place::Scratch, StrataDType::F32, &dims);
    // Around 0, far out on both sides where exp over- and underflows, and exactly 0.
    let reach = if function == StrataUnary::Exp { 60.0 } else { 150.0 };
    b.fill(x, |rng| match rng.below(20) {
        0 => 0.0,
        1 => reach * rng.between(-1.0, 1.0),
        2 => 1e-6 * rng.normal(),
        _ => 4.0 * rng.normal(),
    });
    let out = if in_place { x } else { b.result(&dims) };
    let parameter = if function == StrataUnary::Softcap { 30.0 } else { 0.0 };
    b.op(StrataOpKind::Unary, &[Some(out), Some(x)], &[parameter], &[function as i64]);
}

fn unaries() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, function) in UNARIES {
        for (tokens, width, in_place) in [(1, 1, false), (2, 4096, true), (7, 37, false), (33, 100, true)] {
            both_modes(&mut cases, &format!("{name} H{width}"), tokens, |b| unary(b, function, width, in_place));
        }
    }
    cases
}

fn copies(from: StrataDType, to: StrataDType) -> Vec<Case> {
    let mut cases = Vec::new();
    for (tokens, width, heads, gaps) in
        [(1, 1, 1, [0; 3]), (2, 576, 1, [0; 3]), (7, 33, 3, [3, 5, 0]), (33, 64, 2, [0, 7, 0])]
    {
        both_modes(&mut cases, &format!("D{width} heads {heads}"), tokens, |b| {
            let dims = [Dim::Fixed(width), Dim::Fixed(heads), Dim::Tokens];
            let x = b.strided(Place::Scratch, from, &dims, gaps);
            b.fill(x, |rng| match rng.below(8) {
                // Half way between two values of the smaller formats, subnormals, both zeros.
                0 => (1.0 + rng.below(4096) as f64 / 4096.0) * f64::powi(2.0, rng.below(12) as i32 - 6),
                1 => rng.normal() * f64::powi(2.0, -22),
                2 => 0.0,
                3 => -0.0,
                _ => rng.normal() * 10.0,
            });
            let out = b.strided(Place::Scratch, to, &dims, [gaps[1], gaps[0], 0]);
            b.op(StrataOpKind::Copy, &[Some(out), Some(x)], &[], &[]);
        });
    }
    cases
}
