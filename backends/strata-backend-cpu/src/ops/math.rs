//! Kernels on blocks of floats, and the table through which ops reach the ones of the chosen
//! variant. Everything but matrix products.
//!
//! The functions are written so that the compiler turns them into vectors for whatever target
//! feature the caller has: `simd/ops_avx2.rs` inlines them under AVX2 and replaces the few that
//! need intrinsics. Sums run over sixteen fixed lanes, so their order is a function of the length
//! alone. Multiply and add stay two roundings (Rust never fuses them by itself), so the
//! elementwise kernels give the same bits in all variants.
#![expect(clippy::inline_always, reason = "inlining into a caller with more target features is how a variant is made")]

use strata_backend_abi::{StrataActivation, StrataUnary};

use half::f16;

/// Partial sums: element i of a row goes to lane i mod 16.
pub(crate) type Lanes = [f32; 16];

/// Elements that ops handle at a time, in arrays on the stack. A multiple of the lanes.
pub(crate) const BLOCK: usize = 256;

/// Block kernels of one variant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernels {
    pub(crate) sum_squares: fn(&mut Lanes, &[f32]),
    pub(crate) scale: fn(&mut [f32], f32, f32),
    pub(crate) add_scaled: fn(&mut [f32], &[f32], f32),
    pub(crate) mul: fn(&mut [f32], &[f32]),
    pub(crate) greatest: fn(&[f32]) -> f32,
    pub(crate) exp_sum: fn(&mut [f32], f32, &mut Lanes),
    pub(crate) glu: fn(StrataActivation, &mut [f32], &[f32], f32, f32),
    pub(crate) unary: fn(StrataUnary, &mut [f32], f32),
    pub(crate) rotate: fn(&mut [f32], &mut [f32], &[f32]),
    pub(crate) widen_rows_f16: fn(&[u16], usize, usize, &mut [f32], usize),
    pub(crate) narrow_f16: fn(&[f32], &mut [u16]),
    pub(crate) scores: fn(&[f32], &[f32], usize, &mut [f32]),
    pub(crate) weighted_sum: fn(&[f32], &[f32], usize, &mut [f32]),
}

/// Plain loops.
pub(crate) static SCALAR: Kernels = Kernels {
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

/// Adds up the lanes, halves onto halves.
#[inline(always)]
pub(crate) fn reduce(lanes: &Lanes) -> f32 {
    let mut sums = *lanes;
    let mut n = 8;
    while n > 0 {
        for i in 0..n {
            sums[i] += sums[i + n];
        }
        n /= 2;
    }
    sums[0]
}

/// `lanes += x²`. `x` starts at a multiple of the lanes.
#[inline(always)]
pub(crate) fn sum_squares(lanes: &mut Lanes, x: &[f32]) {
    let (chunks, rest) = x.as_chunks::<16>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += value * value;
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane += value * value;
    }
}

/// `x = x · factor + offset`.
#[inline(always)]
pub(crate) fn scale(x: &mut [f32], factor: f32, offset: f32) {
    if offset == 0.0 {
        for value in x {
            *value *= factor;
        }
    } else {
        for value in x {
            *value = *value * factor + offset;
        }
    }
}

/// `a = a + factor · b`.
#[inline(always)]
pub(crate) fn add_scaled(a: &mut [f32], b: &[f32], factor: f32) {
    for (a, b) in a.iter_mut().zip(b) {
        *a += factor * b;
    }
}

/// `a = a · b`.
#[inline(always)]
pub(crate) fn mul(a: &mut [f32], b: &[f32]) {
    for (a, b) in a.iter_mut().zip(b) {
        *a *= b;
    }
}

/// The greatest value; -∞ of nothing.
#[inline(always)]
pub(crate) fn greatest(x: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let (chunks, rest) = x.as_chunks::<16>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = if *value > *lane { *value } else { *lane };
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane = if *value > *lane { *value } else { *lane };
    }
    lanes.into_iter().fold(f32::NEG_INFINITY, |most, value| if value > most { value } else { most })
}

/// `x = exp(x - subtract)`, added to the lanes. `x` starts at a multiple of the lanes.
#[inline(always)]
pub(crate) fn exp_sum(x: &mut [f32], subtract: f32, lanes: &mut Lanes) {
    let (chunks, rest) = x.as_chunks_mut::<16>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *value = exp(*value - subtract);
            *lane += *value;
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *value = exp(*value - subtract);
        *lane += *value;
    }
}

/// `gate = act(gate) · up`.
#[inline(always)]
pub(crate) fn glu(activation: StrataActivation, gate: &mut [f32], up: &[f32], limit: f32, alpha: f32) {
    let pairs = gate.iter_mut().zip(up);
    match activation {
        StrataActivation::Silu => pairs.for_each(|(gate, up)| *gate = silu(*gate) * up),
        StrataActivation::GeluTanh => pairs.for_each(|(gate, up)| *gate = gelu_tanh(*gate) * up),
        StrataActivation::GeluErf => pairs.for_each(|(gate, up)| *gate = gelu_erf(*gate) * up),
        StrataActivation::ReluSquared => pairs.for_each(|(gate, up)| {
            let positive = if *gate < 0.0 { 0.0 } else { *gate };
            *gate = positive * positive * up;
        }),
        StrataActivation::SwigluOai => pairs.for_each(|(gate, up)| {
            let clamped = if *gate > limit { limit } else { *gate };
            let up = if *up > limit { limit } else { *up };
            let up = if up < -limit { -limit } else { up };
            *gate = clamped / (1.0 + exp(-alpha * clamped)) * (up + 1.0);
        }),
    }
}

/// `x = fn(x)`.
#[inline(always)]
pub(crate) fn unary(function: StrataUnary, x: &mut [f32], parameter: f32) {
    let values = x.iter_mut();
    match function {
        StrataUnary::Silu => values.for_each(|value| *value = silu(*value)),
        StrataUnary::GeluTanh => values.for_each(|value| *value = gelu_tanh(*value)),
        StrataUnary::Sigmoid => values.for_each(|value| *value = sigmoid(*value)),
        StrataUnary::Tanh => values.for_each(|value| *value = tanh(*value)),
        StrataUnary::Softplus => values.for_each(|value| *value = softplus(*value)),
        StrataUnary::Exp => values.for_each(|value| *value = exp(*value)),
        StrataUnary::Softcap => values.for_each(|value| *value = parameter * tanh(*value / parameter)),
    }
}

/// Rotates the pairs `(a[i], b[i])` by `(cos, sin)` pairs.
#[inline(always)]
pub(crate) fn rotate(a: &mut [f32], b: &mut [f32], cos_sin: &[f32]) {
    for ((a, b), [cos, sin]) in a.iter_mut().zip(b).zip(cos_sin.as_chunks::<2>().0) {
        (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
    }
}

/// 16-bit floats to floats.
#[inline(always)]
pub(crate) fn widen_f16(bits: &[u16], out: &mut [f32]) {
    for (out, bits) in out.iter_mut().zip(bits) {
        *out = f16::from_bits(*bits).to_f32();
    }
}

/// Rows of `len` 16-bit floats, `stride` apart, to rows of `width` floats; the rest of each is zero.
#[inline(always)]
pub(crate) fn widen_rows_f16(bits: &[u16], stride: usize, len: usize, out: &mut [f32], width: usize) {
    for (out, bits) in out.chunks_exact_mut(width).zip(bits.chunks(stride)) {
        let (values, rest) = out.split_at_mut(len);
        widen_f16(&bits[..len], values);
        rest.fill(0.0);
    }
}

/// Floats to 16-bit floats, to nearest, ties to even.
#[inline(always)]
pub(crate) fn narrow_f16(values: &[f32], out: &mut [u16]) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = f16::from_f32(*value).to_bits();
    }
}

/// `out[j] = q · keys[j]`. Keys lie `stride` apart; the length of `q` is a multiple of the lanes.
#[inline(always)]
pub(crate) fn scores(q: &[f32], keys: &[f32], stride: usize, out: &mut [f32]) {
    for (out, key) in out.iter_mut().zip(keys.chunks(stride)) {
        let mut lanes = [0.0; 16];
        for (q, key) in q.as_chunks::<16>().0.iter().zip(key.as_chunks::<16>().0) {
            for ((lane, q), key) in lanes.iter_mut().zip(q).zip(key) {
                *lane += q * key;
            }
        }
        *out = reduce(&lanes);
    }
}

/// `out += Σ weights[j] · values[j]`, in the order of j. Values lie `stride` apart.
#[inline(always)]
pub(crate) fn weighted_sum(weights: &[f32], values: &[f32], stride: usize, out: &mut [f32]) {
    for (weight, value) in weights.iter().zip(values.chunks(stride)) {
        for (out, value) in out.iter_mut().zip(value) {
            *out += weight * value;
        }
    }
}

#[inline(always)]
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((exponent.wrapping_add(127) << 23) as u32)
}

/// eˣ within 2 units in the last place; NaN stays NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    /// Added and taken away again, it rounds to a whole number and leaves that number in the low bits.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts, the first short enough that its multiples up to 150 are exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // Past these the result is 0 and ∞; comparing this way round lets NaN through.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let mut tail = r * (1.0 / 5040.0) + 1.0 / 720.0;
    tail = tail * r + 1.0 / 120.0;
    tail = tail * r + 1.0 / 24.0;
    tail = tail * r + 1.0 / 6.0;
    tail = tail * r + 0.5;
    let value = (tail * r * r + r) + 1.0;
    // Two steps, so that results below the normal range are reached without a power that is not one.
    let exponent = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = exponent >> 1;
    value * power_of_two(half) * power_of_two(exponent.wrapping_sub(half))
}

#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

#[inline(always)]
fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// The tanh form, rewritten: 0.5·(1 + tanh u) is sigmoid(2u).
#[inline(always)]
fn gelu_tanh(x: f32) -> f32 {
    /// 2·√(2/π)
    const FACTOR: f32 = 1.595_769;
    x / (1.0 + exp(-FACTOR * (x + 0.044_715 * x * x * x)))
}

fn gelu_erf(x: f32) -> f32 {
    (0.5 * f64::from(x) * (1.0 + erf(f64::from(x) * std::f64::consts::FRAC_1_SQRT_2))) as f32
}

/// erf by its series of positive terms, which loses nothing to cancellation; ±1 where the rest is
/// below half a unit of F32.
fn erf(x: f64) -> f64 {
    let size = x.abs();
    if size > 5.5 {
        return 1.0_f64.copysign(x);
    }
    let mut term = size;
    let mut sum = size;
    let mut n = 1.0;
    while term > sum * 1e-17 {
        term *= 2.0 * size * size / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    (std::f64::consts::FRAC_2_SQRT_PI * (-size * size).exp() * sum).copysign(x)
}

/// Near zero by its series: the other form would lose digits there.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let size = x.abs();
    let square = x * x;
    let mut series = square * (-929_569.0 / 638_512_875.0) + 21_844.0 / 6_081_075.0;
    series = series * square - 1_382.0 / 155_925.0;
    series = series * square + 62.0 / 2_835.0;
    series = series * square - 17.0 / 315.0;
    series = series * square + 2.0 / 15.0;
    series = series * square - 1.0 / 3.0;
    let near = x * (series * square) + x;
    let far = (1.0 - 2.0 / (exp(2.0 * size) + 1.0)).copysign(x);
    if size < 0.5 { near } else { far }
}

/// ln(1 + eˣ) without overflow.
pub(crate) fn softplus(x: f32) -> f32 {
    let positive = if x > 0.0 { x } else { 0.0 };
    positive + exp(-x.abs()).ln_1p() + if x.is_nan() { x } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance in units of the last place of the exact value.
    fn ulps(got: f32, exact: f64) -> f64 {
        let near = exact as f32;
        if got == near || (got.is_nan() && exact.is_nan()) {
            return 0.0;
        }
        let spacing = f64::from(f32::from_bits(near.abs().to_bits() + 1)) - f64::from(near.abs());
        (f64::from(got) - exact).abs() / spacing
    }

    fn sweep(from: f32, to: f32, n: usize) -> impl Iterator<Item = f32> {
        (0..=n).map(move |i| from + (to - from) * i as f32 / n as f32)
    }

    #[test]
    fn exp_is_accurate() {
        let worst = sweep(-87.0, 88.7, 400_000).map(|x| ulps(exp(x), f64::from(x).exp())).fold(0.0, f64::max);
        assert!(worst <= 2.0, "{worst}");
        // Below the normal range the spacing is absolute.
        let worst = sweep(-103.9, -87.4, 10_000).map(|x| ulps(exp(x), f64::from(x).exp())).fold(0.0, f64::max);
        assert!(worst <= 2.0, "{worst}");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(100.0), f32::INFINITY);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-200.0), 0.0);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn tanh_is_accurate() {
        let worst = sweep(-9.0, 9.0, 200_000).map(|x| ulps(tanh(x), f64::from(x).tanh())).fold(0.0, f64::max);
        assert!(worst <= 4.0, "{worst}");
        assert_eq!(tanh(0.0), 0.0);
        assert_eq!(tanh(100.0), 1.0);
        assert_eq!(tanh(-100.0), -1.0);
        assert!(ulps(tanh(1e-20), 1e-20_f32.into()) == 0.0);
    }

    #[test]
    fn activations_match_their_definitions() {
        for x in sweep(-12.0, 12.0, 10_000) {
            let exact = f64::from(x);
            let close = |got: f32, expected: f64| {
                let error = (f64::from(got) - expected).abs();
                assert!(error <= 4e-7 * (1.0 + expected.abs()), "{x}: {got} instead of {expected}");
            };
            close(silu(x), exact / (1.0 + (-exact).exp()));
            close(sigmoid(x), 1.0 / (1.0 + (-exact).exp()));
            let u = (2.0 / std::f64::consts::PI).sqrt() * (exact + 0.044715 * exact.powi(3));
            close(gelu_tanh(x), 0.5 * exact * (1.0 + u.tanh()));
            close(softplus(x), exact.exp().ln_1p());
        }
        // Values from tables of the error function.
        for (x, expected) in [(0.5, 0.520_499_877_813), (1.0, 0.842_700_792_950), (2.0, 0.995_322_265_019)] {
            assert!((erf(x) - expected).abs() < 1e-11 && (erf(-x) + expected).abs() < 1e-11);
        }
        assert!((erf(5.4) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn sums_take_any_length() {
        for n in [0, 1, 15, 16, 17, 40] {
            let x: Vec<f32> = (0..n).map(|i| i as f32 - 7.0).collect();
            let mut lanes = [0.0; 16];
            sum_squares(&mut lanes, &x);
            assert_eq!(reduce(&lanes), x.iter().map(|x| x * x).sum::<f32>());
            assert_eq!(greatest(&x), x.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
    }
}
