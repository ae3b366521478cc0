//! A path inside a package: relative, `/` between its parts, checked once where it enters.
//!
//! The rule is narrow on purpose: printable ASCII without what shells of other systems give a
//! meaning, no part that leads up or is a device there. So no two names can look alike, and a name
//! means the same in a tar, in a zip and on every disk. The verifier reports names of *archives*
//! on its own; this type is for names that manifests state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Longest path in bytes.
pub const MAX_PATH_BYTES: usize = 1024;
/// Longest part of a path in bytes.
pub const MAX_PART_BYTES: usize = 255;
/// Most parts of a path.
pub const MAX_PARTS: usize = 32;

/// `lib/strata/cpu/libstrata_backend_cpu.so`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct PackagePath(String);

/// Why a text is no path of a package.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no path of a package: {why}", text.escape_default())]
pub struct BadPath {
    /// The text, at most its first 200 characters.
    pub text: String,
    pub why: &'static str,
}

impl PackagePath {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last part.
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// All but the last part; `None` for a file in the top folder.
    pub fn parent(&self) -> Option<&str> {
        self.0.rsplit_once('/').map(|(parent, _)| parent)
    }

    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// This path below a folder of this machine.
    pub fn below(&self, folder: &std::path::Path) -> std::path::PathBuf {
        folder.join(&self.0)
    }
}

/// Why this text is no path, or `None` when it is one.
fn fault(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("it is empty");
    }
    if text.len() > MAX_PATH_BYTES {
        return Some("it has more than 1024 bytes");
    }
    if text.split('/').count() > MAX_PARTS {
        return Some("it is more than 32 folders deep");
    }
    if !text.bytes().all(|c| (0x20..0x7f).contains(&c)) {
        return Some("it holds something else than printable ASCII");
    }
    if text.bytes().any(|c| br#"\:*?"<>|"#.contains(&c)) {
        return Some(r#"it holds one of \ : * ? " < > |"#);
    }
    text.split('/').find_map(part_fault)
}

fn part_fault(part: &str) -> Option<&'static str> {
    // `nul`, `NUL.txt`: devices on Windows, whatever the suffix.
    let stem = part.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
    let numbered = stem.strip_prefix("COM").or_else(|| stem.strip_prefix("LPT"));
    let device = matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$")
        || numbered.is_some_and(|rest| rest.len() == 1 && rest.as_bytes()[0].is_ascii_digit());
    match part {
        "" => Some("it is absolute, ends in a slash or has an empty part"),
        "." | ".." => Some("it has a part `.` or `..`"),
        _ if part.len() > MAX_PART_BYTES => Some("a part has more than 255 bytes"),
        _ if part.ends_with([' ', '.']) || part.starts_with(' ') => {
            Some("a part starts with a blank or ends in a blank or dot")
        }
        _ if device => Some("a part is the name of a device on some systems"),
        _ => None,
    }
}

impl FromStr for PackagePath {
    type Err = BadPath;

    fn from_str(text: &str) -> Result<Self, BadPath> {
        match fault(text) {
            None => Ok(PackagePath(text.to_owned())),
            Some(why) => Err(BadPath { text: text.chars().take(200).collect(), why }),
        }
    }
}

impl TryFrom<String> for PackagePath {
    type Error = BadPath;

    fn try_from(text: String) -> Result<Self, BadPath> {
        text.parse()
    }
}

impl From<PackagePath> for String {
    fn from(path: PackagePath) -> String {
        path.0
    }
}

impl AsRef<str> for PackagePath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PackagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_packages_pass() {
        for good in
            ["component.json", "bin/strata", "lib/rocblas/library/TensileLibrary_lazy_gfx906.dat", "a b/c+d~e", ".x"]
        {
            assert_eq!(good.parse::<PackagePath>().unwrap().as_str(), good);
        }
        let path: PackagePath = "lib/strata/cpu/x.so".parse().unwrap();
        assert_eq!((path.file_name(), path.parent()), ("x.so", Some("lib/strata/cpu")));
    }

    #[test]
    fn what_leads_elsewhere_or_reads_differently_elsewhere_does_not() {
        let long = "x".repeat(256);
        let deep = "d/".repeat(40) + "f";
        let far = format!("{0}/{0}/{0}/{0}/{0}", "y".repeat(250));
        for bad in [
            "",
            "/",
            "/evil",
            "a/",
            "a//b",
            "..",
            "a/../b",
            "./a",
            "C:evil",
            r"a\b",
            "a\0b",
            "a\nb",
            "é",
            "nul",
            "x/NUL.txt",
            "com1",
            "lpt9.log",
            "a.",
            "a ",
            " a",
            "a/ b",
            "a*",
            &long,
            &deep,
            &far,
        ] {
            assert!(bad.parse::<PackagePath>().is_err(), "{bad:?}");
        }
    }
}
