//! Source files: module docs, length, no `allow` attributes, unsafe only where the design says.

use crate::workspace::root;
use std::path::{Path, PathBuf};

/// Non-test lines that a file may have.
const MOST_LINES: usize = 800;
/// Files with at most this many lines need no module doc.
const DOC_FROM: usize = 150;
/// Longer by nature: catalogues, with the reason.
const CATALOGUES: &[(&str, &str)] = &[
    ("engine-core/strata-backend-abi/src/codebook.rs", "tables of numbers"),
    ("engine-core/strata/src/cli.rs", "every flag of the command line"),
];
/// Where `unsafe` may stand: a path prefix and why. The lint refuses it everywhere else; this list
/// keeps the exceptions themselves from spreading.
const UNSAFE: &[(&str, &str)] = &[
    ("engine-core/strata-backend-abi/", "FFI types and reads of structs of unknown length"),
    ("engine-core/strata-plugin-host/src/raw.rs", "dlopen, the entry, process limits"),
    ("engine-core/strata-plugin-host/src/raw/", "calls through the C table"),
    ("engine-core/strata-model/src/chat/apart.rs", "a bounded process apart for chat templates"),
    ("engine-core/strata-model/src/gguf/mapping", "memory-mapping a model, outliving its shrinking"),
    ("backends/strata-backend-sdk/", "the exported C functions"),
    ("backends/strata-backend-cpu/src/simd/", "SIMD intrinsics"),
    (
        "backends/strata-backend-cpu/benches/matmul/peak.rs",
        "instructions chosen by variant, and assembly that keeps the optimiser out",
    ),
    ("backends/strata-backend-cpu/benches/matmul/simd.rs", "the plain read that the benchmark compares with"),
    ("backends/strata-backend-cpu/tests/entry.rs", "calls through the plugin's own C table"),
    ("backends/strata-backend-cpu/src/memory.rs", "raw buffers as slices"),
    ("backends/strata-backend-cpu/src/pool.rs", "sharing a job with worker threads, affinity"),
    ("backends/strata-backend-cuda/src/driver", "calls into the CUDA driver"),
    ("backends/strata-backend-cuda/src/standin.rs", "tests: the stand-in driver's own functions"),
    ("backends/strata-hip/src/driver", "calls into the HIP runtime"),
    ("backends/strata-hip/tests/", "tests: the software device's own functions"),
    ("backends/strata-hip-software/", "tests: a HIP runtime's C functions"),
    ("backends/strata-kernel-build/tests/kernels/host.rs", "tests: kernels compiled for the processor, guarded memory"),
    ("manifests/strata-build-record/src/lib.rs", "the attribute that places a note section"),
];

/// A Rust file of the workspace.
pub(super) struct Source {
    /// Relative to the root, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

impl Source {
    /// The text before the first test module.
    pub(super) fn without_tests(&self) -> &str {
        self.text.find("#[cfg(test)]\nmod ").map_or(&self.text, |at| &self.text[..at])
    }

    fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("_tests.rs") || self.path.ends_with("/tests.rs")
    }
}

/// All Rust files below the rooms.
pub(super) fn sources() -> anyhow::Result<Vec<Source>> {
    let root = root();
    let mut found = Vec::new();
    for room in ["manifests", "packaging", "installer", "engine-core", "backends", "scripts", "fuzz"] {
        collect(&root, &root.join(room), &mut found)?;
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<Source>) -> anyhow::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs_err::read_dir(folder)? {
        let path: PathBuf = entry?.path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                collect(root, &path, found)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let relative = path.strip_prefix(root)?.to_string_lossy().into_owned();
            found.push(Source { path: relative, text: fs_err::read_to_string(&path)? });
        }
    }
    Ok(())
}

pub(super) fn violations(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        let path = &source.path;
        let lines = source.without_tests().lines().count();
        let is_catalogue = CATALOGUES.iter().any(|(listed, _)| listed == path);
        if lines > MOST_LINES && !is_catalogue && !source.is_test() {
            found.push(format!("{path} has {lines} lines without its tests, {MOST_LINES} is the most"));
        }
        let needs_doc = path.ends_with("/lib.rs") || source.text.lines().count() > DOC_FROM;
        if needs_doc && !source.text.starts_with("//!") && !source.text.starts_with("#![no_main]") {
            found.push(format!("{path} does not open with `//!`: what it is, what it is not, who calls it"));
        }
        for (number, line) in source.text.lines().enumerate() {
            let line = line.trim_start();
            if line.starts_with("#[allow(") || line.starts_with("#![allow(") {
                found.push(format!("{path}:{}: `allow`; write `expect` with a reason", number + 1));
            }
            let is_unsafe = !line.starts_with("//")
                && (line.contains("unsafe {") || line.contains("unsafe fn ") || line.contains("unsafe impl "));
            if is_unsafe
                && !path.starts_with("scripts/xtask/")
                && !UNSAFE.iter().any(|(prefix, _)| path.starts_with(prefix))
            {
                found.push(format!("{path}:{}: `unsafe` outside the places that the design names", number + 1));
            }
        }
    }
    found
}
