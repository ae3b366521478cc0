//! Random weights of every format: any bits, with block scales of a sensible size.

use strata_backend_abi::StrataDType;
use strata_model::quant::dequantise_row;

use crate::host::{Rng, Room};

/// Quantised formats: name in kernels' names, alignment that kernels ask for, and where a block's half-precision scales lie.
pub(crate) const FORMATS: [(StrataDType, &str, usize, &[usize]); 20] = [
    (StrataDType::Q4_0, "q4_0", 2, &[0]),
    (StrataDType::Q4_1, "q4_1", 4, &[0, 2]),
    (StrataDType::Q5_0, "q5_0", 2, &[0]),
    (StrataDType::Q5_1, "q5_1", 4, &[0, 2]),
    (StrataDType::Q8_0, "q8_0", 2, &[0]),
    (StrataDType::Q2K, "q2_k", 4, &[80, 82]),
    (StrataDType::Q3K, "q3_k", 2, &[108]),
    (StrataDType::Q4K, "q4_k", 16, &[0, 2]),
    (StrataDType::Q5K, "q5_k", 16, &[0, 2]),
    (StrataDType::Q6K, "q6_k", 2, &[208]),
    (StrataDType::IQ2XXS, "iq2_xxs", 2, &[0]),
    (StrataDType::IQ2XS, "iq2_xs", 2, &[0]),
    (StrataDType::IQ3XXS, "iq3_xxs", 2, &[0]),
    (StrataDType::IQ1S, "iq1_s", 2, &[0]),
    (StrataDType::IQ4NL, "iq4_nl", 2, &[0]),
    (StrataDType::IQ3S, "iq3_s", 2, &[0]),
    (StrataDType::IQ2S, "iq2_s", 2, &[0]),
    (StrataDType::IQ4XS, "iq4_xs", 4, &[0]),
    (StrataDType::IQ1M, "iq1_m", 4, &[]),
    (StrataDType::MXFP4, "mxfp4", 1, &[]),
];

/// Plain ones.
pub(crate) const PLAIN: [(StrataDType, &str); 3] =
    [(StrataDType::F32, "f32"), (StrataDType::F16, "f16"), (StrataDType::BF16, "bf16")];

/// Rows of weights as a kernel sees them, and as numbers.
pub(crate) struct Weights {
    pub(crate) room: Room,
    pub(crate) stride: usize,
    pub(crate) rows: Vec<Vec<f32>>,
}

impl Weights {
    /// `gap`: bytes between rows; `shift`: the address modulo 16.
    pub(crate) fn random(dtype: StrataDType, m: usize, k: usize, gap: usize, shift: usize, rng: &mut Rng) -> Weights {
        let row_bytes = dtype.row_bytes(k as u64).expect("whole blocks") as usize;
        let stride = row_bytes + gap;
        let mut room = Room::new(stride * m - gap, shift);
        let mut rows = Vec::new();
        for row in 0..m {
            let bytes = random_row(dtype, k, rng);
            let mut numbers = vec![0.0; k];
            dequantise_row(dtype, &bytes, &mut numbers).expect("whole blocks");
            room.bytes_mut()[row * stride..row * stride + row_bytes].copy_from_slice(&bytes);
            rows.push(numbers);
        }
        Weights { room, stride, rows }
    }
}

fn half(value: f32) -> [u8; 2] {
    half::f16::from_f32(value).to_le_bytes()
}

fn random_row(dtype: StrataDType, k: usize, rng: &mut Rng) -> Vec<u8> {
    match dtype {
        StrataDType::F32 => return (0..k).flat_map(|_| rng.unit().to_le_bytes()).collect(),
        StrataDType::F16 => return (0..k).flat_map(|_| half(rng.unit())).collect(),
        StrataDType::BF16 => return (0..k).flat_map(|_| half::bf16::from_f32(rng.unit()).to_le_bytes()).collect(),
        _ => {}
    }
    let block_bytes = dtype.block_bytes();
    let mut bytes: Vec<u8> = (0..dtype.row_bytes(k as u64).expect("whole blocks")).map(|_| rng.next() as u8).collect();
    let scales = FORMATS.iter().find(|(format, ..)| *format == dtype).map_or(&[][..], |(_, _, _, scales)| *scales);
    for block in bytes.chunks_exact_mut(block_bytes) {
        for at in scales {
            block[*at..at + 2].copy_from_slice(&half((rng.unit() + 1.1) * 0.02));
        }
        match dtype {
            StrataDType::MXFP4 => block[0] = 118 + rng.below(8) as u8,
            StrataDType::IQ1M => {
                // The scale is the top halves of the last four words.
                let scale = u16::from_le_bytes(half((rng.unit() + 1.1) * 0.02));
                for word in 0..4 {
                    let high = &mut block[48 + 2 * word + 1];
                    *high = *high & 0x0f | ((scale >> (4 * word) & 15) << 4) as u8;
                }
            }
            _ => {}
        }
    }
    bytes
}
