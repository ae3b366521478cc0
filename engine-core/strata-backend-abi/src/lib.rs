//! The C ABI between the engine (host) and a backend plugin: types, numbers and their layout.
//!
//! This is the source of truth; `include/strata_backend.h` is generated from it and is what a
//! plugin in another language uses. Rules of ownership, threads, lifetime and compatibility are
//! stated once, in docs/ABI.md. In short:
//!
//! - one exported symbol, [`ENTRY_SYMBOL`], of type [`StrataEntryFn`];
//! - `major.minor`: same major needed, the lower minor wins ([`negotiate`]);
//! - every struct starts with its size in bytes; a reader takes larger ones and reads a missing
//!   tail as zero ([`read_sized`]); fields are only ever appended;
//! - fixed-width integers; text is UTF-8 pointer + length; who allocates frees; nothing unwinds across;
//! - the host validates everything, a plugin assumes valid arguments.
//!
//! It holds no logic beyond that: no loading (strata-plugin-host), no panic guard
//! (strata-backend-sdk). Suggested reading order is the order of the modules below.
#![expect(unsafe_code, reason = "reading structs of unknown tail length through pointers is what this crate is for")]

pub mod codebook;
mod device;
mod dtype;
pub mod layout;
mod op;
mod program;
mod status;
mod table;
mod tensor;
mod text;

pub use device::*;
pub use dtype::*;
pub use op::*;
pub use program::*;
pub use status::*;
pub use table::*;
pub use tensor::*;
pub use text::*;

/// Major version: plugin and host must agree on it.
pub const STRATA_ABI_MAJOR: u32 = 1;
/// Minor version of this header. Within a major, the lower of both sides' minors is in force.
pub const STRATA_ABI_MINOR: u32 = 0;
/// `major << 16 | minor`, the form in which versions cross the boundary.
pub const STRATA_ABI_VERSION: u32 = (STRATA_ABI_MAJOR << 16) | STRATA_ABI_MINOR;

/// Name of the one exported symbol.
pub const ENTRY_SYMBOL: &str = "strata_backend_entry";

/// Packs a version into the form that crosses the boundary.
pub const fn abi_version(major: u32, minor: u32) -> u32 {
    (major << 16) | (minor & 0xffff)
}

/// The version in force between two ranges `(lowest, highest)`, or `None`: the lower of both
/// highest versions, if both sides still speak it.
pub fn negotiate(host: (u32, u32), plugin: (u32, u32)) -> Option<u32> {
    let in_force = host.1.min(plugin.1);
    (in_force >= host.0.max(plugin.0)).then_some(in_force)
}

/// Reads a struct that starts with its own size (`u32`), written by the other side: a longer
/// struct is cut, a shorter one's missing tail is zero.
///
/// # Safety
/// `source` is valid for reading the number of bytes that its first four bytes say, and stays
/// unchanged meanwhile. `T` is a `#[repr(C)]` type of this crate (all zero bytes are valid).
pub unsafe fn read_sized<T: Copy + SizedStruct>(source: *const T) -> T {
    // SAFETY: the caller guarantees at least the four bytes of the size field.
    let declared = unsafe { source.cast::<u32>().read_unaligned() } as usize;
    let mut value = core::mem::MaybeUninit::<T>::zeroed();
    let bytes = declared.min(size_of::<T>());
    // SAFETY: `bytes` is within what the caller guarantees for `source` and within `T`.
    unsafe { core::ptr::copy_nonoverlapping(source.cast::<u8>(), value.as_mut_ptr().cast::<u8>(), bytes) };
    // SAFETY: `SizedStruct` promises that zeroed and partly copied bytes are a valid `T`.
    unsafe { value.assume_init() }
}

/// A `#[repr(C)]` struct whose first field is its size and for which all-zero bytes are valid.
///
/// # Safety
/// The implementor starts with `struct_size: u32`, holds only integers, floats, raw pointers and
/// `Option` of function pointers, and has no padding that is read.
pub unsafe trait SizedStruct: Copy {
    /// Size of the struct as this build knows it.
    const SIZE: u32;
}

macro_rules! sized_struct {
    ($($name:ident),* $(,)?) => {$(
        // SAFETY: `#[repr(C)]`, starts with `struct_size: u32`, only plain fields (see its definition).
        unsafe impl $crate::SizedStruct for $name {
            const SIZE: u32 = core::mem::size_of::<$name>() as u32;
        }
    )*};
}
pub(crate) use sized_struct;
