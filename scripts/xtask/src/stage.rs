//! `cargo xtask stage`: from a build to a local prefix, in the layout that the installer uses:
//! `bin/strata`, `lib/strata/<plugin>/` with library and descriptor, `receipt.json`.
//!
//! The new tree is laid out beside the old one and takes its place by two renames; a folder that
//! is not an earlier stage is never touched.

use crate::workspace::{root, run, say};
use anyhow::{Context, bail};
use cargo_metadata::MetadataCommand;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use strata_manifest::{
    BackendKind, Document, InstalledFile, InstalledModel, InstalledPlugin, Receipt, Sha256Digest, Version,
};

pub(crate) fn run_stage(prefix: &Path, dev: bool, models: &[String]) -> anyhow::Result<()> {
    let prefix = std::path::absolute(prefix)?;
    if prefix.exists() && !prefix.join("receipt.json").is_file() && fs_err::read_dir(&prefix)?.next().is_some() {
        bail!("`{}` is not empty and holds no receipt.json: not an earlier stage, left alone", prefix.display());
    }
    let gpu_plugins: Vec<GpuPlugin> = gpu_plugins().into_iter().filter(|plugin| !plugin.targets.is_empty()).collect();
    let mut build = vec!["build", "--package", "strata", "--package", "strata-backend-cpu"];
    build.extend(gpu_plugins.iter().flat_map(|plugin| ["--package", plugin.package]));
    if !dev {
        build.push("--release");
    }
    run("cargo", &build)?;
    let built = target_directory()?.join(if dev { "debug" } else { "release" });

    let fresh = beside(&prefix, "new")?;
    let mut stage = Stage { root: fresh.clone(), files: Vec::new() };
    stage.add(&built.join("strata"), "bin/strata", 0o755)?;
    let mut plugins =
        vec![stage.add_plugin(&built, "cpu", BackendKind::Cpu, "libstrata_backend_cpu.so", &["x86_64"])?];
    if gpu_plugins.is_empty() {
        say("without GPU plugins: clang-19 was not found");
    }
    for plugin in &gpu_plugins {
        let targets: Vec<&str> = plugin.targets.iter().map(String::as_str).collect();
        plugins.push(stage.add_plugin(&built, plugin.name, plugin.kind, &plugin.library(), &targets)?);
    }
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        stage.add(&root().join(licence), &format!("share/doc/strata/{licence}"), 0o644)?;
    }
    stage.finish(plugins, models.iter().map(|model| installed_model(model)).collect::<Result<_, _>>()?)?;

    let old = beside(&prefix, "old")?;
    if prefix.exists() {
        fs_err::rename(&prefix, &old)?;
    }
    fs_err::rename(&fresh, &prefix)?;
    if old.exists() {
        fs_err::remove_dir_all(&old)?;
    }
    say(&format!("staged {}", prefix.display()));
    Ok(())
}

/// What the descriptor of a plugin says that has not run on any card.
pub(crate) fn unproven(kind: BackendKind) -> Option<String> {
    (kind == BackendKind::Hip).then(|| "no AMD card has run this plugin".to_owned())
}

/// A plugin that needs a compiler for its kernels; without one there are no targets.
pub(crate) struct GpuPlugin {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
    pub(crate) kind: BackendKind,
    pub(crate) targets: Vec<String>,
}

impl GpuPlugin {
    /// File name of the built library.
    pub(crate) fn library(&self) -> String {
        format!("lib{}.so", self.package.replace('-', "_"))
    }
}

pub(crate) fn gpu_plugins() -> [GpuPlugin; 3] {
    use strata_kernel_build::{HIP_GFX906_TARGETS, HIP_RX7900_TARGETS, cuda_target_names, hip_target_names};
    [
        GpuPlugin {
            name: "cuda",
            package: "strata-backend-cuda",
            kind: BackendKind::Cuda,
            targets: cuda_target_names(),
        },
        GpuPlugin {
            name: "hip-gfx906",
            package: "strata-backend-hip-gfx906",
            kind: BackendKind::Hip,
            targets: hip_target_names(&HIP_GFX906_TARGETS),
        },
        GpuPlugin {
            name: "hip-rx7900",
            package: "strata-backend-hip-rx7900",
            kind: BackendKind::Hip,
            targets: hip_target_names(&HIP_RX7900_TARGETS),
        },
    ]
}

/// A sibling of the prefix, cleared of what a killed run left.
fn beside(prefix: &Path, word: &str) -> anyhow::Result<PathBuf> {
    let name = prefix.file_name().context("the prefix needs a name")?.to_string_lossy().into_owned();
    let path = prefix.with_file_name(format!(".{name}.stage-{word}"));
    if path.exists() {
        fs_err::remove_dir_all(&path)?;
    }
    Ok(path)
}

pub(crate) fn target_directory() -> anyhow::Result<PathBuf> {
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec()?;
    Ok(metadata.target_directory.into_std_path_buf())
}

/// A tree being laid out and the list of what is in it.
struct Stage {
    root: PathBuf,
    files: Vec<InstalledFile>,
}

impl Stage {
    fn add(&mut self, source: &Path, path: &str, mode: u32) -> anyhow::Result<()> {
        let target = self.root.join(path);
        fs_err::create_dir_all(target.parent().context("a staged file lies in a folder")?)?;
        fs_err::copy(source, &target)?;
        self.list(path, mode)
    }

    fn list(&mut self, path: &str, mode: u32) -> anyhow::Result<()> {
        let target = self.root.join(path);
        fs_err::set_permissions(&target, std::fs::Permissions::from_mode(mode))?;
        let (sha256, size) = Sha256Digest::of_reader(fs_err::File::open(&target)?)?;
        self.files.push(InstalledFile { path: path.to_owned(), size, sha256, mode: format!("{mode:04o}") });
        Ok(())
    }

    fn add_plugin(
        &mut self,
        built: &Path,
        name: &str,
        kind: BackendKind,
        library: &str,
        targets: &[&str],
    ) -> anyhow::Result<InstalledPlugin> {
        let folder = format!("lib/strata/{name}");
        self.add(&built.join(library), &format!("{folder}/{library}"), 0o755)?;
        let library = self.root.join(&folder).join(library);
        let mut descriptor = strata_plugin_host::describe_library(&library, name, kind, targets)?;
        descriptor.unproven = unproven(kind);
        let path = format!("{folder}/{name}.plugin.json");
        descriptor.write(&self.root.join(&path))?;
        self.list(&path, 0o644)?;
        Ok(InstalledPlugin { name: name.to_owned(), descriptor: path })
    }

    fn finish(mut self, plugins: Vec<InstalledPlugin>, models: Vec<InstalledModel>) -> anyhow::Result<()> {
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        let receipt = Receipt {
            schema: Receipt::SCHEMA.to_owned(),
            version: Version::current(),
            files: self.files,
            plugins,
            models,
            install: None,
        };
        Ok(receipt.write(&self.root.join("receipt.json"))?)
    }
}

fn installed_model(argument: &str) -> anyhow::Result<InstalledModel> {
    let (name, file) = argument.split_once('=').with_context(|| format!("`{argument}` is not NAME=FILE"))?;
    let path = fs_err::canonicalize(file)?;
    let (sha256, size) = Sha256Digest::of_reader(fs_err::File::open(&path)?)?;
    let path = path.to_str().with_context(|| format!("`{}` is not UTF-8", path.display()))?.to_owned();
    Ok(InstalledModel { name: name.to_owned(), path, size, sha256 })
}
