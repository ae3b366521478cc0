//! What a compiler made of the kernels for AMD: registers, shared memory, spills and argument sizes out of a
//! code object's notes, and how often the instructions occur that carry the speed. LLVM's own tools read the
//! files, so a mistake here cannot hide one of the build. For tests and for the tables in docs/AMD-KERNELS.md.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::compile::{self, Target, clang, each, inputs};
use crate::{cache, kernel_sources};

/// Instructions that are counted: the products that carry the speed, and what spilled registers would need.
pub const COUNTED: [&str; 6] =
    ["v_dot4_i32_i8", "v_dot4_i32_iu8", "v_dot2_f32_f16", "v_dot2acc_f32_f16", "v_wmma_", "scratch_"];

/// One kernel of a code object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// Its name.
    pub name: String,
    /// Bytes of arguments in all, hidden ones too.
    pub argument_bytes: u32,
    /// Bytes of the one struct that it takes.
    pub struct_bytes: u32,
    /// How many arguments the runtime would have to add.
    pub hidden_arguments: u32,
    /// Vector registers a lane.
    pub vgprs: u32,
    /// Scalar registers a wave.
    pub sgprs: u32,
    /// Registers that did not fit.
    pub vgpr_spills: u32,
    /// Likewise.
    pub sgpr_spills: u32,
    /// Bytes of memory a lane, which spills and indexed arrays take.
    pub scratch: u32,
    /// Bytes of shared memory that it declares.
    pub shared: u32,
    /// Lanes of a wave.
    pub wave: u32,
    /// Work-items of a block, at most.
    pub most_items: u32,
    /// How often each of [`COUNTED`] occurs.
    pub counts: BTreeMap<&'static str, u32>,
}

/// One code object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFacts {
    /// The source's stem.
    pub module: String,
    /// As the compiler was told: `gfx906`.
    pub arch: &'static str,
    /// The ELF header's flags.
    pub flags: u32,
    /// In the order of the notes.
    pub kernels: Vec<KernelFacts>,
}

/// Compiles all sources for the targets and reads what came out; none without a compiler.
///
/// # Errors
/// A kernel does not compile, a tool is missing, or its output is not understood: the text says which and why.
pub fn code_objects(sources: &Path, out: &Path, targets: &[Target]) -> Result<Option<Vec<ObjectFacts>>, String> {
    let Some(clang) = clang() else { return Ok(None) };
    fs_err::create_dir_all(out).map_err(|error| error.to_string())?;
    let per_source = each(&kernel_sources(sources)?, |source| {
        let module = source.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let mut objects = Vec::new();
        for target in targets {
            let path = out.join(format!("{module}.{}.hsaco", target.arch));
            cache::make(compile::compiler(&clang, sources, source, target, &path), &inputs(sources, source)?, &path)?;
            objects.push(ObjectFacts { module: module.clone(), ..facts(&path, target.arch)? });
        }
        Ok(objects)
    })?;
    Ok(Some(per_source.into_iter().flatten().collect()))
}

fn facts(path: &Path, arch: &'static str) -> Result<ObjectFacts, String> {
    let notes = tool("llvm-readelf-19", &["--notes", "--file-header"], path)?;
    let flags = notes.lines().find_map(|line| line.trim().strip_prefix("Flags:"));
    let flags = flags.and_then(|rest| rest.trim().split([',', ' ']).next()?.strip_prefix("0x"));
    let flags = flags.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let mut kernels = kernels_of(&notes);
    let text = tool("llvm-objdump-19", &["-d", "--no-show-raw-insn"], path)?;
    count(&text, &mut kernels);
    let flags = flags.ok_or_else(|| format!("{}: no flags in the header", path.display()))?;
    Ok(ObjectFacts { module: String::new(), arch, flags, kernels })
}

fn tool(name: &str, arguments: &[&str], path: &Path) -> Result<String, String> {
    let output = Command::new(name).args(arguments).arg(path).output().map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} {}: {}", path.display(), String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The list of kernels in the notes, which the tool prints as YAML: a kernel's keys stand at four spaces, its
/// arguments' at eight.
fn kernels_of(notes: &str) -> Vec<KernelFacts> {
    let mut kernels: Vec<KernelFacts> = Vec::new();
    let mut size = 0;
    for line in notes.lines() {
        if line.starts_with("  - .") {
            kernels.push(KernelFacts::default());
        }
        let Some(kernel) = kernels.last_mut() else { continue };
        let plain = line.trim_start().trim_start_matches("- ");
        let depth = line.len() - plain.len();
        let Some((key, value)) = plain.split_once(':') else { continue };
        let (value, number) = (value.trim(), value.trim().parse::<u32>().unwrap_or(0));
        match (depth, key) {
            (8, ".size") => size = number,
            (8, ".value_kind") if value == "by_value" => kernel.struct_bytes += size,
            (8, ".value_kind") if value.starts_with("hidden_") => kernel.hidden_arguments += 1,
            (4, ".name") => value.clone_into(&mut kernel.name),
            (4, ".kernarg_segment_size") => kernel.argument_bytes = number,
            (4, ".vgpr_count") => kernel.vgprs = number,
            (4, ".sgpr_count") => kernel.sgprs = number,
            (4, ".vgpr_spill_count") => kernel.vgpr_spills = number,
            (4, ".sgpr_spill_count") => kernel.sgpr_spills = number,
            (4, ".private_segment_fixed_size") => kernel.scratch = number,
            (4, ".group_segment_fixed_size") => kernel.shared = number,
            (4, ".wavefront_size") => kernel.wave = number,
            (4, ".max_flat_workgroup_size") => kernel.most_items = number,
            _ => {}
        }
    }
    kernels
}

fn count(text: &str, kernels: &mut [KernelFacts]) {
    let places: BTreeMap<String, usize> = kernels.iter().map(|kernel| kernel.name.clone()).zip(0..).collect();
    let mut place = None;
    for line in text.lines() {
        if let Some((_, name)) = line.strip_suffix(">:").and_then(|line| line.split_once('<')) {
            place = places.get(name).copied();
        }
        let (Some(place), Some(word)) = (place, line.split_whitespace().next()) else { continue };
        if let Some(counted) = COUNTED.into_iter().find(|counted| word.starts_with(counted)) {
            *kernels[place].counts.entry(counted).or_default() += 1;
        }
    }
}

impl KernelFacts {
    /// How often an instruction occurs.
    pub fn count(&self, instruction: &str) -> u32 {
        self.counts.iter().filter(|(name, _)| name.starts_with(instruction)).map(|(_, count)| count).sum()
    }

    /// Waves that share a SIMD, by registers and by declared shared memory, as blocks of `most_items` fill a
    /// compute unit (gfx906) or a pair of them (gfx11).
    pub fn waves_per_simd(&self, arch: &str) -> u32 {
        // Registers of a SIMD, how they are dealt out, most waves; shared memory of what four SIMDs share.
        let (registers, granule, most, shared) = match arch {
            "gfx906" => (256, 4, 10, 64 << 10),
            "gfx1102" => (1024, 16, 16, 128 << 10),
            _ => (1536, 24, 16, 128 << 10),
        };
        let by_registers = (registers / self.vgprs.max(1).next_multiple_of(granule)).min(most);
        let waves_of_block = self.most_items.div_ceil(self.wave.max(1));
        let blocks = (4 * by_registers / waves_of_block.max(1)).max(u32::from(by_registers > 0));
        let blocks = if self.shared == 0 { blocks } else { blocks.min(shared / self.shared.next_multiple_of(512)) };
        (blocks * waves_of_block / 4).max(1).min(by_registers)
    }
}

/// A field of an argument struct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Bytes from the struct's begin.
    pub offset: usize,
    /// As in the source: `const float *`.
    pub kind: String,
    /// Name, with its number of elements when it is an array.
    pub name: String,
    /// What the source says about it.
    pub comment: String,
}

/// The fields of every argument struct (`…Args`) of the sources, with the struct's size.
///
/// # Errors
/// A file cannot be read, or a field's type is not known.
pub fn argument_structs(sources: &Path) -> Result<BTreeMap<String, (Vec<Field>, usize)>, String> {
    let mut found = BTreeMap::new();
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs_err::read_dir(sources).map_err(|error| error.to_string())? {
        files.push(entry.map_err(|error| error.to_string())?.path());
    }
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "cu" || end == "h")) {
        let text = fs_err::read_to_string(file).map_err(|error| error.to_string())?;
        for rest in text.split("\nstruct ").skip(1) {
            let Some((name, body)) = rest.split_once(" {\n") else { continue };
            let Some((body, _)) = body.split_once("\n};") else { continue };
            if name.ends_with("Args") && !name.contains(['<', ' ', '\n']) {
                found.insert(name.to_owned(), fields(body).map_err(|text| format!("{name}: {text}"))?);
            }
        }
    }
    Ok(found)
}

fn fields(body: &str) -> Result<(Vec<Field>, usize), String> {
    let (mut fields, mut offset, mut comment) = (Vec::new(), 0_usize, String::new());
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("//") {
            let space = if comment.is_empty() { "" } else { " " };
            comment = format!("{comment}{space}{}", text.trim());
            continue;
        }
        let Some(declaration) = line.strip_suffix(';') else { continue };
        let (kind, names) = match declaration.split_once('*') {
            Some((kind, names)) => (format!("{} *", kind.trim()), names),
            None => declaration.split_once(' ').map(|(kind, names)| (kind.to_owned(), names)).ok_or(line)?,
        };
        let size = match kind.as_str() {
            "i64" | "u64" => 8,
            "i32" | "u32" | "float" => 4,
            pointer if pointer.ends_with('*') => 8,
            other => return Err(format!("a field of type {other}")),
        };
        for name in names.split(',').map(str::trim) {
            let n =
                name.split_once('[').and_then(|(_, rest)| rest.strip_suffix(']')?.parse::<usize>().ok()).unwrap_or(1);
            offset = offset.next_multiple_of(size);
            let comment = std::mem::take(&mut comment);
            fields.push(Field { offset, kind: kind.clone(), name: name.to_owned(), comment });
            offset += n * size;
        }
    }
    Ok((fields, offset.next_multiple_of(8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_and_instructions_are_read() {
        let notes = "  Flags:  0x52F, gfx906\namdhsa.kernels:\n  - .args:\n      - .offset:         0\n        .size:           168\n        .value_kind:     by_value\n      - .offset:         168\n        .size:           4\n        .value_kind:     hidden_block_count_x\n    .kernarg_segment_size: 424\n    .name:           mmv\n    .sgpr_count:     76\n    .vgpr_count:     109\n    .max_flat_workgroup_size: 256\n    .wavefront_size: 64\n";
        let mut kernels = kernels_of(notes);
        count(
            "0000 <mmv>:\n\tv_dot4_i32_i8 v0, v1, v2, v3 // 0\n\tv_add v1\n0001 <other>:\n\tv_dot4_i32_i8 v0\n",
            &mut kernels,
        );
        let [kernel] = &kernels[..] else { panic!("{kernels:?}") };
        assert_eq!((kernel.name.as_str(), kernel.struct_bytes, kernel.hidden_arguments), ("mmv", 168, 1));
        assert_eq!((kernel.vgprs, kernel.sgprs, kernel.argument_bytes), (109, 76, 424));
        assert_eq!(kernel.count("v_dot4_i32_i8"), 1);
        assert_eq!(kernel.waves_per_simd("gfx906"), 2);
    }

    #[test]
    fn structs_are_laid_out_as_c_does() {
        let body = "    const u8 *w[3];\n    // Rows.\n    i32 m;\n    float a, b;\n    i64 nb[2];\n    i32 n;";
        let (fields, size) = fields(body).expect("known types");
        let offsets: Vec<(usize, &str)> = fields.iter().map(|field| (field.offset, field.name.as_str())).collect();
        assert_eq!(offsets, [(0, "w[3]"), (24, "m"), (28, "a"), (32, "b"), (40, "nb[2]"), (56, "n")]);
        assert_eq!((size, fields[1].comment.as_str()), (64, "Rows."));
    }
}
