//! The lattice formats IQ1, IQ2 and IQ3: indices into tables of points, signs and scales.
//!
//! Their factors of ½, ¼ and ⅛ are moved into the float scale, which a power of two leaves exact,
//! so that values and sub-scales are whole numbers as everywhere else. IQ1's points of -1, 0, 1
//! shifted by ±⅛ become eight times as large: 8·point ± 1.

use super::format::{field, half_at, plain};
use crate::simd::{BLOCK, WeightBlock};
use strata_backend_abi::codebook::{IQ1S_GRID, IQ2S_GRID, IQ2XS_GRID, IQ2XXS_GRID, IQ3S_GRID, IQ3XXS_GRID, KSIGNS};

/// Four points of 8 magnitudes with their sign bits.
fn eights(points: [u64; 4], signs: [u8; 4]) -> [i8; BLOCK] {
    core::array::from_fn(|i| signed(points[i / 8].to_le_bytes()[i % 8], signs[i / 8], i % 8))
}

/// Eight points of 4 magnitudes with sign bits for every 8.
fn fours(points: [u32; 8], signs: [u8; 4]) -> [i8; BLOCK] {
    core::array::from_fn(|i| signed(points[i / 4].to_le_bytes()[i % 4], signs[i / 8], i % 8))
}

fn signed(magnitude: u8, signs: u8, bit: usize) -> i8 {
    let value = magnitude.cast_signed();
    if (signs >> bit) & 1 == 1 { -value } else { value }
}

/// The four 7-bit sign indices in the low 28 bits of a word, looked up.
pub(crate) fn sign_bytes(word: u32) -> [u8; 4] {
    core::array::from_fn(|i| KSIGNS[((word >> (7 * i)) & 127) as usize])
}

pub(super) fn iq2_xxs(block: &[u8], sub_block: usize) -> WeightBlock {
    let indices = field::<4>(block, 2 + 8 * sub_block);
    let word = u32::from_le_bytes(*field(block, 6 + 8 * sub_block));
    let values = eights(indices.map(|index| IQ2XXS_GRID[usize::from(index)]), sign_bytes(word));
    plain(values, half_at(block, 0) * ((2 * (word >> 28) + 1) as f32 * 0.125))
}

pub(super) fn iq2_xs(block: &[u8], sub_block: usize) -> WeightBlock {
    let codes: [u16; 4] = core::array::from_fn(|i| u16::from_le_bytes(*field(block, 2 + 8 * sub_block + 2 * i)));
    let points = codes.map(|code| IQ2XS_GRID[usize::from(code & 511)]);
    let values = eights(points, codes.map(|code| KSIGNS[usize::from(code >> 9)]));
    let sub = odd_nibbles(block[66 + sub_block]);
    WeightBlock { sub, ..plain(values, half_at(block, 0) * 0.125) }
}

pub(super) fn iq2_s(block: &[u8], sub_block: usize) -> WeightBlock {
    let low = field::<4>(block, 2 + 4 * sub_block);
    let signs = field::<4>(block, 34 + 4 * sub_block);
    let high = usize::from(block[66 + sub_block]);
    let points = core::array::from_fn(|i| IQ2S_GRID[usize::from(low[i]) | (((high >> (2 * i)) & 3) << 8)]);
    let sub = odd_nibbles(block[74 + sub_block]);
    WeightBlock { sub, ..plain(eights(points, *signs), half_at(block, 0) * 0.125) }
}

/// 2·n + 1 of the low and the high half of a byte.
fn odd_nibbles(byte: u8) -> [i16; 2] {
    [i16::from(byte & 15) * 2 + 1, i16::from(byte >> 4) * 2 + 1]
}

pub(super) fn iq3_xxs(block: &[u8], sub_block: usize) -> WeightBlock {
    let indices = field::<8>(block, 2 + 8 * sub_block);
    let word = u32::from_le_bytes(*field(block, 66 + 4 * sub_block));
    let values = fours(indices.map(|index| IQ3XXS_GRID[usize::from(index)]), sign_bytes(word));
    plain(values, half_at(block, 0) * ((2 * (word >> 28) + 1) as f32 * 0.25))
}

pub(super) fn iq3_s(block: &[u8], sub_block: usize) -> WeightBlock {
    let low = field::<8>(block, 2 + 8 * sub_block);
    let high = usize::from(block[66 + sub_block]);
    let signs = field::<4>(block, 74 + 4 * sub_block);
    let points = core::array::from_fn(|i| IQ3S_GRID[usize::from(low[i]) | (((high >> i) & 1) << 8)]);
    let scale = (block[106 + sub_block / 2] >> (4 * (sub_block % 2))) & 15;
    plain(fours(points, *signs), half_at(block, 0) * f32::from(2 * scale + 1))
}

/// Points of -1, 0, 1 as 8·point + shift, one shift of ±1 per 8 weights.
fn shifted(points: [u64; 4], shifts: [i8; 4]) -> [i8; BLOCK] {
    core::array::from_fn(|i| 8 * points[i / 8].to_le_bytes()[i % 8].cast_signed() + shifts[i / 8])
}

pub(super) fn iq1_s(block: &[u8], sub_block: usize) -> WeightBlock {
    let low = field::<4>(block, 2 + 4 * sub_block);
    let high = usize::from(u16::from_le_bytes(*field(block, 34 + 2 * sub_block)));
    let points = core::array::from_fn(|i| IQ1S_GRID[usize::from(low[i]) | (((high >> (3 * i)) & 7) << 8)]);
    let shift = if high & 0x8000 == 0 { 1 } else { -1 };
    let scale = 2 * ((high >> 12) & 7) + 1;
    plain(shifted(points, [shift; 4]), half_at(block, 0) * (scale as f32 * 0.125))
}

/// IQ1_M's half-precision scale, spread over the top bits of its four words of scales.
pub(crate) fn iq1_m_scale(block: &[u8]) -> f32 {
    let bits = (0..4).fold(0, |bits, i| bits | (iq1_m_scales(block, i) >> 12) << (4 * i));
    half::f16::from_bits(bits).to_f32()
}

/// The word that holds the four 3-bit scales of weights `64·index..`.
pub(crate) fn iq1_m_scales(block: &[u8], index: usize) -> u16 {
    u16::from_le_bytes(*field(block, 48 + 2 * index))
}

pub(super) fn iq1_m(block: &[u8], sub_block: usize) -> WeightBlock {
    let low = field::<4>(block, 4 * sub_block);
    // Four bits per 8 weights: three of the index, one for the shift's sign.
    let high: [usize; 4] =
        core::array::from_fn(|i| usize::from(block[32 + 2 * sub_block + i / 2] >> (4 * (i % 2))) & 15);
    let points = core::array::from_fn(|i| IQ1S_GRID[usize::from(low[i]) | ((high[i] & 7) << 8)]);
    let shifts = high.map(|bits| if bits & 8 == 0 { 1 } else { -1 });
    let scales = iq1_m_scales(block, sub_block / 2) >> (6 * (sub_block % 2));
    let sub = [(2 * (scales & 7) + 1).cast_signed(), (2 * ((scales >> 3) & 7) + 1).cast_signed()];
    WeightBlock { sub, ..plain(shifted(points, shifts), iq1_m_scale(block) * 0.125) }
}
