//! The folder that everything is read below, and the environment that counts. Files of /sys and /proc
//! are small; what is larger than a bound is read up to it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

/// No text file that is looked at comes near this.
const MAX_TEXT: u64 = 1 << 20;
/// Entries of a folder that are looked at.
const MAX_ENTRIES: usize = 4096;

/// A machine to look at: `/`, or a folder that holds a copy of its relevant files.
#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
    variables: BTreeMap<String, String>,
}

impl Root {
    /// This machine, with this process's environment.
    pub fn live() -> Root {
        Root::at(Path::new("/"))
    }

    /// Files below a folder, with this process's environment.
    pub fn at(path: &Path) -> Root {
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Root { path: path.to_owned(), variables: variables.collect() }
    }

    /// The same files with another environment.
    #[must_use]
    pub fn with_variables(mut self, variables: BTreeMap<String, String>) -> Root {
        self.variables = variables;
        self
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is the machine itself and not a copy of files.
    pub fn is_live(&self) -> bool {
        self.path == Path::new("/")
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    pub(crate) fn below(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.below(path).exists()
    }

    /// A text, trimmed; `None` when it is not there or cannot be read. Bytes that are no UTF-8 are replaced.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        self.try_text(path).ok()
    }

    pub(crate) fn try_text(&self, path: &str) -> std::io::Result<String> {
        let mut bytes = Vec::new();
        fs_err::File::open(self.below(path))?.take(MAX_TEXT).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// `0x1002`.
    pub(crate) fn hex(&self, path: &str) -> Option<u64> {
        u64::from_str_radix(self.text(path)?.trim_start_matches("0x"), 16).ok()
    }

    /// Names in a folder, sorted; none when it is not there.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs_err::read_dir(self.below(path)).into_iter().flatten().take(MAX_ENTRIES);
        let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Last part of what a link points to.
    pub(crate) fn link_name(&self, path: &str) -> Option<String> {
        let target = fs_err::read_link(self.below(path)).ok()?;
        target.file_name()?.to_str().map(str::to_owned)
    }

    /// Whether this user may read and write a file; opens nothing.
    pub(crate) fn may_use(&self, path: &str) -> bool {
        use rustix::fs::{Access, access};
        access(self.below(path), Access::READ_OK | Access::WRITE_OK).is_ok()
    }
}
