//! Activations at 8 bits, the scalar way.
//!
//! A block is 32 elements with one float `unit`; each half of 16 has a whole multiplier of 1 to 64
//! on top, so that one large element costs precision in its own 16 and not in its neighbours' (on
//! Gaussian data that takes about a quarter off the variance of the error). Multipliers are whole
//! numbers because they then enter the integer sums and cost the float part nothing.

use crate::simd::{ActivationBlock, BLOCK};

/// Greatest multiplier of a half. With it every sum of 32 products stays below 2³¹.
const MULTIPLIER_MAX: f32 = 64.0;
/// Blocks whose greatest magnitude is below this count as zero: their reciprocal would overflow.
const TINY: f32 = 1e-30;

/// Unit and multipliers for the greatest magnitudes of a block's halves; no multipliers when every
/// `q` is zero. An infinity or NaN makes the unit a NaN: it must not vanish.
#[inline]
pub(crate) fn half_scales(greatest: [f32; 2]) -> (f32, Option<[f32; 2]>) {
    // Compared as integers, so that a NaN counts as greater than an infinity.
    let most = f32::from_bits(greatest[0].to_bits().max(greatest[1].to_bits()));
    if !most.is_finite() {
        return (f32::NAN, None);
    }
    if most < TINY {
        return (0.0, None);
    }
    let unit = most / (MULTIPLIER_MAX * 127.0);
    let multiplier = |greatest: f32| (greatest / most * MULTIPLIER_MAX).ceil().clamp(1.0, MULTIPLIER_MAX);
    (unit, Some([multiplier(greatest[0]), multiplier(greatest[1])]))
}

/// Quantises one block.
pub(crate) fn quantise_block(x: &[f32; BLOCK]) -> ActivationBlock {
    let magnitude = |half: usize| {
        let bits = x[16 * half..][..16].iter().fold(0, |most, value| most.max(value.to_bits() & 0x7fff_ffff));
        f32::from_bits(bits)
    };
    let (unit, multipliers) = half_scales([magnitude(0), magnitude(1)]);
    let Some(multipliers) = multipliers else {
        return ActivationBlock { unit, sum: unit, multiplier: [[1; 2]; 2], ..ActivationBlock::default() };
    };
    let mut block = ActivationBlock { unit, ..ActivationBlock::default() };
    let halves = x.as_chunks::<16>().0.iter().zip(block.q.as_chunks_mut::<16>().0);
    for (half, ((x, q), multiplier)) in halves.zip(multipliers).enumerate() {
        let inverse = 1.0 / (multiplier * unit);
        let mut sum = 0_i32;
        for (x, q) in x.iter().zip(q) {
            *q = (x * inverse).round_ties_even() as i8;
            sum += i32::from(*q);
        }
        block.multiplier[half] = [multiplier as i16; 2];
        block.weighted[half] = multiplier as i32 * sum;
    }
    block.whole = block.weighted[0] + block.weighted[1];
    block.sum = block.whole as f32 * unit;
    block
}
