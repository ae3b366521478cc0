//! The proof run with the real `strata` and plugins that misbehave: compiled from the plugin host's own bad
//! plugin, laid into a release, installed. Needs `strata` beside the tested program, as a build of the whole
//! workspace leaves it, or in `STRATA_TEST_STRATA`.

use crate::releases::{Package, control, engine};
use crate::support::{Scene, done, refused};
use std::path::{Path, PathBuf};
use std::process::Command;
use strata_manifest::{BackendKind, Document, FileMode, PluginDescriptor, Role, Sha256Digest, Version};

const ENGINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine-core");

fn strata() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_BIN_EXE_strata-setup")).with_file_name("strata");
    let program = std::env::var_os("STRATA_TEST_STRATA").map_or(beside, PathBuf::from);
    if !program.is_file() {
        println!("skipped: `{}` is not built", program.display());
        return None;
    }
    Some(program)
}

/// The bad plugin with these faults, as bytes. Needed libraries are left to the program that opens it, so that the
/// package has nothing to declare.
fn compiled(scene: &Scene, faults: &[&str]) -> Vec<u8> {
    let (source, library) = (scene.path("plugin.c"), scene.path("plugin.so"));
    let text = fs_err::read_to_string(Path::new(ENGINE).join("strata-plugin-host/tests/bad/plugin.c")).unwrap();
    fs_err::write(&source, text.replace(".name = TEXT(\"test\")", ".name = TEXT(\"cpu\")")).unwrap();
    let output = Command::new("cc")
        .args(["-std=gnu11", "-shared", "-fPIC", "-O1", "-nostdlib", "-fno-stack-protector"])
        .arg(format!("-DTEST_VERSION=\"{}\"", Version::current()))
        .args(faults.iter().map(|fault| format!("-D{fault}")))
        .arg("-I")
        .arg(Path::new(ENGINE).join("strata-backend-abi/include"))
        .arg("-o")
        .args([&library, &source])
        .output()
        .expect("a C compiler is there: it is needed to link Rust as well");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs_err::read(library).unwrap()
}

/// The hash that the C header gives the ABI's layout.
fn layout_hash() -> String {
    let header = fs_err::read_to_string(Path::new(ENGINE).join("strata-backend-abi/include/strata_backend.h")).unwrap();
    let line = header.lines().find(|line| line.starts_with("#define STRATA_ABI_LAYOUT_HASH")).unwrap();
    line.split('"').nth(1).unwrap().to_owned()
}

/// A CPU engine whose plugin is this library, and commands whose `strata` is the real one.
fn packages(strata: &Path, library: Vec<u8>) -> Vec<Package> {
    let version = Version::current().to_string();
    let mut commands = control(&version);
    commands.files[0].1 = format!("#!/bin/sh\nexec '{}' \"$@\"\n", strata.display()).into_bytes();
    let hash = layout_hash();
    let descriptor = PluginDescriptor {
        schema: PluginDescriptor::SCHEMA.to_owned(),
        name: "cpu".to_owned(),
        version: Version::current(),
        kind: BackendKind::Cpu,
        abi_lowest: "1.0".to_owned(),
        abi_highest: "1.0".to_owned(),
        layout_hash: hash.clone(),
        os: "linux".to_owned(),
        cpu_arch: "x86_64".to_owned(),
        targets: vec!["x86_64".to_owned()],
        library: "plugin.so".to_owned(),
        sha256: Sha256Digest::of_bytes(&library),
        size: library.len() as u64,
        libc_floor: None,
        driver_floor: None,
        unproven: None,
    };
    let files = vec![
        ("lib/strata/cpu/plugin.so".to_owned(), library, FileMode::Executable, Role::Data),
        (
            "lib/strata/cpu/cpu.plugin.json".to_owned(),
            descriptor.to_text().into_bytes(),
            FileMode::Plain,
            Role::Descriptor,
        ),
    ];
    vec![commands, Package { layout_hash: hash, files, ..engine(&version, "cpu", &[], "") }]
}

#[test]
fn a_real_proof_run_survives_plugins_that_crash_hang_and_compute_wrongly() {
    let Some(strata) = strata() else { return };
    let scene = Scene::new();
    let version = Version::current().to_string();
    let install = |faults: &[&str], serial: u64| {
        let folder = scene.path("real");
        let _ = fs_err::remove_dir_all(&folder);
        crate::releases::release(&folder, &version, serial, &packages(&strata, compiled(&scene, faults)));
        let mut command = scene.install("real", &["--again"]);
        command.env("STRATA_PROOF_SECONDS", "3");
        command
    };
    let sound = done(&mut install(&[], 3));
    assert!(sound.err.contains("plugin cpu passed its check on test:0"), "{}", sound.err);
    let current = fs_err::read_link(scene.prefix().join("current")).unwrap();
    for (fault, why) in [
        ("FAULT_SEGV", "signal 11 (SIGSEGV)"),
        ("FAULT_ABORT", "signal 6 (SIGABRT)"),
        ("FAULT_EXIT", "without a result"),
        ("FAULT_HANG", "no answer within 3 s"),
        ("FAULT_NUMBERS", "plugin `cpu` did not pass its check"),
        ("FAULT_NAN", "plugin `cpu` did not pass its check"),
        ("FAULT_NO_DEVICES", "plugin `cpu` did not pass its check"),
        ("FAULT_REFUSE", "plugin `cpu` did not pass its check"),
        ("FAULT_CONSTRUCTOR", "plugin `cpu` did not pass its check"),
    ] {
        let ran = refused(&mut install(&[fault], 4), 1, "S0715");
        let line = ran.err.lines().find(|line| line.starts_with("error")).unwrap_or_default();
        println!("{fault}: {line}");
        assert!(ran.err.contains(why), "{fault}: {}", ran.err);
        assert!(ran.err.contains("was not changed"), "{fault}: {}", ran.err);
        assert_eq!(fs_err::read_link(scene.prefix().join("current")).unwrap(), current, "{fault}");
    }
}
