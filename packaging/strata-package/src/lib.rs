//! How a package is made and proven: recipe, staged tree, canonical archive; the verifier; signing.

pub mod archive_read;
pub mod archive_write;
pub mod build;
mod describe;
mod digest;
pub mod elf;
mod error;
pub mod gpu;
pub mod index;
pub mod keys;
pub mod licences;
mod peek;
pub mod sbom;
pub mod sign;
pub mod stage;
pub mod stray;
pub mod sums;
pub mod trust;
pub mod unpack;
pub mod verify;

pub use error::PackageError;
