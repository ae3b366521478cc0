//! IQ formats: blocks of 256 elements; eight (or four) elements are one point of a fixed lattice,
//! with signs beside it.

use super::{f16_at, nibble_at, u16_at, u32_at};
use strata_backend_abi::codebook::{
    IQ1S_GRID, IQ2S_GRID, IQ2XS_GRID, IQ2XXS_GRID, IQ3S_GRID, IQ3XXS_GRID, IQ4NL_VALUES, KSIGNS,
};

/// Eight elements: scale · magnitude · sign, a set bit of `signs` being minus.
fn signed(out: &mut [f32], scale: f32, magnitudes: [u8; 8], signs: u8) {
    for (i, (out, magnitude)) in out.iter_mut().zip(magnitudes).enumerate() {
        let sign = if (signs >> i) & 1 == 0 { 1.0 } else { -1.0 };
        *out = scale * f32::from(magnitude) * sign;
    }
}

/// Two points of four elements as eight.
fn pair(first: u32, second: u32) -> [u8; 8] {
    (u64::from(first) | (u64::from(second) << 32)).to_le_bytes()
}

/// The 7-bit sign index `k` of 4 in a word, as eight signs.
fn sign_field(word: u32, k: usize) -> u8 {
    KSIGNS[(word >> (7 * k)) as usize & 127]
}

/// d, then for each 32 elements four bytes of grid indices and a word: four sign indices, a scale.
pub(super) fn iq2_xxs(block: &[u8; 66], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let at = 2 + 8 * group;
        let word = u32_at(block, at + 4);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.25;
        for (k, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let point = IQ2XXS_GRID[usize::from(block[at + k])];
            signed(out, scale, point.to_le_bytes(), sign_field(word, k));
        }
    }
}

/// d, 32 words of 9 bits grid index and 7 bits sign index, 16 scales of 4 bits.
pub(super) fn iq2_xs(block: &[u8; 74], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = d * (0.5 + f32::from(nibble_at(&block[66..], i / 2))) * 0.25;
        let word = u16_at(block, 2 + 2 * i);
        let point = IQ2XS_GRID[usize::from(word & 511)];
        signed(out, scale, point.to_le_bytes(), KSIGNS[usize::from(word >> 9)]);
    }
}

/// d, 32 low bytes of grid indices, 32 bytes of signs, 8 bytes with their two high bits, 16 scales
/// of 4 bits.
pub(super) fn iq2_s(block: &[u8; 82], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    let (low, signs, high, scales) = (&block[2..34], &block[34..66], &block[66..74], &block[74..]);
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = d * (0.5 + f32::from(nibble_at(scales, i / 2))) * 0.25;
        let top = usize::from((high[i / 4] >> (2 * (i % 4))) & 3);
        let point = IQ2S_GRID[usize::from(low[i]) | (top << 8)];
        signed(out, scale, point.to_le_bytes(), signs[i]);
    }
}

/// d, 64 grid indices (four elements each), 8 words of four sign indices and a scale.
pub(super) fn iq3_xxs(block: &[u8; 98], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let word = u32_at(block, 66 + 4 * group);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
        for (k, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let at = 2 + 8 * group + 2 * k;
            let point = |at: usize| IQ3XXS_GRID[usize::from(block[at])];
            signed(out, scale, pair(point(at), point(at + 1)), sign_field(word, k));
        }
    }
}

/// d, 64 low bytes of grid indices, 8 bytes with their ninth bits, 32 bytes of signs, 8 scales of
/// 4 bits.
pub(super) fn iq3_s(block: &[u8; 110], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    let (low, high, signs, scales) = (&block[2..66], &block[66..74], &block[74..106], &block[106..]);
    let point = |i: usize| IQ3S_GRID[usize::from(low[i]) | (usize::from((high[i / 8] >> (i % 8)) & 1) << 8)];
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let scale = d * f32::from(1 + 2 * nibble_at(scales, i / 4));
        signed(out, scale, pair(point(2 * i), point(2 * i + 1)), signs[i]);
    }
}

/// Eight elements of -1, 0, 1, shifted by an eighth up or down: scale · (value ± 0.125).
fn shifted(out: &mut [f32], scale: f32, point: u64, down: bool) {
    let delta = if down { -0.125 } else { 0.125 };
    for (out, value) in out.iter_mut().zip(point.to_le_bytes()) {
        *out = scale * (f32::from(value.cast_signed()) + delta);
    }
}

/// d, 32 low bytes of grid indices, 8 words: four times three high bits, a scale, the shift's sign.
pub(super) fn iq1_s(block: &[u8; 50], out: &mut [f32; 256]) {
    let d = f16_at(block, 0);
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let word = u16_at(block, 34 + 2 * (i / 4));
        let scale = d * f32::from(2 * ((word >> 12) & 7) + 1);
        let top = usize::from((word >> (3 * (i % 4))) & 7);
        shifted(out, scale, IQ1S_GRID[usize::from(block[2 + i]) | (top << 8)], word & 0x8000 != 0);
    }
}

/// 32 low bytes of grid indices, 32 halves of bytes (three high bits and the shift's sign), four
/// words: each four scales of three bits and four bits of d, lowest first.
pub(super) fn iq1_m(block: &[u8; 56], out: &mut [f32; 256]) {
    let words: [u16; 4] = std::array::from_fn(|i| u16_at(block, 48 + 2 * i));
    let bits = words.iter().rev().fold(0_u16, |bits, word| (bits << 4) | (word >> 12));
    let d = half::f16::from_bits(bits).to_f32();
    for (i, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let group = i / 2;
        let scale = d * f32::from(2 * ((words[group / 4] >> (3 * (group % 4))) & 7) + 1);
        let high = nibble_at(&block[32..48], i);
        let point = IQ1S_GRID[usize::from(block[i]) | (usize::from(high & 7) << 8)];
        shifted(out, scale, point, high & 8 != 0);
    }
}

/// d, 8 scales of 6 bits (top two bits in a word, low four in 4 bytes), 128 bytes of indices into
/// IQ4_NL's value list: halves of byte l of a group are its elements l and l + 16.
pub(super) fn iq4_xs(block: &[u8; 136], out: &mut [f32; 256]) {
    let (d, tops) = (f16_at(block, 0), u16_at(block, 2));
    for (group, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let top = ((tops >> (2 * group)) & 3) as u8;
        let scale = d * f32::from((nibble_at(&block[4..8], group) | (top << 4)) as i8 - 32);
        for (l, byte) in block[8 + 16 * group..][..16].iter().enumerate() {
            out[l] = scale * f32::from(IQ4NL_VALUES[usize::from(byte & 15)]);
            out[l + 16] = scale * f32::from(IQ4NL_VALUES[usize::from(byte >> 4)]);
        }
    }
}
