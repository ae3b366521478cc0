//! SHA-256 of what passes through: the whole, and each 8 MiB piece.

use sha2::{Digest, Sha256};
use std::io::{self, Read};
use strata_manifest::{CHUNK_BYTES, Sha256Digest};

/// A reader that hashes all it gives.
pub(crate) struct Hashed<R> {
    inner: R,
    whole: Sha256,
    bytes: u64,
}

impl<R: Read> Hashed<R> {
    pub(crate) fn new(inner: R) -> Self {
        Hashed { inner, whole: Sha256::new(), bytes: 0 }
    }

    /// Digest and number of the bytes that were read.
    pub(crate) fn finish(self) -> (Sha256Digest, u64) {
        (Sha256Digest::from_array(self.whole.finalize().into()), self.bytes)
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.whole.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

/// Size, digest and pieces' digests of some bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Digests {
    pub(crate) size: u64,
    pub(crate) sha256: Sha256Digest,
    /// Empty up to 8 MiB.
    pub(crate) chunks: Vec<Sha256Digest>,
}

/// Collects [`Digests`].
pub(crate) struct Digester {
    whole: Sha256,
    chunk: Sha256,
    in_chunk: u64,
    chunks: Vec<Sha256Digest>,
    size: u64,
}

impl Digester {
    pub(crate) fn new() -> Self {
        Digester { whole: Sha256::new(), chunk: Sha256::new(), in_chunk: 0, chunks: Vec::new(), size: 0 }
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        self.whole.update(bytes);
        self.size += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = usize::try_from(CHUNK_BYTES - self.in_chunk).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.chunk.update(now);
            self.in_chunk += now.len() as u64;
            if self.in_chunk == CHUNK_BYTES {
                self.end_chunk();
            }
            bytes = later;
        }
    }

    fn end_chunk(&mut self) {
        let chunk = std::mem::replace(&mut self.chunk, Sha256::new());
        self.chunks.push(Sha256Digest::from_array(chunk.finalize().into()));
        self.in_chunk = 0;
    }

    pub(crate) fn finish(mut self) -> Digests {
        if self.in_chunk > 0 {
            self.end_chunk();
        }
        let chunks = if self.size > CHUNK_BYTES { self.chunks } else { Vec::new() };
        Digests { size: self.size, sha256: Sha256Digest::from_array(self.whole.finalize().into()), chunks }
    }
}
