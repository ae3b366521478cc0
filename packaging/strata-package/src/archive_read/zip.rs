//! Zip: the central directory, and the local header of each entry beside it. Where the two disagree,
//! readers that trust one see another file than readers that trust the other.

use super::{Entry, Kind, MAX_DIRECTORY_BYTES, MAX_ENTRIES, Oddity, Sink, Stopped};
use flate2::read::DeflateDecoder;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

/// Longest link target.
const MAX_LINK_BYTES: u64 = 4096;
/// End record and the longest comment.
const MAX_END_BYTES: u64 = 22 + 65_535;

/// What the central directory says of an entry.
struct Central {
    name: Vec<u8>,
    made_on: u8,
    flags: u16,
    method: u16,
    crc32: u32,
    compressed: u64,
    size: u64,
    attributes: u32,
    offset: u64,
}

pub(super) fn read(file: &File, sink: &mut dyn Sink) -> Result<(), Stopped> {
    let length = file.metadata()?.len();
    let end = End::find(file, length, sink)?;
    let entries = end.entries(file, sink)?;
    let mut by_offset: Vec<&Central> = entries.iter().collect();
    by_offset.sort_by_key(|entry| entry.offset);
    // Without gaps: what lies between entries is in no list.
    let mut expected = 0;
    for entry in by_offset {
        if entry.offset != expected {
            sink.odd(
                Some(&entry.name),
                Oddity::Structure,
                format!("it begins at byte {}, and byte {expected} is next", entry.offset),
            );
        }
        expected = one(file, entry, sink)?;
    }
    if expected != end.start {
        sink.odd(
            None,
            Oddity::Structure,
            format!("its entries end at byte {expected}, its directory begins at {}", end.start),
        );
    }
    Ok(())
}

/// Where the central directory is.
struct End {
    start: u64,
    size: u64,
    count: u64,
}

impl End {
    fn find(mut file: &File, length: u64, sink: &mut dyn Sink) -> Result<End, Stopped> {
        let tail_bytes = length.min(MAX_END_BYTES);
        file.seek(SeekFrom::Start(length - tail_bytes))?;
        let mut tail = vec![0; tail_bytes as usize];
        file.read_exact(&mut tail)?;
        let at = tail.windows(4).rposition(|window| window == b"PK\x05\x06").filter(|at| at + 22 <= tail.len());
        let at = at.ok_or_else(|| Stopped::Damaged("it has no end record: cut off, or no zip".to_owned()))?;
        let record = &tail[at..];
        let comment = half(record, 20);
        if usize::from(comment) + 22 != record.len() {
            sink.odd(None, Oddity::Structure, format!("{} bytes lie behind its end record", record.len() - 22));
        } else if comment != 0 {
            sink.odd(None, Oddity::Form, "it has a comment".to_owned());
        }
        let (count, size, start) =
            (u64::from(half(record, 10)), u64::from(word(record, 12)), u64::from(word(record, 16)));
        let end_at = length - tail_bytes + at as u64;
        let mut end = End { start, size, count };
        let mut behind = end_at;
        if count == 0xffff || size == 0xffff_ffff || start == 0xffff_ffff {
            behind = end.long(file, end_at)?;
        }
        if end.start.checked_add(end.size) != Some(behind) {
            return Err(Stopped::Damaged(format!(
                "its directory is said to have {} bytes from byte {}, and ends at {behind}",
                end.size, end.start
            )));
        }
        Ok(end)
    }

    /// Zip64: a locator before the end record, and the long record that it points to.
    fn long(&mut self, mut file: &File, end_at: u64) -> Result<u64, Stopped> {
        let bad = || Stopped::Damaged("its zip64 end record cannot be read".to_owned());
        file.seek(SeekFrom::Start(end_at.checked_sub(20).ok_or_else(bad)?))?;
        let mut locator = [0; 20];
        file.read_exact(&mut locator)?;
        if !locator.starts_with(b"PK\x06\x07") {
            return Err(bad());
        }
        let at = long(&locator, 8);
        file.seek(SeekFrom::Start(at))?;
        let mut record = [0; 56];
        file.read_exact(&mut record)?;
        if !record.starts_with(b"PK\x06\x06") {
            return Err(bad());
        }
        (self.count, self.size, self.start) = (long(&record, 32), long(&record, 40), long(&record, 48));
        Ok(at)
    }

    fn entries(&self, mut file: &File, sink: &mut dyn Sink) -> Result<Vec<Central>, Stopped> {
        if self.count > MAX_ENTRIES as u64 || self.size > MAX_DIRECTORY_BYTES {
            return Err(Stopped::TooMuch(format!("a directory of {} entries in {} bytes", self.count, self.size)));
        }
        file.seek(SeekFrom::Start(self.start))?;
        let mut directory = vec![0; self.size as usize];
        file.read_exact(&mut directory)?;
        let mut rest = directory.as_slice();
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let (entry, behind) = central(rest, sink)?;
            entries.push(entry);
            rest = behind;
        }
        if entries.len() as u64 != self.count {
            sink.odd(
                None,
                Oddity::Structure,
                format!("its end record counts {} entries, its directory has {}", self.count, entries.len()),
            );
        }
        Ok(entries)
    }
}

fn central<'a>(bytes: &'a [u8], sink: &mut dyn Sink) -> Result<(Central, &'a [u8]), Stopped> {
    let bad = || Stopped::Damaged("its directory cannot be read".to_owned());
    if bytes.len() < 46 || !bytes.starts_with(b"PK\x01\x02") {
        return Err(bad());
    }
    let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(half(bytes, at)));
    let rest = &bytes[46..];
    let name_bytes = rest.get(..name).ok_or_else(bad)?.to_vec();
    let extra_bytes = rest.get(name..name + extra).ok_or_else(bad)?;
    let behind = rest.get(name + extra + comment..).ok_or_else(bad)?;
    let mut entry = Central {
        name: name_bytes,
        made_on: bytes[5],
        flags: half(bytes, 8),
        method: half(bytes, 10),
        crc32: word(bytes, 16),
        compressed: u64::from(word(bytes, 20)),
        size: u64::from(word(bytes, 24)),
        attributes: word(bytes, 38),
        offset: u64::from(word(bytes, 42)),
    };
    // Zip64 gives just the values that have no room, in this order.
    let mut long_values = zip64(extra_bytes).ok_or_else(bad)?.into_iter();
    for value in [&mut entry.size, &mut entry.compressed, &mut entry.offset] {
        if *value == 0xffff_ffff {
            *value = long_values.next().ok_or_else(bad)?;
        }
    }
    extra_fields(extra_bytes, &entry.name, sink);
    if comment > 0 {
        sink.odd(Some(&entry.name), Oddity::Form, "it has a comment".to_owned());
    }
    Ok((entry, behind))
}

/// Fields that some readers take something from: another name above all.
fn extra_fields(mut extra: &[u8], name: &[u8], sink: &mut dyn Sink) {
    const ZIP64: u16 = 1;
    const UNICODE_PATH: u16 = 0x7075;
    while extra.len() >= 4 {
        let (id, size) = (half(extra, 0), usize::from(half(extra, 2)));
        match id {
            ZIP64 => {}
            UNICODE_PATH => {
                sink.odd(Some(name), Oddity::Structure, "it has a second name, which some readers take".to_owned());
            }
            _ => sink.odd(Some(name), Oddity::Form, format!("it has an extra field (0x{id:04x})")),
        }
        extra = extra.get(4 + size..).unwrap_or_default();
    }
}

/// The values of the zip64 field; empty without one. `None`: the fields do not fill their room.
fn zip64(mut extra: &[u8]) -> Option<Vec<u64>> {
    let mut values = Vec::new();
    while !extra.is_empty() {
        let (id, size) = (half(extra.get(..4)?, 0), usize::from(half(extra, 2)));
        let data = extra.get(4..4 + size)?;
        if id == 1 {
            values = data.chunks_exact(8).map(|value| long(value, 0)).collect();
        }
        extra = &extra[4 + size..];
    }
    Some(values)
}

/// Reads one entry; returns the byte after it.
fn one(mut file: &File, central: &Central, sink: &mut dyn Sink) -> Result<u64, Stopped> {
    let bad = |why: &str| Stopped::Damaged(format!("entry `{}`: {why}", central.name.escape_ascii()));
    file.seek(SeekFrom::Start(central.offset))?;
    let mut header = [0; 30];
    file.read_exact(&mut header)?;
    if !header.starts_with(b"PK\x03\x04") {
        return Err(bad("there is no entry where the directory says"));
    }
    let mut name = vec![0; usize::from(half(&header, 26))];
    let mut extra = vec![0; usize::from(half(&header, 28))];
    file.read_exact(&mut name)?;
    file.read_exact(&mut extra)?;
    let mut sizes = [u64::from(word(&header, 22)), u64::from(word(&header, 18))];
    let mut long_values = zip64(&extra).ok_or_else(|| bad("its extra field cannot be read"))?.into_iter();
    for value in &mut sizes {
        if *value == 0xffff_ffff {
            *value = long_values.next().unwrap_or(*value);
        }
    }
    extra_fields(&extra, &central.name, sink);
    let same = name == central.name
        && half(&header, 6) == central.flags
        && half(&header, 8) == central.method
        && word(&header, 14) == central.crc32
        && sizes == [central.size, central.compressed];
    if !same {
        // With sizes behind the content (flag 8) the local ones are empty: legal, and never canonical.
        let what = if name == central.name { "header" } else { "name" };
        sink.odd(
            Some(&central.name),
            Oddity::Structure,
            format!("its own {what} and the directory's disagree (`{}`)", name.escape_ascii()),
        );
    }
    let start = central.offset + 30 + name.len() as u64 + extra.len() as u64;
    if central.flags & 1 != 0 {
        return Err(bad("it is encrypted"));
    }
    let kind = kind_of(central);
    if kind == Kind::Folder && central.size > 0 {
        sink.odd(Some(&central.name), Oddity::Structure, format!("it is a folder and has {} bytes", central.size));
    }
    let entry = |kind| Entry {
        name: central.name.clone(),
        kind,
        size: central.size,
        mode: if central.made_on == 3 { central.attributes >> 16 & 0o7777 } else { 0o644 },
        mtime: None,
    };
    let raw = BufReader::with_capacity(256 << 10, file).take(central.compressed);
    let content: Box<dyn Read + '_> = match central.method {
        0 if central.compressed == central.size => Box::new(raw),
        8 => Box::new(DeflateDecoder::new(raw)),
        _ => return Err(bad(&format!("its compression ({}) is not known", central.method))),
    };
    let mut content = Checked { inner: content, left: central.size, crc: flate2::Crc::new(), expected: central.crc32 };
    if matches!(kind, Kind::Symlink(_)) {
        if central.size > MAX_LINK_BYTES {
            return Err(bad("its link target is longer than one is read"));
        }
        let mut target = Vec::new();
        content.read_to_end(&mut target)?;
        sink.entry(&Entry { size: 0, ..entry(Kind::Symlink(target)) }, &mut io::empty())?;
    } else {
        sink.entry(&entry(kind), &mut content)?;
        io::copy(&mut content, &mut io::sink())?;
    }
    content.ended().map_err(|error| bad(&error.to_string()))?;
    start.checked_add(central.compressed).ok_or_else(|| bad("its size wraps"))
}

fn kind_of(central: &Central) -> Kind {
    let unix = if central.made_on == 3 { central.attributes >> 28 } else { 0 };
    match unix {
        0o12 => Kind::Symlink(Vec::new()),
        _ if central.name.ends_with(b"/") => Kind::Folder,
        0 | 0o10 => Kind::File,
        0o4 => Kind::Folder,
        0o2 => Kind::Other("a character device"),
        0o6 => Kind::Other("a block device"),
        0o1 => Kind::Other("a pipe"),
        _ => Kind::Other("an entry of an unknown kind"),
    }
}

/// Content of exactly the announced size and checksum.
struct Checked<'a> {
    inner: Box<dyn Read + 'a>,
    left: u64,
    crc: flate2::Crc,
    expected: u32,
}

impl Checked<'_> {
    /// After everything was read: nothing more may come, and the checksum fits.
    fn ended(&mut self) -> io::Result<()> {
        if self.inner.read(&mut [0])? != 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it has more content than it says"));
        }
        if self.crc.sum() != self.expected {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its checksum is wrong"));
        }
        Ok(())
    }
}

impl Read for Checked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        let count = self.inner.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.crc.update(&buffer[..count]);
        self.left -= count as u64;
        Ok(count)
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) | u32::from(half(bytes, at + 2)) << 16
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}
