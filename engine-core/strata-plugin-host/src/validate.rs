//! THE validator of programs. Whatever passes here is what docs/ABI.md promises a plugin: every
//! index in range, every view within its buffer for the greatest values that a run may have, every
//! shape, format and parameter as the op's description says, no result overlapping what it must
//! not. Sizes and strides come from model files, so all arithmetic is checked.
//!
//! What it cannot see is data: token ids, rows, page tables, sequences and positions in buffers.
//! Whoever writes those answers for their range.
//!
//! Called by `Device::compile` and `Device::supports`; the engine may call it on its own programs.
//! Tensors are checked in validate/view.rs, ops in validate/op.rs, overlaps in validate/overlap.rs.

mod op;
mod overlap;
mod view;

#[cfg(test)]
mod tests;

use crate::signature::{Role, signature};
use crate::{PluginError, ProgramSpec};
use op::OpCheck;
use overlap::overlaps;
use strata_backend_abi::{STRATA_N_SCALARS, STRATA_NO_OPERAND, StrataOpKind};
use view::View;

/// More than this of anything is no model's program.
const MAX_ITEMS: usize = 1 << 20;

/// Checks a whole program against the sizes of its buffers, in bytes.
pub fn validate(spec: &ProgramSpec, buffer_bytes: &[u64]) -> Result<(), PluginError> {
    check_all(spec, Some(buffer_bytes))
}

/// The same for a program whose buffers do not exist yet.
pub(crate) fn validate_shapes(spec: &ProgramSpec) -> Result<(), PluginError> {
    check_all(spec, None)
}

/// One op and the tensors that it names, for a program whose buffers do not exist yet.
pub(crate) fn validate_op(spec: &ProgramSpec, index: usize) -> Result<(), PluginError> {
    scalars(spec)?;
    let mut views = vec![None; spec.tensors.len()];
    if let Some(op) = spec.ops.get(index) {
        for operand in op.operand.iter().filter(|operand| **operand != STRATA_NO_OPERAND) {
            if let Some(slot) = views.get_mut(*operand as usize)
                && slot.is_none()
            {
                *slot = Some(View::check(spec, *operand as usize, None)?);
            }
        }
    }
    OpCheck::new(spec, &views, index)?.check()
}

/// Refuses programs that write into buffers for which `read_only` is true.
pub(crate) fn validate_read_only(spec: &ProgramSpec, read_only: impl Fn(usize) -> bool) -> Result<(), PluginError> {
    for index in 0..spec.ops.len() {
        for tensor in results(spec, index) {
            let buffer = spec.tensors[tensor].buffer as usize;
            if read_only(buffer) {
                let rule = format!("a result lies in buffer {buffer}, which is imported for reading only");
                return Err(refuse(spec, op_place(spec, index), rule));
            }
        }
    }
    Ok(())
}

fn check_all(spec: &ProgramSpec, buffer_bytes: Option<&[u64]>) -> Result<(), PluginError> {
    if spec.tensors.len() > MAX_ITEMS || spec.ops.len() > MAX_ITEMS {
        let rule = format!("{} tensors and {} ops, at most {MAX_ITEMS} each", spec.tensors.len(), spec.ops.len());
        return Err(refuse(spec, "size", rule));
    }
    scalars(spec)?;
    let views = (0..spec.tensors.len())
        .map(|index| View::check(spec, index, buffer_bytes).map(Some))
        .collect::<Result<Vec<_>, _>>()?;
    for index in 0..spec.ops.len() {
        OpCheck::new(spec, &views, index)?.check()?;
    }
    constants_stay(spec, &views)
}

/// Scalars cross as 64 bits but count tokens and positions, which tensors hold as I32.
fn scalars(spec: &ProgramSpec) -> Result<(), PluginError> {
    if spec.scalar_max.len() > STRATA_N_SCALARS {
        let rule = format!("{} scalars, this ABI has {STRATA_N_SCALARS}", spec.scalar_max.len());
        return Err(refuse(spec, "scalars", rule));
    }
    for (index, max) in spec.scalar_max.iter().enumerate() {
        if !(0..=i64::from(i32::MAX)).contains(max) {
            return Err(refuse(spec, "scalars", format!("greatest value {max} of scalar {index} is not 0 to 2³¹ − 1")));
        }
    }
    Ok(())
}

/// No op may write where a constant tensor lies: the plugin may have its own copy of that.
fn constants_stay(spec: &ProgramSpec, views: &[Option<View>]) -> Result<(), PluginError> {
    let mut constants: Vec<Vec<&View>> = Vec::new();
    for view in views.iter().flatten().filter(|view| view.constant) {
        let buffer = view.buffer as usize;
        if constants.len() <= buffer {
            constants.resize_with(buffer + 1, Vec::new);
        }
        constants[buffer].push(view);
    }
    for index in 0..spec.ops.len() {
        for result in results(spec, index) {
            let Some(view) = views[result] else { continue };
            let Some(here) = constants.get(view.buffer as usize) else { continue };
            if let Some(constant) = here.iter().find(|constant| overlaps(constant, &view)) {
                let rule = format!("result tensor {result} overlaps constant tensor {}", constant.index);
                return Err(refuse(spec, op_place(spec, index), rule));
            }
        }
    }
    Ok(())
}

/// Indices of the tensors that an op of a validated program writes.
fn results(spec: &ProgramSpec, index: usize) -> impl Iterator<Item = usize> {
    let op = &spec.ops[index];
    let operands = StrataOpKind::from_number(op.kind).and_then(signature).map_or(&[][..], |found| found.operands);
    operands
        .iter()
        .zip(op.operand)
        .filter(|(operand, tensor)| operand.role == Role::Result && *tensor != STRATA_NO_OPERAND)
        .map(|(_, tensor)| tensor as usize)
}

fn op_place(spec: &ProgramSpec, index: usize) -> String {
    let op = &spec.ops[index];
    let kind =
        StrataOpKind::from_number(op.kind).map_or_else(|| format!("kind {}", op.kind), |kind| format!("{kind:?}"));
    if op.layer < 0 { format!("op {index} ({kind})") } else { format!("op {index} ({kind}, layer {})", op.layer) }
}

fn refuse(spec: &ProgramSpec, place: impl Into<String>, rule: impl Into<String>) -> PluginError {
    PluginError::Program { program: spec.name.clone(), place: place.into(), rule: rule.into() }
}
