//! What the HIP plugins are built for, said once: their build scripts compile it and staging declares it.

use crate::compile::{Target, TargetKind, clang};

/// Wave width 64, any setting of sramecc and xnack: Radeon VII, Radeon Pro VII, MI50, MI60.
pub const HIP_GFX906_TARGETS: [Target; 1] = [code_object("gfx906")];
/// Wave width 32: RX 7900 (1100), RX 7800 and 7700 (1101), RX 7600 (1102).
pub const HIP_RX7900_TARGETS: [Target; 3] = [code_object("gfx1100"), code_object("gfx1101"), code_object("gfx1102")];

const fn code_object(arch: &'static str) -> Target {
    Target { arch, kind: TargetKind::CodeObject }
}

/// Targets that a plugin built now holds code for, as descriptors name them; none without a compiler.
pub fn hip_target_names(targets: &[Target]) -> Vec<String> {
    if clang().is_none() {
        return Vec::new();
    }
    targets.iter().map(|target| target.arch.to_owned()).collect()
}
