//! What the verifier found: findings, and the report that collects them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use strata_diag::Code;
use strata_diag::catalogue::packages::{
    GPU_TARGETS, KERNEL_FILES_MISSING, LIBC_FLOOR, LIBRARY_MISSING, MANIFEST_MISSING, NOT_SIGNED, NOTHING_CHECKED,
    PACKAGE_FILE_UNREADABLE, PACKAGE_TOO_LARGE, SIGNATURE_INVALID, SUM_UNREAD, TRUST_REFUSED, WRONG_PROCESSOR,
};
use strata_manifest::Component;

/// Findings that are kept whole; of more, only how many.
pub(crate) const MAX_KEPT: usize = 5000;

/// What a finding says about the package; the exit status is 16 plus the sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bits(pub u8);

impl Bits {
    /// It is not what was packed.
    pub const DAMAGED: Bits = Bits(1);
    /// Whoever made it is not the one who should have.
    pub const UNTRUSTED: Bits = Bits(2);
    /// It will not work where it promises to.
    pub const INCOMPATIBLE: Bits = Bits(4);
    /// It could not be told.
    pub const NOT_CHECKABLE: Bits = Bits(8);

    /// What findings of this code say.
    pub fn of(code: &'static Code) -> Bits {
        match code {
            code if [SIGNATURE_INVALID, TRUST_REFUSED].contains(&code) => Bits::UNTRUSTED,
            code if [
                PACKAGE_TOO_LARGE,
                WRONG_PROCESSOR,
                LIBRARY_MISSING,
                LIBC_FLOOR,
                GPU_TARGETS,
                KERNEL_FILES_MISSING,
            ]
            .contains(&code) =>
            {
                Bits::INCOMPATIBLE
            }
            code if [MANIFEST_MISSING, NOT_SIGNED, NOTHING_CHECKED, PACKAGE_FILE_UNREADABLE, SUM_UNREAD]
                .contains(&code) =>
            {
                Bits::NOT_CHECKABLE
            }
            _ => Bits::DAMAGED,
        }
    }

    /// The process's exit status.
    pub fn status(self) -> u8 {
        if self.0 == 0 { 0 } else { 16 + self.0 }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub code: &'static Code,
    /// What it is about, inside the package: printable, other bytes escaped.
    pub path: Option<String>,
    /// One lower-case sentence without a full stop.
    pub message: String,
    pub facts: Vec<(&'static str, String)>,
    /// Bytes of the file that it is about, where that matters for a sum.
    pub bytes: u64,
    /// What the file looks like, when that is known.
    pub looks_like: Option<&'static str>,
}

impl Finding {
    pub(crate) fn new(code: &'static Code, path: Option<&[u8]>, message: impl Into<String>) -> Self {
        let path = path.map(printable);
        Finding { code, path, message: bounded(message.into()), facts: Vec::new(), bytes: 0, looks_like: None }
    }

    #[must_use]
    pub(crate) fn fact(mut self, name: &'static str, value: impl std::fmt::Display) -> Self {
        self.facts.push((name, bounded(value.to_string())));
        self
    }
}

/// Longest name that is shown whole, in bytes.
const MAX_SHOWN: usize = 1200;

/// UTF-8 without control characters as it is, everything else escaped; a very long one cut.
pub(crate) fn printable(name: &[u8]) -> String {
    if name.len() > MAX_SHOWN {
        return format!("{}… ({} bytes)", name[..MAX_SHOWN].escape_ascii(), name.len());
    }
    match std::str::from_utf8(name) {
        Ok(text) if !text.chars().any(|c| c.is_control() || c == '\\') => text.to_owned(),
        _ => name.escape_ascii().to_string(),
    }
}

/// A text of a package as it may be shown: of any length, and with anything in it.
fn bounded(mut text: String) -> String {
    if text.len() > 4 * MAX_SHOWN {
        let end = (0..=4 * MAX_SHOWN).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    if text.contains(char::is_control) {
        return text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    }
    text
}

/// How many findings of one code there are, and the bytes of the files that they are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    pub findings: u64,
    pub bytes: u64,
}

/// Everything that was found, and what was looked at.
#[derive(Debug, Clone)]
pub struct Report {
    pub target: PathBuf,
    /// `archive`, `package folder`, `installation`, `release folder`.
    pub kind: &'static str,
    /// At most [`MAX_KEPT`], in the order in which they were found.
    pub findings: Vec<Finding>,
    /// All of them, by code.
    pub counts: BTreeMap<&'static str, Count>,
    /// What a reader should know and is not wrong.
    pub notes: Vec<String>,
    pub bits: Bits,
    /// Files whose content was hashed.
    pub files: u64,
    /// Bytes that were hashed.
    pub bytes: u64,
    /// What was verified: one component, or all of a release.
    pub components: Vec<Component>,
}

impl Report {
    pub(crate) fn new(target: &Path, kind: &'static str) -> Self {
        Report {
            target: target.to_owned(),
            kind,
            findings: Vec::new(),
            counts: BTreeMap::new(),
            notes: Vec::new(),
            bits: Bits::default(),
            files: 0,
            bytes: 0,
            components: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, finding: Finding) {
        self.bits = Bits(self.bits.0 | Bits::of(finding.code).0);
        let count = self.counts.entry(finding.code.id).or_default();
        count.findings += 1;
        count.bytes = count.bytes.saturating_add(finding.bytes);
        if self.findings.len() < MAX_KEPT {
            self.findings.push(finding);
        }
    }

    pub(crate) fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Whether there is a finding of this code.
    pub fn has(&self, code: &'static Code) -> bool {
        self.counts.contains_key(code.id)
    }

    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.bits == Bits::default()
    }

    /// Takes over what was found in a part of this, with that part's name before each path.
    pub(crate) fn absorb(&mut self, part: Report, name: &str) {
        for mut finding in part.findings {
            finding.path = Some(finding.path.map_or_else(|| name.to_owned(), |path| format!("{name}: {path}")));
            if self.findings.len() < MAX_KEPT {
                self.findings.push(finding);
            }
        }
        for (code, count) in part.counts {
            let all = self.counts.entry(code).or_default();
            all.findings += count.findings;
            all.bytes = all.bytes.saturating_add(count.bytes);
        }
        for note in part.notes {
            self.note(format!("{name}: {note}"));
        }
        self.bits = Bits(self.bits.0 | part.bits.0);
        self.files += part.files;
        self.bytes += part.bytes;
        self.components.extend(part.components);
    }
}
