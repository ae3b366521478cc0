//! One change at a time: an advisory lock with the holder's process number in it. It keeps two runs
//! from wasting each other's work; that the prefix is never half changed does not depend on it.

use crate::disk::Disk;
use crate::{InstallError, InstallRoot};
use rustix::fs::{FlockOperation, flock};
use std::io::{Read, Seek, Write};
use std::time::{Duration, Instant};

/// Held until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: fs_err::File,
}

/// Whether another run has the lock at this moment.
pub(crate) fn is_held(root: &InstallRoot) -> bool {
    let Ok(file) = fs_err::File::open(root.state().join("lock")) else { return false };
    flock(file.file(), FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}

/// Takes the lock, waiting at most `patience` while another run has it.
pub fn take(root: &InstallRoot, disk: &Disk, patience: Duration) -> Result<Lock, InstallError> {
    let folder = root.state();
    disk.create_dir_all(&folder).map_err(|source| InstallError::write(&folder, "lock", source))?;
    let path = folder.join("lock");
    let mut options = fs_err::OpenOptions::new();
    let mut file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|source| InstallError::write(&path, "lock", source))?;
    // A child of this program that was just started holds the files of its parent for a moment.
    let deadline = Instant::now() + patience.max(Duration::from_millis(300));
    loop {
        match flock(file.file(), FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let _ = Read::by_ref(&mut file).take(20).read_to_string(&mut text);
                return Err(InstallError::Busy { prefix: root.path().to_owned(), pid: text.trim().parse().ok() });
            }
            // Taken; or there are no locks on this file system, and every change is atomic without them too.
            Ok(()) | Err(_) => break,
        }
    }
    // For whoever is told that we are busy; a full disk is noticed by the work itself.
    let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(Lock { _file: file })
}
