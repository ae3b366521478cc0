//! Tests only: a HIP runtime without a card. The library stands in for `libamdhip64.so.7` and is never
//! packaged: memory is the host's, code objects are read and checked as a loader does, and kernels run
//! in the library of the same sources that was compiled for the host.
//!
//! It is made to find mistakes, not to be fast. Streams do nothing until somebody waits for them, so a
//! buffer that is changed too early shows in the result; memory is full of NaNs at first and ends at a
//! page that may not be touched; what the real runtime refuses while a stream is recorded is refused.
//! Every call can be told to fail, and a card can be lost. It knows nothing of Strata: it is told by
//! `STRATA_SOFTWARE_HIP` (settings.rs) and by the `software_` functions (control.rs).
#![expect(unsafe_code, reason = "exports C functions over memory that their callers name")]

mod calls;
mod control;

mod code_object;
mod host;
mod memory;
mod message_pack;
mod settings;
mod state;
mod stream;

/// A call's answer: nothing, or one of the runtime's numbers.
type Answer = Result<(), i32>;

/// The runtime's numbers, as far as this one uses them.
mod code {
    pub(crate) const INVALID_VALUE: i32 = 1;
    pub(crate) const OUT_OF_MEMORY: i32 = 2;
    pub(crate) const NO_DEVICE: i32 = 100;
    pub(crate) const INVALID_DEVICE: i32 = 101;
    pub(crate) const INVALID_IMAGE: i32 = 200;
    pub(crate) const NO_BINARY_FOR_GPU: i32 = 209;
    pub(crate) const INVALID_HANDLE: i32 = 400;
    pub(crate) const NOT_FOUND: i32 = 500;
    pub(crate) const LAUNCH_FAILURE: i32 = 719;
    pub(crate) const CAPTURE_UNSUPPORTED: i32 = 900;
    pub(crate) const CAPTURE_INVALIDATED: i32 = 901;

    /// After these a card answers nothing else.
    pub(crate) fn is_sticky(code: i32) -> bool {
        matches!(code, 700 | 702 | 710 | 719)
    }
}
