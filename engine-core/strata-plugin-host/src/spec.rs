//! A program before it crosses the boundary: owned tensors and ops, and what a plugin says about
//! one of them. It holds no rules (validate.rs) and no conveniences (builder.rs). Made by the
//! engine and by the conformance kit.

use strata_backend_abi::{StrataOp, StrataTensor};

/// A flat list of ops over views into buffers; `StrataProgramDesc` in owned form.
#[derive(Debug, Clone, Default)]
pub struct ProgramSpec {
    /// For messages and traces.
    pub name: String,
    /// `STRATA_PROGRAM_PRECISE`.
    pub precise: bool,
    pub tensors: Vec<StrataTensor>,
    pub ops: Vec<StrataOp>,
    /// Greatest value of each scalar in any run, indexed by `StrataScalar`; may be shorter.
    pub scalar_max: Vec<i64>,
}

impl ProgramSpec {
    /// Buffers that the tensors refer to: one more than the greatest index.
    pub fn buffer_count(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.buffer as usize + 1).max().unwrap_or(0)
    }
}

/// A plugin's answer about one op.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    Yes,
    /// Not on this device, and why.
    No(String),
}

impl Support {
    pub fn is_yes(&self) -> bool {
        *self == Support::Yes
    }
}
