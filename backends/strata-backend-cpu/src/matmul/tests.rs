//! Vector code against the scalar reference, bit for bit; independence of a result from batch,
//! range and list; the formats' numbers against the PyPI package gguf.

use super::*;
use proptest::prelude::*;

/// A generator that is the same everywhere, so that the checksums below can be made elsewhere too.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    /// About normal, with a heavy tail as activations have.
    fn activation(&mut self) -> f32 {
        let sum: f32 = (0..6).map(|_| self.next() as f32 / 2_f32.powi(31)).sum();
        let wide = if self.next().is_multiple_of(61) { 20.0 } else { 1.0 };
        (sum - 3.0) * wide
    }
}

/// Where a format's half-precision numbers are.
fn half_offsets(dtype: StrataDType) -> &'static [usize] {
    use StrataDType as D;
    match dtype {
        D::Q4_1 | D::Q5_1 | D::Q4K | D::Q5K => &[0, 2],
        D::Q2K => &[80, 82],
        D::Q3K => &[108],
        D::Q6K => &[208],
        D::IQ1M | D::MXFP4 | D::F32 | D::F16 | D::BF16 | D::I32 => &[],
        _ => &[0],
    }
}

/// Random rows whose scales are finite and of ordinary size, everything else any bits.
fn random_weights(dtype: StrataDType, k: usize, n_rows: usize, random: &mut Random) -> Vec<u8> {
    let bytes = dtype.row_bytes((k * n_rows) as u64).unwrap() as usize;
    let mut weights: Vec<u8> = (0..bytes).map(|_| random.next() as u8).collect();
    let block_bytes = dtype.block_bytes();
    for block in weights.chunks_exact_mut(block_bytes) {
        let scale = |random: &mut Random| {
            let sign = if random.next().is_multiple_of(4) { -1.0 } else { 1.0 };
            f16::from_f32(sign * (0.001 + random.next() as f32 / 2_f32.powi(31) * 0.02))
        };
        for offset in half_offsets(dtype) {
            block[*offset..][..2].copy_from_slice(&scale(random).to_le_bytes());
        }
        match dtype {
            StrataDType::F32 => block.copy_from_slice(&random.activation().to_le_bytes()),
            StrataDType::F16 => block.copy_from_slice(&f16::from_f32(random.activation()).to_le_bytes()),
            StrataDType::BF16 => block.copy_from_slice(&half::bf16::from_f32(random.activation()).to_le_bytes()),
            StrataDType::MXFP4 => block[0] = 115 + block[0] % 12,
            StrataDType::IQ1M => {
                let bits = scale(random).to_bits();
                for i in 0..4 {
                    let high = &mut block[49 + 2 * i];
                    *high = (*high & 15) | (((bits >> (4 * i)) & 15) as u8) << 4;
                }
            }
            _ => {}
        }
    }
    weights
}

fn weight_formats() -> impl Iterator<Item = StrataDType> {
    StrataDType::ALL.iter().copied().filter(|dtype| *dtype != StrataDType::I32)
}

/// A matmul with everything in it.
struct Case {
    plan: Plan,
    weights: Vec<u8>,
    n_rows: usize,
    x: Vec<f32>,
    bias: Option<Vec<f32>>,
}

impl Case {
    fn new(dtype: StrataDType, precise: bool, k: usize, n_rows: usize, n_columns: usize, seed: u64) -> Case {
        let mut random = Random(seed);
        let plan = Plan::new(dtype, k, precise, Variant::Scalar).unwrap();
        let weights = random_weights(dtype, k, n_rows, &mut random);
        let x = (0..k * n_columns).map(|_| random.activation()).collect();
        let bias = random.next().is_multiple_of(2).then(|| (0..n_rows).map(|_| random.activation()).collect());
        Case { plan, weights, n_rows, x, bias }
    }

    fn prepare(&self, plan: &Plan) -> Vec<Line> {
        let lines = plan.lines_per_row();
        let mut prepared = vec![Line::default(); self.x.len() / plan.k * lines];
        for (x, out) in self.x.chunks_exact(plan.k).zip(prepared.chunks_exact_mut(lines)) {
            plan.prepare_f32(x, out);
        }
        prepared
    }

    /// The whole result in the given parts.
    fn run(&self, variant: Variant, parts: &[Range<usize>], columns: Columns<'_>) -> Vec<f32> {
        let plan = Plan { variant, ..self.plan.clone() };
        let prepared = self.prepare(&plan);
        let mut scratch = vec![Line::default(); plan.scratch_lines()];
        let n_columns = self.x.len() / plan.k;
        let mut out = vec![f32::NAN; self.n_rows * n_columns];
        let job = Job {
            weights: &self.weights,
            row_stride: plan.row_bytes(),
            n_rows: self.n_rows,
            prepared: &prepared,
            bias: self.bias.as_deref(),
            columns,
        };
        let mut part = OutPart::whole(&mut out, self.n_rows);
        for rows in parts {
            plan.run(&job, rows.clone(), &mut scratch, &mut part);
        }
        out
    }

    fn run_whole(&self, variant: Variant) -> Vec<f32> {
        self.run(variant, core::slice::from_ref(&(0..self.n_rows)), Columns::All(self.x.len() / self.plan.k))
    }
}

fn assert_same_bits(what: &str, expected: &[f32], got: &[f32]) {
    assert_eq!(expected.len(), got.len(), "{what}");
    for (index, (expected, got)) in expected.iter().zip(got).enumerate() {
        let same = expected.to_bits() == got.to_bits() || (expected.is_nan() && got.is_nan());
        assert!(same, "{what}: element {index} is {got}, not {expected}");
    }
}

#[test]
fn every_format_and_variant_gives_the_reference_bits() {
    for dtype in weight_formats() {
        for precise in [false, true] {
            for (n_rows, n_columns, k) in [(1, 1, 256), (8, 1, 512), (9, 4, 256), (21, 7, 768), (16, 13, 1024)] {
                let case = Case::new(dtype, precise, k, n_rows, n_columns, (n_rows * 1000 + n_columns) as u64);
                let expected = case.run_whole(Variant::Scalar);
                assert!(expected.iter().all(|value| value.is_finite()));
                for variant in Variant::supported() {
                    let what = format!("{dtype} {n_rows}x{k} times {n_columns}, {}", variant.name());
                    assert_same_bits(&what, &expected, &case.run_whole(variant));
                }
            }
        }
    }
}

#[test]
fn a_column_alone_has_the_bits_it_has_in_a_batch() {
    for dtype in weight_formats() {
        for n_columns in 1..=17 {
            let case = Case::new(dtype, false, 256, 11, n_columns, n_columns as u64);
            for variant in Variant::supported() {
                let batch = case.run_whole(variant);
                for column in 0..n_columns {
                    let x = case.x[256 * column..][..256].to_vec();
                    let alone = Case {
                        plan: case.plan.clone(),
                        weights: case.weights.clone(),
                        bias: case.bias.clone(),
                        x,
                        n_rows: 11,
                    };
                    let what = format!("{dtype} column {column} of {n_columns}, {}", variant.name());
                    assert_same_bits(&what, &batch[11 * column..][..11], &alone.run_whole(variant));
                }
            }
        }
    }
}

#[test]
fn widths_that_are_no_multiple_of_256_or_of_the_lanes() {
    for dtype in weight_formats() {
        let widths: &[usize] = match dtype.block_len() {
            1 => &[1, 7, 8, 9, 15, 16, 17, 33, 100, 577],
            32 => &[32, 64, 96, 224, 288, 576, 640],
            _ => &[256, 1280],
        };
        for &k in widths {
            for precise in [false, true] {
                for n_columns in [1, 2, 3, 5, 6] {
                    let case = Case::new(dtype, precise, k, 10, n_columns, k as u64);
                    let expected = case.run_whole(Variant::Scalar);
                    for variant in Variant::supported() {
                        let what = format!("{dtype} k {k} times {n_columns}, {}", variant.name());
                        assert_same_bits(&what, &expected, &case.run_whole(variant));
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Any split into ranges, any list of columns, any padding between rows.
    #[test]
    fn splits_and_lists_do_not_change_bits(
        format in 0_usize..StrataDType::ALL.len() - 1,
        n_rows in 1_usize..70,
        n_columns in 1_usize..18,
        n_workers in 1_usize..9,
        cut in 0_usize..70,
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..12),
        padding in 0_usize..40,
        seed: u64,
    ) {
        let dtype = weight_formats().nth(format).unwrap();
        let case = Case::new(dtype, false, 256, n_rows, n_columns, seed);
        let expected = case.run_whole(Variant::Scalar);
        for variant in Variant::supported() {
            let workers: Vec<_> = (0..n_workers).map(|worker| Plan::split(n_rows, worker, n_workers)).collect();
            assert_same_bits("workers", &expected, &case.run(variant, &workers, Columns::All(n_columns)));
            let cut = cut.min(n_rows);
            let halves = [cut..n_rows, 0..cut];
            assert_same_bits("any cut", &expected, &case.run(variant, &halves, Columns::All(n_columns)));

            // Each result column made of some prepared row, through a list.
            let list: Vec<(u32, u32)> =
                (0..n_columns as u32).map(|column| (picks[column as usize % picks.len()].index(n_columns) as u32, column)).collect();
            let got = case.run(variant, &workers, Columns::Listed(&list));
            for (row, column) in &list {
                let (row, column) = (*row as usize, *column as usize);
                assert_same_bits("list", &expected[row * n_rows..][..n_rows], &got[column * n_rows..][..n_rows]);
            }

            // Rows with other bytes between them, the last one ending the slice.
            let row_bytes = case.plan.row_bytes();
            let mut spread = vec![0xff; (row_bytes + padding) * (n_rows - 1) + row_bytes];
            for (row, bytes) in case.weights.chunks_exact(row_bytes).enumerate() {
                spread[row * (row_bytes + padding)..][..row_bytes].copy_from_slice(bytes);
            }
            let plan = Plan { variant, ..case.plan.clone() };
            let prepared = case.prepare(&plan);
            let mut scratch = vec![Line::default(); plan.scratch_lines()];
            let mut out = vec![f32::NAN; n_rows * n_columns];
            let job = Job {
                weights: &spread,
                row_stride: row_bytes + padding,
                n_rows,
                prepared: &prepared,
                bias: case.bias.as_deref(),
                columns: Columns::All(n_columns),
            };
            plan.run(&job, 0..n_rows, &mut scratch, &mut OutPart::whole(&mut out, n_rows));
            assert_same_bits("padded rows", &expected, &out);
        }
    }

    /// Any floats at all, also infinities, NaNs and subnormal numbers.
    #[test]
    fn quantisers_agree(bits in prop::collection::vec(any::<u32>(), 64), scale in -40_i32..40) {
        let any: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits)).collect();
        let ordinary: Vec<f32> =
            bits.iter().map(|bits| (f64::from(*bits) - 2_147_483_648.0) as f32 * 2_f32.powi(scale)).collect();
        for x in [any, ordinary] {
            let mut expected = vec![ActivationBlock::default(); 2];
            quantise(Variant::Scalar, x.as_chunks().0, &mut expected);
            for variant in Variant::supported() {
                let mut got = vec![ActivationBlock::default(); 2];
                quantise(variant, x.as_chunks().0, &mut got);
                for (expected, got) in expected.iter().zip(&got) {
                    prop_assert_eq!(format!("{expected:?}"), format!("{got:?}"));
                }
            }
        }
    }
}

/// Every byte of the weights at its extremes against activations of one sign or both, by the
/// kernels for one column and for many.
#[test]
fn extreme_bytes_do_not_saturate() {
    for dtype in weight_formats().filter(|dtype| dtype.is_quantised()) {
        for fill in [0x00_u8, 0x0f, 0x7f, 0x80, 0xf0, 0xff] {
            for signs in [[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]] {
                for n_columns in [1, 5] {
                    let mut case = Case::new(dtype, false, 256, 8, n_columns, 3);
                    for block in case.weights.chunks_exact_mut(dtype.block_bytes()) {
                        let halves: Vec<[u8; 2]> = half_offsets(dtype).iter().map(|at| *field(block, *at)).collect();
                        block.fill(fill);
                        for (at, half) in half_offsets(dtype).iter().zip(halves) {
                            block[*at..][..2].copy_from_slice(&half);
                        }
                    }
                    case.x.iter_mut().enumerate().for_each(|(i, x)| *x = signs[i % 2]);
                    let expected = case.run_whole(Variant::Scalar);
                    for variant in Variant::supported() {
                        let what = format!("{dtype} of {fill:#x} times {signs:?}, {n_columns} columns");
                        assert_same_bits(&what, &expected, &case.run_whole(variant));
                    }
                }
            }
        }
    }
}

/// FNV-1a of 2048 weights as little-endian floats, NaNs as 0x7fc00000, by `gguf.quants.dequantize`
/// of the PyPI package gguf 0.17.1 (for F16 by numpy), from the low bytes of [`Random`] with seed 1.
const KNOWN: [(StrataDType, u64); 22] = [
    (StrataDType::F16, 0xe482_34e7_6454_41e5),
    (StrataDType::BF16, 0x34fb_9d7c_bca8_0c1f),
    (StrataDType::Q4_0, 0x0c65_735c_7ff6_9247),
    (StrataDType::Q4_1, 0xcedd_4e73_ba5a_8ecf),
    (StrataDType::Q5_0, 0x4983_04e2_aa99_84cd),
    (StrataDType::Q5_1, 0x5a78_6eea_5b43_22d3),
    (StrataDType::Q8_0, 0x2d5e_5f69_3d77_dc44),
    (StrataDType::Q2K, 0xd913_cad6_3662_e535),
    (StrataDType::Q3K, 0x00e0_40e4_6bba_5468),
    (StrataDType::Q4K, 0x7a5f_57c3_de16_0e80),
    (StrataDType::Q5K, 0x016f_4fb4_6b02_6d2c),
    (StrataDType::Q6K, 0xd83e_dc8a_974e_110d),
    (StrataDType::IQ2XXS, 0xac31_4657_14e6_bbb7),
    (StrataDType::IQ2XS, 0x2cbf_c162_084a_9089),
    (StrataDType::IQ3XXS, 0x8095_8077_d5ce_a76a),
    (StrataDType::IQ1S, 0xfb22_6202_f0ce_d012),
    (StrataDType::IQ4NL, 0xc648_d62a_9c0c_25a7),
    (StrataDType::IQ3S, 0x3d61_5deb_0a99_5e4e),
    (StrataDType::IQ2S, 0x4105_5286_d1f9_f182),
    (StrataDType::IQ4XS, 0x1bbc_8479_94b0_d947),
    (StrataDType::IQ1M, 0xdf89_24fe_f7f0_ffd7),
    (StrataDType::MXFP4, 0x79f5_d984_ab89_2c28),
];

#[test]
fn dequantised_rows_equal_the_package_gguf() {
    for (dtype, expected) in KNOWN {
        let mut random = Random(1);
        let bytes: Vec<u8> = (0..dtype.row_bytes(2048).unwrap()).map(|_| random.next() as u8).collect();
        let mut out = vec![0.0; 2048];
        dequantise_row(dtype, &bytes, &mut out);
        let hash = out
            .iter()
            .flat_map(|value| if value.is_nan() { 0x7fc0_0000_u32 } else { value.to_bits() }.to_le_bytes())
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        assert_eq!(hash, expected, "{dtype}");
    }
}

/// The reference itself against arithmetic in f64: the 8-bit way within what 8 bits cost, the float
/// way within rounding.
#[test]
fn results_are_near_exact_ones() {
    for dtype in weight_formats() {
        for precise in [false, true] {
            let (k, n_rows, n_columns) = (1024, 16, 3);
            let case = Case::new(dtype, precise, k, n_rows, n_columns, 77);
            let got = case.run_whole(Variant::Scalar);
            let (mut error, mut size) = (0.0, 0.0);
            for row in 0..n_rows {
                let mut weights = vec![0.0; k];
                let bytes = case.plan.row_bytes();
                dequantise_row(dtype, &case.weights[row * bytes..][..bytes], &mut weights);
                for column in 0..n_columns {
                    let x = &case.x[column * k..][..k];
                    let exact: f64 = weights.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                    let bias = case.bias.as_ref().map_or(0.0, |bias| f64::from(bias[row]));
                    error += (exact + bias - f64::from(got[column * n_rows + row])).powi(2);
                    size += weights.iter().zip(x).map(|(w, x)| (f64::from(*w) * f64::from(*x)).powi(2)).sum::<f64>();
                }
            }
            let relative = (error / size).sqrt();
            let limit = if precise || !dtype.is_quantised() { 2e-6 } else { 0.02 };
            assert!(relative < limit, "{dtype} precise {precise}: relative error {relative:e}");
        }
    }
}

#[test]
fn a_nan_or_infinity_in_the_activations_reaches_the_result() {
    for dtype in weight_formats() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut case = Case::new(dtype, false, 256, 9, 5, 5);
            case.x[256 + 40] = bad;
            for variant in Variant::supported() {
                let out = case.run_whole(variant);
                assert!(out[9..18].iter().all(|value| !value.is_finite()), "{dtype} {bad}");
                assert!(out[..9].iter().chain(&out[18..]).all(|value| value.is_finite()), "{dtype} {bad}");
            }
        }
    }
}

#[test]
fn half_precision_activations_equal_their_floats() {
    for dtype in [StrataDType::Q4_1, StrataDType::F32] {
        let plan = Plan::new(dtype, 96, false, Variant::best()).unwrap();
        let mut random = Random(9);
        let halves: Vec<f16> = (0..96).map(|_| f16::from_f32(random.activation())).collect();
        let floats: Vec<f32> = halves.iter().map(|half| half.to_f32()).collect();
        let bits: Vec<u16> = halves.iter().map(|half| half.to_bits()).collect();
        let mut expected = vec![Line::default(); plan.lines_per_row()];
        let mut got = expected.clone();
        plan.prepare_f32(&floats, &mut expected);
        plan.prepare_f16(&bits, &mut got);
        assert!(expected == got && expected != vec![Line::default(); plan.lines_per_row()]);
    }
}

#[test]
fn every_exponent_of_mxfp4() {
    let mut case = Case::new(StrataDType::MXFP4, false, 32, 256, 1, 8);
    case.bias = None;
    let first: [u8; 17] = *field(&case.weights, 0);
    for (row, block) in case.weights.chunks_exact_mut(17).enumerate() {
        block.copy_from_slice(&first);
        block[0] = row as u8;
    }
    let expected = case.run_whole(Variant::Scalar);
    assert!(expected[60] != 0.0 && expected[61] / expected[60] == 2.0 && expected[200].abs() > 1e20);
    for variant in Variant::supported() {
        assert_same_bits(variant.name(), &expected, &case.run_whole(variant));
    }
}

#[test]
fn halves_have_their_own_precision() {
    let mut x = [0.01_f32; BLOCK];
    x[0] = 100.0;
    let block = activation::quantise_block(&x);
    assert_eq!(block.multiplier, [[64, 64], [1, 1]]);
    // Without a scale of its own the second half would round to zero.
    let value = f32::from(block.q[20]) * f32::from(block.multiplier[1][0]) * block.unit;
    assert!((value - 0.01).abs() < 0.007, "{value}");
    let zero = activation::quantise_block(&[0.0; BLOCK]);
    assert_eq!((zero.unit, zero.q), (0.0, [0; BLOCK]));
}

#[test]
fn splits_cover_every_row_once() {
    for n_rows in 0..100 {
        for n_workers in 1..10 {
            let mut next = 0;
            for worker in 0..n_workers {
                let rows = Plan::split(n_rows, worker, n_workers);
                assert!(rows.start == next && (rows.start.is_multiple_of(ROW_GROUP) || rows.is_empty()));
                next = rows.end;
            }
            assert_eq!(next, n_rows);
        }
    }
}

#[test]
fn plans_refuse_what_has_no_blocks() {
    assert!(Plan::new(StrataDType::I32, 32, false, Variant::Scalar).is_err());
    assert!(Plan::new(StrataDType::Q4K, 128, false, Variant::Scalar).unwrap_err().contains("256"));
    assert!(Plan::new(StrataDType::F32, 0, false, Variant::Scalar).is_err());
    let q4 = Plan::new(StrataDType::Q4_1, 64, false, Variant::Scalar).unwrap();
    let q8 = Plan::new(StrataDType::Q8_0, 64, false, Variant::Scalar).unwrap();
    assert_eq!(q4.prepared(), q8.prepared());
    assert_ne!(q4.prepared(), Plan::new(StrataDType::Q8_0, 64, true, Variant::Scalar).unwrap().prepared());
}
