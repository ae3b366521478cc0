//! `strata verify-package`: what is never executed, what lies deep in a release folder, and laws that
//! no other test meets.

use crate::package::Scene;
use crate::support::{Ran, ran, strata};
use crate::verify::{Package, compiled, has, host};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Instant;
use strata_manifest::{Document, Role, Sha256Digest, ThirdParty};

/// A sound package whose one program leaves a mark when it runs.
struct Marked {
    package: Package,
    program: Vec<u8>,
    mark: PathBuf,
    _room: tempfile::TempDir,
}

impl Marked {
    /// `body` comes after the mark; `None`: no C compiler is here.
    fn new(body: &str, flags: &[&str]) -> Option<Marked> {
        let room = tempfile::tempdir().unwrap();
        let mut package = Package::new("0.1.0");
        let mark = room.path().join("ran");
        let body = format!("FILE *f = fopen(\"{}\", \"w\"); if (f) fclose(f); {body}", mark.display());
        let program = compiled(package.path(), &package.component.build.to_text(), &body, flags)?;
        let facts = strata_package::elf::inspect_bytes(&program).unwrap().unwrap();
        package.component.libc_floor = Some("2.99".to_owned());
        package.component.host_libraries = facts.needed.iter().map(|name| host(name)).collect();
        package.add("bin/strata", &program, Role::Binary);
        Some(Marked { package, program, mark, _room: room })
    }

    fn ran(&self) -> bool {
        self.mark.exists()
    }
}

const SAYS: &str = "puts(\"strata 0.1.0\");";
const RUN: [&str; 2] = ["--run", "--allow-build-paths"];

#[test]
fn programs_run_when_asked_for_and_sound_and_only_then() {
    let Some(mut sound) = Marked::new(SAYS, &[]) else { return };
    has(&sound.package.verified(&["--allow-build-paths"]), 0, &["verified"]);
    assert!(!sound.ran(), "it ran without being asked");
    let again = ran(strata().arg("verify-package").args(RUN).arg(sound.package.path()));
    has(&again, 0, &["verified"]);
    assert!(sound.ran(), "{}", again.out);

    // One thing is wrong, far from the program.
    fs_err::remove_file(&sound.mark).unwrap();
    sound.package.stray("share/stray", b"stray");
    let stray = ran(strata().arg("verify-package").args(RUN).arg(sound.package.path()));
    has(&stray, 17, &["error[S0512]", "nothing was run, since something is wrong with it"]);
    assert!(!sound.ran());

    let Some(mut unsafe_one) = Marked::new(SAYS, &["-z", "execstack"]) else { return };
    let stack = unsafe_one.package.verified(&RUN);
    has(&stack, 17, &["error[S0521]", "nothing was run"]);
    assert!(!unsafe_one.ran());
}

#[test]
fn programs_of_packages_that_are_not_ours_are_never_run() {
    let Some(sound) = Marked::new(SAYS, &[]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs_err::create_dir_all(at("bin")).unwrap();
    fs_err::write(at("bin/strata"), &sound.program).unwrap();
    fs_err::set_permissions(at("bin/strata"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs_err::write(at("SHA256SUMS"), format!("{}  bin/strata\n", Sha256Digest::of_bytes(&sound.program))).unwrap();
    let verify = |path: &Path| ran(strata().arg("verify-package").args(RUN).arg(path));
    has(&verify(folder.path()), 0, &["no package of Strata", "nothing was run, since no manifest says"]);
    fs_err::remove_file(at("SHA256SUMS")).unwrap();
    has(&verify(folder.path()), 24, &["error[S0510]", "nothing was run"]);
    assert!(!sound.ran());

    let scene = Scene::new();
    scene.build(&[]).success();
    has(&verify(&scene.archive("tar.gz")), 0, &["nothing was run, since programs inside an archive"]);
    strata().args(["package", "index"]).arg(scene.path("out")).assert().success();
    let release = ran(strata().arg("verify-package").args(RUN).arg("--no-signature").arg(scene.path("out")));
    has(&release, 0, &["nothing was run, since programs inside archives"]);
}

#[test]
fn what_a_program_says_is_compared_and_what_it_leaves_behind_is_ended() {
    let Some(mut other) = Marked::new("puts(\"strata 0.1.45\");", &[]) else { return };
    has(&other.package.verified(&RUN), 17, &["error[S0534]", "--version: strata 0.1.45\n", "component.json: 0.1.0"]);
    let Some(mut failing) = Marked::new("return 3;", &[]) else { return };
    has(&failing.package.verified(&RUN), 17, &["error[S0534]", "exit status: 3"]);
    // Another process of it holds standard output open, for longer than a program may take.
    let Some(mut forking) = Marked::new("if (fork() == 0) { sleep(60); return 0; } puts(\"strata 0.1.0\");", &[])
    else {
        return;
    };
    let started = Instant::now();
    has(&forking.package.verified(&RUN), 0, &["verified"]);
    assert!(started.elapsed().as_secs() < 40, "{:?}", started.elapsed());
}

#[test]
fn a_program_without_a_record_and_one_that_is_no_program_are_told() {
    let mut package = Package::new("0.1.0");
    package.add("bin/strata", b"#!/bin/sh\necho strata 0.1.0\n", Role::Binary);
    has(&package.verified(&["--run"]), 17, &["error[S0517]", "`bin/strata`", "nothing was run"]);
}

#[test]
fn a_loader_that_hosts_do_not_have_is_told() {
    let Some(mut marked) = Marked::new(SAYS, &["-Wl,--dynamic-linker=/opt/strata/ld.so"]) else { return };
    has(&marked.package.verified(&RUN), 20, &["error[S0518]", "`bin/strata`", "/opt/strata/ld.so", "ld-linux"]);
    assert!(!marked.ran());
}

fn part(licence_files: &[&str]) -> ThirdParty {
    ThirdParty {
        name: "zlib".to_owned(),
        version: "1.3".to_owned(),
        licence: "Zlib".to_owned(),
        licence_files: licence_files.iter().map(|path| path.parse().unwrap()).collect(),
        licence_note: None,
        source: "pkg:generic/zlib@1.3".to_owned(),
    }
}

#[test]
fn a_part_comes_with_the_text_of_its_licence() {
    let verified = |licence_files: &[&str]| {
        let mut package = Package::new("0.1.0");
        package.component.third_party.push(part(licence_files));
        package.verified(&[])
    };
    has(&verified(&["share/doc/LICENSE"]), 0, &["verified"]);
    has(&verified(&[]), 17, &["error[S0564]", "`zlib 1.3`", "licence: Zlib"]);
    has(&verified(&["share/doc/ABSENT"]), 17, &["error[S0511]", "share/doc/ABSENT"]);
}

/// A release folder is exact at any depth, folders of models included.
#[test]
fn a_release_folder_is_looked_through_to_its_depths() {
    let scene = Scene::new();
    scene.build(&[]).success();
    fs_err::create_dir_all(scene.path("out/models/tiny")).unwrap();
    scene.write("out/models/tiny/a.gguf", "model");
    let index = ["package", "index", &scene.text("out"), "--model", "tiny=models/tiny/a.gguf"];
    strata().args(index).assert().success();
    let verify = || -> Ran {
        ran(strata().args(["verify-package", "--no-signature", "--allow-build-paths"]).arg(scene.path("out")))
    };
    has(&verify(), 0, &["verified (release folder)"]);

    scene.write("out/models/tiny/a.gguf.part", "left over");
    fs_err::create_dir_all(scene.path("out/kernels/deep")).unwrap();
    for number in 0..12 {
        scene.write(&format!("out/kernels/deep/k.{number}.hipv4-amdgcn-amd-amdhsa--gfx906"), &"x".repeat(1024));
    }
    has(
        &verify(),
        17,
        &[
            "error[S0512]: a file that no manifest lists: 13 times, 12.0 KiB",
            "`kernels/deep/k.0.hipv4-amdgcn-amd-amdhsa--gfx906`",
            "12 of them look like an unbundled code object",
        ],
    );
    fs_err::remove_dir_all(scene.path("out/kernels/deep")).unwrap();
    symlink("..", scene.path("out/kernels/up")).unwrap();
    symlink("/dev/zero", scene.path("out/models/zero")).unwrap();
    has(&verify(), 17, &["3 times", "`kernels/up`", "`models/tiny/a.gguf.part`", "`models/zero`"]);
    for link in ["kernels/up", "models/zero", "models/tiny/a.gguf.part"] {
        fs_err::remove_file(scene.path("out").join(link)).unwrap();
    }
    has(&verify(), 17, &["error[S0512]", "`kernels/`", "a folder that holds no listed file"]);
}

/// What cannot be read is neither sound nor damaged, and does not hide the rest.
#[test]
fn what_cannot_be_read_is_told_as_not_checkable() {
    let mut package = Package::new("0.1.0");
    package.add("share/closed/a", b"a", Role::Data);
    package.add("share/open/b", b"b", Role::Data);
    has(&package.verified(&[]), 0, &["verified"]);
    let mode = |path: &str, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs_err::set_permissions(package.path().join(path), mode).unwrap();
    };
    mode("share/closed", 0);
    let ran = ran(strata().arg("verify-package").arg(package.path()));
    let reads_all = fs_err::read_dir(package.path().join("share/closed")).is_ok();
    mode("share/closed", 0o755);
    if reads_all {
        println!("skipped: this user may read everything");
        has(&ran, 17, &["error[S0515]"]);
        return;
    }
    assert_eq!(ran.status, Some(16 + 8 + 1), "{}", ran.out);
    assert!(ran.out.contains("error[S0537]") && ran.out.contains("`share/closed`"), "{}", ran.out);
    assert!(ran.out.contains("error[S0515]") && !ran.out.contains("error[S0513]"), "{}", ran.out);
}
