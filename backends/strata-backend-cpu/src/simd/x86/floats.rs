//! Float activations: F32, F16 and BF16 weights, and every format in precise programs. Eight rows
//! at a time are turned into floats in scratch, then multiplied lane by lane along k.

use super::Call;
use super::decode::prefetch;
use super::load::load_f32;
use crate::matmul::{dequantise_row, float_lines};
use crate::simd::{Line, OutPart, TILE_ROWS, view, view_mut};
use core::arch::x86_64::{
    __m256, _mm256_castsi256_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_setzero_ps,
    _mm256_slli_epi32,
};
use strata_backend_abi::StrataDType;

/// Columns that a pass over the rows keeps in the second-level cache, in lines.
const COLUMN_BLOCK_LINES: usize = super::COLUMN_BLOCK_LINES;

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn run(call: &Call<'_>, scratch: &mut [Line], out: &mut OutPart<'_>) {
    let n_columns = call.job.columns.len();
    let lines = float_lines(call.plan.k);
    let step = (COLUMN_BLOCK_LINES / lines).next_multiple_of(3).max(15);
    for block in (0..n_columns).step_by(step) {
        for first in call.rows.clone().step_by(TILE_ROWS) {
            let count = (call.rows.end - first).min(TILE_ROWS);
            for (row, scratch) in call.eight_rows(first).iter().zip(scratch.chunks_exact_mut(lines)).take(count) {
                let floats = view_mut::<f32>(scratch);
                floats[call.plan.k..].fill(0.0);
                // The next group's row: eight rows at once are too many streams for the hardware.
                let ahead = row.as_ptr().wrapping_add(TILE_ROWS * call.job.row_stride);
                for line in (0..row.len()).step_by(64) {
                    prefetch(ahead.wrapping_add(line));
                }
                to_floats(call.plan.dtype, row, &mut floats[..call.plan.k]);
            }
            let rows: [&[f32]; TILE_ROWS] =
                core::array::from_fn(|i| view(&scratch[i.min(count - 1) * lines..][..lines]));
            let end = (block + step).min(n_columns);
            let mut index = block;
            while index < end {
                index += columns(call, &rows, first, index, end, out);
            }
        }
    }
}

/// Multiplies with up to three columns; returns how many.
#[target_feature(enable = "avx2,fma,f16c")]
fn columns(
    call: &Call<'_>,
    rows: &[&[f32]; TILE_ROWS],
    first: usize,
    index: usize,
    end: usize,
    out: &mut OutPart<'_>,
) -> usize {
    let mut sums = [[0.0_f32; TILE_ROWS]; 3];
    let count = match end - index {
        1 => {
            let (x, _) = call.column(index);
            for (row, dot) in dots::<TILE_ROWS, 1>(rows, &[x]).iter().enumerate() {
                sums[0][row] = dot[0];
            }
            1
        }
        2 => by_fours(rows, &core::array::from_fn::<_, 2, _>(|i| call.column(index + i).0), &mut sums),
        _ => by_fours(rows, &core::array::from_fn::<_, 3, _>(|i| call.column(index + i).0), &mut sums),
    };
    for (i, sums) in sums.iter().take(count).enumerate() {
        call.put(out, call.job.columns.get(index + i).1, first, load_f32(sums));
    }
    count
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn by_fours<const N: usize>(rows: &[&[f32]; 8], x: &[&[f32]; N], sums: &mut [[f32; TILE_ROWS]; 3]) -> usize {
    for (part, rows) in rows.as_chunks::<4>().0.iter().enumerate() {
        for (row, dots) in dots::<4, N>(rows, x).iter().enumerate() {
            for (sums, dot) in sums.iter_mut().zip(dots) {
                sums[4 * part + row] = *dot;
            }
        }
    }
    N
}

/// `R` rows times `N` activation rows, all of the same length.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dots<const R: usize, const N: usize>(rows: &[&[f32]; R], x: &[&[f32]; N]) -> [[f32; N]; R] {
    let rows = rows.map(|row| row.as_chunks::<8>().0);
    let x = x.map(|x| &x.as_chunks::<8>().0[..rows[0].len()]);
    let mut partial = [[_mm256_setzero_ps(); N]; R];
    for index in 0..rows[0].len() {
        let mut columns = [_mm256_setzero_ps(); N];
        for (column, x) in columns.iter_mut().zip(x) {
            *column = load_f32(&x[index]);
        }
        for (partial, row) in partial.iter_mut().zip(rows) {
            let w = load_f32(&row[index]);
            for (partial, x) in partial.iter_mut().zip(columns) {
                *partial = _mm256_fmadd_ps(w, x, *partial);
            }
        }
    }
    partial.map(|partial| partial.map(|partial| sum(partial)))
}

/// The fixed order of the last eight additions.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum(partial: __m256) -> f32 {
    let mut p = [0.0_f32; 8];
    super::load::store_f32(&mut p, partial);
    let s: [f32; 4] = core::array::from_fn(|i| p[i] + p[i + 4]);
    (s[0] + s[2]) + (s[1] + s[3])
}

#[target_feature(enable = "avx2,fma,f16c")]
fn to_floats(dtype: StrataDType, row: &[u8], out: &mut [f32]) {
    if !matches!(dtype, StrataDType::F16 | StrataDType::BF16) {
        return dequantise_row(dtype, row, out);
    }
    let (out, out_rest) = out.as_chunks_mut::<8>();
    let (row, row_rest) = row.as_chunks::<16>();
    for (out, bytes) in out.iter_mut().zip(row) {
        let halves = super::load::load_16(bytes);
        let floats = match dtype {
            StrataDType::F16 => _mm256_cvtph_ps(halves),
            _ => _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves))),
        };
        super::load::store_f32(out, floats);
    }
    dequantise_row(dtype, row_rest, out_rest);
}
