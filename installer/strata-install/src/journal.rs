//! The journal: which change is under way and how far it is. It decides nothing about correctness
//! (a generation is complete when it has its number, and runs when `current` leads to it); it lets
//! the next run say what was stopped where, and clear away what belongs to nobody.

use crate::disk::Disk;
use crate::layout::entries;
use crate::{InstallError, InstallRoot, Observer, Step, lock};
use serde_json::{Value, json};
use std::io::Read;
use std::path::PathBuf;

const SCHEMA: &str = "strata-journal/1.0";

/// A change under way.
#[derive(Debug)]
pub(crate) struct Journal<'a> {
    root: &'a InstallRoot,
    disk: &'a Disk,
    action: &'static str,
    generation: u64,
}

/// What a stopped run wrote last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// `install`, `repair`, `uninstall`, …
    pub action: String,
    pub step: String,
    pub generation: u64,
}

fn path(root: &InstallRoot) -> PathBuf {
    root.state().join("journal.json")
}

impl<'a> Journal<'a> {
    pub(crate) fn open(root: &'a InstallRoot, disk: &'a Disk, action: &'static str, generation: u64) -> Journal<'a> {
        Journal { root, disk, action, generation }
    }

    /// Records that a step begins, and tells whoever watches.
    pub(crate) fn begin(&self, step: Step, observer: &dyn Observer) -> Result<(), InstallError> {
        self.write(step.name(), false)?;
        observer.step(step);
        Ok(())
    }

    /// Records that all is done.
    pub(crate) fn close(&self) -> Result<(), InstallError> {
        self.write(Step::Finish.name(), true)
    }

    fn write(&self, step: &str, done: bool) -> Result<(), InstallError> {
        let text = json!({
            "schema": SCHEMA,
            "pid": std::process::id(),
            "action": self.action,
            "generation": self.generation,
            "step": step,
            "done": done,
        });
        let path = path(self.root);
        self.disk
            .write_atomic(&path, format!("{text:#}\n").as_bytes())
            .map_err(|source| InstallError::write(&path, step, source))
    }
}

/// The change that a stopped run left, if any; one that is under way in another process was not stopped.
pub fn stopped(root: &InstallRoot) -> Option<Stopped> {
    if lock::is_held(root) { None } else { left_behind(root) }
}

fn left_behind(root: &InstallRoot) -> Option<Stopped> {
    let mut text = String::new();
    fs_err::File::open(path(root)).ok()?.take(64 << 10).read_to_string(&mut text).ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    if value["schema"].as_str() != Some(SCHEMA) || value["done"].as_bool() == Some(true) {
        return None;
    }
    Some(Stopped {
        action: value["action"].as_str()?.to_owned(),
        step: value["step"].as_str()?.to_owned(),
        generation: value["generation"].as_u64()?,
    })
}

/// Clears away what stopped runs left: unfinished folders, links and files beside their targets, and
/// the complete generation that was never switched to. Says what was found.
pub(crate) fn recover(root: &InstallRoot, disk: &Disk) -> Result<Vec<String>, InstallError> {
    let mut notes = Vec::new();
    let failed = |path: &std::path::Path, source| InstallError::write(path, Step::Recover.name(), source);
    let left = left_behind(root);
    if let Some(left) = &left {
        notes.push(format!("an earlier {} stopped at step `{}`; what it left is cleared away", left.action, left.step));
    }
    let current = root.current_generation();
    for name in entries(&root.generations()) {
        let path = root.generations().join(&name);
        let unfinished = name.starts_with(".staging-");
        let unused = left.as_ref().is_some_and(|left| {
            matches!(left.action.as_str(), "install" | "repair")
                && name == left.generation.to_string()
                && current != Some(left.generation)
        });
        if unfinished || unused {
            disk.remove_tree(&path).map_err(|source| failed(&path, source))?;
        }
    }
    for folder in [root.path().to_owned(), root.models(), root.state()] {
        for name in entries(&folder) {
            if name.starts_with('.') && name.contains(".new-") {
                let path = folder.join(&name);
                disk.remove_file(&path).map_err(|source| failed(&path, source))?;
            }
        }
    }
    Ok(notes)
}
