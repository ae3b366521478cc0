//! The canonical tar: ustar entries for folders and ordinary files, pax records only where ustar
//! has no room. The rules are docs/PACKAGE-FORMAT.md; the verifier re-encodes with this and compares.

use std::io::{self, Read, Write};
use strata_manifest::FileMode;

const BLOCK: usize = 512;
const NAME_BYTES: usize = 100;
const PREFIX_BYTES: usize = 155;
/// From this size on the octal field of eleven digits has no room.
const PAX_SIZE: u64 = 1 << 33;
/// Name of the entries that hold pax records.
const PAX_NAME: &str = "././@PaxHeader";

/// Writes the entries it is given, in the order in which it is given them.
#[derive(Debug)]
pub struct TarEncoder<W> {
    inner: W,
    epoch: u64,
}

impl<W: Write> TarEncoder<W> {
    /// `epoch` is the time of every entry, in seconds since 1970.
    pub fn new(inner: W, epoch: u64) -> Self {
        TarEncoder { inner, epoch }
    }

    /// A folder; its name ends in `/`.
    pub fn folder(&mut self, name: &str) -> io::Result<()> {
        self.header(name, 0, 0o755, b'5')
    }

    /// A file of exactly `size` bytes out of `reader`; more or fewer are an error.
    pub fn file(&mut self, name: &str, size: u64, mode: FileMode, reader: &mut dyn Read) -> io::Result<()> {
        self.header(name, size, mode.bits(), b'0')?;
        let copied = io::copy(&mut reader.take(size), &mut self.inner)?;
        let more = reader.read(&mut [0])?;
        if copied != size || more != 0 {
            return Err(io::Error::other(format!("`{name}` has not the {size} bytes that it had before")));
        }
        let padding = (BLOCK - (size % BLOCK as u64) as usize) % BLOCK;
        self.inner.write_all(&[0; BLOCK][..padding])
    }

    /// Ends the archive with its two empty blocks.
    pub fn finish(mut self) -> io::Result<W> {
        self.inner.write_all(&[0; 2 * BLOCK])?;
        Ok(self.inner)
    }

    fn header(&mut self, name: &str, size: u64, mode: u32, kind: u8) -> io::Result<()> {
        let split = split(name);
        let mut records = String::new();
        if split.is_none() {
            records += &pax_record("path", name);
        }
        if size >= PAX_SIZE {
            records += &pax_record("size", &size.to_string());
        }
        if !records.is_empty() {
            let block = block(("", PAX_NAME), records.len() as u64, 0o644, b'x', self.epoch)?;
            self.inner.write_all(&block)?;
            self.inner.write_all(records.as_bytes())?;
            let padding = (BLOCK - records.len() % BLOCK) % BLOCK;
            self.inner.write_all(&[0; BLOCK][..padding])?;
        }
        // A field that a pax record overrides is cut, or empty for the size. Names are ASCII.
        let names = split.unwrap_or_else(|| ("", name.get(..NAME_BYTES).unwrap_or(PAX_NAME)));
        let size = if size >= PAX_SIZE { 0 } else { size };
        self.inner.write_all(&block(names, size, mode, kind, self.epoch)?)
    }
}

/// The header blocks of one entry, as this writer makes them: what a reader compares an archive's own with.
pub(crate) fn tar_header(name: &str, size: u64, mode: u32, kind: u8, epoch: u64) -> io::Result<Vec<u8>> {
    let mut encoder = TarEncoder::new(Vec::new(), epoch);
    encoder.header(name, size, mode, kind)?;
    Ok(encoder.inner)
}

/// Prefix and name of a ustar header: everything in the name when it fits, else cut at the rightmost
/// `/` that leaves a prefix of at most 155 and a name of at most 100 bytes. `None`: no cut fits.
fn split(name: &str) -> Option<(&str, &str)> {
    if name.len() <= NAME_BYTES {
        return Some(("", name));
    }
    name.match_indices('/')
        .map(|(at, _)| (&name[..at], &name[at + 1..]))
        .rfind(|(prefix, rest)| (1..=PREFIX_BYTES).contains(&prefix.len()) && (1..=NAME_BYTES).contains(&rest.len()))
}

/// `LENGTH KEY=VALUE\n`, where the length counts itself.
fn pax_record(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    format!("{length} {key}={value}\n")
}

fn block((prefix, name): (&str, &str), size: u64, mode: u32, kind: u8, epoch: u64) -> io::Result<[u8; BLOCK]> {
    let mut block = [0_u8; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    if epoch >= 1 << 33 {
        return Err(io::Error::other("a time beyond the year 2242 has no room in a tar header"));
    }
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}\0").as_bytes());
    put(108, b"0000000\x000000000\0");
    put(124, format!("{size:011o}\0{epoch:011o}\0").as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    put(329, b"0000000\x000000000\0");
    put(345, prefix.as_bytes());
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_at_one_place_only() {
        let deep = format!("{}/{}", "d/".repeat(60), "f".repeat(99));
        assert_eq!(split(&deep).unwrap().1.len(), 99);
        let name = format!("{}/{}/{}", "a".repeat(60), "b".repeat(60), "c".repeat(30));
        let (prefix, rest) = split(&name).unwrap();
        assert_eq!((prefix.len(), rest.len()), (121, 30));
        assert_eq!(split(&"x".repeat(101)), None);
        assert_eq!(split(&format!("{}/{}", "p".repeat(156), "n")), None);
        // The end of a folder's name is no place to cut.
        let folder = format!("{}/{}/", "a".repeat(60), "b".repeat(60));
        assert_eq!(split(&folder).unwrap().0.len(), 60);
    }

    #[test]
    fn a_pax_record_counts_its_own_length() {
        for length in [1, 5, 80, 90, 91, 92, 93, 94, 95, 985, 986, 987, 988, 989, 990] {
            let record = pax_record("path", &"v".repeat(length));
            let (count, _) = record.split_once(' ').unwrap();
            assert_eq!(count.parse::<usize>().unwrap(), record.len());
        }
    }

    #[test]
    fn a_file_that_changed_its_size_is_an_error() {
        for bytes in [&b"ab"[..], b"abcd"] {
            let mut tar = TarEncoder::new(Vec::new(), 0);
            assert!(tar.file("f", 3, FileMode::Plain, &mut &*bytes).is_err());
        }
    }

    #[test]
    fn the_header_is_the_documented_one() {
        let mut tar = TarEncoder::new(Vec::new(), 1_700_000_000);
        tar.file("s/bin/strata", 3, FileMode::Executable, &mut &b"abc"[..]).unwrap();
        let bytes = tar.finish().unwrap();
        assert_eq!(bytes.len(), 512 + 512 + 1024);
        assert_eq!(&bytes[..12], b"s/bin/strata");
        assert_eq!(&bytes[100..148], b"0000755\x000000000\x000000000\x0000000000003\x0014524770400\0");
        assert_eq!(&bytes[156..158], b"0\0");
        assert_eq!(&bytes[257..265], b"ustar\x0000");
        assert_eq!(&bytes[265..329], &[0; 64]);
        assert_eq!(&bytes[329..345], b"0000000\x000000000\0");
        assert_eq!(&bytes[512..515], b"abc");
    }
}
