//! `strata verify-package`: the public cases, the two reports that the product starts from, and sums.

use crate::support::{Ran, ran, refused, shared, strata};
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use strata_manifest::{
    BuildRecord, Component, Document, FileMode, HostLibrary, PackageFile, Role, Sha256Digest, Version,
};
use strata_package::sbom;

/// A package folder that is sound but for what a test puts in or takes out.
pub(crate) struct Package {
    folder: tempfile::TempDir,
    pub(crate) component: Component,
}

impl Package {
    pub(crate) fn new(version: &str) -> Package {
        let version: Version = version.parse().unwrap();
        let build = BuildRecord {
            schema: BuildRecord::SCHEMA.to_owned(),
            name: "engine-test".to_owned(),
            version: version.clone(),
            build_id: "id".to_owned(),
            commit: "unknown".to_owned(),
            dirty: false,
            target: "x86_64-unknown-linux-gnu".to_owned(),
            toolchain: "cc".to_owned(),
            source_epoch: 0,
        };
        let component = Component {
            schema: Component::SCHEMA.to_owned(),
            component: "engine".to_owned(),
            backend: Some("test".to_owned()),
            version,
            os: "linux".to_owned(),
            cpu_arch: "x86_64".to_owned(),
            source_epoch: 0,
            build,
            abi: None,
            gpu_targets: Vec::new(),
            libc_floor: Some("2.31".to_owned()),
            libstdcxx_floor: None,
            host_libraries: Vec::new(),
            third_party: Vec::new(),
            sboms: Vec::new(),
            files: Vec::new(),
        };
        let mut package = Package { folder: tempfile::tempdir().unwrap(), component };
        package.add("share/doc/LICENSE", b"free\n", Role::License);
        package
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A file that the manifest lists.
    pub(crate) fn add(&mut self, path: &str, bytes: &[u8], role: Role) {
        self.stray(path, bytes);
        let mode = if role == Role::Binary { FileMode::Executable } else { FileMode::Plain };
        fs_err::set_permissions(self.path().join(path), PermissionsExt::from_mode(mode.bits())).unwrap();
        let (path, size, sha256) = (path.parse().unwrap(), bytes.len() as u64, Sha256Digest::of_bytes(bytes));
        self.component.files.push(PackageFile { path, size, mode, sha256, role, chunks: Vec::new() });
    }

    /// A file that it does not list.
    pub(crate) fn stray(&self, path: &str, bytes: &[u8]) {
        let target = self.path().join(path);
        fs_err::create_dir_all(target.parent().unwrap()).unwrap();
        fs_err::write(&target, bytes).unwrap();
        for folder in target.ancestors().skip(1).take_while(|folder| *folder != self.path()) {
            fs_err::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
        }
        fs_err::set_permissions(&target, PermissionsExt::from_mode(0o644)).unwrap();
    }

    /// Writes the bills and the manifest, then verifies.
    pub(crate) fn verified(&mut self, flags: &[&str]) -> Ran {
        self.component.files.sort_by(|a, b| a.path.cmp(&b.path));
        let bills =
            [(sbom::CYCLONEDX_FILE, sbom::cyclonedx(&self.component)), (sbom::SPDX_FILE, sbom::spdx(&self.component))];
        for (name, text) in bills {
            let path = format!("share/doc/{name}");
            self.add(&path, text.as_bytes(), Role::Sbom);
            self.component.sboms.push(path.parse().unwrap());
        }
        self.component.files.sort_by(|a, b| a.path.cmp(&b.path));
        fs_err::write(self.path().join("component.json"), self.component.to_text()).unwrap();
        ran(strata().arg("verify-package").arg(self.path()).args(flags))
    }
}

#[track_caller]
pub(crate) fn has(ran: &Ran, status: i32, parts: &[&str]) {
    assert_eq!(ran.status, Some(status), "{}{}", ran.out, ran.err);
    for part in parts {
        assert!(ran.out.contains(part), "{part}: {}", ran.out);
    }
}

#[test]
fn a_sound_package_is_verified() {
    has(&Package::new("0.1.0").verified(&[]), 0, &[": verified (package folder)", "holds: engine-test 0.1.0"]);
    let quiet = Package::new("0.1.0").verified(&["--quiet"]);
    assert_eq!((quiet.status, quiet.out.as_str()), (Some(0), ""));
    let json = Package::new("0.1.0").verified(&["--json"]).json();
    assert_eq!(json["bits"], 0);
    assert_eq!(json["targets"][0]["components"][0]["id"], "engine-test");
}

/// The first report: 1,080 unbundled code objects, 423 MiB of them, beside a manifest that does not list them.
#[test]
fn strays_are_counted_summed_and_named_for_what_they_are() {
    let mut package = Package::new("0.1.45+3");
    package.add("bin/notes", b"listed\n", Role::Doc);
    package.add("lib/notes", b"listed\n", Role::Doc);
    for number in 0..1080 {
        let name = match number % 4 {
            0 => format!("bin/strata.{number}.hipv4-amdgcn-amd-amdhsa--gfx1100"),
            1 => format!("bin/strata.{number}.host-x86_64-unknown-linux-gnu-"),
            2 => format!("lib/librocblas.so.5.{number}.hipv4-amdgcn-amd-amdhsa--gfx1101"),
            _ => format!("bin/strata-other.{number}.hipv4-amdgcn-amd-amdhsa--gfx1102"),
        };
        package.stray(&name, &[7; 1024]);
    }
    let ran = package.verified(&[]);
    has(
        &ran,
        17,
        &[
            "DAMAGED",
            "error[S0512]: a file that no manifest lists: 1080 times, 1080.0 KiB",
            "1080 of them look like an unbundled code object",
            "hipv4-amdgcn-amd-amdhsa--gfx",
            "strata explain file-unlisted",
        ],
    );
    assert!(ran.out.lines().count() < 40, "{}", ran.out);
}

/// The second: the binary says 0.1.45, every manifest 0.1.45.3 (in our spelling `0.1.45+3`).
#[test]
fn a_binary_of_another_version_is_told_without_running_it() {
    let mut package = Package::new("0.1.45+3");
    let record = BuildRecord { version: "0.1.45".parse().unwrap(), ..package.component.build.clone() };
    let Some(program) = compiled(package.path(), &record.to_text(), "puts(\"strata 0.1.45\");", &[]) else { return };
    let facts = strata_package::elf::inspect_bytes(&program).unwrap().unwrap();
    package.component.libc_floor = Some("2.99".to_owned());
    package.component.host_libraries = facts.needed.iter().map(|name| host(name)).collect();
    package.add("bin/strata", &program, Role::Binary);
    // Nobody runs a program that is not what its package says, also when asked to.
    let ran = package.verified(&["--run", "--allow-build-paths"]);
    has(
        &ran,
        17,
        &[
            "error[S0516]: two places name different versions",
            "`bin/strata`",
            "build record in the file: 0.1.45\n",
            "component.json: 0.1.45+3",
            "nothing was run, since something is wrong",
        ],
    );
}

pub(crate) fn host(soname: &str) -> HostLibrary {
    HostLibrary { soname: soname.to_owned(), optional: false }
}

/// A program with a build record in its note that does what `body` says.
pub(crate) fn compiled(folder: &Path, record: &str, body: &str, flags: &[&str]) -> Option<Vec<u8>> {
    let source = folder.with_extension("c");
    let mut bytes = String::new();
    let padded = record.len().next_multiple_of(4);
    for byte in record.bytes().chain(std::iter::repeat_n(0, padded - record.len())) {
        write!(bytes, "{byte},").unwrap();
    }
    let text = format!(
        "#include <stdio.h>\n#include <unistd.h>\n\
         __attribute__((section(\".note.strata.build\"), used, aligned(4)))\n\
         static const struct {{ unsigned a, b, c; char name[8]; unsigned char text[{padded}]; }} note =\n\
         {{ 7, {}, 1, \"Strata\", {{ {bytes} }} }};\n\
         int main(void) {{ {body} return 0; }}\n",
        record.len()
    );
    fs_err::write(&source, text).unwrap();
    let program = folder.with_extension("program");
    match Command::new("cc").args(flags).arg("-o").arg(&program).arg(&source).status() {
        Ok(status) if status.success() => Some(fs_err::read(&program).unwrap()),
        _ => {
            println!("skipped: no C compiler");
            None
        }
    }
}

/// Archives of the public cases, with the code that each must have; none: nothing is wrong.
const CASES: &[(&str, &[&str])] = &[
    ("c00-sound-package/sound.tar.gz", &[]),
    ("c03-link-out-of-package/outside.tar.gz", &["S0505", "lib/libgpu.so.5", "../../x86_64-linux-gnu/libgpu.so.5"]),
    ("c03-link-out-of-package/absolute.tar.gz", &["S0505", "lib/libgpu.so.5", "/usr/lib/libgpu.so.5"]),
    ("c03-link-out-of-package/inside-missing.tar.gz", &["S0506", "libgpu.so.5.1"]),
    ("c03-link-out-of-package/loop.tar.gz", &["S0507", "lib/a", "lib/b"]),
    ("c05-entry-names/link-name.tar.gz", &["S0503", "../evil"]),
    ("c05-entry-names/dotdot.tar.gz", &["S0503", "../../evil"]),
    ("c05-entry-names/absolute.tar.gz", &["S0503", "/evil"]),
    ("c05-entry-names/drive.tar.gz", &["S0503", "C:../../evil"]),
    ("c05-entry-names/hard.tar.gz", &["S0505", "lib/h", "../../evil"]),
    ("c05-entry-names/device.tar.gz", &["S0504", "a character device"]),
    ("c07-soname-absent/absent.tar.gz", &["S0518", "libuser.so", "libstrata.so.0", "has that SONAME"]),
    ("c07-soname-absent/present.tar.gz", &[]),
    ("c09-zip-backslash/back.zip", &["S0503", r"strata-0.6.0-linux-x86_64\\lib"]),
    ("c09-zip-backslash/mixed.zip", &["S0503", r"strata-0.6.0-linux-x86_64\\bin/strata"]),
    ("c09-zip-backslash/up.zip", &["S0503", r"..\\..\\evil"]),
    ("c11-long-names/pax.tar.gz", &[]),
    ("c11-long-names/gnu.tar.gz", &[]),
    ("c11-long-names/ustar-prefix.tar.gz", &[]),
    ("c12-hard-links/exact.tar.gz", &[]),
    ("c12-hard-links/self.tar.gz", &["S0508", "README"]),
    ("c12-hard-links/before.tar.gz", &["S0506", "comes after it"]),
];

/// The cases' packages have a layout of their own and a list of sums inside: checked in the reduced
/// mode for other people's packages, which says that it is one.
#[test]
fn cases_of_archives() {
    for (case, parts) in CASES {
        let Some(archive) = shared(&format!("cases/{case}")) else { continue };
        let before = listing(archive.parent().unwrap());
        let ran = ran(strata().arg("verify-package").arg(&archive));
        let clean = parts.is_empty();
        assert_eq!(ran.status == Some(0), clean, "{case}: {}{}", ran.out, ran.err);
        assert!(clean || ran.status.unwrap() > 16, "{case}: {:?}", ran.status);
        for part in *parts {
            assert!(ran.out.contains(part), "{case}: {part}: {}", ran.out);
        }
        let through_pipe = strata().args(["verify-package", "-"]).write_stdin(fs_err::read(&archive).unwrap()).output();
        assert_eq!(through_pipe.unwrap().status.code(), ran.status, "{case}");
        // Nothing was written beside it.
        assert_eq!(listing(archive.parent().unwrap()), before, "{case}");
    }
}

fn listing(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn case_c14_libc_too_new() {
    for (file, clean) in [("libneeds217.so", true), ("libneeds238.so", false)] {
        let Some(library) = shared(&format!("cases/c14-libc-too-new/{file}")) else { continue };
        let bytes = fs_err::read(library).unwrap();
        let mut package = Package::new("0.1.0");
        let needed = strata_package::elf::inspect_bytes(&bytes).unwrap().unwrap().needed;
        package.component.host_libraries = needed.iter().map(|name| host(name)).collect();
        package.add(&format!("lib/{file}"), &bytes, Role::RuntimeLib);
        let ran = package.verified(&[]);
        let libc = ran.out.contains("error[S0520]");
        assert_eq!(libc, !clean, "{}", ran.out);
        if !clean {
            has(&ran, 20, &["GLIBC_2.38", "lib/libneeds238.so", "promised: 2.31"]);
        }
    }
}

/// The runtime is neither packed nor declared; declared it is the host's.
#[test]
fn case_c17_runtime_six_or_seven() {
    for (file, declared, codes) in [
        ("hip6.so", false, &["S0518"][..]),
        ("hip6.so", true, &[]),
        ("hip6-runpath.so", false, &["S0518"]),
        ("hip6-runpath.so", true, &[]),
        ("hip6-builder.so", true, &["S0519"]),
    ] {
        let Some(library) = shared(&format!("cases/c17-runtime-six-or-seven/{file}")) else { continue };
        let bytes = fs_err::read(library).unwrap();
        let mut package = Package::new("0.1.0");
        let needed = strata_package::elf::inspect_bytes(&bytes).unwrap().unwrap().needed;
        let listed = needed.iter().filter(|name| declared || !name.starts_with("libamdhip64"));
        package.component.host_libraries = listed.map(|name| host(name)).collect();
        package.add(&format!("lib/{file}"), &bytes, Role::RuntimeLib);
        let ran = package.verified(&["--allow-build-paths"]);
        for code in ["S0518", "S0519"] {
            assert_eq!(ran.out.contains(&format!("error[{code}]")), codes.contains(&code), "{file}: {}", ran.out);
        }
        if codes.contains(&"S0518") {
            assert!(ran.out.contains("libamdhip64.so.6"), "{}", ran.out);
        }
    }
}

/// An AMD code object of just a header: what its target is read from.
fn code_object(flags: u32) -> Vec<u8> {
    let mut image = vec![0_u8; 64];
    image[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    image[7] = 64;
    image[16..20].copy_from_slice(&[3, 0, 224, 0]);
    image[48..52].copy_from_slice(&flags.to_le_bytes());
    image
}

#[test]
fn case_c16_math_kernels_absent() {
    for (list, clean) in [("dropped", false), ("partial", false), ("whole", true), ("whole-xnack", true)] {
        let Some(list) = shared(&format!("cases/c16-math-kernels-absent/files-{list}.txt")) else { continue };
        let mut package = Package::new("0.1.0");
        package.component.gpu_targets = vec!["gfx906".to_owned()];
        // The code that is declared is there; the question is whether the library will find its own.
        package.add("lib/kernels.hsaco", &code_object(0x52f), Role::Kernel);
        for path in fs_err::read_to_string(list).unwrap().lines() {
            package.add(path, b"", Role::TuningTable);
        }
        let ran = package.verified(&[]);
        assert_eq!(ran.out.contains("error[S0524]"), !clean, "{}", ran.out);
        if !clean {
            has(&ran, 20, &["gfx906", "lib/librocblas.so.4"]);
        }
    }
}

/// Found and declared targets are the same, no more and no less, features included.
#[test]
fn gpu_code_is_for_just_the_declared_targets() {
    for (flags, declared, clean) in [
        (0x52f, "gfx906", true),
        (0x62f, "gfx906:xnack-", true),
        (0x62f, "gfx906", false),
        (0x041, "gfx906", false),
        (0x041, "gfx1100", true),
    ] {
        let mut package = Package::new("0.1.0");
        package.component.gpu_targets = vec![declared.to_owned()];
        package.add("lib/k.hsaco", &code_object(flags), Role::Kernel);
        let ran = package.verified(&[]);
        assert_eq!(ran.out.contains("error[S0523]"), !clean, "{flags:#x} {declared}: {}", ran.out);
        assert_eq!(ran.status, Some(if clean { 0 } else { 20 }));
    }
}

/// Real objects, where the compiler for them is here.
#[test]
fn real_code_objects_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("k.cl");
    fs_err::write(&source, "kernel void k(global float *p) { p[get_global_id(0)] = 1.0f; }\n").unwrap();
    for (target, expected) in [("gfx906", "gfx906"), ("gfx906:xnack-", "gfx906:xnack-"), ("gfx1100", "gfx1100")] {
        let object = folder.path().join("k.hsaco");
        let built = Command::new("clang-19")
            .args(["-x", "cl", "-cl-std=CL2.0", "-nogpulib", "--target=amdgcn-amd-amdhsa", "-O2"])
            .arg(format!("-mcpu={target}"))
            .arg("-o")
            .args([&object, &source])
            .output();
        if !built.as_ref().is_ok_and(|built| built.status.success()) {
            println!("skipped: clang-19 with lld-19 is not here");
            return;
        }
        let mut package = Package::new("0.1.0");
        package.component.gpu_targets = vec![expected.to_owned()];
        package.add("lib/k.hsaco", &fs_err::read(&object).unwrap(), Role::Kernel);
        has(&package.verified(&[]), 0, &["verified"]);
    }
}

#[test]
fn sums_are_checked_and_an_empty_list_is_never_passed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs_err::write(at("a"), "1").unwrap();
    let digest = Sha256Digest::of_bytes(b"1");
    let verify = |list: &str, files: &[&str]| {
        fs_err::write(at("SUMS"), list).unwrap();
        let files = files.iter().map(|file| at(file));
        ran(strata().args(["verify-package", "--sums"]).arg(at("SUMS")).args(files))
    };
    has(&verify(&format!("{digest}  a\n"), &[]), 0, &["verified (list of sums)"]);
    has(&verify(&format!("{digest} *a\r\n"), &["a"]), 0, &["verified"]);
    has(&verify("", &[]), 24, &["error[S0531]"]);
    has(&verify("# nothing\n", &["a"]), 24, &["error[S0531]"]);
    has(&verify(&format!("{digest}  b\n"), &[]), 17, &["error[S0513]"]);
    has(&verify(&format!("{digest}  a\nwhat is this\n"), &[]), 24, &["error[S0533]", "line 2"]);
    let wrong = Sha256Digest::of_bytes(b"2");
    has(&verify(&format!("{wrong}  a\n"), &[]), 17, &["error[S0532]", &digest.to_string()]);
    refused(strata().args(["verify-package", "--sums"]).arg(at("absent")), 1, "S0003");
    refused(strata().arg("verify-package").arg(at("absent")), 1, "S0003");
    refused(strata().arg("verify-package"), 2, "S0001");
}

/// Of several, one that is not there does not hide what is wrong with the others.
#[test]
fn all_paths_are_looked_at_also_behind_one_that_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs_err::write(at("bad.tar.gz"), "no archive").unwrap();
    let ran = ran(strata().arg("verify-package").args([at("absent"), at("bad.tar.gz"), at("absent too")]));
    has(&ran, 1, &["bad.tar.gz: DAMAGED", "error[S0501]"]);
    assert!(ran.err.contains("absent`") && ran.err.contains("absent too`"), "{}", ran.err);
}

/// A pipe that never ends is told for what it is before it fills a disk.
#[test]
fn an_endless_pipe_that_is_no_archive_ends() {
    let zero = fs_err::File::open("/dev/zero").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_strata"));
    let output = command.args(["verify-package", "-"]).stdin(zero.into_parts().0).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(17) && said.contains("error[S0501]"), "{output:?}");
}

/// Bytes that are no archive, or end in the middle, are told and nothing panics.
#[test]
fn cut_and_foreign_bytes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tar.gz");
    let Some(sound) = shared("cases/c00-sound-package/sound.tar.gz") else { return };
    let sound = fs_err::read(sound).unwrap();
    for length in [0, 1, 10, 40, 100, sound.len() / 2, sound.len() - 9, sound.len() - 1] {
        fs_err::write(&path, &sound[..length]).unwrap();
        let ran = ran(strata().arg("verify-package").arg(&path));
        assert!(
            ran.status.is_some_and(|status| status >= 16 && status & 1 == 1),
            "{length}: {:?} {}{}",
            ran.status,
            ran.out,
            ran.err
        );
        assert!(ran.out.contains("error[S0501]"), "{length}: {}", ran.out);
    }
}

/// Names take memory, so there is a most of them: reading stops and says so.
#[test]
fn an_archive_of_endless_names_is_too_large() {
    use strata_package::archive_write::{Gzip, TarEncoder};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("names.tar.gz");
    let mut tar = TarEncoder::new(Gzip::new(fs_err::File::create(&path).unwrap()).unwrap(), 0);
    let part = "n".repeat(250);
    for number in 0..1200 {
        let name = format!("top/{}{number}", format!("{part}/").repeat(230));
        tar.file(&name, 0, FileMode::Plain, &mut std::io::empty()).unwrap();
    }
    tar.finish().unwrap().finish().unwrap();
    let ran = ran(strata().arg("verify-package").arg(&path));
    assert!(
        ran.out.contains("error[S0509]"),
        "{:?} {}{}",
        ran.status,
        ran.out.chars().take(2000).collect::<String>(),
        ran.err
    );
}
