//! `strata doctor`: on this build's CPU plugin, and on the copies of machines that are not here.

use crate::support::{SMOLLM2, cpu_plugin, model, ran, strata, strata_with_plugin};
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

/// The check of a topic, of the JSON report.
fn checks<'a>(report: &'a Value, topic: &str) -> Vec<&'a Value> {
    report["checks"].as_array().unwrap().iter().filter(|check| check["topic"] == topic).collect()
}

#[test]
fn a_port_that_is_taken_is_a_note_that_says_by_whom() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    let look = || ran(strata_with_plugin("doctor").args(["--json", "--port", &port]));
    let taken = look();
    let report = taken.json();
    let check = checks(&report, "port")[0];
    assert_eq!(check["level"], "note", "{check:#}");
    let text = check["text"].as_str().unwrap();
    assert!(text.contains(&format!("127.0.0.1:{port} is taken")) && text.contains("S0801"), "{text}");
    assert!(text.contains(&format!("(process {})", std::process::id())), "{text}");
    assert!(check["to_do"].as_str().unwrap().contains("--port"), "{check:#}");
    assert_eq!(taken.status, Some(i32::from(report["healthy"] != true)), "a port alone is nothing wrong");
    drop(holder);
    assert_eq!(checks(&look().json(), "port")[0]["level"], "ok");
}

/// Also that all else is still looked at: a receipt is one thing of many.
#[test]
fn a_damaged_receipt_is_wrong_and_the_rest_is_told() {
    let prefix = tempfile::tempdir().unwrap();
    for text in ["{\"schema\": \"strata-receipt/1.0\", ", "", "[]", "{\"schema\": \"strata-receipt/99.0\"}"] {
        fs_err::write(prefix.path().join("receipt.json"), text).unwrap();
        let ran = ran(strata().args(["doctor", "--json", "--prefix"]).arg(prefix.path()));
        assert_eq!(ran.status, Some(1), "{text}: {}", ran.err);
        let report = ran.json();
        let check = checks(&report, "receipt")[0];
        assert_eq!(check["level"], "WRONG", "{text}: {check:#}");
        assert!(check["to_do"].as_str().unwrap().contains("strata-setup"), "{check:#}");
        assert!(checks(&report, "plugin").is_empty(), "what it would name is not guessed");
        for topic in ["system", "processor", "memory", "disk", "state", "port"] {
            assert!(!checks(&report, topic).is_empty(), "{topic}: {report:#}");
        }
    }
}

#[test]
fn a_program_without_plugins_says_how_to_get_some() {
    let ran = ran(strata().args(["doctor", "--json"]));
    assert_eq!(ran.status, Some(1));
    let report = ran.json();
    let check = checks(&report, "plugin")[0];
    assert!(check["level"] == "WRONG" && check["text"].as_str().unwrap().contains("S0314"), "{check:#}");
    assert!(checks(&report, "threads").is_empty());
}

#[test]
fn a_model_file_is_looked_into() {
    let folder = tempfile::tempdir().unwrap();
    let look = |path: &Path| {
        let ran = ran(strata_with_plugin("doctor").args(["--json", "--model"]).arg(path));
        let report = ran.json();
        let check = checks(&report, "models").into_iter().next_back().unwrap().clone();
        assert!(check["level"] != "WRONG" || ran.status == Some(1));
        (check["level"].as_str().unwrap().to_owned(), format!("{} {}", check["text"], check["details"]))
    };
    let garbage = folder.path().join("garbage.gguf");
    fs_err::write(&garbage, "no model").unwrap();
    let (level, text) = look(&garbage);
    assert!(level == "WRONG" && text.contains("S0101"), "{text}");
    let (level, text) = look(&folder.path().join("absent.gguf"));
    assert!(level == "WRONG" && text.contains("S0006") && text.contains("because: "), "{text}");
    let (level, text) = look(folder.path());
    assert!(level == "WRONG", "{text}");
    let locked = folder.path().join("locked.gguf");
    fs_err::write(&locked, "GGUF").unwrap();
    fs_err::set_permissions(&locked, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    if fs_err::File::open(&locked).is_ok() {
        println!("skipped: a file without permissions, which this user reads all the same");
    } else {
        let (level, text) = look(&locked);
        assert!(level == "WRONG" && text.contains("cannot read"), "{text}");
    }
    let Some(model) = model(SMOLLM2) else { return };
    let (level, text) = look(&model);
    assert!(level == "ok" && text.contains("tokens of context"), "{text}");
    let cut = folder.path().join("cut.gguf");
    fs_err::write(&cut, &fs_err::read(&model).unwrap()[..1 << 20]).unwrap();
    let (level, text) = look(&cut);
    assert!(level == "WRONG" && text.contains("S0104"), "{text}");
}

#[test]
fn threads_and_state_are_told_and_a_report_names_nobody() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("annabel-secret");
    fs_err::create_dir_all(&folder).unwrap();
    let path = home.path().join("report.txt");
    let mut doctor = strata_with_plugin("doctor");
    doctor
        .env("HOME", &folder)
        .env("USER", "annabel-secret")
        .env_remove("STRATA_STATE_DIR")
        .env_remove("XDG_STATE_HOME");
    doctor.arg("--model").arg(folder.join("mine.gguf")).arg("--report").arg(&path);
    let said = ran(&mut doctor);
    assert!(said.out.contains("annabel-secret"), "on the own screen paths are whole: {}", said.out);
    let threads = said.out.lines().find(|line| line.starts_with("ok    threads: ")).unwrap();
    assert!(threads.contains("physical core") && threads.contains("quota"), "{threads}");
    let report = fs_err::read_to_string(path).unwrap();
    assert!(!report.contains("annabel"), "{report}");
    assert!(
        report.contains("state: ~/.local/state/strata can be written") && report.contains("~/mine.gguf"),
        "{report}"
    );
    // A place that no user can write: a file stands where a folder is needed.
    fs_err::write(home.path().join("file"), "").unwrap();
    let mut doctor = strata_with_plugin("doctor");
    let said = ran(doctor.env("STRATA_STATE_DIR", home.path().join("file/state")));
    assert!(said.out.contains("cannot be written by this user"), "{}", said.out);
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
