//! The CPU plugin for tests: `STRATA_TEST_PLUGIN_DIR` names the folder of its `cpu.plugin.json`,
//! else it is built into this build's own target directory and described beside it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use strata_manifest::{BackendKind, Document, PluginDescriptor, Sha256Digest, Version};
use strata_plugin_host::{Device, DeviceOptions, OpenOptions, Plugin, PluginEntry};

/// The plugin's device. A plugin that cannot be opened fails the test: it is part of the product.
pub(crate) fn cpu(options: &DeviceOptions) -> Device {
    static PLUGIN: OnceLock<Plugin> = OnceLock::new();
    let plugin = PLUGIN.get_or_init(|| {
        let descriptor = match std::env::var_os("STRATA_TEST_PLUGIN_DIR") {
            Some(folder) => Path::new(&folder).join("cpu.plugin.json"),
            None => describe(&build()),
        };
        let entry = PluginEntry::from_descriptor(&descriptor).unwrap();
        Plugin::open(&entry, &OpenOptions::in_process()).unwrap()
    });
    plugin.open_device(0, options).unwrap()
}

/// The plugin, built as this test was: same target directory, same profile.
fn build() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).expect("a test lies in `<profile>/deps`");
    let target = profile.parent().expect("a profile's folder lies in the target directory");
    let mut build = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    build.args(["build", "--quiet", "--package", "strata-backend-cpu", "--target-dir"]).arg(target);
    if profile.ends_with("release") {
        build.arg("--release");
    }
    let output = build.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    profile.join(format!("{prefix}strata_backend_cpu{suffix}"))
}

/// Copies the library, which the next build would overwrite, and writes its descriptor beside it.
fn describe(library: &Path) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("engine-{}", std::process::id()));
    std::fs::DirBuilder::new().recursive(true).create(&folder).unwrap();
    let file = format!("cpu{}", std::env::consts::DLL_SUFFIX);
    let bytes = fs_err::read(library).unwrap();
    fs_err::write(folder.join(&file), &bytes).unwrap();
    let (sha256, size) = Sha256Digest::of_reader(bytes.as_slice()).unwrap();
    let abi = format!("{}.{}", strata_backend_abi::STRATA_ABI_MAJOR, strata_backend_abi::STRATA_ABI_MINOR);
    let descriptor = PluginDescriptor {
        schema: PluginDescriptor::SCHEMA.to_owned(),
        name: "cpu".to_owned(),
        version: Version::current(),
        kind: BackendKind::Cpu,
        abi_lowest: abi.clone(),
        abi_highest: abi,
        layout_hash: strata_backend_abi::layout::hash(),
        os: std::env::consts::OS.to_owned(),
        cpu_arch: std::env::consts::ARCH.to_owned(),
        targets: vec![std::env::consts::ARCH.to_owned()],
        library: file,
        sha256,
        size,
        libc_floor: None,
        driver_floor: None,
    };
    let path = folder.join("cpu.plugin.json");
    descriptor.write(&path).unwrap();
    path
}
