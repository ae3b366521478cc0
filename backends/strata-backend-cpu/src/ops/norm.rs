//! Reductions over a row that give a row: RmsNorm, L2Norm and Softmax. ArgMax is here too: it
//! walks rows the same way.
//!
//! Rows are walked in blocks, twice or three times, so a row needs no scratch and the result may
//! lie where the input lies.

use strata_backend_abi::StrataOpKind;
use strata_backend_sdk::{Failure, Result};

use super::math::{BLOCK, Lanes, reduce};
use super::{Access, Op, RowOp, RowPlan, RowSpace, Run, Scratch, ScratchNeeds};
use crate::memory::{RowIndex, View};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Function {
    /// Epsilon.
    Rms(f32),
    /// Epsilon.
    L2(f32),
    /// Factor on the input.
    Softmax(f32),
}

struct Norm {
    space: RowSpace,
    function: Function,
    out: View,
    x: View,
    weight: Option<View>,
}

pub(crate) fn plan(op: &Op<'_>) -> Result<RowPlan> {
    let function = match op.kind {
        StrataOpKind::RmsNorm => Function::Rms(op.float(0)),
        StrataOpKind::L2Norm => Function::L2(op.float(0)),
        StrataOpKind::Softmax => Function::Softmax(op.float(0)),
        other => return Err(Failure::internal(format!("{other:?} is no norm"))),
    };
    let (out, x) = (op.view(0)?.clone(), op.view(1)?.clone());
    let weight = if matches!(function, Function::Rms(_)) { op.optional(2).cloned() } else { None };
    let space = RowSpace::of(&out);
    let mut accesses = vec![Access::write(&out, space.unit), Access::read(&x, space.unit)];
    accesses.extend(weight.iter().map(|weight| Access::anywhere(weight, false)));
    Ok(RowPlan {
        units: space.units(),
        weight: space.rows_per_unit() * out.ne[0] * 3,
        accesses,
        scratch: ScratchNeeds::default(),
        op: Box::new(Norm { space, function, out, x, weight }),
    })
}

/// Calls `visit` for each block of a row with its start and values.
fn each_block(x: &View, row: RowIndex, mut visit: impl FnMut(usize, &mut [f32])) {
    let mut block = [0.0; BLOCK];
    for start in (0..x.ne[0]).step_by(BLOCK) {
        let values = &mut block[..BLOCK.min(x.ne[0] - start)];
        x.load(row, start, values);
        visit(start, values);
    }
}

impl Norm {
    fn row(&self, run: &Run<'_>, row: RowIndex) {
        match self.function {
            Function::Rms(epsilon) => {
                let mean = self.sum_squares(run, row) / self.x.ne[0] as f32;
                self.scale_row(run, row, 1.0 / (mean + epsilon).sqrt());
            }
            Function::L2(epsilon) => {
                let sum = self.sum_squares(run, row);
                self.scale_row(run, row, 1.0 / (sum + epsilon).sqrt());
            }
            Function::Softmax(factor) => self.softmax(run, row, factor),
        }
    }

    fn sum_squares(&self, run: &Run<'_>, row: RowIndex) -> f32 {
        let mut lanes: Lanes = [0.0; 16];
        each_block(&self.x, row, |_, values| (run.kernels.sum_squares)(&mut lanes, values));
        reduce(&lanes)
    }

    fn scale_row(&self, run: &Run<'_>, row: RowIndex, factor: f32) {
        each_block(&self.x, row, |start, values| {
            (run.kernels.scale)(values, factor, 0.0);
            if let Some(weight) = &self.weight {
                (run.kernels.mul)(values, &weight.floats([0, 0, 0])[start..start + values.len()]);
            }
            self.out.store(row, start, values);
        });
    }

    fn softmax(&self, run: &Run<'_>, row: RowIndex, factor: f32) {
        let mut most = f32::NEG_INFINITY;
        each_block(&self.x, row, |_, values| {
            (run.kernels.scale)(values, factor, 0.0);
            most = most.max((run.kernels.greatest)(values));
        });
        let mut lanes: Lanes = [0.0; 16];
        each_block(&self.x, row, |start, values| {
            (run.kernels.scale)(values, factor, 0.0);
            (run.kernels.exp_sum)(values, most, &mut lanes);
            self.out.store(row, start, values);
        });
        let inverse = 1.0 / reduce(&lanes);
        each_block(&self.out, row, |start, values| {
            (run.kernels.scale)(values, inverse, 0.0);
            self.out.store(row, start, values);
        });
    }
}

impl RowOp for Norm {
    fn unit(&self, run: &Run<'_>, unit: usize, _scratch: &mut Scratch) {
        self.space.each_row(unit, run.scalars, |row| self.row(run, row));
    }
}

struct ArgMax {
    out: View,
    x: View,
}

pub(crate) fn plan_argmax(op: &Op<'_>) -> Result<RowPlan> {
    let (out, x) = (op.view(0)?.clone(), op.view(1)?.clone());
    let units = x.extent(1);
    Ok(RowPlan {
        units,
        weight: x.ne[0],
        accesses: vec![Access::anywhere(&out, true), Access::read(&x, 1)],
        scratch: ScratchNeeds::default(),
        op: Box::new(ArgMax { out, x }),
    })
}

impl RowOp for ArgMax {
    fn unit(&self, run: &Run<'_>, unit: usize, _scratch: &mut Scratch) {
        let mut best = (f32::NEG_INFINITY, 0);
        each_block(&self.x, [unit, 0, 0], |start, values| {
            if best.0.is_nan() {
                return;
            }
            // Counted, not searched: a count has no branch in it.
            if values.iter().map(|value| u32::from(value.is_nan())).sum::<u32>() > 0 {
                let place = values.iter().position(|value| value.is_nan()).unwrap_or(0);
                best = (f32::NAN, start + place);
                return;
            }
            // Most blocks hold no new best; only those that do are searched.
            let greatest = (run.kernels.greatest)(values);
            if greatest > best.0 {
                let place = values.iter().position(|value| *value == greatest).unwrap_or(0);
                best = (greatest, start + place);
            }
        });
        self.out.store_i32([0, 0, 0], unit, best.1 as i32);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Machine;
    use super::*;

    fn value(i: usize) -> f32 {
        ((i * 37 % 101) as f32 - 50.0) / 17.0
    }

    #[test]
    fn rms_norm_of_strided_heads_in_place() {
        let mut machine = Machine::new();
        let all = machine.floats_with([96, 5, 1, 1], value);
        // Two heads of 32 out of rows of 96, starting at element 32.
        let heads = all.part(32, [32, 2, 5, 1], [4, 128, 384, 1920]);
        let weight = machine.floats_with([32, 1, 1, 1], |i| 1.0 + i as f32);
        machine.op(StrataOpKind::RmsNorm, &[&heads, &heads, &weight], &[1e-5], &[]).unwrap();
        let got = machine.read(&all);
        for (i, got) in got.into_iter().enumerate() {
            let (token, element) = (i / 96, i % 96);
            let expected = if element < 32 {
                f64::from(value(i))
            } else {
                let head = token * 96 + element / 32 * 32;
                let mean = (head..head + 32).map(|j| f64::from(value(j)).powi(2)).sum::<f64>() / 32.0;
                f64::from(value(i)) / (mean + 1e-5).sqrt() * (1.0 + (element % 32) as f64)
            };
            assert!((f64::from(got) - expected).abs() < 1e-5 * (1.0 + expected.abs()), "{i}");
        }
    }

    #[test]
    fn l2_norm_and_softmax_of_long_rows() {
        let mut machine = Machine::new();
        let x = machine.floats_with([700, 2, 1, 1], value);
        let out = machine.floats([700, 2, 1, 1]);
        machine.op(StrataOpKind::L2Norm, &[&out, &x], &[1e-6], &[]).unwrap();
        for row in machine.read(&out).chunks(700) {
            let norm: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum();
            assert!((norm - 1.0).abs() < 1e-5);
        }
        machine.op(StrataOpKind::Softmax, &[&out, &x], &[0.7], &[]).unwrap();
        for (r, row) in machine.read(&out).chunks(700).enumerate() {
            let exps: Vec<f64> = (0..700).map(|i| (0.7 * f64::from(value(r * 700 + i))).exp()).collect();
            let sum: f64 = exps.iter().sum();
            for (got, exp) in row.iter().zip(exps) {
                assert!((f64::from(*got) - exp / sum).abs() < 1e-8);
            }
        }
    }

    #[test]
    fn the_lowest_of_equal_maxima() {
        let mut machine = Machine::new();
        let x = machine.floats_with([600, 3, 1, 1], |i| match i {
            300 | 599 | 613 | 1799 => 9.0,
            _ => value(i),
        });
        let out = machine.indices(&[-1; 3]);
        machine.op(StrataOpKind::ArgMax, &[&out, &x], &[], &[]).unwrap();
        assert_eq!(machine.read_indices(&out), [300, 13, 599]);
    }

    #[test]
    fn a_nan_is_above_every_number() {
        let mut machine = Machine::new();
        let x = machine.floats_with([600, 3, 1, 1], |i| match i {
            0 | 1201 => f32::INFINITY,
            37 | 550 | 1190 => f32::NAN,
            _ => value(i),
        });
        let out = machine.indices(&[-1; 3]);
        machine.op(StrataOpKind::ArgMax, &[&out, &x], &[], &[]).unwrap();
        assert_eq!(machine.read_indices(&out), [37, 590, 1]);
    }
}
