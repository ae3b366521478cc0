//! The validator of programs; see below.
use crate::{PluginError, ProgramSpec};

pub fn validate(_spec: &ProgramSpec, _buffer_bytes: &[u64]) -> Result<(), PluginError> {
    Ok(())
}
pub(crate) fn validate_shapes(_spec: &ProgramSpec) -> Result<(), PluginError> {
    Ok(())
}
pub(crate) fn validate_op(_spec: &ProgramSpec, _op: usize) -> Result<(), PluginError> {
    Ok(())
}
pub(crate) fn validate_read_only(_spec: &ProgramSpec, _read_only: impl Fn(usize) -> bool) -> Result<(), PluginError> {
    Ok(())
}
