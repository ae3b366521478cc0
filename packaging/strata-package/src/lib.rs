//! How a package is made and proven: recipe, staged tree, canonical archive; the verifier; signing.

pub mod archive_write;
mod error;
pub mod licences;
pub mod sign;
pub mod stage;
pub mod stray;
pub mod trust;

pub use error::PackageError;
