//! A listing of a program for people.
use crate::ProgramSpec;
pub fn describe(spec: &ProgramSpec) -> String {
    format!("program {}: {} ops", spec.name, spec.ops.len())
}
