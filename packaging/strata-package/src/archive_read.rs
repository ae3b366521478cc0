//! Archives of unknown origin, read as they are: every entry with its raw name, kind and mode, and
//! everything about it that a lenient reader would hide. tar.gz, tar.zst, tar and zip, told by content.
//!
//! It writes nothing and decides nothing: a [`Sink`] gets the entries in the order of the archive.
//! `verify` and `unpack` call it. Memory: one entry's header (names and pax records up to 64 KiB, a
//! zip's central directory up to [`MAX_DIRECTORY_BYTES`]), the decompressor's window (zstd: 8 MiB, what our
//! format allows), and buffers; never an entry's content.

mod tar;
mod zip;

use flate2::bufread::GzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::sync::mpsc;

/// Most entries that are read of one archive.
pub const MAX_ENTRIES: usize = 125_000;
/// Most bytes of a zip's central directory.
pub const MAX_DIRECTORY_BYTES: u64 = 40 << 20;
/// Longest name, link target or pax header, in bytes.
pub(crate) const MAX_NAME_BYTES: u64 = 64 << 10;

/// Kind of an archive, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    TarGz,
    TarZst,
    Tar,
    Zip,
}

impl Container {
    /// What a file's first 512 bytes say; `None`: no archive that is known.
    pub fn of_bytes(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Container::TarGz),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Container::TarZst),
            [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Some(Container::Zip),
            head if head.get(257..262) == Some(b"ustar") => Some(Container::Tar),
            _ => None,
        }
    }

    pub fn suffix(self) -> &'static str {
        match self {
            Container::TarGz => "tar.gz",
            Container::TarZst => "tar.zst",
            Container::Tar => "tar",
            Container::Zip => "zip",
        }
    }
}

/// What an entry says that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
    Symlink(Vec<u8>),
    HardLink(Vec<u8>),
    /// `a character device`, `a pipe`, …
    Other(&'static str),
}

/// One entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// As it stands in the archive, any bytes.
    pub name: Vec<u8>,
    pub kind: Kind,
    /// Bytes of content that the header announces.
    pub size: u64,
    /// Permission bits, set-id bits included.
    pub mode: u32,
    /// Seconds since 1970, where the format has them.
    pub mtime: Option<u64>,
}

/// How much an oddity says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oddity {
    /// Other people's tools write so: of no weight in other people's archives.
    Form,
    /// Two readers may see two different archives.
    Structure,
}

/// Who is told what is in an archive.
pub trait Sink {
    /// One entry. What is left of `content` is skipped afterwards.
    fn entry(&mut self, entry: &Entry, content: &mut dyn Read) -> io::Result<()>;

    /// Something that a canonical archive does not have, at an entry (by name) or in the whole.
    fn odd(&mut self, entry: Option<&[u8]>, oddity: Oddity, what: String);
}

/// Why reading stopped before the end.
#[derive(Debug)]
pub enum Stopped {
    /// The bytes are no such archive, or end early, or a checksum is wrong.
    Damaged(String),
    /// More than is read of any archive.
    TooMuch(String),
    /// The sink or the disk failed.
    Io(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Stopped::Damaged("it ends early".to_owned()),
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => Stopped::Damaged(error.to_string()),
            _ => Stopped::Io(error),
        }
    }
}

/// Reads a whole archive; the file is read from its start.
pub fn read(mut file: &File, container: Container, sink: &mut dyn Sink) -> Result<(), Stopped> {
    file.seek(SeekFrom::Start(0))?;
    match container {
        Container::Zip => zip::read(file, sink),
        Container::Tar => {
            let mut reader = BufReader::with_capacity(256 << 10, file);
            tar::read(&mut reader, sink)?;
            nothing_behind(&mut reader, sink, PADDED)
        }
        Container::TarGz => {
            let mut compressed = BufReader::with_capacity(256 << 10, file);
            // Flags, time, extra flags and system: name and time would differ from build to build.
            let head = compressed.fill_buf()?;
            if head.get(..10) != Some(&crate::archive_write::GZIP_HEADER[..]) {
                sink.odd(None, Oddity::Form, "its gzip header is not the canonical one".to_owned());
            }
            let gzip = GzDecoder::new(compressed);
            unpacked_aside(gzip, sink, |gzip, sink| nothing_behind(&mut gzip.into_inner(), sink, "the gzip stream"))
        }
        Container::TarZst => {
            let compressed = BufReader::with_capacity(256 << 10, file);
            let mut zstd = zstd::stream::read::Decoder::with_buffer(compressed)?.single_frame();
            zstd.window_log_max(crate::archive_write::ZSTD_WINDOW_LOG)?;
            unpacked_aside(zstd, sink, |zstd, sink| nothing_behind(&mut zstd.finish(), sink, "the zstd frame"))
        }
    }
}

/// Reads the tar that a decompressor gives. It works in a thread of its own, so that what is done with
/// the bytes (hashing them, writing them) does not wait for it, nor it for that.
fn unpacked_aside<D: Read + Send>(
    mut decoder: D,
    sink: &mut dyn Sink,
    behind: impl FnOnce(D, &mut dyn Sink) -> Result<(), Stopped>,
) -> Result<(), Stopped> {
    let (sender, receiver) = mpsc::sync_channel(AHEAD);
    std::thread::scope(|scope| {
        let decompressing = scope.spawn(move || {
            loop {
                let mut piece = vec![0; PIECE];
                let (count, fault) = fill(&mut decoder, &mut piece);
                piece.truncate(count);
                let ended = count < PIECE;
                // What came before the damage, then the damage. Nobody listens any more when the reader
                // knows what it needs to know.
                let heard = sender.send(Ok(piece)).is_ok() && fault.is_none_or(|fault| sender.send(Err(fault)).is_ok());
                if ended || !heard {
                    return decoder;
                }
            }
        });
        let mut pieces = Pieces { receiver, piece: Vec::new(), at: 0 };
        let read = tar::read(&mut pieces, sink).map_err(compressed_fault);
        let read = read.and_then(|()| nothing_behind(&mut pieces, sink, PADDED));
        drop(pieces);
        let decoder = decompressing.join();
        read?;
        behind(decoder.map_err(|_| Stopped::Io(io::Error::other("a thread of the reader died")))?, sink)
    })
}

/// Bytes that one thread gives the other at a time, and how many such pieces may wait.
const PIECE: usize = 512 << 10;
const AHEAD: usize = 4;

/// As much as there is, up to the buffer's size, and what ended it when that was no end.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (filled, Some(error)),
        }
    }
    (filled, None)
}

/// The pieces of another thread as one stream.
struct Pieces {
    receiver: mpsc::Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            // The sender is gone: that was the end.
            let Ok(next) = self.receiver.recv() else { return Ok(0) };
            (self.piece, self.at) = (next?, 0);
        }
        let count = buffer.len().min(self.piece.len() - self.at);
        buffer[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Where tools put padding.
const PADDED: &str = "the archive's end";

/// Decompressors report damage with kinds of their own choice.
fn compressed_fault(stopped: Stopped) -> Stopped {
    match stopped {
        Stopped::Io(error) if error.raw_os_error().is_none() => Stopped::Damaged(error.to_string()),
        other => other,
    }
}

/// Reads to the end, which makes a decompressor check its checksum, and tells of bytes that are left.
fn nothing_behind(reader: &mut dyn Read, sink: &mut dyn Sink, what: &str) -> Result<(), Stopped> {
    // As much as anybody's blocking factor pads; the rest is counted as "more" without being read.
    let mut behind = Behind { bytes: 0, empty: true };
    io::copy(&mut reader.take(MAX_PADDING), &mut behind).map_err(|error| compressed_fault(error.into()))?;
    if behind.bytes > 0 {
        // Tools fill the last record of an archive with empty blocks; anything else there is for readers
        // that go on behind the end.
        let padding = what == PADDED && behind.empty && behind.bytes < MAX_PADDING;
        let oddity = if padding { Oddity::Form } else { Oddity::Structure };
        let more = if behind.bytes == MAX_PADDING { " or more" } else { "" };
        sink.odd(None, oddity, format!("{}{more} bytes lie behind {what}", behind.bytes));
    }
    Ok(())
}

/// Most bytes behind an archive's end that are read.
const MAX_PADDING: u64 = 1 << 20;

/// Counts bytes, and whether all are 0.
struct Behind {
    bytes: u64,
    empty: bool,
}

impl io::Write for Behind {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes += bytes.len() as u64;
        self.empty &= bytes.iter().all(|byte| *byte == 0);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive_write::{TarEncoder, ZipEncoder};
    use std::io::Write;
    use strata_manifest::FileMode;

    /// Collects what it is told.
    #[derive(Default)]
    struct Told {
        entries: Vec<(String, u64)>,
        odd: Vec<(Oddity, String)>,
        content: Vec<u8>,
    }

    impl Sink for Told {
        fn entry(&mut self, entry: &Entry, content: &mut dyn Read) -> io::Result<()> {
            content.read_to_end(&mut self.content)?;
            self.entries.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.size));
            Ok(())
        }

        fn odd(&mut self, _entry: Option<&[u8]>, oddity: Oddity, what: String) {
            self.odd.push((oddity, what));
        }
    }

    fn told(container: Container, bytes: &[u8]) -> Told {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let mut told = Told::default();
        read(&file, container, &mut told).unwrap();
        told
    }

    fn structure(told: &Told, word: &str) -> bool {
        told.odd.iter().any(|(oddity, what)| *oddity == Oddity::Structure && what.contains(word))
    }

    fn tar() -> Vec<u8> {
        let mut tar = TarEncoder::new(Vec::new(), 1_700_000_000);
        tar.folder("x/").unwrap();
        tar.file("x/a", 5, FileMode::Plain, &mut &b"hello"[..]).unwrap();
        tar.finish().unwrap()
    }

    /// A header like the first of `tar`, with another kind and size, and its content.
    fn header(tar: &[u8], kind: u8, content: &[u8]) -> Vec<u8> {
        let mut header = tar[..512].to_vec();
        header[156] = kind;
        header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        header.extend_from_slice(content);
        header.resize(header.len().next_multiple_of(512), 0);
        header
    }

    #[test]
    fn what_readers_of_tar_disagree_about_is_told() {
        let sound = told(Container::Tar, &tar());
        assert_eq!(sound.entries, [("x/".to_owned(), 0), ("x/a".to_owned(), 5)]);
        assert!(sound.odd.is_empty(), "{:?}", sound.odd);

        // A folder with a size: whoever skips it does not see the file behind it.
        let hidden = [header(&tar(), b'5', &[]), tar()[512..].to_vec()].concat();
        let mut sized = hidden.clone();
        sized[..512].copy_from_slice(&header(&tar(), b'5', &[1; 512])[..512]);
        let sized = told(Container::Tar, &sized);
        assert!(structure(&sized, "is no file"), "{:?}", sized.odd);
        assert_eq!(sized.entries.len(), 2);

        for (record, word) in [("26 GNU.sparse.name=x/evil\n", "sparse"), ("15 path=x/evil\n", "")] {
            let with = |kind| [header(&tar(), kind, record.as_bytes()), tar()].concat();
            assert_eq!(structure(&told(Container::Tar, &with(b'x')), "sparse"), word == "sparse", "{record}");
            assert!(structure(&told(Container::Tar, &with(b'g')), "global"), "{record}");
        }
        let comment = [header(&tar(), b'g', b"17 comment=hello\n"), tar()].concat();
        assert!(!structure(&told(Container::Tar, &comment), ""));

        // Padding is a tool's habit; a second archive behind the first is none.
        assert!(!structure(&told(Container::Tar, &[tar(), vec![0; 9216]].concat()), ""));
        assert!(structure(&told(Container::Tar, &[tar(), tar()].concat()), "behind"));
    }

    #[test]
    fn damage_of_the_compressed_stream_is_met_wherever_it_is() {
        let mut gzip = crate::archive_write::Gzip::new(Vec::new()).unwrap();
        gzip.write_all(&tar()).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut zstd = crate::archive_write::zstd(Vec::new()).unwrap();
        zstd.write_all(&tar()).unwrap();
        let zstd = zstd.finish().unwrap();
        for (container, sound) in [(Container::TarGz, gzip), (Container::TarZst, zstd)] {
            assert!(told(container, &sound).odd.is_empty());
            for at in 10..sound.len() {
                let mut file = tempfile::tempfile().unwrap();
                let mut bytes = sound.clone();
                bytes[at] ^= 0x10;
                file.write_all(&bytes).unwrap();
                let mut found = Told::default();
                let read = read(&file, container, &mut found);
                // Some bits of compressed streams mean nothing: only making the archive anew shows those.
                let same = found.content == told(container, &sound).content;
                assert!(read.is_err() || !found.odd.is_empty() || same, "{container:?} byte {at} of {}", sound.len());
                let mut file = tempfile::tempfile().unwrap();
                file.write_all(&sound[..at]).unwrap();
                assert!(super::read(&file, container, &mut Told::default()).is_err(), "{container:?} cut at {at}");
            }
            let trailing = told(container, &[sound.as_slice(), b"x"].concat());
            assert!(structure(&trailing, "behind"), "{:?}", trailing.odd);
            let twice = told(container, &[sound.as_slice(), sound.as_slice()].concat());
            assert!(structure(&twice, "behind"), "{:?}", twice.odd);
        }
    }

    #[test]
    fn a_second_name_in_a_zip_is_told() {
        let mut zip = ZipEncoder::new(Vec::new(), 1_700_000_000);
        zip.file("a", 0, FileMode::Plain, &mut || Ok(Box::new(io::empty()))).unwrap();
        let sound = zip.finish().unwrap();
        assert!(told(Container::Zip, &sound).odd.is_empty());
        // The unicode path field: version 1, a checksum, another name.
        let field = b"\x75\x70\x06\0\x01\0\0\0\0b";
        let directory = sound.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
        let end = sound.windows(4).position(|window| window == b"PK\x05\x06").unwrap();
        let mut with = [&sound[..end], field, &sound[end..]].concat();
        with[directory + 30] = field.len() as u8;
        with[end + field.len() + 12] += field.len() as u8;
        let found = told(Container::Zip, &with);
        assert!(structure(&found, "second name"), "{:?}", found.odd);
    }
}
