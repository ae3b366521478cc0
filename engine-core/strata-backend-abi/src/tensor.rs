//! Operands: strided views into buffers, some of whose dimensions are set per run.

use crate::sized_struct;

/// Number of dimensions that every view has; unused ones are 1.
pub const STRATA_MAX_DIMS: usize = 4;

/// The tensor never changes after the program is compiled; a plugin may keep its own copy in
/// another arrangement.
pub const STRATA_TENSOR_CONSTANT: u32 = 1 << 0;

/// A view: `ne[0]` is the contiguous dimension, as in GGUF.
///
/// Element `(i0, i1, i2, i3)` of a plain type lies at `offset + Σ iₖ·nb[k]` bytes into the buffer.
/// For block formats `nb[0]` is the bytes of a block and `i0` counts blocks. `nb[0]` is always the
/// plain size: rows are contiguous. `ne[0]` is never dynamic, except in a vector of indices (`I32`,
/// one dimension), which may also be longer than the step needs. No two elements share bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StrataTensor {
    pub struct_size: u32,
    /// `StrataDType`.
    pub dtype: u32,
    /// Index into the program's buffers.
    pub buffer: u32,
    /// `STRATA_TENSOR_*`.
    pub flags: u32,
    /// Bytes into the buffer.
    pub offset: u64,
    /// Elements per dimension; the greatest value where `dynamic` names a scalar.
    pub ne: [u64; STRATA_MAX_DIMS],
    /// Bytes from one index to the next, per dimension.
    pub nb: [u64; STRATA_MAX_DIMS],
    /// Per dimension: 0 for fixed, else 1 + the scalar (`StrataScalar`) that holds its value in a run.
    pub dynamic: [u32; STRATA_MAX_DIMS],
}
sized_struct!(StrataTensor);

/// The scalars that a run sets. A program may use fewer.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StrataScalar {
    /// Tokens in this step.
    Tokens = 0,
    /// Rows of which logits are wanted.
    Outputs = 1,
    /// Greatest position + 1 over the step's tokens: how far attention can reach. A hint for
    /// launch sizes; what a token sees is decided by its own position.
    KvLength = 2,
    /// Position of the first token when the step is one contiguous run of one sequence, else -1.
    Position = 3,
}

/// Scalars that this version defines.
pub const STRATA_N_SCALARS: usize = 4;
