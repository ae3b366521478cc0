//! Rows by index: EmbeddingLookup (any format) and GatherRows.

use strata_backend_sdk::Result;

use super::{Access, Op, RowOp, RowPlan, Run, Scratch, ScratchNeeds};
use crate::matmul::dequantise_row;
use crate::memory::View;

/// `out[:, u] = factor · table[:, rows[u]]`
struct Lookup {
    out: View,
    table: View,
    rows: View,
    factor: f32,
    /// What an index is called in a message.
    noun: &'static str,
}

pub(crate) fn plan_embedding(op: &Op<'_>) -> Result<RowPlan> {
    plan(op, op.float(0), "token")
}

pub(crate) fn plan_gather(op: &Op<'_>) -> Result<RowPlan> {
    plan(op, 1.0, "row")
}

fn plan(op: &Op<'_>, factor: f32, noun: &'static str) -> Result<RowPlan> {
    let (out, table, rows) = (op.view(0)?, op.view(1)?, op.view(2)?);
    Ok(RowPlan {
        units: out.extent(1),
        weight: out.ne[0] * 2,
        accesses: vec![Access::write(out, 1), Access::anywhere(table, false), Access::anywhere(rows, false)],
        scratch: ScratchNeeds::floats(out.ne[0]),
        op: Box::new(Lookup { out: out.clone(), table: table.clone(), rows: rows.clone(), factor, noun }),
    })
}

impl RowOp for Lookup {
    fn unit(&self, run: &Run<'_>, unit: usize, scratch: &mut Scratch) {
        let row = self.rows.load_i32([0, 0, 0], unit);
        let Some(row) = run.fault.index(self.noun, row, self.table.ne[1]) else { return };
        let values = &mut scratch.floats[..self.out.ne[0]];
        dequantise_row(self.table.dtype, self.table.bytes([row, 0, 0]), values);
        if self.factor != 1.0 {
            (run.kernels.scale)(values, self.factor, 0.0);
        }
        self.out.store([unit, 0, 0], 0, values);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Machine;
    use strata_backend_abi::{StrataDType, StrataOpKind};

    #[test]
    fn rows_are_found_and_scaled() {
        let mut machine = Machine::new();
        let table = machine.plain(StrataDType::F16, [6, 4, 1, 1]);
        machine.fill(&table, |i| i as f32);
        let ids = machine.indices(&[2, 0, 2]);
        let out = machine.floats([6, 3, 1, 1]);
        machine.op(StrataOpKind::EmbeddingLookup, &[&out, &table, &ids], &[2.0], &[]).unwrap();
        let row = |r: usize| (0..6).map(move |i| 2.0 * (r * 6 + i) as f32);
        assert_eq!(machine.read(&out), row(2).chain(row(0)).chain(row(2)).collect::<Vec<_>>());
    }

    #[test]
    fn gathered_rows_are_exact() {
        let mut machine = Machine::new();
        let x = machine.floats_with([5, 4, 1, 1], |i| i as f32 / 3.0);
        let rows = machine.indices(&[3]);
        let out = machine.floats([5, 1, 1, 1]);
        machine.op(StrataOpKind::GatherRows, &[&out, &x, &rows], &[], &[]).unwrap();
        assert_eq!(machine.read(&out), machine.read(&x)[15..]);
    }

    #[test]
    fn a_token_past_the_vocabulary_is_a_fault() {
        let mut machine = Machine::new();
        let table = machine.floats([4, 3, 1, 1]);
        let out = machine.floats([4, 1, 1, 1]);
        let ids = machine.indices(&[3]);
        let failure = machine.op(StrataOpKind::EmbeddingLookup, &[&out, &table, &ids], &[1.0], &[]).unwrap_err();
        assert_eq!(failure.text, "host bug: token 3 is not below 3");
    }
}
