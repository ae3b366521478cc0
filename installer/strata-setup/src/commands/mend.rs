//! The models' half of `repair`: every model file that setup fetched is read again, and of a damaged one only the
//! broken chunks are fetched.

use crate::cli::{InstallArgs, RepairArgs};
use crate::commands::install;
use crate::context::Context;
use crate::fetching::{self, Network, Wanted};
use crate::outcome::Outcome;
use crate::printer;
use std::path::{Path, PathBuf};
use strata_install::InstallRoot;
use strata_manifest::{Catalog, Document, LOCK_FILE, Lock, LockedFile, StoredFile, StoredModel};

/// What a look at the models found.
#[derive(Debug, Default)]
pub(crate) struct Models {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Damaged ones: path, what is wrong or was, and whether it is whole now.
    pub(crate) damaged: Vec<(PathBuf, String, bool)>,
}

impl Models {
    pub(crate) fn all_whole(&self) -> bool {
        self.damaged.iter().all(|(.., mended)| *mended)
    }
}

pub(crate) fn models(context: &Context, root: &InstallRoot, args: &RepairArgs) -> Outcome<Models> {
    let mut found = Models::default();
    if args.no_models {
        return Ok(found);
    }
    for model in root.model_store()?.models {
        for file in model.files.iter().filter(|file| !file.adopted) {
            let path = root.models().join(&file.path);
            let locked = locked(&path, file);
            found.files += 1;
            found.bytes += file.size;
            let Some((why, mend)) = fault(&path, file, locked.as_ref())? else { continue };
            printer::talk(&format!("damaged: {}: {why}", path.display()));
            let mended = !args.dry_run && bring(context, &model, file, &path, (locked, mend), args)?;
            found.damaged.push((path, why, mended));
        }
    }
    Ok(found)
}

/// What the lock file beside a model file says of it.
fn locked(path: &Path, file: &StoredFile) -> Option<LockedFile> {
    let lock = Lock::read(&path.with_file_name(LOCK_FILE)).ok()?;
    let name = path.file_name()?.to_string_lossy();
    lock.files.into_iter().find(|locked| locked.name == name && locked.sha256 == file.sha256)
}

/// What is wrong with a file, and whether some of it may be whole.
fn fault(path: &Path, file: &StoredFile, locked: Option<&LockedFile>) -> Outcome<Option<(String, bool)>> {
    if !fs_err::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        return Ok(Some(("it is not there".to_owned(), false)));
    }
    let audit = fetching::audit(path, locked)?;
    if (audit.size, audit.sha256) == (file.size, file.sha256) {
        return Ok(None);
    }
    let why = if audit.size == file.size {
        match audit.broken.len() {
            0 => "its SHA-256 is another one".to_owned(),
            count => format!("{count} of its 8 MiB chunks are broken"),
        }
    } else {
        format!("it has {} bytes, not {}", audit.size, file.size)
    };
    Ok(Some((why, true)))
}

/// Fetches what is broken; `false` when nothing says where the file came from.
fn bring(
    context: &Context,
    model: &StoredModel,
    file: &StoredFile,
    path: &Path,
    (locked, mend): (Option<LockedFile>, bool),
    args: &RepairArgs,
) -> Outcome<bool> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let catalog = Catalog::built_in();
    let known = catalog.find(&model.name).and_then(|model| model.files.iter().find(|file| file.name == name));
    let sources = match (&locked, known) {
        (Some(locked), _) => vec![locked.source.clone()],
        (None, Some(known)) => known.sources.clone(),
        (None, None) if model.files.len() == 1 => vec![model.source.clone()],
        (None, None) => Vec::new(),
    };
    let is_source = |source: &String| ["https:", "http:", "hf:", "pip:"].iter().any(|kind| source.starts_with(kind));
    if sources.is_empty() || !sources.iter().all(is_source) {
        printer::talk(&format!("note: nothing says where {name} came from; install its model again"));
        return Ok(false);
    }
    let network = Network::new(&InstallArgs { ca_file: args.ca_file.clone(), ..InstallArgs::default() }, path.parent());
    let wanted = Wanted {
        name,
        sources,
        size: Some(file.size),
        about_bytes: file.size,
        sha256: Some(file.sha256),
        to: path.to_owned(),
        chunks: Vec::new(),
        in_lock: true,
        pin: locked,
        mend,
    };
    install::fetch_file(&wanted, &network, context)?;
    Ok(true)
}
