//! Matrix products: `y = W x`, the same per chosen expert, and the weighted sum of experts.

use super::{Call, Element, Expected, largest};
use crate::memory::View;
use strata_backend_abi::StrataDType;

/// Elements that share a sub-scale in the finest common way; error sizes are kept per chunk.
const CHUNK: usize = 32;

/// A weight row with what the error bounds need of it.
struct Weights {
    values: Vec<f64>,
    /// Per chunk: greatest magnitude, sum of squares, sum of magnitudes.
    chunks: Vec<(f64, f64, f64)>,
}

/// An activation row with what the error bounds need of it.
struct Activations {
    values: Vec<f64>,
    /// Per chunk: sum of magnitudes, and the step of an 8-bit rounding of the block around it.
    chunks: Vec<(f64, f64)>,
}

impl Weights {
    fn new(values: Vec<f64>) -> Weights {
        let chunks = values
            .chunks(CHUNK)
            .map(|chunk| {
                let squares = chunk.iter().map(|value| value * value).sum();
                (largest(chunk), squares, chunk.iter().map(|value| value.abs()).sum())
            })
            .collect();
        Weights { values, chunks }
    }
}

impl Activations {
    /// A plugin that rounds activations does so in blocks as long as the weight's.
    fn new(values: Vec<f64>, weight: StrataDType) -> Activations {
        let block = weight.block_len().max(CHUNK);
        let chunks = values
            .chunks(block)
            .flat_map(|block| {
                let step = largest(block) / 127.0;
                block.chunks(CHUNK).map(move |chunk| (chunk.iter().map(|value| value.abs()).sum(), step))
            })
            .collect();
        Activations { values, chunks }
    }
}

/// One product with its error sizes.
///
/// `scale`: per chunk the greatest weight times the sum of activations, which also covers formats
/// whose scale part and minimum part are larger than the weight and cancel.
/// `eight_bit`: each activation is off by at most half a step, evenly spread: six standard
/// deviations of the weighted sum, never more than the certain bound; plus block scales kept in f16.
/// `half`: each activation is off by half a unit of its last place.
fn dot(weights: &Weights, activations: &Activations, half_unit: f64) -> Element {
    let value = weights.values.iter().zip(&activations.values).map(|(w, x)| w * x).sum();
    let (mut scale, mut variance, mut certain, mut squares) = (0.0, 0.0, 0.0, 0.0);
    for (w, x) in weights.chunks.iter().zip(&activations.chunks) {
        let size = w.0 * x.0;
        scale += size;
        squares += size * size;
        variance += w.1 * x.1 * x.1 / 12.0;
        certain += w.2 * x.1 / 2.0;
    }
    let eight_bit = certain.min(6.0 * variance.sqrt()) + 3.0 * f64::powi(2.0, -11) * squares.sqrt();
    Element { value, scale, eight_bit, half: 4.0 * half_unit * squares.sqrt() }
}

/// Half a unit in the last place of the 16-bit format that activations may be rounded to when the
/// weights are in it.
fn half_unit(weight: StrataDType) -> f64 {
    f64::powi(2.0, if weight == StrataDType::BF16 { -9 } else { -11 })
}

pub(super) fn mat_mul(call: &Call<'_>) -> Expected {
    let (out, w, x) = (call.view(0), call.view(1), call.view(2));
    let bias = call.optional(3).map(|view| call.row(&view, [0; 3]));
    let columns: Vec<Activations> =
        (0..out.ne[1]).map(|t| Activations::new(call.row(&x, [t, 0, 0]), w.dtype)).collect();
    let mut expected = Expected::new(out, w.ne[0] as usize);
    let mut results = vec![Vec::new(); columns.len()];
    for m in 0..w.ne[1] {
        let weights = Weights::new(call.row(&w, [m, 0, 0]));
        for (column, row) in columns.iter().zip(&mut results) {
            let mut element = dot(&weights, column, half_unit(w.dtype));
            if let Some(bias) = &bias {
                element.value += bias[m as usize];
                element.scale += bias[m as usize].abs();
            }
            row.push(element);
        }
    }
    expected.rows.extend(results.into_iter().enumerate().map(|(t, row)| ([t as u64, 0, 0], row)));
    expected
}

pub(super) fn expert_mat_mul(call: &Call<'_>) -> Expected {
    let (out, w, x, ids) = (call.view(0), call.view(1), call.view(2), call.view(3));
    let table = call.optional(4);
    let mut expected = Expected::new(out, w.ne[0] as usize);
    for t in 0..out.ne[2] {
        for k in 0..out.ne[1] {
            let expert = call.memory.integer(&ids, k, [t, 0, 0]);
            let slot = table.map_or(expert, |table| call.memory.integer(&table, expert as u64, [0; 3]));
            let row = match u64::try_from(slot) {
                Err(_) => vec![Element::exact(0.0); out.ne[0] as usize],
                Ok(slot) => expert_row(call, &w, slot, call.row(&x, [if x.ne[1] == 1 { 0 } else { k }, t, 0])),
            };
            expected.rows.push(([k, t, 0], row));
        }
    }
    expected
}

fn expert_row(call: &Call<'_>, w: &View, slot: u64, x: Vec<f64>) -> Vec<Element> {
    let column = Activations::new(x, w.dtype);
    (0..w.ne[1]).map(|m| dot(&Weights::new(call.row(w, [m, slot, 0])), &column, half_unit(w.dtype))).collect()
}

pub(super) fn expert_combine(call: &Call<'_>) -> Expected {
    let (out, x, weights) = (call.view(0), call.view(1), call.view(2));
    let mut expected = Expected::new(out, x.ne[1] as usize);
    for t in 0..out.ne[1] {
        let shares = call.row(&weights, [t, 0, 0]);
        let rows: Vec<Vec<f64>> = (0..x.ne[1]).map(|k| call.row(&x, [k, t, 0])).collect();
        let element = |i: usize| {
            let terms = rows.iter().zip(&shares).map(|(row, share)| row[i] * share);
            Element::float(terms.clone().sum(), terms.map(f64::abs).sum())
        };
        expected.rows.push(([t, 0, 0], (0..out.ne[0] as usize).map(element).collect()));
    }
    expected
}
