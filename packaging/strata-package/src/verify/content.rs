//! One pass over a file's content: its digests, and what it is when it is an ELF file, GPU code or a
//! document that rules look at.

use crate::digest::{Digester, Digests};
use crate::elf::{self, ElfFacts};
use crate::gpu::{self, GpuFacts};
use memchr::memmem;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use strata_manifest::{COMPONENT_FILE, MAX_DOCUMENT_BYTES};

/// Documents up to this size are kept as text.
const MAX_KEPT_TEXT: u64 = 8 << 20;
/// Texts and facts that are kept of one package, in bytes: a hostile one has as many as it likes.
const MAX_KEPT: u64 = 64 << 20;
const BUFFER: usize = 512 << 10;
/// Why facts of a file are missing.
const TOO_MUCH: &str = "of this package more was read than is kept";

/// What is known of a file's content.
#[derive(Debug, Clone)]
pub(super) struct Content {
    pub(super) digests: Digests,
    pub(super) elf: Option<Box<Result<ElfFacts, String>>>,
    pub(super) gpu: Option<Box<GpuFacts>>,
    /// The text of a small document (descriptor, bill of material, list of sums).
    pub(super) text: Option<String>,
    /// A folder of the builder's home that it holds.
    pub(super) build_path: Option<String>,
}

/// Room for what is kept of one package's contents.
#[derive(Debug)]
pub(super) struct Room(AtomicU64);

impl Room {
    pub(super) fn new() -> Room {
        Room(AtomicU64::new(MAX_KEPT))
    }

    /// Takes so much of it; `false`: there is not so much left, and what was asked for is not kept.
    fn take(&self, bytes: usize) -> bool {
        let left = |left: u64| left.checked_sub(bytes as u64);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }
}

/// Whether rules look at the text of a file at this path: manifests, descriptors, lists of sums.
fn is_document(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let manifest = path == COMPONENT_FILE || path.starts_with(super::prefix::COMPONENTS);
    manifest || name.ends_with(".plugin.json") || super::foreign::LISTS.contains(&path)
}

/// Whether a file that begins so may hold code.
fn may_hold_code(head: &[u8], path: &str) -> bool {
    let magics: [&[u8]; 4] = [b"\x7fELF", b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB", &[0x50, 0xed, 0x55, 0xba]];
    let named = [".ptx", ".cubin", ".fatbin", ".hsaco", ".co"].iter().any(|suffix| path.ends_with(suffix));
    named || magics.iter().any(|magic| head.starts_with(magic))
}

/// Hashes a file of a folder and looks at what it is.
pub(super) fn of_file(file: &File, path: &str, room: &Room, tell: &dyn Fn(u64)) -> io::Result<Content> {
    let mut reader = file;
    let size = file.metadata()?.len();
    let mut tell = |bytes: &[u8]| tell(bytes.len() as u64);
    let (digests, head, text) = hash(&mut reader, path, room, size, &mut tell, &mut io::sink())?;
    inspected(digests, &head, text, path, room, file)
}

/// Hashes an entry of an archive while it passes; what may hold code is kept in `spool` to be looked at,
/// and everything is where `keep` says so. `size` is what the entry announces.
pub(super) fn of_stream(
    reader: &mut dyn Read,
    path: &str,
    size: u64,
    spool: &mut File,
    keep: bool,
    room: &Room,
    tell: &dyn Fn(u64),
) -> io::Result<Content> {
    let start = spool.seek(SeekFrom::End(0))?;
    let mut head = vec![0; 64];
    let filled = fill(reader, &mut head)?;
    head.truncate(filled);
    let wanted = keep || may_hold_code(&head, path);
    let mut whole = head.as_slice().chain(reader);
    let mut sink = io::sink();
    let into: &mut dyn Write = if wanted { spool } else { &mut sink };
    let (digests, head, text) = hash(&mut whole, path, room, size, &mut |bytes| tell(bytes.len() as u64), into)?;
    if !may_hold_code(&head, path) {
        return Ok(Content { digests, elf: None, gpu: None, text, build_path: None });
    }
    // The readers take a file that begins with what they read.
    let content = if start == 0 {
        inspected(digests, &head, text, path, room, spool)?
    } else {
        let mut own = tempfile::tempfile()?;
        spool.seek(SeekFrom::Start(start))?;
        io::copy(&mut (&mut *spool).take(digests.size), &mut own)?;
        inspected(digests, &head, text, path, room, &own)?
    };
    if !keep {
        spool.set_len(start)?;
    }
    Ok(content)
}

fn fill(reader: &mut dyn Read, mut buffer: &mut [u8]) -> io::Result<usize> {
    let mut total = 0;
    while !buffer.is_empty() {
        match reader.read(buffer)? {
            0 => break,
            count => {
                total += count;
                buffer = &mut buffer[count..];
            }
        }
    }
    Ok(total)
}

type Hashed = (Digests, Vec<u8>, Option<String>);

fn hash(
    reader: &mut dyn Read,
    path: &str,
    room: &Room,
    size: u64,
    tell: &mut dyn FnMut(&[u8]),
    copy: &mut dyn Write,
) -> io::Result<Hashed> {
    let (mut digester, mut head) = (Digester::new(), Vec::new());
    let mut text = is_document(path).then(Vec::new);
    // There is one manifest, which is parsed and let go.
    let manifest = path == COMPONENT_FILE;
    let limit = if manifest { MAX_DOCUMENT_BYTES } else { MAX_KEPT_TEXT };
    // Most files are small, and there may be many.
    let mut buffer = vec![0; BUFFER.min(size as usize).max(4096)];
    loop {
        let count = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let bytes = &buffer[..count];
        if head.len() < 64 {
            head.extend_from_slice(&bytes[..bytes.len().min(64 - head.len())]);
        }
        if let Some(kept) = &mut text {
            kept.extend_from_slice(bytes);
        }
        if text.as_ref().is_some_and(|kept| kept.len() as u64 > limit) {
            text = None;
        }
        digester.update(bytes);
        copy.write_all(bytes)?;
        tell(bytes);
    }
    let text = text
        .filter(|bytes| manifest || room.take(bytes.len()))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok((digester.finish(), head, text))
}

fn inspected(
    digests: Digests,
    head: &[u8],
    text: Option<String>,
    path: &str,
    room: &Room,
    mut file: &File,
) -> io::Result<Content> {
    let mut content = Content { digests, elf: None, gpu: None, text, build_path: None };
    if !may_hold_code(head, path) {
        return Ok(content);
    }
    if head.starts_with(b"\x7fELF") {
        content.elf = elf::inspect(file).transpose().map(Box::new);
        if let Some(facts) = &mut content.elf
            && let Ok(read) = facts.as_ref()
            && !room.take(read.kept_bytes())
        {
            **facts = Err(TOO_MUCH.to_owned());
        }
    }
    file.seek(SeekFrom::Start(0))?;
    let mut gpu = gpu::scan(&mut io::BufReader::with_capacity(BUFFER, file))?;
    if !room.take(gpu.kept_bytes()) {
        gpu = GpuFacts::default();
        gpu.unreadable.insert(TOO_MUCH.to_owned());
    }
    content.gpu = (gpu != GpuFacts::default()).then(|| Box::new(gpu));
    if content.elf.as_ref().is_some_and(|facts| facts.is_ok()) {
        file.seek(SeekFrom::Start(0))?;
        content.build_path = build_path(&mut file)?;
    }
    Ok(content)
}

/// The first path into somebody's home that stands in a file.
fn build_path(reader: &mut dyn Read) -> io::Result<Option<String>> {
    const OVERLAP: usize = 256;
    // Put together here, so that this program does not hold what it looks for.
    let needles = ["home", "root", "Users"].map(|folder| format!("/{folder}/").into_bytes());
    let finders = [&needles[0], &needles[1], &needles[2]].map(memmem::Finder::new);
    let mut window = vec![0_u8; BUFFER + OVERLAP];
    let mut filled = 0;
    loop {
        let count = fill(reader, &mut window[filled..])?;
        filled += count;
        let bytes = &window[..filled];
        for finder in &finders {
            for at in finder.find_iter(bytes) {
                let path: Vec<u8> = bytes[at..].iter().copied().take(120).take_while(u8::is_ascii_graphic).collect();
                // `/home/` alone is a word; a folder of a user with something in it is a path.
                let user = path.get(finder.needle().len()..).and_then(|rest| memchr::memchr(b'/', rest));
                let inside = user.is_some_and(|length| length > 0 && path.len() > finder.needle().len() + length + 1);
                let starts = at == 0 || !bytes[at - 1].is_ascii_alphanumeric();
                if inside && starts {
                    return Ok(Some(String::from_utf8_lossy(&path).into_owned()));
                }
            }
        }
        if filled < window.len() {
            return Ok(None);
        }
        window.copy_within(BUFFER.., 0);
        filled = OVERLAP;
    }
}
