//! Several runs at once in one prefix.

use crate::support::Scene;
use std::process::{Child, Command, Stdio};

fn start(scene: &Scene, version: &str, wait: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strata-setup"));
    command.args([
        "install",
        "--backend",
        "cpu",
        "--yes",
        "--allow-unsigned",
        "--no-model",
        "--wait",
        wait,
        "--release",
    ]);
    command.arg(scene.path(version)).arg("--prefix").arg(scene.prefix()).arg("--root").arg(scene.path("root"));
    command.env("HOME", scene.path("home")).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn of_many_runs_one_works_and_the_others_say_so() {
    let scene = Scene::new();
    let children: Vec<Child> = (0..6).map(|_| start(&scene, "0.1.0", "0")).collect();
    let mut done = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => done += 1,
            Some(1) => assert!(text.contains("error[S0712]") && text.contains("process "), "{text}"),
            status => panic!("{status:?}: {text}"),
        }
    }
    assert!(done >= 1);
    assert_eq!(scene.version_that_runs(), "0.1.0");
}

#[test]
fn runs_that_wait_all_end_well() {
    let scene = Scene::new();
    let children: Vec<Child> = (0..4).map(|n| start(&scene, if n == 3 { "0.2.0" } else { "0.1.0" }, "60")).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        // Whoever comes after the newer release with the older one planned before it; either is a whole state.
        assert!(output.status.success() || text.contains("S0703"), "{text}");
    }
    assert!(["0.1.0", "0.2.0"].contains(&scene.version_that_runs().as_str()));
    crate::support::done(scene.setup(&["list", "--check"]).arg("--prefix").arg(scene.prefix()));
}
