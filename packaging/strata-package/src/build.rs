//! From a recipe to archives: collect, describe, list, write.
//!
//! Everything that can be read out of the files is read out of them (version, commit, target, GPU
//! targets, floors, needed libraries); a recipe states only what no file knows.

use crate::archive_write::{Format, write_archive};
use crate::describe::{Described, describe};
use crate::licences::{self, Part};
use crate::stage::{self, Content, Folders};
use crate::verify::{self, VerifyOptions};
use crate::{PackageError, sbom};
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use strata_manifest::{
    AbiRange, BackendKind, BuildRecord, Component, Document, HostLibrary, PackageFile, PackagePath, PluginDescriptor,
    Recipe, Role, Sha256Digest, ThirdParty,
};

/// What a plugin's descriptor is made from; the ABI is known to the caller, not here.
#[derive(Debug, Clone)]
pub struct PluginFacts<'a> {
    pub library: &'a Path,
    pub name: &'a str,
    pub kind: BackendKind,
    /// GPU targets found in the package's files, or the processor.
    pub targets: Vec<String>,
}

/// Writes the descriptor of a plugin library: what strata-plugin-host knows and this crate must not.
pub type DescribePlugin<'a> = dyn Fn(&PluginFacts<'_>) -> Result<PluginDescriptor, PackageError> + 'a;

/// What a build needs beside the recipe.
pub struct BuildOptions<'a> {
    pub folders: Folders<'a>,
    /// Where archives are written; created when it is not there.
    pub out: &'a Path,
    pub formats: &'a [Format],
    /// The whole build folder must be claimed.
    pub exact: bool,
    /// Paths of the building machine may stand in programs: for tests.
    pub allow_build_paths: bool,
    pub describe_plugin: &'a DescribePlugin<'a>,
}

impl std::fmt::Debug for BuildOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BuildOptions").field("folders", &self.folders).field("out", &self.out).finish_non_exhaustive()
    }
}

/// What was built.
#[derive(Debug)]
pub struct Built {
    pub component: Component,
    pub archives: Vec<PathBuf>,
}

/// Builds the archives of one recipe.
pub fn build(recipe_path: &Path, options: &BuildOptions<'_>) -> Result<Built, PackageError> {
    let recipe = Recipe::read(recipe_path)?;
    let staged = stage::collect(&recipe, recipe_path, options.folders, options.exact)?;
    let mut files = describe(staged, &recipe.cpu_arch)?;
    let build = one_record(&files, &recipe)?;
    let gpu_targets: BTreeSet<String> = files.iter().flat_map(|file| file.gpu_targets.iter().cloned()).collect();

    let mut abi = None;
    if let Some(descriptor) = descriptor(&recipe, recipe_path, &files, &gpu_targets, &build, options)? {
        abi = Some(AbiRange {
            lowest: descriptor.abi_lowest.clone(),
            highest: descriptor.abi_highest.clone(),
            layout_hash: descriptor.layout_hash.clone(),
        });
        let library = &recipe.plugin.as_ref().expect("a descriptor comes from a plugin").library;
        let path = format!("{}/{}.plugin.json", library.parent().unwrap_or("."), descriptor.name);
        files.push(Described::of_text(checked_path(&path)?, descriptor.to_text(), Role::Descriptor));
    }

    let doc =
        format!("share/doc/strata-{}", strata_manifest::component_id(&recipe.component, recipe.backend.as_deref()));
    let third_party = third_party(&recipe, options.folders, &build, &doc, &mut files)?;
    let highest = |floors: fn(&Described) -> Option<&String>| {
        files.iter().filter_map(floors).max_by_key(|text| numbers(text)).cloned()
    };
    let mut component = Component {
        schema: Component::SCHEMA.to_owned(),
        component: recipe.component.clone(),
        backend: recipe.backend.clone(),
        version: build.version.clone(),
        os: recipe.os.clone(),
        cpu_arch: recipe.cpu_arch.clone(),
        source_epoch: build.source_epoch,
        abi,
        gpu_targets: gpu_targets.into_iter().collect(),
        libc_floor: highest(|file| file.libc_floor.as_ref()),
        libstdcxx_floor: highest(|file| file.libstdcxx_floor.as_ref()),
        host_libraries: host_libraries(&recipe, &files),
        third_party,
        sboms: Vec::new(),
        files: files.iter().map(|file| file.listed.clone()).collect(),
        build,
    };
    component.files.sort_by(|a, b| a.path.cmp(&b.path));
    add_sboms(&mut component, &doc, &mut files)?;
    let faults = component.faults();
    if !faults.is_empty() {
        return Err(PackageError::Recipe { recipe: recipe_path.to_owned(), why: faults.join("; ") });
    }
    let archives = write_archives(&component, &files, options)?;
    Ok(Built { component, archives })
}

fn checked_path(text: &str) -> Result<PackagePath, PackageError> {
    let bad =
        |error: strata_manifest::BadPath| PackageError::Recipe { recipe: PathBuf::from(text), why: error.to_string() };
    text.parse().map_err(bad)
}

/// `2.28` → [2, 28], so that floors compare as numbers.
fn numbers(text: &str) -> Vec<u64> {
    text.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// The record that all programs and plugins of the package agree on.
fn one_record(files: &[Described], recipe: &Recipe) -> Result<BuildRecord, PackageError> {
    let own = files.iter().filter(|file| matches!(file.listed.role, Role::Binary | Role::Plugin));
    let mut first: Option<(&Described, &BuildRecord)> = None;
    for file in own {
        let path = file.listed.path.to_string();
        let disagrees = |what, expected: String, got: String| {
            Err(PackageError::Disagrees { path: path.clone(), what, expected, got })
        };
        let Some(record) = &file.record else {
            return disagrees("has no build record", "an ELF note `Strata`".to_owned(), "none".to_owned());
        };
        let Some((other, agreed)) = first else {
            first = Some((file, record));
            continue;
        };
        let of = |value: &dyn std::fmt::Display| format!("{value} (in `{}`)", other.listed.path);
        if record.version != agreed.version {
            return disagrees("has another version", of(&agreed.version), record.version.to_string());
        }
        if (&record.commit, record.dirty) != (&agreed.commit, agreed.dirty) {
            return disagrees("is from another commit", of(&agreed.build_id), record.build_id.clone());
        }
        if record.target != agreed.target {
            return disagrees("was built for another target", of(&agreed.target), record.target.clone());
        }
        if record.toolchain != agreed.toolchain {
            return disagrees("was built by another toolchain", of(&agreed.toolchain), record.toolchain.clone());
        }
        if record.source_epoch != agreed.source_epoch {
            return disagrees("has another source date", of(&agreed.source_epoch), record.source_epoch.to_string());
        }
    }
    let name = strata_manifest::component_id(&recipe.component, recipe.backend.as_deref());
    let Some((_, record)) = first else {
        let (expected, got) = ("a file of role `binary` or `plugin`".to_owned(), "none".to_owned());
        return Err(PackageError::Disagrees { path: name, what: "packs nothing that says its version", expected, got });
    };
    Ok(BuildRecord { name, ..record.clone() })
}

fn descriptor(
    recipe: &Recipe,
    recipe_path: &Path,
    files: &[Described],
    gpu_targets: &BTreeSet<String>,
    build: &BuildRecord,
    options: &BuildOptions<'_>,
) -> Result<Option<PluginDescriptor>, PackageError> {
    let Some(plugin) = &recipe.plugin else { return Ok(None) };
    let wrong = |why: String| PackageError::Recipe { recipe: recipe_path.to_owned(), why };
    let described = files.iter().find(|file| file.listed.path == plugin.library);
    let described = described.ok_or_else(|| wrong(format!("`{}` is not among the packed files", plugin.library)))?;
    let Content::File(library) = &described.content else {
        return Err(wrong(format!("`{}` is no library", plugin.library)));
    };
    if plugin.kind.is_gpu() && gpu_targets.is_empty() {
        let (path, expected) = (plugin.library.to_string(), "code objects for at least one GPU".to_owned());
        return Err(PackageError::Disagrees { path, what: "holds no GPU code", expected, got: "none".to_owned() });
    }
    let targets =
        if plugin.kind.is_gpu() { gpu_targets.iter().cloned().collect() } else { vec![recipe.cpu_arch.clone()] };
    let facts = PluginFacts { library, name: &plugin.name, kind: plugin.kind, targets };
    let mut descriptor = (options.describe_plugin)(&facts)?;
    let listed = &described.listed;
    if (descriptor.sha256, descriptor.size) != (listed.sha256, listed.size) {
        let (expected, got) = (listed.sha256.to_string(), descriptor.sha256.to_string());
        let path = plugin.library.to_string();
        return Err(PackageError::Disagrees { path, what: "changed while it was packed", expected, got });
    }
    descriptor.version = build.version.clone();
    plugin.library.file_name().clone_into(&mut descriptor.library);
    descriptor.os.clone_from(&recipe.os);
    descriptor.cpu_arch.clone_from(&recipe.cpu_arch);
    descriptor.libc_floor.clone_from(&described.libc_floor);
    descriptor.driver_floor.clone_from(&plugin.driver_floor);
    descriptor.unproven.clone_from(&plugin.unproven);
    Ok(Some(descriptor))
}

/// Every needed library that is not in the package, and those that the recipe says are opened at run time.
fn host_libraries(recipe: &Recipe, files: &[Described]) -> Vec<HostLibrary> {
    let packed: BTreeSet<&str> = files.iter().flat_map(|file| file.provides.iter().map(String::as_str)).collect();
    let needed: BTreeSet<&str> = files.iter().flat_map(|file| file.needed.iter().map(String::as_str)).collect();
    let needed = needed.into_iter().filter(|soname| !packed.contains(soname));
    let mut libraries: Vec<HostLibrary> =
        needed.map(|soname| HostLibrary { soname: soname.to_owned(), optional: false }).collect();
    let opened = recipe.host_libraries.iter().filter(|library| !packed.contains(library.soname.as_str()));
    for library in opened {
        if !libraries.iter().any(|known| known.soname == library.soname) {
            libraries.push(library.clone());
        }
    }
    libraries.sort();
    libraries
}

/// Lists the parts by others and adds their licence texts to the files.
fn third_party(
    recipe: &Recipe,
    folders: Folders<'_>,
    build: &BuildRecord,
    doc: &str,
    files: &mut Vec<Described>,
) -> Result<Vec<ThirdParty>, PackageError> {
    let mut parts = licences::of_crates(recipe, folders.source, &build.target)?;
    if !recipe.crates.is_empty() {
        parts.push(licences::of_standard_library(&build.toolchain, folders.source)?);
    }
    for part in &recipe.third_party {
        parts.push(foreign_part(part, folders)?);
    }
    parts.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    let mut listed = Vec::new();
    for part in parts {
        let mut licence_files = Vec::new();
        for (name, text) in part.texts {
            let path = checked_path(&format!("{doc}/licences/{}-{}/{name}", part.name, part.version))?;
            files.push(Described::of_bytes(path.clone(), text, Role::License));
            licence_files.push(path);
        }
        listed.push(ThirdParty {
            name: part.name,
            version: part.version,
            licence: part.licence,
            licence_files,
            licence_note: part.note,
            source: part.source,
        });
    }
    Ok(listed)
}

fn foreign_part(part: &strata_manifest::RecipePart, folders: Folders<'_>) -> Result<Part, PackageError> {
    let mut texts = Vec::new();
    for named in &part.licence_files {
        let path = match named.split_once(':') {
            Some(("build", path)) => folders.build.join(path),
            Some(("source", path)) => folders.source.join(path),
            _ => folders.source.join(named),
        };
        let text = fs_err::read(&path).map_err(PackageError::unreadable(&path))?;
        texts.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), text));
    }
    if texts.is_empty() {
        let (part, why) = (format!("{} {}", part.name, part.version), "the recipe names none".to_owned());
        return Err(PackageError::Licence { part, why });
    }
    let (name, version, licence, source) =
        (part.name.clone(), part.version.clone(), part.licence.clone(), part.source.clone());
    Ok(Part { name, version, licence, source, texts, note: None })
}

fn add_sboms(component: &mut Component, doc: &str, files: &mut Vec<Described>) -> Result<(), PackageError> {
    let bills = [(sbom::CYCLONEDX_FILE, sbom::cyclonedx(component)), (sbom::SPDX_FILE, sbom::spdx(component))];
    for (name, text) in bills {
        let described = Described::of_text(checked_path(&format!("{doc}/{name}"))?, text, Role::Sbom);
        component.sboms.push(described.listed.path.clone());
        component.files.push(described.listed.clone());
        files.push(described);
    }
    component.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(())
}

fn write_archives(
    component: &Component,
    files: &[Described],
    options: &BuildOptions<'_>,
) -> Result<Vec<PathBuf>, PackageError> {
    fs_err::create_dir_all(options.out).map_err(PackageError::unwritable(options.out))?;
    // A folder of this run's own: another run may write the same archives at the same time, and what is not
    // proven yet never lies under its name.
    let own = tempfile::Builder::new().prefix(".strata-package-").tempdir_in(options.out);
    let own = own.map_err(PackageError::unwritable(options.out))?;
    let mut archives = Vec::new();
    for format in options.formats {
        let name = format!("{}.{}", component.stem(), format.suffix());
        let (beside, path) = (own.path().join(&name), options.out.join(&name));
        let written = fs_err::File::create(&beside).and_then(|file| {
            let mut source = |listed: &PackageFile| open(files, listed);
            let out = io::BufWriter::with_capacity(1 << 20, file);
            let mut out = write_archive(component, &mut source, *format, out)?;
            out.flush()?;
            out.get_ref().sync_all()
        });
        written.map_err(PackageError::unwritable(&path))?;
        prove(&beside, &path, options)?;
        archives.push((beside, path));
    }
    for (beside, path) in &archives {
        fs_err::rename(beside, path).map_err(PackageError::unwritable(path))?;
    }
    Ok(archives.into_iter().map(|(_, path)| path).collect())
}

/// Looks at a written archive, which is to lie at `path`, with the verifier's eyes. How it is compressed is not
/// compared: this very program has just done that.
fn prove(archive: &Path, path: &Path, options: &BuildOptions<'_>) -> Result<(), PackageError> {
    let verify = VerifyOptions {
        build_paths: options.allow_build_paths,
        reencode_bytes: 0,
        ..VerifyOptions::at(strata_manifest::UtcTime::now())
    };
    let report = verify::verify(archive, &verify, &verify::Silent)?;
    if report.is_clean() {
        return Ok(());
    }
    let sentence = |finding: &verify::Finding| {
        let path = finding.path.as_ref().map(|path| format!("{path}: ")).unwrap_or_default();
        let facts: String =
            finding.facts.iter().fold(String::new(), |all, (name, value)| format!("{all}; {name}: {value}"));
        (finding.code.id, format!("{path}{}{facts}", finding.message))
    };
    Err(PackageError::Unsound {
        archive: path.to_owned(),
        count: report.counts.values().map(|count| count.findings).sum(),
        first: report.findings.iter().take(10).map(sentence).collect(),
    })
}

fn open(files: &[Described], listed: &PackageFile) -> io::Result<Box<dyn Read>> {
    let described = files.iter().find(|file| file.listed.path == listed.path);
    let described = described.ok_or_else(|| io::Error::other(format!("`{}` is not among the files", listed.path)))?;
    Ok(match &described.content {
        Content::Bytes(bytes) => Box::new(io::Cursor::new(bytes.clone())),
        Content::File(path) => Box::new(Unchanged::open(path, listed)?),
    })
}

/// Reads a file and fails at its end when its bytes are not the described ones.
struct Unchanged {
    file: fs_err::File,
    hasher: Option<strata_manifest::Sha256Hasher>,
    expected: Sha256Digest,
}

impl Unchanged {
    fn open(path: &Path, listed: &PackageFile) -> io::Result<Self> {
        let hasher = Some(strata_manifest::Sha256Hasher::default());
        Ok(Unchanged { file: fs_err::File::open(path)?, hasher, expected: listed.sha256 })
    }
}

impl Read for Unchanged {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..count]);
        }
        if count == 0
            && !buffer.is_empty()
            && let Some(hasher) = self.hasher.take()
            && hasher.finish() != self.expected
        {
            return Err(io::Error::other(format!("`{}` changed while it was packed", self.file.path().display())));
        }
        Ok(count)
    }
}
