//! The kernels as a library for this machine's processor, one a wave width: what the software HIP device
//! and the tests launch. `backends/kernels/host_launch.h` says what it exports. Never part of a package.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::compile::{clang, each, newest, refresh, run};

/// Waves that the cards have: 32 lanes on gfx11, 64 on gfx906.
pub const HOST_WAVES: [u32; 2] = [32, 64];

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub enum HostOutcome {
    /// The library.
    Built(PathBuf),
    /// No compiler; the reason as a sentence.
    NotBuilt(String),
}

/// Compiles every kernel of `sources` for the processor and a wave of `wave` lanes, and links
/// `libstrata_kernels_wave{wave}.so` into `out`. What did not change since is not compiled again.
///
/// # Errors
/// A kernel does not compile, or a file cannot be read or written: the text says which and why.
pub fn host_library(sources: &Path, out: &Path, wave: u32) -> Result<HostOutcome, String> {
    let Some(clang) = clang() else { return Ok(HostOutcome::NotBuilt("clang-19 was not found".to_owned())) };
    let folder = out.join(format!("host-wave{wave}"));
    fs_err::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let compiler = Compiler { clang: &clang, sources, folder: &folder, wave };
    let mut objects: Vec<PathBuf> =
        each(&crate::kernel_sources(sources)?, |source| compiler.kernels(source))?.into_iter().flatten().collect();
    objects.push(compiler.object(&sources.join("host_runtime.cc"), "runtime")?);
    let library = out.join(format!("libstrata_kernels_wave{wave}.so"));
    let mut link = Command::new(&clang);
    link.args(["-shared", "-Wl,-z,defs", "-o"]).arg(&library).args(&objects).args(["-lpthread", "-lm"]);
    let mut latest = std::time::UNIX_EPOCH;
    for object in &objects {
        let made = fs_err::metadata(object).and_then(|metadata| metadata.modified());
        latest = latest.max(made.map_err(|error| error.to_string())?);
    }
    refresh(link, latest, &library)?;
    Ok(HostOutcome::Built(library))
}

struct Compiler<'a> {
    clang: &'a Path,
    sources: &'a Path,
    folder: &'a Path,
    wave: u32,
}

impl Compiler<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(self.clang);
        command.args(["-x", "c++", "-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off"]);
        command.args(["-fno-math-errno", "-Wall", "-Werror", "-Wno-unused-variable", "-Wno-unused-function"]);
        command.arg(format!("-DSTRATA_HOST={}", self.wave)).arg("-I").arg(self.sources);
        // For speed only: conversions of halves and fused multiply-add have the same results either way.
        if modern_processor() {
            command.arg("-march=x86-64-v3");
        }
        command
    }

    fn object(&self, source: &Path, name: &str) -> Result<PathBuf, String> {
        let out = self.folder.join(format!("{name}.o"));
        let mut command = self.command();
        command.arg("-c").arg("-o").arg(&out).arg(source);
        let newest = newest(self.sources, source)?;
        refresh(command, newest, &out)?;
        Ok(out)
    }

    /// One source with the table of its kernels behind it; none when it has no kernel for AMD.
    fn kernels(&self, source: &Path) -> Result<Option<PathBuf>, String> {
        let name = source.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let text = self.folder.join(format!("{name}.i"));
        let mut command = self.command();
        command.args(["-E", "-P", "-o"]).arg(&text).arg(source);
        run(&mut command)?;
        let found = kernels(&fs_err::read_to_string(&text).map_err(|error| error.to_string())?);
        fs_err::remove_file(&text).map_err(|error| error.to_string())?;
        if found.is_empty() {
            return Ok(None);
        }
        let table = table(&source.display().to_string(), &found);
        let path = self.folder.join(format!("{name}.cc"));
        if fs_err::read_to_string(&path).ok().as_ref() != Some(&table) {
            fs_err::write(&path, table).map_err(|error| error.to_string())?;
        }
        let out = self.folder.join(format!("{name}.o"));
        let mut command = self.command();
        command.arg("-c").arg("-o").arg(&out).arg(&path);
        let written = fs_err::metadata(&path).and_then(|metadata| metadata.modified());
        let newest = newest(self.sources, source)?.max(written.map_err(|error| error.to_string())?);
        refresh(command, newest, &out)?;
        Ok(Some(out))
    }
}

/// The names of the kernels in a preprocessed source, and how many work-items a block may have.
fn kernels(text: &str) -> Vec<(String, String)> {
    let rest = text.split("annotate(\"strata kernel\",").skip(1);
    rest.filter_map(|rest| {
        let (items, rest) = rest.split_once(")))")?;
        let (name, _) = rest.split_once('(')?;
        Some((name.trim().to_owned(), items.trim().to_owned()))
    })
    .collect()
}

fn table(source: &str, kernels: &[(String, String)]) -> String {
    let mut text =
        format!("#include \"{source}\"\n#include \"host_registry.h\"\nSTRATA_HOST_TABLE strata_table[] = {{\n");
    for (name, items) in kernels {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "    STRATA_HOST_ENTRY({name}, {items}),");
    }
    text.push_str("};\n");
    text
}

#[cfg(target_arch = "x86_64")]
fn modern_processor() -> bool {
    let needed = [
        std::is_x86_feature_detected!("avx2"),
        std::is_x86_feature_detected!("fma"),
        std::is_x86_feature_detected!("f16c"),
        std::is_x86_feature_detected!("bmi2"),
        std::is_x86_feature_detected!("lzcnt"),
        std::is_x86_feature_detected!("movbe"),
    ];
    needed.into_iter().all(|there| there)
}

#[cfg(not(target_arch = "x86_64"))]
fn modern_processor() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_read_from_preprocessed_text() {
        let text = "extern \"C\" void __attribute__((annotate(\"strata kernel\", 256))) copy(ElementArgs args) {}\n\
            extern \"C\" void __attribute__((annotate(\"strata kernel\", 64))) attention_merge_64(A args) { }";
        let expected = [("copy", "256"), ("attention_merge_64", "64")];
        assert_eq!(kernels(text), expected.map(|(name, items)| (name.to_owned(), items.to_owned())));
        assert!(kernels("void helper(int x);").is_empty());
    }
}
