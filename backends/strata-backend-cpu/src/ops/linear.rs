//! Matrix products: preparing activations (a row op) and the products of one or several weight
//! matrices with the same activations (a stage). The arithmetic is `crate::matmul`'s.

use strata_backend_abi::StrataDType;

use super::math::BLOCK;
use super::{Access, RowOp, RowPlan, Run, Scratch, ScratchNeeds, Work};
use crate::matmul::{Columns, Job, Plan};
use crate::memory::{Extent, LineRows, View};

/// A chunk reads at most about this much of the weights: small enough that the last chunk of a
/// stage keeps nobody waiting long, large enough that claiming it costs nothing beside it.
const MOST_CHUNK_BYTES: usize = 128 * 1024;
/// And at least this, unless the matrix has less.
const LEAST_CHUNK_BYTES: usize = 12 * 1024;
/// Chunks per worker that a stage aims at between those bounds.
const CHUNKS_PER_WORKER: usize = 8;
/// Rows that kernels handle together.
const ROW_GROUP: usize = crate::matmul::ROW_GROUP;

/// Rows of weights in a chunk, for a stage with `n_rows` rows in all.
pub(crate) fn rows_per_chunk(n_rows: usize, row_bytes: usize, n_workers: usize) -> usize {
    if n_workers <= 1 {
        return n_rows.max(1);
    }
    let even = n_rows.div_ceil(n_workers * CHUNKS_PER_WORKER);
    let row_bytes = row_bytes.max(1);
    let least = LEAST_CHUNK_BYTES.div_ceil(row_bytes);
    let most = (MOST_CHUNK_BYTES / row_bytes).max(least);
    even.clamp(least, most).next_multiple_of(ROW_GROUP)
}

/// Turns a unit's activation rows into the lines that the products read.
struct Prepare {
    plan: Plan,
    x: View,
    /// Dimension of `x` that counts units: 1 of `[K, T]`, 2 of `[K, n, T]`.
    unit: usize,
    lines: LineRows,
}

/// Plans the preparation of `x`, whose units lie along dimension `unit`, as rows of `lines` in order.
pub(crate) fn prepare(plan: &Plan, x: &View, unit: usize, lines: &LineRows) -> RowPlan {
    RowPlan {
        units: x.extent(unit),
        accesses: vec![Access::read(x, unit)],
        weight: 2 * x.ne[0] * if unit == 2 { x.ne[1] } else { 1 },
        scratch: ScratchNeeds::floats(x.ne[0]),
        op: Box::new(Prepare { plan: plan.clone(), x: x.clone(), unit, lines: lines.clone() }),
    }
}

impl RowOp for Prepare {
    fn unit(&self, _run: &Run<'_>, unit: usize, scratch: &mut Scratch) {
        let rows = if self.unit == 2 { self.x.ne[1] } else { 1 };
        for inner in 0..rows {
            let row = if self.unit == 2 { [inner, unit, 0] } else { [unit, 0, 0] };
            self.lines.fill(unit * rows + inner, |lines| {
                if self.x.dtype == StrataDType::F16 {
                    self.plan.prepare_f16(self.x.halves(row), lines);
                } else {
                    let values = &mut scratch.floats[..self.x.ne[0]];
                    self.x.load(row, 0, values);
                    self.plan.prepare_f32(values, lines);
                }
            });
        }
    }
}

/// One weight matrix of a stage.
pub(crate) struct Part {
    pub(crate) plan: Plan,
    pub(crate) w: View,
    pub(crate) out: View,
    pub(crate) bias: Option<View>,
}

/// Products of several matrices with the same prepared activations.
pub(crate) struct Linear {
    parts: Vec<Part>,
    /// Per part: rows in a chunk, and the stage's number of its first chunk.
    cuts: Vec<(usize, usize)>,
    n_chunks: usize,
    columns: Extent,
    lines: LineRows,
}

impl Linear {
    pub(crate) fn new(parts: Vec<Part>, columns: Extent, lines: LineRows, n_workers: usize) -> Linear {
        let n_rows: usize = parts.iter().map(|part| part.w.ne[1]).sum();
        let mut n_chunks = 0;
        let cuts = parts
            .iter()
            .map(|part| {
                let rows = rows_per_chunk(n_rows, part.plan.row_bytes(), n_workers);
                let first = n_chunks;
                n_chunks += part.w.ne[1].div_ceil(rows);
                (rows, first)
            })
            .collect();
        Linear { parts, cuts, n_chunks, columns, lines }
    }
}

impl Work for Linear {
    fn chunks(&self, scalars: &[i64]) -> usize {
        if self.columns.value(scalars) == 0 { 0 } else { self.n_chunks }
    }

    fn chunk(&self, run: &Run<'_>, chunk: usize, scratch: &mut Scratch) {
        let index = self.cuts.partition_point(|(_, first)| *first <= chunk) - 1;
        let (part, (rows_per_chunk, first)) = (&self.parts[index], self.cuts[index]);
        let n_columns = self.columns.value(run.scalars);
        let n_rows = part.w.ne[1];
        let start = (chunk - first) * rows_per_chunk;
        let rows = start..n_rows.min(start + rows_per_chunk);
        let job = Job {
            weights: part.w.matrix([0, 0]),
            row_stride: part.w.stride(1),
            n_rows,
            prepared: self.lines.rows(n_columns),
            bias: part.bias.as_ref().map(|bias| bias.floats([0, 0, 0])),
            columns: Columns::All(n_columns),
        };
        let mut out = part.out.out_part(rows.clone(), n_columns, 1);
        part.plan.run(&job, rows, &mut scratch.lines, &mut out);
    }

    fn scratch(&self) -> ScratchNeeds {
        let lines = self.parts.iter().map(|part| part.plan.scratch_lines()).max().unwrap_or(0);
        ScratchNeeds { floats: BLOCK, lines }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Machine;
    use super::*;
    use strata_backend_abi::StrataOpKind;

    #[test]
    fn chunks_are_of_a_sensible_size() {
        assert_eq!(rows_per_chunk(1536, 360, 1), 1536);
        let rows = rows_per_chunk(3072, 360, 2);
        assert!(rows.is_multiple_of(ROW_GROUP) && (64..=256).contains(&rows), "{rows}");
        // The head of a large vocabulary.
        let rows = rows_per_chunk(262_144, 680, 2);
        assert!(rows * 680 <= 150 * 1024, "{rows}");
        assert_eq!(rows_per_chunk(5, 4, 2), 3072);
    }

    /// Plain products of what the format stores, against F32 weights.
    #[test]
    fn float_weights_with_bias() {
        let mut machine = Machine::new();
        let (k, m, t) = (40_usize, 50_usize, 3_usize);
        let value = |i: usize| ((i * 29 % 83) as f32 - 41.0) / 20.0;
        let w = machine.floats_with([k as u64, m as u64, 1, 1], value);
        let x = machine.floats_with([k as u64, t as u64, 1, 1], |i| value(i + 7));
        let bias = machine.floats_with([m as u64, 1, 1, 1], |i| i as f32);
        let out = machine.floats([m as u64, t as u64, 1, 1]);
        machine.op(StrataOpKind::MatMul, &[&out, &w, &x, &bias], &[], &[]).unwrap();
        for (i, got) in machine.read(&out).into_iter().enumerate() {
            let (column, row) = (i / m, i % m);
            let exact: f64 = (0..k).map(|j| f64::from(value(row * k + j)) * f64::from(value(column * k + j + 7))).sum();
            assert!((f64::from(got) - exact - row as f64).abs() < 1e-4, "{i}");
        }
    }

    #[test]
    fn quantised_weights_and_half_activations() {
        let mut machine = Machine::new();
        // Q8_0 by hand: scale 1/4, weights i mod 100 - 50.
        let (k, m) = (64_usize, 24_usize);
        let w = machine.raw(StrataDType::Q8_0, [k as u64, m as u64, 1, 1], |block, bytes| {
            bytes[..2].copy_from_slice(&half::f16::from_f32(0.25).to_le_bytes());
            for (i, byte) in bytes[2..].iter_mut().enumerate() {
                *byte = (((block * 32 + i) % 100) as i8 - 50) as u8;
            }
        });
        let x = machine.plain(StrataDType::F16, [k as u64, 2, 1, 1]);
        machine.fill(&x, |i| ((i % 13) as f32 - 6.0) / 8.0);
        let out = machine.floats([m as u64, 2, 1, 1]);
        for (precise, tolerance) in [(false, 2.0), (true, 1e-3)] {
            machine.precise = precise;
            machine.op(StrataOpKind::MatMul, &[&out, &w, &x], &[], &[]).unwrap();
            for (i, got) in machine.read(&out).into_iter().enumerate() {
                let (column, row) = (i / m, i % m);
                let weight = |j: usize| (((row * k + j) % 100) as f64 - 50.0) * 0.25;
                let exact: f64 = (0..k).map(|j| weight(j) * ((((column * k + j) % 13) as f64 - 6.0) / 8.0)).sum();
                assert!((f64::from(got) - exact).abs() < tolerance, "{got} {exact}");
            }
        }
    }
}
