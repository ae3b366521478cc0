//! The CPU plugin for tests: `STRATA_TEST_PLUGIN_DIR` names the folder of its `cpu.plugin.json`,
//! else it is built into this build's own target directory and described beside it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use strata_manifest::{BackendKind, Document, Sha256Digest, Version};
use strata_plugin_host::{Device, DeviceOptions, OpenOptions, Plugin, PluginEntry, describe_library};

/// The plugin's device. A plugin that cannot be opened fails the test: it is part of the product.
pub(crate) fn cpu(options: &DeviceOptions) -> Device {
    static PLUGIN: OnceLock<Plugin> = OnceLock::new();
    let plugin = PLUGIN.get_or_init(|| {
        open(&match std::env::var_os("STRATA_TEST_PLUGIN_DIR") {
            Some(folder) => Path::new(&folder).join("cpu.plugin.json"),
            None => describe("cpu", &build()),
        })
    });
    plugin.open_device(0, options).unwrap()
}

/// The ABI crate's small plugin in C, which has few ops and uses no host memory in place.
pub(crate) fn c_demo() -> Device {
    static PLUGIN: OnceLock<Plugin> = OnceLock::new();
    let plugin = PLUGIN.get_or_init(|| {
        let abi = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("strata-backend-abi");
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c_demo-{}.so", std::process::id()));
        let mut compile = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
        compile.args(["-std=c11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-o"]).arg(&library);
        compile.arg(format!("-DC_DEMO_VERSION=\"{}\"", Version::current()));
        compile.arg("-I").arg(abi.join("include")).arg(abi.join("tests/c/plugin.c")).arg("-lm");
        run(&mut compile);
        let descriptor = describe("c-demo", &library);
        fs_err::remove_file(library).unwrap();
        open(&descriptor)
    });
    plugin.open_device(0, &DeviceOptions::default()).unwrap()
}

fn open(descriptor: &Path) -> Plugin {
    Plugin::open(&PluginEntry::from_descriptor(descriptor).unwrap(), &OpenOptions::in_process()).unwrap()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
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
    run(build.current_dir(env!("CARGO_MANIFEST_DIR")));
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    profile.join(format!("{prefix}strata_backend_cpu{suffix}"))
}

/// Copies the library, which the next build would overwrite, and writes its descriptor beside it.
/// The folder is named by what is in it, so that runs share it and leave no more than one a build.
fn describe(name: &str, library: &Path) -> PathBuf {
    let bytes = fs_err::read(library).unwrap();
    let sha256 = Sha256Digest::of_bytes(&bytes);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{:.16}", sha256.to_string()));
    let path = folder.join(format!("{name}.plugin.json"));
    if path.is_file() {
        return path;
    }
    let stage = folder.with_extension(std::process::id().to_string());
    fs_err::create_dir_all(&stage).unwrap();
    let staged = stage.join(format!("{name}{}", std::env::consts::DLL_SUFFIX));
    fs_err::write(&staged, &bytes).unwrap();
    let descriptor = describe_library(&staged, name, BackendKind::Cpu, &[std::env::consts::ARCH]).unwrap();
    descriptor.write(&stage.join(format!("{name}.plugin.json"))).unwrap();
    // Another process may have been faster; then its folder is as good.
    if fs_err::rename(&stage, &folder).is_err() {
        fs_err::remove_dir_all(&stage).unwrap();
    }
    path
}
