//! Real packages and a real model, from the release to an answer. Needs a release folder that offers
//! `smollm2-135m` in `STRATA_TEST_DIST` (`cargo xtask dist` makes one).

use crate::support::{Scene, done, tool};
use std::path::PathBuf;
use std::process::Command;

#[test]
fn fetched_installed_without_network_and_answering() {
    let Some(dist) = std::env::var_os("STRATA_TEST_DIST").map(PathBuf::from) else {
        println!("skipped: STRATA_TEST_DIST names no release folder");
        return;
    };
    let scene = Scene::new();
    let mut fetch = scene.setup(&["--download-only", "--model", "smollm2-135m", "--backend", "cpu"]);
    done(fetch.arg("--release").arg(&dist).arg("--to").arg(scene.path("stick")));

    // From here on there is no network interface at all, where the system allows that.
    let apart = tool("unshare", &["--map-root-user", "--net", "true"]).is_some();
    let run = |program: PathBuf, args: &[&str]| {
        let mut command = if apart {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "--net"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.args(args).env("HOME", scene.path("home")).env("STRATA_STATE_DIR", scene.path("state"));
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        (String::from_utf8_lossy(&output.stdout).into_owned(), text)
    };
    let (stick, prefix) = (scene.text("stick"), scene.text("prefix"));
    let setup = PathBuf::from(env!("CARGO_BIN_EXE_strata-setup"));
    run(setup, &["--offline", "--from", &stick, "--prefix", &prefix, "--backend", "cpu", "--yes"]);
    let program = scene.prefix().join("current/bin/strata");
    let (answer, told) =
        run(program, &["run", "smollm2-135m", "Why is the sky blue?", "--temperature", "0", "--max-tokens", "24"]);
    assert!(answer.contains("sky"), "{answer}\n{told}");
    assert!(told.contains("backend: cpu"), "{told}");
    println!("answered without a network interface ({apart}): {answer}");
    // The installed installer knows where it lies.
    let (list, _) = run(scene.prefix().join("current/bin/strata-setup"), &["list", "--check"]);
    assert!(list.contains("all are as installed"), "{list}");
    run(scene.prefix().join("current/bin/strata-setup"), &["uninstall", "--models", "--yes"]);
    assert!(!scene.prefix().exists());
}
