//! For authors of backend plugins in Rust: implement [`Backend`] and [`Device`], name the type in
//! [`export_backend!`], and the library exports `strata_backend_entry` with a complete table.
//!
//! The crate owns everything that is the same in all plugins: negotiating the version, reading and
//! writing structs by their size, handle tables, the lock per device, turning panics and failures
//! into a status and a text. A plugin contains no unsafe code for its boundary.
//!
//! It knows nothing of ops, formats or hardware, and it does not validate programs beyond the
//! indices inside them: the host does. Called by the crates under `backends/`; the host never
//! links it.
//!
//! The contract in words is docs/ABI.md.

#![warn(missing_docs)]

mod backend;
mod failure;
mod guard;
mod host;
mod view;

mod handles;
mod instance;
mod raw;

mod exports;

pub use backend::{Backend, Device, DeviceInfo, DeviceOptions, MemoryInfo, ProgramInfo};
pub use exports::{Exported, entry};
pub use failure::{Failure, Result};
pub use guard::catch;
pub use host::{ForeignMemory, Host};
pub use instance::Exports;
pub use view::ProgramView;

/// The ABI that this SDK was built with, so that a plugin needs no other dependency.
pub use strata_backend_abi as abi;

/// Exports `strata_backend_entry` for a [`Backend`]. Once per library.
#[macro_export]
macro_rules! export_backend {
    ($backend:ty) => {
        impl $crate::Exported for $backend {
            fn exports() -> &'static $crate::Exports<Self> {
                static EXPORTS: $crate::Exports<$backend> = $crate::Exports::new();
                &EXPORTS
            }
        }

        /// The one exported symbol.
        ///
        /// # Safety
        /// The pointers are null or valid as the ABI says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn strata_backend_entry(
            args: *const $crate::abi::StrataEntryArgs,
            result: *mut $crate::abi::StrataEntryResult,
        ) -> i32 {
            // SAFETY: this function's own contract is the one that `entry` asks for.
            unsafe { $crate::entry::<$backend>(args, result) }
        }
    };
}
