//! Mixture of experts: which tokens go to which expert (Route), the products of the chosen experts
//! (one pass over an expert's weights for all its tokens), and the weighted sum of their results.

use std::sync::{Arc, PoisonError, RwLock};

use strata_backend_sdk::{Failure, Result};

use super::linear::Part;
use super::math::BLOCK;
use super::{Access, Op, RowOp, RowPlan, Run, Scratch, ScratchNeeds, Work};
use crate::matmul::{Columns, Job, ROW_GROUP};
use crate::memory::{Extent, LineRows, View};

/// A chunk reads about this much of an expert's weights.
const CHUNK_BYTES: usize = 48 * 1024;

/// The step's choices, sorted by expert. Sized when the program is compiled.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// Per expert in use: its place in the weights, and its range of the pairs.
    used: Vec<(usize, std::ops::Range<usize>)>,
    /// (token, column of the result), for inputs shared by a token's experts.
    by_token: Vec<(u32, u32)>,
    /// (column, column), for inputs of each chosen expert.
    by_column: Vec<(u32, u32)>,
    /// Columns whose expert is not here.
    absent: Vec<u32>,
    /// Per place in the weights: choices, then where the next one goes.
    counts: Vec<usize>,
}

/// Shared by the stages of one program; a Route stage fills it for those that follow.
pub(crate) type SharedLists = Arc<RwLock<Lists>>;

impl Lists {
    /// Room for `n_columns` choices among `n_slots` experts.
    pub(crate) fn reserve(lists: &SharedLists, n_slots: usize, n_columns: usize) -> Result<()> {
        let mut lists = lists.write().unwrap_or_else(PoisonError::into_inner);
        let lists = &mut *lists;
        lists.used.clear();
        let used = lists.used.try_reserve(n_slots.min(n_columns));
        let counts = lists.counts.try_reserve(n_slots.saturating_sub(lists.counts.len()));
        let pairs = lists.by_token.try_reserve(n_columns).and(lists.by_column.try_reserve(n_columns));
        let absent = lists.absent.try_reserve(n_columns);
        used.and(counts)
            .and(pairs)
            .and(absent)
            .map_err(|error| Failure::out_of_memory(format!("the lists of {n_columns} expert choices: {error}")))
    }
}

/// Where a chosen expert lies.
enum Place {
    Slot(usize),
    Elsewhere,
    /// The host's numbers are wrong, which was reported.
    Fault,
}

/// Sorts the choices of a step by expert.
pub(crate) struct Route {
    ids: View,
    table: Option<View>,
    n_slots: usize,
    lists: SharedLists,
}

impl Route {
    pub(crate) fn new(ids: &View, table: Option<&View>, n_slots: usize, lists: &SharedLists) -> Route {
        Route { ids: ids.clone(), table: table.cloned(), n_slots, lists: Arc::clone(lists) }
    }

    /// Whether another op makes the same choices.
    pub(crate) fn same(&self, ids: &View, table: Option<&View>, n_slots: usize) -> bool {
        let tables = match (&self.table, table) {
            (None, None) => true,
            (Some(a), Some(b)) => a.same(b),
            _ => false,
        };
        tables && self.n_slots == n_slots && self.ids.same(ids)
    }

    /// What a change of makes the lists stale.
    pub(crate) fn depends_on(&self, written: &View) -> bool {
        self.ids.overlaps(written) || self.table.as_ref().is_some_and(|table| table.overlaps(written))
    }

    /// Where the expert of a choice lies.
    fn place(&self, run: &Run<'_>, token: usize, index: usize) -> Place {
        let id = self.ids.load_i32([token, 0, 0], index);
        let found = match &self.table {
            None => run.fault.index("expert", id, self.n_slots),
            Some(table) => {
                let place = run.fault.index("expert", id, table.ne[0]).map(|id| table.load_i32([0, 0, 0], id));
                if place.is_some_and(|place| place < 0) {
                    return Place::Elsewhere;
                }
                place.and_then(|place| run.fault.index("expert slot", place, self.n_slots))
            }
        };
        found.map_or(Place::Fault, Place::Slot)
    }
}

impl Work for RouteStage {
    fn chunks(&self, scalars: &[i64]) -> usize {
        usize::from(self.0.ids.extent(1).value(scalars) > 0)
    }

    fn chunk(&self, run: &Run<'_>, _chunk: usize, _scratch: &mut Scratch) {
        let route = &self.0;
        let (n_chosen, n_tokens) = (route.ids.ne[0], route.ids.extent(1).value(run.scalars));
        let mut lists = route.lists.write().unwrap_or_else(PoisonError::into_inner);
        let Lists { used, by_token, by_column, absent, counts } = &mut *lists;
        used.clear();
        absent.clear();
        counts.clear();
        counts.resize(route.n_slots, 0);
        let mut n_present = 0;
        for column in 0..n_tokens * n_chosen {
            match route.place(run, column / n_chosen, column % n_chosen) {
                Place::Slot(slot) => {
                    counts[slot] += 1;
                    n_present += 1;
                }
                Place::Elsewhere => absent.push(column as u32),
                Place::Fault => {}
            }
        }
        let mut start = 0;
        for (slot, count) in counts.iter_mut().enumerate() {
            let n = std::mem::replace(count, start);
            if n > 0 {
                used.push((slot, start..start + n));
            }
            start += n;
        }
        by_token.clear();
        by_token.resize(n_present, (0, 0));
        by_column.clear();
        by_column.resize(n_present, (0, 0));
        for column in 0..n_tokens * n_chosen {
            if let Place::Slot(slot) = route.place(run, column / n_chosen, column % n_chosen) {
                let place = counts[slot];
                counts[slot] += 1;
                by_token[place] = ((column / n_chosen) as u32, column as u32);
                by_column[place] = (column as u32, column as u32);
            }
        }
    }

    fn scratch(&self) -> ScratchNeeds {
        ScratchNeeds::default()
    }
}

/// The stage that a [`Route`] is; shared so that program.rs can ask it later what it depends on.
pub(crate) struct RouteStage(pub(crate) Arc<Route>);

/// Products of the chosen experts of one or several weight tensors with the same input.
pub(crate) struct ExpertLinear {
    parts: Vec<Part>,
    /// Per part: rows in a chunk, and the number of its first chunk within an expert's.
    cuts: Vec<(usize, usize)>,
    chunks_per_expert: usize,
    /// Every chosen expert has an input row of its own.
    input_per_expert: bool,
    n_chosen: usize,
    tokens: Extent,
    n_slots: usize,
    /// Experts may be elsewhere; their columns are set to zero here.
    may_be_absent: bool,
    lines: LineRows,
    lists: SharedLists,
}

impl ExpertLinear {
    pub(crate) fn new(parts: Vec<Part>, x: &View, route: &Route, lines: LineRows) -> ExpertLinear {
        let mut chunks_per_expert = 0;
        let cuts = parts
            .iter()
            .map(|part| {
                let rows = (CHUNK_BYTES / part.plan.row_bytes().max(1)).max(1).next_multiple_of(ROW_GROUP);
                let first = chunks_per_expert;
                chunks_per_expert += part.w.ne[1].div_ceil(rows);
                (rows, first)
            })
            .collect();
        ExpertLinear {
            parts,
            cuts,
            chunks_per_expert,
            input_per_expert: x.ne[1] > 1,
            n_chosen: route.ids.ne[0],
            tokens: x.extent(2),
            n_slots: route.n_slots,
            may_be_absent: route.table.is_some(),
            lines,
            lists: Arc::clone(&route.lists),
        }
    }

    /// Experts that a step of this many tokens can use at most.
    fn most_used(&self, scalars: &[i64]) -> usize {
        (self.n_chosen * self.tokens.value(scalars)).min(self.n_slots)
    }

    fn clear_absent(&self, run: &Run<'_>, lists: &Lists) {
        let n_columns = self.n_chosen * self.tokens.value(run.scalars);
        let zeros = [0.0; BLOCK];
        for part in &self.parts {
            let n_rows = part.w.ne[1];
            // Nobody else writes these columns: they are in no expert's list.
            for column in lists.absent.iter().map(|column| *column as usize).filter(|column| *column < n_columns) {
                let row = [column % self.n_chosen, column / self.n_chosen, 0];
                for start in (0..n_rows).step_by(BLOCK) {
                    part.out.store(row, start, &zeros[..BLOCK.min(n_rows - start)]);
                }
            }
        }
    }
}

impl Work for ExpertLinear {
    fn chunks(&self, scalars: &[i64]) -> usize {
        let used = self.most_used(scalars);
        let n_tokens = self.tokens.value(scalars);
        used * self.chunks_per_expert + usize::from(self.may_be_absent && n_tokens > 0)
    }

    fn chunk(&self, run: &Run<'_>, chunk: usize, scratch: &mut Scratch) {
        let lists = self.lists.read().unwrap_or_else(PoisonError::into_inner);
        if chunk == self.most_used(run.scalars) * self.chunks_per_expert {
            self.clear_absent(run, &lists);
            return;
        }
        let Some((slot, range)) = lists.used.get(chunk / self.chunks_per_expert) else { return };
        let within = chunk % self.chunks_per_expert;
        let index = self.cuts.partition_point(|(_, first)| *first <= within) - 1;
        let (part, (rows_per_chunk, first)) = (&self.parts[index], self.cuts[index]);
        let pairs = if self.input_per_expert { &lists.by_column } else { &lists.by_token };
        let n_tokens = self.tokens.value(run.scalars);
        let n_columns = self.n_chosen * n_tokens;
        let n_rows = part.w.ne[1];
        let start = (within - first) * rows_per_chunk;
        let rows = start..n_rows.min(start + rows_per_chunk);
        let job = Job {
            weights: part.w.matrix([*slot, 0]),
            row_stride: part.w.stride(1),
            n_rows,
            prepared: self.lines.rows(if self.input_per_expert { n_columns } else { n_tokens }),
            bias: None,
            columns: Columns::Listed(&pairs[range.clone()]),
        };
        let mut out = part.out.out_part(rows.clone(), n_columns, 1);
        part.plan.run(&job, rows, &mut scratch.lines, &mut out);
    }

    fn scratch(&self) -> ScratchNeeds {
        let lines = self.parts.iter().map(|part| part.plan.scratch_lines()).max().unwrap_or(0);
        ScratchNeeds { floats: BLOCK, lines }
    }
}

struct Combine {
    out: View,
    x: View,
    weights: View,
}

pub(crate) fn plan_combine(op: &Op<'_>) -> Result<RowPlan> {
    let (out, x, weights) = (op.view(0)?, op.view(1)?, op.view(2)?);
    Ok(RowPlan {
        units: out.extent(1),
        weight: x.ne[0] * x.ne[1],
        accesses: vec![Access::write(out, 1), Access::read(x, 2), Access::read(weights, 1)],
        scratch: ScratchNeeds::floats(x.ne[1]),
        op: Box::new(Combine { out: out.clone(), x: x.clone(), weights: weights.clone() }),
    })
}

impl RowOp for Combine {
    fn unit(&self, run: &Run<'_>, unit: usize, scratch: &mut Scratch) {
        let weights = &mut scratch.floats[..self.x.ne[1]];
        self.weights.load([unit, 0, 0], 0, weights);
        for start in (0..self.out.ne[0]).step_by(BLOCK) {
            let n = BLOCK.min(self.out.ne[0] - start);
            let (mut sum, mut values) = ([0.0; BLOCK], [0.0; BLOCK]);
            for (index, weight) in weights.iter().enumerate() {
                self.x.load([index, unit, 0], start, &mut values[..n]);
                (run.kernels.add_scaled)(&mut sum[..n], &values[..n], *weight);
            }
            self.out.store([unit, 0, 0], start, &sum[..n]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Machine, Operand};
    use strata_backend_abi::StrataOpKind;

    fn value(i: usize) -> f32 {
        ((i * 31 % 67) as f32 - 33.0) / 16.0
    }

    fn check(shared_input: bool, tokens: usize, with_table: bool) {
        let mut machine = Machine::new();
        let (k, m, chosen, slots) = (24_usize, 40_usize, 3_usize, 5_usize);
        let w = machine.floats_with([k as u64, m as u64, slots as u64, 1], value);
        let inputs = if shared_input { 1 } else { chosen };
        let x = machine.floats_with([k as u64, inputs as u64, tokens as u64, 1], |i| value(i + 3));
        // Expert e lies at slot 4 - e; 5 is not here; 6 lies at slot 0 again.
        let table = [4, 3, 2, 1, 0, -1, 0];
        let ids: Vec<i32> = (0..tokens * chosen).map(|i| (i * 5 % if with_table { 7 } else { 5 }) as i32).collect();
        let out = machine.floats_with([m as u64, chosen as u64, tokens as u64, 1], |_| 7.0);
        let id_operand = machine.indices_2d(chosen as u64, &ids);
        let table_operand = with_table.then(|| machine.indices(&table));
        let mut operands: Vec<&Operand> = vec![&out, &w, &x, &id_operand];
        operands.extend(table_operand.as_ref());
        machine.op(StrataOpKind::ExpertMatMul, &operands, &[], &[]).unwrap();
        for (i, got) in machine.read(&out).into_iter().enumerate() {
            let (column, row) = (i / m, i % m);
            let slot = if with_table { table[ids[column] as usize] } else { ids[column] };
            let input = if shared_input { column / chosen } else { column };
            let exact: f64 = if slot < 0 {
                0.0
            } else {
                let weights = (slot as usize * m + row) * k;
                (0..k).map(|j| f64::from(value(weights + j)) * f64::from(value(input * k + j + 3))).sum()
            };
            assert!((f64::from(got) - exact).abs() < 1e-4, "column {column} row {row}: {got} {exact}");
        }
    }

    #[test]
    fn experts_by_index() {
        for tokens in [1, 4] {
            check(true, tokens, false);
            check(false, tokens, false);
            check(true, tokens, true);
            check(false, tokens, true);
        }
    }

    #[test]
    fn an_expert_past_the_last_is_a_fault() {
        let mut machine = Machine::new();
        let w = machine.floats([8, 8, 2, 1]);
        let x = machine.floats([8, 1, 1, 1]);
        let out = machine.floats([8, 1, 1, 1]);
        let ids = machine.indices_2d(1, &[2]);
        let failure = machine.op(StrataOpKind::ExpertMatMul, &[&out, &w, &x, &ids], &[], &[]).unwrap_err();
        assert_eq!(failure.text, "host bug: expert 2 is not below 2");
    }

    #[test]
    fn results_are_weighed_and_added() {
        let mut machine = Machine::new();
        let x = machine.floats_with([300, 2, 2, 1], |i| i as f32);
        let weights = machine.floats_with([2, 2, 1, 1], |i| [0.5, 0.25, 2.0, -1.0][i]);
        let out = machine.floats([300, 2, 1, 1]);
        machine.op(StrataOpKind::ExpertCombine, &[&out, &x, &weights], &[], &[]).unwrap();
        let got = machine.read(&out);
        assert_eq!(got[7], 0.5 * 7.0 + 0.25 * 307.0);
        assert_eq!(got[599], 2.0 * 899.0 - 1199.0);
    }
}
