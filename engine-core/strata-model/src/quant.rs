//! Dequantising: what the bits of a block of each format mean, as float32.
//!
//! Results equal those of the PyPI package gguf bit for bit (products and sums in float32 in the
//! same order, no fused multiply-add), which `tests/quant.rs` checks. Any bytes are a valid block:
//! odd scales give infinities and NaN, never a failure. Scalar and plain; backends have their own
//! kernels and share with this only the constant tables of `strata_backend_abi::codebook`. Called
//! by tests, by conversions when a model is loaded, and by whoever wants to look at weights.

mod iq;
mod k;
mod legacy;

use crate::ModelError;
use strata_backend_abi::StrataDType;

/// Decodes whole blocks: `data` must be exactly the bytes of `out.len()` elements.
///
/// `I32`, which is no weight format, gives each number as the nearest float.
pub fn dequantise_row(dtype: StrataDType, data: &[u8], out: &mut [f32]) -> Result<(), ModelError> {
    if dtype.row_bytes(out.len() as u64) != Some(data.len() as u64) {
        return Err(ModelError::RowSize { dtype, data: data.len(), elements: out.len() });
    }
    match dtype {
        StrataDType::F32 => each(data, out, |block, [out]| *out = f32::from_le_bytes(*block)),
        StrataDType::I32 => each(data, out, |block, [out]| *out = i32::from_le_bytes(*block) as f32),
        StrataDType::F16 => each(data, out, |block: &[u8; 2], [out]| *out = f16_at(block, 0)),
        StrataDType::BF16 => each(data, out, |block, [out]| {
            *out = f32::from_bits(u32::from(u16::from_le_bytes(*block)) << 16);
        }),
        StrataDType::Q4_0 => each(data, out, legacy::q4_0),
        StrataDType::Q4_1 => each(data, out, legacy::q4_1),
        StrataDType::Q5_0 => each(data, out, legacy::q5_0),
        StrataDType::Q5_1 => each(data, out, legacy::q5_1),
        StrataDType::Q8_0 => each(data, out, legacy::q8_0),
        StrataDType::Q2K => each(data, out, k::q2_k),
        StrataDType::Q3K => each(data, out, k::q3_k),
        StrataDType::Q4K => each(data, out, k::q4_k),
        StrataDType::Q5K => each(data, out, k::q5_k),
        StrataDType::Q6K => each(data, out, k::q6_k),
        StrataDType::IQ1S => each(data, out, iq::iq1_s),
        StrataDType::IQ1M => each(data, out, iq::iq1_m),
        StrataDType::IQ2XXS => each(data, out, iq::iq2_xxs),
        StrataDType::IQ2XS => each(data, out, iq::iq2_xs),
        StrataDType::IQ2S => each(data, out, iq::iq2_s),
        StrataDType::IQ3XXS => each(data, out, iq::iq3_xxs),
        StrataDType::IQ3S => each(data, out, iq::iq3_s),
        StrataDType::IQ4NL => each(data, out, legacy::iq4_nl),
        StrataDType::IQ4XS => each(data, out, iq::iq4_xs),
        StrataDType::MXFP4 => each(data, out, legacy::mxfp4),
    }
    Ok(())
}

/// Block by block. That the sizes of `decode` are those of the format is what the tests show.
fn each<const BYTES: usize, const LEN: usize>(
    data: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    let (blocks, _) = data.as_chunks::<BYTES>();
    let (outs, _) = out.as_chunks_mut::<LEN>();
    debug_assert_eq!(blocks.len(), outs.len(), "block sizes differ from the format's");
    for (block, out) in blocks.iter().zip(outs) {
        decode(block, out);
    }
}

/// The half-precision number at byte `at`.
fn f16_at(block: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// The 4-bit number `index`, low halves of bytes first: of byte `index / 2`.
fn nibble_at(bytes: &[u8], index: usize) -> u8 {
    (bytes[index / 2] >> (4 * (index % 2))) & 15
}
