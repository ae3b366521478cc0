//! Matrix times activations, for every weight format: `out[m, t] = Σₖ W[m, k] · x[k, t] (+ bias[m])`.
//!
//! A [`Plan`] is made once per op when a program is compiled. A run has two phases: activation rows
//! are *prepared* into lines of workspace (any worker, any row; several matmuls that read the same
//! `x` share them if their [`Plan::prepared`] is equal), then each worker computes a range of rows
//! for all columns. The ops that call this decide who does what; nothing here knows threads.
//!
//! # The order of the sums
//!
//! `out[m, t]` has the same bits however many columns there are, wherever the row falls and
//! whatever the kernels: every path follows one order, and the tests compare scalar and vector code
//! with `==` on the bits.
//!
//! **8-bit** (block formats, unless precise). Activations are quantised in blocks of 32
//! ([`ActivationBlock`]: `x = q · multiplier[half] · unit`), weights are whole numbers with a float
//! scale ([`WeightBlock`]). For blocks b = 0, 1, … in order, starting from `acc = 0`:
//!
//! 1. `S = Σ over halves h of sub[h] · multiplier[h] · Σ values·q`: whole numbers, below 2³¹, so that
//!    order and grouping do not matter and kernels are free to use what is fastest;
//! 2. `acc = fma(S as f32, scale · unit, acc)`;
//! 3. with one minimum a block `acc = fma(min, sum, acc)`; with minima per half
//!    `acc = fma((Σ sub_min·weighted) as f32, min · unit, acc)`.
//!
//! Vector code holds eight rows in a register's lanes and so never adds floats across lanes.
//!
//! **Float** (F32, F16, BF16 weights, and everything in precise programs, whose weights are
//! dequantised first). Eight partial sums, `p[k mod 8] = fma(w[k], x[k], p[k mod 8])` in order of k,
//! then `s[i] = p[i] + p[i + 4]` and `(s[0] + s[2]) + (s[1] + s[3])`.
//!
//! The bias is added last.

mod activation;
mod dequantise;
mod format;
mod format_iq;
mod scalar;
#[cfg(test)]
mod tests;
mod variant;

pub(crate) use dequantise::dequantise_row;
pub(crate) use variant::Variant;

pub(crate) use activation::half_scales;
pub(crate) use format::{Minimum, Shape, field, unpack};
pub(crate) use format_iq::{iq1_m_scale, sign_bytes};

#[cfg(doc)]
use crate::simd::WeightBlock;
use crate::simd::{ActivationBlock, BLOCK, Line, OutPart, view_mut};
use core::ops::Range;
use half::f16;
use strata_backend_abi::StrataDType;

/// Rows are handed to workers in multiples of this.
pub(crate) const ROW_GROUP: usize = 8;

/// What activation rows are turned into before the sums. Plans with equal values share the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Prepared {
    /// One [`ActivationBlock`] per 32 elements.
    Blocks { k: usize },
    /// Floats, zeros up to the end of the last line.
    Floats { k: usize },
}

/// How one matmul is computed: format, length of a row, precision and kernels.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) dtype: StrataDType,
    /// Elements of a row of weights.
    pub(crate) k: usize,
    variant: Variant,
    prepared: Prepared,
    row_bytes: usize,
}

/// The operands of one run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job<'a> {
    /// Row 0's first byte up to at least the last row's last.
    pub(crate) weights: &'a [u8],
    /// Bytes from one row to the next.
    pub(crate) row_stride: usize,
    pub(crate) n_rows: usize,
    /// Prepared activation rows, [`Plan::lines_per_row`] each.
    pub(crate) prepared: &'a [Line],
    /// One value a row.
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) columns: Columns<'a>,
}

/// Which prepared row each column of the result is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Columns<'a> {
    /// Column t from prepared row t, for this many.
    All(usize),
    /// `(prepared row, column of the result)`: the tokens that chose one expert.
    Listed(&'a [(u32, u32)]),
}

impl Columns<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Columns::All(n) => *n,
            Columns::Listed(list) => list.len(),
        }
    }

    /// The `index`-th column's prepared row and place in the result.
    pub(crate) fn get(&self, index: usize) -> (usize, usize) {
        match self {
            Columns::All(_) => (index, index),
            Columns::Listed(list) => (list[index].0 as usize, list[index].1 as usize),
        }
    }
}

impl Job<'_> {
    /// The bytes of a row.
    pub(crate) fn row(&self, index: usize, row_bytes: usize) -> &[u8] {
        &self.weights[index * self.row_stride..][..row_bytes]
    }
}

impl Plan {
    /// `k` is the length of a row. The error is a reason that `op_supported` can give.
    pub(crate) fn new(dtype: StrataDType, k: usize, precise: bool, variant: Variant) -> Result<Plan, String> {
        if dtype == StrataDType::I32 {
            return Err("weights of format I32".to_owned());
        }
        let row_bytes = dtype.row_bytes(k as u64).and_then(|bytes| usize::try_from(bytes).ok());
        let Some(row_bytes) = row_bytes.filter(|_| k > 0) else {
            return Err(format!("rows of {k} weights in {dtype}, whose blocks hold {}", dtype.block_len()));
        };
        let prepared =
            if precise || Shape::of(dtype).is_none() { Prepared::Floats { k } } else { Prepared::Blocks { k } };
        Ok(Plan { dtype, k, variant, prepared, row_bytes })
    }

    /// What [`Plan::prepare_f32`] makes.
    pub(crate) fn prepared(&self) -> Prepared {
        self.prepared
    }

    /// Lines of one prepared activation row.
    pub(crate) fn lines_per_row(&self) -> usize {
        match self.prepared {
            Prepared::Blocks { k } => k / BLOCK,
            Prepared::Floats { k } => float_lines(k),
        }
    }

    /// Bytes of one row of weights.
    pub(crate) fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Lines of scratch that one worker needs in [`Plan::run`], for itself alone.
    pub(crate) fn scratch_lines(&self) -> usize {
        match self.prepared {
            Prepared::Floats { k } => ROW_GROUP * float_lines(k),
            Prepared::Blocks { k } => (k / BLOCK) * crate::simd::TILE_LINES,
        }
    }

    /// Prepares one activation row: `x` holds `k` elements, `out` [`Plan::lines_per_row`] lines.
    pub(crate) fn prepare_f32(&self, x: &[f32], out: &mut [Line]) {
        assert!(x.len() == self.k && out.len() == self.lines_per_row());
        match self.prepared {
            Prepared::Blocks { .. } => quantise(self.variant, x.as_chunks().0, view_mut(out)),
            Prepared::Floats { .. } => {
                let (row, rest) = view_mut(out).split_at_mut(x.len());
                row.copy_from_slice(x);
                rest.fill(0.0);
            }
        }
    }

    /// As [`Plan::prepare_f32`], from half-precision numbers given by their bits.
    pub(crate) fn prepare_f16(&self, x: &[u16], out: &mut [Line]) {
        assert!(x.len() == self.k && out.len() == self.lines_per_row());
        match self.prepared {
            Prepared::Blocks { .. } => {
                for (x, out) in x.as_chunks::<BLOCK>().0.iter().zip(view_mut(out)) {
                    let x = x.map(|bits| f16::from_bits(bits).to_f32());
                    quantise(self.variant, &[x], core::slice::from_mut(out));
                }
            }
            Prepared::Floats { .. } => {
                let (row, rest) = view_mut::<f32>(out).split_at_mut(x.len());
                for (out, bits) in row.iter_mut().zip(x) {
                    *out = f16::from_bits(*bits).to_f32();
                }
                rest.fill(0.0);
            }
        }
    }

    /// Computes `rows` of the result for all columns of the job. Ranges that start at a multiple of
    /// [`ROW_GROUP`] are fastest; the bits do not depend on the range.
    pub(crate) fn run(&self, job: &Job<'_>, rows: Range<usize>, scratch: &mut [Line], out: &mut OutPart<'_>) {
        assert!(rows.end <= job.n_rows && scratch.len() >= self.scratch_lines());
        if rows.is_empty() || job.columns.len() == 0 {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if self.variant.has_avx2() {
            return crate::simd::x86::run(self, job, rows, scratch, out);
        }
        scalar::run(self, job, rows, scratch, out);
    }

    /// Kernels in use.
    pub(crate) fn variant(&self) -> Variant {
        self.variant
    }

    /// The rows that one of `n_workers` computes when all get an even share.
    #[cfg(test)]
    pub(crate) fn split(n_rows: usize, worker: usize, n_workers: usize) -> Range<usize> {
        let groups = n_rows.div_ceil(ROW_GROUP);
        let bound = |worker: usize| (groups * worker / n_workers * ROW_GROUP).min(n_rows);
        bound(worker)..bound(worker + 1)
    }
}

/// Lines that hold `k` floats.
pub(crate) fn float_lines(k: usize) -> usize {
    k.div_ceil(size_of::<Line>() / size_of::<f32>())
}

fn quantise(variant: Variant, x: &[[f32; BLOCK]], out: &mut [ActivationBlock]) {
    #[cfg(target_arch = "x86_64")]
    if variant.has_avx2() {
        return crate::simd::x86::quantise(x, out);
    }
    let _ = variant;
    for (x, out) in x.iter().zip(out) {
        *out = activation::quantise_block(x);
    }
}
