//! Which chunks of a file are there. A text file: a head that says what the chunks belong to, then a line for
//! each thing that happened, with a checksum of its own. A torn last line counts for nothing.
//!
//! A chunk's line is written after its bytes, so a killed program leaves nothing in the journal that is not in the
//! file: both are in the system's cache. A crash of the machine may lose bytes whose line survived. So the file
//! is made durable now and then, and a line says how much of the journal that covers; chunks of later lines are
//! doubtful to the next run, which compares them with the checksum in their line before they count.

use crate::running::Running;
use fs_err::os::unix::fs::OpenOptionsExt;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use strata_manifest::Sha256Digest;

const HEAD: &str = "strata-chunks/2";
/// More is no journal of ours: a file of 16 TiB needs less.
const MAX_BYTES: u64 = 640 << 20;
/// A link that somebody put in the place of a part is not followed.
pub(crate) const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

/// What chunks belong to: with another size or digest they are another file's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) size: u64,
    /// Bytes of a chunk.
    pub(crate) chunk: u64,
    /// Digest that the whole file must have, if it was known.
    pub(crate) sha256: Option<Sha256Digest>,
}

impl Identity {
    pub(crate) fn chunks(&self) -> u64 {
        self.size.div_ceil(self.chunk)
    }

    /// Bytes of one chunk.
    pub(crate) fn chunk_len(&self, index: u64) -> u64 {
        self.size.saturating_sub(self.start(index)).min(self.chunk)
    }

    pub(crate) fn start(&self, index: u64) -> u64 {
        index.saturating_mul(self.chunk)
    }
}

/// A chunk that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) crc: u32,
    /// Taken from another file with nothing that proves it but the digest of the whole.
    pub(crate) unproven: bool,
    /// Its line is not covered by anything that made the file durable.
    pub(crate) doubtful: bool,
    line_at: u64,
}

/// A strong validator and the source that gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Validator {
    pub(crate) source: String,
    pub(crate) text: String,
}

/// The journal of one part file.
#[derive(Debug)]
pub(crate) struct Journal {
    file: fs_err::File,
    key: String,
    pub(crate) identity: Identity,
    pub(crate) chunks: BTreeMap<u64, Held>,
    /// How many chunks from the first on the digest of the whole has taken in, and its state after them.
    pub(crate) hashed: (u64, Running),
    pub(crate) validator: Option<Validator>,
    /// Bytes of the journal that the file is durable for.
    durable: u64,
}

/// Twelve digits that a line of this journal ends with.
fn mark(key: &str, line: &str) -> String {
    let digest = Sha256::digest(format!("{key} {line}"));
    hex(&digest[..6])
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()).collect()
}

fn key(identity: &Identity) -> String {
    let sha256 = identity.sha256.map_or_else(|| "-".to_owned(), |sha256| sha256.to_string());
    format!("{HEAD} {} {} {sha256}", identity.size, identity.chunk)
}

fn identity_of(head: &str) -> Option<Identity> {
    let mut words = head.strip_prefix(HEAD)?.trim_start().split(' ');
    let size = words.next()?.parse().ok()?;
    let chunk = words.next()?.parse().ok().filter(|chunk| *chunk > 0)?;
    let sha256 = match words.next()? {
        "-" => None,
        digest => Some(digest.parse().ok()?),
    };
    let identity = Identity { size, chunk, sha256 };
    (key(&identity) == head).then_some(identity)
}

impl Journal {
    /// What a run before this one left; `None` when that is nothing that can be used.
    pub(crate) fn open(path: &Path, part: &Path) -> Option<Journal> {
        let there = fs_err::symlink_metadata(part).ok().filter(std::fs::Metadata::is_file)?.len();
        let mut options = fs_err::OpenOptions::new();
        options.custom_flags(NO_FOLLOW);
        let file = options.read(true).append(true).open(path).ok()?;
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        (&file).take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.split_inclusive('\n');
        let head = lines.next()?.strip_suffix('\n')?;
        let identity = identity_of(head)?;
        if there > identity.size {
            return None;
        }
        let mut journal = Journal {
            file,
            key: head.to_owned(),
            identity,
            chunks: BTreeMap::new(),
            hashed: (0, Running::default()),
            validator: None,
            durable: head.len() as u64 + 1,
        };
        let mut at = head.len() as u64 + 1;
        for line in lines {
            let Some((fact, checksum)) = line.strip_suffix('\n').and_then(|line| line.rsplit_once(' ')) else { break };
            if mark(&journal.key, fact) != checksum || journal.take(fact, at).is_none() {
                break;
            }
            at += line.len() as u64;
        }
        // What follows the last good line would hide what is appended behind it.
        journal.file.set_len(at).ok()?;
        let identity = journal.identity.clone();
        journal.chunks.retain(|index, _| {
            *index < identity.chunks() && identity.start(*index) + identity.chunk_len(*index) <= there
        });
        let durable = journal.durable;
        for held in journal.chunks.values_mut() {
            held.doubtful = held.line_at >= durable;
        }
        // The digest went over chunks that have to be there.
        if (0..journal.hashed.0).any(|index| !journal.chunks.contains_key(&index)) {
            journal.hashed = (0, Running::default());
        }
        Some(journal)
    }

    /// Takes in what a line says.
    fn take(&mut self, fact: &str, at: u64) -> Option<()> {
        let mut words = fact.split(' ');
        let kind = words.next()?;
        let number = |words: &mut std::str::Split<'_, char>| words.next()?.parse::<u64>().ok();
        match kind {
            "c" | "a" => {
                let index = number(&mut words)?;
                let crc = u32::from_str_radix(words.next()?, 16).ok()?;
                let unproven = kind == "a";
                self.chunks.insert(index, Held { crc, unproven, doubtful: false, line_at: at });
            }
            "d" => self.forget(number(&mut words)?),
            "h" => {
                let count = number(&mut words)?;
                self.hashed = (count, Running::restore(&unhex(words.next()?)?)?);
            }
            "v" => {
                let text = |word: &str| String::from_utf8(unhex(word)?).ok();
                let validator = Validator { text: text(words.next()?)?, source: text(words.next()?)? };
                self.validator = Some(validator).filter(|validator| !validator.text.is_empty());
            }
            "s" => self.durable = self.durable.max(number(&mut words)?.min(at)),
            // A line of a later version: what it says is not known, so nothing behind it is either.
            _ => return None,
        }
        Some(())
    }

    /// Begins anew.
    pub(crate) fn create(path: &Path, identity: Identity) -> std::io::Result<Journal> {
        let key = key(&identity);
        // Another file of the same name, not the same file cut: somebody may still write into that.
        let _ = fs_err::remove_file(path);
        let mut options = fs_err::OpenOptions::new();
        options.custom_flags(NO_FOLLOW);
        let mut file = options.create_new(true).append(true).open(path)?;
        file.write_all(format!("{key}\n").as_bytes())?;
        Ok(Journal {
            file,
            durable: key.len() as u64 + 1,
            key,
            identity,
            chunks: BTreeMap::new(),
            hashed: (0, Running::default()),
            validator: None,
        })
    }

    fn append(&mut self, fact: &str) -> std::io::Result<()> {
        self.file.write_all(format!("{fact} {}\n", mark(&self.key, fact)).as_bytes())
    }

    /// Records a chunk that was written.
    pub(crate) fn record(&mut self, index: u64, crc: u32) -> std::io::Result<()> {
        self.append(&format!("c {index} {crc:08x}"))?;
        self.chunks.insert(index, Held { crc, unproven: false, doubtful: false, line_at: 0 });
        Ok(())
    }

    /// Records a chunk that was taken from another file and is believed until the whole is hashed.
    pub(crate) fn record_unproven(&mut self, index: u64, crc: u32) -> std::io::Result<()> {
        self.append(&format!("a {index} {crc:08x}"))?;
        self.chunks.insert(index, Held { crc, unproven: true, doubtful: false, line_at: 0 });
        Ok(())
    }

    /// A chunk that turned out to be wrong.
    pub(crate) fn drop_chunk(&mut self, index: u64) -> std::io::Result<()> {
        self.append(&format!("d {index}"))?;
        self.forget(index);
        Ok(())
    }

    fn forget(&mut self, index: u64) {
        self.chunks.remove(&index);
        if index < self.hashed.0 {
            self.hashed = (0, Running::default());
        }
    }

    /// Records the digest's state after its first `count` chunks.
    pub(crate) fn record_hashed(&mut self, count: u64, state: &Running) -> std::io::Result<()> {
        self.append(&format!("h {count} {}", hex(&state.save())))?;
        self.hashed = (count, state.clone());
        Ok(())
    }

    pub(crate) fn record_validator(&mut self, validator: Validator) -> std::io::Result<()> {
        self.append(&format!("v {} {}", hex(validator.text.as_bytes()), hex(validator.source.as_bytes())))?;
        self.validator = Some(validator);
        Ok(())
    }

    /// How far the journal goes: to be taken before the file is made durable, and recorded after.
    pub(crate) fn length(&self) -> std::io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// The file is durable for the first `length` bytes of the journal.
    pub(crate) fn record_durable(&mut self, length: u64) -> std::io::Result<()> {
        self.append(&format!("s {length}"))?;
        self.durable = length;
        Ok(())
    }

    /// The journal's file, to make it durable while others write into it.
    pub(crate) fn try_clone(&self) -> std::io::Result<std::fs::File> {
        self.file.file().try_clone()
    }

    pub(crate) fn done_bytes(&self) -> u64 {
        self.chunks.keys().map(|index| self.identity.chunk_len(*index)).sum()
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.chunks.len() as u64 == self.identity.chunks()
    }
}

/// `x.gguf` → `.x.gguf.part` and `.x.gguf.part.chunks`.
pub(crate) fn paths(to: &Path) -> (PathBuf, PathBuf) {
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    (to.with_file_name(format!(".{name}.part")), to.with_file_name(format!(".{name}.part.chunks")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn indices(journal: &Journal) -> BTreeSet<u64> {
        journal.chunks.keys().copied().collect()
    }

    #[test]
    fn good_lines_count_and_torn_or_foreign_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let (part, path) = paths(&folder.path().join("x.gguf"));
        let identity = Identity { size: 5 * 4096 + 7, chunk: 4096, sha256: Some(Sha256Digest::of_bytes(b"x")) };
        fs_err::File::create(&part).unwrap().set_len(identity.size).unwrap();
        let mut journal = Journal::create(&path, identity.clone()).unwrap();
        journal.record_validator(Validator { source: "https://x".into(), text: "\"a b\"".into() }).unwrap();
        for index in [3, 0, 5] {
            journal.record(index, 7).unwrap();
        }
        let mut running = Running::default();
        running.update(&[1; 4096]);
        journal.record_hashed(1, &running).unwrap();
        assert_eq!(journal.done_bytes(), 2 * 4096 + 7);
        let whole = fs_err::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs_err::write(&path, &whole[..cut]).unwrap();
            let Some(mut again) = Journal::open(&path, &part) else { continue };
            assert!(indices(&again).is_subset(&BTreeSet::from([3, 0, 5])), "cut at {cut}");
            // What is appended behind a torn line is found the next time.
            again.record(1, 9).unwrap();
            assert!(indices(&Journal::open(&path, &part).unwrap()).contains(&1), "cut at {cut}");
        }
        fs_err::write(&path, &whole).unwrap();
        let again = Journal::open(&path, &part).unwrap();
        assert_eq!(again.validator.as_ref().unwrap().text, "\"a b\"");
        assert_eq!((again.hashed.0, again.hashed.1.save()), (1, running.save()));
        fs_err::write(&path, String::from_utf8_lossy(&whole).replace("c 3 ", "c 4 ")).unwrap();
        assert!(Journal::open(&path, &part).unwrap().chunks.is_empty());
        // A part that was cut holds fewer chunks than were recorded.
        fs_err::write(&path, &whole).unwrap();
        fs_err::File::options().write(true).open(&part).unwrap().set_len(4096).unwrap();
        assert_eq!(indices(&Journal::open(&path, &part).unwrap()), BTreeSet::from([0]));
        fs_err::write(&path, "garbage").unwrap();
        assert!(Journal::open(&path, &part).is_none());
    }

    #[test]
    fn what_was_not_made_durable_is_doubtful_and_a_dropped_chunk_unhashes() {
        let folder = tempfile::tempdir().unwrap();
        let (part, path) = paths(&folder.path().join("x.gguf"));
        let identity = Identity { size: 4 * 64, chunk: 64, sha256: None };
        fs_err::File::create(&part).unwrap().set_len(identity.size).unwrap();
        let mut journal = Journal::create(&path, identity).unwrap();
        journal.record(0, 1).unwrap();
        let length = journal.length().unwrap();
        // A line between the beginning of the sync and its end is not covered by it.
        journal.record(1, 2).unwrap();
        journal.record_durable(length).unwrap();
        journal.record_unproven(2, 3).unwrap();
        let mut running = Running::default();
        running.update(&[0; 128]);
        journal.record_hashed(2, &running).unwrap();
        let mut again = Journal::open(&path, &part).unwrap();
        let doubtful: Vec<u64> =
            again.chunks.iter().filter(|(_, held)| held.doubtful).map(|(index, _)| *index).collect();
        assert_eq!(doubtful, [1, 2]);
        assert!(again.chunks[&2].unproven && !again.chunks[&1].unproven);
        assert_eq!(again.hashed.0, 2);
        again.drop_chunk(1).unwrap();
        let last = Journal::open(&path, &part).unwrap();
        assert_eq!((last.hashed.0, indices(&last)), (0, BTreeSet::from([0, 2])));
    }
}
