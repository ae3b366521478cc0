//! The key list of a release folder: written and signed in one go, and never with a lower number.

use crate::PackageError;
use crate::sign::{SigningKey, signature_path};
use std::path::Path;
use strata_manifest::{Document, KEYS_FILE, KeyList};

/// Writes `keys.json` and its signature by a root key. A list that is there already must have a lower number.
pub fn write_key_list(folder: &Path, list: &KeyList, root: &SigningKey) -> Result<(), PackageError> {
    let path = folder.join(KEYS_FILE);
    let refused = |why: String| Err(PackageError::Release { folder: folder.to_owned(), why });
    if let Some(fault) = list.faults().into_iter().next() {
        return refused(format!("`{KEYS_FILE}`: {fault}"));
    }
    if list.keys.iter().all(|key| key.revoked) {
        return refused(format!("`{KEYS_FILE}` would hold no key that may sign a release"));
    }
    if let Some(key) = list.keys.iter().find(|key| key.id == root.public().id) {
        return refused(format!("key {} is the root key: a release key must be another one", key.id));
    }
    if path.is_file() {
        let earlier = KeyList::read(&path)?;
        if list.serial <= earlier.serial {
            return refused(format!("`{KEYS_FILE}` there has number {}, the new one {}", earlier.serial, list.serial));
        }
    }
    let signature = signature_path(&path);
    if signature.exists() {
        fs_err::remove_file(&signature).map_err(PackageError::unwritable(&signature))?;
    }
    fs_err::create_dir_all(folder).map_err(PackageError::unwritable(folder))?;
    list.write(&path)?;
    root.sign_file(&path, list.created).map(|_| ())
}
