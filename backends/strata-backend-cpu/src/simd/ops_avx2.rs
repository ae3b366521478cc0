//! AVX2 kernels of everything but matrix products, behind the table of `ops/math.rs`.
//!
//! Most are that file's loops compiled under wider target features: same bits. Written by hand are
//! the two of attention (`scores`, `weighted_sum`), which fuse multiply and add and so differ from
//! the plain loops by rounding, and the 16-bit conversions. They assume no alignment. The scalar
//! functions they must match are those of the same name; tests below compare them.

use core::arch::x86_64::{
    __m128, __m256, _mm_add_ps, _mm_loadu_si128, _mm_movehl_ps, _mm_movelh_ps, _mm_setzero_ps, _mm_storeu_ps,
    _mm_storeu_si128, _mm_unpackhi_ps, _mm_unpacklo_ps, _mm256_add_ps, _mm256_castps256_ps128, _mm256_cvtph_ps,
    _mm256_cvtps_ph, _mm256_extractf128_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_setzero_ps,
    _mm256_storeu_ps,
};

use strata_backend_abi::{StrataActivation, StrataUnary};

use crate::ops::math::{self, Kernels, Lanes};

/// Kernels for a CPU with AVX2, FMA and F16C. The table is only reachable through [`kernels`].
static AVX2: Kernels = Kernels {
    sum_squares,
    scale,
    add_scaled,
    mul,
    greatest,
    exp_sum,
    glu,
    unary,
    rotate,
    widen_rows_f16,
    narrow_f16,
    scores,
    weighted_sum,
};

/// The table, if this CPU can run it.
pub(crate) fn kernels() -> Option<&'static Kernels> {
    let has = std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("f16c");
    has.then_some(&AVX2)
}

/// Wraps functions with target features into plain ones for the table.
macro_rules! wrap {
    ($($name:ident($($arg:ident: $kind:ty),*) $(-> $out:ty)? = $body:expr;)*) => {$(
        fn $name($($arg: $kind),*) $(-> $out)? {
            #[target_feature(enable = "avx2,fma,f16c")]
            fn featured($($arg: $kind),*) $(-> $out)? {
                $body($($arg),*)
            }
            // SAFETY: only `kernels` hands the table out, after it has asked the CPU for these features.
            unsafe { featured($($arg),*) }
        }
    )*};
}

wrap! {
    sum_squares(lanes: &mut Lanes, x: &[f32]) = math::sum_squares;
    scale(x: &mut [f32], factor: f32, offset: f32) = math::scale;
    add_scaled(a: &mut [f32], b: &[f32], factor: f32) = math::add_scaled;
    mul(a: &mut [f32], b: &[f32]) = math::mul;
    greatest(x: &[f32]) -> f32 = math::greatest;
    exp_sum(x: &mut [f32], subtract: f32, lanes: &mut Lanes) = math::exp_sum;
    glu(activation: StrataActivation, gate: &mut [f32], up: &[f32], limit: f32, alpha: f32) = math::glu;
    unary(function: StrataUnary, x: &mut [f32], parameter: f32) = math::unary;
    rotate(a: &mut [f32], b: &mut [f32], cos_sin: &[f32]) = math::rotate;
    widen_rows_f16(bits: &[u16], stride: usize, len: usize, out: &mut [f32], width: usize) = widen_rows_f16_vector;
    narrow_f16(values: &[f32], out: &mut [u16]) = narrow_f16_vector;
    scores(q: &[f32], keys: &[f32], stride: usize, out: &mut [f32]) = scores_vector;
    weighted_sum(weights: &[f32], values: &[f32], stride: usize, out: &mut [f32]) = weighted_sum_vector;
}

#[target_feature(enable = "avx2,fma,f16c")]
fn widen_f16_vector(bits: &[u16], out: &mut [f32]) {
    let (bits, bits_rest) = bits.as_chunks::<8>();
    let (out, out_rest) = out.as_chunks_mut::<8>();
    for (bits, out) in bits.iter().zip(out) {
        // SAFETY: the array holds the sixteen bytes that are read.
        let packed = unsafe { _mm_loadu_si128(bits.as_ptr().cast()) };
        store(_mm256_cvtph_ps(packed), out);
    }
    math::widen_f16(bits_rest, out_rest);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn widen_rows_f16_vector(bits: &[u16], stride: usize, len: usize, out: &mut [f32], width: usize) {
    for (out, bits) in out.chunks_exact_mut(width).zip(bits.chunks(stride)) {
        let (values, rest) = out.split_at_mut(len);
        widen_f16_vector(&bits[..len], values);
        rest.fill(0.0);
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn narrow_f16_vector(values: &[f32], out: &mut [u16]) {
    let (values, values_rest) = values.as_chunks::<8>();
    let (out, out_rest) = out.as_chunks_mut::<8>();
    for (values, out) in values.iter().zip(out) {
        let packed = _mm256_cvtps_ph::<0>(load(values));
        // SAFETY: the array holds the sixteen bytes that are written.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), packed) };
    }
    math::narrow_f16(values_rest, out_rest);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn load(values: &[f32; 8]) -> __m256 {
    // SAFETY: the array holds the eight floats that are read.
    unsafe { _mm256_loadu_ps(values.as_ptr()) }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn store(values: __m256, out: &mut [f32; 8]) {
    // SAFETY: the array holds the eight floats that are written.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), values) };
}

/// Lane i + lane i + 8 + lane i + 4 + lane i + 12, in the order of `math::reduce`.
#[target_feature(enable = "avx2,fma,f16c")]
fn fold(low: __m256, high: __m256) -> __m128 {
    let sums = _mm256_add_ps(low, high);
    _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps::<1>(sums))
}

/// `n` vectors of a row.
#[target_feature(enable = "avx2,fma,f16c")]
fn row(values: &[f32], start: usize, n: usize) -> &[[f32; 8]] {
    values[start..][..n * 8].as_chunks::<8>().0
}

/// Four keys at a time: eight independent sums hide the latency, and their last steps share shuffles.
#[target_feature(enable = "avx2,fma,f16c")]
fn scores_vector(q: &[f32], keys: &[f32], stride: usize, out: &mut [f32]) {
    let q = q.as_chunks::<8>().0;
    let (quads, rest) = out.as_chunks_mut::<4>();
    let n_quads = quads.len();
    for (quad, out) in quads.iter_mut().enumerate() {
        let keys = &keys[quad * 4 * stride..];
        let keys = [
            row(keys, 0, q.len()),
            row(keys, stride, q.len()),
            row(keys, 2 * stride, q.len()),
            row(keys, 3 * stride, q.len()),
        ];
        let mut sums = [[_mm256_setzero_ps(); 2]; 4];
        for (pair, q) in q.as_chunks::<2>().0.iter().enumerate() {
            for (half, q) in q.iter().enumerate() {
                let q = load(q);
                for (sum, key) in sums.iter_mut().zip(keys) {
                    sum[half] = _mm256_fmadd_ps(q, load(&key[pair * 2 + half]), sum[half]);
                }
            }
        }
        // Written out: a closure given to `map` is a call, and the vectors would go through memory.
        let folded = [
            fold(sums[0][0], sums[0][1]),
            fold(sums[1][0], sums[1][1]),
            fold(sums[2][0], sums[2][1]),
            fold(sums[3][0], sums[3][1]),
        ];
        let (a, b) = (_mm_unpacklo_ps(folded[0], folded[1]), _mm_unpackhi_ps(folded[0], folded[1]));
        let (c, d) = (_mm_unpacklo_ps(folded[2], folded[3]), _mm_unpackhi_ps(folded[2], folded[3]));
        // Element i of the four sums, side by side; then 0 + 2, 1 + 3, and both.
        let even = _mm_add_ps(_mm_movelh_ps(a, c), _mm_movelh_ps(b, d));
        let odd = _mm_add_ps(_mm_movehl_ps(c, a), _mm_movehl_ps(d, b));
        let sums = _mm_add_ps(even, odd);
        // SAFETY: the array holds the four floats that are written.
        unsafe { _mm_storeu_ps(out.as_mut_ptr(), sums) };
    }
    for (i, out) in rest.iter_mut().enumerate() {
        *out = score(q, &keys[(n_quads * 4 + i) * stride..]);
    }
}

/// One key, in the same order as four.
#[target_feature(enable = "avx2,fma,f16c")]
fn score(q: &[[f32; 8]], key: &[f32]) -> f32 {
    let key = key[..q.len() * 8].as_chunks::<8>().0;
    let (mut low, mut high) = (_mm256_setzero_ps(), _mm256_setzero_ps());
    for (q, key) in q.as_chunks::<2>().0.iter().zip(key.as_chunks::<2>().0) {
        low = _mm256_fmadd_ps(load(&q[0]), load(&key[0]), low);
        high = _mm256_fmadd_ps(load(&q[1]), load(&key[1]), high);
    }
    let folded = fold(low, high);
    let pairs = _mm_add_ps(folded, _mm_movehl_ps(_mm_setzero_ps(), folded));
    let mut sums = [0.0_f32; 4];
    // SAFETY: the array holds the four floats that are written.
    unsafe { _mm_storeu_ps(sums.as_mut_ptr(), pairs) };
    sums[0] + sums[1]
}

/// Sixty-four columns at a time stay in registers over all values.
#[target_feature(enable = "avx2,fma,f16c")]
fn weighted_sum_vector(weights: &[f32], values: &[f32], stride: usize, out: &mut [f32]) {
    let n = out.len();
    let mut column = 0;
    while column + 64 <= n {
        weighted_columns::<8>(weights, values, stride, column, out);
        column += 64;
    }
    while column + 16 <= n {
        weighted_columns::<2>(weights, values, stride, column, out);
        column += 16;
    }
    for (column, out) in out.iter_mut().enumerate().skip(column) {
        for (j, weight) in weights.iter().enumerate() {
            *out = weight.mul_add(values[j * stride + column], *out);
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn weighted_columns<const N: usize>(weights: &[f32], values: &[f32], stride: usize, column: usize, out: &mut [f32]) {
    let mut sums = [_mm256_setzero_ps(); N];
    let (out, _) = out[column..][..N * 8].as_chunks_mut::<8>();
    for (sum, out) in sums.iter_mut().zip(out.iter()) {
        *sum = load(out);
    }
    for (j, weight) in weights.iter().enumerate() {
        let weight = _mm256_set1_ps(*weight);
        let (value, _) = values[j * stride + column..][..N * 8].as_chunks::<8>();
        for (sum, value) in sums.iter_mut().zip(value) {
            *sum = _mm256_fmadd_ps(weight, load(value), *sum);
        }
    }
    for (sum, out) in sums.iter().zip(out) {
        store(*sum, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn floats(n: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<f32>> {
        proptest::collection::vec(-20.0_f32..20.0, n)
    }

    /// Applies the same call to both tables; `None` where the CPU has no AVX2.
    fn both<T>(call: impl Fn(&Kernels) -> T) -> Option<(T, T)> {
        Some((call(&math::SCALAR), call(kernels()?)))
    }

    proptest! {
        #[test]
        fn elementwise_kernels_give_the_same_bits(a in floats(0..70), b in floats(70), f in -3.0_f32..3.0) {
            let results = both(|kernels| {
                let mut outs = Vec::new();
                let mut record = |change: &dyn Fn(&mut Vec<f32>)| {
                    let mut x = a.clone();
                    change(&mut x);
                    outs.extend(x.into_iter().map(f32::to_bits));
                };
                record(&|x| (kernels.scale)(x, f, 0.5));
                record(&|x| (kernels.add_scaled)(x, &b, f));
                record(&|x| (kernels.mul)(x, &b));
                for activation in [
                    StrataActivation::Silu,
                    StrataActivation::GeluTanh,
                    StrataActivation::GeluErf,
                    StrataActivation::ReluSquared,
                    StrataActivation::SwigluOai,
                ] {
                    record(&|x| (kernels.glu)(activation, x, &b, 7.0, 1.702));
                }
                for function in [
                    StrataUnary::Silu,
                    StrataUnary::GeluTanh,
                    StrataUnary::Sigmoid,
                    StrataUnary::Tanh,
                    StrataUnary::Softplus,
                    StrataUnary::Exp,
                    StrataUnary::Softcap,
                ] {
                    record(&|x| (kernels.unary)(function, x, 30.0));
                }
                let mut lanes = [0.0; 16];
                (kernels.sum_squares)(&mut lanes, &a);
                let mut x = a.clone();
                (kernels.exp_sum)(&mut x, f, &mut lanes);
                outs.extend(x.into_iter().chain(lanes).map(f32::to_bits));
                outs.push((kernels.greatest)(&a).to_bits());
                outs
            });
            if let Some((scalar, vector)) = results {
                prop_assert_eq!(scalar, vector);
            }
        }

        #[test]
        fn half_floats_are_converted_alike(bits in proptest::collection::vec(any::<u16>(), 0..40), x in floats(0..40)) {
            let results = both(|kernels| {
                let mut wide = vec![1.0; bits.len() + 3];
                if !bits.is_empty() {
                    (kernels.widen_rows_f16)(&bits, bits.len(), bits.len(), &mut wide, bits.len() + 3);
                }
                let mut narrow = vec![0; x.len()];
                (kernels.narrow_f16)(&x, &mut narrow);
                // Payloads of NaN may differ.
                (wide.into_iter().map(|x| if x.is_nan() { u32::MAX } else { x.to_bits() }).collect::<Vec<_>>(), narrow)
            });
            if let Some((scalar, vector)) = results {
                prop_assert_eq!(scalar, vector);
            }
        }

        #[test]
        fn attention_kernels_are_close(q in floats(64), keys in floats(13 * 80), weights in floats(13), width in 0_usize..80) {
            for n in [16, 32, 48, 64] {
                let (a, b) = both(|kernels| {
                    let mut out = vec![0.0; 13];
                    (kernels.scores)(&q[..n], &keys, 80, &mut out);
                    out
                }).unwrap_or_default();
                for (a, b) in a.iter().zip(b) {
                    prop_assert!((a - b).abs() <= 0.02, "{} {}", a, b);
                }
            }
            let (a, b) = both(|kernels| {
                let mut out = vec![1.0; width];
                (kernels.weighted_sum)(&weights, &keys, 80, &mut out);
                out
            }).unwrap_or_default();
            for (a, b) in a.iter().zip(b) {
                prop_assert!((a - b).abs() <= 0.005, "{} {}", a, b);
            }
        }

        #[test]
        fn a_score_does_not_depend_on_its_neighbours(q in floats(32), keys in floats(9 * 32)) {
            if let Some(kernels) = kernels() {
                let mut all = [0.0; 9];
                (kernels.scores)(&q, &keys, 32, &mut all);
                for (j, expected) in all.iter().enumerate() {
                    let mut one = [0.0];
                    (kernels.scores)(&q, &keys[j * 32..], 32, &mut one);
                    prop_assert_eq!(one[0].to_bits(), expected.to_bits());
                }
            }
        }
    }
}
