//! For tests in the same process: what a library that was loaded is told and asked.

use std::ffi::{CStr, c_char, c_int, c_long};

use crate::settings::Injected;
use crate::state::with;

/// A text of the caller's.
fn words(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null; tests pass NUL-terminated texts.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// From its `after`-th time on, `call` answers `code`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn software_fail(call: *const c_char, code: c_int, after: c_int) {
    let injected = Injected { call: words(call), code, after: u32::try_from(after).unwrap_or(0) };
    with(|state| state.failures.push(injected));
}

/// Another machine: the text is as in `STRATA_SOFTWARE_HIP`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn software_settings(text: *const c_char) {
    let settings = crate::settings::Settings::parse(&words(text));
    with(|state| {
        state.failures.clone_from(&settings.failures);
        state.settings = settings;
    });
}

/// How often something happened: `launches`, `kernels`, `replays`, `recorded`; `live`: allocations there are;
/// `queued`: work that nobody has waited for.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn software_count(what: *const c_char) -> c_long {
    let what = words(what);
    with(|state| match what.as_str() {
        "live" => state.blocks.len() as c_long,
        "pinned" => state.pinned.len() as c_long,
        "queued" => state.streams.values().map(|stream| stream.queue.len()).sum::<usize>() as c_long,
        what => state.counters.get(what).copied().unwrap_or(0),
    })
}
