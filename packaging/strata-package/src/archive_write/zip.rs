//! The canonical zip: the same entries in the same order as the tar. Folders are stored, files are
//! deflated, sizes and checksum stand in the local header, and no extra field but zip64's is used.

use super::deflate::Deflate;
use std::io::{self, Read, Write};
use strata_manifest::{FileMode, UtcTime};

/// Files up to this size are compressed into memory; larger ones are compressed twice, since their
/// compressed size must be known before they are written and the output need not be seekable.
const BUFFERED_BYTES: u64 = 16 << 20;
const FULL: u32 = u32::MAX;
/// Upper half of "version made by": Unix, so that attributes hold a mode.
const MADE_ON_UNIX: u16 = 0x0300;

/// Opens a file's content, once or twice.
pub type Open<'a> = &'a mut dyn FnMut() -> io::Result<Box<dyn Read>>;

/// Writes the entries it is given, in the order in which it is given them.
#[derive(Debug)]
pub struct ZipEncoder<W> {
    inner: W,
    written: u64,
    time: u32,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    method: u16,
    crc32: u32,
    compressed: u64,
    size: u64,
    attributes: u32,
    offset: u64,
}

impl<W: Write> ZipEncoder<W> {
    /// `epoch` is the time of every entry, in seconds since 1970; zip keeps it to two seconds, from 1980 on.
    pub fn new(inner: W, epoch: u64) -> Self {
        ZipEncoder { inner, written: 0, time: dos_time(epoch), entries: Vec::new() }
    }

    /// A folder; its name ends in `/`.
    pub fn folder(&mut self, name: &str) -> io::Result<()> {
        let entry = self.entry(name, 0, 0o040_755 << 16 | 0x10);
        self.local_header(&entry)?;
        self.entries.push(entry);
        Ok(())
    }

    /// A file of exactly `size` bytes.
    pub fn file(&mut self, name: &str, size: u64, mode: FileMode, open: Open<'_>) -> io::Result<()> {
        let mut entry = self.entry(name, size, (0o100_000 | mode.bits()) << 16);
        if size == 0 {
            // Checks that it is empty.
            copy_exact(name, size, open, &mut io::sink())?;
            self.local_header(&entry)?;
        } else if size <= BUFFERED_BYTES {
            let mut deflate = Deflate::new(Vec::new());
            copy_exact(name, size, open, &mut deflate)?;
            let (compressed, facts) = deflate.finish()?;
            entry.method = 8;
            (entry.crc32, entry.compressed) = (facts.crc32, facts.compressed);
            self.local_header(&entry)?;
            self.put(&compressed)?;
        } else {
            let mut deflate = Deflate::new(io::sink());
            copy_exact(name, size, open, &mut deflate)?;
            let (_, facts) = deflate.finish()?;
            entry.method = 8;
            (entry.crc32, entry.compressed) = (facts.crc32, facts.compressed);
            self.local_header(&entry)?;
            let mut deflate = Deflate::new(&mut self.inner);
            copy_exact(name, size, open, &mut deflate)?;
            let (_, again) = deflate.finish()?;
            self.written += again.compressed;
            if again != facts {
                return Err(io::Error::other(format!("`{name}` changed while it was packed")));
            }
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Writes the central directory.
    pub fn finish(mut self) -> io::Result<W> {
        let start = self.written;
        let entries = std::mem::take(&mut self.entries);
        for entry in &entries {
            self.central_header(entry)?;
        }
        let (count, size) = (entries.len() as u64, self.written - start);
        if count >= 0xffff || size >= u64::from(FULL) || start >= u64::from(FULL) {
            let directory_end = self.written;
            let mut end = Vec::new();
            end.extend_from_slice(b"PK\x06\x06");
            end.extend_from_slice(&44_u64.to_le_bytes());
            end.extend_from_slice(&(MADE_ON_UNIX + 45).to_le_bytes());
            end.extend_from_slice(&45_u16.to_le_bytes());
            end.extend_from_slice(&[0; 8]);
            for value in [count, count, size, start] {
                end.extend_from_slice(&value.to_le_bytes());
            }
            end.extend_from_slice(b"PK\x06\x07\0\0\0\0");
            end.extend_from_slice(&directory_end.to_le_bytes());
            end.extend_from_slice(&1_u32.to_le_bytes());
            self.put(&end)?;
        }
        let mut end = b"PK\x05\x06\0\0\0\0".to_vec();
        let short = count.min(0xffff) as u16;
        end.extend_from_slice(&short.to_le_bytes());
        end.extend_from_slice(&short.to_le_bytes());
        end.extend_from_slice(&capped(size).to_le_bytes());
        end.extend_from_slice(&capped(start).to_le_bytes());
        end.extend_from_slice(&[0; 2]);
        self.put(&end)?;
        Ok(self.inner)
    }

    fn entry(&self, name: &str, size: u64, attributes: u32) -> Entry {
        let name = name.to_owned();
        Entry { name, method: 0, crc32: 0, compressed: 0, size, attributes, offset: self.written }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn local_header(&mut self, entry: &Entry) -> io::Result<()> {
        // Zip64 has both sizes in a local header, or none.
        let long = entry.size.max(entry.compressed) >= u64::from(FULL);
        let extra: Vec<u64> = if long { vec![entry.size, entry.compressed] } else { Vec::new() };
        let mut header = b"PK\x03\x04".to_vec();
        header.extend_from_slice(&version(long).to_le_bytes());
        self.common(&mut header, entry, long);
        header.extend_from_slice(&name_bytes(entry)?.to_le_bytes());
        header.extend_from_slice(&extra_bytes(&extra).to_le_bytes());
        header.extend_from_slice(entry.name.as_bytes());
        put_extra(&mut header, &extra);
        self.put(&header)
    }

    fn central_header(&mut self, entry: &Entry) -> io::Result<()> {
        let long = entry.size.max(entry.compressed) >= u64::from(FULL);
        let far = entry.offset >= u64::from(FULL);
        let mut extra: Vec<u64> = if long { vec![entry.size, entry.compressed] } else { Vec::new() };
        extra.extend(far.then_some(entry.offset));
        let mut header = b"PK\x01\x02".to_vec();
        header.extend_from_slice(&(MADE_ON_UNIX + version(long || far)).to_le_bytes());
        header.extend_from_slice(&version(long || far).to_le_bytes());
        self.common(&mut header, entry, long);
        header.extend_from_slice(&name_bytes(entry)?.to_le_bytes());
        header.extend_from_slice(&extra_bytes(&extra).to_le_bytes());
        // No comment, first disk, no internal attributes.
        header.extend_from_slice(&[0; 6]);
        header.extend_from_slice(&entry.attributes.to_le_bytes());
        header.extend_from_slice(&capped(entry.offset).to_le_bytes());
        header.extend_from_slice(entry.name.as_bytes());
        put_extra(&mut header, &extra);
        self.put(&header)
    }

    /// Flags, method, time, checksum and sizes: what both headers have.
    fn common(&self, header: &mut Vec<u8>, entry: &Entry, long: bool) {
        header.extend_from_slice(&0_u16.to_le_bytes());
        header.extend_from_slice(&entry.method.to_le_bytes());
        header.extend_from_slice(&self.time.to_le_bytes());
        header.extend_from_slice(&entry.crc32.to_le_bytes());
        let short = |value: u64| if long { FULL } else { value as u32 };
        header.extend_from_slice(&short(entry.compressed).to_le_bytes());
        header.extend_from_slice(&short(entry.size).to_le_bytes());
    }
}

/// Version of the format that a reader needs: 2.0, or 4.5 for zip64.
fn version(long: bool) -> u16 {
    if long { 45 } else { 20 }
}

fn name_bytes(entry: &Entry) -> io::Result<u16> {
    u16::try_from(entry.name.len()).map_err(|_| io::Error::other("a name is longer than a zip has room for"))
}

fn extra_bytes(extra: &[u64]) -> u16 {
    if extra.is_empty() { 0 } else { 4 + 8 * extra.len() as u16 }
}

fn put_extra(header: &mut Vec<u8>, extra: &[u64]) {
    if !extra.is_empty() {
        header.extend_from_slice(&1_u16.to_le_bytes());
        header.extend_from_slice(&(8 * extra.len() as u16).to_le_bytes());
        for value in extra {
            header.extend_from_slice(&value.to_le_bytes());
        }
    }
}

fn capped(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(FULL)
}

/// Date in the upper half, time in the lower one, in UTC.
fn dos_time(epoch: u64) -> u32 {
    // 1980-01-01 and the last moment of 2107, between which the format can tell time.
    let epoch = epoch.clamp(315_532_800, 4_354_819_199);
    let (year, month, day) = UtcTime::from_seconds(epoch).date();
    let date = (year - 1980) << 9 | month << 5 | day;
    let time = ((epoch / 3600 % 24) << 11) | ((epoch / 60 % 60) << 5) | (epoch % 60 / 2);
    (date << 16 | time) as u32
}

fn copy_exact(name: &str, size: u64, open: Open<'_>, into: &mut dyn Write) -> io::Result<()> {
    let mut reader = open()?;
    let copied = io::copy(&mut (&mut reader).take(size), into)?;
    if copied != size || reader.read(&mut [0])? != 0 {
        return Err(io::Error::other(format!("`{name}` has not the {size} bytes that it had before")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc_and_clamped() {
        assert_eq!(dos_time(0), dos_time(315_532_800));
        assert_eq!(dos_time(315_532_800), 1 << 21 | 1 << 16);
        // 2023-11-14 22:13:20
        assert_eq!(dos_time(1_700_000_000), 0x576e_b1aa);
        assert_eq!(dos_time(u64::MAX), dos_time(4_354_819_199));
    }
}
