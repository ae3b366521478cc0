//! The block formats, read the plain way: any 32 weights of a row as whole numbers with scales.
//!
//! This is the reference that the vector code is tested against, the fallback for what has no
//! vector code, and what embedding lookup and precise programs dequantise with. The layouts are
//! GGUF's. Products of a half-precision scale with a sub-block's small whole scale fit a float's
//! 24 bits, so `scale` and `min` below are exact. The lattice formats (IQ1, IQ2, IQ3) are in
//! `format_iq.rs`.

use super::format_iq;
use crate::simd::{BLOCK, WeightBlock};
use half::f16;
use strata_backend_abi::StrataDType;
use strata_backend_abi::codebook::{IQ4NL_VALUES, MXFP4_VALUES, e8m0_half};

/// What a format subtracts or adds beside its scaled values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Minimum {
    /// Nothing.
    None,
    /// One value per 32 weights.
    Block,
    /// A whole number per 16 weights times a scale.
    Half,
}

/// Facts of a block format that decide how its sums are formed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) minimum: Minimum,
    /// Two whole scales per 32 weights.
    pub(crate) sub_scales: bool,
    /// Added to values to make them unsigned.
    pub(crate) offset: u8,
}

impl Shape {
    /// `None` for F32, F16, BF16 and I32, which have no blocks.
    pub(crate) fn of(dtype: StrataDType) -> Option<Shape> {
        let (minimum, sub_scales, offset) = match dtype {
            StrataDType::F32 | StrataDType::F16 | StrataDType::BF16 | StrataDType::I32 => return None,
            StrataDType::Q4_0 => (Minimum::None, false, 8),
            StrataDType::Q5_0 => (Minimum::None, false, 16),
            StrataDType::Q4_1 | StrataDType::Q5_1 | StrataDType::Q4K | StrataDType::Q5K => (Minimum::Block, false, 0),
            StrataDType::Q8_0 | StrataDType::IQ4NL | StrataDType::IQ4XS => (Minimum::None, false, 128),
            StrataDType::Q2K => (Minimum::Half, true, 0),
            StrataDType::Q3K => (Minimum::None, true, 4),
            StrataDType::Q6K => (Minimum::None, true, 32),
            StrataDType::IQ2XXS => (Minimum::None, false, 43),
            StrataDType::IQ2XS | StrataDType::IQ2S => (Minimum::None, true, 43),
            StrataDType::IQ3XXS => (Minimum::None, false, 62),
            StrataDType::IQ3S => (Minimum::None, false, 15),
            StrataDType::IQ1S => (Minimum::None, false, 9),
            StrataDType::IQ1M => (Minimum::None, true, 9),
            StrataDType::MXFP4 => (Minimum::None, false, 12),
        };
        Some(Shape { minimum, sub_scales, offset })
    }
}

/// `N` bytes of a block at `offset`; offsets are constants of the format.
pub(crate) fn field<const N: usize>(block: &[u8], offset: usize) -> &[u8; N] {
    block[offset..].first_chunk().expect("fields lie inside their block")
}

/// The half-precision number at `offset`.
pub(crate) fn half_at(block: &[u8], offset: usize) -> f32 {
    f16::from_le_bytes(*field(block, offset)).to_f32()
}

/// A block of `values` with one scale.
pub(super) fn plain(values: [i8; BLOCK], scale: f32) -> WeightBlock {
    WeightBlock { values, scale, min: 0.0, sub: [1; 2], sub_min: [1; 2], reserved: [0; 4] }
}

/// Weights `32·index..` of a row in a block format.
pub(crate) fn unpack(dtype: StrataDType, row: &[u8], index: usize) -> WeightBlock {
    let (at, sub_block) = match dtype.block_len() {
        BLOCK => (index, 0),
        _ => (index / 8, index % 8),
    };
    let block = &row[at * dtype.block_bytes()..][..dtype.block_bytes()];
    match dtype {
        StrataDType::Q4_0 => plain(nibbles(field(block, 2)).map(|q| q - 8), half_at(block, 0)),
        StrataDType::Q4_1 => {
            WeightBlock { min: half_at(block, 2), ..plain(nibbles(field(block, 4)), half_at(block, 0)) }
        }
        StrataDType::Q5_0 => plain(fives(*field(block, 2), field(block, 6)).map(|q| q - 16), half_at(block, 0)),
        StrataDType::Q5_1 => {
            let values = fives(*field(block, 4), field(block, 8));
            WeightBlock { min: half_at(block, 2), ..plain(values, half_at(block, 0)) }
        }
        StrataDType::Q8_0 => plain(field::<32>(block, 2).map(u8::cast_signed), half_at(block, 0)),
        StrataDType::IQ4NL => plain(nibbles(field(block, 2)).map(iq4nl), half_at(block, 0)),
        StrataDType::MXFP4 => {
            let values = nibbles(field(block, 1)).map(|code| MXFP4_VALUES[usize::from(code.cast_unsigned())]);
            plain(values, e8m0_half(block[0]))
        }
        StrataDType::Q2K => q2_k(block, sub_block),
        StrataDType::Q3K => q3_k(block, sub_block),
        StrataDType::Q4K => {
            let values = nibble_plane(field(block, 16 + 32 * (sub_block / 2)), sub_block % 2);
            with_scale_and_min(block, sub_block, values)
        }
        StrataDType::Q5K => {
            let low = nibble_plane(field(block, 48 + 32 * (sub_block / 2)), sub_block % 2);
            let high = field::<32>(block, 16);
            let values = core::array::from_fn(|i| low[i] | (((high[i] >> sub_block) & 1) << 4).cast_signed());
            with_scale_and_min(block, sub_block, values)
        }
        StrataDType::Q6K => q6_k(block, sub_block),
        StrataDType::IQ4XS => {
            let scale = iq4xs_scale(block, sub_block);
            plain(nibbles(field(block, 8 + 16 * sub_block)).map(iq4nl), half_at(block, 0) * f32::from(scale))
        }
        StrataDType::IQ2XXS => format_iq::iq2_xxs(block, sub_block),
        StrataDType::IQ2XS => format_iq::iq2_xs(block, sub_block),
        StrataDType::IQ2S => format_iq::iq2_s(block, sub_block),
        StrataDType::IQ3XXS => format_iq::iq3_xxs(block, sub_block),
        StrataDType::IQ3S => format_iq::iq3_s(block, sub_block),
        StrataDType::IQ1S => format_iq::iq1_s(block, sub_block),
        StrataDType::IQ1M => format_iq::iq1_m(block, sub_block),
        StrataDType::F32 | StrataDType::F16 | StrataDType::BF16 | StrataDType::I32 => {
            unreachable!("{dtype} has no blocks: Shape::of says so")
        }
    }
}

/// 16 bytes hold 32 numbers of 4 bits: the low halves first, then the high ones.
fn nibbles(bytes: &[u8; 16]) -> [i8; BLOCK] {
    core::array::from_fn(|i| if i < 16 { bytes[i] & 15 } else { bytes[i - 16] >> 4 }.cast_signed())
}

/// The low (0) or high (1) halves of 32 bytes.
fn nibble_plane(bytes: &[u8; 32], plane: usize) -> [i8; BLOCK] {
    bytes.map(|byte| ((byte >> (4 * plane)) & 15).cast_signed())
}

/// 5-bit numbers: `nibbles` with the fifth bits in a little-endian word.
fn fives(high: [u8; 4], low: &[u8; 16]) -> [i8; BLOCK] {
    let high = u32::from_le_bytes(high);
    let low = nibbles(low);
    core::array::from_fn(|i| low[i] | (((high >> i) & 1) << 4) as i8)
}

fn iq4nl(code: i8) -> i8 {
    IQ4NL_VALUES[usize::from(code.cast_unsigned())]
}

/// The 6-bit scale and minimum of a Q4_K or Q5_K sub-block, out of 12 bytes.
pub(crate) fn scale_and_min(packed: &[u8; 12], sub_block: usize) -> (u8, u8) {
    if sub_block < 4 {
        (packed[sub_block] & 63, packed[sub_block + 4] & 63)
    } else {
        let low = packed[sub_block + 4];
        let scale = (low & 15) | ((packed[sub_block - 4] >> 6) << 4);
        let min = (low >> 4) | ((packed[sub_block] >> 6) << 4);
        (scale, min)
    }
}

fn with_scale_and_min(block: &[u8], sub_block: usize, values: [i8; BLOCK]) -> WeightBlock {
    let (scale, min) = scale_and_min(field(block, 4), sub_block);
    WeightBlock { min: -(half_at(block, 2) * f32::from(min)), ..plain(values, half_at(block, 0) * f32::from(scale)) }
}

fn q2_k(block: &[u8], sub_block: usize) -> WeightBlock {
    let bytes = field::<32>(block, 16 + 32 * (sub_block / 4));
    let values = bytes.map(|byte| ((byte >> (2 * (sub_block % 4))) & 3).cast_signed());
    let scales = field::<2>(block, 2 * sub_block);
    WeightBlock {
        min: -half_at(block, 82),
        sub: scales.map(|byte| i16::from(byte & 15)),
        sub_min: scales.map(|byte| i16::from(byte >> 4)),
        ..plain(values, half_at(block, 80))
    }
}

/// The signed 6-bit scale of 16 weights of a Q3_K block, out of 12 bytes.
pub(crate) fn q3_k_scale(packed: &[u8; 12], sixteenth: usize) -> i16 {
    let low = (packed[sixteenth % 8] >> (4 * (sixteenth / 8))) & 15;
    let high = (packed[8 + sixteenth % 4] >> (2 * (sixteenth / 4))) & 3;
    i16::from(low | (high << 4)) - 32
}

fn q3_k(block: &[u8], sub_block: usize) -> WeightBlock {
    let high = field::<32>(block, 0);
    let low = field::<32>(block, 32 + 32 * (sub_block / 4));
    let values = core::array::from_fn(|i| {
        let low = (low[i] >> (2 * (sub_block % 4))) & 3;
        let high = (high[i] >> sub_block) & 1;
        (low | (high << 2)).cast_signed() - 4
    });
    let scales = field(block, 96);
    let sub = [q3_k_scale(scales, 2 * sub_block), q3_k_scale(scales, 2 * sub_block + 1)];
    WeightBlock { sub, ..plain(values, half_at(block, 108)) }
}

fn q6_k(block: &[u8], sub_block: usize) -> WeightBlock {
    let (half, quarter) = (sub_block / 4, sub_block % 4);
    let low = field::<32>(block, 64 * half + 32 * (quarter % 2));
    let high = field::<32>(block, 128 + 32 * half);
    let values = core::array::from_fn(|i| {
        let low = (low[i] >> (4 * (quarter / 2))) & 15;
        let high = (high[i] >> (2 * quarter)) & 3;
        (low | (high << 4)).cast_signed() - 32
    });
    let sub = field::<2>(block, 192 + 2 * sub_block).map(|byte| i16::from(byte.cast_signed()));
    WeightBlock { sub, ..plain(values, half_at(block, 208)) }
}

/// The signed 6-bit scale of an IQ4_XS sub-block.
pub(crate) fn iq4xs_scale(block: &[u8], sub_block: usize) -> i8 {
    let low = (block[4 + sub_block / 2] >> (4 * (sub_block % 2))) & 15;
    let high = (u16::from_le_bytes(*field(block, 2)) >> (2 * sub_block)) & 3;
    (low | ((high as u8) << 4)).cast_signed() - 32
}
