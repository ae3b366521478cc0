//! Describing a plugin library: what a packager, `cargo xtask stage` and tests write beside it. The
//! counterpart of `verify.rs`, which compares a library with its descriptor.

use crate::PluginError;
use std::path::Path;
use strata_backend_abi::{STRATA_ABI_MAJOR, STRATA_ABI_MINOR, layout};
use strata_manifest::{BackendKind, Document, PluginDescriptor, Sha256Digest, Version};

/// The descriptor of a library that was built from this workspace for this machine. `targets` is
/// what its kernels are for (`PluginDescriptor::targets`). The library is read and not opened.
pub fn describe_library(
    library: &Path,
    name: &str,
    kind: BackendKind,
    targets: &[&str],
) -> Result<PluginDescriptor, PluginError> {
    let wrong = |reason: String| PluginError::Descriptor { path: library.to_owned(), reason };
    let file = library.file_name().and_then(|file| file.to_str());
    let file = file.ok_or_else(|| wrong("the library's file name is not UTF-8".to_owned()))?;
    let opened = fs_err::File::open(library).map_err(|error| wrong(error.to_string()))?;
    let (sha256, size) = Sha256Digest::of_reader(opened).map_err(|error| wrong(error.to_string()))?;
    let abi = format!("{STRATA_ABI_MAJOR}.{STRATA_ABI_MINOR}");
    Ok(PluginDescriptor {
        schema: PluginDescriptor::SCHEMA.to_owned(),
        name: name.to_owned(),
        version: Version::current(),
        kind,
        abi_lowest: abi.clone(),
        abi_highest: abi,
        layout_hash: layout::hash(),
        os: std::env::consts::OS.to_owned(),
        cpu_arch: std::env::consts::ARCH.to_owned(),
        targets: targets.iter().map(|&target| target.to_owned()).collect(),
        library: file.to_owned(),
        sha256,
        size,
        libc_floor: None,
        driver_floor: None,
        unproven: None,
    })
}
