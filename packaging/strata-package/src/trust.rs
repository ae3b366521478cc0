//! Whether a release is to be believed: trust root → key list → release, each with its signature,
//! date and counter. It reads no network and keeps no state; callers say what they have seen.

use crate::PackageError;
use crate::sign::{self, Signed, read_small, signature_path};
use std::path::Path;
use strata_manifest::{
    Document, KEYS_FILE, KeyList, MAX_DOCUMENT_BYTES, PublicKey, RELEASE_FILE, Release, SUMS_FILE, TrustRoot, UtcTime,
};

/// The highest counters that were accepted before; `None`: nothing was yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    pub keys: Option<u64>,
    pub release: Option<u64>,
}

/// A release that is believed, and because of whom.
#[derive(Debug, Clone)]
pub struct Trusted {
    pub release: Release,
    pub keys: KeyList,
    /// The root key that signed the key list.
    pub root: Signed,
    /// The key that signed the release.
    pub signed: Signed,
}

/// Checks the key list's bytes against the root.
pub fn key_list(
    root: &TrustRoot,
    text: &str,
    signature: &str,
    now: UtcTime,
    seen: Seen,
) -> Result<(KeyList, Signed), PackageError> {
    let path = Path::new(KEYS_FILE);
    let signed = verified(&root.roots, path, text, signature)?;
    let list = KeyList::parse(text, path)?;
    fresh(path, list.serial, seen.keys, list.expires, now)?;
    Ok((list, signed))
}

/// Checks the index's bytes against the keys of a list.
pub fn release(
    keys: &[PublicKey],
    text: &str,
    signature: &str,
    now: UtcTime,
    seen: Seen,
) -> Result<(Release, Signed), PackageError> {
    let path = Path::new(RELEASE_FILE);
    let signed = verified(keys, path, text, signature)?;
    let release = Release::parse(text, path)?;
    fresh(path, release.serial, seen.release, release.expires, now)?;
    Ok((release, signed))
}

/// The whole chain for a release folder, the signature of its checksum list included, if that is there.
pub fn folder(folder: &Path, root: &TrustRoot, now: UtcTime, seen: Seen) -> Result<Trusted, PackageError> {
    let read = |name: &str| -> Result<(String, String), PackageError> {
        let path = folder.join(name);
        let unreadable = |source| PackageError::Unreadable { path: path.clone(), source };
        if fs_err::metadata(&path).map_err(unreadable)?.len() > MAX_DOCUMENT_BYTES {
            return Err(PackageError::Trust { path, why: format!("it has more than {MAX_DOCUMENT_BYTES} bytes") });
        }
        Ok((fs_err::read_to_string(&path).map_err(unreadable)?, read_small(&signature_path(&path))?))
    };
    let (text, signature) = read(KEYS_FILE)?;
    let (keys, by_root) = key_list(root, &text, &signature, now, seen)?;
    let (text, signature) = read(RELEASE_FILE)?;
    let (release, signed) = release(&keys.keys, &text, &signature, now, seen)?;
    if folder.join(SUMS_FILE).is_file() {
        let (text, signature) = read(SUMS_FILE)?;
        verified(&keys.keys, Path::new(SUMS_FILE), &text, &signature)?;
    }
    Ok(Trusted { release, keys, root: by_root, signed })
}

fn verified(keys: &[PublicKey], path: &Path, text: &str, signature: &str) -> Result<Signed, PackageError> {
    let name = path.to_string_lossy();
    let wrong = |why: String| PackageError::Signature { path: path.to_owned(), why };
    sign::verify_bytes(keys, &name, text.as_bytes(), signature).map_err(wrong)
}

fn fresh(path: &Path, serial: u64, seen: Option<u64>, expires: UtcTime, now: UtcTime) -> Result<(), PackageError> {
    let refused = |why: String| Err(PackageError::Trust { path: path.to_owned(), why });
    match seen {
        Some(seen) if serial < seen => refused(format!("its number is {serial}, and {seen} was seen before")),
        _ if now >= expires => refused(format!("it expired at {expires}, and it is {now}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::SigningKey;
    use strata_diag::Diagnose;

    struct Keys {
        folder: tempfile::TempDir,
    }

    impl Keys {
        fn make(&self, name: &str) -> SigningKey {
            sign::keygen(&self.folder.path().join(name), None).unwrap();
            let mut none = || panic!("nobody asked for a password");
            SigningKey::read(&self.folder.path().join(format!("{name}.key")), &mut none).unwrap()
        }
    }

    fn list(serial: u64, keys: Vec<PublicKey>) -> KeyList {
        let at = UtcTime::from_seconds;
        KeyList { schema: KeyList::SCHEMA.to_owned(), serial, created: at(1000), expires: at(9000), keys }
    }

    fn index(serial: u64) -> Release {
        let at = UtcTime::from_seconds;
        Release {
            schema: Release::SCHEMA.to_owned(),
            version: "0.1.0".parse().unwrap(),
            serial,
            created: at(1000),
            expires: at(5000),
            components: Vec::new(),
            models: Vec::new(),
        }
    }

    #[test]
    fn the_chain_holds_and_each_broken_link_is_named() {
        let keys = Keys { folder: tempfile::tempdir().unwrap() };
        let (root, old, new, stranger) = (keys.make("root"), keys.make("old"), keys.make("new"), keys.make("stranger"));
        let trust_root = TrustRoot { schema: TrustRoot::SCHEMA.to_owned(), roots: vec![root.public()] };
        let (at, seen) = (UtcTime::from_seconds(2000), Seen::default());
        let sign = |key: &SigningKey, name: &str, text: &str| key.sign(name, text.as_bytes(), at).unwrap();

        let text = list(3, vec![PublicKey { revoked: true, ..old.public() }, new.public()]).to_text();
        let (keys, _) = key_list(&trust_root, &text, &sign(&root, KEYS_FILE, &text), at, seen).unwrap();
        let by_stranger = key_list(&trust_root, &text, &sign(&stranger, KEYS_FILE, &text), at, seen).unwrap_err();
        assert_eq!(by_stranger.code().id, "S0567");
        let stale = Seen { keys: Some(4), ..seen };
        let error = key_list(&trust_root, &text, &sign(&root, KEYS_FILE, &text), at, stale).unwrap_err();
        assert_eq!(error.code().id, "S0568");

        let text = index(7).to_text();
        let check = |key: &SigningKey, now: u64, seen: Seen| {
            let now = UtcTime::from_seconds(now);
            release(&keys.keys, &text, &sign(key, RELEASE_FILE, &text), now, seen).map(|(release, _)| release.serial)
        };
        assert_eq!(check(&new, 2000, seen).unwrap(), 7);
        assert_eq!(check(&new, 2000, Seen { release: Some(7), ..seen }).unwrap(), 7);
        let said = |result: Result<u64, PackageError>| result.unwrap_err().to_string();
        assert!(said(check(&old, 2000, seen)).contains("withdrawn"));
        assert!(said(check(&stranger, 2000, seen)).contains("known are"));
        assert!(said(check(&root, 2000, seen)).contains("known are"), "a root key signs key lists only");
        assert!(said(check(&new, 2000, Seen { release: Some(8), ..seen })).contains("8 was seen before"));
        assert!(said(check(&new, 5000, seen)).contains("expired"));
    }
}
