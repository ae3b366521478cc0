//! Names of files that a build leaves behind and no program reads.

/// What a file name looks like, when it looks like something that belongs into no package.
///
/// The GPU compiler's bundler names its parts after their target: `x.hipv4-amdgcn-amd-amdhsa--gfx1100`
/// for the device, `x.host-x86_64-unknown-linux-gnu-` for the host.
pub fn looks_like(name: &str) -> Option<&'static str> {
    let device = ["hip", "hipv4", "openmp"].iter().any(|kind| name.contains(&format!(".{kind}-amdgcn-")));
    let host = name.contains(".host-x86_64-") || name.contains(".host-aarch64-");
    (device || host).then_some("an unbundled code object")
}

#[cfg(test)]
mod tests {
    use super::looks_like;

    #[test]
    fn parts_of_bundles_are_known_by_name() {
        for name in [
            "strata.12.hipv4-amdgcn-amd-amdhsa--gfx1100",
            "librocblas.so.5.3.hipv4-amdgcn-amd-amdhsa--gfx906:xnack-",
            "strata.3.host-x86_64-unknown-linux-gnu-",
            "k.hip-amdgcn-amd-amdhsa--gfx906",
        ] {
            assert_eq!(looks_like(name), Some("an unbundled code object"), "{name}");
        }
        for name in ["strata", "TensileLibrary_gfx906.co", "Kernels.so-000-gfx1100.hsaco", "host-x86_64-notes.md"] {
            assert_eq!(looks_like(name), None, "{name}");
        }
    }
}
