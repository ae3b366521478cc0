//! Whole rows to floats: embedding lookup, and the weights of precise programs.

use super::{Minimum, Shape, unpack};
use crate::simd::BLOCK;
use half::{bf16, f16};
use strata_backend_abi::StrataDType;

/// Writes a row as floats, each value rounded as the formats define it (scale times value, then
/// the minimum added). `row` holds exactly `out.len()` weights in a format other than I32.
pub(crate) fn dequantise_row(dtype: StrataDType, row: &[u8], out: &mut [f32]) {
    assert_eq!(dtype.row_bytes(out.len() as u64), Some(row.len() as u64), "a row's bytes fit its length");
    if let Some(shape) = Shape::of(dtype) {
        for (index, out) in out.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            dequantise_block(shape, dtype, row, index, out);
        }
        return;
    }
    match dtype {
        StrataDType::F32 => {
            for (out, bytes) in out.iter_mut().zip(row.as_chunks().0) {
                *out = f32::from_le_bytes(*bytes);
            }
        }
        StrataDType::F16 => {
            for (out, bytes) in out.iter_mut().zip(row.as_chunks().0) {
                *out = f16::from_le_bytes(*bytes).to_f32();
            }
        }
        StrataDType::BF16 => {
            for (out, bytes) in out.iter_mut().zip(row.as_chunks().0) {
                *out = bf16::from_le_bytes(*bytes).to_f32();
            }
        }
        other => unreachable!("{other} rows hold no weights: the host validates formats"),
    }
}

fn dequantise_block(shape: Shape, dtype: StrataDType, row: &[u8], index: usize, out: &mut [f32; BLOCK]) {
    let block = unpack(dtype, row, index);
    for half in 0..2 {
        let range = 16 * half..16 * (half + 1);
        let scale = block.scale * f32::from(block.sub[half]);
        let min = block.min * f32::from(block.sub_min[half]);
        for (out, value) in out[range.clone()].iter_mut().zip(&block.values[range]) {
            let scaled = scale * f32::from(*value);
            *out = if shape.minimum == Minimum::None { scaled } else { scaled + min };
        }
    }
}
