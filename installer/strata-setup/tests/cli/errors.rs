//! What is refused, with its code and a way on.

use crate::releases::{all_packages, control, engine};
use crate::support::{Scene, done, ran, refused};

#[test]
fn a_backend_without_a_card_names_what_was_looked_at() {
    let scene = Scene::new();
    for backend in ["hip", "cuda"] {
        let mut command = scene.setup(&["--yes", "--allow-unsigned", "--no-model", "--backend", backend]);
        command
            .arg("--release")
            .arg(scene.path("0.1.0"))
            .arg("--prefix")
            .arg(scene.prefix())
            .arg("--root")
            .arg(scene.path("root"));
        let told = refused(&mut command, 1, "S0706");
        assert!(told.err.contains("looked at: ") && told.err.contains("--target"), "{}", told.err);
        assert!(!scene.prefix().join("current").exists());
    }
}

#[test]
fn releases_are_believed_only_with_a_reason() {
    let scene = Scene::new();
    let plain = |version: &str, more: &[&str]| {
        let mut command = scene.setup(&["--yes", "--no-model", "--backend", "cpu"]);
        command
            .arg("--release")
            .arg(scene.path(version))
            .arg("--prefix")
            .arg(scene.prefix())
            .arg("--root")
            .arg(scene.path("root"));
        command.args(more);
        command
    };
    let told = refused(&mut plain("0.1.0", &[]), 1, "S0702");
    assert!(told.err.contains("not signed") && told.err.contains("--allow-unsigned"), "{}", told.err);
    done(&mut plain("0.2.0", &["--allow-unsigned"]));
    refused(&mut plain("0.1.0", &["--allow-unsigned"]), 1, "S0703");
    done(&mut plain("0.1.0", &["--allow-unsigned", "--allow-downgrade"]));
    assert_eq!(scene.version_that_runs(), "0.1.0");
    let key = scene.path("key.pub");
    fs_err::write(&key, "no key").unwrap();
    let mut command = plain("0.2.0", &["--key"]);
    refused(command.arg(&key), 1, "S0702");
    let mut command = plain("no such folder", &[]);
    refused(&mut command, 1, "S0701");
}

#[test]
fn wrong_words_are_usage_errors() {
    let scene = Scene::new();
    refused(&mut scene.install("0.1.0", &["--target", "rtx"]), 2, "S0708");
    refused(&mut scene.install("0.1.0", &["--model", "smolm2-135m"]), 1, "S0718");
    let told = ran(&mut scene.install("0.1.0", &["--model", "smolm2-135m"]));
    assert!(told.err.contains("nearest names: smollm2-135m"), "{}", told.err);
    let mut command = scene.setup(&["--yes", "--allow-unsigned", "--no-model", "--gpus", "7", "--release"]);
    command.arg(scene.path("0.1.0")).arg("--prefix").arg(scene.prefix()).arg("--root").arg(scene.path("root"));
    refused(&mut command, 1, "S0723");
    refused(&mut scene.setup(&["--backend", "cpu", "list"]), 2, "S0002");
    assert_eq!(ran(&mut scene.setup(&["--offline"])).status, Some(2));
    assert_eq!(ran(&mut scene.setup(&["--no-such-flag"])).status, Some(2));
}

#[test]
fn a_failed_check_of_a_plugin_leaves_what_was_there() {
    let scene = Scene::new();
    done(&mut scene.install("0.1.0", &[]));
    scene.release("0.3.0", 3, &[control("0.3.0"), engine("0.3.0", "cpu", &[], "crash")]);
    let told = refused(&mut scene.install("0.3.0", &[]), 1, "S0715");
    assert!(told.err.contains("signal 11") && told.err.contains("was not changed"), "{}", told.err);
    assert_eq!(scene.version_that_runs(), "0.1.0");
}

#[test]
fn errors_come_as_json_too() {
    let scene = Scene::new();
    let told = refused(&mut scene.install("0.1.0", &["--json", "--model", "none such"]), 1, "S0718");
    assert_eq!(told.json()["error"]["code"], "S0718");
}

#[test]
fn a_target_is_installed_for_unproven() {
    let scene = Scene::new();
    let mut packages = all_packages("0.3.0");
    packages[2] = engine("0.3.0", "hip-gfx906", &["gfx906:sramecc+:xnack-"], "absent");
    scene.release("0.3.0", 3, &packages);
    let mut command =
        scene.setup(&["--yes", "--allow-unsigned", "--no-model", "--backend", "hip", "--target", "gfx906"]);
    command
        .arg("--release")
        .arg(scene.path("0.3.0"))
        .arg("--prefix")
        .arg(scene.prefix())
        .arg("--root")
        .arg(scene.path("root"));
    let told = done(&mut command);
    assert!(told.err.contains("is installed unproven"), "{}", told.err);
    let list = done(scene.setup(&["list", "--json"]).arg("--prefix").arg(scene.prefix())).json();
    assert_eq!(list["generations"][0]["unproven"], serde_json::json!(["hip-gfx906"]));
    assert_eq!(list["generations"][0]["plugins"], serde_json::json!(["hip-gfx906", "cpu"]));
}

/// A volume of its own, made in a namespace where that is allowed.
fn on_volume(scene: &Scene, options: &str) -> Option<std::process::Output> {
    let unshare = crate::support::tool("unshare", &["--map-root-user", "--mount", "true"])?;
    fs_err::create_dir_all(scene.path("volume")).unwrap();
    let script = format!(
        "mount -t tmpfs -o {options} tmpfs volume && exec {} install --backend cpu --yes --allow-unsigned --no-model \
         --release 0.1.0 --prefix volume/strata --root root",
        env!("CARGO_BIN_EXE_strata-setup")
    );
    let mut command = std::process::Command::new(unshare);
    command.args(["--map-root-user", "--mount", "sh", "-c", &script]).current_dir(scene.path(""));
    Some(command.env("HOME", scene.path("home")).output().unwrap())
}

#[test]
fn a_small_volume_is_refused_before_anything_is_written() {
    let scene = Scene::new();
    let Some(output) = on_volume(&scene, "size=1m") else { return };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && text.contains("error[S0709]") && text.contains("free: 1.00 MiB"),
        "{text}"
    );
}

#[test]
fn a_read_only_volume_is_named_with_a_way_on() {
    let scene = Scene::new();
    let Some(output) = on_volume(&scene, "ro") else { return };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && text.contains("error[S0711]") && text.contains("--prefix DIR"),
        "{text}"
    );
}
