//! Random valid blocks of every weight format: quants are random bytes, scales are sane.
//!
//! It knows where each format keeps its scales and no more than that: what a block means is
//! decoded elsewhere (`strata_model::quant`).

use crate::number::f64_to_f16;
use crate::rng::Rng;
use strata_backend_abi::StrataDType;

/// How blocks are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocks {
    /// Random quants, scales that give weights of about the wanted size, now and then zero.
    Usual,
    /// Quants at the ends of their range (bytes 00, 7F, 80, FF) with one sign of scale: what makes
    /// a saturating multiply-add overflow.
    Extreme,
}

/// Where the f16 scales of a block lie and how large a weight is per unit of each.
struct Scales {
    /// Byte offset and typical magnitude of weight / scale.
    main: (usize, f64),
    /// The same for a second scale that is subtracted or added, if there is one.
    second: Option<(usize, f64)>,
    /// Whether files hold negative main scales.
    signed: bool,
}

fn scales(dtype: StrataDType) -> Option<Scales> {
    let (main, second, signed) = match dtype {
        StrataDType::Q4_0 => ((0, 4.6), None, true),
        StrataDType::Q4_1 => ((0, 8.0), Some((2, 1.0)), false),
        StrataDType::Q5_0 => ((0, 9.2), None, true),
        StrataDType::Q5_1 => ((0, 16.0), Some((2, 1.0)), false),
        StrataDType::Q8_0 => ((0, 74.0), None, false),
        StrataDType::Q2K => ((80, 14.0), Some((82, 8.0)), false),
        StrataDType::Q3K => ((108, 42.0), None, true),
        StrataDType::Q4K => ((0, 280.0), Some((2, 32.0)), false),
        StrataDType::Q5K => ((0, 570.0), Some((2, 32.0)), false),
        StrataDType::Q6K => ((208, 1350.0), None, true),
        StrataDType::IQ2XXS | StrataDType::IQ2XS | StrataDType::IQ2S => ((0, 45.0), None, false),
        StrataDType::IQ3XXS => ((0, 110.0), None, false),
        StrataDType::IQ3S => ((0, 130.0), None, false),
        StrataDType::IQ1S => ((0, 8.0), None, false),
        StrataDType::IQ4NL => ((0, 65.0), None, true),
        StrataDType::IQ4XS => ((0, 1200.0), None, true),
        _ => return None,
    };
    Some(Scales { main, second, signed })
}

/// `n` elements (whole blocks) of a format, with weights of about `size`.
pub(crate) fn random_row(dtype: StrataDType, n: u64, size: f64, kind: Blocks, rng: &mut Rng) -> Vec<u8> {
    let bytes = dtype.row_bytes(n).expect("whole blocks") as usize;
    let mut row = vec![0; bytes];
    for block in row.chunks_exact_mut(dtype.block_bytes()) {
        fill_block(dtype, size, kind, rng, block);
    }
    row
}

fn fill_block(dtype: StrataDType, size: f64, kind: Blocks, rng: &mut Rng, block: &mut [u8]) {
    match dtype {
        StrataDType::F32 | StrataDType::F16 | StrataDType::BF16 | StrataDType::I32 => {
            crate::memory::encode_element(dtype, rng.normal() * size, block);
            return;
        }
        _ => {}
    }
    for byte in block.iter_mut() {
        *byte = match kind {
            Blocks::Usual => rng.byte(),
            Blocks::Extreme => [0x00, 0x7f, 0x80, 0xff][rng.below(4) as usize],
        };
    }
    let zero = kind == Blocks::Usual && rng.chance(0.03);
    let strength = if zero { 0.0 } else { size * rng.between(0.4, 1.6) };
    if dtype == StrataDType::IQ1M {
        put_spread_scale(block, strength / 8.0);
        return;
    }
    if dtype == StrataDType::MXFP4 {
        // The scale is a power of two around `size` / 3 (elements are 0 to 6); 0 is the smallest.
        let exponent = (size / 3.0).log2().round() as i64 + 128 + rng.below(3) as i64 - 1;
        block[0] = if zero { 0 } else { exponent.clamp(1, 254) as u8 };
        return;
    }
    let scales = scales(dtype).expect("every quantised format is listed");
    let sign = if kind == Blocks::Usual && scales.signed && rng.chance(0.5) { -1.0 } else { 1.0 };
    put_f16(block, scales.main.0, sign * strength / scales.main.1);
    if let Some((offset, per_unit)) = scales.second {
        // An added minimum (Q4_1, Q5_1) is mostly negative; a subtracted one mostly positive.
        let added = matches!(dtype, StrataDType::Q4_1 | StrataDType::Q5_1);
        let sign = if rng.chance(0.9) == added { -1.0 } else { 1.0 };
        put_f16(block, offset, sign * size * rng.between(0.2, 1.5) / per_unit);
    }
}

fn put_f16(block: &mut [u8], offset: usize, value: f64) {
    block[offset..offset + 2].copy_from_slice(&f64_to_f16(value).to_le_bytes());
}

/// IQ1_M keeps its f16 scale in the top four bits of each of its last four 16-bit words.
fn put_spread_scale(block: &mut [u8], value: f64) {
    let bits = f64_to_f16(value);
    for word in 0..4 {
        let high = 48 + 2 * word + 1;
        let nibble = ((bits >> (4 * word)) & 0xf) as u8;
        block[high] = (block[high] & 0x0f) | (nibble << 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, View};

    #[test]
    fn blocks_of_every_format_have_the_wanted_size() {
        for dtype in StrataDType::ALL.iter().copied().filter(|dtype| *dtype != StrataDType::I32) {
            let mut rng = Rng::named(dtype.name());
            let n = 256 * 64;
            let memory = Memory { buffers: vec![random_row(dtype, n, 0.5, Blocks::Usual, &mut rng)] };
            let view = View { dtype, buffer: 0, offset: 0, ne: [n, 1, 1, 1], nb: [0; 4] };
            let values = memory.row(&view, [0; 3]);
            assert!(values.iter().all(|value| value.is_finite()), "{dtype}");
            let rms = (values.iter().map(|value| value * value).sum::<f64>() / n as f64).sqrt();
            assert!((0.15..1.6).contains(&rms), "{dtype}: rms {rms}");
            let distinct: std::collections::BTreeSet<u64> = values.iter().map(|value| value.to_bits()).collect();
            assert!(distinct.len() > 30, "{dtype}: {} distinct values", distinct.len());
        }
    }
}
