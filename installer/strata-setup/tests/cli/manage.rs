//! What is done with an installation, through the command line.

use crate::support::{Scene, done, refused};
use std::path::PathBuf;

fn at(scene: &Scene, args: &[&str]) -> assert_cmd::Command {
    let mut command = scene.setup(args);
    command.arg("--prefix").arg(scene.prefix());
    command
}

#[test]
fn list_rollback_repair_gc_uninstall() {
    let scene = Scene::new();
    refused(&mut at(&scene, &["rollback"]), 1, "S0716");
    refused(&mut at(&scene, &["uninstall", "--yes"]), 1, "S0716");
    done(&mut scene.install("0.1.0", &[]));
    refused(&mut at(&scene, &["rollback"]), 1, "S0717");
    done(&mut scene.install("0.2.0", &[]));
    let list = done(&mut at(&scene, &["list"])).out;
    assert!(list.contains("generation 1 (kept): Strata 0.1.0") && list.contains("generation 2 (current)"), "{list}");
    assert!(list.contains("not signed") && list.contains("cpu on cpu: passed its check"), "{list}");
    let back = done(&mut at(&scene, &["rollback"])).out;
    assert!(back.contains("generation 1 (Strata 0.1.0) is current, 2 was before"), "{back}");
    done(&mut at(&scene, &["rollback", "--to", "2"]));

    let library = scene.prefix().join("generations/2/lib/strata/cpu/plugin.so");
    fs_err::write(&library, "damaged").unwrap();
    let check = crate::support::ran(&mut at(&scene, &["list", "--check"]));
    assert!(
        check.status == Some(1) && check.out.contains("damaged: lib/strata/cpu/plugin.so: it has 7 bytes"),
        "{check:?}"
    );
    refused(&mut at(&scene, &["rollback", "--to", "2"]), 1, "S0719");
    let repaired = done(&mut at(&scene, &["repair"])).out;
    assert!(repaired.contains("1 of 11 files were damaged; generation 3 is whole"), "{repaired}");
    assert!(done(&mut at(&scene, &["repair"])).out.contains("all are as installed"));

    let collected = done(&mut at(&scene, &["gc", "--keep", "0"])).out;
    assert!(collected.starts_with("removed 2 generations"), "{collected}");
    fs_err::write(scene.prefix().join("mine.txt"), "mine").unwrap();
    refused(&mut at(&scene, &["uninstall"]), 2, "S0721");
    let dry = done(&mut at(&scene, &["uninstall", "--dry-run"])).out;
    assert!(dry.contains("would be removed: 11 files"), "{dry}");
    done(&mut at(&scene, &["uninstall", "--yes"]));
    let left: Vec<PathBuf> = crate::releases::files_below(&scene.prefix());
    assert_eq!(left, [scene.prefix().join("mine.txt")]);
}

#[test]
fn repairs_come_from_the_release_when_no_archive_was_kept() {
    let scene = Scene::new();
    done(&mut scene.install("0.1.0", &["--no-keep-archives"]));
    assert!(!scene.prefix().join("state/archives").exists());
    fs_err::remove_file(scene.prefix().join("current/bin/strata")).unwrap();
    done(&mut at(&scene, &["repair"]));
    assert_eq!(scene.version_that_runs(), "0.1.0");
    fs_err::remove_file(scene.prefix().join("current/bin/strata")).unwrap();
    fs_err::rename(scene.path("0.1.0"), scene.path("elsewhere")).unwrap();
    refused(&mut at(&scene, &["repair"]), 1, "S0720");
    done(at(&scene, &["repair"]).arg("--from").arg(scene.path("elsewhere")));
    assert_eq!(scene.version_that_runs(), "0.1.0");
}

#[test]
fn self_update_brings_the_newest_of_what_is_installed() {
    let scene = Scene::new();
    refused(&mut scene.setup(&["self-update"]), 1, "S0728");
    done(&mut scene.install("0.1.0", &[]));
    let mut command = at(&scene, &["self-update", "--allow-unsigned", "--yes"]);
    done(command.arg("--release").arg(scene.path("0.2.0")).arg("--root").arg(scene.path("root")));
    assert_eq!(scene.version_that_runs(), "0.2.0");
    let list = done(&mut at(&scene, &["list", "--json"])).json();
    assert_eq!(list["generations"][1]["backend"], "cpu");
}

#[test]
fn the_link_is_made_when_asked_and_never_over_something_else() {
    let scene = Scene::new();
    let link = scene.path("home/.local/bin/strata");
    done(&mut scene.install("0.1.0", &[]));
    assert!(!link.exists());
    done(&mut scene.install("0.1.0", &["--link"]));
    assert_eq!(fs_err::read_link(&link).unwrap(), scene.prefix().join("current/bin/strata"));
    fs_err::remove_file(&link).unwrap();
    fs_err::write(&link, "another program").unwrap();
    let told = done(&mut scene.install("0.2.0", &["--link"]));
    assert!(told.err.contains("is something else and was left alone"), "{}", told.err);
    assert_eq!(fs_err::read_to_string(&link).unwrap(), "another program");
}

#[test]
fn the_same_again_makes_a_cut_installation_whole() {
    let scene = Scene::new();
    done(&mut scene.install("0.1.0", &[]));
    fs_err::write(scene.prefix().join("current/lib/strata/cpu/plugin.so"), "cut").unwrap();
    let told = done(&mut scene.install("0.1.0", &[]));
    assert!(told.err.contains("missing or cut"), "{}", told.err);
    done(&mut at(&scene, &["list", "--check"]));
    assert!(done(&mut scene.install("0.1.0", &[])).out.contains("is installed in"), "nothing is left to do");
}
