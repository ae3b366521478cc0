//! Names and links: what may not be in a package, because on some machine it is another file, a
//! device, or a place outside.

use super::finding::{Finding, Report, printable};
use super::inventory::Item;
use crate::archive_read::Kind;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use strata_diag::catalogue::packages::{BAD_ENTRY_KIND, LINK_DANGLING, LINK_LOOP, LINK_OUTSIDE};
use unicode_normalization::UnicodeNormalization;

/// Devices of Windows: as a name, and before any suffix.
const DEVICES: &[&str] = &["con", "prn", "aux", "nul", "conin$", "conout$"];

/// Longest path in a package, and most folders deep: more than anybody's tools take everywhere.
const MAX_PATH_BYTES: usize = 1024;
pub(super) const MAX_PARTS: usize = 33;

/// Why this is no name for something in a package; `None`: it is one.
pub(super) fn fault(name: &[u8]) -> Option<String> {
    let Ok(text) = std::str::from_utf8(name) else { return Some("it is not UTF-8".to_owned()) };
    let bytes = text.as_bytes();
    if text.is_empty() {
        return Some("it is empty".to_owned());
    }
    if text.starts_with('/') {
        return Some("it is absolute".to_owned());
    }
    if text.contains('\\') {
        return Some("it holds a backslash, which separates folders on some machines and on others not".to_owned());
    }
    if bytes.len() > 1 && bytes[1] == b':' && bytes[0].is_ascii_alphabetic() {
        return Some("it names a drive".to_owned());
    }
    if let Some(c) = text.chars().find(|c| c.is_control() || is_invisible(*c)) {
        return Some(format!("it holds the character U+{:04X}", u32::from(c)));
    }
    if let Some(c) = text.chars().find(|c| r#":*?"<>|"#.contains(*c)) {
        return Some(format!("it holds `{c}`, which has a meaning on some machines"));
    }
    if text.len() > MAX_PATH_BYTES {
        return Some(format!("it has more than {MAX_PATH_BYTES} bytes"));
    }
    if text.split('/').count() > MAX_PARTS {
        return Some(format!("it lies more than {MAX_PARTS} folders deep"));
    }
    text.split('/').find_map(part_fault)
}

fn part_fault(part: &str) -> Option<String> {
    match part {
        "" => return Some("it holds an empty part".to_owned()),
        "." | ".." => return Some(format!("it holds the part `{part}`")),
        _ => {}
    }
    if part.len() > 255 {
        return Some("a part of it has more than 255 bytes".to_owned());
    }
    if part.ends_with(['.', ' ']) || part.starts_with(' ') {
        return Some("a part of it begins or ends with a blank or ends with a dot".to_owned());
    }
    let stem = part.split('.').next().unwrap_or_default().trim_end().to_ascii_lowercase();
    let numbered = ["com", "lpt"].iter().any(|port| {
        stem.strip_prefix(port).is_some_and(|digit| {
            matches!(digit, "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³")
        })
    });
    (numbered || DEVICES.contains(&stem.as_str())).then(|| format!("`{part}` is a device on some machines"))
}

/// Marks that change how text reads and cannot be seen.
fn is_invisible(c: char) -> bool {
    matches!(u32::from(c), 0xad | 0x61c | 0x180e | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff | 0xfff9..=0xfffb)
}

/// Finds names that are one name where case or Unicode's form does not count.
#[derive(Debug, Default)]
pub(super) struct Twins {
    entries: HashMap<Box<str>, Original>,
    /// Folders that names lie in, with or without an entry of their own.
    folders: HashMap<Box<str>, Original>,
    /// Bytes of all these names.
    bytes: usize,
}

/// A name as it stands; `None`: like its folded form, as most names are.
type Original = Option<Box<[u8]>>;

fn original(name: &[u8], folded: &str) -> Original {
    (name != folded.as_bytes()).then(|| name.into())
}

fn spelled<'a>(folded: &'a str, first: &'a Original) -> &'a [u8] {
    first.as_deref().unwrap_or(folded.as_bytes())
}

impl Twins {
    /// Bytes of the names that were met.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The name seen before that this entry is the twin of.
    pub(super) fn other(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        let folded: String = String::from_utf8_lossy(name).nfkc().flat_map(char::to_lowercase).nfkc().collect();
        let differs = |folded: &str, first: &Original, name: &[u8]| {
            let first = spelled(folded, first);
            (first != name).then(|| first.to_vec())
        };
        let mut found = self.folders.get(folded.as_str()).and_then(|first| differs(&folded, first, name));
        // Folders count: `Lib/a` and `lib/b` share one.
        for (depth, (end, _)) in folded.match_indices('/').enumerate() {
            let (folder, own) = (&folded[..end], prefix_of(name, depth));
            let entry = self.entries.get(folder).and_then(|first| differs(folder, first, &own));
            let first = self.folders.get(folder).and_then(|first| differs(folder, first, &own));
            if !self.folders.contains_key(folder) {
                self.bytes += 2 * folder.len();
                self.folders.insert(folder.into(), original(&own, folder));
            }
            found = found.or(entry).or(first);
        }
        self.bytes += 2 * name.len();
        let own = original(name, &folded);
        match self.entries.entry(folded.into()) {
            Entry::Occupied(seen) => Some(spelled(seen.key(), seen.get()).to_vec()),
            Entry::Vacant(free) => {
                free.insert(own);
                found
            }
        }
    }
}

/// The first parts of a name.
fn prefix_of(name: &[u8], slashes: usize) -> Vec<u8> {
    let mut ends = name.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    ends.nth(slashes).map_or_else(|| name.to_vec(), |end| name[..end].to_vec())
}

/// Judges all links of a package. Our own packages hold none; in others' they must end at a file inside.
pub(super) fn links(items: &BTreeMap<String, Item>, ours: bool, report: &mut Report) {
    for (path, item) in items {
        let (target, hard) = match &item.kind {
            Kind::Symlink(target) => (target, false),
            Kind::HardLink(target) => (target, true),
            _ => continue,
        };
        let kind = if hard { "hard link" } else { "link" };
        let finding = |code, message: String| {
            Finding::new(code, Some(path.as_bytes()), message).fact("target", printable(target))
        };
        let broken = match resolved(items, path, target, hard) {
            // A reader that makes the link when it meets it has nothing to link to.
            Ok(end) if hard && items.get(end).is_some_and(|end| end.at > item.at) => {
                Some(finding(LINK_DANGLING, format!("the {kind}'s target comes after it")))
            }
            Ok(_) => None,
            Err(Broken::Outside) => Some(finding(LINK_OUTSIDE, format!("the {kind} leads out of the package"))),
            Err(Broken::Dangling) => Some(finding(LINK_DANGLING, format!("the {kind}'s target is not in the package"))),
            Err(Broken::Loop) => Some(finding(LINK_LOOP, format!("the {kind} leads in a circle"))),
        };
        if let Some(finding) = broken {
            report.add(finding);
        } else if ours {
            report.add(finding(BAD_ENTRY_KIND, format!("it is a {kind}, and our packages hold none")));
        }
    }
}

/// Why a link is no good.
enum Broken {
    Outside,
    Dangling,
    Loop,
}

/// What a path names, links followed.
pub(super) fn followed<'i>(items: &'i BTreeMap<String, Item>, path: &str) -> Option<&'i Item> {
    let item = items.get(path)?;
    let end = match &item.kind {
        Kind::Symlink(target) => resolved(items, path, target, false).ok()?,
        Kind::HardLink(target) => resolved(items, path, target, true).ok()?,
        _ => return Some(item),
    };
    items.get(end)
}

/// The path of the file that a link ends at.
fn resolved<'i>(items: &'i BTreeMap<String, Item>, from: &str, target: &[u8], hard: bool) -> Result<&'i str, Broken> {
    let (mut from, mut target, mut hard) = (from.to_owned(), target.to_vec(), hard);
    let mut met = BTreeSet::new();
    loop {
        if !met.insert(from.clone()) {
            return Err(Broken::Loop);
        }
        let Ok(text) = String::from_utf8(target) else { return Err(Broken::Dangling) };
        if text.starts_with('/') || text.contains('\\') || fault_of_target(&text) {
            return Err(Broken::Outside);
        }
        // A hard link's target counts from the archive's root (its top folder first), a symbolic one's from its own folder.
        let base = if hard { "" } else { from.rsplit_once('/').map_or("", |(folder, _)| folder) };
        let path = joined(base, &text, hard).ok_or(Broken::Outside)?;
        let Some((name, item)) = items.get_key_value(&path) else { return Err(Broken::Dangling) };
        match &item.kind {
            Kind::Symlink(next) => (from, target, hard) = (path, next.clone(), false),
            Kind::HardLink(next) => (from, target, hard) = (path, next.clone(), true),
            _ => return Ok(name),
        }
    }
}

fn fault_of_target(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() > 1 && bytes[1] == b':' && bytes[0].is_ascii_alphabetic()
}

/// Base and target as one path below the top folder; `None`: it leads out.
fn joined(base: &str, target: &str, hard: bool) -> Option<String> {
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    let mut words = target.split('/').filter(|part| !part.is_empty() && *part != ".").peekable();
    if hard && words.peek().is_some_and(|first| *first != "..") {
        // The archive's top folder.
        words.next();
    }
    for part in words {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mean_something_else_somewhere_are_told() {
        for bad in [
            &b""[..],
            b"/evil",
            b"a/../evil",
            b"../evil",
            b"C:evil",
            b"c:/x",
            b"a\\b",
            b"a/./b",
            b"a//b",
            b"aux",
            b"lib/NUL.txt",
            b"com1",
            b"LPT9.log",
            b"a\0b",
            b"a\nb",
            b"trailing.",
            b"trailing ",
            b" leading",
            "x\u{202e}fdp".as_bytes(),
            "zero\u{200b}width".as_bytes(),
            b"\xff\xfe",
            b"a:b",
            b"what?",
        ] {
            assert!(fault(bad).is_some(), "{}", bad.escape_ascii());
        }
        for good in ["bin/strata", "lib/libx.so.0", ".hidden", "com", "console", "aux1", "größe", "a b", "...x"] {
            assert_eq!(fault(good.as_bytes()), None, "{good}");
        }
        assert!(fault("x".repeat(256).as_bytes()).is_some());
    }

    #[test]
    fn twins_are_found_by_case_form_and_folder() {
        let mut twins = Twins::default();
        for name in ["top/lib/a", "top/lib", "top/bin/x", "top/bin"] {
            assert_eq!(twins.other(name.as_bytes()), None, "{name}");
        }
        assert_eq!(twins.other(b"top/lib/A").as_deref(), Some(&b"top/lib/a"[..]));
        assert!(twins.other(b"top/LIB/c").is_some());
        assert_eq!(twins.other(b"top/bin/x").as_deref(), Some(&b"top/bin/x"[..]));
        assert_eq!(twins.other("top/caf\u{e9}".as_bytes()), None);
        assert!(twins.other("top/cafe\u{301}".as_bytes()).is_some());
        assert_eq!(twins.other(b"top/lib").as_deref(), Some(&b"top/lib"[..]), "a folder's second entry");
    }
}
