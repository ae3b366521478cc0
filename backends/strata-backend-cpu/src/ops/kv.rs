//! The paged cache: where a position's cell is, and storing rows there. Reading is attention.rs's.

use strata_backend_abi::StrataDType;
use strata_backend_sdk::Result;

use super::math::BLOCK;
use super::{Access, Op, RowOp, RowPlan, Run, Scratch, ScratchNeeds};
use crate::memory::View;

/// Finds the cell of a position: page table `[pages, sequences]`, pages of a power of two.
#[derive(Debug, Clone)]
pub(crate) struct Pages {
    pub(crate) table: View,
    pub(crate) page_size: usize,
}

impl Pages {
    pub(crate) fn new(table: &View, page_size: i64) -> Pages {
        Pages { table: table.clone(), page_size: (page_size.max(1) as usize).next_power_of_two() }
    }

    /// Positions that the table has room for.
    pub(crate) fn positions(&self) -> usize {
        self.table.ne[0] * self.page_size
    }

    /// The cell of a position, and how many positions from it on lie in cells that follow one another.
    pub(crate) fn cell(
        &self,
        run: &Run<'_>,
        sequence: usize,
        position: usize,
        n_cells: usize,
    ) -> Option<(usize, usize)> {
        let (page, inside) = (position / self.page_size, position % self.page_size);
        if page >= self.table.ne[0] {
            run.fault.index("position", position as i32, self.positions());
            return None;
        }
        let place = self.table.load_i32([sequence, 0, 0], page);
        let place = run.fault.index("cache page", place, n_cells.div_ceil(self.page_size))?;
        let cell = place * self.page_size + inside;
        let cell = run.fault.index("cache cell", cell as i32, n_cells)?;
        Some((cell, (self.page_size - inside).min(n_cells - cell)))
    }
}

struct KvStore {
    cache: View,
    x: View,
    pages: Pages,
    sequence: View,
    position: View,
}

pub(crate) fn plan(op: &Op<'_>) -> Result<RowPlan> {
    let store = KvStore {
        cache: op.view(0)?.clone(),
        x: op.view(1)?.clone(),
        pages: Pages::new(op.view(2)?, op.int(0)),
        sequence: op.view(3)?.clone(),
        position: op.view(4)?.clone(),
    };
    Ok(RowPlan {
        units: store.x.extent(2),
        weight: store.x.ne[0] * store.x.ne[1],
        accesses: vec![
            Access::anywhere(&store.cache, true),
            Access::read(&store.x, 2),
            Access::anywhere(&store.pages.table, false),
            Access::anywhere(&store.sequence, false),
            Access::anywhere(&store.position, false),
        ],
        scratch: ScratchNeeds::floats(store.x.ne[0]),
        op: Box::new(store),
    })
}

impl RowOp for KvStore {
    fn unit(&self, run: &Run<'_>, unit: usize, scratch: &mut Scratch) {
        let sequence = self.sequence.load_i32([0, 0, 0], unit);
        let position = self.position.load_i32([0, 0, 0], unit);
        let Some(sequence) = run.fault.index("sequence", sequence, self.pages.table.ne[1]) else { return };
        let Some(position) = run.fault.index("position", position, self.pages.positions()) else { return };
        let Some((cell, _)) = self.pages.cell(run, sequence, position, self.cache.ne[2]) else { return };
        let values = &mut scratch.floats[..self.x.ne[0]];
        for head in 0..self.x.ne[1] {
            self.x.load([head, unit, 0], 0, values);
            let row = [head, cell, 0];
            if self.cache.dtype == StrataDType::F16 && values.len() <= BLOCK {
                let mut bits = [0; BLOCK];
                let bits = &mut bits[..values.len()];
                (run.kernels.narrow_f16)(values, bits);
                self.cache.store_halves(row, bits);
            } else {
                self.cache.store(row, 0, values);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Machine;
    use strata_backend_abi::{StrataDType, StrataOpKind};

    #[test]
    fn rows_land_in_their_pages() {
        for dtype in [StrataDType::F32, StrataDType::F16, StrataDType::BF16] {
            let mut machine = Machine::new();
            let cache = machine.plain(dtype, [4, 2, 16, 1]);
            let x = machine.floats_with([4, 2, 3, 1], |i| i as f32);
            let table = machine.indices_2d(2, &[3, 1, 0, 2]);
            let sequence = machine.indices(&[0, 0, 1]);
            let position = machine.indices(&[3, 4, 6]);
            machine.op(StrataOpKind::KvStore, &[&cache, &x, &table, &sequence, &position], &[], &[4]).unwrap();
            let got = machine.read(&cache);
            // Sequence 0: position 3 in page 3, position 4 in page 1; sequence 1: position 6 in page 2.
            for (token, cell) in [(0, 15), (1, 4), (2, 10)] {
                let expected: Vec<f32> = (0..8).map(|i| (token * 8 + i) as f32).collect();
                assert_eq!(got[cell * 8..cell * 8 + 8], expected);
            }
            assert_eq!(got.iter().filter(|value| **value != 0.0).count(), 23);
        }
    }

    #[test]
    fn a_page_past_the_cache_is_a_fault() {
        for (pages, sequence, position) in [([9, 9], 0, 0), ([0, 1], 2, 0), ([0, 1], 0, 8), ([0, -1], 0, 5)] {
            let mut machine = Machine::new();
            let cache = machine.plain(StrataDType::F16, [4, 1, 8, 1]);
            let x = machine.floats([4, 1, 1, 1]);
            let table = machine.indices_2d(2, &pages);
            let (sequence, position) = (machine.indices(&[sequence]), machine.indices(&[position]));
            let failure =
                machine.op(StrataOpKind::KvStore, &[&cache, &x, &table, &sequence, &position], &[], &[4]).unwrap_err();
            assert!(failure.text.starts_with("host bug: "), "{}", failure.text);
        }
    }
}
