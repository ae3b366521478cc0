//! Turns reading a page that a mapped file no longer has (it shrank, or its disk failed) from a
//! SIGBUS that ends the program into zeros and a mark on the mapping.
//!
//! The handler puts zero pages over the rest of that mapping and lets the read go on; whoever
//! reads asks afterwards, through `Gguf::check_unchanged`, whether what was read was the file.
//! Faults at other addresses go on to the handler that was there before. A program opts in by
//! calling [`guard_mappings`] once; a library must not change how a process handles signals.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Mappings that can be watched at a time; a split model has some tens of parts at most.
const SLOTS: usize = 256;

/// One watched mapping. Free while `start` is 0. The handler reads it without a lock.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    faulted: AtomicBool,
}

static WATCHED: [Slot; SLOTS] =
    [const { Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0), faulted: AtomicBool::new(false) } }; SLOTS];
/// Held while slots are taken and given back.
static CHANGING: Mutex<()> = Mutex::new(());
/// What was there before this module's handler.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Installs the handler for the whole process. Later calls do nothing.
///
/// Without it, a model file that shrinks while it is in use ends the program with a SIGBUS.
pub fn guard_mappings() -> std::io::Result<()> {
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    // SAFETY: it only asks for a number.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    PAGE_BYTES.store(usize::try_from(page_bytes).unwrap_or(0), Ordering::Release);

    // SAFETY: `sigaction` is a plain C struct of integers and pointers, for which zeros are valid.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action asks for the present one, and `previous` is writable.
    let status = unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut previous) };
    if status != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // Known before the handler can run and need it.
    let _ = PREVIOUS.set(previous);

    let mut action = previous;
    action.sa_sigaction = on_bus_error as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `action` is a whole struct, and `on_bus_error` is a handler of the three-argument
    // form that does only what is allowed in one (see there).
    let status = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
    if status != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

/// A watched range of addresses, for as long as this lives.
#[derive(Debug)]
pub(super) struct Watch(Option<usize>);

impl Watch {
    /// Watches a mapping. When all slots are taken, the mapping is used unwatched.
    pub(super) fn new(map: &[u8]) -> Watch {
        let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
        let free = WATCHED.iter().position(|slot| slot.start.load(Ordering::Relaxed) == 0);
        if let Some(slot) = free.map(|index| &WATCHED[index]) {
            let start = map.as_ptr().addr();
            slot.faulted.store(false, Ordering::Relaxed);
            slot.end.store(start + map.len(), Ordering::Release);
            slot.start.store(start, Ordering::Release);
        }
        Watch(free)
    }

    /// Whether a read from the mapping gave zeros instead of the file's bytes.
    pub(super) fn faulted(&self) -> bool {
        self.0.is_some_and(|index| WATCHED[index].faulted.load(Ordering::Acquire))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(index) = self.0 {
            let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
            WATCHED[index].start.store(0, Ordering::Release);
        }
    }
}

/// The slot that watches this address.
fn slot_of(address: usize) -> Option<&'static Slot> {
    WATCHED.iter().find(|slot| {
        let start = slot.start.load(Ordering::Acquire);
        let end = slot.end.load(Ordering::Acquire);
        // The same start before and after: `end` belongs to it.
        start != 0 && (start..end).contains(&address) && slot.start.load(Ordering::Acquire) == start
    })
}

/// Runs inside the signal, on the thread that read: no locks, no allocation, no panic.
extern "C" fn on_bus_error(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid `siginfo_t` to a handler installed with SA_SIGINFO.
    let info = unsafe { &*info };
    // SAFETY: for SIGBUS the address field is the one that is filled in.
    let address = unsafe { info.si_addr() }.addr();
    let page_bytes = PAGE_BYTES.load(Ordering::Acquire);
    if let Some(slot) = slot_of(address)
        && page_bytes != 0
        && cover_with_zeros(address - address % page_bytes, slot.end.load(Ordering::Acquire))
    {
        slot.faulted.store(true, Ordering::Release);
        return;
    }
    // Not ours: the handler from before takes the fault, which happens again on return.
    if let Some(previous) = PREVIOUS.get() {
        // SAFETY: `previous` is what this same call gave earlier.
        unsafe { libc::sigaction(libc::SIGBUS, previous, std::ptr::null_mut()) };
    }
}

/// Puts pages of zeros over `[start, end)`, which lies in a watched mapping.
fn cover_with_zeros(start: usize, end: usize) -> bool {
    // SAFETY: gives this thread's own `errno`, which the interrupted code may still want to read.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above, it is always readable.
    let kept = unsafe { *errno };
    // SAFETY: the range is within a mapping that `Mapping` owns and whose length is rounded up to
    // whole pages by the kernel; the mapping is alive, since some thread is reading from it, and
    // is unmapped as a whole later. Readers see zeros from here on, which are valid bytes.
    let covered = unsafe {
        libc::mmap(
            std::ptr::without_provenance_mut(start),
            end - start,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    // SAFETY: as above, it is always writable.
    unsafe { *errno = kept };
    covered != libc::MAP_FAILED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Mapping;

    #[test]
    fn a_shrunken_file_reads_as_zeros_and_is_marked() {
        guard_mappings().unwrap();
        guard_mappings().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shrinking");
        let page = PAGE_BYTES.load(Ordering::Relaxed);
        fs_err::write(&path, vec![7; 3 * page + 10]).unwrap();
        let map = Mapping::open(&path).unwrap();
        let other = Mapping::open(&path).unwrap();
        assert_eq!(map.bytes()[3 * page], 7);
        fs_err::OpenOptions::new().write(true).open(&path).unwrap().set_len(page as u64).unwrap();

        assert_eq!(map.bytes()[0], 7, "what is left of the file is still there");
        let beyond = map.bytes()[2 * page..].iter().map(|byte| u64::from(*byte)).sum::<u64>();
        assert_eq!(beyond, 0);
        assert_eq!(map.bytes()[page], 0);
        let text = map.check_unchanged(&path).unwrap_err().to_string();
        assert!(text.contains(&format!("has {page} now")), "{text}");

        // The file has its old length again, but what was read from it was not the file.
        fs_err::OpenOptions::new().write(true).open(&path).unwrap().set_len(3 * page as u64 + 10).unwrap();
        let text = map.check_unchanged(&path).unwrap_err().to_string();
        assert!(text.contains("could not be read"), "{text}");
        other.check_unchanged(&path).unwrap();
    }

    /// Runs itself in a child process, where the fault is to end the program as it always did.
    #[test]
    fn other_faults_still_end_the_program() {
        const CHILD: &str = "STRATA_TEST_FAULT_UNWATCHED";
        if std::env::var_os(CHILD).is_some() {
            guard_mappings().unwrap();
            let file = tempfile::tempfile().unwrap();
            file.set_len(100).unwrap();
            // SAFETY: the file is nameless, so nobody but this function changes it.
            let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
            file.set_len(0).unwrap();
            panic!("read {} from a file without bytes", std::hint::black_box(&map)[0]);
        }
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "gguf::mapping::guard::tests::other_faults_still_end_the_program"])
            .env(CHILD, "1")
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGBUS), "{status}");
    }

    #[test]
    fn slots_are_given_back() {
        let bytes = vec![0_u8; 10];
        for _ in 0..3 * SLOTS {
            let watch = Watch::new(&bytes);
            assert!(watch.0.is_some());
            assert!(slot_of(bytes.as_ptr().addr() + 9).is_some());
            assert!(!watch.faulted());
        }
        assert!(slot_of(bytes.as_ptr().addr()).is_none());
    }
}
