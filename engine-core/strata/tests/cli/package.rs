//! `strata package`: packages of the CPU plugin of this build, read again by tools that we did not write.

use crate::support::{cpu_plugin, strata};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use strata_manifest::{Component, Document, KeyList, Release};

/// A build folder, a source folder and a recipe.
pub(crate) struct Scene {
    folder: tempfile::TempDir,
}

const LIBRARY: &str = "libstrata_backend_cpu.so";

impl Scene {
    pub(crate) fn new() -> Self {
        let scene = Scene { folder: tempfile::tempdir().unwrap() };
        for name in ["build/notes", "source/docs"] {
            fs_err::create_dir_all(scene.path(name)).unwrap();
        }
        fs_err::copy(cpu_plugin().with_file_name(LIBRARY), scene.path("build").join(LIBRARY)).unwrap();
        scene.write("build/notes/b.txt", "second\n");
        scene.write("build/notes/a.txt", "first\n");
        scene.write("source/LICENSE-MIT", "licence\n");
        scene.write("source/Cargo.lock", "");
        scene.write("source/docs/deep.md", "deep\n");
        scene.write("source/docs/empty.md", "");
        scene.write("recipe.toml", RECIPE);
        scene
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs_err::write(self.path(name), text).unwrap();
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn build(&self, more: &[&str]) -> assert_cmd::assert::Assert {
        let mut command = strata();
        command.args(["package", "build"]).arg(self.path("recipe.toml"));
        command.arg("--from").arg(self.path("build")).arg("--source").arg(self.path("source"));
        command.arg("--allow-build-paths").arg("--out").arg(self.path("out")).args(more).assert()
    }

    pub(crate) fn archive(&self, suffix: &str) -> PathBuf {
        self.path("out").join(format!("{}.{suffix}", stem()))
    }
}

fn stem() -> String {
    format!("strata-engine-{}-linux-x86_64-cpu", env!("CARGO_PKG_VERSION"))
}

/// Long names and an empty file are where archive formats have corners.
const RECIPE: &str = r#"
component = "engine"
backend = "cpu"

[[host_libraries]]
soname = "libcuda.so.1"
optional = true

[[file]]
from = "build:libstrata_backend_cpu.so"
to = "lib/strata/cpu/libstrata_backend_cpu.so"
role = "plugin"
mode = "0755"

[[file]]
from = "build:notes/*.txt"
to = "share/notes/"
role = "doc"

[[file]]
from = "source:docs/deep.md"
to = "share/a-folder-whose-name-is-long-enough-to-need-the-second-field-of-a-tar-header/another-folder-with-a-long-name/deep.md"
role = "doc"

[[file]]
from = "source:docs/empty.md"
to = "share/a-file-whose-own-name-is-longer-than-the-hundred-bytes-of-a-tar-header-so-that-a-pax-record-has-to-say-it-in-full.md"
role = "doc"

[[file]]
from = "source:LICENSE-MIT"
to = "share/doc/strata-engine-cpu/LICENSE-MIT"
role = "license"

[plugin]
name = "cpu"
kind = "cpu"
library = "lib/strata/cpu/libstrata_backend_cpu.so"
"#;

/// What a tool prints, or `None` (said) where it is not installed.
fn tool(name: &str, args: &[&str]) -> Option<String> {
    let output = match Command::new(name).args(args).output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: `{name}` cannot be run: {error}");
            return None;
        }
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{name} {args:?}: {said}");
    Some(String::from_utf8(output.stdout).unwrap())
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

fn stdout(assert: &assert_cmd::assert::Assert) -> String {
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

fn stderr(assert: &assert_cmd::assert::Assert) -> String {
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

/// The entries that an archive of this component must have.
fn expected(component: &Component) -> BTreeMap<String, (u64, u32)> {
    let stem = component.stem();
    let mut entries = BTreeMap::from([(format!("{stem}/"), (0, 0o755))]);
    entries.insert(format!("{stem}/component.json"), (component.to_text().len() as u64, 0o644));
    for file in &component.files {
        let path = file.path.as_str();
        for (end, _) in path.match_indices('/') {
            entries.insert(format!("{stem}/{}/", &path[..end]), (0, 0o755));
        }
        entries.insert(format!("{stem}/{path}"), (file.size, file.mode.bits()));
    }
    entries
}

fn component(scene: &Scene) -> Component {
    let text = tool("tar", &["xOzf", scene.archive("tar.gz").to_str().unwrap(), &format!("{}/component.json", stem())]);
    Component::parse(&text.unwrap(), Path::new("component.json")).unwrap()
}

const PYTHON_TAR: &str = "
import sys, tarfile
for entry in tarfile.open(sys.argv[1], 'r:gz'):
    assert (entry.uid, entry.gid, entry.uname, entry.gname) == (0, 0, '', ''), entry
    assert entry.isdir() or entry.isreg(), entry
    print(entry.name + ('/' if entry.isdir() else ''), entry.size, oct(entry.mode)[2:], entry.mtime)
";

const PYTHON_ZIP: &str = "
import sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
assert archive.testzip() is None
for entry in archive.infolist():
    assert entry.create_system == 3 and not entry.extra and not entry.comment, entry
    print(entry.filename, entry.file_size, oct(entry.external_attr >> 16 & 0o7777)[2:])
";

#[test]
fn other_readers_list_the_same_entries() {
    let scene = Scene::new();
    let built = scene.build(&["--format", "tar.gz,tar.zst,zip"]).success();
    assert_eq!(stdout(&built).lines().count(), 3);
    let component = component(&scene);
    assert_eq!(component.faults(), Vec::<String>::new());
    let expected = expected(&component);
    let mut names: Vec<String> = expected.keys().cloned().collect();
    // In the archive the manifest follows its folder; everything else is sorted.
    let manifest = names.iter().position(|name| name.ends_with("/component.json")).unwrap();
    let manifest = names.remove(manifest);
    names.insert(1, manifest);

    let (gz, zst, zip) = (scene.archive("tar.gz"), scene.archive("tar.zst"), scene.archive("zip"));
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    for (name, args) in [
        ("tar", vec!["tzf".to_owned(), text(&gz)]),
        ("tar", vec!["--zstd".to_owned(), "-tf".to_owned(), text(&zst)]),
        ("bsdtar", vec!["tf".to_owned(), text(&gz)]),
        ("bsdtar", vec!["tf".to_owned(), text(&zst)]),
        ("bsdtar", vec!["tf".to_owned(), text(&zip)]),
        ("unzip", vec!["-Z1".to_owned(), text(&zip)]),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        if let Some(listed) = tool(name, &args) {
            assert_eq!(lines(&listed), names, "{name} {args:?}");
        }
    }
    let with_facts = |time: bool| -> Vec<String> {
        let time = if time { format!(" {}", component.source_epoch) } else { String::new() };
        names.iter().map(|name| format!("{name} {} {:o}{time}", expected[name].0, expected[name].1)).collect()
    };
    if let Some(listed) = tool("python3", &["-c", PYTHON_TAR, &text(&gz)]) {
        assert_eq!(lines(&listed), with_facts(true));
    }
    if let Some(listed) = tool("python3", &["-c", PYTHON_ZIP, &text(&zip)]) {
        assert_eq!(lines(&listed), with_facts(false));
    }
    tool("gzip", &["-t", &text(&gz)]);
    tool("zstd", &["-qt", &text(&zst)]);

    // What was unpacked by another program has the listed digests.
    let unpacked = scene.path("unpacked");
    fs_err::create_dir_all(&unpacked).unwrap();
    tool("tar", &["xzf", &text(&gz), "-C", &text(&unpacked)]).unwrap();
    for file in &component.files {
        let path = file.path.below(&unpacked.join(component.stem()));
        let bytes = fs_err::read(&path).unwrap();
        assert_eq!(strata_manifest::Sha256Digest::of_bytes(&bytes), file.sha256, "{}", file.path);
    }
}

#[test]
fn the_manifest_says_what_the_files_say() {
    let scene = Scene::new();
    let built = scene.build(&["--json"]).success();
    let report: serde_json::Value = serde_json::from_str(&stdout(&built)).unwrap();
    assert_eq!(report["components"][0]["id"], "engine-cpu");
    let component = component(&scene);
    let record: serde_json::Value =
        serde_json::from_slice(&strata().args(["version", "--json"]).output().unwrap().stdout).unwrap();
    assert_eq!(component.version.to_string(), record["version"].as_str().unwrap());
    assert_eq!(component.build.target, record["target"].as_str().unwrap());
    assert_eq!(component.source_epoch, component.build.source_epoch);
    let host: Vec<(&str, bool)> =
        component.host_libraries.iter().map(|library| (library.soname.as_str(), library.optional)).collect();
    assert!(host.contains(&("libc.so.6", false)) && host.contains(&("libcuda.so.1", true)), "{host:?}");
    let abi = component.abi.as_ref().unwrap();
    let descriptor = component.file("lib/strata/cpu/cpu.plugin.json").unwrap();
    assert_eq!(descriptor.role, strata_manifest::Role::Descriptor);
    assert_eq!(component.libc_floor, measured_floor(&scene.path("build").join(LIBRARY)));
    assert!(!abi.layout_hash.is_empty());
    // The library is above 8 MiB in a build without optimisation; then it has a digest for each piece.
    let library = component.file("lib/strata/cpu/libstrata_backend_cpu.so").unwrap();
    let pieces = if library.size > 8 << 20 { library.size.div_ceil(8 << 20) } else { 0 };
    assert_eq!(library.chunks.len() as u64, pieces);
}

/// The highest GLIBC version that `readelf` finds.
fn measured_floor(library: &Path) -> Option<String> {
    let text = tool("readelf", &["-V", library.to_str().unwrap()])?;
    let versions = text.split_whitespace().filter_map(|word| word.strip_prefix("GLIBC_"));
    versions
        .max_by_key(|text| text.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>())
        .map(str::to_owned)
}

/// A copy of the scene under other circumstances gives the same bytes.
#[test]
fn two_builds_are_byte_equal() {
    let first = Scene::new();
    first.build(&["--format", "tar.gz,tar.zst,zip"]).success();

    let second = Scene::new();
    // The same files, made in another order, with other modes and times, in another folder.
    let notes = second.path("build/notes");
    fs_err::remove_dir_all(&notes).unwrap();
    fs_err::create_dir_all(&notes).unwrap();
    second.write("build/notes/a.txt", "first\n");
    second.write("build/notes/b.txt", "second\n");
    for (name, mode) in
        [("build/notes/a.txt", 0o600), ("build/notes/b.txt", 0o777), (&*format!("build/{LIBRARY}"), 0o640)]
    {
        fs_err::set_permissions(second.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let out = second.text("elsewhere/out");
    let command = format!(
        "umask 077; exec '{}' package build ../recipe.toml --allow-build-paths --from . --source ../source --out '{out}' --format zip,tar.gz,tar.zst",
        env!("CARGO_BIN_EXE_strata")
    );
    let output = Command::new("sh")
        .args(["-c", &command])
        .current_dir(second.path("build"))
        .envs([("TZ", "Asia/Kathmandu"), ("LC_ALL", "tr_TR.UTF-8"), ("USER", "somebody"), ("HOME", "/nonexistent")])
        .env("SOURCE_DATE_EPOCH", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for suffix in ["tar.gz", "tar.zst", "zip"] {
        let ours = fs_err::read(first.archive(suffix)).unwrap();
        let theirs = fs_err::read(Path::new(&out).join(format!("{}.{suffix}", stem()))).unwrap();
        assert!(ours == theirs, "{suffix} differs: {} and {} bytes", ours.len(), theirs.len());
    }
}

/// The reported package: 1,080 unbundled code objects lay beside what the manifest listed.
/// Two runs that write the same archive do not meet on the way, and nothing but the archive is left.
#[test]
fn two_runs_at_once_into_one_folder_both_end_well() {
    let scene = Scene::new();
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..3).map(|_| scope.spawn(|| scene.build(&[]).success())).collect();
        for run in runs {
            run.join().unwrap();
        }
    });
    let left = fs_err::read_dir(scene.path("out")).unwrap().count();
    assert_eq!(left, 1);
    let verify = ["verify-package", "--allow-build-paths"];
    strata().args(verify).arg(scene.archive("tar.gz")).assert().success();
}

#[test]
fn unbundled_code_objects_stop_the_build() {
    let scene = Scene::new();
    for i in 0..1080 {
        let arch = ["gfx1100", "gfx1101", "gfx1102"][i % 3];
        scene.write(&format!("build/{LIBRARY}.{i}.hipv4-amdgcn-amd-amdhsa--{arch}"), "0123456789");
    }
    let said = stderr(&scene.build(&[]).code(1));
    for part in ["S0561", "1080 files (10800 bytes)", "looks like an unbundled code object", "remove them"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!scene.path("out").exists());
}

#[test]
fn with_exact_everything_must_be_claimed() {
    let scene = Scene::new();
    scene.build(&["--exact"]).success();
    scene.write("build/notes/.hidden", "");
    let said = stderr(&scene.build(&["--exact"]).code(1));
    assert!(said.contains("S0561") && said.contains("notes/.hidden"), "{said}");
}

/// The other reported fault: what the binary says and what is packed beside it disagree.
#[test]
fn files_of_two_versions_do_not_become_one_package() {
    let scene = Scene::new();
    let library = scene.path("build").join(LIBRARY);
    let (old, new) = (format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION")), "\"version\":\"0.9.9\"");
    assert_eq!(old.len(), new.len());
    let mut bytes = fs_err::read(&library).unwrap();
    let at = bytes.windows(old.len()).position(|window| window == old.as_bytes()).expect("the build record");
    bytes[at..at + new.len()].copy_from_slice(new.as_bytes());
    fs_err::write(scene.path("build/libother.so"), &bytes).unwrap();
    let more =
        "\n[[file]]\nfrom = \"build:libother.so\"\nto = \"lib/libother.so\"\nrole = \"plugin\"\nmode = \"0755\"\n";
    scene.write("recipe.toml", &RECIPE.replacen("\n[[file]]", &format!("{more}\n[[file]]"), 1));
    let said = stderr(&scene.build(&[]).code(1));
    for part in ["S0563", "0.9.9", env!("CARGO_PKG_VERSION"), "lib/libother.so", LIBRARY] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // A file without any record is none of ours.
    fs_err::write(scene.path("build/libother.so"), "#!/bin/sh\n").unwrap();
    let said = stderr(&scene.build(&[]).code(1));
    assert!(said.contains("has no build record"), "{said}");
}

/// What would not pass `verify-package` is not left lying there.
#[test]
fn a_package_that_fails_its_own_proof_is_removed() {
    let scene = Scene::new();
    scene.write("recipe.toml", &RECIPE.replacen("libcuda.so.1", "libwhatever.so.1", 1));
    let said = stderr(&scene.build(&[]).code(1));
    for part in ["S0569", "S0518", "libwhatever.so.1"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!scene.archive("tar.gz").exists());
}

#[test]
fn what_a_recipe_gets_wrong_is_said() {
    let scene = Scene::new();
    for (from, to, code) in [
        ("component =", "componet =", "S0005"),
        ("build:notes/*.txt", "build:nothing/*.txt", "S0562"),
        ("share/notes/", "share/../notes/", "S0005"),
        ("build:notes/*.txt", "build:../*.txt", "S0560"),
        ("kind = \"cpu\"", "kind = \"hip\"", "S0563"),
        ("library = \"lib/strata/cpu/", "library = \"lib/other/", "S0560"),
        ("component = \"engine\"", "component = \"Engine\"", "S0560"),
        (
            "[plugin]",
            "[[third_party]]\nname = \"zlib\"\nversion = \"1\"\nlicence = \"Zlib\"\nlicence_files = []\nsource = \"x\"\n[plugin]",
            "S0564",
        ),
    ] {
        let recipe = RECIPE.replacen(from, to, 1);
        assert_ne!(recipe, RECIPE);
        scene.write("recipe.toml", &recipe);
        let said = stderr(&scene.build(&[]).code(1));
        assert!(said.contains(code), "{to}: {said}");
    }
    let said = stderr(&scene.build(&["--format", "rar"]).code(2));
    assert!(said.contains("tar.gz, tar.zst or zip"), "{said}");
}

/// The real recipe, with licences of the crates that are linked, and bills of material that others accept.
#[test]
fn parts_by_others_come_with_their_licences_and_bills() {
    let scene = Scene::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = strata();
    command.args(["package", "build"]).arg(root.join("packaging/recipes/engine-cpu.toml"));
    command.arg("--allow-build-paths").arg("--from").arg(scene.path("build"));
    command.arg("--out").arg(scene.path("out")).assert().success();
    let component = component(&scene);
    assert!(component.third_party.iter().any(|part| part.name == "rust-std"));
    assert!(component.third_party.iter().any(|part| part.name == "half"), "the plugin links half");
    assert!(!component.third_party.iter().any(|part| part.name == "serde_derive"), "macros are not linked");
    for part in &component.third_party {
        assert!(!part.licence_files.is_empty() && !part.licence.is_empty(), "{part:?}");
    }
    let unpacked = scene.path("unpacked");
    fs_err::create_dir_all(&unpacked).unwrap();
    let gz = scene.archive("tar.gz");
    tool("tar", &["xzf", gz.to_str().unwrap(), "-C", unpacked.to_str().unwrap()]).unwrap();
    let doc = unpacked.join(stem()).join("share/doc/strata-engine-cpu");
    let bom: serde_json::Value =
        serde_json::from_str(&fs_err::read_to_string(doc.join("sbom.cdx.json")).unwrap()).unwrap();
    assert_eq!((&bom["bomFormat"], &bom["specVersion"]), (&"CycloneDX".into(), &"1.6".into()));
    let spdx: serde_json::Value =
        serde_json::from_str(&fs_err::read_to_string(doc.join("sbom.spdx.json")).unwrap()).unwrap();
    assert_eq!(spdx["packages"].as_array().unwrap().len(), component.third_party.len() + 1);
    let validator = "
import sys
try:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    error = validator.validate_str(open(sys.argv[1]).read())
except Exception as absent:
    print('skipped:', absent); sys.exit(0)
print('invalid: ' + str(error) if error else 'valid')
";
    let bom = doc.join("sbom.cdx.json");
    match tool("python3", &["-c", validator, bom.to_str().unwrap()]).unwrap_or_default().trim() {
        "valid" => {}
        skipped if skipped.starts_with("skipped") => println!("{skipped}: a CycloneDX validator is not installed"),
        other => panic!("{other}"),
    }
}

fn package(args: &[&str]) -> assert_cmd::assert::Assert {
    strata().arg("package").args(args).assert()
}

#[test]
fn a_release_is_indexed_signed_and_believed_by_stock_tools() {
    let scene = Scene::new();
    scene.build(&["--format", "tar.gz,zip"]).success();
    let (out, root, key) = (scene.text("out"), scene.text("root"), scene.text("release"));
    let said = stderr(&package(&["index", &out, "--serial", "7", "--created", "2026-12-01T00:00:00Z"]).success());
    assert!(said.contains("number 7") && said.contains("engine-cpu"), "{said}");
    let release = Release::read(&scene.path("out/release.json")).unwrap();
    assert_eq!((release.serial, release.expires.to_string().as_str()), (7, "2027-05-30T00:00:00Z"));
    let entry = &release.components[0];
    assert_eq!(entry.archives.len(), 2);
    let manifest = component(&scene).to_text();
    assert_eq!(entry.manifest_sha256, strata_manifest::Sha256Digest::of_bytes(manifest.as_bytes()));
    assert_eq!(entry.unpacked_bytes, component(&scene).unpacked_bytes() + manifest.len() as u64);
    let check = Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS.txt"]).current_dir(&out).output();
    assert!(check.unwrap().status.success());

    package(&["keygen", &root, "--no-password"]).success();
    package(&["keygen", &key, "--no-password"]).success();
    let said = stderr(&package(&["keygen", &key, "--no-password"]).code(1));
    assert!(said.contains("S0566") && said.contains("never overwritten"), "{said}");
    let (secret, public) = (format!("{key}.key"), format!("{key}.pub"));
    package(&["keys", &out, "--key", &format!("{root}.key"), "--add", &public, "--serial", "3"]).success();
    package(&["sign", &out, "--key", &secret]).success();
    let list = KeyList::read(&scene.path("out/keys.json")).unwrap();
    assert_eq!((list.serial, list.keys.len()), (3, 1));
    for (file, public) in
        [("release.json", &public), ("SHA256SUMS.txt", &public), ("keys.json", &format!("{root}.pub"))]
    {
        let path = scene.text(&format!("out/{file}"));
        if let Some(said) = tool("minisign", &["-V", "-m", &path, "-p", public]) {
            assert!(said.contains("Signature and comment signature verified"), "{said}");
        }
    }
    package(&["trust-root", &format!("{root}.pub"), "--out", &scene.text("trust.json")]).success();
    assert!(strata_manifest::TrustRoot::read(&scene.path("trust.json")).is_ok());

    // Numbers only grow, and a list cannot make the root key a release key.
    let said = stderr(&package(&["index", &out, "--serial", "7"]).code(1));
    assert!(said.contains("S0565") && said.contains("number 7"), "{said}");
    let root_key = format!("{root}.key");
    let keys = |add: &str, serial: &str| package(&["keys", &out, "--key", &root_key, "--add", add, "--serial", serial]);
    assert!(stderr(&keys(&public, "3").code(1)).contains("S0565"));
    assert!(stderr(&keys(&format!("{root}.pub"), "4").code(1)).contains("is the root key"));
    // A new index loses the signatures of the old one.
    package(&["index", &out, "--serial", "8"]).success();
    assert!(!scene.path("out/release.json.minisig").exists());
    // What is not whole is not signed.
    let mut bytes = fs_err::read(scene.archive("zip")).unwrap();
    bytes.push(0);
    fs_err::write(scene.archive("zip"), bytes).unwrap();
    let said = stderr(&package(&["sign", &out, "--key", &secret]).code(1));
    assert!(said.contains("S0565") && said.contains(".zip"), "{said}");
    assert!(!scene.path("out/release.json.minisig").exists());
}

#[test]
fn an_index_lists_only_what_fits_together() {
    let scene = Scene::new();
    fs_err::create_dir_all(scene.path("out")).unwrap();
    let out = scene.text("out");
    assert!(stderr(&package(&["index", &out]).code(1)).contains("no archive"));
    scene.build(&[]).success();
    let renamed = scene.path("out").join("strata-engine-9.9.9-linux-x86_64-cpu.tar.gz");
    fs_err::rename(scene.archive("tar.gz"), &renamed).unwrap();
    let said = stderr(&package(&["index", &out]).code(1));
    assert!(said.contains("S0565") && said.contains("would be called"), "{said}");
    fs_err::remove_file(&renamed).unwrap();
    for bytes in [&b""[..], b"PK\x03\x04", &[0x1f, 0x8b, 8, 0], &[0; 4096]] {
        for suffix in ["tar.gz", "tar.zst", "zip"] {
            let path = scene.path("out").join(format!("strata-x.{suffix}"));
            fs_err::write(&path, bytes).unwrap();
            assert!(stderr(&package(&["index", &out]).code(1)).contains("is no package"), "{suffix}");
            fs_err::remove_file(path).unwrap();
        }
    }
    assert!(!scene.path("out/release.json").exists());
}

#[test]
fn protected_keys_want_their_password() {
    let scene = Scene::new();
    scene.write("password", "correct horse\n");
    scene.write("wrong", "battery\n");
    scene.write("file", "text\n");
    let key = scene.text("key");
    package(&["keygen", &key, "--password-file", &scene.text("password")]).success();
    let mode = fs_err::metadata(scene.path("key.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let sign = |password: &str| {
        package(&[
            "sign",
            &scene.text("file"),
            "--key",
            &scene.text("key.key"),
            "--password-file",
            &scene.text(password),
        ])
    };
    let said = stderr(&sign("wrong").code(1));
    assert!(said.contains("S0566") && said.contains("password"), "{said}");
    sign("password").success();
    tool("minisign", &["-V", "-m", &scene.text("file"), "-p", &scene.text("key.pub")]);
    fs_err::set_permissions(scene.path("key.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(stderr(&sign("password").code(1)).contains("0644"));
}
