//! `strata doctor`: on this build's CPU plugin, and on the copies of machines that are not here.

use crate::support::{cpu_plugin, ran, strata, strata_with_plugin};
use serde_json::Value;
use std::path::Path;
use strata_manifest::{Document, InstalledFile, Receipt, Sha256Digest, Version};

const HOSTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../installer/strata-probe/fixtures/hosts");

/// Lays out one of the recorded machines.
fn machine(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tree: Value = serde_json::from_str(&fs_err::read_to_string(format!("{HOSTS}/{name}.json")).unwrap()).unwrap();
    for (path, content) in tree.as_object().unwrap() {
        let path = folder.path().join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, content.as_str().or(content["text"].as_str()).unwrap()).unwrap();
    }
    folder
}

#[test]
fn a_card_without_its_driver_is_wrong_and_what_to_do_is_said() {
    let root = machine("mi50-without-driver");
    let ran = ran(strata().arg("doctor").arg("--root").arg(root.path()));
    assert_eq!(ran.status, Some(1), "{}{}", ran.out, ran.err);
    for part in ["WRONG gpu:", "gfx906", "its driver is missing", "plugin hip-gfx906 is for it", "to do: "] {
        assert!(ran.out.contains(part), "no `{part}` in\n{}", ran.out);
    }
}

#[test]
fn a_card_that_works_and_one_without_kernels_are_nothing_wrong() {
    for (name, part) in [("mi50-two", "ok    gpu:"), ("rx580-unsupported", "note  gpu:")] {
        let root = machine(name);
        let ran = ran(strata().arg("doctor").arg("--root").arg(root.path()));
        assert_eq!(ran.status, Some(0), "{name}: {}{}", ran.out, ran.err);
        assert!(ran.out.contains(part), "{name}: {}", ran.out);
    }
}

#[test]
fn the_selftest_finds_the_cpu_plugin_right() {
    let ran = ran(strata_with_plugin("doctor").args(["--selftest", "--json"]));
    let report = ran.json();
    let tests = report["selftest"].as_array().unwrap();
    let of_cpu: Vec<&Value> =
        tests.iter().filter(|row| row["device"].as_str().is_some_and(|device| device.starts_with("cpu "))).collect();
    assert!(of_cpu.len() >= 20, "{report:#}");
    for row in of_cpu {
        assert_eq!(row["result"], "right", "{row:#}");
    }
    assert_eq!(report["schema"], "strata-doctor/1.0");
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.iter().any(|check| check["topic"] == "plugin" && check["details"][0].as_str().is_some()));
    assert_eq!(ran.status == Some(0), report["healthy"] == true);
}

#[test]
fn files_that_changed_are_named_and_a_report_is_not_written_over() {
    let prefix = tempfile::tempdir().unwrap();
    let file = |path: &str, text: &str| {
        fs_err::write(prefix.path().join(path), text).unwrap();
        let sha256 = Sha256Digest::of_bytes(text.as_bytes());
        InstalledFile { path: path.to_owned(), size: text.len() as u64, sha256, mode: "0644".to_owned() }
    };
    let receipt = Receipt {
        schema: Receipt::SCHEMA.to_owned(),
        version: Version::current(),
        files: vec![file("a", "aaaa"), file("b", "bbbb")],
        plugins: Vec::new(),
        models: Vec::new(),
        install: None,
    };
    receipt.write(&prefix.path().join("receipt.json")).unwrap();
    let doctor = |more: &[&str]| {
        let mut command = strata();
        command.args(["doctor", "--prefix"]).arg(prefix.path()).arg("--plugin").arg(cpu_plugin()).args(more);
        ran(&mut command)
    };
    let said = doctor(&[]);
    assert!(said.out.contains("2 files below"), "{}", said.out);

    // Same size: only the digest tells.
    fs_err::write(prefix.path().join("b"), "bbbc").unwrap();
    assert!(!doctor(&[]).out.contains("S0719"));
    let said = doctor(&["--full"]);
    assert_eq!(said.status, Some(1));
    assert!(said.out.contains("1 of 2 files") && said.out.contains("S0719"), "{}", said.out);

    let report = prefix.path().join("report.txt");
    assert!(doctor(&["--report", report.to_str().unwrap()]).err.contains("written"));
    assert!(fs_err::read_to_string(&report).unwrap().starts_with("strata "));
    fs_err::write(Path::new(&report), "mine").unwrap();
    assert_eq!(doctor(&["--report", report.to_str().unwrap()]).status, Some(1));
    assert_eq!(fs_err::read_to_string(&report).unwrap(), "mine");
}

/// The small plugin in C with one kernel changed, beside the CPU plugin. It is changed for long rows
/// only, since the check before a plugin's first use adds short ones.
fn with_broken_add(add: &str) -> crate::support::Ran {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("strata-backend-abi");
    let text = fs_err::read_to_string(source.join("tests/c/plugin.c")).unwrap();
    let call = "add(operand[0], operand[1], operand[2], op->f[0]);";
    assert_eq!(text.matches(call).count(), 1, "the kernel to break is called in one place");
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(
        folder.path().join("plugin.c"),
        text.replace(call, &format!("if (operand[0].ne[0] == 256) {{ {add} }} else {{ {call} }}")),
    )
    .unwrap();
    let library = folder.path().join("broken.so");
    let mut compile = std::process::Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    compile.args(["-std=c11", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-o"]).arg(&library);
    compile.arg(format!("-DC_DEMO_VERSION=\"{}\"", Version::current())).arg("-I").arg(source.join("include"));
    compile.arg("-I").arg(source.join("tests/c")).arg(folder.path().join("plugin.c")).arg("-lm");
    assert!(compile.status().unwrap().success());
    let arch = [std::env::consts::ARCH];
    let descriptor =
        strata_plugin_host::describe_library(&library, "c-demo", strata_manifest::BackendKind::Cpu, &arch).unwrap();
    let path = folder.path().join("c-demo.plugin.json");
    descriptor.write(&path).unwrap();
    ran(strata_with_plugin("doctor").arg("--plugin").arg(&path).args(["--selftest", "--selftest-limit", "5", "--json"]))
}

/// Wrong numbers, a crash and a hang are each a row of the self-test, and `doctor` says what is wrong.
#[test]
fn the_selftest_finds_a_kernel_that_is_broken() {
    for (add, result, why) in [
        ("add(operand[0], operand[1], operand[2], op->f[0] + 0.25f);", "wrong", ""),
        ("abort();", "failed", "crashes"),
        ("for (volatile int turns = 0;; turns++) {}", "failed", "hangs"),
        ("add(operand[0], operand[1], operand[2], op->f[0]);", "right", ""),
    ] {
        let ran = with_broken_add(add);
        let report = ran.json();
        let rows = report["selftest"].as_array().unwrap();
        let of_demo: Vec<&Value> = rows
            .iter()
            .filter(|row| row["device"].as_str().is_some_and(|device| device.starts_with("c-demo ")))
            .collect();
        let row = of_demo.iter().find(|row| row["op"] == "add").unwrap_or_else(|| panic!("{add}: {report:#}"));
        assert_eq!(row["result"], result, "{add}: {row:#}");
        assert!(row["why"].as_str().unwrap_or_default().contains(why), "{add}: {row:#}");
        // What comes after it was tried all the same.
        let copy = of_demo.iter().find(|row| row["op"] == "copy").unwrap();
        assert_eq!(copy["result"], "not supported", "{add}: {copy:#}");
        let is_said = report["checks"]
            .as_array()
            .unwrap()
            .iter()
            .any(|check| check["topic"] == "selftest" && check["level"] == "WRONG" && check["details"][0] == "add");
        assert_eq!(is_said, result != "right", "{add}: {report:#}");
        assert!(result == "right" || ran.status == Some(1), "{add}: {:?}", ran.status);
    }
}
