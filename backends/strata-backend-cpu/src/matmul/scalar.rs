//! The reference: the sums of the module's documentation, written plainly.

use super::{Job, Minimum, Plan, Prepared, Shape, dequantise_row, float_lines, unpack};
use crate::simd::{ActivationBlock, BLOCK, Line, OutPart, WeightBlock, view, view_mut};
use core::ops::Range;

pub(super) fn run(plan: &Plan, job: &Job<'_>, rows: Range<usize>, scratch: &mut [Line], out: &mut OutPart<'_>) {
    let shape = Shape::of(plan.dtype).filter(|_| matches!(plan.prepared(), Prepared::Blocks { .. }));
    for index in rows {
        let row = job.row(index, plan.row_bytes());
        let mut put = |column: usize, value: f32| {
            let value = job.bias.map_or(value, |bias| value + bias[index]);
            out.put(column, index, &[value]);
        };
        if let Some(shape) = shape {
            let blocks = &mut view_mut::<WeightBlock>(scratch)[..plan.k / BLOCK];
            for (i, block) in blocks.iter_mut().enumerate() {
                *block = unpack(plan.dtype, row, i);
            }
            for_each_column(plan, job, |x, column| put(column, dot_blocks(shape.minimum, blocks, view(x))));
        } else {
            let weights = view_mut::<f32>(&mut scratch[..float_lines(plan.k)]);
            weights[plan.k..].fill(0.0);
            dequantise_row(plan.dtype, row, &mut weights[..plan.k]);
            for_each_column(plan, job, |x, column| put(column, dot_floats(weights, view(x))));
        }
    }
}

fn for_each_column(plan: &Plan, job: &Job<'_>, mut each: impl FnMut(&[Line], usize)) {
    let lines = plan.lines_per_row();
    for index in 0..job.columns.len() {
        let (row, column) = job.columns.get(index);
        each(&job.prepared[row * lines..][..lines], column);
    }
}

fn dot_blocks(minimum: Minimum, weights: &[WeightBlock], x: &[ActivationBlock]) -> f32 {
    let mut acc = 0.0_f32;
    for (w, x) in weights.iter().zip(x) {
        let mut whole = 0_i32;
        for half in 0..2 {
            let range = 16 * half..16 * (half + 1);
            let sum: i32 =
                w.values[range.clone()].iter().zip(&x.q[range]).map(|(w, q)| i32::from(*w) * i32::from(*q)).sum();
            whole += i32::from(w.sub[half]) * i32::from(x.multiplier[half][0]) * sum;
        }
        acc = (whole as f32).mul_add(w.scale * x.unit, acc);
        match minimum {
            Minimum::None => {}
            Minimum::Block => acc = w.min.mul_add(x.sum, acc),
            Minimum::Half => {
                let whole: i32 = w.sub_min.iter().zip(x.weighted).map(|(min, sum)| i32::from(*min) * sum).sum();
                acc = (whole as f32).mul_add(w.min * x.unit, acc);
            }
        }
    }
    acc
}

/// Both slices are padded with zeros to whole lines.
fn dot_floats(weights: &[f32], x: &[f32]) -> f32 {
    let mut partial = [0.0_f32; 8];
    for (w, x) in weights.as_chunks::<8>().0.iter().zip(x.as_chunks::<8>().0) {
        for lane in 0..8 {
            partial[lane] = w[lane].mul_add(x[lane], partial[lane]);
        }
    }
    let s: [f32; 4] = core::array::from_fn(|i| partial[i] + partial[i + 4]);
    (s[0] + s[2]) + (s[1] + s[3])
}
