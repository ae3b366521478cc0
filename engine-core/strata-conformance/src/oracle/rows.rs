//! Ops that work on one row at a time: lookups, norms, softmax, rotation, gathering, arg max.

use super::{Call, Element, Expected, largest};
use strata_backend_abi::StrataRopeStyle;

pub(super) fn embedding(call: &Call<'_>) -> Expected {
    let (out, table, ids) = (call.view(0), call.view(1), call.view(2));
    let factor = call.float(0);
    let block = table.dtype.block_len().min(32);
    let mut expected = Expected::new(out, 1);
    for t in 0..out.ne[1] {
        let id = call.memory.integer(&ids, t, [0; 3]) as u64;
        let row = call.row(&table, [id, 0, 0]);
        // Scale and minimum of a block round apart from each other, so the block's largest
        // weight says how large the rounded parts can be.
        let elements = row.chunks(block).flat_map(|weights| {
            let size = largest(weights) * factor.abs();
            weights.iter().map(move |weight| Element::float(weight * factor, size))
        });
        expected.rows.push(([t, 0, 0], elements.collect()));
    }
    expected
}

pub(super) fn rms_norm(call: &Call<'_>) -> Expected {
    let x = call.view(1);
    let weights = call.optional(2).map(|w| call.row(&w, [0; 3]));
    let mut expected = Expected::new(call.view(0), x.ne[0] as usize);
    for index in x.rows() {
        let row = call.row(&x, index);
        let mean = row.iter().map(|value| value * value).sum::<f64>() / row.len() as f64;
        let factor = 1.0 / (mean + call.float(0)).sqrt();
        let weight = |i: usize| weights.as_ref().map_or(1.0, |weights| weights[i]);
        let values = row.iter().enumerate().map(|(i, value)| value * factor * weight(i));
        expected.rows.push((index, values.map(|value| Element::float(value, value.abs())).collect()));
    }
    expected
}

pub(super) fn l2_norm(call: &Call<'_>) -> Expected {
    let x = call.view(1);
    let mut expected = Expected::new(call.view(0), x.ne[0] as usize);
    for index in x.rows() {
        let row = call.row(&x, index);
        let factor = 1.0 / (row.iter().map(|value| value * value).sum::<f64>() + call.float(0)).sqrt();
        let values = row.iter().map(|value| value * factor);
        expected.rows.push((index, values.map(|value| Element::float(value, value.abs())).collect()));
    }
    expected
}

pub(super) fn softmax(call: &Call<'_>) -> Expected {
    let x = call.view(1);
    let mut expected = Expected::new(call.view(0), x.ne[0] as usize);
    for index in x.rows() {
        let logits: Vec<f64> = call.row(&x, index).iter().map(|value| value * call.float(0)).collect();
        let size = largest(&logits);
        let values = softmax_of(&logits);
        // A logit's own rounding is an absolute error in the exponent.
        let elements = values.iter().map(|value| Element::float(*value, value * (1.0 + size)));
        expected.rows.push((index, elements.collect()));
    }
    expected
}

pub(super) fn softmax_of(logits: &[f64]) -> Vec<f64> {
    let greatest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let terms: Vec<f64> = logits.iter().map(|logit| (logit - greatest).exp()).collect();
    let sum: f64 = terms.iter().sum();
    terms.into_iter().map(|term| term / sum).collect()
}

pub(super) fn rope(call: &Call<'_>) -> Expected {
    let (x, table, rows) = (call.view(1), call.view(2), call.view(3));
    let (style, n_rotated) = (call.int(0), call.int(1) as usize);
    let mut expected = Expected::new(call.view(0), 2);
    for index in x.rows() {
        let [_, token, _] = index;
        let table_row = call.memory.integer(&rows, token, [0; 3]) as u64;
        let row = call.row(&x, index);
        let mut elements: Vec<Element> = row.iter().map(|value| Element::exact(*value)).collect();
        for pair in 0..n_rotated / 2 {
            let (first, second) = if style == StrataRopeStyle::Norm as i64 {
                (2 * pair, 2 * pair + 1)
            } else {
                (pair, pair + n_rotated / 2)
            };
            let angle = call.row(&table, [pair as u64, table_row, 0]);
            let (cos, sin) = (angle[0], angle[1]);
            let (a, b) = (row[first], row[second]);
            elements[first] = Element::float(a * cos - b * sin, (a * cos).abs() + (b * sin).abs());
            elements[second] = Element::float(a * sin + b * cos, (a * sin).abs() + (b * cos).abs());
        }
        expected.rows.push((index, elements));
    }
    expected
}

pub(super) fn gather(call: &Call<'_>) -> Expected {
    let (out, x, rows) = (call.view(0), call.view(1), call.view(2));
    let mut expected = Expected::new(out, 1);
    for o in 0..out.ne[1] {
        let source = call.memory.integer(&rows, o, [0; 3]) as u64;
        let row = call.row(&x, [source, 0, 0]);
        expected.rows.push(([o, 0, 0], row.into_iter().map(Element::exact).collect()));
    }
    expected
}

pub(super) fn arg_max(call: &Call<'_>) -> Expected {
    let x = call.view(1);
    let mut expected = Expected::new(call.view(0), 1);
    let mut ids = Vec::new();
    for index in x.rows() {
        let row = call.row(&x, index);
        let mut best = 0;
        for (i, value) in row.iter().enumerate() {
            if *value > row[best] || (value.is_nan() && !row[best].is_nan()) {
                best = i;
            }
        }
        ids.push(Element::exact(best as f64));
    }
    expected.rows.push(([0; 3], ids));
    expected
}
