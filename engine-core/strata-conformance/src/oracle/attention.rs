//! The cache: storing rows into pages, and attention over them.

use super::{Call, Element, Expected, largest};
use crate::memory::{RowIndex, View};
use strata_backend_abi::StrataDType;

/// Finds cells of the paged cache.
struct Pages<'a> {
    call: &'a Call<'a>,
    table: View,
    sequence: View,
    position: View,
    page_size: i64,
}

impl<'a> Pages<'a> {
    /// The three index operands start at `first`.
    fn new(call: &'a Call<'a>, first: usize) -> Pages<'a> {
        Pages {
            call,
            table: call.view(first),
            sequence: call.view(first + 1),
            position: call.view(first + 2),
            page_size: call.int(0),
        }
    }

    fn position(&self, token: u64) -> i64 {
        self.call.memory.integer(&self.position, token, [0; 3])
    }

    fn cell(&self, token: u64, position: i64) -> u64 {
        let sequence = self.call.memory.integer(&self.sequence, token, [0; 3]) as u64;
        let page = self.call.memory.integer(&self.table, (position / self.page_size) as u64, [sequence, 0, 0]);
        (page * self.page_size + position % self.page_size) as u64
    }
}

/// The cells that `KvStore` writes, heads within tokens.
pub(super) fn cells(call: &Call<'_>) -> impl Iterator<Item = RowIndex> {
    let pages = Pages::new(call, 2);
    let [_, heads, tokens, _] = call.view(1).ne;
    (0..tokens).flat_map(move |t| {
        let cell = pages.cell(t, pages.position(t));
        (0..heads).map(move |head| [head, cell, 0])
    })
}

pub(super) fn kv_store(call: &Call<'_>) -> Expected {
    let (cache, x) = (call.view(0), call.view(1));
    let mut expected = Expected::new(cache, 1);
    let rows = (0..x.ne[2]).flat_map(|t| (0..x.ne[1]).map(move |head| [head, t, 0]));
    for (cell, source) in cells(call).zip(rows) {
        expected.rows.push((cell, stored(cache.dtype, &call.row(&x, source))));
    }
    expected
}

/// A row as the cache must hold it: exactly rounded in a plain format; in a block format within
/// a step of the block's range divided by the format's levels.
fn stored(cache: StrataDType, row: &[f64]) -> Vec<Element> {
    if !cache.is_quantised() {
        return row.iter().map(|value| Element::exact(round_to(cache, *value))).collect();
    }
    let levels = match cache {
        StrataDType::Q8_0 => 127.0,
        StrataDType::Q5_0 | StrataDType::Q5_1 => 15.0,
        _ => 7.0,
    };
    let block = cache.block_len();
    row.chunks(block)
        .flat_map(|chunk| {
            let greatest = largest(chunk);
            // Up to one step: a signed format reaches one end of the range only.
            let step = greatest / levels + greatest * f64::powi(2.0, -10);
            chunk.iter().map(move |value| Element { value: *value, scale: 0.0, eight_bit: step, half: 0.0 })
        })
        .collect()
}

fn round_to(dtype: StrataDType, value: f64) -> f64 {
    match dtype {
        StrataDType::F16 => crate::number::f16_to_f64(crate::number::f64_to_f16(value)),
        StrataDType::BF16 => crate::number::bf16_to_f64(crate::number::f64_to_bf16(value)),
        _ => value,
    }
}

/// One cell's logit and the sizes of its errors.
#[derive(Clone, Copy)]
struct Logit {
    value: f64,
    /// Σ |q·k| · scale: what f32 rounds.
    scale: f64,
    /// Error when q is rounded to a 16-bit format, resp. to 8 bits per block of 32.
    half: f64,
    eight_bit: f64,
}

fn logit(q: &[f64], k: &[f64], factor: f64, cap: f64, half_unit: f64) -> Logit {
    let (mut sum, mut scale, mut squares, mut variance) = (0.0, 0.0, 0.0, 0.0);
    for (q_block, k_block) in q.chunks(32).zip(k.chunks(32)) {
        let step = largest(q_block) / 127.0;
        for (a, b) in q_block.iter().zip(k_block) {
            sum += a * b;
            scale += (a * b).abs();
            squares += (a * b) * (a * b);
            variance += b * b * step * step / 12.0;
        }
    }
    let value = if cap > 0.0 { cap * (factor * sum / cap).tanh() } else { factor * sum };
    // tanh never steepens an error; it adds its own, which is of the cap's size.
    let scale = factor.abs() * scale + cap.max(0.0);
    let half = factor.abs() * 4.0 * half_unit * squares.sqrt();
    Logit { value, scale, half, eight_bit: factor.abs() * 6.0 * variance.sqrt() }
}

pub(super) fn attention(call: &Call<'_>) -> Expected {
    let (out, q, k, v) = (call.view(0), call.view(1), call.view(2), call.view(3));
    let pages = Pages::new(call, 4);
    let sinks = call.optional(7).map(|view| call.row(&view, [0; 3]));
    let heads_per_kv = q.ne[1] / k.ne[1];
    let window = call.int(1);
    let half_unit = f64::powi(2.0, if k.dtype == StrataDType::BF16 { -9 } else { -11 });
    let mut longest = q.ne[0] as usize;
    let mut rows = Vec::new();
    for t in 0..out.ne[2] {
        let last = pages.position(t);
        let first = if window > 0 { (last - window + 1).max(0) } else { 0 };
        let cells: Vec<u64> = (first..=last).map(|position| pages.cell(t, position)).collect();
        longest = longest.max(cells.len());
        for head in 0..out.ne[1] {
            let kv_head = head / heads_per_kv;
            let query = call.row(&q, [head, t, 0]);
            let logits: Vec<Logit> = cells
                .iter()
                .map(|cell| logit(&query, &call.row(&k, [kv_head, *cell, 0]), call.float(0), call.float(1), half_unit))
                .collect();
            let values: Vec<Vec<f64>> = cells.iter().map(|cell| call.row(&v, [kv_head, *cell, 0])).collect();
            let sink = sinks.as_ref().map(|sinks| sinks[head as usize]);
            rows.push(([head, t, 0], weighted(&logits, &values, sink, half_unit)));
        }
    }
    Expected { view: out, terms: longest, rows }
}

/// Softmax of the logits (a sink adds to the denominator only) times the values.
fn weighted(logits: &[Logit], values: &[Vec<f64>], sink: Option<f64>, half_unit: f64) -> Vec<Element> {
    let greatest = logits.iter().map(|logit| logit.value).chain(sink).fold(f64::NEG_INFINITY, f64::max);
    let terms: Vec<f64> = logits.iter().map(|logit| (logit.value - greatest).exp()).collect();
    let sum = terms.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - greatest).exp());
    let width = values[0].len();
    (0..width)
        .map(|i| {
            let value: f64 = terms.iter().zip(values).map(|(term, row)| term * row[i]).sum::<f64>() / sum;
            let mut element = Element::float(value, 0.0);
            for ((term, row), logit) in terms.iter().zip(values).zip(logits) {
                let share = term / sum;
                let size = share * row[i].abs();
                // An absolute error e in a logit moves its share by e, and the others back.
                let lever = share * (row[i].abs() + value.abs());
                element.scale += size + lever * logit.scale;
                element.half += size * 2.0 * half_unit + lever * logit.half;
                element.eight_bit += size * 2.0 * half_unit + lever * logit.eight_bit;
            }
            element
        })
        .collect()
}
