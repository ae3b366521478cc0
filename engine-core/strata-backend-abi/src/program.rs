//! A program: the flat list of ops that a plugin compiles once and runs many times.

use crate::{StrataHandle, StrataOp, StrataStr, StrataTensor, sized_struct};

/// Activations are not rounded below F32 and products are summed in F32 or better: the slow,
/// nearly exact way. Without it a plugin may quantise activations to 8 bits before a matmul.
pub const STRATA_PROGRAM_PRECISE: u32 = 1 << 0;

/// What `program_compile` takes. All pointers are borrowed for the call.
///
/// Ops are in an order in which running them one after another is right. Tensors may share bytes
/// of a buffer: a plugin that reorders or overlaps ops must respect every overlap that makes one
/// op write what another reads or writes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StrataProgramDesc {
    pub struct_size: u32,
    /// `STRATA_PROGRAM_*`.
    pub flags: u32,
    /// For messages and traces.
    pub name: StrataStr,
    pub tensors: *const StrataTensor,
    pub ops: *const StrataOp,
    /// Buffers of this device that the tensors' `buffer` indexes.
    pub buffers: *const StrataHandle,
    /// Greatest value that each scalar will have in a run.
    pub scalar_max: *const i64,
    pub n_tensors: u32,
    /// Bytes from one tensor to the next: the writer's struct size.
    pub tensor_stride: u32,
    pub n_ops: u32,
    /// Bytes from one op to the next: the writer's struct size.
    pub op_stride: u32,
    pub n_buffers: u32,
    pub n_scalars: u32,
}
sized_struct!(StrataProgramDesc);

/// What a compiled program costs beside the host's buffers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StrataProgramInfo {
    pub struct_size: u32,
    /// Launches of one run after fusing, for reports; 0 when it has no such notion.
    pub n_launches: u32,
    /// Bytes of device memory that the plugin took for this program.
    pub workspace_bytes: u64,
    /// Bytes that the plugin took for rearranged constant tensors.
    pub constant_bytes: u64,
}
sized_struct!(StrataProgramInfo);

/// What `program_run` takes. The call may return before the work is done; the work of one device
/// is done in the order of the calls. Buffer reads and `synchronize` wait for it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StrataRunArgs {
    pub struct_size: u32,
    pub n_scalars: u32,
    pub scalars: *const i64,
    /// Events of this device that must be signalled before the work starts.
    pub wait: *const StrataHandle,
    pub n_wait: u32,
    pub reserved: u32,
    /// Event of this device to signal when the work is done, or no handle.
    pub signal: StrataHandle,
}
sized_struct!(StrataRunArgs);
