//! What people do to a program like this, found by trying: each of these was a dead end or a wrong word once.

use crate::support::{Scene, done, ran, refused};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

fn folder_of_downloads(scene: &Scene, name: &str) -> PathBuf {
    let mut command = scene.setup(&["--download-only", "--backend", "cpu", "--model", "tiny", "--allow-unsigned"]);
    let to = scene.path(name);
    done(command.arg("--release").arg(scene.path("0.1.0")).arg("--to").arg(&to).arg("--root").arg(scene.path("root")));
    to
}

fn offline<'a>(scene: &'a Scene, from: &'a Path) -> assert_cmd::Command {
    let mut command = scene.setup(&["--offline", "--backend", "cpu", "--yes", "--allow-unsigned"]);
    command.arg("--from").arg(from).arg("--prefix").arg(scene.prefix()).arg("--root").arg(scene.path("root"));
    command
}

#[test]
fn places_where_nothing_can_be_installed_are_refused_before_a_plan() {
    let scene = Scene::new();
    done(&mut scene.install("0.1.0", &[]));
    fs_err::write(scene.path("file"), "x").unwrap();
    std::os::unix::fs::symlink("nowhere", scene.path("dangling")).unwrap();
    std::os::unix::fs::symlink(scene.prefix(), scene.path("link")).unwrap();
    for (place, why) in [
        ("file/below", "/file` is no folder"),
        ("dangling", "a link that leads nowhere"),
        ("prefix/models", "lies inside the installation"),
        ("prefix/current/x", "lies inside the installation"),
        ("link/state", "lies inside the installation"),
        ("0.1.0", "it holds a release"),
    ] {
        let mut command = scene.setup(&["install", "--backend", "cpu", "--yes", "--allow-unsigned", "--no-model"]);
        command.arg("--release").arg(scene.path("0.1.0")).arg("--prefix").arg(scene.path(place));
        let ran = refused(command.arg("--root").arg(scene.path("root")), 1, "S0710");
        assert!(ran.err.contains(why) && !ran.err.contains("plan:"), "{place}: {}", ran.err);
    }
    // The same installation through a link is the same installation.
    let mut list = scene.setup(&["list", "--prefix"]);
    assert!(done(list.arg(scene.path("link"))).out.contains("generation 1 (current)"));
    assert_eq!(scene.version_that_runs(), "0.1.0");
}

#[test]
fn names_that_are_no_utf_8_are_a_prefix_and_no_folder_of_models() {
    let scene = Scene::new();
    let odd = scene.path("").join(std::ffi::OsStr::from_bytes(b"p \xff\n'x"));
    let install = |models: Option<&Path>| {
        let mut command = scene.setup(&["install", "--backend", "cpu", "--yes", "--allow-unsigned", "--model", "tiny"]);
        command
            .arg("--release")
            .arg(scene.path("0.1.0"))
            .arg("--prefix")
            .arg(&odd)
            .arg("--root")
            .arg(scene.path("root"));
        if let Some(models) = models {
            command.arg("--models-dir").arg(models);
        }
        command
    };
    refused(&mut install(Some(&odd.join("m"))), 2, "S0002");
    done(&mut install(None));
    assert!(odd.join("current/bin/strata").is_file() && odd.join("models/tiny-model.gguf").is_file());
    done(scene.setup(&["uninstall", "--models", "--yes", "--prefix"]).arg(&odd));
    assert!(!odd.exists());
}

#[test]
fn a_folder_that_was_not_copied_whole_is_named_before_anything_is_changed() {
    let scene = Scene::new();
    let folder = folder_of_downloads(&scene, "stick");
    let archive = folder.join("strata-control-0.1.0-linux-x86_64.tar.gz");
    let whole = fs_err::read(&archive).unwrap();
    fs_err::write(&archive, &whole[..100]).unwrap();
    let cut = refused(&mut offline(&scene, &folder), 1, "S0713");
    assert!(cut.err.contains("has 100 bytes") && cut.err.contains("not copied whole"), "{}", cut.err);
    fs_err::write(&archive, &whole).unwrap();
    let model = folder.join("models/tiny-model.gguf");
    let bytes = fs_err::read(&model).unwrap();
    fs_err::write(&model, &bytes[..1000]).unwrap();
    let cut = refused(&mut offline(&scene, &folder), 1, "S0725");
    assert!(cut.err.contains("has 1000 bytes") && !cut.err.contains("plan:"), "{}", cut.err);
    fs_err::remove_file(&model).unwrap();
    let gone = refused(&mut offline(&scene, &folder), 1, "S0725");
    assert!(gone.err.contains("is not in the folder") && gone.err.contains("--no-model"), "{}", gone.err);
    assert!(!scene.prefix().exists());
}

#[test]
fn the_script_in_a_download_folder_installs_where_nothing_is() {
    let scene = Scene::new();
    // The scene's packages hold no strata-setup; this one's does.
    let program = format!("#!/bin/sh\nexec '{}' \"$@\"\n", env!("CARGO_BIN_EXE_strata-setup"));
    let mut packages = crate::releases::all_packages("0.1.0");
    packages[0].files.push((
        "bin/strata-setup".to_owned(),
        program.into_bytes(),
        strata_manifest::FileMode::Executable,
        strata_manifest::Role::Data,
    ));
    scene.release("0.1.0", 1, &packages);
    let folder = folder_of_downloads(&scene, "stick");
    let moved = scene.path("a b'c");
    fs_err::rename(&folder, &moved).unwrap();
    let how_to = fs_err::read_to_string(moved.join("HOW-TO.txt")).unwrap();
    assert!(how_to.starts_with("Everything is in this folder") && !how_to.contains("mkdir"), "{how_to}");
    let run = || {
        let mut command = assert_cmd::Command::new("sh");
        command.env_clear().env("HOME", scene.path("home")).env("PATH", std::env::var_os("PATH").unwrap());
        command.arg(moved.join("install-offline.sh")).args([
            "--backend",
            "cpu",
            "--yes",
            "--allow-unsigned",
            "--prefix",
        ]);
        command.arg(scene.prefix()).current_dir("/");
        command
    };
    done(&mut run());
    assert_eq!(scene.version_that_runs(), "0.1.0");
    let archive = moved.join("strata-control-0.1.0-linux-x86_64.tar.gz");
    let mut bytes = fs_err::read(&archive).unwrap();
    bytes[50] ^= 1;
    fs_err::write(&archive, bytes).unwrap();
    let damaged = ran(&mut run());
    assert!(damaged.status == Some(1) && damaged.err.contains("copy the folder again"), "{damaged:?}");
}

#[test]
fn a_receipt_that_cannot_be_read_is_no_dead_end() {
    let scene = Scene::new();
    let at = |args: &[&str]| {
        let mut command = scene.setup(args);
        command.arg("--prefix").arg(scene.prefix());
        command
    };
    done(&mut scene.install("0.1.0", &[]));
    done(&mut scene.install("0.2.0", &[]));
    for garbage in [&b"\xff\xfe\x00"[..], b"{", b"", br#"{"schema":"strata-receipt/9.0"}"#] {
        let number = fs_err::read_link(scene.prefix().join("current")).unwrap();
        fs_err::write(scene.prefix().join("current/receipt.json"), garbage).unwrap();
        let list = done(&mut at(&["list"])).out;
        assert!(
            list.contains("(current): the receipt of generation") && list.contains("strata-setup rollback"),
            "{list}"
        );
        let repair = refused(&mut at(&["repair"]), 1, "S0719");
        assert!(repair.err.contains("install once more"), "{}", repair.err);
        // Archives that it may have come from stay.
        done(&mut at(&["gc"]));
        let again = done(&mut scene.install("0.2.0", &[]));
        assert!(again.err.contains("it is laid out anew"), "{}", again.err);
        assert_ne!(fs_err::read_link(scene.prefix().join("current")).unwrap(), number);
        assert_eq!(scene.version_that_runs(), "0.2.0");
    }
    // A receipt that names what is not its own removes nothing of it.
    let victim = scene.path("victim");
    fs_err::write(&victim, "mine").unwrap();
    let evil = format!(
        r#"{{"schema":"strata-receipt/1.0","version":"0.2.0","files":[{{"path":"../../../victim","size":4,"sha256":"{}","mode":"0644"}}],"plugins":[],"models":[]}}"#,
        strata_manifest::Sha256Digest::of_bytes(b"mine")
    );
    fs_err::write(scene.prefix().join("current/receipt.json"), evil).unwrap();
    fs_err::write(scene.prefix().join("mine.txt"), "mine").unwrap();
    let removed = done(&mut at(&["uninstall", "--yes"]));
    assert_eq!(fs_err::read_to_string(&victim).unwrap(), "mine");
    for line in ["its receipt cannot be read", "mine.txt: not put there by Strata"] {
        assert!(removed.out.contains(line), "{line}: {}", removed.out);
    }
}

#[test]
fn documents_of_a_prefix_that_are_damaged_say_what_to_do() {
    let scene = Scene::new();
    done(&mut scene.install("0.1.0", &["--model", "tiny"]));
    for (document, command) in [("state/trust.json", "install"), ("models/models.json", "list")] {
        let path = scene.prefix().join(document);
        let sound = fs_err::read(&path).unwrap();
        fs_err::write(&path, "junk").unwrap();
        let mut command = if command == "install" {
            scene.install("0.1.0", &["--again"])
        } else {
            let mut list = scene.setup(&["list", "--prefix"]);
            list.arg(scene.prefix());
            list
        };
        let ran = refused(&mut command, 1, "S0005");
        assert!(ran.err.contains("hint:") && ran.err.contains("aside"), "{document}: {}", ran.err);
        fs_err::write(&path, sound).unwrap();
    }
}

#[test]
fn flags_that_mean_nothing_here_are_refused_and_addresses_are_looked_at() {
    let scene = Scene::new();
    refused(&mut scene.install("0.1.0", &["--to", "x"]), 2, "S0002");
    refused(&mut scene.install("0.1.0", &["--print"]), 2, "S0002");
    for (address, why) in [
        ("ftp://x.example/r", "`ftp` addresses are not fetched"),
        ("https://", "names no host"),
        ("https:///r", "names no host"),
    ] {
        let mut command = scene.setup(&["install", "--backend", "cpu", "--yes", "--release", address, "--prefix"]);
        let ran = refused(command.arg(scene.prefix()), 1, "S0701");
        assert!(ran.err.contains(why), "{address}: {}", ran.err);
    }
    // `fetch` is `--download-only`, so its flags are its own.
    let mut command =
        scene.setup(&["fetch", "--print", "--backend", "cpu", "--no-model", "--allow-unsigned", "--release"]);
    assert!(done(command.arg(scene.path("0.1.0"))).out.contains("sha256sum --check"));
}

#[test]
fn who_waits_for_another_run_plans_from_what_it_left() {
    let scene = Scene::new();
    let slow = crate::releases::engine("0.1.0", "cpu", &[], "slow cpu");
    let mut packages = crate::releases::all_packages("0.1.0");
    packages[1] = slow;
    scene.release("0.1.0", 1, &packages);
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| done(&mut scene.install("0.1.0", &[])));
        while !scene.prefix().join("state/lock").exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let busy = refused(&mut scene.install("0.1.0", &[]), 1, "S0712");
        assert!(!busy.err.contains("stopped at step"), "{}", busy.err);
        let second = done(&mut scene.install("0.1.0", &["--wait", "60"]));
        (first.join().unwrap(), second)
    });
    assert!(first.out.contains("as generation 1"), "{}", first.out);
    assert!(second.err.contains("plan: keep") && !scene.prefix().join("generations/2").exists(), "{}", second.err);
}
