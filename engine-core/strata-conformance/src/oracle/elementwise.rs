//! Ops whose result depends on the elements at the same place: add, mul, scale, unary, gated
//! units, copies.

use super::{Call, Element, Expected};
use crate::memory::{RowIndex, View};
use strata_backend_abi::{StrataActivation, StrataUnary};

/// Applies `element` to each element of operand 1, row by row.
fn map(call: &Call<'_>, element: impl Fn(f64) -> Element) -> Expected {
    let x = call.view(1);
    let mut expected = Expected::new(call.view(0), 1);
    for index in x.rows() {
        expected.rows.push((index, call.row(&x, index).into_iter().map(&element).collect()));
    }
    expected
}

/// Applies `element` to operands 1 and 2, the latter repeated where its extent is 1.
fn zip(call: &Call<'_>, element: impl Fn(f64, f64) -> Element) -> Expected {
    let (a, b) = (call.view(1), call.view(2));
    let mut expected = Expected::new(call.view(0), 1);
    for index in a.rows() {
        let right = call.row(&b, broadcast(&b, index));
        let row = call.row(&a, index).into_iter().enumerate();
        let at = |i: usize| if b.ne[0] == 1 { right[0] } else { right[i] };
        expected.rows.push((index, row.map(|(i, left)| element(left, at(i))).collect()));
    }
    expected
}

fn broadcast(view: &View, index: RowIndex) -> RowIndex {
    std::array::from_fn(|k| if view.ne[k + 1] == 1 { 0 } else { index[k] })
}

pub(super) fn add(call: &Call<'_>) -> Expected {
    let factor = call.float(0);
    zip(call, |a, b| Element::float(a + factor * b, a.abs() + (factor * b).abs()))
}

pub(super) fn mul(call: &Call<'_>) -> Expected {
    zip(call, |a, b| Element::float(a * b, (a * b).abs()))
}

pub(super) fn scale(call: &Call<'_>) -> Expected {
    let (factor, offset) = (call.float(0), call.float(1));
    map(call, |x| Element::float(factor * x + offset, (factor * x).abs() + offset.abs()))
}

pub(super) fn copy(call: &Call<'_>) -> Expected {
    let target = call.view(0).dtype;
    map(call, |x| {
        let mut bytes = [0; 4];
        let bytes = &mut bytes[..target.block_bytes()];
        crate::memory::encode_element(target, x, bytes);
        let buffers = vec![bytes.to_vec()];
        let one = View { dtype: target, buffer: 0, offset: 0, ne: [1; 4], nb: [0; 4] };
        Element::exact(crate::memory::Memory { buffers }.element(&one, 0, [0; 3]))
    })
}

pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
}

/// erf by its series of positive terms; beyond 6 it is ±1 to the last bit of f64.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    sum * (-x * x).exp() * 2.0 / std::f64::consts::PI.sqrt()
}

pub(super) fn softplus(x: f64) -> f64 {
    if x > 40.0 { x } else { x.exp().ln_1p() }
}

pub(super) fn glu(call: &Call<'_>) -> Expected {
    let (limit, alpha) = (call.float(0), call.float(1));
    let activation = call.int(0);
    zip(call, |gate, up| {
        let (gate, up) = if activation == StrataActivation::SwigluOai as i64 {
            (gate.min(limit), up.clamp(-limit, limit) + 1.0)
        } else {
            (gate, up)
        };
        let activated = match activation {
            n if n == StrataActivation::Silu as i64 => gate * sigmoid(gate),
            n if n == StrataActivation::GeluTanh as i64 => gelu_tanh(gate),
            n if n == StrataActivation::GeluErf as i64 => 0.5 * gate * (1.0 + erf(gate / std::f64::consts::SQRT_2)),
            n if n == StrataActivation::ReluSquared as i64 => gate.max(0.0).powi(2),
            n if n == StrataActivation::SwigluOai as i64 => gate * sigmoid(alpha * gate),
            other => unreachable!("no activation {other}"),
        };
        // 1 + tanh and 1 + erf cancel for negative gates, so the error is that of the gate itself;
        // `up + 1` cancels near -1 likewise.
        let size = if activation == StrataActivation::ReluSquared as i64 { activated } else { gate.abs() };
        let up_size = if activation == StrataActivation::SwigluOai as i64 { (up - 1.0).abs() + 1.0 } else { up.abs() };
        Element::float(activated * up, size * up_size)
    })
}

pub(super) fn unary(call: &Call<'_>) -> Expected {
    let (kind, parameter) = (call.int(0), call.float(0));
    map(call, |x| match kind {
        n if n == StrataUnary::Silu as i64 => Element::float(x * sigmoid(x), x.abs()),
        n if n == StrataUnary::GeluTanh as i64 => Element::float(gelu_tanh(x), x.abs()),
        n if n == StrataUnary::Sigmoid as i64 => Element::float(sigmoid(x), 1.0),
        // tanh computed from exp cancels around 0: its error is then that of 1.
        n if n == StrataUnary::Tanh as i64 => Element::float(x.tanh(), 1.0),
        n if n == StrataUnary::Softplus as i64 => Element::float(softplus(x), 1.0 + x.abs()),
        // The rounding of x·log2(e) is an error of |x| units in the result.
        n if n == StrataUnary::Exp as i64 => Element::float(x.exp(), x.exp() * (1.0 + x.abs())),
        n if n == StrataUnary::Softcap as i64 => Element::float(parameter * (x / parameter).tanh(), parameter.abs()),
        other => unreachable!("no unary function {other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_at_known_points() {
        assert!((erf(1.0) - 0.842_700_792_949_714_9).abs() < 1e-15);
        assert!((erf(-0.5) + 0.520_499_877_813_046_5).abs() < 1e-15);
        assert!((erf(3.5) - 0.999_999_256_901_627_7).abs() < 1e-14);
        assert!((sigmoid(0.0) - 0.5).abs() < 1e-16);
        assert!((softplus(0.0) - std::f64::consts::LN_2).abs() < 1e-16);
        assert!((softplus(-50.0) / (-50.0_f64).exp() - 1.0).abs() < 1e-12);
        // 0.5·(1 + tanh(0.797 884 56·1.044 715)) by hand.
        assert!((gelu_tanh(1.0) - 0.841_191_990_608_3).abs() < 1e-10);
    }
}
