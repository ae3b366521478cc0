//! What the CUDA plugin is built for, said once: its build script compiles it and staging declares it.

use crate::compile::{Target, TargetKind, clang, ptxas};

/// PTX for every card from 7.5 (Turing) on, from 8.0 on with its tensor cores and copies, and for 9.0 with what is new there.
pub const CUDA_TARGETS: [Target; 3] = [
    Target { arch: "sm_75", kind: TargetKind::Ptx(64) },
    Target { arch: "sm_80", kind: TargetKind::Ptx(72) },
    Target { arch: "sm_90", kind: TargetKind::Ptx(80) },
];
/// Machine code where the assembler is at hand.
pub const CUDA_CUBINS: [&str; 3] = ["sm_75", "sm_80", "sm_90"];

/// Targets that a plugin built now holds code for, as descriptors name them; none without a compiler.
pub fn cuda_target_names() -> Vec<String> {
    if clang().is_none() {
        return Vec::new();
    }
    let cubins = CUDA_CUBINS.iter().filter(|_| ptxas().is_some()).map(|name| (*name).to_owned());
    let ptx = CUDA_TARGETS.iter().map(|target| target.arch.replace("sm_", "compute_"));
    // The kernels for 9.0 alone; their machine code says 9.0 like the others'.
    cubins.chain(ptx).chain(["compute_90a".to_owned()]).collect()
}
