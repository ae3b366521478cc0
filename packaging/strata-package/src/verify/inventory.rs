//! What is in a package: every entry of an archive or a folder with its kind, mode and what is known
//! of its content. Names, links, twins and the archive's own form are judged here, while it is read.

use super::content::{self, Content, Room};
use super::finding::{Finding, Report};
use super::{Progress, VerifyOptions, names};
use crate::PackageError;
use crate::archive_read::{self, Container, Entry, Kind, MAX_ENTRIES, Oddity, Sink, Stopped};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use strata_diag::catalogue::packages::{
    ARCHIVE_DAMAGED, BAD_ENTRY_KIND, BAD_ENTRY_NAME, MANIFEST_INVALID, MODE_DIFFERS, NAME_TWINS, NOT_CANONICAL,
    PACKAGE_FILE_UNREADABLE, PACKAGE_TOO_LARGE,
};
use strata_manifest::{COMPONENT_FILE, Component, Document, MAX_DOCUMENT_BYTES};

/// Content that no manifest announced and that is read all the same, in bytes: above it, reading stops.
const MAX_UNANNOUNCED_BYTES: u64 = 16 << 30;
/// Bytes of names that are kept of one package.
const MAX_NAME_BYTES: usize = 48 << 20;
/// Findings about an archive's form that are told one by one.
pub(super) const MAX_ODD: usize = 20;

/// One thing in a package. Paths are relative to the top folder.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) size: u64,
    /// Its place among the entries of an archive.
    pub(super) at: usize,
    /// Of files that could be read.
    pub(super) content: Option<Box<Content>>,
    /// Where it lies in the spool, when everything is kept.
    pub(super) spooled: Option<u64>,
}

/// `component.json` as it was found.
#[derive(Debug, Clone)]
pub(super) struct Manifest {
    pub(super) component: Component,
    pub(super) sha256: strata_manifest::Sha256Digest,
    /// Bytes of its text.
    pub(super) size: u64,
}

/// Everything in a package.
#[derive(Debug)]
pub(super) struct Inventory {
    /// Name of the one top folder of an archive.
    pub(super) top: Option<String>,
    pub(super) container: Option<Container>,
    pub(super) manifest: Option<Manifest>,
    /// Without `component.json`; folders without their `/`.
    pub(super) items: BTreeMap<String, Item>,
    /// Time of the first entry.
    pub(super) mtime: Option<u64>,
    /// Kept content of all files, to make the archive anew.
    pub(super) spool: Option<File>,
    /// The archive itself, to be compared with its canonical form.
    pub(super) archive: Option<File>,
    /// What is not canonical about the archive, the first of it.
    pub(super) odd: Vec<(Oddity, Finding)>,
    /// All of it.
    pub(super) oddities: usize,
    /// Entry names in their order, as they stand.
    pub(super) order: Vec<String>,
    /// Folders that could not be listed, each with its `/`.
    closed: Vec<String>,
}

impl Inventory {
    fn new(container: Option<Container>) -> Self {
        Inventory {
            top: None,
            container,
            manifest: None,
            items: BTreeMap::new(),
            mtime: None,
            spool: None,
            archive: None,
            odd: Vec::new(),
            oddities: 0,
            order: Vec::new(),
            closed: Vec::new(),
        }
    }

    /// Whether this path lies in a folder that could not be listed, so that it may be there or not.
    pub(super) fn is_hidden(&self, path: &str) -> bool {
        self.closed.iter().any(|folder| path.starts_with(folder.as_str()))
    }

    /// Some of the items, with a manifest of their own.
    pub(super) fn part(&self, items: BTreeMap<String, Item>, manifest: Manifest) -> Inventory {
        Inventory { items, manifest: Some(manifest), ..Inventory::new(self.container) }
    }

    /// Reads an archive to its end, or to where it is damaged; `spool` is an empty file for contents.
    pub(super) fn of_archive(
        file: &File,
        spool: File,
        container: Container,
        options: &VerifyOptions,
        progress: &dyn Progress,
        report: &mut Report,
    ) -> io::Result<Inventory> {
        let mut reader = ArchiveInventory {
            inventory: Inventory::new(Some(container)),
            spool,
            keep: true,
            kept: 0,
            limit: options.reencode_bytes,
            unannounced: 0,
            twins: names::Twins::default(),
            names: 0,
            room: Room::new(),
            done: AtomicU64::new(0),
            total: file.metadata()?.len(),
            progress,
            report,
        };
        match archive_read::read(file, container, &mut reader) {
            Ok(()) => {}
            // This reader stopped by itself and has said why.
            Err(Stopped::Damaged(_)) if reader.report.has(PACKAGE_TOO_LARGE) => {}
            Err(Stopped::Damaged(why)) => reader.report.add(Finding::new(ARCHIVE_DAMAGED, None, why)),
            Err(Stopped::TooMuch(why)) => reader.report.add(Finding::new(PACKAGE_TOO_LARGE, None, why)),
            Err(Stopped::Io(error)) => return Err(error),
        }
        let (mut inventory, keep, spool) = (reader.inventory, reader.keep, reader.spool);
        names::links(&inventory.items, inventory.manifest.is_some(), report);
        inventory.spool = keep.then_some(spool);
        inventory.archive = Some(file.try_clone()?);
        Ok(inventory)
    }

    /// Reads a folder: names first, then the manifest, then the files that it lists by several threads. Without a
    /// manifest, those that `wanted` wants; all, without that.
    pub(super) fn of_folder(
        root: &Path,
        wanted: Option<&dyn Fn(&str) -> bool>,
        options: &VerifyOptions,
        progress: &dyn Progress,
        report: &mut Report,
    ) -> Result<Inventory, PackageError> {
        let mut inventory = Inventory::new(None);
        let mut files = Vec::new();
        let mut twins = names::Twins::default();
        let names = names_in(root).map_err(PackageError::unreadable(root))?;
        walk(root, (root, names), &mut inventory, &mut files, &mut twins, report);
        // The manifest first: of what it does not list it is enough that it is there.
        let manifest = files.iter().position(|(path, _)| path == COMPONENT_FILE).map(|at| files.swap_remove(at));
        let room = Room::new();
        if let Some((path, _)) = manifest {
            let content = content_of(root, &path, &room, &|_| {});
            inventory.take_content(&path, content, report);
        }
        let listed = |inventory: &Inventory, path: &str, size: u64| match (&inventory.manifest, wanted) {
            (Some(manifest), _) => manifest.component.file(path).is_some_and(|file| file.size == size),
            (None, Some(wanted)) => wanted(path),
            (None, None) => true,
        };
        files.retain(|(path, size)| listed(&inventory, path, *size));
        read_all(root, files, options.threads, &room, progress, &mut |path, content| {
            inventory.take_content(path, content, report);
        });
        if let Some(item) = inventory.items.remove(COMPONENT_FILE)
            && inventory.manifest.is_some()
            && item.mode != 0o644
        {
            let finding = Finding::new(MODE_DIFFERS, Some(COMPONENT_FILE.as_bytes()), "the manifest's mode is 0644");
            report.add(finding.fact("got", format!("{:04o}", item.mode)));
        }
        names::links(&inventory.items, inventory.manifest.is_some(), report);
        Ok(inventory)
    }

    /// What was read of a file of a folder.
    fn take_content(&mut self, path: &str, content: io::Result<Content>, report: &mut Report) {
        match content {
            Ok(content) => {
                report.files += 1;
                report.bytes += content.digests.size;
                if path == COMPONENT_FILE {
                    self.take_manifest(&content, report);
                } else if let Some(item) = self.items.get_mut(path) {
                    item.content = Some(Box::new(content));
                }
            }
            Err(error) => report.add(unreadable(path.as_bytes(), error)),
        }
    }

    fn take_manifest(&mut self, content: &Content, report: &mut Report) {
        let text = content.text.as_deref().unwrap_or_default();
        let path = Path::new(COMPONENT_FILE);
        match Component::parse_unchecked(text, path) {
            Ok(component) => {
                for fault in component.faults() {
                    report.add(Finding::new(MANIFEST_INVALID, Some(COMPONENT_FILE.as_bytes()), fault));
                }
                // One content has one text: anything else is somebody's edit.
                if component.to_text() != text {
                    let message = "it is not written as `strata package build` writes it";
                    report.add(Finding::new(NOT_CANONICAL, Some(COMPONENT_FILE.as_bytes()), message));
                }
                report.components.push(component.clone());
                let digests = &content.digests;
                self.manifest = Some(Manifest { component, sha256: digests.sha256, size: digests.size });
            }
            Err(error) => {
                report.add(Finding::new(MANIFEST_INVALID, Some(COMPONENT_FILE.as_bytes()), error.to_string()));
            }
        }
    }
}

/// Names in a folder, sorted. Of a folder that holds more than is read, so many that the caller meets the limit too.
fn names_in(folder: &Path) -> io::Result<Vec<OsString>> {
    let entries = fs_err::read_dir(folder)?.take(MAX_ENTRIES + 1);
    let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}

/// Paths below `root`; nothing is followed or opened. What cannot be looked at is told, and the rest is
/// looked at all the same.
fn walk(
    root: &Path,
    names: (&Path, Vec<OsString>),
    inventory: &mut Inventory,
    files: &mut Vec<(String, u64)>,
    twins: &mut names::Twins,
    report: &mut Report,
) {
    let (folder, names) = names;
    for name in names {
        if inventory.items.len() >= MAX_ENTRIES || twins.bytes() > MAX_NAME_BYTES {
            if !report.has(PACKAGE_TOO_LARGE) {
                let message = format!("more than {MAX_ENTRIES} files, or {MAX_NAME_BYTES} bytes of names");
                report.add(Finding::new(PACKAGE_TOO_LARGE, None, message));
            }
            return;
        }
        let path = folder.join(name);
        let relative = path.strip_prefix(root).unwrap_or(&path).as_os_str().as_bytes().to_vec();
        let looked = fs_err::symlink_metadata(&path).and_then(|metadata| Ok((kind_of(&path, &metadata)?, metadata)));
        let (kind, metadata) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                report.add(unreadable(&relative, error));
                continue;
            }
        };
        if let Some(why) = names::fault(&relative) {
            report.add(Finding::new(BAD_ENTRY_NAME, Some(&relative), why));
        }
        if let Some(other) = twins.other(&relative) {
            report.add(twin(&relative, &other));
        }
        if let Kind::Other(what) = kind {
            report.add(Finding::new(BAD_ENTRY_KIND, Some(&relative), format!("it is {what}")));
        }
        // Below what is too deep everything is too deep.
        let deep = relative.split(|byte| *byte == b'/').count() > names::MAX_PARTS;
        let below = (kind == Kind::Folder && !deep).then(|| names_in(&path));
        if let Some(Err(error)) = &below {
            report.add(unreadable(&relative, error));
            inventory.closed.extend(str::from_utf8(&relative).map(|path| format!("{path}/")));
        }
        let Ok(name) = String::from_utf8(relative) else { continue };
        if kind == Kind::File {
            files.push((name.clone(), metadata.len()));
        }
        let item =
            Item { kind, mode: metadata.mode() & 0o7777, size: metadata.len(), at: 0, content: None, spooled: None };
        inventory.items.insert(name, item);
        if let Some(Ok(names)) = below {
            walk(root, (&path, names), inventory, files, twins, report);
        }
    }
}

fn unreadable(path: &[u8], because: impl std::fmt::Display) -> Finding {
    Finding::new(PACKAGE_FILE_UNREADABLE, Some(path), "it cannot be read").fact("because", because)
}

fn kind_of(path: &Path, metadata: &std::fs::Metadata) -> io::Result<Kind> {
    use std::os::unix::fs::FileTypeExt;
    let kind = metadata.file_type();
    Ok(if kind.is_file() {
        Kind::File
    } else if kind.is_dir() {
        Kind::Folder
    } else if kind.is_symlink() {
        Kind::Symlink(fs_err::read_link(path)?.as_os_str().as_bytes().to_vec())
    } else if kind.is_char_device() {
        Kind::Other("a character device")
    } else if kind.is_block_device() {
        Kind::Other("a block device")
    } else if kind.is_fifo() {
        Kind::Other("a pipe")
    } else {
        Kind::Other("a socket")
    })
}

fn twin(name: &[u8], other: &[u8]) -> Finding {
    let message = if name == other { "it comes twice" } else { "two names are one on some machine" };
    Finding::new(NAME_TWINS, Some(name), message).fact("other", super::finding::printable(other))
}

/// Hashes the files, large ones first, so that no thread is left alone with one at the end.
fn read_all(
    root: &Path,
    mut files: Vec<(String, u64)>,
    threads: usize,
    room: &Room,
    progress: &dyn Progress,
    take: &mut (dyn FnMut(&str, io::Result<Content>) + Send),
) {
    let total = files.iter().map(|(_, size)| size).sum();
    files.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let threads = if threads == 0 { std::thread::available_parallelism().map_or(1, usize::from) } else { threads };
    let (next, done, take) = (AtomicUsize::new(0), AtomicU64::new(0), Mutex::new(take));
    let tell = |bytes: u64| progress.bytes(done.fetch_add(bytes, Ordering::Relaxed) + bytes, total);
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, 64).min(files.len()) {
            scope.spawn(|| {
                while let Some((path, _)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let content = content_of(root, path, room, &tell);
                    (*take.lock().unwrap_or_else(PoisonError::into_inner))(path, content);
                }
            });
        }
    });
}

fn content_of(root: &Path, path: &str, room: &Room, tell: &dyn Fn(u64)) -> io::Result<Content> {
    let file = open(&root.join(path))?;
    content::of_file(&file, path, room, tell)
}

/// Opens a file that was one when the folder was read; a link or pipe that took its place is an error.
fn open(path: &PathBuf) -> io::Result<File> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits();
    let file = File::options().read(true).custom_flags(flags.cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no ordinary file any more")) }
}

/// The entries of an archive as they come.
struct ArchiveInventory<'a> {
    inventory: Inventory,
    spool: File,
    /// Whether every content is kept, so that the archive can be made anew.
    keep: bool,
    kept: u64,
    limit: u64,
    /// Bytes of content that no manifest announced.
    unannounced: u64,
    twins: names::Twins,
    /// Bytes of the names in `inventory.order`.
    names: usize,
    room: Room,
    done: AtomicU64,
    total: u64,
    progress: &'a dyn Progress,
    report: &'a mut Report,
}

impl ArchiveInventory<'_> {
    /// The path below the top folder; `None` for what is reported and not looked at further.
    fn placed(&mut self, entry: &Entry) -> Option<String> {
        let name = entry.name.strip_suffix(b"/").unwrap_or(&entry.name);
        if let Some(why) = names::fault(name) {
            let finding = Finding::new(BAD_ENTRY_NAME, Some(&entry.name), why);
            self.report.add(finding);
            return None;
        }
        let name = String::from_utf8(name.to_vec()).ok()?;
        let (top, path) = name.split_once('/').unwrap_or((&name, ""));
        match &self.inventory.top {
            None if path.is_empty() && entry.kind != Kind::Folder => {
                let message = "it lies beside the top folder";
                self.report.add(Finding::new(BAD_ENTRY_NAME, Some(&entry.name), message));
                return None;
            }
            None => self.inventory.top = Some(top.to_owned()),
            Some(known) if known != top => {
                let message = format!("it lies beside the top folder `{known}`");
                self.report.add(Finding::new(BAD_ENTRY_NAME, Some(&entry.name), message));
                return None;
            }
            Some(_) => {}
        }
        if let Some(other) = self.twins.other(name.as_bytes()) {
            self.report.add(twin(name.as_bytes(), &other));
            if other == name.as_bytes() {
                return None;
            }
        }
        Some(path.to_owned())
    }

    fn content(&mut self, entry: &Entry, path: &str, content: &mut dyn Read) -> io::Result<Option<Box<Content>>> {
        let manifest = self.inventory.manifest.as_ref();
        let announced = path == COMPONENT_FILE && entry.size <= MAX_DOCUMENT_BYTES
            || manifest.and_then(|manifest| manifest.component.file(path)).is_some_and(|file| file.size == entry.size);
        if !announced {
            self.unannounced = self.unannounced.saturating_add(entry.size);
            if self.unannounced > MAX_UNANNOUNCED_BYTES {
                let message =
                    format!("more than {MAX_UNANNOUNCED_BYTES} bytes that no manifest announces: reading stopped");
                self.report.add(Finding::new(PACKAGE_TOO_LARGE, Some(path.as_bytes()), message));
                return Err(io::Error::new(io::ErrorKind::InvalidData, "too large"));
            }
        }
        if self.keep && self.kept.saturating_add(entry.size) > self.limit {
            self.keep = false;
            self.spool.set_len(0)?;
        }
        let (done, total, progress) = (&self.done, self.total, self.progress);
        // Unpacked bytes against packed ones: the share is a guess, and never above the whole.
        let tell = |bytes: u64| progress.bytes((done.fetch_add(bytes, Ordering::Relaxed) + bytes) / 3, total);
        self.kept += entry.size;
        content::of_stream(content, path, entry.size, &mut self.spool, self.keep, &self.room, &tell)
            .map(|content| Some(Box::new(content)))
    }
}

impl Sink for ArchiveInventory<'_> {
    fn entry(&mut self, entry: &Entry, content: &mut dyn Read) -> io::Result<()> {
        if self.inventory.mtime.is_none() {
            self.inventory.mtime = entry.mtime;
        }
        self.names += entry.name.len();
        if self.names + self.twins.bytes() > MAX_NAME_BYTES {
            let message = format!("more than {MAX_NAME_BYTES} bytes of names: reading stopped");
            self.report.add(Finding::new(PACKAGE_TOO_LARGE, None, message));
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too large"));
        }
        self.inventory.order.push(super::finding::printable(&entry.name));
        if let Kind::Other(what) = entry.kind {
            let finding = Finding::new(BAD_ENTRY_KIND, Some(&entry.name), format!("it is {what}"));
            self.report.add(finding);
        }
        let Some(path) = self.placed(entry) else { return Ok(()) };
        let spooled = self.keep.then_some(self.kept);
        let looked_at = if entry.kind == Kind::File { self.content(entry, &path, content)? } else { None };
        if let Some(content) = &looked_at {
            self.report.files += 1;
            self.report.bytes += content.digests.size;
        }
        if path == COMPONENT_FILE && self.inventory.manifest.is_none() {
            if let Some(content) = &looked_at {
                self.inventory.take_manifest(content, self.report);
            }
            return Ok(());
        }
        if !path.is_empty() {
            let item = Item {
                kind: entry.kind.clone(),
                mode: entry.mode,
                size: entry.size,
                at: self.inventory.order.len(),
                content: looked_at,
                spooled,
            };
            self.inventory.items.insert(path, item);
        }
        Ok(())
    }

    fn odd(&mut self, entry: Option<&[u8]>, oddity: Oddity, what: String) {
        self.inventory.oddities += 1;
        if self.inventory.odd.len() < MAX_ODD {
            self.inventory.odd.push((oddity, Finding::new(NOT_CANONICAL, entry, what)));
        }
    }
}
