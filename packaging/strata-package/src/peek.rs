//! The manifest out of an archive, without the rest: it is the second entry, so little is read.
//!
//! This is for archives that the indexer is about to list. It checks neither files nor digests,
//! which is the verifier's work.

use crate::archive_write::{Format, ZSTD_WINDOW_LOG};
use flate2::read::{DeflateDecoder, GzDecoder};
use std::io::{self, Read};
use std::path::Path;
use strata_manifest::{COMPONENT_FILE, MAX_DOCUMENT_BYTES};

const BLOCK: usize = 512;
/// A pax record of ours holds a name and a size.
const MAX_PAX_BYTES: u64 = 4096;

/// The text of `component.json`.
pub(crate) fn manifest_text(path: &Path, format: Format) -> io::Result<String> {
    let file = io::BufReader::new(fs_err::File::open(path)?);
    match format {
        Format::TarGz => from_tar(GzDecoder::new(file)),
        Format::TarZst => {
            let mut decoder = zstd::Decoder::new(file)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            from_tar(decoder)
        }
        Format::Zip => from_zip(file),
    }
}

fn odd(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn is_manifest(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name);
    name.split_once('/').is_some_and(|(_, rest)| rest == COMPONENT_FILE)
}

fn from_tar(mut reader: impl Read) -> io::Result<String> {
    // The folder, then the manifest, each perhaps after a pax header with a long name.
    for _ in 0..4 {
        let mut block = [0_u8; BLOCK];
        reader.read_exact(&mut block)?;
        let size = octal(&block[124..135]).ok_or_else(|| odd("an entry's size cannot be read"))?;
        match block[156] {
            b'5' if size == 0 => {}
            b'x' if size <= MAX_PAX_BYTES => {
                let padded = size.next_multiple_of(BLOCK as u64);
                io::copy(&mut (&mut reader).take(padded), &mut io::sink())?;
            }
            b'0' => {
                let name = block[..100].split(|&byte| byte == 0).next().unwrap_or_default();
                let prefixed = block[345] != 0;
                if !is_manifest(name) && !prefixed {
                    return Err(odd("the manifest is not the first file"));
                }
                return take_text(reader, size);
            }
            _ => return Err(odd("the first entries are no folder and manifest")),
        }
    }
    Err(odd("the manifest is not the first file"))
}

fn octal(digits: &[u8]) -> Option<u64> {
    digits
        .iter()
        .try_fold(0_u64, |value, &digit| (b'0'..=b'7').contains(&digit).then(|| value << 3 | u64::from(digit - b'0')))
}

fn from_zip(mut reader: impl Read) -> io::Result<String> {
    loop {
        let mut header = [0_u8; 30];
        reader.read_exact(&mut header)?;
        let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if word(0) != 0x0403_4b50 {
            return Err(odd("the manifest is not the first file"));
        }
        let mut name = vec![0; usize::from(half(26))];
        reader.read_exact(&mut name)?;
        io::copy(&mut (&mut reader).take(u64::from(half(28))), &mut io::sink())?;
        let (compressed, size) = (u64::from(word(18)), u64::from(word(22)));
        if name.ends_with(b"/") && compressed == 0 {
            continue;
        }
        if !is_manifest(&name) || half(8) != 8 {
            return Err(odd("the manifest is not the first file"));
        }
        return take_text(DeflateDecoder::new(reader.take(compressed)), size);
    }
}

fn take_text(reader: impl Read, size: u64) -> io::Result<String> {
    if size > MAX_DOCUMENT_BYTES {
        return Err(odd("the manifest is larger than such a document may be"));
    }
    let mut text = String::new();
    reader.take(size).read_to_string(&mut text)?;
    if text.len() as u64 == size { Ok(text) } else { Err(odd("the manifest ends early")) }
}
