//! A program as a listing for people: `--backend-report`, bug reports, debugging. It prints what
//! is there, also when that would not pass the validator. Called by the binaries and by tests.

use crate::ProgramSpec;
use crate::signature::signature;
use std::fmt::Write;
use strata_backend_abi::{
    STRATA_NO_OPERAND, STRATA_TENSOR_CONSTANT, StrataDType, StrataOp, StrataOpKind, StrataTensor,
};

/// Names of the scalars, in the order of `StrataScalar`.
const SCALARS: [&str; 4] = ["Tokens", "Outputs", "KvLength", "Position"];

/// One line for the program, one a buffer, one an op with its operands' shapes and its parameters.
pub fn describe(spec: &ProgramSpec) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail, here and below.
    let precise = if spec.precise { ", precise" } else { "" };
    let _ = write!(out, "program {}{precise}: {} ops, {} tensors", spec.name, spec.ops.len(), spec.tensors.len());
    for (index, max) in spec.scalar_max.iter().enumerate() {
        let _ = write!(out, ", {} ≤ {max}", SCALARS.get(index).unwrap_or(&"scalar"));
    }
    out.push('\n');
    let mut buffers = std::collections::BTreeMap::<u32, (usize, usize)>::new();
    for tensor in &spec.tensors {
        let (tensors, constants) = buffers.entry(tensor.buffer).or_default();
        *tensors += 1;
        *constants += usize::from(tensor.flags & STRATA_TENSOR_CONSTANT != 0);
    }
    for (buffer, (tensors, constants)) in buffers {
        let _ = writeln!(out, "  buffer {buffer}: {tensors} tensors, {constants} of them constant");
    }
    for (index, op) in spec.ops.iter().enumerate() {
        let _ = writeln!(out, "  {index:4} {}", op_text(spec, op));
    }
    out
}

/// `MatMul layer 3: out t5 F32 [128, Tokens≤8], w t2 Q4_K [256, 128] constant, …`.
fn op_text(spec: &ProgramSpec, op: &StrataOp) -> String {
    let Some(kind) = StrataOpKind::from_number(op.kind) else { return format!("unknown kind {}", op.kind) };
    let mut out = format!("{kind:?}");
    if op.layer >= 0 {
        let _ = write!(out, " layer {}", op.layer);
    }
    let Some(signature) = signature(kind) else { return out };
    let mut parts = Vec::new();
    for (operand, index) in signature.operands.iter().zip(op.operand) {
        if index == STRATA_NO_OPERAND {
            continue;
        }
        let tensor = spec.tensors.get(index as usize).map_or_else(|| "absent".to_owned(), tensor_text);
        parts.push(format!("{} t{index} {tensor}", operand.name));
    }
    parts.extend(signature.floats.iter().zip(op.float).map(|(name, value)| format!("{name} {value}")));
    parts.extend(signature.ints.iter().zip(op.int).map(|(name, value)| format!("{name} {value}")));
    let _ = write!(out, ": {}", parts.join(", "));
    out
}

fn tensor_text(tensor: &StrataTensor) -> String {
    let constant = if tensor.flags & STRATA_TENSOR_CONSTANT != 0 { " constant" } else { "" };
    format!("{}{constant} @{}+{}", shape_text(tensor.dtype, tensor.ne, tensor.dynamic), tensor.buffer, tensor.offset)
}

/// `Q4_K [256, 128]`, trailing dimensions of 1 left out.
pub(crate) fn shape_text(dtype: u32, ne: [u64; 4], dynamic: [u32; 4]) -> String {
    let name =
        StrataDType::from_number(dtype).map_or_else(|| format!("format {dtype}"), |dtype| dtype.name().to_owned());
    let rank = (1..4).rev().find(|k| ne[*k] != 1 || dynamic[*k] != 0).map_or(1, |k| k + 1);
    let dims: Vec<String> = (0..rank).map(|k| dimension_text(ne[k], dynamic[k])).collect();
    format!("{name} [{}]", dims.join(", "))
}

/// `256`, or `Tokens≤8` when a scalar sets it.
pub(crate) fn dimension_text(ne: u64, dynamic: u32) -> String {
    match dynamic.checked_sub(1) {
        None => ne.to_string(),
        Some(scalar) => format!("{}≤{ne}", SCALARS.get(scalar as usize).unwrap_or(&"?")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dim, ProgramBuilder, ScalarMax};

    #[test]
    fn a_listing_names_everything() {
        let max = ScalarMax { tokens: 8, outputs: 1, kv_length: 64, position: 63 };
        let mut builder = ProgramBuilder::new("decode", max).precise(true);
        let w = builder.constant(StrataDType::Q4K, 1, 512, &[256, 128]);
        let x = builder.tensor(StrataDType::F32, 0, 0, &[Dim::Fixed(256), Dim::TOKENS]);
        let out = builder.tensor(StrataDType::F32, 0, 8192, &[Dim::Fixed(128), Dim::TOKENS]);
        builder.layer(3);
        builder.mat_mul(out, w, x, None);
        builder.rms_norm(x, x, None, 1e-5);
        let mut spec = builder.finish();
        spec.ops.push(StrataOp { kind: 99, ..spec.ops[0] });
        let expected = "\
program decode, precise: 3 ops, 3 tensors, Tokens ≤ 8, Outputs ≤ 1, KvLength ≤ 64, Position ≤ 63
  buffer 0: 2 tensors, 0 of them constant
  buffer 1: 1 tensors, 1 of them constant
     0 MatMul layer 3: out t2 F32 [128, Tokens≤8] @0+8192, w t0 Q4_K [256, 128] constant @1+512, x t1 F32 [256, Tokens≤8] @0+0
     1 RmsNorm layer 3: out t1 F32 [256, Tokens≤8] @0+0, x t1 F32 [256, Tokens≤8] @0+0, eps 0.00001
     2 unknown kind 99
";
        assert_eq!(describe(&spec), expected);
    }
}
