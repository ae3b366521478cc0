//! What tests run with, built as tests are built: the CPU plugin, and where there is a compiler for
//! kernels the HIP plugins with the software device that they run on. No test has to build then.

use crate::stage::{GpuPlugin, gpu_plugins, target_directory, unproven};
use crate::workspace::{root, run, say};
use std::path::{Path, PathBuf};
use strata_kernel_build::{HOST_WAVES, HostOutcome, host_library};
use strata_manifest::{BackendKind, Document};

#[expect(clippy::print_stdout, reason = "the folder is what this command is for")]
pub(crate) fn run_test_plugins() -> anyhow::Result<()> {
    println!("{}", stage_test_plugins()?.display());
    Ok(())
}

/// Lays everything into a folder of the target directory: what `STRATA_TEST_PLUGIN_DIR` names.
pub(crate) fn stage_test_plugins() -> anyhow::Result<PathBuf> {
    run("cargo", &["build", "--package", "strata-backend-cpu"])?;
    let target = target_directory()?;
    let folder = target.join("test-plugin");
    let built = target.join("debug");
    lay(&built, &folder, "libstrata_backend_cpu.so", "cpu", BackendKind::Cpu, &[std::env::consts::ARCH])?;
    stage_hip(&built, &folder.join("hip"))?;
    Ok(folder)
}

/// The HIP plugins, `libamdhip64.so.7` without a card, and the kernels for the processor.
fn stage_hip(built: &Path, folder: &Path) -> anyhow::Result<()> {
    let is_hip = |plugin: &GpuPlugin| plugin.kind == BackendKind::Hip && !plugin.targets.is_empty();
    let plugins: Vec<GpuPlugin> = gpu_plugins().into_iter().filter(is_hip).collect();
    if plugins.is_empty() {
        say("without the HIP plugins: clang-19 was not found");
        return Ok(());
    }
    fs_err::create_dir_all(folder)?;
    for wave in HOST_WAVES {
        match host_library(&root().join("backends/kernels"), folder, wave).map_err(anyhow::Error::msg)? {
            HostOutcome::Built(library) => say(&format!("built {}", library.display())),
            HostOutcome::NotBuilt(why) => say(&format!("without kernels for the processor: {why}")),
        }
    }
    let mut build = vec!["build", "--package", "strata-hip-software"];
    build.extend(plugins.iter().flat_map(|plugin| ["--package", plugin.package]));
    run("cargo", &build)?;
    for plugin in &plugins {
        let targets: Vec<&str> = plugin.targets.iter().map(String::as_str).collect();
        lay(built, folder, &plugin.library(), plugin.name, plugin.kind, &targets)?;
    }
    fs_err::copy(built.join("libamdhip64.so"), folder.join("libamdhip64.so.7"))?;
    Ok(())
}

/// A library and its descriptor.
fn lay(
    built: &Path,
    folder: &Path,
    library: &str,
    name: &str,
    kind: BackendKind,
    targets: &[&str],
) -> anyhow::Result<()> {
    fs_err::create_dir_all(folder)?;
    let path = folder.join(library);
    fs_err::copy(built.join(library), &path)?;
    let mut descriptor = strata_plugin_host::describe_library(&path, name, kind, targets)?;
    descriptor.unproven = unproven(kind);
    Ok(descriptor.write(&folder.join(format!("{name}.plugin.json")))?)
}
