//! `scripts/install.sh`: from nothing to an installation, and never past something that it cannot check.

use crate::releases::{Package, control, engine, release};
use crate::support::{Scene, tool};
use minisign::KeyPair;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use strata_manifest::{Document, FileMode, KeyList, PublicKey, Role, Sha256Digest, UtcTime};

struct Signed {
    scene: Scene,
    root: KeyPair,
    release_key: KeyPair,
}

fn sign(folder: &Path, name: &str, key: &KeyPair) {
    let bytes = fs_err::read(folder.join(name)).unwrap();
    let comment = format!("timestamp:1\tfile:{name}\thashed");
    let signature = minisign::sign(Some(&key.pk), &key.sk, Cursor::new(bytes), Some(&comment), None).unwrap();
    fs_err::write(folder.join(format!("{name}.minisig")), signature.into_string()).unwrap();
}

fn public(key: &KeyPair) -> PublicKey {
    let id: String = key.pk.keynum().iter().rev().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().concat();
    PublicKey { id, public: key.pk.to_base64(), comment: String::new(), revoked: false }
}

impl Signed {
    /// A signed release whose control package hands over to the program under test.
    fn new() -> Signed {
        let scene = Scene::new();
        let mut first: Package = control("0.5.0");
        let script = format!("#!/bin/sh\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_strata-setup"));
        first.files.push(("bin/strata-setup".to_owned(), script.into_bytes(), FileMode::Executable, Role::Data));
        let folder = scene.path("signed");
        release(&folder, "0.5.0", 5, &[first, engine("0.5.0", "cpu", &[], "pass cpu")]);
        let key = || KeyPair::generate_unencrypted_keypair().unwrap();
        let signed = Signed { scene, root: key(), release_key: key() };
        signed.sign_all(&[public(&signed.release_key)]);
        signed
    }

    fn folder(&self) -> PathBuf {
        self.scene.path("signed")
    }

    fn sign_all(&self, keys: &[PublicKey]) {
        let folder = self.folder();
        let mut sums = String::new();
        for path in crate::releases::files_below(&folder) {
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.ends_with(".tar.gz") || name == "release.json" {
                let sha256 = Sha256Digest::of_bytes(&fs_err::read(&path).unwrap());
                sums = format!("{sums}{sha256}  {name}\n");
            }
        }
        fs_err::write(folder.join("SHA256SUMS.txt"), sums).unwrap();
        let list = KeyList {
            schema: KeyList::SCHEMA.to_owned(),
            serial: 1,
            created: UtcTime::from_seconds(1_700_000_000),
            expires: UtcTime::from_seconds(4_000_000_000),
            keys: keys.to_vec(),
        };
        fs_err::write(folder.join("keys.json"), list.to_text()).unwrap();
        sign(&folder, "keys.json", &self.root);
        sign(&folder, "release.json", &self.release_key);
        sign(&folder, "SHA256SUMS.txt", &self.release_key);
    }

    fn run(&self, key: &str, path: Option<&Path>) -> Output {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install.sh");
        let mut command = Command::new("/bin/sh");
        command.arg(script).arg("--release").arg(self.folder()).args(["--key", key]);
        command.args(["--backend", "cpu", "--yes", "--no-model", "--prefix"]).arg(self.scene.prefix());
        command.arg("--root").arg(self.scene.path("root"));
        command.env_clear().env("HOME", self.scene.path("home"));
        match path {
            Some(path) => command.env("PATH", path),
            None => command.env("PATH", std::env::var_os("PATH").unwrap_or_default()),
        };
        command.output().unwrap()
    }

    #[track_caller]
    fn refuses(&self, key: &str, path: Option<&Path>, why: &str) {
        let output = self.run(key, path);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && text.contains(why) && text.contains("nothing was installed"),
            "{why}: {text}"
        );
        assert_eq!(self.scene.version_that_runs(), "nothing", "{text}");
    }
}

fn openssl() -> bool {
    tool("openssl", &["pkeyutl", "-help"]).is_some()
}

#[test]
fn a_signed_release_is_installed_with_the_pinned_key() {
    if !openssl() {
        return;
    }
    let signed = Signed::new();
    let output = signed.run(&signed.root.pk.to_base64(), None);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(signed.scene.version_that_runs(), "0.5.0");
    let pins = fs_err::read_to_string(signed.scene.prefix().join("state/trust.json")).unwrap();
    assert!(pins.contains(&signed.root.pk.to_base64()), "{pins}");
}

#[test]
fn what_cannot_be_checked_is_not_installed() {
    if !openssl() {
        return;
    }
    let signed = Signed::new();
    let key = signed.root.pk.to_base64();
    let stranger = KeyPair::generate_unencrypted_keypair().unwrap();
    signed.refuses(&stranger.pk.to_base64(), None, "the key list is not signed by a key that this copy knows");
    signed.refuses("nonsense", None, "the key list is not signed");
    signed.refuses("", None, "no key is known to this copy");
    // Every file in turn with one changed byte, or absent.
    for (name, why) in [
        ("keys.json", "the key list is not signed"),
        ("keys.json.minisig", "the key list is not signed"),
        ("SHA256SUMS.txt", "the checksum list is not signed"),
        ("SHA256SUMS.txt.minisig", "the checksum list is not signed"),
        ("strata-control-0.5.0-linux-x86_64.tar.gz", "is not the file that the signed list names"),
    ] {
        let path = signed.folder().join(name);
        let whole = fs_err::read(&path).unwrap();
        let mut changed = whole.clone();
        // In the second line of a signature, inside a text elsewhere.
        let at = if name.ends_with("minisig") {
            changed.iter().position(|c| *c == b'\n').unwrap() + 60
        } else {
            changed.len() / 2
        };
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        fs_err::write(&path, &changed).unwrap();
        signed.refuses(&key, None, why);
        fs_err::remove_file(&path).unwrap();
        signed.refuses(&key, None, "cannot fetch");
        fs_err::write(&path, &whole).unwrap();
    }
    // A key that the list withdraws signs nothing any more.
    signed.sign_all(&[PublicKey { revoked: true, ..public(&signed.release_key) }]);
    signed.refuses(&key, None, "the key list names no key");
    signed.sign_all(&[public(&stranger)]);
    signed.refuses(&key, None, "the checksum list is not signed by a key of the key list");
}

#[test]
fn without_a_tool_to_check_with_it_stops() {
    let signed = Signed::new();
    let bare = signed.scene.path("bare");
    fs_err::create_dir_all(&bare).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    for name in [
        "tar",
        "gzip",
        "sha256sum",
        "base64",
        "awk",
        "uname",
        "mktemp",
        "rm",
        "cp",
        "sed",
        "wc",
        "head",
        "tail",
        "cmp",
        "cat",
    ] {
        if let Some(file) = find(name) {
            fs_err::os::unix::fs::symlink(file, bare.join(name)).unwrap();
        }
    }
    let key = signed.root.pk.to_base64();
    signed.refuses(&key, Some(&bare), "`minisign` or `openssl` 3 is needed");
    // One that is too old, and one that says yes to everything but is no openssl.
    let old = bare.join("openssl");
    fs_err::write(&old, "#!/bin/sh\necho 'OpenSSL 1.1.1w'\n").unwrap();
    fs_err::set_permissions(&old, std::fs::Permissions::from_mode(0o755)).unwrap();
    signed.refuses(&key, Some(&bare), "openssl 3 or minisign is needed; here is OpenSSL 1.1.1w");
    fs_err::remove_file(bare.join("sha256sum")).unwrap();
    signed.refuses(&key, Some(&bare), "`sha256sum` is needed");
}
