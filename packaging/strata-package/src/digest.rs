//! SHA-256 of what passes through: the whole, and each 8 MiB piece, in one pass.

mod two;

use crate::PackageError;
use sha2::block_api::compress256;
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::path::Path;
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
pub struct Digests {
    pub size: u64,
    pub sha256: Sha256Digest,
    /// Of each 8 MiB piece; empty for a file of at most one.
    pub chunks: Vec<Sha256Digest>,
}

impl Digests {
    /// Reads a file once.
    pub fn of_file(path: &Path) -> Result<Self, PackageError> {
        let mut file = fs_err::File::open(path).map_err(PackageError::unreadable(path))?;
        let (mut digester, mut buffer) = (Digester::new(), vec![0_u8; 256 << 10]);
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(digester.finish()),
                Ok(count) => digester.update(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(PackageError::Unreadable { path: path.to_owned(), source }),
            }
        }
    }
}

/// Collects [`Digests`].
///
/// Two digests of the same bytes cost about as much as one: up to the first piece's end they are one, and
/// after that [`two::take`] works on both at once.
pub(crate) struct Digester {
    whole: State,
    /// Of the piece that is not at its end; within the first piece `whole` is it.
    piece: State,
    /// Bytes of a block that is not full.
    rest: [u8; BLOCK],
    chunks: Vec<Sha256Digest>,
    size: u64,
}

const BLOCK: usize = 64;

impl Digester {
    pub(crate) fn new() -> Self {
        Digester { whole: State::new(), piece: State::new(), rest: [0; BLOCK], chunks: Vec::new(), size: 0 }
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        let held = (self.size % BLOCK as u64) as usize;
        self.size += bytes.len() as u64;
        let mut at = self.size - bytes.len() as u64 - held as u64;
        if held > 0 {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - held));
            self.rest[held..held + now.len()].copy_from_slice(now);
            if held + now.len() < BLOCK {
                return;
            }
            bytes = later;
            let block = self.rest;
            at = self.blocks(at, &[block]);
        }
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        self.blocks(at, blocks);
        self.rest[..rest.len()].copy_from_slice(rest);
    }

    /// Takes whole blocks that begin at byte `at`; says where they end.
    fn blocks(&mut self, mut at: u64, mut blocks: &[[u8; BLOCK]]) -> u64 {
        while !blocks.is_empty() {
            let room = (CHUNK_BYTES - at % CHUNK_BYTES) / BLOCK as u64;
            let (now, later) = blocks.split_at(blocks.len().min(room as usize));
            if at < CHUNK_BYTES {
                self.whole.take(now);
            } else {
                two::take(&mut self.whole.0, &mut self.piece.0, now);
            }
            at += (now.len() * BLOCK) as u64;
            if at == CHUNK_BYTES {
                self.piece = self.whole.clone();
            }
            if at.is_multiple_of(CHUNK_BYTES) {
                let piece = std::mem::replace(&mut self.piece, State::new());
                self.chunks.push(piece.finish(&[], CHUNK_BYTES));
            }
            blocks = later;
        }
        at
    }

    pub(crate) fn finish(mut self) -> Digests {
        let rest = &self.rest[..(self.size % BLOCK as u64) as usize];
        if self.size <= CHUNK_BYTES {
            self.chunks.clear();
        } else if !self.size.is_multiple_of(CHUNK_BYTES) {
            self.chunks.push(self.piece.finish(rest, self.size % CHUNK_BYTES));
        }
        Digests { size: self.size, sha256: self.whole.finish(rest, self.size), chunks: self.chunks }
    }
}

/// SHA-256 between two blocks.
#[derive(Clone)]
struct State([u32; 8]);

impl State {
    fn new() -> State {
        State([0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19])
    }

    fn take(&mut self, blocks: &[[u8; BLOCK]]) {
        compress256(&mut self.0, blocks);
    }

    /// The digest of what was taken and `rest`, `size` bytes in all.
    fn finish(mut self, rest: &[u8], size: u64) -> Sha256Digest {
        let mut last = [[0_u8; BLOCK]; 2];
        let flat = last.as_flattened_mut();
        flat[..rest.len()].copy_from_slice(rest);
        flat[rest.len()] = 0x80;
        let blocks = if rest.len() < BLOCK - 8 { 1 } else { 2 };
        flat[blocks * BLOCK - 8..blocks * BLOCK].copy_from_slice(&(size * 8).to_be_bytes());
        self.take(&last[..blocks]);
        let mut digest = [0_u8; 32];
        for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(self.0) {
            *bytes = word.to_be_bytes();
        }
        Sha256Digest::from_array(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plain way: the whole, and each piece, by the library's own hasher.
    fn plain(bytes: &[u8]) -> Digests {
        let of = |bytes: &[u8]| Sha256Digest::from_array(Sha256::digest(bytes).into());
        let pieces = bytes.chunks(CHUNK_BYTES as usize);
        let chunks = if bytes.len() as u64 > CHUNK_BYTES { pieces.map(of).collect() } else { Vec::new() };
        Digests { size: bytes.len() as u64, sha256: of(bytes), chunks }
    }

    #[test]
    fn digests_are_the_plain_ones_at_every_edge_and_in_any_steps() {
        let piece = CHUNK_BYTES as usize;
        let bytes: Vec<u8> = (0..2 * piece + 200).map(|at| (at * 7 + at / 251) as u8).collect();
        let edges = [0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 1000, piece - 1, piece, piece + 1, piece + 60, 2 * piece];
        for length in edges.into_iter().chain([2 * piece + 1, 2 * piece + 200]) {
            for step in [61, 64, 4096 + 3, 512 << 10, usize::MAX] {
                if step < 4096 && length > 4096 && length != piece + 60 {
                    continue;
                }
                let mut digester = Digester::new();
                for part in bytes[..length].chunks(step.min(length.max(1))) {
                    digester.update(part);
                }
                assert_eq!(digester.finish(), plain(&bytes[..length]), "{length} bytes by {step}");
            }
            let file = tempfile::NamedTempFile::new().unwrap();
            fs_err::write(file.path(), &bytes[..length]).unwrap();
            assert_eq!(Digests::of_file(file.path()).unwrap(), plain(&bytes[..length]), "{length} bytes of a file");
        }
    }
}
