//! `strata.lock`: what sources were resolved to, so that the same command brings the same bytes on another day
//! and another machine. Programs write it, people read it and keep it beside what it is for.

use crate::{Document, PackagePath, Sha256Digest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Usual name of a lock file.
pub const LOCK_FILE: &str = "strata.lock";

/// Files by source and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lock {
    /// `strata-lock/1.0`.
    pub schema: String,
    /// Sorted by source and name.
    pub files: Vec<LockedFile>,
}

/// One file as it was when it was fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LockedFile {
    /// As it was asked for, without query and credentials.
    pub source: String,
    /// Name on disk.
    pub name: String,
    /// The same with everything pinned that moves: the commit of a hub's branch, the version of a package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<String>,
    /// Bytes.
    pub size: u64,
    pub sha256: Sha256Digest,
    /// Entity tag of the server, for addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Date of change, as the server wrote it, where there is no entity tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
    /// The wheel that it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wheel: Option<LockedWheel>,
    /// Sums of its pieces; they say where a damaged file is damaged, the digest says whether it is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pieces: Option<LockedPieces>,
}

/// A wheel of a package index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LockedWheel {
    pub file: String,
    pub version: String,
    pub sha256: Sha256Digest,
}

/// CRC-32 of each piece.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LockedPieces {
    /// Bytes of a piece; the last one is shorter.
    pub bytes: u64,
    /// Eight hexadecimal digits a piece, in order, without separators.
    pub crc32: String,
}

impl LockedPieces {
    pub fn new(bytes: u64, sums: &[u32]) -> LockedPieces {
        let crc32 = sums.iter().map(|sum| format!("{sum:08x}")).collect::<Vec<_>>().concat();
        LockedPieces { bytes, crc32 }
    }

    /// The sums; `None` when they are not those of a file of `size` bytes.
    pub fn sums(&self, size: u64) -> Option<Vec<u32>> {
        let (groups, rest) = self.crc32.as_bytes().as_chunks::<8>();
        if self.bytes == 0 || !rest.is_empty() || groups.len() as u64 != size.div_ceil(self.bytes) {
            return None;
        }
        let sum = |digits: &[u8; 8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        groups.iter().map(sum).collect()
    }
}

impl Document for Lock {
    const SCHEMA: &'static str = "strata-lock/1.0";

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut known = BTreeSet::new();
        for file in &self.files {
            if file.name.parse::<PackagePath>().is_err() {
                faults.push(format!("`{}` is no plain file name", file.name.escape_default()));
            }
            if !known.insert((file.source.as_str(), file.name.as_str())) {
                faults.push(format!("`{}` is listed twice", file.source.escape_default()));
            }
            if file.pieces.as_ref().is_some_and(|pieces| pieces.sums(file.size).is_none()) {
                faults.push(format!("the sums of `{}` are not those of its pieces", file.source.escape_default()));
            }
        }
        faults
    }
}

impl Default for Lock {
    fn default() -> Lock {
        Lock { schema: Lock::SCHEMA.to_owned(), files: Vec::new() }
    }
}

impl Lock {
    pub fn find(&self, source: &str, name: &str) -> Option<&LockedFile> {
        self.files.iter().find(|file| file.source == source && file.name == name)
    }

    /// Takes a file in, in the place of what was known of it; says whether that changed anything.
    pub fn put(&mut self, file: LockedFile) -> bool {
        match self.files.iter_mut().find(|known| known.source == file.source && known.name == file.name) {
            Some(known) if *known == file => false,
            Some(known) => {
                *known = file;
                true
            }
            None => {
                self.files.push(file);
                self.files.sort_by(|a, b| (&a.source, &a.name).cmp(&(&b.source, &b.name)));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn file(name: &str) -> LockedFile {
        LockedFile {
            source: format!("hf:o/r@main/{name}"),
            name: name.to_owned(),
            resolved: None,
            size: 10,
            sha256: Sha256Digest::of_bytes(name.as_bytes()),
            etag: None,
            last_modified: None,
            wheel: None,
            pieces: Some(LockedPieces::new(8, &[1, 0xffff_ffff])),
        }
    }

    #[test]
    fn a_lock_is_read_as_it_was_written_and_keeps_its_order() {
        let mut lock = Lock::default();
        assert!(lock.put(file("b")) && lock.put(file("a")) && !lock.put(file("b")));
        assert!(lock.put(LockedFile { size: 16, ..file("b") }));
        let again = Lock::parse(&lock.to_text(), Path::new(LOCK_FILE)).unwrap();
        assert_eq!(again, lock);
        let names: Vec<&str> = again.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(again.files[0].pieces.as_ref().unwrap().sums(10), Some(vec![1, 0xffff_ffff]));
        assert_eq!(again.find("hf:o/r@main/b", "b").unwrap().size, 16);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (from, to) in [
            ("\"00000001ffffffff\"", "\"00000001fffffff\""),
            ("\"00000001ffffffff\"", "\"00000001\""),
            ("\"00000001ffffffff\"", "\"0000000gffffffff\""),
            ("\"name\": \"a\"", "\"name\": \"../a\""),
            ("strata-lock/1.0", "strata-lock/2.0"),
        ] {
            let text = Lock { files: vec![file("a")], ..Lock::default() }.to_text();
            assert!(text.contains(from), "{from}");
            assert!(Lock::parse(&text.replace(from, to), Path::new(LOCK_FILE)).is_err(), "{to}");
        }
        let twice = Lock { files: vec![file("a"), file("a")], ..Lock::default() };
        assert!(Lock::parse(&twice.to_text(), Path::new(LOCK_FILE)).is_err());
    }
}
