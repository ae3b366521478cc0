//! The one place of this crate where `unsafe` lives: vector kernels, plain-data views of the
//! workspaces, and disjoint writing by several workers.
//!
//! What is computed, in which order and why is said in `crate::matmul`, whose scalar code every
//! kernel here must match bit for bit (its property tests compare them). Kernels take slices and
//! fixed-size arrays, so a read past a row is a panic in a test and not a fault on a mapping's last
//! page. A kernel's callers choose it by `crate::matmul::Variant`, which only names what the CPU has.
#![expect(unsafe_code, reason = "vector intrinsics, plain-data views and disjoint writes; nothing else")]

mod lines;
#[cfg(target_arch = "x86_64")]
pub(crate) mod ops_avx2;
mod out;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

pub(crate) use lines::*;
pub(crate) use out::OutPart;
