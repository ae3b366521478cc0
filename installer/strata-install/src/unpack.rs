//! The door to strata-package's reader of archives, which checks every entry while it unpacks.

use crate::{InstallError, Step};
use std::path::Path;
use strata_manifest::{Component, Sha256Digest};
use strata_package::PackageError;

/// Unpacks an archive into an empty folder; its size and digest are checked while it is read.
pub(crate) fn unpack(archive: &Path, into: &Path, size: u64, sha256: Sha256Digest) -> Result<Component, InstallError> {
    strata_package::unpack::unpack(archive, into, size, sha256).map_err(|error| match error {
        PackageError::Unwritable { path, source } => InstallError::write(&path, Step::Stage.name(), source),
        error => InstallError::package(&error),
    })
}
