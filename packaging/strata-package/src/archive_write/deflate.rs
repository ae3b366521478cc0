//! Deflate that gives the same bytes on every machine: one encoder of plain Rust at one level.
//!
//! The encoder is called directly, not through a crate that offers several: which one such a crate
//! takes depends on what else is in the build, and the fast ones choose their hash by what the
//! processor has. Input goes in in pieces of one size, so that no caller's buffering shows.

use miniz_oxide::deflate::core::{
    CompressorOxide, TDEFLFlush, TDEFLStatus, compress, create_comp_flags_from_zip_params,
};
use std::io::{self, Write};

/// The level of the canonical encoding.
pub const DEFLATE_LEVEL: i32 = 6;
const PIECE_BYTES: usize = 64 * 1024;

/// Writes the raw deflate stream of what is written to it.
pub struct Deflate<W> {
    inner: W,
    compressor: Box<CompressorOxide>,
    piece: Vec<u8>,
    out: Vec<u8>,
    checksum: flate2::Crc,
    read: u64,
    written: u64,
}

impl<W> std::fmt::Debug for Deflate<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Deflate").field("written", &self.written).finish_non_exhaustive()
    }
}

/// What a finished stream was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deflated {
    /// CRC-32 of the uncompressed bytes.
    pub crc32: u32,
    /// Uncompressed bytes.
    pub bytes: u64,
    /// Compressed bytes.
    pub compressed: u64,
}

impl<W: Write> Deflate<W> {
    pub fn new(inner: W) -> Self {
        // Negative window bits: raw deflate. Strategy 0 is the default one.
        let flags = create_comp_flags_from_zip_params(DEFLATE_LEVEL, -15, 0);
        Deflate {
            inner,
            compressor: Box::new(CompressorOxide::new(flags)),
            piece: Vec::with_capacity(PIECE_BYTES),
            out: vec![0; PIECE_BYTES],
            checksum: flate2::Crc::new(),
            read: 0,
            written: 0,
        }
    }

    fn squeeze(&mut self, flush: TDEFLFlush) -> io::Result<()> {
        let mut taken = 0;
        loop {
            let input = self.piece.get(taken..).unwrap_or_default();
            let (status, read, made) = compress(&mut self.compressor, input, &mut self.out, flush);
            taken += read;
            self.inner.write_all(&self.out[..made])?;
            self.written += made as u64;
            match status {
                TDEFLStatus::Done => break,
                TDEFLStatus::Okay
                    if flush == TDEFLFlush::None && taken >= self.piece.len() && made < self.out.len() =>
                {
                    break;
                }
                TDEFLStatus::Okay => {}
                _ => return Err(io::Error::other("the compressor failed")),
            }
        }
        self.piece.clear();
        Ok(())
    }

    /// Ends the stream.
    pub fn finish(mut self) -> io::Result<(W, Deflated)> {
        self.squeeze(TDEFLFlush::Finish)?;
        let facts = Deflated { crc32: self.checksum.sum(), bytes: self.read, compressed: self.written };
        Ok((self.inner, facts))
    }
}

impl<W: Write> Write for Deflate<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE_BYTES - self.piece.len());
        let taken = &bytes[..count];
        self.checksum.update(taken);
        self.read += count as u64;
        self.piece.extend_from_slice(taken);
        if self.piece.len() == PIECE_BYTES {
            self.squeeze(TDEFLFlush::None)?;
        }
        Ok(count)
    }

    /// Nothing is pushed out early: that would change the stream.
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// A gzip file of one member, without name and time.
#[derive(Debug)]
pub struct Gzip<W>(Deflate<W>);

/// Magic, deflate, no flags, no time, no extra flags, "unknown" as system.
pub const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

impl<W: Write> Gzip<W> {
    pub fn new(mut inner: W) -> io::Result<Self> {
        inner.write_all(&GZIP_HEADER)?;
        Ok(Gzip(Deflate::new(inner)))
    }

    pub fn finish(self) -> io::Result<W> {
        let (mut inner, facts) = self.0.finish()?;
        inner.write_all(&facts.crc32.to_le_bytes())?;
        inner.write_all(&(facts.bytes as u32).to_le_bytes())?;
        Ok(inner)
    }
}

impl<W: Write> Write for Gzip<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// Bytes that compress, but not away.
    pub(crate) fn sample(length: usize) -> Vec<u8> {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        (0..length)
            .map(|i| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                if i % 7 < 3 { (state >> 40) as u8 } else { (i / 64) as u8 }
            })
            .collect()
    }

    fn zipped(data: &[u8], piece: usize) -> Vec<u8> {
        let mut gzip = Gzip::new(Vec::new()).unwrap();
        for part in data.chunks(piece) {
            gzip.write_all(part).unwrap();
            gzip.flush().unwrap();
        }
        gzip.finish().unwrap()
    }

    #[test]
    fn the_same_bytes_whatever_the_pieces_and_readable_by_another_decoder() {
        for length in [0, 1, 511, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 700_000] {
            let data = sample(length);
            let first = zipped(&data, 1 << 20);
            for piece in [997, 65_536, 100_000] {
                assert_eq!(zipped(&data, piece), first, "{length} in pieces of {piece}");
            }
            let mut back = Vec::new();
            flate2::read::GzDecoder::new(&first[..]).read_to_end(&mut back).unwrap();
            assert_eq!(back, data);
        }
    }

    /// The encoding is part of the format: when a newer compressor gives other bytes, archives of
    /// earlier releases are no longer what re-encoding gives, and docs/PACKAGE-FORMAT.md must say so.
    #[test]
    fn the_encoding_is_the_recorded_one() {
        let digest = strata_manifest::Sha256Digest::of_bytes(&zipped(&sample(300_000), 4096));
        assert_eq!(digest.to_string(), "4bac8f115e9e95baf1218f3230ab073db806961ba3f5a6677cf3347a705b3d35");
    }
}
