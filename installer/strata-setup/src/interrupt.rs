//! Ctrl-C: the first one asks the work to stop where it can be taken up again, the second ends the
//! program. The command that goes on is printed either way.

use crate::printer;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

static PRESSED: AtomicU32 = AtomicU32::new(0);
static RESUME: OnceLock<String> = OnceLock::new();

type Hook = Arc<dyn Fn() + Send + Sync>;
static HOOK: OnceLock<Hook> = OnceLock::new();

/// Whether the user wants to stop.
pub(crate) fn asked() -> bool {
    PRESSED.load(Ordering::Relaxed) > 0
}

/// Called at the first Ctrl-C; one hook a program.
pub(crate) fn on_first(hook: impl Fn() + Send + Sync + 'static) {
    let _ = HOOK.set(Arc::new(hook));
}

/// The command that goes on where this one stops.
pub(crate) fn resume_command() -> &'static str {
    RESUME.get_or_init(|| {
        let words = std::env::args_os().map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>();
        words.join(" ")
    })
}

/// Listens from now on. A system without handlers ends the program at Ctrl-C, which the journals survive too.
pub(crate) fn listen() {
    let _ = ctrlc::set_handler(|| {
        if PRESSED.fetch_add(1, Ordering::Relaxed) == 0 {
            if let Some(hook) = HOOK.get() {
                hook();
            }
            printer::talk("\nstopping; what is done so far is kept");
        } else {
            printer::talk(&format!("stopped; to go on: `{}`", resume_command()));
            end_now();
        }
    });
}

#[expect(clippy::exit, reason = "the second Ctrl-C is for a program that does not stop by itself")]
fn end_now() {
    std::process::exit(i32::from(strata_diag::ExitStatus::Interrupted.number()));
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%~".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("--to=a/b"), "--to=a/b");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
