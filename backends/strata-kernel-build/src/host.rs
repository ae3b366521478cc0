//! The kernels as a library for this machine's processor, one a wave width: what the software HIP device
//! and the tests launch. `backends/kernels/host_launch.h` says what it exports. Never part of a package.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache;
use crate::compile::{clang, each, inputs};

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
    // One at a time: test programs that run side by side want the same library.
    let lock = fs_err::File::create(folder.join("lock")).map_err(|error| error.to_string())?;
    lock.file().lock().map_err(|error| error.to_string())?;
    let compiler = Compiler { clang: &clang, sources, folder: &folder, wave };
    let mut objects: Vec<PathBuf> =
        each(&crate::kernel_sources(sources)?, |source| compiler.kernels(source))?.into_iter().flatten().collect();
    objects.push(compiler.object(&sources.join("host_runtime.cc"), "runtime")?);
    let library = out.join(format!("libstrata_kernels_wave{wave}.so"));
    let mut link = Command::new(&clang);
    link.args(["-shared", "-Wl,-z,defs", "-o"]).arg(&library).args(&objects).args(["-lpthread", "-lm"]);
    cache::make(link, &objects, &library)?;
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
        cache::make(command, &inputs(self.sources, source)?, &out)?;
        Ok(out)
    }

    /// A source's name and its kernels.
    fn declared(&self, source: &Path) -> Result<(String, Vec<Declared>), String> {
        let name = source.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let text = self.folder.join(format!("{name}.i"));
        let mut command = self.command();
        command.args(["-E", "-P", "-o"]).arg(&text).arg(source);
        cache::make(command, &inputs(self.sources, source)?, &text)?;
        let found = kernels(&fs_err::read_to_string(&text).map_err(|error| error.to_string())?);
        Ok((name, found))
    }

    /// One source with the table of its kernels behind it; none when it has no kernel for AMD.
    fn kernels(&self, source: &Path) -> Result<Option<PathBuf>, String> {
        let (name, found) = self.declared(source)?;
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
        cache::make(command, &inputs(self.sources, &path)?, &out)?;
        Ok(Some(out))
    }
}

/// A kernel as its source declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) name: String,
    /// Work-items that a block may have, as written.
    pub(crate) items: String,
    /// The struct that it takes.
    pub(crate) arguments: String,
}

/// The kernels of all sources that the cards with waves of `wave` lanes have.
pub(crate) fn declared(sources: &Path, out: &Path, wave: u32) -> Result<Option<Vec<Declared>>, String> {
    let Some(clang) = clang() else { return Ok(None) };
    let folder = out.join(format!("declared-wave{wave}"));
    fs_err::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let compiler = Compiler { clang: &clang, sources, folder: &folder, wave };
    let found = each(&crate::kernel_sources(sources)?, |source| compiler.declared(source).map(|(_, found)| found))?;
    Ok(Some(found.into_iter().flatten().collect()))
}

/// The kernels of a preprocessed source.
fn kernels(text: &str) -> Vec<Declared> {
    let rest = text.split("annotate(\"strata kernel\",").skip(1);
    rest.filter_map(|rest| {
        let (items, rest) = rest.split_once(")))")?;
        let (name, rest) = rest.split_once('(')?;
        let (arguments, _) = rest.split_once(' ')?;
        let [name, items, arguments] = [name, items, arguments].map(|text| text.trim().to_owned());
        Some(Declared { name, items, arguments })
    })
    .collect()
}

fn table(source: &str, kernels: &[Declared]) -> String {
    let mut text =
        format!("#include \"{source}\"\n#include \"host_registry.h\"\nSTRATA_HOST_TABLE strata_table[] = {{\n");
    for Declared { name, items, .. } in kernels {
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
        let expected = [("copy", "256", "ElementArgs"), ("attention_merge_64", "64", "A")];
        let expected = expected.map(|(name, items, arguments)| Declared {
            name: name.to_owned(),
            items: items.to_owned(),
            arguments: arguments.to_owned(),
        });
        assert_eq!(kernels(text), expected);
        assert!(kernels("void helper(int x);").is_empty());
    }
}
