//! Where things lie below a prefix, and which of them are ours.
//!
//! `generations/<n>/` holds complete installations, `current` is a link to one of them, `models/` and
//! `state/` lie beside. Names that begin with a dot are unfinished work and are cleared away by the next run.

use crate::InstallError;
use crate::disk::exists;
use std::path::{Component, Path, PathBuf};
use strata_manifest::{Document, ModelStore, RELEASE_FILE, Receipt};

/// Name of the receipt in a generation.
pub const RECEIPT_FILE: &str = "receipt.json";

/// The folder that an installation lives in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallRoot {
    path: PathBuf,
}

impl InstallRoot {
    /// Takes a folder that may not exist yet, made absolute. Refuses what cannot be one: `/`, the home
    /// folder itself, a file, or a prefix that was laid out by hand.
    pub fn new(path: &Path) -> Result<InstallRoot, InstallError> {
        let unusable = |path: &Path, why: &str| InstallError::Prefix { path: path.to_owned(), why: why.to_owned() };
        let path = std::path::absolute(path).map_err(|_| unusable(path, "it has no absolute form"))?;
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(unusable(&path, "it leads through `..`"));
        }
        if path.parent().is_none() {
            return Err(unusable(&path, "it is the root of the file system"));
        }
        if std::env::var_os("HOME").is_some_and(|home| !home.is_empty() && Path::new(&home) == path) {
            return Err(unusable(&path, "it is the home folder itself; name a folder below it"));
        }
        if exists(&path) && !path.is_dir() {
            let why =
                if path.is_symlink() && !path.exists() { "it is a link that leads nowhere" } else { "it is no folder" };
            return Err(unusable(&path, why));
        }
        if path.join(RELEASE_FILE).is_file() {
            return Err(unusable(&path, "it holds a release; that is what is installed from"));
        }
        if let Some(why) = in_the_way(&path) {
            return Err(unusable(&path, &why));
        }
        if path.join(RECEIPT_FILE).is_file() {
            return Err(unusable(&path, "it holds a tree without generations, laid out by hand"));
        }
        let root = InstallRoot { path };
        let current = root.current();
        if exists(&current) && root.current_generation().is_none() && !current.is_symlink() {
            return Err(unusable(&root.path, "`current` in it is no link of an installation"));
        }
        Ok(root)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn current(&self) -> PathBuf {
        self.path.join("current")
    }

    pub fn generations(&self) -> PathBuf {
        self.path.join("generations")
    }

    pub fn generation(&self, number: u64) -> PathBuf {
        self.generations().join(number.to_string())
    }

    /// Where a generation is made before it is complete.
    pub fn staging(&self, number: u64) -> PathBuf {
        self.generations().join(format!(".staging-{number}"))
    }

    pub fn models(&self) -> PathBuf {
        self.path.join("models")
    }

    pub fn model_list(&self) -> PathBuf {
        self.models().join("models.json")
    }

    pub fn state(&self) -> PathBuf {
        self.path.join("state")
    }

    /// Archives that were installed from, for repairs without the network.
    pub fn archives(&self) -> PathBuf {
        self.state().join("archives")
    }

    /// Where downloads of this prefix are collected.
    pub fn downloads(&self) -> PathBuf {
        self.state().join("downloads")
    }

    /// The number that `current` leads to, if it leads to a generation.
    pub fn current_generation(&self) -> Option<u64> {
        let target = fs_err::read_link(self.current()).ok()?;
        let mut parts = target.components().rev();
        let number = parts.next()?.as_os_str().to_str()?.parse().ok()?;
        let is_ours = parts.next()?.as_os_str() == "generations";
        (is_ours && self.generation(number).is_dir()).then_some(number)
    }

    /// Complete generations, ascending: those that have a receipt.
    pub fn complete(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = entries(&self.generations())
            .into_iter()
            .filter_map(|name| name.parse().ok())
            .filter(|number| self.generation(*number).join(RECEIPT_FILE).is_file())
            .collect();
        numbers.sort_unstable();
        numbers
    }

    /// The highest number that was ever used, so that none is used twice.
    pub fn next_generation(&self) -> u64 {
        let numbers = entries(&self.generations());
        let highest = numbers.iter().filter_map(|name| {
            let digits = name.strip_prefix(".staging-").unwrap_or(name);
            digits.parse::<u64>().ok()
        });
        highest.chain(self.current_generation()).max().unwrap_or(0) + 1
    }

    /// The receipt of a generation.
    pub fn receipt(&self, number: u64) -> Result<Receipt, InstallError> {
        let path = self.generation(number).join(RECEIPT_FILE);
        if !path.is_file() {
            let known = self.complete();
            return Err(InstallError::NoGeneration { prefix: self.path.clone(), asked: Some(number), known });
        }
        Receipt::read(&path).map_err(|source| InstallError::ReceiptDamaged { generation: number, source })
    }

    /// Number and receipt of what is current; `None` when nothing is installed.
    pub fn installed(&self) -> Result<Option<(u64, Receipt)>, InstallError> {
        self.current_generation().map(|number| Ok((number, self.receipt(number)?))).transpose()
    }

    /// What is current, or an error that says that nothing is.
    pub fn require_installed(&self) -> Result<(u64, Receipt), InstallError> {
        self.installed()?.ok_or_else(|| InstallError::NothingInstalled { prefix: self.path.clone() })
    }

    /// The list of models; empty when there is none.
    pub fn model_store(&self) -> Result<ModelStore, InstallError> {
        let path = self.model_list();
        if !path.is_file() {
            return Ok(ModelStore::empty());
        }
        ModelStore::read(&path).map_err(|source| InstallError::State {
            source,
            hint: format!(
                "it lists the models: move `{}` aside and install them again, their files are kept",
                path.display()
            ),
        })
    }
}

/// What above a folder keeps it from being one: a file, or another installation.
fn in_the_way(path: &Path) -> Option<String> {
    let there = path.ancestors().find(|ancestor| exists(ancestor))?;
    if !there.is_dir() {
        return Some(format!("`{}` is no folder", there.display()));
    }
    let real = fs_err::canonicalize(there).ok()?;
    // The folder itself may well be an installation; those above it may not.
    let above = real.ancestors().skip(usize::from(there == path));
    let is_installation = |folder: &&Path| {
        let leads = fs_err::read_link(folder.join("current")).is_ok_and(|target| target.starts_with("generations"));
        leads || folder.join(RECEIPT_FILE).is_file()
    };
    let mut installations = above.filter(is_installation);
    installations.next().map(|other| format!("it lies inside the installation `{}`", other.display()))
}

/// Names in a folder, none when it is not there; sorted.
pub(crate) fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs_err::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
