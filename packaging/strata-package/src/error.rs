//! What can go wrong while a package is made, signed or proven.

use std::path::PathBuf;
use strata_diag::catalogue::general::{FILE_UNREADABLE, FILE_UNWRITABLE};
use strata_diag::catalogue::packages::{
    ARTEFACTS_DISAGREE, KEY_UNUSABLE, LICENCE_MISSING, PACKAGE_UNSOUND, RECIPE_INVALID, RELEASE_INCONSISTENT,
    SIGNATURE_INVALID, STAGE_MISSING, STAGE_UNCLAIMED, TRUST_REFUSED, UNPACK_REFUSED,
};
use strata_diag::{Code, Diagnose};
use strata_manifest::ManifestError;

/// A failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    #[error("cannot read `{}`", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("cannot write `{}`", path.display())]
    Unwritable { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("recipe `{}` cannot be used: {why}", recipe.display())]
    Recipe { recipe: PathBuf, why: String },
    #[error("{count} files ({bytes} bytes) in `{}` are claimed by no line of recipe `{recipe}`", folder.display())]
    Unclaimed {
        recipe: String,
        folder: PathBuf,
        count: usize,
        bytes: u64,
        /// The first of them, each with what it looks like, if that is known.
        first: Vec<(String, Option<&'static str>)>,
        /// How many look like unbundled code objects, and their bytes.
        code_objects: (usize, u64),
    },
    #[error("recipe `{recipe}` wants `{from}`, and no file in `{}` is that", folder.display())]
    Missing { recipe: String, from: String, folder: PathBuf },
    #[error("`{path}` {what}: expected {expected}, got {got}")]
    Disagrees { path: String, what: &'static str, expected: String, got: String },
    #[error("there is no licence text for {part}: {why}")]
    Licence { part: String, why: String },
    #[error("`{}` is not what a release folder holds: {why}", folder.display())]
    Release { folder: PathBuf, why: String },
    #[error("key `{}` cannot be used: {why}", path.display())]
    Key { path: PathBuf, why: String },
    #[error("the signature of `{}` does not fit: {why}", path.display())]
    Signature { path: PathBuf, why: String },
    #[error("`{}` cannot be trusted: {why}", path.display())]
    Trust { path: PathBuf, why: String },
    #[error("`{}` is not unpacked: {why}", archive.display())]
    Unpack { archive: PathBuf, why: String },
    #[error("`{}` does not pass its own proof: {count} findings", archive.display())]
    Unsound {
        archive: PathBuf,
        count: u64,
        /// The first of them: code and sentence.
        first: Vec<(&'static str, String)>,
    },
    #[error("`{tool}` failed: {why}")]
    Tool { tool: String, why: String },
}

impl PackageError {
    /// For `map_err` on reading.
    pub(crate) fn unreadable(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        |source| PackageError::Unreadable { path, source }
    }

    /// For `map_err` on writing.
    pub(crate) fn unwritable(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        |source| PackageError::Unwritable { path, source }
    }
}

impl Diagnose for PackageError {
    fn code(&self) -> &'static Code {
        match self {
            PackageError::Unreadable { .. } => FILE_UNREADABLE,
            PackageError::Unwritable { .. } => FILE_UNWRITABLE,
            PackageError::Manifest(error) => error.code(),
            PackageError::Recipe { .. } | PackageError::Tool { .. } => RECIPE_INVALID,
            PackageError::Unclaimed { .. } => STAGE_UNCLAIMED,
            PackageError::Missing { .. } => STAGE_MISSING,
            PackageError::Disagrees { .. } => ARTEFACTS_DISAGREE,
            PackageError::Licence { .. } => LICENCE_MISSING,
            PackageError::Release { .. } => RELEASE_INCONSISTENT,
            PackageError::Key { .. } => KEY_UNUSABLE,
            PackageError::Signature { .. } => SIGNATURE_INVALID,
            PackageError::Trust { .. } => TRUST_REFUSED,
            PackageError::Unsound { .. } => PACKAGE_UNSOUND,
            PackageError::Unpack { .. } => UNPACK_REFUSED,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        match self {
            PackageError::Unclaimed { first, count, code_objects, .. } => {
                let mut facts: Vec<(&str, String)> = first
                    .iter()
                    .map(|(path, looks)| {
                        let looks = looks.map(|looks| format!(" (looks like {looks})")).unwrap_or_default();
                        ("unclaimed", format!("{path}{looks}"))
                    })
                    .collect();
                if *count > first.len() {
                    facts.push(("and", format!("{} more", count - first.len())));
                }
                if code_objects.0 > 0 {
                    let (count, bytes) = code_objects;
                    facts.push(("unbundled code objects", format!("{count} files, {bytes} bytes")));
                }
                facts
            }
            PackageError::Unsound { first, .. } => first.clone(),
            PackageError::Disagrees { path, expected, got, .. } => {
                vec![("path", path.clone()), ("expected", expected.clone()), ("got", got.clone())]
            }
            _ => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        let hint = match self {
            PackageError::Unclaimed { code_objects, .. } if code_objects.0 > 0 => {
                "unbundled code objects are leftovers of the GPU compiler (`--save-temps`) and not needed: remove them, or \
                 build into a clean folder"
            }
            PackageError::Unclaimed { .. } => {
                "remove the files, or add a `[[file]]` line to the recipe that says what they are"
            }
            PackageError::Missing { .. } => "build what the recipe packs first, or say `optional = true` in that line",
            PackageError::Disagrees { .. } => {
                "a package that was fetched or copied: do that again, its bytes were changed; one that you build: build everything \
                 from one commit with one version, then package again"
            }
            PackageError::Licence { .. } => {
                "name a file with the text in the recipe: `[licence_texts]`, `\"name\" = \"path\"`"
            }
            PackageError::Unpack { archive, .. } => {
                return vec![format!("see what is wrong with it: `strata verify-package {}`", archive.display())];
            }
            PackageError::Unsound { first, .. } if first.iter().all(|(code, _)| *code == "S0527") => {
                "build with `cargo xtask dist`, or for tests accept the paths with `--allow-build-paths`"
            }
            PackageError::Manifest(error) => return error.hints(),
            _ => return Vec::new(),
        };
        vec![hint.to_owned()]
    }
}
