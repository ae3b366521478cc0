//! Lists of SHA-256 sums as the tools of the world write them: `sha256sum` (text and binary mark,
//! escaped names), BSD's and OpenSSL's tagged lines, PowerShell's UTF-16, Windows line ends, a byte
//! order mark, a digest alone, a signed text around it.
//!
//! What it is not: a check of who wrote the list. A signature around one is named in the notes and
//! not checked. `strata verify-package --sums` calls this.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use strata_manifest::Sha256Digest;

/// No list of files comes near this; what is larger is not read at all.
pub const MAX_LIST_BYTES: u64 = 64 << 20;

/// A list that was read. Lines that say nothing (blank, `#`) are in none of its fields.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// One file each, in the order of the list.
    pub entries: Vec<SumEntry>,
    /// Lines from which no SHA-256 could be read, and why.
    pub unreadable: Vec<UnreadLine>,
    /// What else a person should know: a signature that nobody checked, for example.
    pub notes: Vec<&'static str>,
}

/// A line that names a file and its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SumEntry {
    /// Counted from 1.
    pub line: usize,
    /// The name as it was before it was escaped, any bytes; `None` for a digest that stands alone.
    pub name: Option<Vec<u8>>,
    pub digest: Sha256Digest,
}

/// A line that gave nothing to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadLine {
    /// Counted from 1.
    pub line: usize,
    pub why: Unread,
}

/// Why a line gave nothing to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unread {
    /// A digest of another kind, by its tag or its length.
    OtherAlgorithm,
    /// An escape in the name that no tool writes, or a NUL in it.
    BadName,
    /// Neither of the known forms.
    UnknownForm,
    /// The same name stood above with another digest: which one holds cannot be told.
    Contradiction,
}

impl Unread {
    /// Half a sentence for people.
    pub fn text(self) -> &'static str {
        match self {
            Unread::OtherAlgorithm => "a digest that is not SHA-256",
            Unread::BadName => "a name that cannot be read",
            Unread::UnknownForm => "no form of a sum line that is known",
            Unread::Contradiction => "the same name as above with another digest",
        }
    }
}

/// What became of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SumResult {
    Verified,
    /// The file's own digest.
    Differs {
        found: Sha256Digest,
    },
    /// In the list, not on disk.
    Absent,
    /// On disk, not in the list.
    NotListed,
    /// The name in the list leads out of the list's folder, so it was not looked at.
    LeadsOutside,
    /// There, and cannot be read (or is no file).
    Unreadable {
        because: String,
    },
}

/// One file and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SumCheck {
    /// The path as it was looked at.
    pub path: PathBuf,
    /// The digest that the list has for it.
    pub expected: Option<Sha256Digest>,
    pub result: SumResult,
}

/// Reads a list. Never fails: what cannot be read is in `unreadable`, and a caller must treat a list
/// without entries as one that proves nothing.
pub fn parse(bytes: &[u8]) -> Sums {
    let mut sums = Sums::default();
    let text = decoded(bytes);
    let mut seen: BTreeMap<Vec<u8>, Sha256Digest> = BTreeMap::new();
    let mut contradicted: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut part = Part::List;
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        part = part.at(line);
        match part {
            Part::SignedHeader | Part::Signature => {
                note(&mut sums.notes, "the list lies in a signed text; its signature was not checked");
                continue;
            }
            Part::List if line.starts_with(b"-----") => continue,
            Part::List => {}
        }
        // In a signed text a line that begins with a dash carries `- ` in front.
        let line = line.strip_prefix(b"- ").unwrap_or(line);
        if line.trim_ascii().is_empty() || line.starts_with(b"#") {
            continue;
        }
        match entry(line) {
            Ok((name, digest)) => {
                if let Some(name) = &name
                    && seen.insert(undotted(name).to_vec(), digest).is_some_and(|before| before != digest)
                {
                    sums.unreadable.push(UnreadLine { line: index + 1, why: Unread::Contradiction });
                    contradicted.insert(undotted(name).to_vec());
                }
                sums.entries.push(SumEntry { line: index + 1, name, digest });
            }
            Err(why) => sums.unreadable.push(UnreadLine { line: index + 1, why }),
        }
    }
    // No digest of a name that has two is believed, however often one of them comes.
    sums.entries.retain(|entry| entry.name.as_deref().is_none_or(|name| !contradicted.contains(undotted(name))));
    sums
}

/// `./a` is `a`.
fn undotted(name: &[u8]) -> &[u8] {
    name.strip_prefix(b"./").unwrap_or(name)
}

/// Reads a list from a file of at most [`MAX_LIST_BYTES`].
pub fn read(path: &Path) -> std::io::Result<Sums> {
    let file = fs_err::File::open(path)?;
    let mut bytes = Vec::new();
    file.take(MAX_LIST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_LIST_BYTES {
        return Err(std::io::Error::other(format!("it has more than {MAX_LIST_BYTES} bytes: no list of sums")));
    }
    Ok(parse(&bytes))
}

/// Checks files against a list. With no file named, all that the list names, below `folder`;
/// otherwise just these, found in the list by their path below `folder`, else by their name alone
/// when the list has that name once.
pub fn check(sums: &Sums, folder: &Path, files: &[PathBuf]) -> Vec<SumCheck> {
    if files.is_empty() {
        return sums.entries.iter().filter_map(|entry| check_listed(entry, folder)).collect();
    }
    files
        .iter()
        .map(|path| match expected_for(sums, folder, path, files.len()) {
            None => SumCheck { path: path.clone(), expected: None, result: SumResult::NotListed },
            Some(expected) => {
                SumCheck { path: path.clone(), expected: Some(expected), result: compare(path, expected) }
            }
        })
        .collect()
}

fn check_listed(entry: &SumEntry, folder: &Path) -> Option<SumCheck> {
    let name = PathBuf::from(OsString::from_vec(entry.name.clone()?));
    let inside = name.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !inside {
        let result = SumResult::LeadsOutside;
        return Some(SumCheck { path: name, expected: Some(entry.digest), result });
    }
    let path = folder.join(name);
    let result = compare(&path, entry.digest);
    Some(SumCheck { path, expected: Some(entry.digest), result })
}

fn compare(path: &Path, expected: Sha256Digest) -> SumResult {
    let unreadable = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => SumResult::Absent,
        _ => SumResult::Unreadable { because: error.to_string() },
    };
    // Asked before opening: a pipe that nobody writes to would never open.
    match fs_err::metadata(path) {
        Err(error) => return unreadable(error),
        Ok(metadata) if !metadata.is_file() => {
            return SumResult::Unreadable { because: "it is no ordinary file".to_owned() };
        }
        Ok(_) => {}
    }
    match fs_err::File::open(path).and_then(Sha256Digest::of_reader) {
        Err(error) => unreadable(error),
        Ok((found, _)) if found == expected => SumResult::Verified,
        Ok((found, _)) => SumResult::Differs { found },
    }
}

fn expected_for(sums: &Sums, folder: &Path, path: &Path, files: usize) -> Option<Sha256Digest> {
    let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
    let below = bytes(path.strip_prefix(folder).unwrap_or(path));
    let named = |wanted: &[u8]| {
        let mut found =
            sums.entries.iter().filter(|entry| entry.name.as_deref().map(undotted) == Some(undotted(wanted)));
        found.next().map(|entry| entry.digest)
    };
    if let Some(digest) = named(&below) {
        return Some(digest);
    }
    let own_name = |name: &[u8]| name.rsplit(|byte| *byte == b'/').next().map(<[u8]>::to_vec);
    let name = path.file_name()?.as_encoded_bytes().to_vec();
    let mut alike: Vec<Sha256Digest> = sums
        .entries
        .iter()
        .filter(|entry| entry.name.as_deref().and_then(own_name).as_ref() == Some(&name))
        .map(|entry| entry.digest)
        .collect();
    alike.dedup();
    match (alike.as_slice(), sums.entries.as_slice()) {
        ([only], _) => Some(*only),
        // A digest alone can only mean the one file that was given.
        ([], [SumEntry { name: None, digest, .. }]) if files == 1 => Some(*digest),
        _ => None,
    }
}

/// The bytes as UTF-8 or whatever they are: a byte order mark goes, UTF-16 is read where a mark says so.
fn decoded(bytes: &[u8]) -> Vec<u8> {
    let wide = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = rest.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units).into_bytes()
    };
    match bytes {
        [0xEF, 0xBB, 0xBF, rest @ ..] => rest.to_vec(),
        [0xFF, 0xFE, rest @ ..] => wide(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => wide(rest, u16::from_be_bytes),
        _ => bytes.to_vec(),
    }
}

/// Where in a signed text a line stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    List,
    SignedHeader,
    Signature,
}

impl Part {
    fn at(self, line: &[u8]) -> Part {
        match self {
            Part::List if line == b"-----BEGIN PGP SIGNED MESSAGE-----" => Part::SignedHeader,
            Part::List if line == b"-----BEGIN PGP SIGNATURE-----" => Part::Signature,
            Part::SignedHeader if line.is_empty() => Part::List,
            Part::Signature if line == b"-----END PGP SIGNATURE-----" => Part::List,
            same => same,
        }
    }
}

fn note(notes: &mut Vec<&'static str>, text: &'static str) {
    if !notes.contains(&text) {
        notes.push(text);
    }
}

fn entry(line: &[u8]) -> Result<(Option<Vec<u8>>, Sha256Digest), Unread> {
    // GNU: a backslash at the start says that the name is escaped.
    let (escaped, line) = match line.strip_prefix(b"\\") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    // A line that begins with a digest is never a tagged one, whatever brackets its name holds.
    let begins_with_digest = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count() >= 32;
    let tagged = if begins_with_digest { None } else { tagged(line)? };
    let (name, digest) = match tagged {
        Some(found) => found,
        None => plain(line)?,
    };
    let name = match name {
        Some(name) if escaped => Some(unescaped(name).ok_or(Unread::BadName)?),
        Some(name) => Some(name.to_vec()),
        None => None,
    };
    if name.as_ref().is_some_and(|name| name.contains(&0)) {
        return Err(Unread::BadName);
    }
    Ok((name, digest))
}

/// A name (none: the digest stands alone) and its digest.
type Found<'a> = (Option<&'a [u8]>, Sha256Digest);

/// `SHA256 (name) = digest` (BSD), `SHA2-256(name)= digest` (OpenSSL).
fn tagged(line: &[u8]) -> Result<Option<Found<'_>>, Unread> {
    let Some(open) = line.iter().position(|byte| *byte == b'(') else { return Ok(None) };
    let tag = line[..open].trim_ascii_end();
    // The name may hold `) = ` itself; a digest holds no bracket.
    let Some(close) = line.iter().rposition(|byte| *byte == b')').filter(|close| *close > open) else {
        return Ok(None);
    };
    let Some(digest) = line[close + 1..].trim_ascii_start().strip_prefix(b"=") else { return Ok(None) };
    let known = |name: &[u8]| tag.eq_ignore_ascii_case(name);
    let looks_like_a_tag =
        !tag.is_empty() && tag.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-/_".contains(byte));
    if !looks_like_a_tag {
        return Ok(None);
    }
    if !(known(b"SHA256") || known(b"SHA2-256") || known(b"SHA-256")) {
        return Err(Unread::OtherAlgorithm);
    }
    let digest = digest_of(digest.trim_ascii())?;
    Ok(Some((Some(&line[open + 1..close]), digest)))
}

/// `digest  name`, `digest *name`, `digest name`, `digest`.
fn plain(line: &[u8]) -> Result<Found<'_>, Unread> {
    let end = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let digest = digest_of(&line[..end])?;
    match &line[end..] {
        rest if rest.trim_ascii().is_empty() => Ok((None, digest)),
        // The second character is the mark: blank for text, star for binary.
        [b' ' | b'\t', b' ' | b'*', name @ ..] | [b' ' | b'\t', name @ ..] => Ok((Some(name), digest)),
        _ => Err(Unread::UnknownForm),
    }
}

fn digest_of(text: &[u8]) -> Result<Sha256Digest, Unread> {
    let hexadecimal = !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit);
    match (hexadecimal, text.len()) {
        (true, 64) => {
            let text = String::from_utf8_lossy(text).to_ascii_lowercase();
            text.parse().map_err(|_| Unread::UnknownForm)
        }
        // MD5, SHA-1, SHA-224, SHA-384, SHA-512.
        (true, 32 | 40 | 56 | 96 | 128) => Err(Unread::OtherAlgorithm),
        _ => Err(Unread::UnknownForm),
    }
}

/// `\\`, `\n` and `\r`, as GNU writes them.
fn unescaped(name: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'\\' => b'\\',
                b'n' => b'\n',
                b'r' => b'\r',
                _ => return None,
            },
            other => *other,
        });
    }
    Some(out)
}

#[cfg(test)]
#[path = "sums_tests.rs"]
mod tests;
