//! Writes docs/AMD-KERNELS.md: `cargo run -p strata-kernel-build --example amd_kernels -- docs/AMD-KERNELS.md`.
use std::path::Path;

use strata_kernel_build::amd_kernels_page;

fn main() -> Result<(), String> {
    let to = std::env::args_os().nth(1).ok_or("which file?")?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels");
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kernel-objects");
    let out = std::env::var_os("CARGO_TARGET_DIR").map_or(out, |target| Path::new(&target).join("kernel-objects"));
    let (page, _) = amd_kernels_page(&sources, &out)?.ok_or("clang-19 was not found")?;
    fs_err::write(to, page).map_err(|error| error.to_string())
}
