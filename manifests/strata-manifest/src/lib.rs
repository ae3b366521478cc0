//! The documents that Strata's programs exchange, and the version law that binds them.
//!
//! One of the two crates that derive `Serialize` and `Deserialize`: a serialisable type is a
//! promise, and promises live in this room. Documents here are written and read by programs, so
//! readers ignore unknown fields, refuse an unknown major of the schema and bound what they read.
//! It does no work on what the documents describe (strata-plugin-host opens plugins, the installer
//! writes receipts). JSON schemas are generated into `manifests/schemas/`.

mod build_record;
mod digest;
mod document;
mod error;
mod plugin;
mod receipt;
pub mod report;
mod version;

pub use build_record::BuildRecord;
pub use digest::Sha256Digest;
pub use document::{Document, MAX_DOCUMENT_BYTES};
pub use error::ManifestError;
pub use plugin::{BackendKind, PluginDescriptor};
pub use receipt::{InstalledFile, InstalledModel, InstalledPlugin, Receipt};
pub use version::Version;
