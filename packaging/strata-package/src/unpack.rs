//! From an archive to an empty folder, checked on the way: what the installer calls.
//!
//! It takes only what our own packages hold (files and folders below one top folder, listed by a manifest
//! that comes first) and refuses at the first thing that is anything else. It never writes outside
//! the folder it was given, and what it leaves there after a failure is only ever below that folder. The
//! verifier explains; this one refuses. Memory: buffers, the manifest and a decompressor's window.

use crate::archive_read::{self, Container, Entry, Kind, Oddity, Sink, Stopped};
use crate::{PackageError, digest};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use strata_manifest::{COMPONENT_FILE, Component, Document, MAX_DOCUMENT_BYTES, Sha256Digest};

/// Unpacks `archive`, whose size and digest must be the given ones, into the empty folder `into`: the
/// files at their own paths, without the archive's top folder, and `component.json` beside them.
/// Everything is on disk (synced) when this returns.
pub fn unpack(archive: &Path, into: &Path, size: u64, sha256: Sha256Digest) -> Result<Component, PackageError> {
    let refused = |why: String| PackageError::Unpack { archive: archive.to_owned(), why };
    let file = fs_err::File::open(archive)
        .map(fs_err::File::into_parts)
        .map(|(file, _)| file)
        .map_err(PackageError::unreadable(archive))?;
    // The whole archive first: nothing of a file that is not the promised one is interpreted.
    let (found, bytes) = Sha256Digest::of_reader(&file).map_err(PackageError::unreadable(archive))?;
    if (found, bytes) != (sha256, size) {
        return Err(PackageError::Disagrees {
            path: archive.display().to_string(),
            what: "is not the archive that the index lists",
            expected: format!("{size} bytes, SHA-256 {sha256}"),
            got: format!("{bytes} bytes, SHA-256 {found}"),
        });
    }
    let mut head = [0; 512];
    let head_bytes = read_head(&file, &mut head).map_err(PackageError::unreadable(archive))?;
    let container = Container::of_bytes(&head[..head_bytes]);
    let container = container.ok_or_else(|| refused("it is neither tar.gz nor tar.zst nor zip".to_owned()))?;
    if fs_err::read_dir(into).map_err(PackageError::unreadable(into))?.next().is_some() {
        return Err(refused(format!("`{}` is not empty", into.display())));
    }
    let mut unpacker =
        Unpacker { into, component: None, folders: BTreeSet::new(), seen: BTreeSet::new(), failure: None };
    let read = archive_read::read(&file, container, &mut unpacker);
    if let Some(failure) = unpacker.failure.take() {
        return Err(match failure {
            Failure::Refused(why) => refused(why),
            Failure::Write(path, source) => PackageError::Unwritable { path, source },
        });
    }
    read.map_err(|stopped| match stopped {
        Stopped::Damaged(why) | Stopped::TooMuch(why) => refused(why),
        Stopped::Io(source) => PackageError::Unreadable { path: archive.to_owned(), source },
    })?;
    let seen = unpacker.seen;
    let component = unpacker.component.ok_or_else(|| refused(format!("it holds no `{COMPONENT_FILE}`")))?;
    if let Some(missing) = component.files.iter().find(|file| !seen.contains(file.path.as_str())) {
        return Err(refused(format!("`{}` is listed and not in it", missing.path)));
    }
    sync_tree(into).map_err(PackageError::unwritable(into))?;
    Ok(component)
}

fn read_head(mut file: &File, head: &mut [u8]) -> io::Result<usize> {
    io::Seek::seek(&mut file, io::SeekFrom::Start(0))?;
    let mut filled = 0;
    while filled < head.len() {
        match file.read(&mut head[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

enum Failure {
    Refused(String),
    Write(PathBuf, io::Error),
}

struct Unpacker<'a> {
    into: &'a Path,
    component: Option<Component>,
    /// Every folder that a listed file lies in.
    folders: BTreeSet<String>,
    seen: BTreeSet<String>,
    failure: Option<Failure>,
}

impl Unpacker<'_> {
    fn one(&mut self, entry: &Entry, content: &mut dyn Read) -> Result<(), Failure> {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let refused = |why: &str| Failure::Refused(format!("entry `{}`: {why}", name.escape_debug()));
        let (top, path) = name.split_once('/').ok_or_else(|| refused("it lies beside the top folder"))?;
        let Some(component) = &self.component else {
            return match (&entry.kind, path) {
                (Kind::Folder, "") => Ok(()),
                (Kind::File, COMPONENT_FILE) => self.manifest(top, entry.size, content),
                _ => Err(refused("it comes before the manifest")),
            };
        };
        if top != component.stem() {
            return Err(refused("it lies beside the top folder"));
        }
        match &entry.kind {
            Kind::Folder => {
                // Folders come with their files; one that holds none is not listed by anything.
                if self.folders.contains(path.trim_end_matches('/')) {
                    Ok(())
                } else {
                    Err(refused("a folder that holds no listed file"))
                }
            }
            Kind::File => {
                let listed = component.file(path).ok_or_else(|| refused("it is listed by no manifest"))?;
                if entry.size != listed.size || entry.mode != listed.mode.bits() {
                    return Err(refused("its size or mode is not the listed one"));
                }
                if !self.seen.insert(path.to_owned()) {
                    return Err(refused("it comes twice"));
                }
                // A listed path has no part that leads up, so this stays inside.
                let target = listed.path.below(self.into);
                let (expected, mode, size) = (listed.sha256, listed.mode.bits(), listed.size);
                let (found, bytes) = write(&target, content, mode)?;
                if (found, bytes) != (expected, size) {
                    return Err(refused("its content is not the listed one"));
                }
                Ok(())
            }
            _ => Err(refused("it is neither file nor folder")),
        }
    }

    fn manifest(&mut self, top: &str, size: u64, content: &mut dyn Read) -> Result<(), Failure> {
        let bad = |why: String| Failure::Refused(format!("`{COMPONENT_FILE}`: {why}"));
        if size > MAX_DOCUMENT_BYTES {
            return Err(bad(format!("it has {size} bytes")));
        }
        let mut text = String::new();
        content.read_to_string(&mut text).map_err(|error| bad(error.to_string()))?;
        let component = Component::parse(&text, Path::new(COMPONENT_FILE)).map_err(|error| bad(error.to_string()))?;
        if component.stem() != top {
            return Err(bad(format!("it is of `{}`, the top folder is `{}`", component.stem(), top.escape_debug())));
        }
        write(&self.into.join(COMPONENT_FILE), &mut text.as_bytes(), 0o644)?;
        for file in &component.files {
            let path = file.path.as_str();
            self.folders.extend(path.match_indices('/').map(|(end, _)| path[..end].to_owned()));
        }
        self.component = Some(component);
        Ok(())
    }
}

/// A new file; its digest and size. It is brought to the disk at the end, with all others.
fn write(target: &Path, content: &mut dyn Read, mode: u32) -> Result<(Sha256Digest, u64), Failure> {
    let failed = |error| Failure::Write(target.to_owned(), error);
    if let Some(parent) = target.parent() {
        fs_err::create_dir_all(parent).map_err(failed)?;
    }
    let mut file = File::options().write(true).create_new(true).mode(mode).open(target).map_err(failed)?;
    // The umask may have taken bits away.
    file.set_permissions(std::fs::Permissions::from_mode(mode)).map_err(failed)?;
    let mut hashed = digest::Hashed::new(content);
    // Reading and writing fail for different reasons, which are different errors.
    let mut buffer = vec![0; 256 << 10];
    loop {
        let count = hashed.read(&mut buffer).map_err(|error| Failure::Refused(error.to_string()))?;
        if count == 0 {
            break;
        }
        io::Write::write_all(&mut file, &buffer[..count]).map_err(failed)?;
    }
    Ok(hashed.finish())
}

impl Sink for Unpacker<'_> {
    fn entry(&mut self, entry: &Entry, content: &mut dyn Read) -> io::Result<()> {
        self.one(entry, content).map_err(|failure| {
            self.failure = Some(failure);
            io::Error::other("refused")
        })
    }

    fn odd(&mut self, _entry: Option<&[u8]>, _oddity: Oddity, _what: String) {
        // The digest of the whole archive was checked: whoever signed it wrote it so.
    }
}

/// Brings files to the disk, then the folders that hold their names. All at the end: the first file's sync writes
/// the file system's journal for the others too, which costs a quarter of one sync behind each file.
fn sync_tree(folder: &Path) -> io::Result<()> {
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        } else {
            fs_err::File::open(entry.path())?.sync_all()?;
        }
    }
    fs_err::File::open(folder)?.sync_all()
}
