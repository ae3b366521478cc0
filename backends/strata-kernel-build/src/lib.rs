//! For build scripts: compiles the GPU kernel sources with clang for a list of targets and writes a
//! Rust table of what came out, which the plugin includes.
//!
//! It knows compilers, not kernels: which entries a file has is read from the compiler's output. A
//! machine without clang is no error here: the table is empty then, the plugin says so when it is
//! opened, and packaging refuses it. Called by the build scripts of the GPU plugins.

mod cache;
mod compile;
mod cuda;
mod document;
mod estimate;
mod hip;
mod host;
pub mod inspect;
mod table;

use std::path::{Path, PathBuf};

pub use compile::{Target, TargetKind};
pub use cuda::{CUDA_CUBINS, CUDA_TARGETS, cuda_target_names};
pub use document::{amd_kernels_page, compiler_version};
pub use hip::{HIP_GFX906_TARGETS, HIP_RX7900_TARGETS, hip_target_names};
pub use host::{HOST_WAVES, HostOutcome, host_library};

/// Where an override of the compiler is taken from.
pub const CLANG_VARIABLE: &str = "STRATA_CLANG";
/// Where the PTX assembler is taken from when it is not on the path.
pub const PTXAS_VARIABLE: &str = "STRATA_PTXAS";

/// What to build.
#[derive(Debug)]
pub struct Recipe<'a> {
    /// Folder of the `.cu` files and headers.
    pub sources: &'a Path,
    /// In the order in which a loader should prefer them, best first.
    pub targets: &'a [Target],
    /// Further targets that the PTX assembler makes machine code for, when it is there: `sm_90`.
    pub cubins: &'a [&'a str],
    /// Folder for outputs.
    pub out: &'a Path,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Modules that were built.
    Built(usize),
    /// No compiler; the reason as a sentence. The table is there and empty.
    NotBuilt(String),
}

/// Builds, writes `kernels.rs` into the output folder, and prints cargo's directives.
///
/// # Errors
/// A kernel does not compile, or a file cannot be read or written: the text says which and why.
pub fn build(recipe: &Recipe<'_>) -> Result<Outcome, String> {
    for variable in [CLANG_VARIABLE, PTXAS_VARIABLE, "PATH"] {
        directive(&format!("rerun-if-env-changed={variable}"));
    }
    directive(&format!("rerun-if-changed={}", recipe.sources.display()));
    let sources = sources(recipe.sources)?;
    let table_path = recipe.out.join("kernels.rs");
    let Some(clang) = compile::clang() else {
        let reason = "clang-19 was not found".to_owned();
        table::write(&table_path, &[], Some(&reason))?;
        return Ok(Outcome::NotBuilt(reason));
    };
    let ptxas = compile::ptxas();
    let modules = compile::all(recipe, &sources, &clang, ptxas.as_deref())?;
    table::write(&table_path, &modules, None)?;
    Ok(Outcome::Built(modules.len()))
}

/// Each kernel source's module with what its targets' machine code is called.
pub type Assembled = Vec<(String, Vec<String>)>;

/// Compiles everything and hands it to this assembler, as [`build`] would with the assembler at hand; module by module
/// its targets. For tests. None without a compiler.
///
/// # Errors
/// As [`build`].
pub fn assemble(recipe: &Recipe<'_>, ptxas: &Path) -> Result<Option<Assembled>, String> {
    let Some(clang) = compile::clang() else { return Ok(None) };
    fs_err::create_dir_all(recipe.out).map_err(|error| error.to_string())?;
    let modules = compile::all(recipe, &kernel_sources(recipe.sources)?, &clang, Some(ptxas))?;
    let targets = |module: compile::Module| module.images.into_iter().map(|(target, _)| target).collect();
    Ok(Some(modules.into_iter().map(|module| (module.name.clone(), targets(module))).collect()))
}

#[expect(clippy::print_stdout, reason = "cargo reads directives from a build script's standard output")]
fn directive(text: &str) {
    println!("cargo::{text}");
}

/// The `.cu` files in order of name, each a dependency of the build script. Headers only count as dependencies.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, String> {
    for entry in fs_err::read_dir(folder).map_err(|error| error.to_string())? {
        directive(&format!("rerun-if-changed={}", entry.map_err(|error| error.to_string())?.path().display()));
    }
    kernel_sources(folder)
}

fn kernel_sources(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(folder).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.extension().is_some_and(|extension| extension == "cu") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
