//! Whom a prefix believes.

use crate::support::{control, engine, release};
use minisign::KeyPair;
use std::io::Cursor;
use std::path::Path;
use strata_diag::Diagnose;
use strata_install::{Folder, InstallError, KeySource, TrustPolicy, check_release};
use strata_manifest::{Document, KeyList, PinnedTrust, PublicKey, RELEASE_FILE, Trust, UtcTime};

fn key() -> KeyPair {
    KeyPair::generate_unencrypted_keypair().unwrap()
}

fn public(key: &KeyPair) -> PublicKey {
    KeySource::parse_named(&key.pk.to_box().unwrap().to_string(), Path::new("key.pub")).unwrap().remove(0)
}

fn sign(folder: &Path, name: &str, key: &KeyPair) {
    let bytes = fs_err::read(folder.join(name)).unwrap();
    let signature = minisign::sign(Some(&key.pk), &key.sk, Cursor::new(bytes), None, None).unwrap();
    fs_err::write(folder.join(format!("{name}.minisig")), signature.into_string()).unwrap();
}

fn keys(folder: &Path, serial: u64, listed: &[PublicKey], root: &KeyPair) {
    let list = KeyList {
        schema: KeyList::SCHEMA.to_owned(),
        serial,
        created: UtcTime::from_seconds(1_700_000_000),
        expires: UtcTime::from_seconds(3_000_000_000),
        keys: listed.to_vec(),
    };
    fs_err::write(folder.join("keys.json"), list.to_text()).unwrap();
    sign(folder, "keys.json", root);
}

const POLICY: fn() -> TrustPolicy =
    || TrustPolicy { allow_unsigned: false, allow_expired: false, now: UtcTime::from_seconds(1_800_000_000) };

fn check(
    folder: &Path,
    sources: &KeySource,
    pins: &PinnedTrust,
    policy: TrustPolicy,
) -> Result<(Trust, PinnedTrust), InstallError> {
    let folder = Folder::new(folder);
    let signed = folder.signed().unwrap();
    let release = folder.parse(&signed).unwrap();
    check_release(&signed, &release, "here", sources, pins, policy)
}

fn made(folder: &Path, serial: u64) {
    release(folder, "0.1.0", serial, &[control("0.1.0"), engine("0.1.0", "cpu", &[], "pass cpu")]);
}

#[test]
fn unsigned_needs_the_flag_and_a_wrong_signature_is_refused_with_it() {
    let folder = tempfile::tempdir().unwrap();
    made(folder.path(), 1);
    let (none, pins) = (KeySource::default(), PinnedTrust::empty());
    let error = check(folder.path(), &none, &pins, POLICY()).unwrap_err();
    assert_eq!(error.code().id, "S0702", "{error}");
    let lenient = TrustPolicy { allow_unsigned: true, ..POLICY() };
    assert_eq!(check(folder.path(), &none, &pins, lenient).unwrap().0, Trust::Unsigned);
    // Signed, then changed: the flag for unsigned ones does not help.
    let (release_key, root) = (key(), key());
    sign(folder.path(), RELEASE_FILE, &release_key);
    keys(folder.path(), 1, &[public(&release_key)], &root);
    let index = folder.path().join(RELEASE_FILE);
    let changed = fs_err::read_to_string(&index).unwrap().replace("\"serial\": 1", "\"serial\": 9");
    fs_err::write(&index, changed).unwrap();
    let error = check(folder.path(), &none, &pins, lenient).unwrap_err();
    assert_eq!(error.code().id, "S0702", "{error}");
}

#[test]
fn the_first_release_pins_its_keys_and_another_key_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    made(folder.path(), 5);
    let (release_key, root, stranger) = (key(), key(), key());
    sign(folder.path(), RELEASE_FILE, &release_key);
    keys(folder.path(), 1, &[public(&release_key)], &root);
    let none = KeySource::default();
    let (trust, pins) = check(folder.path(), &none, &PinnedTrust::empty(), POLICY()).unwrap();
    assert_eq!(trust, Trust::FirstUse { key_id: public(&release_key).id });
    assert_eq!((pins.highest_serial, pins.has_keys()), (5, true));
    let (trust, _) = check(folder.path(), &none, &pins, POLICY()).unwrap();
    assert_eq!(trust, Trust::Pinned { key_id: public(&release_key).id });

    // Somebody else's release with a list of their own.
    sign(folder.path(), RELEASE_FILE, &stranger);
    keys(folder.path(), 2, &[public(&stranger)], &stranger);
    let error = check(folder.path(), &none, &pins, POLICY()).unwrap_err();
    assert_eq!(error.code().id, "S0702", "{error}");
    assert!(error.facts().iter().any(|(_, value)| value.contains(&public(&release_key).id)), "{:?}", error.facts());
    // Named by hand it is believed, and is what is pinned from then on.
    let named = KeySource { named: vec![public(&stranger)], built_in: Vec::new() };
    let (trust, pins) = check(folder.path(), &named, &pins, POLICY()).unwrap();
    assert_eq!(trust, Trust::NamedKey { key_id: public(&stranger).id });
    assert!(check(folder.path(), &none, &pins, POLICY()).is_ok());
}

#[test]
fn a_root_replaces_and_withdraws_release_keys() {
    let folder = tempfile::tempdir().unwrap();
    made(folder.path(), 1);
    let (first, second, root) = (key(), key(), key());
    let built_in = KeySource { named: Vec::new(), built_in: vec![public(&root)] };
    sign(folder.path(), RELEASE_FILE, &first);
    keys(folder.path(), 1, &[public(&first)], &root);
    let (trust, pins) = check(folder.path(), &built_in, &PinnedTrust::empty(), POLICY()).unwrap();
    assert_eq!(trust, Trust::BuiltIn { key_id: public(&first).id });
    // A later list withdraws the first key.
    let revoked = PublicKey { revoked: true, ..public(&first) };
    keys(folder.path(), 2, &[revoked, public(&second)], &root);
    assert!(check(folder.path(), &built_in, &pins, POLICY()).is_err());
    sign(folder.path(), RELEASE_FILE, &second);
    let (_, pins) = check(folder.path(), &built_in, &pins, POLICY()).unwrap();
    assert_eq!(pins.highest_keys_serial, 2);
    // The old list comes back: its counter was passed.
    sign(folder.path(), RELEASE_FILE, &first);
    keys(folder.path(), 1, &[public(&first)], &root);
    let error = check(folder.path(), &built_in, &pins, POLICY()).unwrap_err();
    assert!(error.to_string().contains("counter 1, and 2 was seen"), "{error}");
}

#[test]
fn an_expired_index_needs_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    made(folder.path(), 1);
    let late = TrustPolicy { allow_unsigned: true, allow_expired: false, now: UtcTime::from_seconds(4_100_000_000) };
    let (none, pins) = (KeySource::default(), PinnedTrust::empty());
    let error = check(folder.path(), &none, &pins, late).unwrap_err();
    assert_eq!(error.code().id, "S0704", "{error}");
    let lenient = TrustPolicy { allow_expired: true, ..late };
    assert!(check(folder.path(), &none, &pins, lenient).is_ok());
}

#[test]
fn garbage_is_no_key_and_no_signature() {
    let folder = tempfile::tempdir().unwrap();
    made(folder.path(), 1);
    for text in ["", "hello", "RWQ", "{\"schema\": \"x\"}"] {
        assert!(KeySource::parse_named(text, Path::new("k")).is_err(), "{text}");
    }
    let named = KeySource { named: vec![public(&key())], built_in: Vec::new() };
    for text in ["", "x", "untrusted comment: x\nAAAA\ntrusted comment: y\nBBBB\n"] {
        fs_err::write(folder.path().join("release.json.minisig"), text).unwrap();
        let error = check(folder.path(), &named, &PinnedTrust::empty(), POLICY()).unwrap_err();
        assert_eq!(error.code().id, "S0702", "{error}");
    }
}
