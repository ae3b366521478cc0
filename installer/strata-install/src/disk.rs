//! The one door to the disk for whatever changes an installation: each operation names itself to a
//! gate before it happens, so that a test can let the n-th one fail as a full or broken disk does.
//! Reading goes around it.

use rustix::fs::{AtFlags, CWD, statat};
use sha2::{Digest, Sha256};
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use strata_manifest::Sha256Digest;

/// What is about to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskOp {
    CreateDir,
    Write,
    Sync,
    Rename,
    Link,
    Remove,
    SetMode,
    /// A whole archive is unpacked by strata-package.
    Unpack,
}

type Gate = dyn Fn(DiskOp, &Path) -> io::Result<()> + Send + Sync;

/// Changes the disk, or fails as its gate says.
#[derive(Clone, Default)]
pub struct Disk {
    gate: Option<Arc<Gate>>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("gated", &self.gate.is_some()).finish()
    }
}

impl Disk {
    /// The disk as it is.
    pub fn real() -> Disk {
        Disk::default()
    }

    /// A disk on which `gate` is asked before each operation; for tests.
    pub fn gated(gate: impl Fn(DiskOp, &Path) -> io::Result<()> + Send + Sync + 'static) -> Disk {
        Disk { gate: Some(Arc::new(gate)) }
    }

    pub(crate) fn gate(&self, op: DiskOp, path: &Path) -> io::Result<()> {
        self.gate.as_ref().map_or(Ok(()), |gate| gate(op, path))
    }

    pub(crate) fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        self.gate(DiskOp::CreateDir, path)?;
        fs_err::create_dir_all(path)
    }

    /// Writes beside the target, syncs and renames: a reader sees the old or the new text.
    pub(crate) fn write_atomic(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let beside = path.with_file_name(format!(".{name}.new-{}", std::process::id()));
        let written = self.write_new(&beside, bytes).and_then(|()| self.rename(&beside, path));
        if written.is_err() {
            // The first failure is the one to tell; what is left over is removed by the next run too.
            let _ = fs_err::remove_file(&beside);
        }
        written?;
        self.sync_parent(path)
    }

    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.gate(DiskOp::Write, path)?;
        let mut file = open_new(path, 0o644)?;
        file.write_all(bytes)?;
        self.gate(DiskOp::Sync, path)?;
        file.sync_all()
    }

    /// Copies a file's bytes (as a clone where the file system can) and syncs the copy; says what was
    /// copied, by reading the copy back.
    pub(crate) fn copy(&self, from: &Path, to: &Path, mode: u32) -> io::Result<(u64, Sha256Digest)> {
        self.gate(DiskOp::Write, to)?;
        if let Err(error) = fs_err::copy(from, to) {
            let _ = fs_err::remove_file(to);
            return Err(error);
        }
        fs_err::set_permissions(to, std::fs::Permissions::from_mode(mode))?;
        self.sync_file(to)?;
        hash_file(to, &mut |_| {})
    }

    pub(crate) fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        self.gate(DiskOp::SetMode, path)?;
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode))
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.gate(DiskOp::Rename, to)?;
        fs_err::rename(from, to)
    }

    /// A hard link where the file system allows it.
    pub(crate) fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.gate(DiskOp::Link, to)?;
        fs_err::hard_link(from, to)
    }

    /// Points `link` at `target` in one step, whatever it pointed at before.
    pub(crate) fn replace_symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        let name = link.file_name().unwrap_or_default().to_string_lossy();
        let beside = link.with_file_name(format!(".{name}.new-{}", std::process::id()));
        let _ = fs_err::remove_file(&beside);
        self.gate(DiskOp::Link, &beside)?;
        fs_err::os::unix::fs::symlink(target, &beside)?;
        let renamed = self.rename(&beside, link);
        if renamed.is_err() {
            let _ = fs_err::remove_file(&beside);
        }
        renamed?;
        self.sync_parent(link)
    }

    /// Removes a file or link; one that is not there is fine.
    pub(crate) fn remove_file(&self, path: &Path) -> io::Result<()> {
        if !exists(path) {
            return Ok(());
        }
        self.gate(DiskOp::Remove, path)?;
        absent_is_fine(fs_err::remove_file(path))
    }

    /// Removes a folder when nothing is left in it; says whether it is gone.
    pub(crate) fn remove_dir_if_empty(&self, path: &Path) -> io::Result<bool> {
        if !path.is_dir() {
            return Ok(!exists(path));
        }
        if fs_err::read_dir(path)?.next().is_some() {
            return Ok(false);
        }
        self.gate(DiskOp::Remove, path)?;
        absent_is_fine(fs_err::remove_dir(path)).map(|()| true)
    }

    /// Removes a folder of ours with all that is in it; links in it are not followed.
    pub(crate) fn remove_tree(&self, path: &Path) -> io::Result<()> {
        if !exists(path) {
            return Ok(());
        }
        self.gate(DiskOp::Remove, path)?;
        absent_is_fine(fs_err::remove_dir_all(path))
    }

    pub(crate) fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.gate(DiskOp::Sync, path)?;
        fs_err::File::open(path)?.sync_all()
    }

    pub(crate) fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.gate(DiskOp::Sync, path)?;
        match fs_err::File::open(path)?.sync_all() {
            // Some file systems have no such call for folders; their renames are then as safe as they get.
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
            result => result,
        }
    }

    pub(crate) fn sync_parent(&self, path: &Path) -> io::Result<()> {
        path.parent().map_or(Ok(()), |parent| self.sync_dir(parent))
    }
}

fn open_new(path: &Path, mode: u32) -> io::Result<fs_err::File> {
    let mut options = fs_err::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.options_mut().mode(mode);
    options.open(path)
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Whether something has this name, be it a link that leads nowhere.
pub(crate) fn exists(path: &Path) -> bool {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Size and digest of a file; `tick` hears how many bytes were read.
pub(crate) fn hash_file(path: &Path, tick: &mut dyn FnMut(u64)) -> io::Result<(u64, Sha256Digest)> {
    let mut file = fs_err::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 1 << 20];
    let mut total = 0_u64;
    loop {
        let count = match file.read(&mut buffer) {
            Ok(0) => return Ok((total, Sha256Digest::from_array(hasher.finalize().into()))),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&buffer[..count]);
        total += count as u64;
        tick(count as u64);
    }
}

/// Free bytes for this user on the volume of `path` (or of the nearest folder above it that exists),
/// and a number that tells volumes apart.
pub fn volume_of(path: &Path) -> Option<(u64, u64)> {
    let folder = path.ancestors().find(|folder| folder.exists())?;
    let volume = rustix::fs::statvfs(folder).ok()?;
    let stat = rustix::fs::stat(folder).ok()?;
    Some((stat.st_dev, volume.f_bavail.saturating_mul(volume.f_frsize)))
}
