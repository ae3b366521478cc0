//! What goes on behind the connections of a file: the digest of the whole, in order, and making what came durable.

use crate::adopt::crc_of;
use crate::job::{End, Job};
use crate::journal::Journal;
use crate::parts::Shared;
use std::os::unix::fs::FileExt;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use strata_manifest::Sha256Digest;

/// The file is made durable after so many chunks, or this long after the first that is not: a crash of the
/// machine costs no more than that.
const SYNC_CHUNKS: u64 = 32;
const SYNC_EVERY: Duration = Duration::from_secs(10);
/// Read at once: what the processor's cache holds.
pub(crate) const BUFFER: usize = 256 << 10;

impl Job<'_> {
    /// Takes the chunks into the digest in order as they come. What an earlier run left is read while the rest
    /// comes, not before: nobody waits for it.
    pub(crate) fn hash(&self, shared: &Shared, file: &fs_err::File) -> Option<Sha256Digest> {
        let identity = &shared.identity;
        let mut buffer = vec![0_u8; BUFFER];
        let mut state = shared.lock();
        while !shared.heard.load(Ordering::Relaxed) && !state.journal.is_whole() && !state.idle() {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let (count, mut running) = state.journal.hashed.clone();
        let doubtful: Vec<u64> =
            state.journal.chunks.iter().filter(|(_, held)| held.doubtful).map(|(index, _)| *index).collect();
        drop(state);
        self.compare(shared, file, &doubtful, &mut buffer)?;
        shared.sure.store(true, Ordering::Relaxed);
        for index in count..identity.chunks() {
            let mut state = shared.lock();
            while !state.journal.chunks.contains_key(&index) {
                if shared.ended.load(Ordering::Relaxed) || state.idle() {
                    return None;
                }
                state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            let (mut at, end) = (identity.start(index), identity.start(index) + identity.chunk_len(index));
            while at < end {
                if self.cancel.is_set() {
                    shared.end(self.cancelled().into());
                    return None;
                }
                let want = usize::try_from((end - at).min(buffer.len() as u64)).unwrap_or(buffer.len());
                if let Err(error) = file.file().read_exact_at(&mut buffer[..want], at) {
                    shared.end(self.disk(error).into());
                    return None;
                }
                running.update(&buffer[..want]);
                at += want as u64;
            }
            // The last state is of no use to anybody.
            if index + 1 < identity.chunks()
                && let Err(error) = shared.lock().journal.record_hashed(index + 1, &running)
            {
                shared.end(self.disk(error).into());
                return None;
            }
        }
        Some(running.finish())
    }

    /// Whether doubtful chunks are as their lines say. Until all are compared no line may say that the file is
    /// durable: it would hide them from the next run.
    fn compare(&self, shared: &Shared, file: &fs_err::File, doubtful: &[u64], buffer: &mut [u8]) -> Option<()> {
        let mut bad = 0;
        for index in doubtful {
            if shared.ended.load(Ordering::Relaxed) {
                return None;
            }
            let held = *shared.lock().journal.chunks.get(index)?;
            let same = crc_of(file.file(), &shared.identity, *index, buffer).map(|crc| crc == held.crc);
            let dropped = match same {
                Ok(true) => continue,
                Ok(false) => shared.lock().journal.drop_chunk(*index),
                Err(error) => Err(error),
            };
            if let Err(error) = dropped {
                shared.end(self.disk(error).into());
                return None;
            }
            bad += 1;
        }
        if bad == 0 {
            return Some(());
        }
        let why = format!("{bad} chunks did not survive a crash of the machine; they are fetched again");
        shared.end(End::Damaged { why });
        None
    }
}

/// Makes the file durable now and then, on a thread of its own: nobody waits for the disk.
pub(crate) fn keep_durable(shared: &Shared, file: &fs_err::File) {
    let mut last = Instant::now();
    loop {
        let mut state = shared.lock();
        loop {
            if shared.ended.load(Ordering::Relaxed) || state.idle() {
                return;
            }
            let due = state.unsynced > 0 && last.elapsed() >= SYNC_EVERY;
            if shared.sure.load(Ordering::Relaxed) && (state.unsynced >= SYNC_CHUNKS || due) {
                break;
            }
            state =
                shared.changed.wait_timeout(state, Duration::from_secs(1)).unwrap_or_else(PoisonError::into_inner).0;
        }
        let Ok(length) = state.journal.length() else { return };
        state.unsynced = 0;
        let journal = state.journal.try_clone();
        drop(state);
        last = Instant::now();
        // A disk that cannot do this does not get the promise, and loses nothing else.
        if file.sync_data().is_ok() && shared.lock().journal.record_durable(length).is_ok() {
            let _ = journal.and_then(|journal| journal.sync_data());
        }
    }
}

/// The same at the end of a run that did not finish.
pub(crate) fn make_durable(mut journal: Journal, file: &fs_err::File, unsynced: u64) {
    let Some(length) = journal.length().ok().filter(|_| unsynced > 0) else { return };
    if file.sync_data().is_ok() && journal.record_durable(length).is_ok() {
        let _ = journal.try_clone().and_then(|journal| journal.sync_data());
    }
}
