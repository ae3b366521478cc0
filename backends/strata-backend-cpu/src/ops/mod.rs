//! The operations. A file a family; each turns an op of the ABI into something that runs.
//!
//! Two kinds of runnable things exist. A [`RowOp`] works on one unit (mostly: one token) without
//! looking at others, so program.rs may run several of them on one unit before the next unit.
//! A [`Work`] is a stage of its own that cuts itself into chunks (matrix products, attention).
//! Neither kind depends on which worker runs it. Called by program.rs only.

pub(crate) mod math;
pub(crate) mod support;

pub(crate) mod attention;
pub(crate) mod elementwise;
pub(crate) mod experts;
pub(crate) mod kv;
pub(crate) mod linear;
pub(crate) mod lookup;
pub(crate) mod norm;
pub(crate) mod rope;
pub(crate) mod router;

#[cfg(test)]
pub(crate) mod testing;

use std::sync::Mutex;
use std::sync::PoisonError;

use strata_backend_abi::{StrataOp, StrataOpKind};
use strata_backend_sdk::{Failure, Result};

use crate::memory::{Extent, RowIndex, View};
use crate::simd::Line;
use math::Kernels;

/// What a chunk of a run may look at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) scalars: &'a [i64],
    pub(crate) kernels: &'static Kernels,
    pub(crate) fault: &'a Fault,
}

/// The first thing that went wrong in a run: an index out of range in the host's data, or a panic.
#[derive(Debug, Default)]
pub(crate) struct Fault(Mutex<Option<Failure>>);

impl Fault {
    /// Keeps the failure if it is the first.
    pub(crate) fn report(&self, failure: Failure) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }

    pub(crate) fn take(&self) -> Result<()> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// `value` as an index below `limit`; reports a fault of the host otherwise.
    pub(crate) fn index(&self, what: &str, value: i32, limit: usize) -> Option<usize> {
        let index = usize::try_from(value).ok().filter(|index| *index < limit);
        if index.is_none() {
            self.report(Failure::host_bug(format_args!("{what} {value} is not below {limit}")));
        }
        index
    }
}

/// A worker's private memory, allocated when the program is compiled.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) floats: Vec<f32>,
    pub(crate) lines: Vec<Line>,
}

/// How much of it something needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ScratchNeeds {
    pub(crate) floats: usize,
    pub(crate) lines: usize,
}

impl ScratchNeeds {
    pub(crate) fn floats(floats: usize) -> ScratchNeeds {
        ScratchNeeds { floats, lines: 0 }
    }

    #[must_use]
    pub(crate) fn max(self, other: ScratchNeeds) -> ScratchNeeds {
        ScratchNeeds { floats: self.floats.max(other.floats), lines: self.lines.max(other.lines) }
    }
}

/// Something that computes one unit from the unit's own inputs.
pub(crate) trait RowOp: Send + Sync {
    fn unit(&self, run: &Run<'_>, unit: usize, scratch: &mut Scratch);
}

/// A stage of its own.
pub(crate) trait Work: Send + Sync {
    /// Chunks of a run with these scalars; may be 0.
    fn chunks(&self, scalars: &[i64]) -> usize;
    fn chunk(&self, run: &Run<'_>, chunk: usize, scratch: &mut Scratch);
    fn scratch(&self) -> ScratchNeeds;
}

/// How a row op touches a tensor, for deciding what may be fused.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) view: View,
    /// Dimension that counts units; `None`: any unit may touch any part.
    pub(crate) unit: Option<usize>,
    pub(crate) write: bool,
}

impl Access {
    pub(crate) fn read(view: &View, unit: usize) -> Access {
        Access { view: view.clone(), unit: Some(unit), write: false }
    }

    pub(crate) fn write(view: &View, unit: usize) -> Access {
        Access { view: view.clone(), unit: Some(unit), write: true }
    }

    pub(crate) fn anywhere(view: &View, write: bool) -> Access {
        Access { view: view.clone(), unit: None, write }
    }
}

/// A row op with what program.rs must know of it.
pub(crate) struct RowPlan {
    pub(crate) op: Box<dyn RowOp>,
    pub(crate) units: Extent,
    pub(crate) accesses: Vec<Access>,
    /// Rough work of a unit, in elements.
    pub(crate) weight: usize,
    pub(crate) scratch: ScratchNeeds,
}

/// An op of the program with its operands found.
#[derive(Debug)]
pub(crate) struct Op<'a> {
    pub(crate) raw: &'a StrataOp,
    pub(crate) kind: StrataOpKind,
    pub(crate) views: Vec<Option<View>>,
}

impl Op<'_> {
    /// The operand in a slot that the op needs.
    pub(crate) fn view(&self, slot: usize) -> Result<&View> {
        self.optional(slot)
            .ok_or_else(|| Failure::host_bug(format_args!("{:?} without an operand in slot {slot}", self.kind)))
    }

    pub(crate) fn optional(&self, slot: usize) -> Option<&View> {
        self.views.get(slot).and_then(Option::as_ref)
    }

    pub(crate) fn float(&self, index: usize) -> f32 {
        self.raw.float[index]
    }

    pub(crate) fn int(&self, index: usize) -> i64 {
        self.raw.int[index]
    }
}

/// The rows of a tensor, cut into units along its outermost used dimension.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowSpace {
    extents: [Extent; 3],
    /// Dimension that counts units, 1 to 3.
    pub(crate) unit: usize,
}

impl RowSpace {
    pub(crate) fn of(view: &View) -> RowSpace {
        let extents = [view.extent(1), view.extent(2), view.extent(3)];
        let unit = extents.iter().rposition(|extent| *extent != Extent::ONE).unwrap_or(0) + 1;
        RowSpace { extents, unit }
    }

    pub(crate) fn units(&self) -> Extent {
        self.extents[self.unit - 1]
    }

    /// Greatest number of rows in a unit.
    pub(crate) fn rows_per_unit(&self) -> usize {
        self.extents[..self.unit - 1].iter().map(|extent| extent.most).product()
    }

    /// Visits the rows of a unit.
    pub(crate) fn each_row(&self, unit: usize, scalars: &[i64], mut visit: impl FnMut(RowIndex)) {
        let n = |dimension: usize| {
            if dimension < self.unit { self.extents[dimension - 1].value(scalars) } else { 1 }
        };
        for outer in 0..n(2) {
            for inner in 0..n(1) {
                let mut row = [inner, outer, 0];
                row[self.unit - 1] = unit;
                visit(row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::Machine;

    #[test]
    fn rows_of_units() {
        let machine = Machine::new();
        let list = |ne: [u64; 4], unit: usize| {
            let space = RowSpace::of(&machine.floats(ne).view);
            let mut rows = Vec::new();
            space.each_row(unit, &[], |row| rows.push(row));
            rows
        };
        assert_eq!(list([4, 1, 1, 1], 0), [[0, 0, 0]]);
        assert_eq!(list([4, 5, 1, 1], 3), [[3, 0, 0]]);
        assert_eq!(list([4, 2, 5, 1], 3), [[0, 3, 0], [1, 3, 0]]);
        assert_eq!(list([4, 2, 2, 3], 1), [[0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]]);
    }

    #[test]
    fn the_first_fault_counts() {
        let fault = Fault::default();
        assert_eq!(fault.index("token", 3, 4), Some(3));
        assert_eq!(fault.index("token", -1, 4), None);
        assert_eq!(fault.index("token", 9, 4), None);
        assert_eq!(fault.take().unwrap_err().text, "host bug: token -1 is not below 4");
        assert!(fault.take().is_ok());
    }
}
