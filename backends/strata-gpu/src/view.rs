//! A tensor of a program as the planner sees it: where it lies on the card, and how large it is in a run.

use std::sync::Arc;

use strata_backend_sdk::abi::{STRATA_MAX_DIMS, StrataDType, StrataScalar, StrataTensor};
use strata_backend_sdk::{Failure, Result};

use crate::driver::Driver;
use crate::memory::Buffer;

/// What differs between two runs of a program, as far as launches depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) scalars: [i64; 4],
}

impl Run {
    pub(crate) fn new(scalars: &[i64]) -> Run {
        let mut all = [0; 4];
        for (place, scalar) in all.iter_mut().zip(scalars) {
            *place = *scalar;
        }
        Run { scalars: all }
    }

    pub(crate) fn tokens(&self) -> u64 {
        u64::try_from(self.scalars[StrataScalar::Tokens as usize]).unwrap_or(0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) address: u64,
    pub(crate) dtype: StrataDType,
    pub(crate) ne: [u64; STRATA_MAX_DIMS],
    pub(crate) nb: [u64; STRATA_MAX_DIMS],
    dynamic: [u32; STRATA_MAX_DIMS],
}

impl View {
    pub(crate) fn new<D: Driver>(tensor: &StrataTensor, buffers: &[Arc<Buffer<D>>]) -> Result<View> {
        let buffer = buffers.get(tensor.buffer as usize);
        let buffer = buffer.ok_or_else(|| Failure::host_bug("a tensor in a buffer that is not there"))?;
        Ok(View { address: buffer.address() + tensor.offset, ..View::shape(tensor)? })
    }

    /// Its place in its buffer only: for questions about support. Buffers begin at multiples of 256.
    pub(crate) fn shape(tensor: &StrataTensor) -> Result<View> {
        let dtype = StrataDType::from_number(tensor.dtype)
            .ok_or_else(|| Failure::unsupported(format!("format {} is not known to this plugin", tensor.dtype)))?;
        Ok(View { address: tensor.offset, dtype, ne: tensor.ne, nb: tensor.nb, dynamic: tensor.dynamic })
    }

    /// Extents in a run.
    pub(crate) fn extents(&self, run: &Run) -> [u64; STRATA_MAX_DIMS] {
        let mut extents = self.ne;
        for (extent, dynamic) in extents.iter_mut().zip(self.dynamic) {
            if let Some(scalar) = (dynamic as usize).checked_sub(1) {
                let value = run.scalars.get(scalar).copied().unwrap_or(0);
                *extent = u64::try_from(value).unwrap_or(0).min(*extent);
            }
        }
        extents
    }

    /// Whether two views are the same rows, whatever dimensions they are counted in.
    pub(crate) fn same_rows(&self, other: &View) -> bool {
        let rows = |view: &View| view.ne[1..].iter().product::<u64>();
        let step = |view: &View| (1..STRATA_MAX_DIMS).find(|dim| view.ne[*dim] > 1).map(|dim| view.nb[dim]);
        let counted = |view: &View| {
            let mut scalars: Vec<u32> = view.dynamic.into_iter().filter(|scalar| *scalar > 0).collect();
            scalars.sort_unstable();
            scalars
        };
        let even = |view: &View| view.evenly_spaced() && view.ne[3] == 1;
        self == other
            || self.address == other.address
                && self.dtype == other.dtype
                && self.ne[0] == other.ne[0]
                && rows(self) == rows(other)
                && step(self) == step(other)
                && counted(self) == counted(other)
                && even(self)
                && even(other)
    }

    /// Whether all rows begin at multiples of 16 bytes.
    pub(crate) fn aligned(&self) -> bool {
        self.address.is_multiple_of(16)
            && (1..STRATA_MAX_DIMS).all(|dim| self.ne[dim] == 1 || self.nb[dim].is_multiple_of(16))
    }

    /// Whether the view has no gaps, so that writing all of it writes every byte of its span.
    pub(crate) fn is_dense(&self) -> bool {
        let row = self.dtype.row_bytes(self.ne[0]);
        let elements = self.ne[1..].iter().product::<u64>();
        row.and_then(|row| row.checked_mul(elements)) == Some(self.span())
    }

    /// Whether the rows of the first three dimensions lie at one distance.
    pub(crate) fn evenly_spaced(&self) -> bool {
        self.ne[1] <= 1 || self.ne[2] <= 1 || self.nb[2] == self.ne[1] * self.nb[1]
    }

    /// The same elements as packed floats at another place.
    pub(crate) fn widened(&self, address: u64) -> View {
        let row = self.ne[0] * 4;
        let nb = [4, row, row * self.ne[1], row * self.ne[1] * self.ne[2]];
        View { address, dtype: StrataDType::F32, nb, ..self.clone() }
    }

    /// Elements from one index of dimension `dim` to the next; strides of plain types only.
    pub(crate) fn step(&self, dim: usize) -> u64 {
        self.nb[dim] / self.dtype.block_bytes() as u64
    }

    /// Bytes from the first to past the last.
    pub(crate) fn span(&self) -> u64 {
        if self.ne.contains(&0) {
            return 0;
        }
        let row = self.dtype.row_bytes(self.ne[0]).unwrap_or(self.nb[1]);
        (1..STRATA_MAX_DIMS).map(|dim| (self.ne[dim] - 1) * self.nb[dim]).sum::<u64>() + row
    }

    pub(crate) fn overlaps(&self, other: &View) -> bool {
        self.address < other.address + other.span() && other.address < self.address + self.span()
    }
}
