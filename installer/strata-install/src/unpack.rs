//! The door to strata-package's reader of archives.

use crate::InstallError;
use std::path::Path;
use strata_manifest::{Component, Document, Sha256Digest};

/// Unpacks an archive into an empty folder; its size and digest are checked while it is read.
pub(crate) fn unpack(archive: &Path, into: &Path, size: u64, sha256: Sha256Digest) -> Result<Component, InstallError> {
    // TEMPORARY until strata_package::unpack is there.
    let bytes = fs_err::read(archive).map_err(|e| InstallError::write(archive, "stage", e))?;
    if bytes.len() as u64 != size || Sha256Digest::of_bytes(&bytes) != sha256 {
        return Err(InstallError::StageDamaged {
            path: archive.to_owned(),
            expected: sha256.to_string(),
            got: Sha256Digest::of_bytes(&bytes).to_string(),
        });
    }
    tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]))
        .unpack(into)
        .map_err(|e| InstallError::write(into, "stage", e))?;
    let top = fs_err::read_dir(into).expect("t").next().expect("t").expect("t").path();
    Ok(Component::read(&top.join("component.json"))?)
}
