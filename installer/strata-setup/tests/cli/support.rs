//! One way to run the program: no home, no terminal, facts of an empty root.

use crate::releases::{Package, all_packages, quick_folder, release};
use assert_cmd::Command;
use std::path::{Path, PathBuf};
use strata_manifest::{Document, RELEASE_FILE, Release, ReleaseFile, ReleaseModel, Sha256Digest};

/// Folders of one test.
pub(crate) struct Scene {
    folder: tempfile::TempDir,
}

/// Bytes of the model that releases of these tests offer.
pub(crate) fn model_bytes() -> Vec<u8> {
    (0..300_000_u32).flat_map(u32::to_le_bytes).collect()
}

impl Scene {
    /// A scene with releases 0.1.0 and 0.2.0, which offer a model `tiny`.
    pub(crate) fn new() -> Scene {
        let scene = Scene { folder: quick_folder() };
        for (version, serial) in [("0.1.0", 1), ("0.2.0", 2)] {
            scene.release(version, serial, &all_packages(version));
        }
        fs_err::create_dir_all(scene.path("root/sys")).unwrap();
        fs_err::create_dir_all(scene.path("home")).unwrap();
        scene
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn prefix(&self) -> PathBuf {
        self.path("prefix")
    }

    /// A release in the folder of its version.
    pub(crate) fn release(&self, version: &str, serial: u64, packages: &[Package]) {
        let folder = self.path(version);
        let mut made = release(&folder, version, serial, packages);
        offer_model(&folder, &mut made, "tiny", "tiny-model.gguf", &model_bytes());
    }

    /// The program with the flags that keep it inside the scene.
    pub(crate) fn setup(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strata-setup"));
        self.keep_inside(&mut command);
        command.args(args);
        command
    }

    fn keep_inside(&self, command: &mut Command) {
        command.env_clear().env("HOME", self.path("home")).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.current_dir(self.folder.path());
    }

    /// `strata-setup install` of a release for the CPU, with further flags.
    pub(crate) fn install(&self, version: &str, more: &[&str]) -> Command {
        let mut command = self.setup(&["install", "--backend", "cpu", "--yes", "--allow-unsigned"]);
        command.arg("--release").arg(self.path(version)).arg("--prefix").arg(self.prefix());
        command.arg("--root").arg(self.path("root"));
        if !more.contains(&"--model") {
            command.arg("--no-model");
        }
        command.args(more);
        command
    }

    /// What runs from the prefix.
    pub(crate) fn version_that_runs(&self) -> String {
        let program = self.prefix().join("current/bin/strata");
        if !program.exists() {
            return "nothing".to_owned();
        }
        let output = std::process::Command::new(program).arg("version").output().unwrap();
        String::from_utf8_lossy(&output.stdout).split(' ').nth(1).unwrap_or("?").to_owned()
    }
}

/// Adds a model to a release's folder and index.
pub(crate) fn offer_model(folder: &Path, release: &mut Release, name: &str, file: &str, bytes: &[u8]) {
    let path = format!("models/{file}");
    fs_err::create_dir_all(folder.join("models")).unwrap();
    fs_err::write(folder.join(&path), bytes).unwrap();
    release.models.push(ReleaseModel {
        name: name.to_owned(),
        files: vec![ReleaseFile {
            path: Some(path.parse().unwrap()),
            url: None,
            format: "gguf".to_owned(),
            size: bytes.len() as u64,
            sha256: Sha256Digest::of_bytes(bytes),
            chunks_sha256: None,
            chunks: Vec::new(),
        }],
    });
    fs_err::write(folder.join(RELEASE_FILE), release.to_text()).unwrap();
}

/// What a run gave.
#[derive(Debug)]
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
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[track_caller]
pub(crate) fn done(command: &mut Command) -> Ran {
    let ran = ran(command);
    assert_eq!(ran.status, Some(0), "{}\n{}", ran.out, ran.err);
    ran
}

/// The run failed with this status and this code, and did not panic.
#[track_caller]
pub(crate) fn refused(command: &mut Command, status: i32, code: &str) -> Ran {
    let ran = ran(command);
    assert_eq!(ran.status, Some(status), "{}\n{}", ran.out, ran.err);
    assert!(ran.err.contains(&format!("error[{code}]")), "{}", ran.err);
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    ran
}

/// A program of the system, if it is there and allowed to do its work.
pub(crate) fn tool(name: &str, trial: &[&str]) -> Option<String> {
    let works = std::process::Command::new(name).args(trial).output().is_ok_and(|output| output.status.success());
    if !works {
        println!("skipped: `{name} {}` does not work here", trial.join(" "));
    }
    works.then(|| name.to_owned())
}
