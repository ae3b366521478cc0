//! Whether a release is believed. In this order: a key that the user named, keys pinned for this
//! prefix, keys of this build; and where none of these exists, the first signed release pins its
//! key. A signature that does not fit is an error whatever the flags say; an unsigned release needs
//! `--allow-unsigned`.

use crate::disk::Disk;
use crate::release::Signed;
use crate::{InstallError, InstallRoot};
use std::path::{Path, PathBuf};
use strata_manifest::{
    Document, KEYS_FILE, KeyList, PinnedTrust, PublicKey, RELEASE_FILE, Release, Trust, TrustRoot, UtcTime,
};
use strata_package::sign::verify_bytes;

/// Keys that are believed before any release was seen.
#[derive(Debug, Clone, Default)]
pub struct KeySource {
    /// `--key`.
    pub named: Vec<PublicKey>,
    /// Compiled in.
    pub built_in: Vec<PublicKey>,
}

impl KeySource {
    /// Reads a key as people have it: a `.pub` file of minisign, its base64 line alone, or a trust root.
    pub fn parse_named(text: &str, path: &Path) -> Result<Vec<PublicKey>, InstallError> {
        if text.trim_start().starts_with('{') {
            return Ok(TrustRoot::parse(text, path)?.roots.into_iter().filter(|key| !key.revoked).collect());
        }
        let lines =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("untrusted comment"));
        let keys: Vec<PublicKey> = lines.filter_map(public_key).collect();
        if keys.is_empty() {
            return Err(InstallError::Untrusted {
                place: path.display().to_string(),
                why: format!("`{}` holds no minisign public key", path.display()),
                trusted: Vec::new(),
                signed: true,
            });
        }
        Ok(keys)
    }
}

/// What is allowed by flags, and the moment that expiry is judged at.
#[derive(Debug, Clone, Copy)]
pub struct TrustPolicy {
    pub allow_unsigned: bool,
    pub allow_expired: bool,
    pub now: UtcTime,
}

/// The pins of a prefix as a file.
#[derive(Debug, Clone)]
pub struct Pins;

impl Pins {
    fn path(root: &InstallRoot) -> PathBuf {
        root.state().join("trust.json")
    }

    /// Nothing is pinned where no file is; a damaged file is an error and never "nothing".
    pub fn read(root: &InstallRoot) -> Result<PinnedTrust, InstallError> {
        let path = Pins::path(root);
        if !path.exists() {
            return Ok(PinnedTrust::empty());
        }
        // Taken for empty, it would let an older release and other keys in: that is for a person to decide.
        PinnedTrust::read(&path).map_err(|source| InstallError::State {
            source,
            hint: format!(
                "it holds the keys that are trusted here and the newest release that was seen; to begin anew with `--key FILE`: move `{}` aside",
                path.display()
            ),
        })
    }

    /// Writes what was decided; counters that another run has raised since stay raised.
    pub(crate) fn advance(root: &InstallRoot, disk: &Disk, pins: &PinnedTrust) -> Result<(), InstallError> {
        let path = Pins::path(root);
        let there = Pins::read(root)?;
        let mut pins = pins.clone();
        pins.highest_serial = pins.highest_serial.max(there.highest_serial);
        pins.highest_keys_serial = pins.highest_keys_serial.max(there.highest_keys_serial);
        disk.write_atomic(&path, pins.to_text().as_bytes()).map_err(|source| InstallError::write(&path, "pin", source))
    }
}

/// Says by which right a key is believed.
type Make = fn(String) -> Trust;

/// Decides, and says what is to be pinned once the release is installed.
pub fn check_release(
    signed: &Signed,
    release: &Release,
    place: &str,
    keys: &KeySource,
    pins: &PinnedTrust,
    policy: TrustPolicy,
) -> Result<(Trust, PinnedTrust), InstallError> {
    let mut after = pins.clone();
    after.highest_serial = after.highest_serial.max(release.serial);
    let trust = match &signed.index_signature {
        None if policy.allow_unsigned => Trust::Unsigned,
        None => {
            return Err(InstallError::Untrusted {
                place: place.to_owned(),
                why: "the release is not signed".to_owned(),
                trusted: trusted_ids(keys, pins),
                signed: false,
            });
        }
        Some(signature) => by_signature(signed, signature, place, keys, pins, &mut after, policy.now)?,
    };
    if release.expires <= policy.now && !policy.allow_expired {
        return Err(InstallError::Expired { expired: release.expires.to_string(), now: policy.now.to_string() });
    }
    Ok((trust, after))
}

fn trusted_ids(keys: &KeySource, pins: &PinnedTrust) -> Vec<String> {
    let all = if keys.named.is_empty() && pins.has_keys() {
        pins.roots.iter().chain(&pins.keys).collect::<Vec<_>>()
    } else if keys.named.is_empty() {
        keys.built_in.iter().collect()
    } else {
        keys.named.iter().collect()
    };
    all.into_iter().map(|key| key.id.clone()).collect()
}

fn by_signature(
    signed: &Signed,
    signature: &str,
    place: &str,
    keys: &KeySource,
    pins: &PinnedTrust,
    after: &mut PinnedTrust,
    now: UtcTime,
) -> Result<Trust, InstallError> {
    let refuse = |why: String| InstallError::Untrusted {
        place: place.to_owned(),
        why,
        trusted: trusted_ids(keys, pins),
        signed: true,
    };
    let (roots, direct, make): (&[PublicKey], &[PublicKey], Make) = if !keys.named.is_empty() {
        (&keys.named, &keys.named, |key_id| Trust::NamedKey { key_id })
    } else if pins.has_keys() {
        (&pins.roots, &pins.keys, |key_id| Trust::Pinned { key_id })
    } else {
        (&keys.built_in, &keys.built_in, |key_id| Trust::BuiltIn { key_id })
    };
    if roots.is_empty() && direct.is_empty() {
        return first_use(signed, signature, after, now).map_err(refuse);
    }
    if !keys.named.is_empty() {
        // Whoever names a key trusts it from now on: that is how a change of keys is taken.
        after.roots.clone_from(&keys.named);
        after.keys.clear();
    }
    let all: Vec<PublicKey> = roots.iter().chain(direct).cloned().collect();
    let by_known = match signer(&all, RELEASE_FILE, &signed.index, signature) {
        Ok(key_id) => return Ok(make(key_id)),
        Err(why) => why,
    };
    match listed_keys(signed, roots, after, now).map_err(&refuse)? {
        // Signed neither by a known key nor through a list of one.
        None => Err(refuse(format!("the signature of the index does not count: {by_known}"))),
        Some(list) => signer(&list.keys, RELEASE_FILE, &signed.index, signature)
            .map(make)
            .map_err(|why| refuse(format!("the signature of the index does not count: {why}"))),
    }
}

/// The key list, when there is one; it has to be signed by one of the roots.
fn listed_keys(
    signed: &Signed,
    roots: &[PublicKey],
    after: &mut PinnedTrust,
    now: UtcTime,
) -> Result<Option<KeyList>, String> {
    let (Some(bytes), Some(signature)) = (&signed.keys, &signed.keys_signature) else { return Ok(None) };
    signer(roots, KEYS_FILE, bytes, signature)
        .map_err(|why| format!("the signature of its key list does not count: {why}"))?;
    let list = parse_keys(bytes)?;
    if list.serial < after.highest_keys_serial {
        return Err(format!(
            "its key list has counter {}, and {} was seen here",
            list.serial, after.highest_keys_serial
        ));
    }
    if list.expires <= now {
        return Err(format!("its key list expired at {}", list.expires));
    }
    after.highest_keys_serial = list.serial;
    Ok(Some(list))
}

fn parse_keys(bytes: &[u8]) -> Result<KeyList, String> {
    let text = String::from_utf8_lossy(bytes);
    KeyList::parse(&text, Path::new(KEYS_FILE)).map_err(|error| error.to_string())
}

/// No key is known: the release's own keys are taken, once, and said so. What is pinned is the root
/// where the folder shows one, else the keys of its list.
fn first_use(signed: &Signed, signature: &str, after: &mut PinnedTrust, now: UtcTime) -> Result<Trust, String> {
    let lines = signed.root.iter().flat_map(|text| text.lines());
    let roots: Vec<PublicKey> = lines.filter_map(|line| public_key(line.trim())).collect();
    if let Ok(key_id) = signer(&roots, RELEASE_FILE, &signed.index, signature) {
        after.roots = roots;
        return Ok(Trust::FirstUse { key_id });
    }
    let none =
        || "it is signed, and neither a key for it is known here nor does it bring a list of its keys".to_owned();
    let list = if roots.is_empty() {
        parse_keys(signed.keys.as_ref().ok_or_else(none)?)?
    } else {
        listed_keys(signed, &roots, after, now)?.ok_or_else(none)?
    };
    let key_id = signer(&list.keys, RELEASE_FILE, &signed.index, signature)
        .map_err(|why| format!("the signature of the index does not count: {why}"))?;
    if roots.is_empty() {
        after.keys = list.keys;
        after.highest_keys_serial = list.serial;
    } else {
        after.roots = roots;
    }
    Ok(Trust::FirstUse { key_id })
}

/// The key among these that made the signature over the bytes of the file of that name, or why none did.
fn signer(keys: &[PublicKey], name: &str, bytes: &[u8], signature: &str) -> Result<String, String> {
    verify_bytes(keys, name, bytes, signature).map(|signed| signed.key_id)
}

/// A key from its base64 line, with the number that minisign prints for it.
fn public_key(line: &str) -> Option<PublicKey> {
    let bytes = base64(line).filter(|bytes| bytes.len() == 42 && bytes.starts_with(b"Ed"))?;
    let id: Vec<String> = bytes.get(2..10)?.iter().rev().map(|byte| format!("{byte:02X}")).collect();
    Some(PublicKey { id: id.concat(), public: line.to_owned(), comment: String::new(), revoked: false })
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let (mut buffer, mut bits) = (0_u32, 0);
    for c in text.trim_end_matches('=').bytes() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        buffer = buffer << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((buffer >> bits & 0xff) as u8);
        }
    }
    Some(out)
}
