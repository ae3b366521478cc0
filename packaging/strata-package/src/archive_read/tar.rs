//! The tar formats: ustar, pax and GNU's long names, header by header.
//!
//! Each header is also made anew by our own writer and compared: whatever is not canonical is told.

use super::{Entry, Kind, MAX_ENTRIES, MAX_NAME_BYTES, Oddity, Sink, Stopped};
use crate::archive_write::tar_header;
use std::io::{self, Read};

const BLOCK: usize = 512;
/// Keys of GNU's sparse files, which give an entry another name and another size.
const SPARSE: &[u8] = b"GNU.sparse.";

/// What came before an entry's own header and changes it.
#[derive(Default)]
struct Overrides {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    /// The raw blocks, to be compared with the canonical ones.
    raw: Vec<u8>,
}

pub(super) fn read(reader: &mut dyn Read, sink: &mut dyn Sink) -> Result<(), Stopped> {
    let mut overrides = Overrides::default();
    let mut entries = 0;
    loop {
        let mut block = [0_u8; BLOCK];
        reader.read_exact(&mut block)?;
        if block == [0; BLOCK] {
            reader.read_exact(&mut block)?;
            if block != [0; BLOCK] {
                return Err(Stopped::Damaged("one empty block where two end an archive".to_owned()));
            }
            return Ok(());
        }
        entries += 1;
        if entries > MAX_ENTRIES {
            return Err(Stopped::TooMuch(format!("more than {MAX_ENTRIES} entries")));
        }
        check_sum(&block)?;
        let size = number(&block[124..136]).ok_or_else(|| damaged(&block, "its size cannot be read"))?;
        let kind = block[156];
        if !matches!(kind, b'x' | b'g' | b'L' | b'K') {
            one(&block, size, std::mem::take(&mut overrides), reader, sink)?;
            continue;
        }
        if size > MAX_NAME_BYTES {
            return Err(damaged(&block, "its extended header is larger than one is read"));
        }
        let mut data = vec![0; (size as usize).next_multiple_of(BLOCK)];
        reader.read_exact(&mut data)?;
        overrides.raw.extend_from_slice(&block);
        overrides.raw.extend_from_slice(&data);
        if overrides.raw.len() as u64 > 4 * MAX_NAME_BYTES {
            return Err(damaged(&block, "its extended headers are more than are read"));
        }
        data.truncate(size as usize);
        apply(kind, &data, &mut overrides, sink)?;
    }
}

/// An entry with everything that came before it.
fn one(
    block: &[u8; BLOCK],
    size: u64,
    overrides: Overrides,
    reader: &mut dyn Read,
    sink: &mut dyn Sink,
) -> Result<(), Stopped> {
    let name = overrides.name.unwrap_or_else(|| header_name(block));
    let link = || overrides.link.clone().unwrap_or_else(|| text(&block[157..257]));
    let size = overrides.size.unwrap_or(size);
    let kind = match block[156] {
        // A name of old tars that ends in `/` is a folder.
        b'0' | 0 | b'7' if name.ends_with(b"/") && size == 0 => Kind::Folder,
        b'0' | 0 | b'7' => Kind::File,
        b'1' => Kind::HardLink(link()),
        b'2' => Kind::Symlink(link()),
        b'3' => Kind::Other("a character device"),
        b'4' => Kind::Other("a block device"),
        b'5' => Kind::Folder,
        b'6' => Kind::Other("a pipe"),
        b'S' => Kind::Other("a sparse file"),
        _ => Kind::Other("an entry of an unknown kind"),
    };
    let mode = number(&block[100..108]).ok_or_else(|| damaged(block, "its mode cannot be read"))? as u32 & 0o7777;
    let mtime = number(&block[136..148]);
    // Only files have content. Some writers give links a size all the same, and some readers skip as many
    // bytes then, others none: they see different archives.
    let content = if kind == Kind::File || block[156] == b'S' { size } else { 0 };
    if content != size {
        let what = format!("it is no file and is said to have {size} bytes");
        sink.odd(Some(&name), Oddity::Structure, what);
    }
    let entry = Entry { name, kind, size: content, mode, mtime };
    let mut raw = overrides.raw;
    raw.extend_from_slice(block);
    canonical(&entry, &raw, sink);

    let mut content = Exactly { inner: reader, left: entry.size };
    sink.entry(&entry, &mut content)?;
    io::copy(&mut content, &mut io::sink())?;
    let mut padding = [0_u8; BLOCK];
    let padding = &mut padding[..(BLOCK - (entry.size % BLOCK as u64) as usize) % BLOCK];
    reader.read_exact(padding)?;
    if padding.iter().any(|byte| *byte != 0) {
        sink.odd(Some(&entry.name), Oddity::Form, "the bytes after its end are not empty".to_owned());
    }
    Ok(())
}

/// Compares the raw headers with the ones that our writer makes of the same entry.
fn canonical(entry: &Entry, raw: &[u8], sink: &mut dyn Sink) {
    let kind = match entry.kind {
        Kind::File => b'0',
        Kind::Folder => b'5',
        // Told by its kind.
        _ => return,
    };
    let made = std::str::from_utf8(&entry.name)
        .ok()
        .filter(|name| name.is_ascii())
        .and_then(|name| tar_header(name, entry.size, entry.mode, kind, entry.mtime?).ok());
    if made.as_deref() != Some(raw) {
        sink.odd(Some(&entry.name), Oddity::Form, "its header is not the canonical one".to_owned());
    }
}

/// Gives just the bytes of one entry; an archive that ends in the middle is an error, not an end.
struct Exactly<'a> {
    inner: &'a mut dyn Read,
    left: u64,
}

impl Read for Exactly<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(0);
        }
        let count = self.inner.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= count as u64;
        Ok(count)
    }
}

fn damaged(block: &[u8; BLOCK], why: &str) -> Stopped {
    Stopped::Damaged(format!("entry `{}`: {why}", header_name(block).escape_ascii()))
}

fn check_sum(block: &[u8; BLOCK]) -> Result<(), Stopped> {
    let sum: u64 =
        block.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) }).sum();
    if number(&block[148..156]) == Some(sum) {
        return Ok(());
    }
    Err(Stopped::Damaged("an entry's header has a wrong checksum".to_owned()))
}

/// A field's text: up to its first NUL, or all of it.
fn text(field: &[u8]) -> Vec<u8> {
    field.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

fn header_name(block: &[u8; BLOCK]) -> Vec<u8> {
    let mut name = text(&block[..100]);
    // GNU's own format keeps other things where ustar has the prefix.
    let prefix = if &block[257..263] == b"ustar\0" { text(&block[345..500]) } else { Vec::new() };
    if !prefix.is_empty() {
        let mut whole = prefix;
        whole.push(b'/');
        whole.append(&mut name);
        name = whole;
    }
    name
}

/// Octal digits between blanks and NULs, or GNU's base 256.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let first = u64::from(field[0] & 0x7f);
        return field[1..]
            .iter()
            .try_fold(first, |value, byte| value.checked_mul(256).map(|value| value | u64::from(*byte)));
    }
    let digits = field.split(|byte| *byte == 0).next().unwrap_or_default().trim_ascii();
    digits.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 8)?;
        value.checked_mul(8).map(|value| value | u64::from(digit))
    })
}

/// Takes over what a pax header or a GNU long name says of the next entry.
fn apply(kind: u8, data: &[u8], overrides: &mut Overrides, sink: &mut dyn Sink) -> Result<(), Stopped> {
    match kind {
        b'L' => overrides.name = Some(text(data)),
        b'K' => overrides.link = Some(text(data)),
        b'g' => {
            // Of all entries that follow: some readers believe these, others do not.
            let changes = |key: &[u8]| matches!(key, b"path" | b"linkpath" | b"size") || key.starts_with(SPARSE);
            let oddity =
                if pax_records(data)?.iter().any(|(key, _)| changes(key)) { Oddity::Structure } else { Oddity::Form };
            sink.odd(None, oddity, "it holds a global pax header".to_owned());
        }
        _ => {
            for (key, value) in pax_records(data)? {
                match key.as_slice() {
                    b"path" => overrides.name = Some(value),
                    b"linkpath" => overrides.link = Some(value),
                    b"size" => {
                        let size = std::str::from_utf8(&value).ok().and_then(|size| size.parse().ok());
                        overrides.size =
                            Some(size.ok_or_else(|| Stopped::Damaged("a pax size cannot be read".to_owned()))?);
                    }
                    key if key.starts_with(SPARSE) => {
                        let what = "a pax header names or maps a sparse file, which readers see differently";
                        sink.odd(overrides.name.as_deref(), Oddity::Structure, what.to_owned());
                    }
                    // Times, owners and the like change nothing that is checked; the header comparison tells.
                    _ => {}
                }
            }
        }
    }
    Ok(())
}

/// Key and value.
type Record = (Vec<u8>, Vec<u8>);

/// `LENGTH KEY=VALUE\n`, one after the other.
fn pax_records(mut data: &[u8]) -> Result<Vec<Record>, Stopped> {
    let bad = || Stopped::Damaged("a pax record cannot be read".to_owned());
    let mut records = Vec::new();
    while !data.is_empty() {
        let blank = data.iter().take(8).position(|byte| *byte == b' ').ok_or_else(bad)?;
        let length: usize =
            std::str::from_utf8(&data[..blank]).ok().and_then(|text| text.parse().ok()).ok_or_else(bad)?;
        let record = data.get(blank + 1..length).and_then(|record| record.strip_suffix(b"\n")).ok_or_else(bad)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(bad)?;
        records.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        data = &data[length..];
    }
    Ok(records)
}
