//! Changes to a signed release folder.

use crate::{Rng, at, found};
use std::path::{Path, PathBuf};
use strata_manifest::{Document, KeyList, PublicKey, RELEASE_FILE, Release, SUMS_FILE, TrustRoot, UtcTime};
use strata_package::index::{IndexOptions, index, sums_text};
use strata_package::keys::write_key_list;
use strata_package::sign::{SigningKey, keygen};
use strata_package::verify::{TrustAnchor, VerifyOptions};

struct Keys {
    root: SigningKey,
    release: SigningKey,
    stranger: SigningKey,
}

fn key(scene: &Path, name: &str) -> SigningKey {
    keygen(&scene.join(name), None).unwrap();
    SigningKey::read(&scene.join(format!("{name}.key")), &mut || panic!("no password is needed")).unwrap()
}

fn list(serial: u64, expires: u64, keys: Vec<PublicKey>) -> KeyList {
    let time = UtcTime::from_seconds;
    let schema = KeyList::SCHEMA.to_owned();
    KeyList { schema, serial, created: time(1_700_000_000), expires: time(expires), keys }
}

fn sign_all(folder: &Path, key: &SigningKey) {
    for name in [RELEASE_FILE, SUMS_FILE] {
        key.sign_file(&folder.join(name), at()).unwrap();
    }
}

/// Writes another index with its checksum list, signed by a key.
fn restate(folder: &Path, key: &SigningKey, change: impl FnOnce(&mut Release)) {
    let mut release = Release::read(&folder.join(RELEASE_FILE)).unwrap();
    change(&mut release);
    release.write(&folder.join(RELEASE_FILE)).unwrap();
    fs_err::write(folder.join(SUMS_FILE), sums_text(&release)).unwrap();
    sign_all(folder, key);
}

type Told<'a> = dyn FnMut(&str, &str, Option<Vec<&'static str>>) + 'a;

pub(crate) fn mutants(archives: &Path, scene: &Path, rng: &mut Rng, tell: &mut Told<'_>) {
    let keys = Keys { root: key(scene, "root"), release: key(scene, "release"), stranger: key(scene, "stranger") };
    let sound = scene.join("release");
    copy(archives, &sound);
    let time = UtcTime::from_seconds;
    let options = IndexOptions {
        created: time(1_700_000_000),
        expires: time(1_800_000_000),
        serial: Some(5),
        models: Vec::new(),
    };
    index(&sound, &options).unwrap();
    write_key_list(&sound, &list(3, 1_800_000_000, vec![keys.release.public()]), &keys.root).unwrap();
    sign_all(&sound, &keys.release);
    let roots = TrustRoot { schema: TrustRoot::SCHEMA.to_owned(), roots: vec![keys.root.public()] };
    let verify = VerifyOptions {
        trust: Some(TrustAnchor::Root(roots)),
        lowest_serial: Some(5),
        threads: 1,
        reencode_bytes: 0,
        ..VerifyOptions::at(at())
    };
    assert_eq!(found(&sound, &verify), None, "the sound release");
    // Without a key nothing can be said about who made it.
    assert_eq!(found(&sound, &VerifyOptions { trust: None, ..verify.clone() }), Some(vec!["S0529"]));
    let mut try_one = |kind: &str, what: &str, change: &mut dyn FnMut(&Path)| {
        let folder = scene.join("release-mutant");
        copy(&sound, &folder);
        change(&folder);
        tell(&format!("release {kind}"), what, found(&folder, &verify));
        fs_err::remove_dir_all(&folder).unwrap();
    };
    let names: Vec<String> =
        fs_err::read_dir(&sound).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    for name in &names {
        // A release without its checksum list or without one format is another release, not a damaged one.
        try_one("file dropped", name, &mut |folder| fs_err::remove_file(folder.join(name)).unwrap());
        for round in 0..12 {
            let bytes = fs_err::read(sound.join(name)).unwrap();
            // The first line of a signature is anybody's comment.
            let first =
                if name.ends_with(".minisig") { bytes.iter().position(|&byte| byte == b'\n').unwrap() + 1 } else { 0 };
            let (place, bit) = (first + rng.below(bytes.len() - first - 1), rng.below(8));
            try_one("bit", &format!("{name} byte {place} bit {bit}, {round}"), &mut |folder| {
                let mut bytes = bytes.clone();
                bytes[place] ^= 1 << bit;
                fs_err::write(folder.join(name), bytes).unwrap();
            });
        }
        try_one("tail", name, &mut |folder| {
            let bytes = [fs_err::read(folder.join(name)).unwrap(), b"\nmore".to_vec()].concat();
            fs_err::write(folder.join(name), bytes).unwrap();
        });
        try_one("emptied", name, &mut |folder| fs_err::write(folder.join(name), "").unwrap());
    }
    stated(&keys, &mut try_one);
}

type TryOne<'a> = dyn FnMut(&str, &str, &mut dyn FnMut(&Path)) + 'a;

fn stated(keys: &Keys, try_one: &mut TryOne<'_>) {
    let time = UtcTime::from_seconds;
    try_one("signed by a stranger", "index", &mut |folder| sign_all(folder, &keys.stranger));
    try_one("signed by a stranger", "root key", &mut |folder| sign_all(folder, &keys.root));
    try_one("replayed", "lower number", &mut |folder| restate(folder, &keys.release, |release| release.serial = 4));
    try_one("replayed", "expired", &mut |folder| {
        restate(folder, &keys.release, |release| release.expires = time(1_700_000_001));
    });
    try_one("key list", "expired", &mut |folder| {
        write_key_list(folder, &list(4, 1_700_000_001, vec![keys.release.public()]), &keys.root).unwrap();
    });
    try_one("key list", "by a stranger", &mut |folder| {
        write_key_list(folder, &list(4, 1_800_000_000, vec![keys.release.public()]), &keys.stranger).unwrap();
    });
    try_one("key list", "without the key", &mut |folder| {
        write_key_list(folder, &list(4, 1_800_000_000, vec![keys.stranger.public()]), &keys.root).unwrap();
    });
    try_one("key list", "key withdrawn", &mut |folder| {
        let withdrawn = PublicKey { revoked: true, ..keys.release.public() };
        write_key_list(folder, &list(4, 1_800_000_000, vec![withdrawn, keys.stranger.public()]), &keys.root).unwrap();
    });
    try_one("signatures swapped", "index and sums", &mut |folder| {
        let (a, b) = (folder.join("release.json.minisig"), folder.join("SHA256SUMS.txt.minisig"));
        let text = fs_err::read(&a).unwrap();
        fs_err::copy(&b, &a).unwrap();
        fs_err::write(&b, text).unwrap();
    });
    for (what, change) in [
        ("version", (|release: &mut Release| release.version = "9.9.9".parse().unwrap()) as fn(&mut Release)),
        ("component's version", |release| {
            release.version = "9.9.9".parse().unwrap();
            release.components[0].version = "9.9.9".parse().unwrap();
        }),
        ("digest", |release| release.components[0].archives[0].sha256 = strata_manifest::Sha256Digest::of_bytes(b"")),
        ("size", |release| release.components[0].archives[0].size += 1),
        ("manifest digest", |release| {
            release.components[0].manifest_sha256 = strata_manifest::Sha256Digest::of_bytes(b"");
        }),
        ("unpacked size", |release| release.components[0].unpacked_bytes += 1),
        ("targets", |release| release.components[0].gpu_targets.push("gfx906".to_owned())),
        ("floor", |release| release.components[0].libc_floor = Some("2.99".to_owned())),
        ("abi", |release| release.components[0].abi = None),
        ("backend", |release| release.components[0].backend = Some("cuda".to_owned())),
        ("processor", |release| "aarch64".clone_into(&mut release.components[0].cpu_arch)),
        ("format", |release| "zip".clone_into(&mut release.components[0].archives[0].format)),
        ("an archive less", |release| {
            release.components[0].archives.pop();
        }),
        ("a file that is not there", |release| {
            let mut archive = release.components[0].archives[0].clone();
            archive.path = Some("strata-engine-0.1.0-linux-x86_64-other.tar.gz".parse().unwrap());
            release.components[0].archives.push(archive);
        }),
    ] {
        try_one("index says otherwise", what, &mut |folder| restate(folder, &keys.release, change));
    }
    for (from, to) in [("  strata", " *strata"), ("tar.gz", "tar.xz"), ("\n", "\r\n"), ("a", "b")] {
        try_one("sums say otherwise", from, &mut |folder| {
            let path = folder.join(SUMS_FILE);
            let text = fs_err::read_to_string(&path).unwrap();
            fs_err::write(&path, text.replacen(from, to, 1)).unwrap();
            keys.release.sign_file(&path, at()).unwrap();
        });
    }
    try_one("unlisted archive", "a copy", &mut |folder| {
        let archive = fs_err::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|end| end == "zip"));
        fs_err::copy(archive.unwrap(), folder.join("strata-extra-0.1.0-linux-x86_64.zip")).unwrap();
    });
}

fn copy(from: &Path, to: &Path) {
    fs_err::create_dir_all(to).unwrap();
    let paths: Vec<PathBuf> = fs_err::read_dir(from).unwrap().map(|entry| entry.unwrap().path()).collect();
    for path in paths {
        fs_err::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}
