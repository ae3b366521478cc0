//! A prefix from its first installation to its removal.

use crate::support::{
    Package, Site, all_packages, card, control, engine, files_below, quick_folder, release, request, state,
};
use std::time::Duration;
use strata_diag::Diagnose;
use strata_install::plan::backend::BackendChoice;
use strata_install::plan::machine::{DeviceState, Vendor};
use strata_install::{Disk, DiskOp, InstallError, Uninstall, Unwatched, collect, repair, rollback, uninstall};
use strata_manifest::plan::PlanAction;
use strata_manifest::{Document, RELEASE_FILE, Release, Sha256Digest};

fn scene() -> (tempfile::TempDir, Site) {
    let folder = quick_folder();
    for (version, serial) in [("0.1.0", 1), ("0.2.0", 2), ("0.3.0", 3)] {
        release(&folder.path().join(version), version, serial, &all_packages(version));
    }
    let site = Site::new(&folder.path().join("prefix"));
    (folder, site)
}

const DISK: fn() -> Disk = Disk::real;
const EACCES: i32 = 13;

#[test]
fn install_update_roll_back_and_remove() {
    let (folder, site) = scene();
    let release = |version: &str| folder.path().join(version);
    assert_eq!(site.plan(&release("0.1.0")).unwrap().action, PlanAction::Install);
    let applied = site.install(&release("0.1.0"), &DISK(), &Unwatched).unwrap();
    assert_eq!((applied.generation, applied.proven.len()), (1, 1));
    assert_eq!(state(&site.root), "0.1.0");
    let program = site.root.current().join("bin/strata");
    let output = std::process::Command::new(&program).arg("version").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "strata 0.1.0 version\n");

    assert_eq!(site.plan(&release("0.1.0")).unwrap().action, PlanAction::Keep);
    assert_eq!(site.install(&release("0.1.0"), &DISK(), &Unwatched).unwrap().generation, 1);
    assert_eq!(site.plan(&release("0.2.0")).unwrap().action, PlanAction::Update);
    site.install(&release("0.2.0"), &DISK(), &Unwatched).unwrap();
    assert_eq!(state(&site.root), "0.2.0");

    let error = site.plan(&release("0.1.0")).unwrap_err();
    assert_eq!(error.code().id, "S0703", "{error}");
    assert_eq!(rollback(&site.root, &DISK(), None, Duration::ZERO, &Unwatched).unwrap(), (2, 1));
    assert_eq!(state(&site.root), "0.1.0");
    // The counter was seen: going back by hand does not make an old index acceptable.
    assert_eq!(site.plan(&release("0.1.0")).unwrap_err().code().id, "S0703");
    let error = rollback(&site.root, &DISK(), None, Duration::ZERO, &Unwatched).unwrap_err();
    assert_eq!(error.code().id, "S0717", "{error}");
    assert_eq!(rollback(&site.root, &DISK(), Some(2), Duration::ZERO, &Unwatched).unwrap(), (1, 2));

    let what = Uninstall { models: false, changed_too: false, link: None };
    let done = uninstall(&site.root, &DISK(), &what, Duration::ZERO, &Unwatched).unwrap();
    assert_eq!((done.generations, done.prefix_gone, done.removed.left), (vec![1, 2], true, Vec::new()));
    assert!(!site.root.path().exists());
    let error = uninstall(&site.root, &DISK(), &what, Duration::ZERO, &Unwatched).unwrap_err();
    assert_eq!(error.code().id, "S0716", "{error}");
}

#[test]
fn an_uninstallation_leaves_what_is_the_users() {
    let (folder, site) = scene();
    site.install(&folder.path().join("0.1.0"), &DISK(), &Unwatched).unwrap();
    let generation = site.root.generation(1);
    let mine = [
        generation.join("share/my notes.txt"),
        site.root.path().join("mine.txt"),
        generation.join("share/doc/strata/README"),
    ];
    for path in &mine {
        fs_err::write(path, "mine").unwrap();
    }
    let what = Uninstall { models: false, changed_too: false, link: None };
    let done = uninstall(&site.root, &DISK(), &what, Duration::ZERO, &Unwatched).unwrap();
    assert!(!done.prefix_gone);
    let left: Vec<String> = done.removed.left.iter().map(|(path, why)| format!("{}: {why}", path.display())).collect();
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(left.iter().any(|line| line.contains("my notes.txt: not put there by Strata")), "{left:?}");
    assert!(left.iter().any(|line| line.contains("README: changed since")), "{left:?}");
    let mut expected = mine.to_vec();
    expected.sort();
    assert_eq!(files_below(site.root.path()), expected);
}

#[test]
fn damage_is_found_and_repaired_from_the_kept_archives() {
    let (folder, site) = scene();
    site.install(&folder.path().join("0.1.0"), &DISK(), &Unwatched).unwrap();
    let now = (1_800_000_001, Duration::ZERO);
    let kept = vec![site.root.archives()];
    let (audit, applied) = repair(&site.root, &DISK(), &kept, now, &Unwatched).unwrap();
    assert!(audit.damaged.is_empty() && applied.is_none());

    let library = site.root.generation(1).join("lib/strata/cpu/plugin.so");
    fs_err::write(&library, "library of cpu 0.1.1").unwrap();
    fs_err::remove_file(site.root.generation(1).join("bin/strata")).unwrap();
    let error = repair(&site.root, &DISK(), &[], now, &Unwatched).unwrap_err();
    assert_eq!(error.code().id, "S0720", "{error}");
    let error = rollback(&site.root, &DISK(), Some(1), Duration::ZERO, &Unwatched).unwrap_err();
    assert_eq!(error.code().id, "S0719", "{error}");

    let (audit, applied) = repair(&site.root, &DISK(), &kept, now, &Unwatched).unwrap();
    assert_eq!(audit.components, ["control", "engine-cpu"]);
    assert_eq!((audit.damaged.len(), applied.unwrap().generation), (2, 2));
    assert_eq!(state(&site.root), "0.1.0");

    // One component is whole: it is copied, and only the other one needs its archive.
    fs_err::write(site.root.current().join("share/doc/strata/README"), "x").unwrap();
    let engine = site.root.archives().join("strata-engine-0.1.0-linux-x86_64-cpu.tar.gz");
    fs_err::remove_file(engine).unwrap();
    let (audit, applied) = repair(&site.root, &DISK(), &kept, now, &Unwatched).unwrap();
    assert_eq!((audit.components, applied.unwrap().generation), (vec!["control".to_owned()], 3));
    assert_eq!(state(&site.root), "0.1.0");
}

#[test]
fn old_generations_and_their_archives_are_collected() {
    let (folder, site) = scene();
    for version in ["0.1.0", "0.2.0", "0.3.0"] {
        site.install(&folder.path().join(version), &DISK(), &Unwatched).unwrap();
    }
    let collected = collect(&site.root, &DISK(), 1, false, Duration::ZERO).unwrap();
    assert_eq!((collected.generations, collected.archives), (vec![1], 2));
    assert_eq!(site.root.complete(), [2, 3]);
    assert!(!site.root.generation(1).exists());
    assert_eq!(state(&site.root), "0.3.0");
    assert_eq!(rollback(&site.root, &DISK(), None, Duration::ZERO, &Unwatched).unwrap(), (3, 2));
}

fn with_hip(behaviour: &str) -> Vec<Package> {
    vec![
        control("0.2.0"),
        engine("0.2.0", "cpu", &[], "pass cpu"),
        engine("0.2.0", "hip-gfx906", &["gfx906:sramecc+:xnack-"], behaviour),
    ]
}

#[test]
fn a_plugin_that_fails_its_check_changes_nothing() {
    let (folder, mut site) = scene();
    site.install(&folder.path().join("0.1.0"), &DISK(), &Unwatched).unwrap();
    site.gpu = request(BackendChoice::Hip);
    site.proof_limit = Some(Duration::from_secs(1));
    site.machine.devices =
        vec![card(Vendor::Amd, "Radeon Pro VII", "0000:03:00.0", Some("gfx906:sramecc+:xnack-"), DeviceState::Usable)];
    for (behaviour, says) in [
        ("wrong 0000:03:00.0", "it says 5 for 2 + 2"),
        ("absent", "finds no device"),
        ("crash", "signal 11"),
        ("silent", "status 0 and without a result"),
        ("hang", "no answer within 1 s while computing"),
    ] {
        let bad = folder.path().join(behaviour.replace(' ', "-"));
        release(&bad, "0.2.0", 2, &with_hip(behaviour));
        let error = site.install(&bad, &DISK(), &Unwatched).unwrap_err();
        assert_eq!(error.code().id, "S0715", "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(state(&site.root), "0.1.0");
        assert_eq!(site.root.complete(), [1]);
        assert!(files_below(&site.root.generations()).iter().all(|path| !path.to_string_lossy().contains(".staging")));
    }
    // Told to, it is installed and marked.
    site.allow_unproven = true;
    let applied = site.install(&folder.path().join("crash"), &DISK(), &Unwatched).unwrap();
    assert_eq!(applied.unproven, ["hip-gfx906"]);
    let receipt = site.root.receipt(applied.generation).unwrap();
    assert_eq!(receipt.install.unwrap().unproven, ["hip-gfx906"]);
    assert_eq!(receipt.plugins.iter().map(|plugin| plugin.name.as_str()).collect::<Vec<_>>(), ["hip-gfx906", "cpu"]);
}

#[test]
fn a_card_that_is_not_here_is_installed_for_and_marked_unproven() {
    let (folder, mut site) = scene();
    let packages = with_hip("absent");
    release(&folder.path().join("absent"), "0.2.0", 2, &packages);
    site.gpu.backend = BackendChoice::Hip;
    site.gpu.target = Some(strata_install::plan::targets::Target::parse("gfx906").unwrap());
    let plan = site.plan(&folder.path().join("absent")).unwrap();
    assert!(plan.backend.unproven && plan.warnings[0].contains("unproven"), "{:?}", plan.warnings);
    let applied = site.install(&folder.path().join("absent"), &DISK(), &Unwatched).unwrap();
    assert_eq!(applied.unproven, ["hip-gfx906"]);
    // A crash without any card says nothing good about the plugin either.
    release(&folder.path().join("crash"), "0.3.0", 3, &with_hip("crash"));
    let packages = folder.path().join("crash");
    fs_err::remove_dir_all(&packages).unwrap();
    let crash: Vec<Package> = vec![
        control("0.3.0"),
        engine("0.3.0", "cpu", &[], "pass cpu"),
        engine("0.3.0", "hip-gfx906", &["gfx906:sramecc+:xnack-"], "crash"),
    ];
    release(&packages, "0.3.0", 3, &crash);
    let error = site.install(&packages, &DISK(), &Unwatched).unwrap_err();
    assert_eq!(error.code().id, "S0715");
}

#[test]
fn a_second_run_is_told_that_the_first_is_at_work() {
    let (folder, site) = scene();
    let lock = strata_install::lock(&site.root, &DISK(), Duration::ZERO).unwrap();
    let error = site.install(&folder.path().join("0.1.0"), &DISK(), &Unwatched).unwrap_err();
    assert_eq!(error.code().id, "S0712");
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    drop(lock);
    // A file that a killed run left says nothing.
    site.install(&folder.path().join("0.1.0"), &DISK(), &Unwatched).unwrap();
}

#[test]
fn places_that_cannot_be_a_prefix_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs_err::write(&file, "x").unwrap();
    let staged = folder.path().join("staged");
    fs_err::create_dir_all(&staged).unwrap();
    fs_err::write(staged.join("receipt.json"), "{}").unwrap();
    let foreign = folder.path().join("foreign");
    fs_err::create_dir_all(foreign.join("current")).unwrap();
    for path in ["/".into(), file, staged, foreign] {
        let error = strata_install::InstallRoot::new(&path).unwrap_err();
        assert_eq!(error.code().id, "S0710", "{error}");
        assert!(matches!(error, InstallError::Prefix { .. }));
    }
}

#[test]
fn two_components_with_one_path_are_never_laid_over_each_other() {
    let (folder, site) = scene();
    let mut cpu = engine("0.1.0", "cpu", &[], "pass cpu");
    cpu.files.push((
        "bin/strata".to_owned(),
        b"other".to_vec(),
        strata_manifest::FileMode::Plain,
        strata_manifest::Role::Data,
    ));
    let bad = folder.path().join("bad");
    release(&bad, "0.1.0", 1, &[control("0.1.0"), cpu]);
    let error = site.install(&bad, &DISK(), &Unwatched).unwrap_err();
    assert_eq!(error.code().id, "S0722", "{error}");
    assert_eq!(state(&site.root), "nothing");
}

#[test]
fn an_archive_with_other_bytes_is_not_unpacked() {
    let (folder, site) = scene();
    let archive = folder.path().join("0.1.0/strata-control-0.1.0-linux-x86_64.tar.gz");
    let mut bytes = fs_err::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs_err::write(&archive, &bytes).unwrap();
    site.install(&folder.path().join("0.1.0"), &DISK(), &Unwatched).unwrap_err();
    assert_eq!(state(&site.root), "nothing");
    fs_err::remove_file(&archive).unwrap();
    let error = site.install(&folder.path().join("0.1.0"), &DISK(), &Unwatched).unwrap_err();
    assert_eq!(error.code().id, "S0713", "{error}");
}

#[test]
fn a_component_that_is_not_the_one_of_the_index_is_not_installed() {
    let (folder, site) = scene();
    let path = folder.path().join("0.1.0");
    let mut index = Release::read(&path.join(RELEASE_FILE)).unwrap();
    // The archive is right to the byte, and the list in it is another one than the signed index names.
    index.components[0].manifest_sha256 = Sha256Digest::of_bytes(b"another list");
    fs_err::write(path.join(RELEASE_FILE), index.to_text()).unwrap();
    let error = site.install(&path, &DISK(), &Unwatched).unwrap_err();
    assert_eq!(error.code().id, "S0714", "{error}");
    assert_eq!(state(&site.root), "nothing");
}

#[test]
fn a_release_that_the_verifier_refuses_is_not_installed() {
    let (folder, site) = scene();
    site.install(&folder.path().join("0.1.0"), &DISK(), &Unwatched).unwrap();
    let old_descriptor = engine("0.3.9", "cpu", &[], "pass cpu");
    let mut no_code = engine("0.4.0", "hip-rx7900", &["gfx1100"], "pass 0000:03:00.0");
    no_code.gpu_targets = vec!["gfx1100", "gfx1101"];
    let cases = [
        ("a plugin of another version", vec![control("0.4.0"), old_descriptor], BackendChoice::Cpu, "S0516"),
        (
            "code that is declared and not there",
            vec![control("0.4.0"), engine("0.4.0", "cpu", &[], "pass cpu"), no_code],
            BackendChoice::Hip,
            "S0523",
        ),
    ];
    for (what, packages, backend, code) in cases {
        let path = folder.path().join("unsound");
        let _ = fs_err::remove_dir_all(&path);
        release(&path, "0.4.0", 4, &packages);
        let mut site = Site::new(site.root.path());
        site.gpu = request(backend);
        site.machine.devices = vec![card(Vendor::Amd, "RX", "0000:03:00.0", Some("gfx1100"), DeviceState::Usable)];
        let error = site.install(&path, &DISK(), &Unwatched).unwrap_err();
        assert_eq!(error.code().id, "S0729", "{what}: {error}");
        assert!(error.to_string().contains(code), "{what}: {error}");
        assert!(error.hints()[0].contains("was not changed"), "{:?}", error.hints());
        assert_eq!(state(&site.root), "0.1.0", "{what}");
    }
}

#[test]
fn an_uninstallation_that_cannot_remove_a_file_says_so_and_goes_on_later() {
    let (folder, site) = scene();
    site.install(&folder.path().join("0.1.0"), &DISK(), &Unwatched).unwrap();
    let stubborn = Disk::gated(|op, path| match op {
        DiskOp::Remove if path.ends_with("bin/strata") => Err(std::io::Error::from_raw_os_error(EACCES)),
        _ => Ok(()),
    });
    let what = Uninstall { models: false, changed_too: false, link: None };
    let error = uninstall(&site.root, &stubborn, &what, Duration::ZERO, &Unwatched).unwrap_err();
    assert_eq!(error.code().id, "S0727", "{error}");
    assert!(error.facts()[0].1.contains("bin/strata"), "{:?}", error.facts());
    assert!(site.root.generation(1).join("bin/strata").is_file() && !site.root.current().exists());
    let done = uninstall(&site.root, &DISK(), &what, Duration::ZERO, &Unwatched).unwrap();
    assert!(done.prefix_gone, "{done:?}");
}
