//! Running the compiler and the assembler, several at a time.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use object::{Object, ObjectSymbol};

use crate::{CLANG_VARIABLE, PTXAS_VARIABLE, Recipe, cache};

/// A GPU to compile for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// As the compiler says it: `sm_80`, `gfx906`.
    pub arch: &'static str,
    /// What it is.
    pub kind: TargetKind,
}

/// The two vendors' outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetKind {
    /// PTX of this instruction set version (`72` for 7.2); the driver takes it up for this card and later ones.
    Ptx(u32),
    /// An AMD code object.
    CodeObject,
}

/// One compiled source.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) entries: Vec<String>,
    /// Target name as a loader compares it (`sm_90` machine code, `compute_80` PTX, `gfx906`) and the file.
    pub(crate) images: Vec<(String, PathBuf)>,
}

pub(crate) fn clang() -> Option<PathBuf> {
    tool(CLANG_VARIABLE, &["clang-19", "clang"], |text| text.contains("version 19."))
}

pub(crate) fn ptxas() -> Option<PathBuf> {
    tool(PTXAS_VARIABLE, &["ptxas"], |_| true)
}

/// The first that can be run and whose `--version` will do.
fn tool(variable: &str, names: &[&str], will_do: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let candidates = named.into_iter().chain(names.iter().map(PathBuf::from));
    candidates.into_iter().find(|candidate| {
        let output = Command::new(candidate).arg("--version").output();
        output.is_ok_and(|output| output.status.success() && will_do(&String::from_utf8_lossy(&output.stdout)))
    })
}

/// All sources for all targets.
pub(crate) fn all(
    recipe: &Recipe<'_>,
    sources: &[PathBuf],
    clang: &Path,
    ptxas: Option<&Path>,
) -> Result<Vec<Module>, String> {
    each(sources, |source| one(recipe, source, clang, ptxas))
}

/// Does something with every source, as many at a time as there are processors; results in order.
pub(crate) fn each<T: Send>(
    sources: &[PathBuf],
    work: impl Fn(&Path) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<T, String>)>> = Mutex::new(Vec::new());
    let n_workers = std::thread::available_parallelism().map_or(1, usize::from).min(sources.len().max(1));
    std::thread::scope(|scope| {
        for _ in 0..n_workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(source) = sources.get(index) else { break };
                    let result = work(source);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn one(recipe: &Recipe<'_>, source: &Path, clang: &Path, ptxas: Option<&Path>) -> Result<Module, String> {
    let name = source.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let mut module = Module { name, entries: Vec::new(), images: Vec::new() };
    let inputs = inputs(recipe.sources, source)?;
    let cards = cards(&fs_err::read_to_string(source).map_err(|error| error.to_string())?);
    let targets: Vec<&Target> = match &cards {
        Cards::All => recipe.targets.iter().collect(),
        Cards::From(least) => recipe.targets.iter().filter(|target| number(target.arch) >= *least).collect(),
        // Of the same kind as what the plugin is for, or not for it at all.
        Cards::One(own) => {
            recipe.targets.iter().filter(|target| own.arch.starts_with(target.arch)).map(|_| own).collect()
        }
    };
    for target in targets {
        let extension = if target.kind == TargetKind::CodeObject { "hsaco" } else { "ptx" };
        let out = recipe.out.join(format!("{}.{}.{extension}", module.name, target.arch));
        cache::make(compiler(clang, recipe.sources, source, target, &out), &inputs, &out)?;
        let said = match target.kind {
            TargetKind::Ptx(_) => {
                let text = fs_err::read_to_string(&out).map_err(|error| error.to_string())?;
                module.entries = entries(&text);
                target.arch.replace("sm_", "compute_")
            }
            TargetKind::CodeObject => {
                let bytes = fs_err::read(&out).map_err(|error| error.to_string())?;
                let entries = descriptors(&bytes).map_err(|error| format!("{}: {error}", out.display()))?;
                // A kernel that one chip has and another lacks would be found out at its first launch.
                if !module.entries.is_empty() && module.entries != entries {
                    return Err(format!("{}: other kernels than for the target before it", out.display()));
                }
                module.entries = entries;
                target.arch.to_owned()
            }
        };
        module.images.push((said, out));
    }
    let machines: Vec<&str> = match &cards {
        Cards::One(own) => vec![own.arch],
        _ => recipe.cubins.to_vec(),
    };
    if let Some(ptxas) = ptxas {
        assemble(recipe.out, &machines, ptxas, &mut module)?;
    }
    Ok(module)
}

/// NVIDIA's cards that a source is for, as a comment of its says. AMD's objects of a source for NVIDIA are empty.
#[derive(Debug, PartialEq, Eq)]
enum Cards {
    All,
    /// `(from sm_80)`: instructions that older ones lack.
    From(u32),
    /// `(sm_90a)`: instructions that only one architecture has.
    One(Target),
}

fn cards(text: &str) -> Cards {
    let mut comments = text.lines().filter(|line| line.starts_with("//"));
    let said = comments.find_map(|line| {
        if line.contains("(sm_90a)") {
            return Some(Cards::One(Target { arch: "sm_90a", kind: TargetKind::Ptx(80) }));
        }
        let digits = line.split_once("(from sm_")?.1.split(')').next()?;
        digits.parse().ok().map(Cards::From)
    });
    said.unwrap_or(Cards::All)
}

/// 80 of `sm_80`, 90 of `compute_90a`; `u32::MAX` for AMD's targets, which no floor of NVIDIA's leaves out.
fn number(target: &str) -> u32 {
    let digits = target.split_once('_').map_or("", |(_, digits)| digits.trim_end_matches('a'));
    digits.parse().unwrap_or(u32::MAX)
}

pub(crate) fn compiler(clang: &Path, include: &Path, source: &Path, target: &Target, out: &Path) -> Command {
    let mut command = Command::new(clang);
    command.args([
        "-std=c++17",
        "-O3",
        "-ffp-contract=off",
        "-fuse-cuid=none",
        "-Wall",
        "-Werror",
        "-Wno-cuda-compat",
        "-Wno-unused-variable",
    ]);
    command.arg("-I").arg(include);
    match target.kind {
        TargetKind::Ptx(version) => {
            command.args(["-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "-S"]);
            command.arg(format!("--cuda-gpu-arch={}", target.arch)).arg(format!("--cuda-feature=+ptx{version}"));
        }
        TargetKind::CodeObject => {
            command.args(["-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "--no-gpu-bundle-output"]);
            command.arg(format!("--offload-arch={}", target.arch));
        }
    }
    command.arg("-o").arg(out).arg(source);
    command
}

/// Machine code of each wanted target, out of the best PTX that it can run.
fn assemble(folder: &Path, machines: &[&str], ptxas: &Path, module: &mut Module) -> Result<(), String> {
    let ptx: Vec<(u32, PathBuf)> = module.images.iter().map(|(said, path)| (number(said), path.clone())).collect();
    for target in machines {
        let wanted = number(target);
        let best = ptx.iter().filter(|(version, _)| *version <= wanted).max_by_key(|(version, _)| *version);
        let Some((_, source)) = best else { continue };
        let out = folder.join(format!("{}.{target}.cubin", module.name));
        let mut command = Command::new(ptxas);
        command.arg(format!("-arch={target}")).arg(source).arg("-o").arg(&out);
        cache::make(command, std::slice::from_ref(source), &out)?;
        module.images.insert(0, ((*target).to_owned(), out));
    }
    Ok(())
}

/// A source and every header of the folder that it includes, directly or through another.
pub(crate) fn inputs(folder: &Path, source: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = vec![source.to_owned()];
    let mut next = 0;
    while let Some(file) = found.get(next) {
        let text = fs_err::read_to_string(file).map_err(|error| error.to_string())?;
        next += 1;
        for name in includes(&text) {
            let header = folder.join(name);
            // One that is not ours is the compiler's, or its absence is the compiler's to tell.
            if header.is_file() && !found.contains(&header) {
                found.push(header);
            }
        }
    }
    Ok(found)
}

/// Names in `#include "name"` lines.
fn includes(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix("#include \"")?.split('"').next())
}

/// Names of the kernels in a PTX text.
fn entries(ptx: &str) -> Vec<String> {
    let name = |line: &str| {
        let rest = line.trim_start().strip_prefix(".visible .entry ")?;
        Some(rest.split(['(', ' ']).next().unwrap_or(rest).trim().to_owned())
    };
    ptx.lines().filter_map(name).collect()
}

/// Names of the kernels in a code object: each has a descriptor called `<name>.kd`.
fn descriptors(code_object: &[u8]) -> Result<Vec<String>, String> {
    let file = object::File::parse(code_object).map_err(|error| error.to_string())?;
    let name = |symbol: object::Symbol<'_, '_>| symbol.name().ok()?.strip_suffix(".kd").map(str::to_owned);
    let mut names: Vec<String> = file.dynamic_symbols().filter_map(name).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_from_ptx() {
        let ptx = ".version 7.2\n.visible .entry add(\n  .param .b64 a\n)\n.func helper()\n.visible .entry scale(\n";
        assert_eq!(entries(ptx), ["add", "scale"]);
    }

    #[test]
    fn a_source_says_for_which_cards_it_is() {
        assert_eq!(cards("// Sums.\nint from_sm_80;\n"), Cards::All);
        assert_eq!(cards("// Tiles on tensor cores (from sm_80).\n#if 1\n"), Cards::From(80));
        assert!(
            matches!(cards("// Only for 9.0 (sm_90a), else empty.\n"), Cards::One(target) if target.arch == "sm_90a")
        );
        assert_eq!((number("sm_75"), number("compute_90a"), number("gfx906")), (75, 90, u32::MAX));
    }

    #[test]
    fn a_source_is_made_of_what_it_includes() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs_err::write(&path, text).unwrap();
            path
        };
        let source = write("a.cu", "// a\n#include \"a.h\"\n#include <none.h>\n");
        let first = write("a.h", "#pragma once\n#include \"b.h\"\n#include \"absent.h\"\n");
        let second = write("b.h", "#include \"a.h\"\n");
        write("c.h", "");
        assert_eq!(inputs(folder.path(), &source).unwrap(), [source, first, second]);
    }

    #[test]
    fn a_tool_that_is_not_there_or_of_another_version_is_none() {
        assert_eq!(tool("STRATA_NO_SUCH_VARIABLE", &["no-such-compiler"], |_| true), None);
        assert_eq!(tool("STRATA_NO_SUCH_VARIABLE", &["ls"], |text| text.contains("version 19.")), None);
    }
}
