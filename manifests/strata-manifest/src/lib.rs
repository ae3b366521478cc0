//! The documents that Strata's programs exchange, and the version law that binds them.
//!
//! One of the two crates that derive `Serialize` and `Deserialize`: a serialisable type is a
//! promise, and promises live in this room. Documents here are written and read by programs, so
//! readers ignore unknown fields, refuse an unknown major of the schema and bound what they read.
//! It does no work on what the documents describe (strata-plugin-host opens plugins, the installer
//! writes receipts). JSON schemas are generated into `manifests/schemas/`.

mod build_record;
pub mod catalog;
mod component;
mod digest;
mod document;
mod error;
pub mod facts;
pub mod gpus;
mod lock;
mod path;
pub mod plan;
mod plugin;
mod receipt;
mod recipe;
mod release;
pub mod report;
pub mod setup_report;
mod time;
mod trust;
pub mod verify_report;
mod version;

pub use build_record::BuildRecord;
pub use catalog::{Catalog, CatalogFile, CatalogModel};
pub use component::{
    AbiRange, CHUNK_BYTES, COMPONENT_FILE, Component, FileMode, HostLibrary, MAX_FILES, MAX_UNPACKED_BYTES,
    PackageFile, Role, ThirdParty, component_id,
};
pub use digest::{Sha256Digest, Sha256Hasher};
pub use document::{Document, MAX_DOCUMENT_BYTES};
pub use error::ManifestError;
pub use facts::HostFacts;
pub use gpus::GpuTable;
pub use lock::{LOCK_FILE, Lock, LockedFile, LockedPieces, LockedWheel};
pub use path::{BadPath, MAX_PART_BYTES, MAX_PARTS, MAX_PATH_BYTES, PackagePath};
pub use plan::InstallPlan;
pub use plugin::{BackendKind, PluginDescriptor};
pub use receipt::{
    InstallRecord, InstalledComponent, InstalledFile, InstalledModel, InstalledPlugin, ModelStore, PinnedTrust,
    ProvenDevice, Receipt, ReleaseOrigin, StoredFile, StoredModel, Trust,
};
pub use recipe::{Recipe, RecipeFile, RecipePart, RecipePlugin};
pub use release::{RELEASE_FILE, Release, ReleaseComponent, ReleaseFile, ReleaseModel, SUMS_FILE};
pub use time::{BadTime, UtcTime};
pub use trust::{KEYS_FILE, KeyList, PublicKey, TrustRoot};
pub use version::Version;
