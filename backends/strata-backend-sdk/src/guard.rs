//! Nothing unwinds across the boundary: [`catch`] turns a panic into a [`Failure`], [`guard`] turns
//! a failure into a status and keeps its text for `last_error`.
//!
//! Panic messages are taken by a hook, not from the payload alone, because only the hook sees the
//! place. The hook prints nothing inside `catch`: the text reaches the host once, as an error. A
//! panic outside `catch` (a thread that the plugin started bare) goes to the hook that was there
//! before, as in any program.

use core::panic::AssertUnwindSafe;
use std::cell::{Cell, RefCell};
use std::panic::PanicHookInfo;
use std::sync::Once;

use strata_backend_abi::StrataStatus;

use crate::{Failure, Result};

thread_local! {
    /// How many `catch` calls this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// What the hook saw of the panic that is unwinding.
    static PANIC_TEXT: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Text of this thread's last failed call.
    static LAST_ERROR: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `call`; a panic becomes a `Failure` with status `Internal` that names message and place.
///
/// The SDK wraps every call of the table in it. A plugin wraps the bodies of its own worker
/// threads in it and hands the failure to the thread that made the call, which returns it.
pub fn catch<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(call)?
}

/// Runs `call`; an error here is always a panic.
pub(crate) fn caught<T>(call: impl FnOnce() -> T) -> Result<T> {
    install_hook();
    let depth = DepthGuard::enter();
    // What the closure may have left half changed is not looked at again: its device is out of
    // order from then on (`DeviceSlot`), and the rest is locked state that is only replaced whole.
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(call));
    drop(depth);
    outcome.map_err(|payload| {
        let text = PANIC_TEXT.try_with(RefCell::take).ok().flatten();
        let text = text.unwrap_or_else(|| payload_text(&*payload).to_owned());
        drop_payload(payload);
        Failure::internal(format!("the plugin panicked: {text}"))
    })
}

/// Runs the body of an exported call: [`catch`], then the failure's status as the call's result
/// and its text as this thread's `last_error`.
pub(crate) fn guard(call: impl FnOnce() -> Result<()>) -> i32 {
    match catch(call) {
        Ok(()) => StrataStatus::Ok as i32,
        Err(failure) => {
            let status = match failure.status {
                // A failure that says Ok would be taken for success.
                StrataStatus::Ok => StrataStatus::Internal,
                other => other,
            };
            // Only fails while the thread is being torn down; then nobody asks any more.
            let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = failure.text);
            status as i32
        }
    }
}

/// Text of this thread's last failed call.
pub(crate) fn last_error() -> String {
    LAST_ERROR.try_with(|last| last.borrow().clone()).unwrap_or_default()
}

struct DepthGuard;

impl DepthGuard {
    fn enter() -> DepthGuard {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() + 1));
        DepthGuard
    }
}

impl Drop for DepthGuard {
    fn drop(&mut self) {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() - 1));
    }
}

/// A plugin that is a library of its own has its own copy of std, and so its own hook; in a test
/// that links the plugin in, the hook that was there keeps its job for all other panics.
fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if DEPTH.try_with(Cell::get).unwrap_or(0) == 0 {
                before(info);
                return;
            }
            let text = describe(info);
            let _ = PANIC_TEXT.try_with(|slot| {
                if let Ok(mut slot) = slot.try_borrow_mut() {
                    *slot = Some(text);
                }
            });
        }));
    });
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let text = payload_text(info.payload());
    match info.location() {
        Some(place) => format!("{text} ({}:{})", place.file(), place.line()),
        None => text.to_owned(),
    }
}

fn payload_text(payload: &(dyn core::any::Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "a panic without a text"
    }
}

/// The payload is a value of the plugin's choosing and its destructor may panic in turn.
fn drop_payload(payload: Box<dyn core::any::Any + Send>) {
    let depth = DepthGuard::enter();
    if let Err(second) = std::panic::catch_unwind(AssertUnwindSafe(move || drop(payload))) {
        core::mem::forget(second);
    }
    drop(depth);
    let _ = PANIC_TEXT.try_with(RefCell::take);
}
