//! Making plugins for tests: the plugin in C (also with its source changed), and descriptors.

use std::path::{Path, PathBuf};
use std::process::Command;
use strata_manifest::{BackendKind, Document, Version};
use strata_plugin_host::describe_library;

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The plugin in C of the ABI crate, made in `folder` and called `stem` there, with each
/// `(from, to)` replaced in its source.
pub(crate) fn c_demo(folder: &Path, stem: &str, changes: &[(&str, &str)]) -> Result<PathBuf, String> {
    let abi = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("strata-backend-abi");
    let mut source = fs_err::read_to_string(abi.join("tests/c/plugin.c")).map_err(text)?;
    for (from, to) in changes {
        if source.matches(from).count() != 1 {
            return Err(format!("`{from}` is not in plugin.c exactly once"));
        }
        source = source.replace(from, to);
    }
    let (file, library) = (folder.join(format!("{stem}.c")), folder.join(format!("{stem}_built.so")));
    fs_err::write(&file, source).map_err(text)?;
    let mut compile = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    compile.args(["-std=c11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-o"]).arg(&library);
    compile.arg(format!("-DC_DEMO_VERSION=\"{}\"", Version::current()));
    compile.arg("-I").arg(abi.join("include")).arg("-I").arg(abi.join("tests/c")).arg(file).arg("-lm");
    run(&mut compile)?;
    describe(folder, stem, "c-demo", &library)
}

pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Copies a library into `folder` and writes its descriptor beside it.
pub(crate) fn describe(folder: &Path, stem: &str, name: &str, library: &Path) -> Result<PathBuf, String> {
    let file = format!("{stem}{}", std::env::consts::DLL_SUFFIX);
    let copy = folder.join(&file);
    fs_err::copy(library, &copy).map_err(text)?;
    let targets = [std::env::consts::ARCH];
    let descriptor = describe_library(&copy, name, BackendKind::Cpu, &targets).map_err(text)?;
    let path = folder.join(format!("{stem}.plugin.json"));
    descriptor.write(&path).map_err(text)?;
    Ok(path)
}
