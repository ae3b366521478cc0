//! Installing: a pure plan from facts, release and receipt; then journal, stage, verify, prove, one
//! atomic switch, receipt; and what is done with an installation afterwards (roll back, repair,
//! remove, clean up).
//!
//! It fetches nothing (strata-fetch does), asks nothing and prints nothing (strata-setup does), and
//! knows nothing of the engine: they meet in the receipt. strata-setup is its only caller.

pub mod plan;

mod apply;
mod disk;
mod error;
mod journal;
mod layout;
mod lock;
mod manage;
mod models;
mod prove;
mod release;
mod stage;
mod step;
mod trust;
mod unpack;
mod verifier;

pub use apply::{Applied, Apply, apply};
pub use disk::{Disk, DiskOp, volume_of};
pub use error::{InstallError, UnusableDevice, bytes};
pub use journal::{Stopped, stopped};
pub use layout::{InstallRoot, RECEIPT_FILE};
pub use lock::{Lock, take as lock};
pub use manage::{
    Audit, Collected, Removed, RepairSource, Uninstall, Uninstalled, audit, collect, looks_whole, repair, rollback,
    uninstall,
};
pub use models::{ModelFile, Placing, place_models};
pub use prove::{Proof, ProofFailure};
pub use release::{ArchiveSource, Folder};
pub use step::{Observer, Step, Unwatched};
pub use trust::{KeySource, Pins, TrustPolicy, check_release};
