//! Rotary position embedding: turns pairs of a head's elements by the angles in the host's table.

use strata_backend_abi::StrataRopeStyle;
use strata_backend_sdk::Result;

use super::{Access, Op, RowOp, RowPlan, Run, Scratch, ScratchNeeds};
use crate::memory::View;

struct Rope {
    out: View,
    x: View,
    table: View,
    row: View,
    /// Neighbours form a pair, instead of halves.
    neighbours: bool,
    /// Elements that turn.
    n_rot: usize,
}

pub(crate) fn plan(op: &Op<'_>) -> Result<RowPlan> {
    let (out, x, table, row) = (op.view(0)?, op.view(1)?, op.view(2)?, op.view(3)?);
    let n_rot = op.int(1) as usize;
    let neighbours = op.int(0) == StrataRopeStyle::Norm as i64;
    Ok(RowPlan {
        units: out.extent(2),
        weight: out.ne[0] * out.ne[1] * 2,
        accesses: vec![
            Access::write(out, 2),
            Access::read(x, 2),
            Access::anywhere(table, false),
            Access::anywhere(row, false),
        ],
        scratch: ScratchNeeds::floats(out.ne[0] + 2 * n_rot),
        op: Box::new(Rope {
            out: out.clone(),
            x: x.clone(),
            table: table.clone(),
            row: row.clone(),
            neighbours,
            n_rot,
        }),
    })
}

impl RowOp for Rope {
    fn unit(&self, run: &Run<'_>, unit: usize, scratch: &mut Scratch) {
        let row = self.row.load_i32([0, 0, 0], unit);
        let Some(row) = run.fault.index("rotation table row", row, self.table.ne[2]) else { return };
        let (angles, rest) = scratch.floats.split_at_mut(self.n_rot);
        let (halves, head) = rest.split_at_mut(self.n_rot);
        let head = &mut head[..self.x.ne[0]];
        for (pair, angle) in angles.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            self.table.load([pair, row, 0], 0, angle);
        }
        for index in 0..self.x.ne[1] {
            self.x.load([index, unit, 0], 0, head);
            let turning = &mut head[..self.n_rot];
            if self.neighbours {
                let (a, b) = halves.split_at_mut(self.n_rot / 2);
                for ((a, b), pair) in a.iter_mut().zip(b.iter_mut()).zip(turning.as_chunks::<2>().0) {
                    [*a, *b] = *pair;
                }
                (run.kernels.rotate)(a, b, angles);
                for ((a, b), pair) in a.iter().zip(b.iter()).zip(turning.as_chunks_mut::<2>().0) {
                    *pair = [*a, *b];
                }
            } else {
                let (a, b) = turning.split_at_mut(self.n_rot / 2);
                (run.kernels.rotate)(a, b, angles);
            }
            self.out.store([index, unit, 0], 0, head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Machine;
    use strata_backend_abi::{StrataOpKind, StrataRopeStyle};

    #[test]
    fn both_styles_partial_and_in_place() {
        for (style, in_place) in [(StrataRopeStyle::Norm, false), (StrataRopeStyle::Neox, true)] {
            let mut machine = Machine::new();
            let (head, n_rot, heads, tokens) = (20, 12, 3, 2);
            let x = machine.floats_with([head, heads, tokens, 1], |i| i as f32 / 10.0);
            let before = machine.read(&x);
            let out = if in_place { x.clone() } else { machine.floats([head, heads, tokens, 1]) };
            let angle = |pair: usize, row: usize| 0.3 * (pair + 1) as f32 * row as f32;
            let table = machine.floats_with([2, n_rot / 2, 5, 1], |i| {
                let angle = angle(i / 2 % 6, i / 12);
                if i % 2 == 0 { angle.cos() } else { angle.sin() }
            });
            let rows = machine.indices(&[4, 1]);
            machine.op(StrataOpKind::Rope, &[&out, &x, &table, &rows], &[], &[style as i64, n_rot as i64]).unwrap();
            let got = machine.read(&out);
            for token in 0..2 {
                for base in (0..3).map(|h| (token * 3 + h) * 20) {
                    for pair in 0..6 {
                        let (i, j) = match style {
                            StrataRopeStyle::Norm => (2 * pair, 2 * pair + 1),
                            StrataRopeStyle::Neox => (pair, pair + 6),
                        };
                        let (sin, cos) = angle(pair, [4, 1][token]).sin_cos();
                        let (a, b) = (before[base + i], before[base + j]);
                        assert!((got[base + i] - (a * cos - b * sin)).abs() < 1e-5);
                        assert!((got[base + j] - (a * sin + b * cos)).abs() < 1e-5);
                    }
                    assert_eq!(got[base + 12..base + 20], before[base + 12..base + 20]);
                }
            }
        }
    }

    #[test]
    fn a_row_past_the_table_is_a_fault() {
        let mut machine = Machine::new();
        let x = machine.floats([4, 1, 1, 1]);
        let table = machine.floats([2, 2, 3, 1]);
        let rows = machine.indices(&[3]);
        let failure = machine.op(StrataOpKind::Rope, &[&x, &x, &table, &rows], &[], &[1, 4]).unwrap_err();
        assert_eq!(failure.text, "host bug: rotation table row 3 is not below 3");
    }
}
