//! A program description, read out of the host's memory into plain vectors.
#![expect(unsafe_code, reason = "reads the arrays that a StrataProgramDesc points at")]

use strata_backend_abi::{
    STRATA_MAX_DIMS, STRATA_NO_OPERAND, STRATA_PROGRAM_PRECISE, StrataDType, StrataHandle, StrataOp, StrataOpKind,
    StrataProgramDesc, StrataTensor,
};

use crate::{Failure, Result, raw};

/// A program as the host describes it. Indices inside it (operands, buffers, scalars) are checked
/// to be in range; shapes and formats are the host's to check (design: the host validates
/// everything).
#[derive(Debug, Clone)]
pub struct ProgramView<'a> {
    /// For messages and traces.
    pub name: &'a str,
    /// Activations must not be rounded below F32: `STRATA_PROGRAM_PRECISE`.
    pub precise: bool,
    /// All of `STRATA_PROGRAM_*`.
    pub flags: u32,
    /// Operands, by index.
    pub tensors: Vec<StrataTensor>,
    /// In an order in which running them one after another is right.
    pub ops: Vec<StrataOp>,
    /// Greatest value that each scalar will have in a run.
    pub scalar_max: Vec<i64>,
}

impl<'a> ProgramView<'a> {
    /// Reads the description and, for compiling, its buffer handles.
    ///
    /// # Safety
    /// `desc` is null or points at a description whose pointers are valid for `'a`.
    pub(crate) unsafe fn read(desc: *const StrataProgramDesc) -> Result<(ProgramView<'a>, Vec<StrataHandle>)> {
        // SAFETY: the caller's guarantee.
        let desc = unsafe { raw::read(desc) }?;
        // SAFETY: the caller guarantees the name for `'a`.
        let name = unsafe { raw::text(desc.name, "the program's name") }?;
        // SAFETY: the caller guarantees `n_tensors` elements at `tensor_stride`.
        let tensors = unsafe { raw::strided(desc.tensors, desc.n_tensors, desc.tensor_stride) }?;
        // SAFETY: the caller guarantees `n_ops` elements at `op_stride`.
        let ops = unsafe { raw::strided(desc.ops, desc.n_ops, desc.op_stride) }?;
        // SAFETY: the caller guarantees `n_scalars` values.
        let scalar_max = unsafe { raw::array(desc.scalar_max, desc.n_scalars, "scalar_max") }?;
        // SAFETY: the caller guarantees `n_buffers` handles.
        let buffers = unsafe { raw::array(desc.buffers, desc.n_buffers, "buffers") }?;
        let precise = desc.flags & STRATA_PROGRAM_PRECISE != 0;
        let view = ProgramView { name, precise, flags: desc.flags, tensors, ops, scalar_max };
        view.check_indices()?;
        Ok((view, buffers))
    }

    fn check_indices(&self) -> Result<()> {
        let (n_tensors, n_scalars) = (self.tensors.len(), self.scalar_max.len());
        for (index, op) in self.ops.iter().enumerate() {
            let bad = op.operand.iter().find(|slot| **slot != STRATA_NO_OPERAND && **slot as usize >= n_tensors);
            if let Some(bad) = bad {
                return Err(Failure::host_bug(format_args!("op {index} names tensor {bad} of {n_tensors}")));
            }
        }
        for (index, tensor) in self.tensors.iter().enumerate() {
            if let Some(bad) = tensor.dynamic.iter().find(|scalar| **scalar as usize > n_scalars) {
                let scalar = bad - 1;
                return Err(Failure::host_bug(format_args!(
                    "tensor {index} names scalar {scalar}, the program has {n_scalars}"
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn check_buffers(&self, n_buffers: usize) -> Result<()> {
        let bad = self.tensors.iter().enumerate().find(|(_, tensor)| tensor.buffer as usize >= n_buffers);
        match bad {
            Some((index, tensor)) => Err(Failure::host_bug(format_args!(
                "tensor {index} names buffer {}, the program has {n_buffers}",
                tensor.buffer
            ))),
            None => Ok(()),
        }
    }

    /// Kind of the op, or `None` for a number that this build does not know.
    pub fn kind(&self, op: usize) -> Option<StrataOpKind> {
        self.ops.get(op).and_then(|op| StrataOpKind::from_number(op.kind))
    }

    /// The tensor in an operand slot of the op, or `None` for a slot that is not used.
    pub fn operand(&self, op: usize, slot: usize) -> Option<&StrataTensor> {
        let index = *self.ops.get(op)?.operand.get(slot)?;
        // STRATA_NO_OPERAND is past the end of every tensor list.
        self.tensors.get(index as usize)
    }

    /// Format of a tensor, or `None` for a number that this build does not know.
    pub fn dtype(tensor: &StrataTensor) -> Option<StrataDType> {
        StrataDType::from_number(tensor.dtype)
    }

    /// Extents of a tensor in a run with these scalars; negative scalars count as 0.
    pub fn extents(tensor: &StrataTensor, scalars: &[i64]) -> [u64; STRATA_MAX_DIMS] {
        let mut extents = tensor.ne;
        for (extent, dynamic) in extents.iter_mut().zip(tensor.dynamic) {
            if let Some(scalar) = (dynamic as usize).checked_sub(1) {
                let value = scalars.get(scalar).copied().unwrap_or(0);
                *extent = u64::try_from(value).unwrap_or(0).min(*extent);
            }
        }
        extents
    }
}
