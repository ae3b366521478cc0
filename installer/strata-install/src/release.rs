//! A release that lies in a folder: its index, signatures and archives. A release behind an address
//! is fetched into such a folder first.

use crate::InstallError;
use std::path::{Path, PathBuf};
use strata_manifest::plan::InstallPlan;
use strata_manifest::{Document, KEYS_FILE, MAX_DOCUMENT_BYTES, PackagePath, RELEASE_FILE, Release};

/// Names beside the index that are fetched when they are there.
pub(crate) const SIGNATURE_SUFFIX: &str = ".minisig";
/// Public key of the root, for a first installation.
pub(crate) const ROOT_FILE: &str = "root.pub";

/// A folder that holds a release.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
}

/// The bytes that trust is decided on.
#[derive(Debug, Clone, Default)]
pub struct Signed {
    pub index: Vec<u8>,
    pub index_signature: Option<String>,
    pub keys: Option<Vec<u8>>,
    pub keys_signature: Option<String>,
    /// What the folder itself says about its root key.
    pub root: Option<String>,
}

impl Folder {
    pub fn new(path: &Path) -> Folder {
        Folder { path: path.to_owned() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the index and what is signed beside it.
    pub fn signed(&self) -> Result<Signed, InstallError> {
        let index = self.path.join(RELEASE_FILE);
        if !index.is_file() {
            return Err(InstallError::ReleaseAbsent {
                place: self.path.display().to_string(),
                why: format!("`{}` holds no {RELEASE_FILE}", self.path.display()),
            });
        }
        let read = |name: &str| -> Result<Option<Vec<u8>>, InstallError> {
            let path = self.path.join(name);
            match fs_err::metadata(&path) {
                Ok(metadata) if metadata.len() > MAX_DOCUMENT_BYTES => Err(strata_manifest::ManifestError::TooLarge {
                    path,
                    bytes: metadata.len(),
                    limit: MAX_DOCUMENT_BYTES,
                }
                .into()),
                Ok(metadata) if metadata.is_file() => fs_err::read(&path)
                    .map(Some)
                    .map_err(|source| strata_manifest::ManifestError::Unreadable { path, source }.into()),
                _ => Ok(None),
            }
        };
        let text =
            |name: &str| Ok::<_, InstallError>(read(name)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
        Ok(Signed {
            index: read(RELEASE_FILE)?.unwrap_or_default(),
            index_signature: text(&format!("{RELEASE_FILE}{SIGNATURE_SUFFIX}"))?,
            keys: read(KEYS_FILE)?,
            keys_signature: text(&format!("{KEYS_FILE}{SIGNATURE_SUFFIX}"))?,
            root: text(ROOT_FILE)?,
        })
    }

    /// Parses an index that was read.
    pub fn parse(&self, signed: &Signed) -> Result<Release, InstallError> {
        let text = String::from_utf8_lossy(&signed.index);
        Ok(Release::parse(&text, &self.path.join(RELEASE_FILE))?)
    }

    /// Where a file of the release lies in this folder: under its path, or flat under its name, as
    /// people collect files by hand.
    pub fn find(&self, place: &str) -> Option<PathBuf> {
        let below = place.parse::<PackagePath>().ok().map(|path| path.below(&self.path));
        let name = place.split(['?', '#']).next().unwrap_or(place).rsplit('/').next().unwrap_or_default();
        let flat = name.parse::<PackagePath>().ok().map(|name| name.below(&self.path));
        below.into_iter().chain(flat).find(|path| path.is_file())
    }
}

/// An archive at hand for a component of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveSource {
    /// `engine-cpu`.
    pub id: String,
    pub path: PathBuf,
}

impl ArchiveSource {
    /// Finds every archive of the plan in a folder.
    pub fn of_plan(plan: &InstallPlan, folder: &Folder) -> Result<Vec<ArchiveSource>, InstallError> {
        let find = |part: &strata_manifest::plan::PlannedComponent| {
            let path = folder.find(&part.source).ok_or_else(|| InstallError::ArchiveAbsent {
                name: part.archive.clone(),
                folder: folder.path.clone(),
                cut: None,
            })?;
            Ok(ArchiveSource { id: part.id(), path })
        };
        plan.components.iter().map(find).collect()
    }
}
