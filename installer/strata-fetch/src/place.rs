//! The place that a file is for: whether it is there already, who else is fetching it, whether it fits.

use crate::journal::{NO_FOLLOW, paths};
use crate::{CancelFlag, FetchError, Fetched, Observer, Request};
use fs_err::os::unix::fs::OpenOptionsExt;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use strata_manifest::Sha256Digest;

/// The file at its place, when it is the right one. Without a digest nothing can be said about it.
pub(crate) fn there(request: &Request, observer: &dyn Observer) -> Result<Option<Fetched>, FetchError> {
    let (Some(size), Some(sha256)) = (request.size, request.sha256) else { return Ok(None) };
    if !fs_err::metadata(&request.to).is_ok_and(|metadata| metadata.is_file() && metadata.len() == size) {
        return Ok(None);
    }
    let unreadable = |source| FetchError::Unreadable { path: request.to.clone(), source };
    let (got, _) = Sha256Digest::of_reader(fs_err::File::open(&request.to).map_err(unreadable)?).map_err(unreadable)?;
    if got != sha256 {
        observer.note(&format!("`{}` is there and has other bytes; it is fetched again", request.to.display()));
        return Ok(None);
    }
    let locked = request.pin.clone();
    Ok(Some(Fetched { path: request.to.clone(), size, sha256, source: "there already".to_owned(), locked }))
}

/// Refuses, before the first byte, what could not be replaced at the end.
pub(crate) fn usable(to: &Path) -> Result<(), FetchError> {
    let bad = |why: &str| {
        let source = std::io::Error::other(why.to_owned());
        Err(FetchError::Disk { path: to.to_owned(), source, kept: 0 })
    };
    if to.file_name().is_none() {
        return bad("it names no file");
    }
    match fs_err::symlink_metadata(to) {
        Ok(metadata) if metadata.is_dir() => bad("there is a folder of that name"),
        Ok(metadata) if !metadata.is_file() && !metadata.is_symlink() => {
            bad("there is something of that name that is no ordinary file")
        }
        _ => Ok(()),
    }
}

/// Held while a file is fetched; its own file goes with it.
#[derive(Debug)]
pub(crate) struct FileLock {
    path: PathBuf,
    held: Option<fs_err::File>,
    /// Where the bytes gather, and their journal.
    pub(crate) part: PathBuf,
    pub(crate) journal: PathBuf,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if self.held.is_some() {
            let _ = fs_err::remove_file(&self.path);
        }
    }
}

/// Keeps two runs from fetching one file twice. Correctness does not hang on it: where the file system
/// has no locks, each run has a part file of its own.
pub(crate) fn lock(request: &Request, observer: &dyn Observer, cancel: &CancelFlag) -> Result<FileLock, FetchError> {
    let disk = |path: &Path, source| FetchError::Disk { path: path.to_owned(), source, kept: 0 };
    usable(&request.to)?;
    if let Some(parent) = request.to.parent() {
        fs_err::create_dir_all(parent).map_err(|error| disk(parent, error))?;
    }
    let (part, journal) = paths(&request.to);
    let path = part.with_extension("part.lock");
    let mut waited = false;
    loop {
        let mut options = fs_err::OpenOptions::new();
        options.custom_flags(NO_FOLLOW);
        let file = options.create(true).truncate(false).write(true).open(&path).map_err(|error| disk(&path, error))?;
        match flock(file.file(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                if cancel.is_set() {
                    return Err(FetchError::Cancelled { name: request.name.clone() });
                }
                if !std::mem::replace(&mut waited, true) {
                    observer.note(&format!("{}: another run is fetching it; this one waits", request.name));
                }
                std::thread::sleep(std::time::Duration::from_millis(100));
                continue;
            }
            Err(_) => {
                let _ = fs_err::remove_file(&path);
                let own = |mut path: PathBuf| {
                    path.as_mut_os_string().push(format!(".{}", std::process::id()));
                    path
                };
                return Ok(FileLock { path, held: None, part: own(part), journal: own(journal) });
            }
        }
        // The run before may have removed the file that this lock is on.
        let same = fs_err::metadata(&path).ok().zip(file.metadata().ok()).is_some_and(|(a, b)| same(&a, &b));
        if same {
            return Ok(FileLock { path, held: Some(file), part, journal });
        }
    }
}

/// Whether both are one file.
pub(crate) fn same(a: &std::fs::Metadata, b: &std::fs::Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Compares what came with what is wanted.
pub(crate) fn check(
    request: &Request,
    host: &str,
    (size, sha256): (Option<u64>, Option<Sha256Digest>),
    (got_size, got): (u64, Sha256Digest),
) -> Result<(), FetchError> {
    if size.is_none_or(|size| size == got_size) && sha256.is_none_or(|sha256| sha256 == got) {
        return Ok(());
    }
    let words = |size: Option<u64>, sha256: Option<Sha256Digest>| {
        let size = size.map_or("any size".to_owned(), |size| format!("{size} bytes"));
        sha256.map_or(size.clone(), |sha256| format!("{size}, SHA-256 {sha256}"))
    };
    Err(FetchError::Mismatch {
        name: request.name.clone(),
        host: host.to_owned(),
        expected: words(size, sha256),
        got: words(Some(got_size), Some(got)),
        locked: request.pin.is_some(),
    })
}

/// Refuses a file for which its disk has no room, before the first byte.
pub(crate) fn room(folder: &Path, needed: u64) -> Result<(), FetchError> {
    let Ok(volume) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let free = volume.f_bavail.saturating_mul(volume.f_frsize);
    if volume.f_blocks > 0 && free < needed {
        return Err(FetchError::Space { folder: folder.to_owned(), needed, free });
    }
    Ok(())
}

/// What `to` lies in.
pub(crate) fn folder_of(to: &Path) -> &Path {
    to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
