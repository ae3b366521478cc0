//! Kernels for x86-64: AVX2 with FMA and F16C, and one inner loop for the 8-bit dot products of
//! AVX-512 VNNI and AVX-VNNI.
//!
//! Called by `crate::matmul::Plan` when its variant says that the CPU has them. Each call splits its
//! rows into groups of eight and picks, by the number of columns alone, between kernels that give
//! the same bits: straight from the weights (`decode.rs`) or through a tile (`tiles.rs`).

mod decode;
mod floats;
mod formats;
mod formats_iq;
mod formats_k;
mod formats_plain;
mod load;
mod quantise;
mod tiles;
mod vnni;

use super::{ActivationBlock, BLOCK, Line, OutPart, TILE_BLOCK_LINES, TILE_ROWS, view, view_mut};
use crate::matmul::{Job, Plan, Prepared, Variant};
use core::arch::x86_64::{__m256, _mm256_add_ps};
use core::ops::Range;
use formats::{Format, Kind};
use formats_iq::{Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs};
use formats_k::{Iq4Xs, Q2K, Q3K, Q4K, Q5K, Q6K};
use formats_plain::{Iq4Nl, Mxfp4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
use strata_backend_abi::StrataDType;

/// From this many columns on, unpacking a tile pays.
const TILE_COLUMNS: usize = 4;
/// Activation lines that a pass over the rows keeps in the second-level cache.
const COLUMN_BLOCK_LINES: usize = 4096;

/// Quantises activation rows. The caller's variant has AVX2.
pub(crate) fn quantise(x: &[[f32; BLOCK]], out: &mut [ActivationBlock]) {
    debug_assert!(std::arch::is_x86_feature_detected!("avx2"));
    // SAFETY: `Variant` gives this path only to CPUs with AVX2, FMA and F16C.
    unsafe { quantise::quantise(x, out) }
}

/// Computes rows of a job. The plan's variant has AVX2.
pub(crate) fn run(plan: &Plan, job: &Job<'_>, rows: Range<usize>, scratch: &mut [Line], out: &mut OutPart<'_>) {
    debug_assert!(plan.variant().has_avx2() && plan.variant().is_supported());
    let call = Call { plan, job, rows };
    if matches!(plan.prepared(), Prepared::Floats { .. }) {
        // SAFETY: `Variant` gives this path only to CPUs with AVX2, FMA and F16C.
        unsafe { floats::run(&call, scratch, out) };
        return;
    }
    macro_rules! by_format {
        ($($dtype:ident => $format:ident),* $(,)?) => {
            match plan.dtype {
                // SAFETY: `Variant` gives this path only to CPUs with AVX2, FMA and F16C.
                $(StrataDType::$dtype => unsafe { run_blocks::<$format>(&call, scratch, out) },)*
                StrataDType::F32 | StrataDType::F16 | StrataDType::BF16 | StrataDType::I32 => {
                    unreachable!("formats without blocks are prepared as floats")
                }
            }
        };
    }
    by_format! {
        Q4_0 => Q4_0, Q4_1 => Q4_1, Q5_0 => Q5_0, Q5_1 => Q5_1, Q8_0 => Q8_0, IQ4NL => Iq4Nl, MXFP4 => Mxfp4,
        Q2K => Q2K, Q3K => Q3K, Q4K => Q4K, Q5K => Q5K, Q6K => Q6K, IQ4XS => Iq4Xs,
        IQ2XXS => Iq2Xxs, IQ2XS => Iq2Xs, IQ2S => Iq2S, IQ3XXS => Iq3Xxs, IQ3S => Iq3S, IQ1S => Iq1S, IQ1M => Iq1M,
    }
}

/// What a kernel is asked for.
struct Call<'a> {
    plan: &'a Plan,
    job: &'a Job<'a>,
    rows: Range<usize>,
}

impl<'a> Call<'a> {
    /// The prepared row and the column of the result of the `index`-th column.
    fn column<T: super::Plain>(&self, index: usize) -> (&'a [T], usize) {
        let (row, column) = self.job.columns.get(index);
        let lines = self.plan.lines_per_row();
        (view(&self.job.prepared[row * lines..][..lines]), column)
    }

    /// The bytes of eight rows from `first` on; past the end of the range the last one again.
    #[inline]
    fn eight_rows(&self, first: usize) -> [&'a [u8]; TILE_ROWS] {
        let (bytes, stride) = (self.plan.row_bytes(), self.job.row_stride);
        if self.rows.end - first >= TILE_ROWS {
            let group = &self.job.weights[first * stride..][..(TILE_ROWS - 1) * stride + bytes];
            return core::array::from_fn(|i| &group[i * stride..][..bytes]);
        }
        core::array::from_fn(|i| self.job.row((first + i).min(self.rows.end - 1), bytes))
    }

    /// Adds the bias and writes eight rows of a column, as far as they are in the range.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn put(&self, out: &mut OutPart<'_>, column: usize, first: usize, values: __m256) {
        let count = (self.rows.end - first).min(TILE_ROWS);
        let mut buffer = [0.0_f32; TILE_ROWS];
        if count == TILE_ROWS {
            let bias = self.job.bias.and_then(|bias| bias[first..].first_chunk());
            let values = bias.map_or(values, |bias| _mm256_add_ps(values, load::load_f32(bias)));
            load::store_f32(&mut buffer, values);
            out.put(column, first, &buffer);
            return;
        }
        let mut values = values;
        if let Some(bias) = self.job.bias {
            buffer[..count].copy_from_slice(&bias[first..][..count]);
            values = _mm256_add_ps(values, load::load_f32(&buffer));
        }
        load::store_f32(&mut buffer, values);
        out.put(column, first, &buffer[..count]);
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn run_blocks<F: Format>(call: &Call<'_>, scratch: &mut [Line], out: &mut OutPart<'_>) {
    let n_columns = call.job.columns.len();
    if n_columns < TILE_COLUMNS {
        let ahead = decode::Ahead::of(TILE_ROWS * call.job.row_stride);
        for first in call.rows.clone().step_by(TILE_ROWS) {
            let rows = call.eight_rows(first).map(F::blocks);
            let group = call.job.weights.as_ptr().wrapping_add(first * call.job.row_stride);
            for index in 0..n_columns {
                let (x, column) = call.column(index);
                call.put(out, column, first, decode::eight_rows::<F>(&rows, x, group, ahead));
            }
        }
        return;
    }
    let n_blocks = call.plan.lines_per_row();
    let (tile, tile_sub) = scratch.split_at_mut(n_blocks * TILE_BLOCK_LINES);
    let step = (COLUMN_BLOCK_LINES / n_blocks).next_multiple_of(4).max(16);
    for block in (0..n_columns).step_by(step) {
        for first in call.rows.clone().step_by(TILE_ROWS) {
            let rows = call.eight_rows(first).map(F::blocks);
            tiles::pack::<F>(&rows, call.plan.variant().has_dot_product(), view_mut(tile), view_mut(tile_sub));
            let columns = block..(block + step).min(n_columns);
            for index in columns.clone().step_by(4) {
                match columns.end - index {
                    1 => multiply::<F, 1>(call, tile, tile_sub, first, index, out),
                    2 => multiply::<F, 2>(call, tile, tile_sub, first, index, out),
                    3 => multiply::<F, 3>(call, tile, tile_sub, first, index, out),
                    _ => multiply::<F, 4>(call, tile, tile_sub, first, index, out),
                }
            }
        }
    }
}

/// `N` columns from `index` on.
#[target_feature(enable = "avx2,fma,f16c")]
fn multiply<F: Format, const N: usize>(
    call: &Call<'_>,
    tile: &[Line],
    tile_sub: &[Line],
    first: usize,
    index: usize,
    out: &mut OutPart<'_>,
) {
    let columns: [(&[ActivationBlock], usize); N] = core::array::from_fn(|i| call.column(index + i));
    let x = columns.map(|(x, _)| x);
    let sums = match call.plan.variant() {
        Variant::Vnni => {
            let offset = if F::Kind::SIGNED { 128 } else { F::OFFSET };
            // SAFETY: the plan's variant is only given to CPUs with AVX-512 VNNI.
            unsafe { vnni::avx512::multiply::<F::Kind, N>(view(tile), view(tile_sub), offset, &x) }
        }
        Variant::AvxVnni => {
            let offset = if F::Kind::SIGNED { 128 } else { F::OFFSET };
            // SAFETY: the plan's variant is only given to CPUs with AVX-VNNI.
            unsafe { vnni::avx::multiply::<F::Kind, N>(view(tile), view(tile_sub), offset, &x) }
        }
        _ => tiles::multiply::<F::Kind, N>(view(tile), view(tile_sub), F::OFFSET, &x),
    };
    for (sums, (_, column)) in sums.into_iter().zip(columns) {
        call.put(out, column, first, sums);
    }
}
