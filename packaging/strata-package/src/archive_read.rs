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

/// Most entries that are read of one archive.
pub const MAX_ENTRIES: usize = 400_000;
/// Most bytes of a zip's central directory.
pub const MAX_DIRECTORY_BYTES: u64 = 64 << 20;
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
            let mut gzip = GzDecoder::new(compressed);
            tar::read(&mut gzip, sink).map_err(compressed_fault)?;
            nothing_behind(&mut gzip, sink, PADDED)?;
            nothing_behind(&mut gzip.into_inner(), sink, "the gzip stream")
        }
        Container::TarZst => {
            let compressed = BufReader::with_capacity(256 << 10, file);
            let mut zstd = zstd::stream::read::Decoder::with_buffer(compressed)?.single_frame();
            zstd.window_log_max(crate::archive_write::ZSTD_WINDOW_LOG)?;
            tar::read(&mut zstd, sink).map_err(compressed_fault)?;
            nothing_behind(&mut zstd, sink, PADDED)?;
            nothing_behind(&mut zstd.finish(), sink, "the zstd frame")
        }
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
    let count = io::copy(&mut reader.take(1 << 20), &mut io::sink()).map_err(|error| compressed_fault(error.into()))?;
    if count > 0 {
        // Tools fill the last record of an archive with empty blocks.
        let oddity = if what == PADDED { Oddity::Form } else { Oddity::Structure };
        sink.odd(
            None,
            oddity,
            format!("{count}{} bytes lie behind {what}", if count == 1 << 20 { " or more" } else { "" }),
        );
    }
    Ok(())
}
