//! Whether an op can be computed here, and the reason when it cannot. Looks at formats, shapes and
//! parameters only. `op_supported` and `program_compile` both ask; what passes here plans.

use strata_backend_abi::{StrataDType, StrataOpKind};
use strata_backend_sdk::{Failure, ProgramView, Result};

use super::{elementwise, router};
use crate::matmul::{Plan, Variant};
use crate::memory::Shape;

/// Checks one op of a program.
pub(crate) fn check(program: &ProgramView<'_>, index: usize, variant: Variant) -> Result<()> {
    let op = program.ops.get(index).ok_or_else(|| Failure::host_bug(format_args!("there is no op {index}")))?;
    let kind = StrataOpKind::from_number(op.kind)
        .ok_or_else(|| Failure::unsupported(format!("op {} is not known to this plugin", op.kind)))?;
    let shape = |slot: usize| match program.operand(index, slot) {
        Some(tensor) => Shape::new(tensor),
        None => Err(Failure::host_bug(format_args!("{kind:?} without an operand in slot {slot}"))),
    };
    let plain = |slots: &[usize]| {
        for slot in slots {
            let dtype = shape(*slot)?.dtype;
            if dtype != StrataDType::F32 {
                return Err(Failure::unsupported(format!("{kind:?} with {dtype} in slot {slot}; it takes F32")));
            }
        }
        Ok(())
    };
    match kind {
        StrataOpKind::EmbeddingLookup => plain(&[0]).and_then(|()| weights(kind, shape(1)?.dtype)),
        StrataOpKind::RmsNorm
        | StrataOpKind::L2Norm
        | StrataOpKind::Softmax
        | StrataOpKind::Scale
        | StrataOpKind::GatherRows => plain(&[0, 1]),
        StrataOpKind::Add | StrataOpKind::Mul | StrataOpKind::ExpertCombine => plain(&[0, 1, 2]),
        StrataOpKind::Unary => elementwise::unary(op.int[0]).and_then(|_| plain(&[0, 1])),
        StrataOpKind::Glu => elementwise::activation(op.int[0]).and_then(|_| plain(&[0, 1, 2])),
        StrataOpKind::ArgMax => plain(&[1]),
        StrataOpKind::MatMul => {
            let x = shape(2)?.dtype;
            if !matches!(x, StrataDType::F32 | StrataDType::F16) {
                return Err(Failure::unsupported(format!("MatMul of activations in {x}; it takes F32 and F16")));
            }
            plain(&[0]).and_then(|()| product(program, kind, &shape(1)?, variant))
        }
        StrataOpKind::ExpertMatMul => {
            let out = shape(0)?;
            if out.ne[2] > 1 && out.nb[2] != out.ne[1] * out.nb[1] {
                let text =
                    "ExpertMatMul into tokens that do not follow one another: their columns must be evenly spaced";
                return Err(Failure::unsupported(text));
            }
            plain(&[0, 2]).and_then(|()| product(program, kind, &shape(1)?, variant))
        }
        StrataOpKind::Rope => {
            if !matches!(op.int[0], 0 | 1) {
                return Err(Failure::unsupported(format!("rotation style {} is not known to this plugin", op.int[0])));
            }
            plain(&[0, 1, 2])
        }
        StrataOpKind::KvStore => cache(kind, shape(0)?.dtype).and_then(|()| plain(&[1])),
        StrataOpKind::Attention => {
            cache(kind, shape(2)?.dtype)?;
            cache(kind, shape(3)?.dtype)?;
            plain(&[0, 1])
        }
        StrataOpKind::RouterTopK => router::score(op.int[0]).and_then(|_| plain(&[1, 2])),
        StrataOpKind::Copy => {
            for slot in [0, 1] {
                let dtype = shape(slot)?.dtype;
                if !matches!(dtype, StrataDType::F32 | StrataDType::F16 | StrataDType::BF16) {
                    return Err(Failure::unsupported(format!("Copy of {dtype}; it takes F32, F16 and BF16")));
                }
            }
            Ok(())
        }
        StrataOpKind::GatedDeltaNet | StrataOpKind::ShortConv | StrataOpKind::HyperConnection => {
            Err(Failure::unsupported(format!("{kind:?} is not computed by this version")))
        }
    }
}

fn weights(kind: StrataOpKind, dtype: StrataDType) -> Result<()> {
    if dtype == StrataDType::I32 {
        return Err(Failure::unsupported(format!("{kind:?} with weights in I32")));
    }
    Ok(())
}

fn product(program: &ProgramView<'_>, kind: StrataOpKind, w: &Shape, variant: Variant) -> Result<()> {
    weights(kind, w.dtype)?;
    Plan::new(w.dtype, w.ne[0], program.precise, variant)
        .map(|_| ())
        .map_err(|reason| Failure::unsupported(format!("{kind:?}: {reason}")))
}

fn cache(kind: StrataOpKind, dtype: StrataDType) -> Result<()> {
    if matches!(dtype, StrataDType::F32 | StrataDType::F16 | StrataDType::BF16) {
        return Ok(());
    }
    Err(Failure::unsupported(format!("{kind:?} with a cache in {dtype}; it takes F32, F16 and BF16")))
}
