//! One way to run the program: a state folder of its own, the CPU plugin of this build.

use assert_cmd::Command;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use strata_manifest::{BackendKind, Document};

pub(crate) const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
pub(crate) const GEMMA3: &str = "gemma-3-270m-q4_k_m.gguf";

/// The program, kept away from the user's own installation and state.
pub(crate) fn strata() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strata"));
    command.env_remove("STRATA_PREFIX").env("STRATA_STATE_DIR", state_dir());
    command
}

/// The program with a command that computes, and the plugin to compute with.
pub(crate) fn strata_with_plugin(command: &str) -> Command {
    let mut strata = strata();
    strata.arg(command).arg("--plugin").arg(cpu_plugin());
    strata
}

/// What is learned about the plugin in one test is learned for all of this process.
pub(crate) fn state_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-state")
}

/// The CPU plugin's descriptor: in `STRATA_TEST_PLUGIN_DIR`, else of a plugin that is built now, into
/// the target directory that this test was built in.
pub(crate) fn cpu_plugin() -> &'static Path {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN.get_or_init(|| match std::env::var_os("STRATA_TEST_PLUGIN_DIR") {
        Some(folder) => Path::new(&folder).join("cpu.plugin.json"),
        None => build_plugin(),
    })
}

fn build_plugin() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).expect("a test lies in `<profile>/deps`");
    let target = profile.parent().expect("a profile's folder lies in the target directory");
    let mut build = std::process::Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "strata-backend-cpu", "--target-dir"]).arg(target);
    if profile.ends_with("release") {
        build.arg("--release");
    }
    let output = build.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    // A folder of this process: the next build would overwrite the library under a running test.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-plugin-{}", std::process::id()));
    fs_err::create_dir_all(&folder).unwrap();
    let library = folder.join("libstrata_backend_cpu.so");
    fs_err::copy(profile.join("libstrata_backend_cpu.so"), &library).unwrap();
    let descriptor =
        strata_plugin_host::describe_library(&library, "cpu", BackendKind::Cpu, &[std::env::consts::ARCH]).unwrap();
    let path = folder.join("cpu.plugin.json");
    descriptor.write(&path).unwrap();
    path
}

/// A cached real model; without it the test says so and ends.
pub(crate) fn model(file: &str) -> Option<PathBuf> {
    let folder = match std::env::var_os("STRATA_TEST_MODELS") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache/strata/models"),
    };
    present(folder.join(file), "`cargo xtask models` brings it")
}

/// A file of the reference data beside the checkout.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    let folder = match std::env::var_os("STRATA_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
    };
    present(folder.join(path), "the reference data is kept beside the checkout")
}

fn present(path: PathBuf, why: &str) -> Option<PathBuf> {
    if path.exists() {
        return Some(path);
    }
    println!("skipped: no {} ({why})", path.display());
    None
}

/// What a run gave.
pub(crate) struct Ran {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.out, self.err))
    }
}

pub(crate) fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        status: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The run failed with this status and this code, and did not panic.
#[track_caller]
pub(crate) fn refused(command: &mut Command, status: i32, code: &str) -> Ran {
    let ran = ran(command);
    assert_eq!(ran.status, Some(status), "{}", ran.err);
    assert!(ran.err.contains(&format!("error[{code}]")), "{}", ran.err);
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    ran
}
