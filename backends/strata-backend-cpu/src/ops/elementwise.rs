//! One element at a time: Add, Mul, Scale, Unary, Glu and Copy, over rows that may be strided and
//! results that may lie where an operand lies.

use strata_backend_abi::{StrataActivation, StrataOpKind, StrataUnary};
use strata_backend_sdk::{Failure, Result};

use super::math::BLOCK;
use super::{Access, Op, RowOp, RowPlan, RowSpace, Run, Scratch, ScratchNeeds, Work};
use crate::memory::{RowIndex, View};

/// Rows at least this long are cut across by a stage of their own: one token's logits are one row.
const WIDE: usize = 16_384;
/// Elements of a chunk of a wide row.
const WIDE_CHUNK: usize = 4_096;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Function {
    /// `a + f·b`
    Add(f32),
    Mul,
    /// `f·a + g`
    Scale(f32, f32),
    Unary(StrataUnary, f32),
    /// Activation, limit and alpha.
    Glu(StrataActivation, f32, f32),
    Copy,
}

struct Elementwise {
    space: RowSpace,
    function: Function,
    out: View,
    a: View,
    b: Option<View>,
}

/// What an elementwise op becomes.
pub(crate) enum Plan {
    Rows(RowPlan),
    Wide(Box<dyn Work>),
}

/// The activation with this number.
pub(crate) fn activation(number: i64) -> Result<StrataActivation> {
    const ALL: [StrataActivation; 5] = [
        StrataActivation::Silu,
        StrataActivation::GeluTanh,
        StrataActivation::GeluErf,
        StrataActivation::ReluSquared,
        StrataActivation::SwigluOai,
    ];
    let found = ALL.into_iter().find(|activation| *activation as i64 == number);
    found.ok_or_else(|| Failure::unsupported(format!("activation {number} is not known to this plugin")))
}

/// The function of one element with this number.
pub(crate) fn unary(number: i64) -> Result<StrataUnary> {
    const ALL: [StrataUnary; 7] = [
        StrataUnary::Silu,
        StrataUnary::GeluTanh,
        StrataUnary::Sigmoid,
        StrataUnary::Tanh,
        StrataUnary::Softplus,
        StrataUnary::Exp,
        StrataUnary::Softcap,
    ];
    let found = ALL.into_iter().find(|function| *function as i64 == number);
    found.ok_or_else(|| Failure::unsupported(format!("function {number} is not known to this plugin")))
}

pub(crate) fn plan(op: &Op<'_>) -> Result<Plan> {
    let function = match op.kind {
        StrataOpKind::Add => Function::Add(op.float(0)),
        StrataOpKind::Mul => Function::Mul,
        StrataOpKind::Scale => Function::Scale(op.float(0), op.float(1)),
        StrataOpKind::Unary => Function::Unary(unary(op.int(0))?, op.float(0)),
        StrataOpKind::Glu => Function::Glu(activation(op.int(0))?, op.float(0), op.float(1)),
        StrataOpKind::Copy => Function::Copy,
        other => return Err(Failure::internal(format!("{other:?} is not elementwise"))),
    };
    let (out, a) = (op.view(0)?.clone(), op.view(1)?.clone());
    let b = match function {
        Function::Add(_) | Function::Mul | Function::Glu(..) => Some(op.view(2)?.clone()),
        _ => None,
    };
    let space = RowSpace::of(&out);
    let elementwise = Elementwise { space, function, out, a, b };
    if elementwise.out.ne[0] >= WIDE {
        return Ok(Plan::Wide(Box::new(elementwise)));
    }
    let mut accesses = vec![Access::write(&elementwise.out, space.unit), Access::read(&elementwise.a, space.unit)];
    if let Some(b) = &elementwise.b {
        // Broadcast along the units, it is the same row for all of them.
        let repeated = b.ne[space.unit] == 1 && space.units().most > 1;
        accesses.push(if repeated { Access::anywhere(b, false) } else { Access::read(b, space.unit) });
    }
    Ok(Plan::Rows(RowPlan {
        units: space.units(),
        weight: space.rows_per_unit() * elementwise.out.ne[0] * 2,
        accesses,
        scratch: ScratchNeeds::default(),
        op: Box::new(elementwise),
    }))
}

impl Elementwise {
    fn block(&self, run: &Run<'_>, row: RowIndex, start: usize, n: usize) {
        let mut a = [0.0; BLOCK];
        let a = &mut a[..n];
        self.a.load(row, start, a);
        let mut other = [0.0; BLOCK];
        let b = &mut other[..n];
        if let Some(view) = &self.b {
            let row = [0, 1, 2].map(|d| if view.ne[d + 1] == 1 { 0 } else { row[d] });
            if view.ne[0] == 1 {
                view.load(row, 0, &mut b[..1]);
                b.fill(b[0]);
            } else {
                view.load(row, start, b);
            }
        }
        let kernels = run.kernels;
        match self.function {
            Function::Add(factor) => (kernels.add_scaled)(a, b, factor),
            Function::Mul => (kernels.mul)(a, b),
            Function::Scale(factor, offset) => (kernels.scale)(a, factor, offset),
            Function::Unary(function, parameter) => (kernels.unary)(function, a, parameter),
            Function::Glu(activation, limit, alpha) => (kernels.glu)(activation, a, b, limit, alpha),
            Function::Copy => {}
        }
        self.out.store(row, start, a);
    }

    fn stretch(&self, run: &Run<'_>, row: RowIndex, start: usize, end: usize) {
        for start in (start..end).step_by(BLOCK) {
            self.block(run, row, start, BLOCK.min(end - start));
        }
    }
}

impl RowOp for Elementwise {
    fn unit(&self, run: &Run<'_>, unit: usize, _scratch: &mut Scratch) {
        self.space.each_row(unit, run.scalars, |row| self.stretch(run, row, 0, self.out.ne[0]));
    }
}

impl Work for Elementwise {
    fn chunks(&self, scalars: &[i64]) -> usize {
        self.space.units().value(scalars) * self.out.ne[0].div_ceil(WIDE_CHUNK)
    }

    fn chunk(&self, run: &Run<'_>, chunk: usize, _scratch: &mut Scratch) {
        let per_row = self.out.ne[0].div_ceil(WIDE_CHUNK);
        let start = chunk % per_row * WIDE_CHUNK;
        let end = self.out.ne[0].min(start + WIDE_CHUNK);
        self.space.each_row(chunk / per_row, run.scalars, |row| self.stretch(run, row, start, end));
    }

    fn scratch(&self) -> ScratchNeeds {
        ScratchNeeds::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Machine;
    use super::*;

    #[test]
    fn add_broadcasts_and_works_in_place() {
        let mut machine = Machine::new();
        let a = machine.floats_with([300, 3, 2, 1], |i| i as f32);
        let b = machine.floats_with([300, 1, 2, 1], |i| 0.5 * i as f32);
        machine.op(StrataOpKind::Add, &[&a, &a, &b], &[2.0], &[]).unwrap();
        let expected: Vec<f32> = (0..1800).map(|i| i as f32 + (i % 300) as f32 + (300 * (i / 900)) as f32).collect();
        assert_eq!(machine.read(&a), expected);
    }

    #[test]
    fn one_value_is_broadcast_along_the_row() {
        let mut machine = Machine::new();
        let a = machine.floats_with([5, 2, 1, 1], |i| i as f32);
        let b = machine.floats_with([1, 2, 1, 1], |i| 10.0 + i as f32);
        let out = machine.floats([5, 2, 1, 1]);
        machine.op(StrataOpKind::Mul, &[&out, &a, &b], &[], &[]).unwrap();
        assert_eq!(machine.read(&out), [0.0, 10.0, 20.0, 30.0, 40.0, 55.0, 66.0, 77.0, 88.0, 99.0]);
    }

    #[test]
    fn wide_rows_give_the_same_as_narrow_ones() {
        let run = |width: u64| {
            let mut machine = Machine::new();
            let x = machine.floats_with([width, 40_960 / width, 1, 1], |i| (i as f32 - 20_000.0) / 700.0);
            let out = machine.floats([width, 40_960 / width, 1, 1]);
            machine.op(StrataOpKind::Unary, &[&out, &x], &[30.0], &[StrataUnary::Softcap as i64]).unwrap();
            machine.read(&out)
        };
        let wide = run(20_480);
        assert_eq!(wide, run(640));
        assert!((wide[40_959] - 30.0 * (20_959.0_f32 / 700.0 / 30.0).tanh()).abs() < 1e-4);
    }

    #[test]
    fn glu_of_every_activation() {
        type Definition = fn(f64, f64) -> f64;
        let definitions: [(StrataActivation, Definition); 5] = [
            (StrataActivation::Silu, |g, u| g / (1.0 + (-g).exp()) * u),
            (StrataActivation::GeluTanh, |g, u| {
                0.5 * g * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g.powi(3))).tanh()) * u
            }),
            (StrataActivation::GeluErf, |g, u| {
                // erf by Simpson's rule.
                let x = g / 2.0_f64.sqrt();
                let f = |i: i32| (-(x * f64::from(i) / 200.0).powi(2)).exp();
                let sum: f64 = (0..100).map(|i| f(2 * i) + 4.0 * f(2 * i + 1) + f(2 * i + 2)).sum();
                0.5 * g * (1.0 + 2.0 / std::f64::consts::PI.sqrt() * x / 600.0 * sum) * u
            }),
            (StrataActivation::ReluSquared, |g, u| g.max(0.0).powi(2) * u),
            (StrataActivation::SwigluOai, |g, u| {
                let (g, u) = (g.min(2.0), u.clamp(-2.0, 2.0));
                g / (1.0 + (-1.702 * g).exp()) * (u + 1.0)
            }),
        ];
        for (activation, definition) in definitions {
            let mut machine = Machine::new();
            let gate = machine.floats_with([70, 2, 1, 1], |i| (i as f32 - 70.0) / 20.0);
            let up = machine.floats_with([70, 2, 1, 1], |i| 3.0 - i as f32 / 30.0);
            let out = machine.floats([70, 2, 1, 1]);
            machine.op(StrataOpKind::Glu, &[&out, &gate, &up], &[2.0, 1.702], &[activation as i64]).unwrap();
            for (i, got) in machine.read(&out).into_iter().enumerate() {
                let (g, u) = (f64::from((i as f32 - 70.0) / 20.0), f64::from(3.0 - i as f32 / 30.0));
                assert!((f64::from(got) - definition(g, u)).abs() < 1e-5, "{activation:?} {g} {u}: {got}");
            }
        }
    }

    #[test]
    fn unknown_numbers_are_refused() {
        assert!(activation(9).unwrap_err().text.contains("activation 9"));
        assert!(unary(-1).unwrap_err().text.contains("function -1"));
    }
}
