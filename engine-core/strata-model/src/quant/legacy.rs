//! Formats with blocks of 32 elements. The 4-bit halves of byte i are elements i and i + 16.

use super::{f16_at, u32_at};
use strata_backend_abi::codebook::{IQ4NL_VALUES, MXFP4_VALUES, e8m0_half};

/// Gives `value` of both halves of 16 bytes, with the element's index.
fn halves(quants: &[u8], out: &mut [f32; 32], value: impl Fn(usize, u8) -> f32) {
    for (i, byte) in quants.iter().enumerate() {
        out[i] = value(i, byte & 15);
        out[i + 16] = value(i + 16, byte >> 4);
    }
}

/// d, 16 bytes: d·(q − 8).
pub(super) fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    halves(&block[2..], out, |_, q| d * f32::from(q as i8 - 8));
}

/// d, m, 16 bytes: d·q + m.
pub(super) fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    halves(&block[4..], out, |_, q| d * f32::from(q) + m);
}

/// d, fifth bits of all elements, 16 bytes: d·(q − 16).
pub(super) fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let (d, high) = (f16_at(block, 0), u32_at(block, 2));
    halves(&block[6..], out, |i, q| d * f32::from(with_fifth_bit(q, high, i) as i8 - 16));
}

/// d, m, fifth bits of all elements, 16 bytes: d·q + m.
pub(super) fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m, high) = (f16_at(block, 0), f16_at(block, 2), u32_at(block, 4));
    halves(&block[8..], out, |i, q| d * f32::from(with_fifth_bit(q, high, i)) + m);
}

fn with_fifth_bit(low: u8, high: u32, i: usize) -> u8 {
    low | (((high >> i) & 1) << 4) as u8
}

/// d, 32 signed bytes: d·q.
pub(super) fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    for (out, q) in out.iter_mut().zip(&block[2..]) {
        *out = d * f32::from(q.cast_signed());
    }
}

/// d, 16 bytes of indices into a value list.
pub(super) fn iq4_nl(block: &[u8; 18], out: &mut [f32; 32]) {
    let d = f16_at(block, 0);
    halves(&block[2..], out, |_, q| d * f32::from(IQ4NL_VALUES[usize::from(q)]));
}

/// A power of two as scale, 16 bytes of 4-bit floats.
pub(super) fn mxfp4(block: &[u8; 17], out: &mut [f32; 32]) {
    let d = e8m0_half(block[0]);
    halves(&block[1..], out, |_, q| d * f32::from(MXFP4_VALUES[usize::from(q)]));
}
