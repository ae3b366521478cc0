//! How far a result may be from the oracle's, per op, mode and format class, and why.
//!
//! The allowed error of an element is
//! `(fixed + growth·√terms) · 2⁻²⁴ · scale  +  the class's rounding bound  +  2⁻¹²⁶`,
//! where `scale` is the sum of the magnitudes that f32 arithmetic rounds on the way (not the
//! result's own size: sums cancel), `terms` how many numbers are added up, and the rounding
//! bounds are computed per element by the oracle from the actual operands. The last term lets a
//! plugin flush subnormals. An element with scale and bounds of 0 must be equal.

use crate::oracle::Element;
use strata_backend_abi::{StrataDType, StrataOpKind};

/// What a mode allows a plugin to round besides f32 arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Nothing: every precise program, and default ones over F32 weights or cache.
    Float,
    /// Activations to the 16-bit format that the weights or the cache are in.
    Half,
    /// Activations to 8 bits per block.
    EightBit,
}

/// The class of an op in a mode. `stored` is the format of the weights, or of the key cache.
pub fn class(kind: StrataOpKind, precise: bool, stored: StrataDType) -> Class {
    // A quantised cache is written with its own rounding in either mode.
    if kind == StrataOpKind::KvStore && stored.is_quantised() {
        return Class::EightBit;
    }
    let products = [StrataOpKind::MatMul, StrataOpKind::ExpertMatMul, StrataOpKind::Attention];
    if precise || !products.contains(&kind) {
        return Class::Float;
    }
    match stored {
        StrataDType::F32 => Class::Float,
        StrataDType::F16 | StrataDType::BF16 => Class::Half,
        _ => Class::EightBit,
    }
}

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    pub kinds: &'static [StrataOpKind],
    /// Units of 2⁻²⁴ that do not depend on the length of a sum.
    pub fixed: f64,
    /// Units of 2⁻²⁴ per square root of the number of terms.
    pub growth: f64,
    pub reason: &'static str,
}

/// The table. Ops of one line share their kind of arithmetic.
pub const TABLE: &[Tolerance] = &[
    Tolerance {
        kinds: &[StrataOpKind::MatMul, StrataOpKind::ExpertMatMul, StrataOpKind::ExpertCombine],
        fixed: 8.0,
        growth: 1.0,
        reason: "n roundings of a running sum add up like a random walk, √n; any order and any number of lanes is \
                 below √n units of Σ|w·x|; scale and minimum of a block round a few times more",
    },
    Tolerance {
        kinds: &[StrataOpKind::Attention],
        fixed: 8.0,
        growth: 0.5,
        reason: "a logit's error (√D units of Σ|q·k|) moves its share and the others back; exp adds a few units; then \
                 a sum over the visible cells, possibly rescaled whenever a greater logit is met",
    },
    Tolerance {
        kinds: &[StrataOpKind::RmsNorm, StrataOpKind::L2Norm],
        fixed: 6.0,
        growth: 0.5,
        reason: "the sum of squares has no cancellation and its error is halved by the root; root, division and two \
                 products are half a unit each",
    },
    Tolerance {
        kinds: &[StrataOpKind::Softmax, StrataOpKind::RouterTopK],
        fixed: 12.0,
        growth: 0.5,
        reason: "a logit's rounding is an absolute error in the exponent (in `scale`); exp within 4 units; a sum of \
                 positive terms",
    },
    Tolerance {
        kinds: &[StrataOpKind::Glu, StrataOpKind::Unary],
        fixed: 16.0,
        growth: 0.0,
        reason: "exp within 4 units, a few products and one division; half-precision look-up tables are not allowed",
    },
    Tolerance {
        kinds: &[StrataOpKind::Rope, StrataOpKind::Add, StrataOpKind::Mul, StrataOpKind::Scale],
        fixed: 3.0,
        growth: 0.0,
        reason: "at most three roundings, fused or not",
    },
    Tolerance {
        kinds: &[StrataOpKind::EmbeddingLookup],
        fixed: 4.0,
        growth: 0.0,
        reason: "decoding a block is a few products and one sum of parts no larger than the block's greatest weight",
    },
    Tolerance {
        kinds: &[StrataOpKind::KvStore, StrataOpKind::Copy, StrataOpKind::GatherRows, StrataOpKind::ArgMax],
        fixed: 0.0,
        growth: 0.0,
        reason: "moving, rounding to nearest even and comparing are exact; a quantised cache is within one step",
    },
];

/// The line of an op.
pub fn of(kind: StrataOpKind) -> &'static Tolerance {
    TABLE.iter().find(|line| line.kinds.contains(&kind)).expect("every op that is not reserved has a line")
}

const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// The greatest error that passes.
pub fn allowed(kind: StrataOpKind, class: Class, terms: usize, element: &Element) -> f64 {
    let line = of(kind);
    let float = (line.fixed + line.growth * (terms as f64).sqrt()) * UNIT * element.scale;
    let rounding = match class {
        Class::Float => 0.0,
        Class::Half => element.half,
        Class::EightBit => element.eight_bit,
    };
    if element.scale == 0.0 && rounding == 0.0 { 0.0 } else { float + rounding + f64::from(f32::MIN_POSITIVE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_has_exactly_one_line() {
        for kind in StrataOpKind::ALL {
            assert_eq!(TABLE.iter().filter(|line| line.kinds.contains(kind)).count(), 1, "{kind:?}");
        }
    }

    #[test]
    fn precise_programs_allow_no_rounding_of_activations() {
        assert_eq!(class(StrataOpKind::MatMul, true, StrataDType::Q4K), Class::Float);
        assert_eq!(class(StrataOpKind::MatMul, false, StrataDType::Q4K), Class::EightBit);
        assert_eq!(class(StrataOpKind::MatMul, false, StrataDType::F32), Class::Float);
        assert_eq!(class(StrataOpKind::Glu, false, StrataDType::F32), Class::Float);
    }
}
