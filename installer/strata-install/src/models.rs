//! Models: files beside all generations, and the list that names them. A file gets its place only
//! with the digest that its source names; a file that the user had is used in place and never removed.

use crate::disk::{Disk, hash_file};
use crate::error::size_and_digest;
use crate::{InstallError, InstallRoot, Observer, Step};
use std::path::{Path, PathBuf};
use strata_manifest::{Document, Sha256Digest, StoredFile, StoredModel};

/// One file of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFile {
    /// Where its bytes are now.
    pub from: PathBuf,
    /// Where they shall be; the same path for a file that is used where it is.
    pub to: PathBuf,
    /// Known size and digest; a file without them is taken as it is.
    pub expected: Option<(u64, Sha256Digest)>,
    /// It was checked a moment ago (the download does so), so it is not read once more.
    pub checked: bool,
    /// It is the user's own and stays when the model is removed.
    pub adopted: bool,
}

/// A model to be put in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placing {
    pub name: String,
    pub source: String,
    pub files: Vec<ModelFile>,
}

/// Puts models in their place and names them in the list, which changes once at the end.
pub fn place_models(
    root: &InstallRoot,
    disk: &Disk,
    models: &[Placing],
    observer: &dyn Observer,
) -> Result<(), InstallError> {
    if models.is_empty() {
        return Ok(());
    }
    let folder = root.models();
    let failed = |path: &Path, source| InstallError::write(path, Step::Models.name(), source);
    disk.create_dir_all(&folder).map_err(|source| failed(&folder, source))?;
    let mut store = root.model_store()?;
    for model in models {
        let mut files = Vec::new();
        for file in &model.files {
            if observer.cancelled() {
                return Err(InstallError::Cancelled);
            }
            let (size, sha256) = place(disk, file, &model.source, observer)?;
            let path = match file.to.strip_prefix(&folder) {
                Ok(relative) => relative.to_string_lossy().into_owned(),
                Err(_) => file.to.display().to_string(),
            };
            files.push(StoredFile { path, size, sha256, adopted: file.adopted });
        }
        store.models.retain(|known| known.name != model.name);
        store.models.push(StoredModel { name: model.name.clone(), source: model.source.clone(), files });
    }
    store.models.sort_by(|a, b| a.name.cmp(&b.name));
    let list = root.model_list();
    disk.write_atomic(&list, store.to_text().as_bytes()).map_err(|source| failed(&list, source))
}

fn place(
    disk: &Disk,
    file: &ModelFile,
    source: &str,
    observer: &dyn Observer,
) -> Result<(u64, Sha256Digest), InstallError> {
    let failed = |path: &Path, source| InstallError::write(path, Step::Models.name(), source);
    let name = file.to.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let read = |path: &Path| {
        let size = fs_err::metadata(path).map_or(0, |metadata| metadata.len());
        let mut done = 0;
        hash_file(path, &mut |count| {
            done += count;
            observer.bytes(&name, done, size);
        })
        .map_err(|source| {
            InstallError::from(strata_manifest::ManifestError::Unreadable { path: path.to_owned(), source })
        })
    };
    let compare = |path: &Path, got: (u64, Sha256Digest)| match file.expected {
        Some(expected) if expected != got => Err(InstallError::ModelFile {
            path: path.to_owned(),
            what: format!("`{source}`"),
            expected: size_and_digest(expected.0, &expected.1),
            got: size_and_digest(got.0, &got.1),
        }),
        _ => Ok(got),
    };
    if file.from == file.to {
        return match (file.checked, file.expected) {
            (true, Some(expected)) => Ok(expected),
            _ => compare(&file.from, read(&file.from)?),
        };
    }
    if let (true, Some(expected)) = (file.to.is_file(), file.expected) {
        // A run before this one may have brought it; only the right bytes count.
        let size = fs_err::metadata(&file.to).map_or(0, |metadata| metadata.len());
        if size == expected.0 && read(&file.to)? == expected {
            return Ok(expected);
        }
    }
    let parent = file.to.parent().unwrap_or(Path::new("/"));
    disk.create_dir_all(parent).map_err(|source| failed(parent, source))?;
    let beside = parent.join(format!(".{name}.new-{}", std::process::id()));
    disk.remove_file(&beside).map_err(|source| failed(&beside, source))?;
    // On one volume a second name costs neither space nor time; elsewhere the bytes are copied.
    let linked = disk.hard_link(&file.from, &beside).is_ok();
    let placed = if linked {
        read(&beside)
    } else {
        disk.copy(&file.from, &beside, 0o644).map_err(|source| failed(&beside, source))
    };
    let placed = placed.and_then(|got| compare(&file.from, got));
    let placed = placed.and_then(|got| {
        disk.rename(&beside, &file.to).map_err(|source| failed(&file.to, source))?;
        disk.sync_parent(&file.to).map_err(|source| failed(&file.to, source))?;
        Ok(got)
    });
    if placed.is_err() {
        let _ = disk.remove_file(&beside);
    }
    placed
}

/// Removes the named models (all, when none is named) from the list, then their files; files that are
/// the user's own stay. Says what stayed.
pub(crate) fn remove(
    root: &InstallRoot,
    disk: &Disk,
    names: Option<&[String]>,
) -> Result<Vec<(PathBuf, String)>, InstallError> {
    let failed = |path: &Path, source| InstallError::write(path, Step::Models.name(), source);
    let mut store = root.model_store()?;
    let (removed, kept): (Vec<_>, Vec<_>) =
        store.models.into_iter().partition(|model| names.is_none_or(|names| names.contains(&model.name)));
    store.models = kept;
    let folder = root.models();
    let still_used: Vec<PathBuf> =
        store.models.iter().flat_map(|model| &model.files).map(|file| folder.join(&file.path)).collect();
    let mut stayed = Vec::new();
    for file in removed.iter().flat_map(|model| &model.files) {
        let path = folder.join(&file.path);
        if file.adopted {
            stayed.push((path, "yours: it was used in place".to_owned()));
        } else if fs_err::symlink_metadata(&path).is_ok_and(|metadata| metadata.len() != file.size) {
            stayed.push((path, "changed since it was installed".to_owned()));
        } else if !still_used.contains(&path) {
            disk.remove_file(&path).map_err(|source| failed(&path, source))?;
        }
    }
    let list = root.model_list();
    if store.models.is_empty() {
        // What the sources of models that are gone were resolved to is of no use to anybody.
        let lock = folder.join(strata_manifest::LOCK_FILE);
        if lock.is_file() {
            disk.remove_file(&lock).map_err(|source| failed(&lock, source))?;
        }
        disk.remove_file(&list).map_err(|source| failed(&list, source))?;
        if folder.is_dir() {
            disk.remove_dir_if_empty(&folder).map_err(|source| failed(&folder, source))?;
        }
    } else {
        disk.write_atomic(&list, store.to_text().as_bytes()).map_err(|source| failed(&list, source))?;
    }
    Ok(stayed)
}
