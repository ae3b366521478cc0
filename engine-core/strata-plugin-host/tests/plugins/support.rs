//! Compiles plugins from tests/bad and lays them out with a descriptor.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use strata_backend_abi::layout;
use strata_diag::Diagnose;
use strata_manifest::{BackendKind, Document, PluginDescriptor, Sha256Digest, Version};
use strata_plugin_host::{OpenOptions, Plugin, PluginEntry, PluginError, ProbeCommand, ProbeOptions};

/// A folder with one plugin in it.
pub(crate) struct Folder {
    pub(crate) dir: tempfile::TempDir,
    name: &'static str,
}

/// How this system names libraries.
pub(crate) struct Library;

impl Library {
    pub(crate) fn file_name(stem: &str) -> String {
        format!("{}{stem}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX)
    }
}

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder::named("test")
    }

    /// For a plugin of this name.
    pub(crate) fn named(name: &'static str) -> Folder {
        Folder { dir: tempfile::tempdir().unwrap(), name }
    }

    /// The sound plugin of tests/bad with these macros defined.
    pub(crate) fn compiled(faults: &[&str]) -> Folder {
        let folder = Folder::new();
        folder.compile(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad/plugin.c").as_path(), faults, &[]);
        folder.describe(|_| {});
        folder
    }

    pub(crate) fn compile(&self, source: &Path, defines: &[&str], flags: &[&str]) {
        let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../strata-backend-abi/include");
        let output = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Wno-unused", "-shared", "-fPIC", "-O1"])
            .arg(format!("-DTEST_VERSION=\"{}\"", Version::current()))
            .args(defines.iter().map(|define| format!("-D{define}")))
            .args(flags)
            .arg("-I")
            .arg(header)
            .arg("-o")
            .arg(self.library())
            .arg(source)
            .arg("-lm")
            .output()
            .expect("a C compiler is there: it is needed to link Rust as well");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.dir.path().join("libtest.so")
    }

    pub(crate) fn descriptor(&self) -> PathBuf {
        self.dir.path().join("test.plugin.json")
    }

    /// Writes a descriptor that is true but for what `change` does to it.
    pub(crate) fn describe(&self, change: impl FnOnce(&mut PluginDescriptor)) {
        let bytes = fs_err::read(self.library()).unwrap_or_default();
        let mut descriptor = PluginDescriptor {
            schema: PluginDescriptor::SCHEMA.to_owned(),
            name: self.name.to_owned(),
            version: Version::current(),
            kind: BackendKind::Cpu,
            abi_lowest: "1.0".to_owned(),
            abi_highest: "1.0".to_owned(),
            layout_hash: layout::hash(),
            os: std::env::consts::OS.to_owned(),
            cpu_arch: std::env::consts::ARCH.to_owned(),
            targets: vec![std::env::consts::ARCH.to_owned()],
            library: "libtest.so".to_owned(),
            sha256: Sha256Digest::of_bytes(&bytes),
            size: bytes.len() as u64,
            libc_floor: None,
            driver_floor: None,
            unproven: None,
        };
        change(&mut descriptor);
        descriptor.write(&self.descriptor()).unwrap();
    }

    pub(crate) fn entry(&self) -> Result<PluginEntry, PluginError> {
        PluginEntry::from_descriptor(&self.descriptor())
    }

    pub(crate) fn open(&self) -> Result<Plugin, PluginError> {
        Plugin::open(&self.entry()?, &OpenOptions::in_process())
    }

    pub(crate) fn open_probed(&self) -> Result<Plugin, PluginError> {
        Plugin::open(&self.entry()?, &OpenOptions::probed(self.probe()))
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub(crate) fn probe(&self) -> ProbeOptions {
        let args = ["--exact", "probe_child_mode", "--nocapture"];
        ProbeOptions {
            command: ProbeCommand { program: std::env::current_exe().unwrap(), args: args.map(Into::into).to_vec() },
            limit: Some(Duration::from_secs(20)),
            state_dir: Some(self.state_dir()),
            retry: false,
        }
    }
}

/// Code and message of a failure.
pub(crate) fn told<T>(result: Result<T, PluginError>) -> String {
    match result {
        Ok(_) => "no failure".to_owned(),
        Err(error) => format!("{} {error}", error.code().name),
    }
}

#[track_caller]
pub(crate) fn expect<T>(result: Result<T, PluginError>, code: &str, words: &str) -> PluginError {
    let Err(error) = result else { panic!("no failure, wanted {code}") };
    assert_eq!(error.code().name, code, "{error}");
    let facts: Vec<String> = error.facts().into_iter().map(|(name, fact)| format!("{name}={fact}")).collect();
    let text = format!("{error} {}", facts.join(" "));
    assert!(text.contains(words), "wanted `{words}` in `{text}`");
    error
}
