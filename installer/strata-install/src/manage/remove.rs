//! Removing: old generations, and everything. A file goes only when a receipt lists it and it still
//! has the bytes that were installed; all else is the user's and is named.

use crate::apply::is_our_link;
use crate::disk::{Disk, hash_file};
use crate::journal::{self, Journal};
use crate::layout::entries;
use crate::{InstallError, InstallRoot, Observer, RECEIPT_FILE, Step, lock, models};
use std::path::{Path, PathBuf};
use std::time::Duration;
use strata_manifest::Receipt;

/// What a removal did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    pub files: u64,
    pub bytes: u64,
    /// What stayed, and why.
    pub left: Vec<(PathBuf, String)>,
}

/// What is to be removed beside the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uninstall<'a> {
    pub models: bool,
    /// Files that were changed after they were installed go too.
    pub changed_too: bool,
    /// The link to the program, if it leads here.
    pub link: Option<&'a Path>,
}

/// An uninstallation in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uninstalled {
    pub generations: Vec<u64>,
    pub removed: Removed,
    /// The prefix itself is gone: nothing of anybody's was left in it.
    pub prefix_gone: bool,
}

/// A clean-up in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    pub generations: Vec<u64>,
    pub removed: Removed,
    pub archives: u64,
}

fn failed(path: &Path, source: std::io::Error) -> InstallError {
    InstallError::write(path, "remove", source)
}

/// Removes what the receipt of one generation lists, the receipt last, then the empty folders.
fn remove_generation(
    root: &InstallRoot,
    disk: &Disk,
    number: u64,
    changed_too: bool,
    removed: &mut Removed,
) -> Result<(), InstallError> {
    let folder = root.generation(number);
    let receipt: Receipt = match root.receipt(number) {
        Ok(receipt) => receipt,
        Err(InstallError::ReceiptDamaged { .. }) => {
            removed.left.push((folder, "its receipt cannot be read, so whose its files are is not known".to_owned()));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for file in &receipt.files {
        let path = folder.join(&file.path);
        let Ok(metadata) = fs_err::symlink_metadata(&path) else { continue };
        let same = metadata.is_file()
            && metadata.len() == file.size
            && hash_file(&path, &mut |_| {}).is_ok_and(|(_, sha256)| sha256 == file.sha256);
        if !same && (!changed_too || metadata.is_dir()) {
            removed.left.push((path, "changed since it was installed".to_owned()));
            continue;
        }
        match disk.remove_file(&path) {
            Ok(()) => {
                removed.files += 1;
                removed.bytes += metadata.len();
            }
            Err(error) => {
                removed.left.push((path, error.to_string()));
            }
        }
    }
    let could_not = removed.left.iter().any(|(path, why)| path.starts_with(&folder) && !why.starts_with("changed"));
    if !could_not {
        // With what could not be removed the receipt stays, so that a later run can go on.
        let path = folder.join(RECEIPT_FILE);
        disk.remove_file(&path).map_err(|source| failed(&path, source))?;
    }
    let strangers = remove_empty(disk, &folder)?;
    let known: Vec<PathBuf> = removed.left.iter().map(|(path, _)| path.clone()).collect();
    let receipt = folder.join(RECEIPT_FILE);
    let others = strangers.into_iter().filter(|path| !known.contains(path) && *path != receipt);
    removed.left.extend(others.map(|path| (path, "not put there by Strata".to_owned())));
    Ok(())
}

/// Removes empty folders from the leaves up, and names the files that are left.
fn remove_empty(disk: &Disk, folder: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let mut left = Vec::new();
    let Ok(entries) = fs_err::read_dir(folder) else { return Ok(left) };
    for entry in entries {
        let entry = entry.map_err(|source| failed(folder, source))?;
        let is_dir = entry.file_type().map_err(|source| failed(folder, source))?.is_dir();
        if is_dir {
            left.extend(remove_empty(disk, &entry.path())?);
        } else {
            left.push(entry.path());
        }
    }
    disk.remove_dir_if_empty(folder).map_err(|source| failed(folder, source))?;
    left.sort();
    Ok(left)
}

/// Removes generations but the current one and the `keep` newest others, and archives that no kept
/// generation came from.
pub fn collect(
    root: &InstallRoot,
    disk: &Disk,
    keep: usize,
    downloads_too: bool,
    patience: Duration,
) -> Result<Collected, InstallError> {
    if !root.generations().is_dir() {
        return Err(InstallError::NothingInstalled { prefix: root.path().to_owned() });
    }
    let _lock = lock::take(root, disk, patience)?;
    journal::recover(root, disk)?;
    let current = root.current_generation();
    let others: Vec<u64> = root.complete().into_iter().filter(|number| Some(*number) != current).collect();
    let mut collected = Collected::default();
    for number in &others[..others.len().saturating_sub(keep)] {
        remove_generation(root, disk, *number, true, &mut collected.removed)?;
        collected.generations.push(*number);
    }
    let used: Vec<String> = root
        .complete()
        .into_iter()
        .filter_map(|number| root.receipt(number).ok()?.install)
        .flat_map(|record| record.components)
        .map(|component| component.archive)
        .collect();
    // What an unreadable receipt names is not known, and may be needed to repair it.
    let all_read = root.complete().into_iter().all(|number| root.receipt(number).is_ok());
    for name in entries(&root.archives()).into_iter().filter(|name| all_read && !used.contains(name)) {
        let path = root.archives().join(name);
        collected.removed.bytes += fs_err::metadata(&path).map_or(0, |metadata| metadata.len());
        disk.remove_file(&path).map_err(|source| failed(&path, source))?;
        collected.archives += 1;
    }
    if downloads_too {
        disk.remove_tree(&root.downloads()).map_err(|source| failed(&root.downloads(), source))?;
    }
    Ok(collected)
}

/// Removes the installation: the link, `current`, every generation, our own state, and models when asked.
/// Stopped half way, the next uninstallation goes on.
pub fn uninstall(
    root: &InstallRoot,
    disk: &Disk,
    what: &Uninstall<'_>,
    patience: Duration,
    observer: &dyn Observer,
) -> Result<Uninstalled, InstallError> {
    if !root.generations().is_dir() && !root.state().is_dir() {
        return Err(InstallError::NothingInstalled { prefix: root.path().to_owned() });
    }
    let lock = lock::take(root, disk, patience)?;
    journal::recover(root, disk)?;
    let journal = Journal::open(root, disk, "uninstall", root.current_generation().unwrap_or(0));
    journal.begin(Step::Switch, observer)?;
    if let Some(link) = what.link {
        let here = fs_err::read_link(link).is_ok_and(|target| target.starts_with(root.path()));
        if here && is_our_link(link) {
            disk.remove_file(link).map_err(|source| failed(link, source))?;
        }
    }
    let current = root.current();
    disk.remove_file(&current).map_err(|source| failed(&current, source))?;
    observer.done(Step::Switch);
    let mut done = Uninstalled::default();
    for number in root.complete() {
        remove_generation(root, disk, number, what.changed_too, &mut done.removed)?;
        done.generations.push(number);
        observer.note(&format!("generation {number} is removed"));
    }
    if what.models {
        let stayed = models::remove(root, disk, None)?;
        done.removed.left.extend(stayed);
    } else if root.model_list().is_file() {
        done.removed.left.push((root.models(), "models stay unless `--models` is given".to_owned()));
    }
    remove_state(root, disk)?;
    let could_not = done.removed.left.iter().filter(|(_, why)| is_failure(why)).cloned().collect::<Vec<_>>();
    if !could_not.is_empty() {
        return Err(InstallError::Left { left: could_not });
    }
    journal_gone(root, disk)?;
    drop(lock);
    let lock_file = root.state().join("lock");
    disk.remove_file(&lock_file).map_err(|source| failed(&lock_file, source))?;
    for folder in [root.state(), root.generations(), root.path().to_owned()] {
        done.prefix_gone = disk.remove_dir_if_empty(&folder).map_err(|source| failed(&folder, source))?;
    }
    for name in entries(root.path()) {
        let path = root.path().join(name);
        if !done.removed.left.iter().any(|(left, _)| left.starts_with(&path)) {
            // What an earlier run left below this folder, and said so, may be both.
            let why = if path == root.generations() {
                "holds files that an earlier run left"
            } else {
                "not put there by Strata"
            };
            done.removed.left.push((path, why.to_owned()));
        }
    }
    Ok(done)
}

fn is_failure(why: &str) -> bool {
    !["changed", "not put there", "models stay", "yours", "its receipt"].iter().any(|start| why.starts_with(start))
}

/// Our own files in `state`; others' stay.
fn remove_state(root: &InstallRoot, disk: &Disk) -> Result<(), InstallError> {
    for folder in [root.archives(), root.downloads()] {
        disk.remove_tree(&folder).map_err(|source| failed(&folder, source))?;
    }
    let pins = root.state().join("trust.json");
    disk.remove_file(&pins).map_err(|source| failed(&pins, source))
}

fn journal_gone(root: &InstallRoot, disk: &Disk) -> Result<(), InstallError> {
    let path = root.state().join("journal.json");
    disk.remove_file(&path).map_err(|source| failed(&path, source))
}
