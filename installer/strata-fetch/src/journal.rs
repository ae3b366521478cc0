//! Which chunks of a file are there. A text file: a head that says what the chunks belong to, then a line a
//! chunk with a checksum of its own, appended after the chunk was written. A torn last line counts for nothing.

use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const HEAD: &str = "strata-chunks/1";
/// A journal of a file of 64 TiB has not more.
const MAX_BYTES: u64 = 256 << 20;

/// What chunks belong to: with another size or validator they are another file's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) size: u64,
    /// A strong validator, or none.
    pub(crate) validator: Option<String>,
    /// Bytes of a chunk.
    pub(crate) chunk: u64,
}

impl Identity {
    pub(crate) fn chunks(&self) -> u64 {
        self.size.div_ceil(self.chunk)
    }

    /// Bytes of one chunk.
    pub(crate) fn chunk_len(&self, index: u64) -> u64 {
        self.size.saturating_sub(index.saturating_mul(self.chunk)).min(self.chunk)
    }
}

/// The journal of one part file.
#[derive(Debug)]
pub(crate) struct Journal {
    file: fs_err::File,
    key: String,
    pub(crate) identity: Identity,
    pub(crate) chunks: BTreeSet<u64>,
}

fn mark(key: &str, index: u64) -> String {
    let digest = Sha256::digest(format!("{key} {index}"));
    digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

fn key(identity: &Identity) -> String {
    // One line, whatever a server puts into its header.
    let validator: String =
        identity.validator.iter().flat_map(|text| text.chars()).filter(|c| !c.is_control()).collect();
    format!("{HEAD} {} {} {validator}", identity.size, identity.chunk)
}

impl Journal {
    /// What a run before this one left; `None` when that is nothing that can be used.
    pub(crate) fn open(path: &Path, part: &Path) -> Option<Journal> {
        let mut text = String::new();
        let file = fs_err::File::open(path).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        text.push_str(&String::from_utf8_lossy(&bytes));
        let mut lines = text.split_inclusive('\n');
        let head = lines.next()?.strip_suffix('\n')?;
        let mut words = head.strip_prefix(HEAD)?.trim_start().splitn(3, ' ');
        let size = words.next()?.parse().ok()?;
        let chunk = words.next()?.parse().ok().filter(|chunk| *chunk > 0)?;
        let validator = words.next().filter(|text| !text.is_empty()).map(str::to_owned);
        let identity = Identity { size, validator, chunk };
        let key = key(&identity);
        if key != head || fs_err::metadata(part).ok()?.len() > size {
            return None;
        }
        let mut chunks = BTreeSet::new();
        let mut whole = head.len() as u64 + 1;
        for line in lines {
            let Some((index, checksum)) = line.strip_suffix('\n').and_then(|line| line.split_once(' ')) else { break };
            match index.parse::<u64>() {
                Ok(index) if mark(&key, index) == checksum => {
                    chunks.insert(index);
                    whole += line.len() as u64;
                }
                _ => break,
            }
        }
        let mut options = fs_err::OpenOptions::new();
        let file = options.append(true).open(path).ok()?;
        // What follows the last good line would hide what is appended behind it.
        file.set_len(whole).ok()?;
        let there = fs_err::metadata(part).ok()?.len();
        chunks.retain(|index| {
            index.saturating_mul(chunk).saturating_add(identity.chunk_len(*index)) <= there
                && *index < identity.chunks()
        });
        Some(Journal { file, key, identity, chunks })
    }

    /// Begins anew.
    pub(crate) fn create(path: &Path, identity: Identity) -> std::io::Result<Journal> {
        let key = key(&identity);
        let mut file = fs_err::File::create(path)?;
        file.write_all(format!("{key}\n").as_bytes())?;
        drop(file);
        let mut options = fs_err::OpenOptions::new();
        let file = options.append(true).open(path)?;
        Ok(Journal { file, key, identity, chunks: BTreeSet::new() })
    }

    /// Records a chunk that was written.
    pub(crate) fn record(&mut self, index: u64) -> std::io::Result<()> {
        self.file.write_all(format!("{index} {}\n", mark(&self.key, index)).as_bytes())?;
        self.chunks.insert(index);
        Ok(())
    }

    pub(crate) fn done_bytes(&self) -> u64 {
        self.chunks.iter().map(|index| self.identity.chunk_len(*index)).sum()
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

    #[test]
    fn good_lines_count_and_torn_or_foreign_ones_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let (part, path) = paths(&folder.path().join("x.gguf"));
        let identity = Identity { size: 5 * 4096 + 7, validator: Some("\"a b\"".to_owned()), chunk: 4096 };
        fs_err::File::create(&part).unwrap().set_len(identity.size).unwrap();
        let mut journal = Journal::create(&path, identity.clone()).unwrap();
        for index in [3, 0, 5] {
            journal.record(index).unwrap();
        }
        assert_eq!(journal.done_bytes(), 2 * 4096 + 7);
        let whole = fs_err::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs_err::write(&path, &whole[..cut]).unwrap();
            let Some(mut again) = Journal::open(&path, &part) else { continue };
            assert!(again.chunks.iter().all(|index| [3, 0, 5].contains(index)), "cut at {cut}");
            // What is appended behind a torn line is found the next time.
            again.record(1).unwrap();
            assert!(Journal::open(&path, &part).unwrap().chunks.contains(&1), "cut at {cut}");
        }
        fs_err::write(&path, String::from_utf8_lossy(&whole).replace("3 ", "4 ")).unwrap();
        assert!(Journal::open(&path, &part).unwrap().chunks.is_empty());
        fs_err::write(&path, &whole).unwrap();
        // A part that was cut holds fewer chunks than were recorded.
        fs_err::File::options().write(true).open(&part).unwrap().set_len(4096).unwrap();
        assert_eq!(Journal::open(&path, &part).unwrap().chunks, BTreeSet::from([0]));
        fs_err::write(&path, "garbage").unwrap();
        assert!(Journal::open(&path, &part).is_none());
    }
}
