//! Staging: components are unpacked beside what is installed, laid out as one tree, read back and
//! compared with their lists. Nothing outside the staging folder is touched.

use crate::disk::{Disk, hash_file};
use crate::error::size_and_digest;
use crate::release::ArchiveSource;
use crate::{InstallError, InstallRoot, Observer, Step};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use strata_manifest::plan::{InstallPlan, PlannedComponent};
use strata_manifest::{
    COMPONENT_FILE, Component, Document, InstalledFile, InstalledPlugin, PackageFile, Role, Sha256Digest,
};

/// Folder of the component lists in a generation.
pub(crate) const COMPONENTS: &str = "components";

/// A tree that is laid out and not yet a generation.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) folder: PathBuf,
    pub(crate) components: Vec<Component>,
}

/// Makes an empty staging folder that no other run has.
pub(crate) fn open(root: &InstallRoot, disk: &Disk) -> Result<(u64, PathBuf), InstallError> {
    let parent = root.generations();
    let failed = |path: &Path, source| InstallError::write(path, Step::Stage.name(), source);
    disk.create_dir_all(&parent).map_err(|source| failed(&parent, source))?;
    for number in root.next_generation().. {
        let folder = root.staging(number);
        disk.gate(crate::DiskOp::CreateDir, &folder).map_err(|source| failed(&folder, source))?;
        match fs_err::create_dir(&folder) {
            Ok(()) => return Ok((number, folder)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(failed(&folder, source)),
        }
    }
    Err(InstallError::Prefix {
        path: root.path().to_owned(),
        why: "its generations have used up all numbers".to_owned(),
    })
}

/// Unpacks every component of the plan; a component that the current generation holds undamaged is
/// copied from there when no archive is at hand.
pub(crate) fn stage(
    root: &InstallRoot,
    disk: &Disk,
    folder: &Path,
    plan: &InstallPlan,
    archives: &[ArchiveSource],
    observer: &dyn Observer,
) -> Result<Staged, InstallError> {
    let total: u64 = plan.components.iter().map(|part| part.unpacked_bytes).sum();
    let mut done = 0;
    let mut components = Vec::new();
    for part in &plan.components {
        if observer.cancelled() {
            return Err(InstallError::Cancelled);
        }
        observer.bytes(&part.id(), done, total);
        let archive = archives.iter().find(|archive| archive.id == part.id());
        let component = match archive {
            Some(archive) => from_archive(disk, folder, part, &archive.path)?,
            None => from_generation(root, disk, folder, part)?,
        };
        done += part.unpacked_bytes;
        observer.bytes(&part.id(), done, total);
        components.push(component);
    }
    Ok(Staged { folder: folder.to_owned(), components })
}

fn from_archive(
    disk: &Disk,
    folder: &Path,
    part: &PlannedComponent,
    archive: &Path,
) -> Result<Component, InstallError> {
    let failed = |path: &Path, source| InstallError::write(path, Step::Stage.name(), source);
    let into = folder.join(format!(".unpack-{}", part.id()));
    disk.create_dir_all(&into).map_err(|source| failed(&into, source))?;
    disk.gate(crate::DiskOp::Unpack, &into).map_err(|source| failed(&into, source))?;
    let component = crate::unpack::unpack(archive, &into, part.size, part.sha256)?;
    check_list(part, &into.join(COMPONENT_FILE))?;
    for file in &component.files {
        place(disk, &file.path.below(&into), &file.path.below(folder))?;
    }
    let list = folder.join(COMPONENTS).join(format!("{}.json", part.id()));
    place(disk, &into.join(COMPONENT_FILE), &list)?;
    disk.remove_tree(&into).map_err(|source| failed(&into, source))?;
    Ok(component)
}

/// The list must be the very bytes that the signed index names.
fn check_list(part: &PlannedComponent, list: &Path) -> Result<(), InstallError> {
    let (_, sha256) = read(list)?;
    if sha256 == part.manifest_sha256 {
        return Ok(());
    }
    Err(InstallError::StageDamaged {
        path: list.to_owned(),
        expected: format!("SHA-256 {}", part.manifest_sha256),
        got: format!("SHA-256 {sha256}"),
    })
}

fn place(disk: &Disk, from: &Path, to: &Path) -> Result<(), InstallError> {
    let failed = |source| InstallError::write(to, Step::Stage.name(), source);
    if crate::disk::exists(to) {
        let why = std::io::Error::other("two components hold a file of this name");
        return Err(failed(why));
    }
    if let Some(parent) = to.parent() {
        disk.create_dir_all(parent).map_err(failed)?;
    }
    disk.rename(from, to).map_err(failed)
}

fn from_generation(
    root: &InstallRoot,
    disk: &Disk,
    folder: &Path,
    part: &PlannedComponent,
) -> Result<Component, InstallError> {
    let absent =
        || InstallError::ArchiveAbsent { name: part.archive.clone(), folder: root.path().to_owned(), cut: None };
    let (number, _) = root.installed().ok().flatten().ok_or_else(absent)?;
    let source = root.generation(number);
    let list = source.join(COMPONENTS).join(format!("{}.json", part.id()));
    if !list.is_file() {
        return Err(absent());
    }
    check_list(part, &list)?;
    let component = Component::read(&list)?;
    let failed = |path: &Path, source| InstallError::write(path, Step::Stage.name(), source);
    let copies = component.files.iter().map(|file| (file.path.to_string(), Some(file)));
    for (path, file) in copies.chain([(format!("{COMPONENTS}/{}.json", part.id()), None)]) {
        let (from, to) = (source.join(&path), folder.join(&path));
        if let Some(parent) = to.parent() {
            disk.create_dir_all(parent).map_err(|source| failed(parent, source))?;
        }
        let (size, sha256) =
            disk.copy(&from, &to, file.map_or(0o644, |file| file.mode.bits())).map_err(|source| failed(&to, source))?;
        if let Some(file) = file.filter(|file| (file.size, file.sha256) != (size, sha256)) {
            return Err(damaged(&from, file, size, &sha256));
        }
    }
    Ok(component)
}

fn damaged(path: &Path, file: &PackageFile, size: u64, sha256: &Sha256Digest) -> InstallError {
    InstallError::StageDamaged {
        path: path.to_owned(),
        expected: size_and_digest(file.size, &file.sha256),
        got: size_and_digest(size, sha256),
    }
}

fn read(path: &Path) -> Result<(u64, Sha256Digest), InstallError> {
    hash_file(path, &mut |_| {})
        .map_err(|source| strata_manifest::ManifestError::Unreadable { path: path.to_owned(), source }.into())
}

/// Sets modes as listed, brings names to the disk, and says what the tree has to hold: for its receipt.
pub(crate) fn settle(staged: &Staged, disk: &Disk) -> Result<Vec<InstalledFile>, InstallError> {
    let mut files = BTreeMap::new();
    for component in &staged.components {
        for file in &component.files {
            let mode = file.mode.bits();
            set_mode(disk, &file.path.below(&staged.folder), mode)?;
            files.insert(file.path.to_string(), installed(file.path.as_str(), file.size, file.sha256, mode));
        }
        let list = format!("{COMPONENTS}/{}.json", component.id());
        let path = staged.folder.join(&list);
        let (size, sha256) = read(&path)?;
        set_mode(disk, &path, 0o644)?;
        files.insert(list.clone(), installed(&list, size, sha256, 0o644));
    }
    sync_folders(disk, &staged.folder)?;
    Ok(files.into_values().collect())
}

fn set_mode(disk: &Disk, path: &Path, mode: u32) -> Result<(), InstallError> {
    let failed = |source| InstallError::write(path, Step::Verify.name(), source);
    let has = fs_err::metadata(path).map_err(failed)?.permissions().mode() & 0o7777;
    if has == mode { Ok(()) } else { disk.set_mode(path, mode).map_err(failed) }
}

fn installed(path: &str, size: u64, sha256: Sha256Digest, mode: u32) -> InstalledFile {
    InstalledFile { path: path.to_owned(), size, sha256, mode: format!("{mode:04o}") }
}

/// Names are on the disk only when their folders are.
fn sync_folders(disk: &Disk, folder: &Path) -> Result<(), InstallError> {
    let failed = |source| InstallError::write(folder, Step::Verify.name(), source);
    for entry in fs_err::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            sync_folders(disk, &entry.path())?;
        }
    }
    disk.sync_dir(folder).map_err(failed)
}

/// Plugins of the staged tree in the plan's order.
pub(crate) fn plugins(staged: &Staged, plan: &InstallPlan) -> Vec<InstalledPlugin> {
    let descriptor = |name: &String| {
        let component = staged.components.iter().find(|component| component.backend.as_ref() == Some(name))?;
        let file = component.files.iter().find(|file| file.role == Role::Descriptor)?;
        Some(InstalledPlugin { name: name.clone(), descriptor: file.path.to_string() })
    };
    plan.backend.plugins.iter().filter_map(descriptor).collect()
}
