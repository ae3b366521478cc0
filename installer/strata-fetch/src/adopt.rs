//! Bytes that are on this machine already: unfinished downloads of other programs, damaged and older files. They
//! are taken over chunk by chunk, each proven by its own digest where the index has one, else believed until the
//! whole is hashed. What they are taken from is never changed, but for a damaged file that is mended in its place.

use crate::behind::BUFFER;
use crate::job::{End, Job};
use crate::journal::{Identity, Journal};
use crate::{CancelFlag, FetchError};
use sha2::{Digest, Sha256};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use strata_manifest::{LockedFile, Sha256Digest};

/// What is known of the chunks of the wanted file.
enum Known {
    /// Each one's digest: proof.
    Digests(Vec<Sha256Digest>),
    /// Sums of an earlier fetch of the same file: where to look.
    Sums(Vec<u32>),
    /// The digest of the whole alone.
    Whole,
}

/// Takes what is there into the part file; a journal of it, if there is anything.
pub(crate) fn adopt(job: &Job<'_>, journal: Option<Journal>) -> Result<Option<Journal>, End> {
    let mut journal = journal;
    if let Some(journal) = journal.as_mut().filter(|_| job.request.audit) {
        audit_part(job, journal)?;
    }
    let request = job.request;
    let named = !request.adopt.is_empty();
    let at_place = fs_err::metadata(&request.to).ok().filter(std::fs::Metadata::is_file);
    if !named && at_place.is_none() || journal.as_ref().is_some_and(Journal::is_whole) {
        return Ok(journal);
    }
    let (Some(size), Some(sha256)) = (job.resolved.size, job.resolved.sha256) else {
        if named {
            let why = "neither size nor digest of it is known, so nothing tells what a file at hand is worth";
            job.observer.note(&format!("{}: {why}; it is fetched whole", request.name));
        }
        return Ok(journal);
    };
    let identity = Identity { size, chunk: job.settings.chunk, sha256: Some(sha256) };
    let known = known(job, &identity);
    let mut candidates: Vec<(PathBuf, bool)> = request.adopt.iter().map(|path| (path.clone(), true)).collect();
    if let Some(at_place) = at_place {
        // Without sums only a file that is shorter looks like a beginning of the wanted one.
        let likely = !matches!(known, Known::Whole) || at_place.len() < size;
        if likely && request.mend && journal.is_none() {
            return mend(job, &identity, &known);
        }
        if likely {
            candidates.push((request.to.clone(), false));
        }
    }
    for (path, asked) in candidates {
        match take(job, journal.take(), &identity, &known, &path) {
            Ok(taken) => journal = taken,
            Err(End::Failed(FetchError::Unreadable { path, source })) if !asked => {
                job.observer.note(&format!("`{}` cannot be read: {source}", path.display()));
                journal = Journal::open(&job.lock.journal, &job.lock.part);
            }
            Err(end) => return Err(end),
        }
        if journal.as_ref().is_some_and(Journal::is_whole) {
            break;
        }
    }
    Ok(journal)
}

fn known(job: &Job<'_>, identity: &Identity) -> Known {
    if job.expected(identity, 0).is_some() {
        return Known::Digests(job.request.chunks.clone());
    }
    let same = |pin: &&LockedFile| pin.size == identity.size && Some(pin.sha256) == identity.sha256;
    let pieces = job.request.pin.as_ref().filter(same).and_then(|pin| pin.pieces.as_ref());
    match pieces.filter(|pieces| pieces.bytes == identity.chunk).and_then(|pieces| pieces.sums(identity.size)) {
        Some(sums) => Known::Sums(sums),
        None => Known::Whole,
    }
}

/// Whether bytes are, or may be, a chunk of the wanted file; and whether that is proven.
fn fits(known: &Known, index: u64, bytes: &[u8]) -> Option<bool> {
    let at = usize::try_from(index).ok()?;
    match known {
        Known::Digests(digests) => (digests.get(at) == Some(&Sha256Digest::of_bytes(bytes))).then_some(true),
        Known::Sums(sums) => (sums.get(at) == Some(&crc32fast::hash(bytes))).then_some(false),
        // Nothing but zeros is a hole that another program has not filled yet.
        Known::Whole => bytes.iter().any(|byte| *byte != 0).then_some(false),
    }
}

/// Copies the good chunks of a file that the part does not hold yet.
fn take(
    job: &Job<'_>,
    journal: Option<Journal>,
    identity: &Identity,
    known: &Known,
    path: &Path,
) -> Result<Option<Journal>, End> {
    let unreadable = |source| End::Failed(FetchError::Unreadable { path: path.to_owned(), source });
    if !fs_err::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unreadable(std::io::Error::other("it is no ordinary file")));
    }
    let file = fs_err::File::open(path).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    if length == 0 {
        return Ok(journal);
    }
    let mut journal = match journal {
        Some(journal) => journal,
        None => job.begin(identity.size)?,
    };
    let mut options = fs_err::OpenOptions::new();
    let part = options.write(true).open(&job.lock.part).map_err(|error| job.disk(error))?;
    let mut buffer = vec![0; usize::try_from(identity.chunk.min(identity.size)).unwrap_or(0)];
    let mut taken = 0;
    for index in 0..identity.chunks() {
        let (start, wanted) = (identity.start(index), identity.chunk_len(index));
        if journal.chunks.contains_key(&index) || start + wanted > length {
            continue;
        }
        if job.cancel.is_set() {
            return Err(job.cancelled().into());
        }
        let bytes = &mut buffer[..usize::try_from(wanted).unwrap_or(0)];
        file.file().read_exact_at(bytes, start).map_err(unreadable)?;
        let Some(proven) = fits(known, index, bytes) else { continue };
        part.file().write_all_at(bytes, start).map_err(|error| job.disk(error))?;
        let crc = crc32fast::hash(bytes);
        let recorded = if proven { journal.record(index, crc) } else { journal.record_unproven(index, crc) };
        recorded.map_err(|error| job.disk(error))?;
        taken += 1;
    }
    let (of, name) = (identity.chunks(), &job.request.name);
    job.observer.note(&format!("{name}: {taken} of {of} chunks are taken from `{}`", path.display()));
    Ok(Some(journal))
}

/// Makes the damaged file at the place itself the part, with a journal of its good chunks.
fn mend(job: &Job<'_>, identity: &Identity, known: &Known) -> Result<Option<Journal>, End> {
    let to = &job.request.to;
    let unreadable = |source| End::Failed(FetchError::Unreadable { path: to.clone(), source });
    let file = fs_err::File::open(to).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    let mut buffer = vec![0; usize::try_from(identity.chunk.min(identity.size)).unwrap_or(0)];
    let disk = |source| End::Failed(job.disk(source));
    let _ = fs_err::remove_file(&job.lock.part);
    let mut journal = Journal::create(&job.lock.journal, identity.clone()).map_err(disk)?;
    for index in 0..identity.chunks() {
        let (start, wanted) = (identity.start(index), identity.chunk_len(index));
        if start + wanted > length {
            break;
        }
        if job.cancel.is_set() {
            return Err(job.cancelled().into());
        }
        let bytes = &mut buffer[..usize::try_from(wanted).unwrap_or(0)];
        file.file().read_exact_at(bytes, start).map_err(unreadable)?;
        match fits(known, index, bytes) {
            Some(true) => journal.record(index, crc32fast::hash(bytes)).map_err(disk)?,
            Some(false) => journal.record_unproven(index, crc32fast::hash(bytes)).map_err(disk)?,
            None => {}
        }
    }
    // Only now: until here a killed run leaves the file where it was.
    fs_err::rename(to, &job.lock.part).map_err(disk)?;
    if length > identity.size {
        let mut options = fs_err::OpenOptions::new();
        let part = options.write(true).open(&job.lock.part).map_err(disk)?;
        part.set_len(identity.size).map_err(disk)?;
    }
    let broken = identity.chunks() - journal.chunks.len() as u64;
    job.observer.note(&format!("{}: {broken} of {} chunks are broken", job.request.name, identity.chunks()));
    Ok(Some(journal))
}

/// Reads every chunk of an unfinished file again and takes out what is not what came.
fn audit_part(job: &Job<'_>, journal: &mut Journal) -> Result<(), End> {
    let mut bad = broken(&job.lock.part, journal).map_err(|error| job.disk(error))?;
    if let Known::Digests(digests) = known(job, &journal.identity) {
        let file = fs_err::File::open(&job.lock.part).map_err(|error| job.disk(error))?;
        let wrong = |index: &u64| {
            let (start, length) = (journal.identity.start(*index), journal.identity.chunk_len(*index));
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
            let read = file.file().read_exact_at(&mut bytes, start).is_ok();
            !read
                || usize::try_from(*index).ok().and_then(|at| digests.get(at)) != Some(&Sha256Digest::of_bytes(&bytes))
        };
        bad.extend(journal.chunks.keys().filter(|index| wrong(index)).copied());
    }
    bad.sort_unstable();
    bad.dedup();
    let of = journal.chunks.len();
    for index in &bad {
        journal.drop_chunk(*index).map_err(|error| job.disk(error))?;
    }
    // Others than the first may hold what the digest took in: it is taken again from what is on the disk.
    let again = (0, crate::running::Running::default());
    if journal.hashed.0 > 0 {
        journal.record_hashed(0, &again.1).map_err(|error| job.disk(error))?;
    }
    job.observer.note(&format!("{}: {} of {of} chunks of the unfinished file are broken", job.request.name, bad.len()));
    Ok(())
}

/// CRC-32 of one chunk of a file.
pub(crate) fn crc_of(file: &std::fs::File, identity: &Identity, index: u64, buffer: &mut [u8]) -> std::io::Result<u32> {
    let mut crc = crc32fast::Hasher::new();
    let (mut at, end) = (identity.start(index), identity.start(index) + identity.chunk_len(index));
    while at < end {
        let want = usize::try_from((end - at).min(buffer.len() as u64)).unwrap_or(buffer.len());
        file.read_exact_at(&mut buffer[..want], at)?;
        crc.update(&buffer[..want]);
        at += want as u64;
    }
    Ok(crc.finalize())
}

/// Chunks of a part that are not what their lines say.
pub(crate) fn broken(part: &Path, journal: &Journal) -> std::io::Result<Vec<u64>> {
    let file = fs_err::File::open(part)?;
    let mut buffer = vec![0; BUFFER];
    let mut broken = Vec::new();
    for (index, held) in &journal.chunks {
        if crc_of(file.file(), &journal.identity, *index, &mut buffer)? != held.crc {
            broken.push(*index);
        }
    }
    Ok(broken)
}

/// What a finished file is when it is read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    pub size: u64,
    pub sha256: Sha256Digest,
    /// Pieces whose digest or sum is not the known one; empty where none are known.
    pub broken: Vec<u64>,
}

/// Reads a file whole. `digests` are of its pieces of `chunk` bytes; `pin` may hold sums of them.
pub fn audit(
    path: &Path,
    chunk: u64,
    digests: &[Sha256Digest],
    pin: Option<&LockedFile>,
    cancel: &CancelFlag,
) -> Result<Audit, FetchError> {
    let unreadable = |source| FetchError::Unreadable { path: path.to_owned(), source };
    let file = fs_err::File::open(path).map_err(unreadable)?;
    let size = file.metadata().map_err(unreadable)?.len();
    let identity = Identity { size, chunk, sha256: None };
    let sums = pin.filter(|pin| pin.size == size).and_then(|pin| pin.pieces.as_ref());
    let sums = sums.filter(|pieces| pieces.bytes == chunk).and_then(|pieces| pieces.sums(size)).unwrap_or_default();
    let digests = if digests.len() as u64 == identity.chunks() { digests } else { &[] };
    let (mut whole, mut broken, mut done) = (Sha256::new(), Vec::new(), 0);
    let mut buffer = vec![0; BUFFER];
    for index in 0..identity.chunks() {
        if cancel.is_set() {
            return Err(FetchError::Cancelled { name: path.display().to_string() });
        }
        let (mut crc, mut sha256) = (crc32fast::Hasher::new(), Sha256::new());
        let mut piece = (&file).take(identity.chunk_len(index));
        loop {
            let count = piece.read(&mut buffer).map_err(unreadable)?;
            if count == 0 {
                break;
            }
            whole.update(&buffer[..count]);
            if digests.is_empty() {
                crc.update(&buffer[..count]);
            } else {
                sha256.update(&buffer[..count]);
            }
            done += count as u64;
        }
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let wrong = match (digests.get(at), sums.get(at)) {
            (Some(digest), _) => *digest.as_array() != <[u8; 32]>::from(sha256.finalize()),
            (None, Some(sum)) => *sum != crc.finalize(),
            (None, None) => false,
        };
        if wrong {
            broken.push(index);
        }
    }
    let sha256 = Sha256Digest::from_array(whole.finalize().into());
    if done != size {
        return Err(unreadable(std::io::Error::other("it changed while it was read")));
    }
    Ok(Audit { size, sha256, broken })
}
