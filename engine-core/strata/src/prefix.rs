//! Where things are: the installed prefix, its receipt, models by name.

use crate::env;
use std::path::{Path, PathBuf};
use strata_diag::Diagnostic;
use strata_diag::catalogue::general::{BAD_INPUT, MODEL_NOT_FOUND};
use strata_manifest::{Document, Receipt};

/// An installation: its root and what the receipt says is in it.
#[derive(Debug)]
pub(crate) struct Prefix {
    pub(crate) root: PathBuf,
    pub(crate) receipt: Receipt,
}

impl Prefix {
    /// The prefix that was asked for, else `STRATA_PREFIX`, else the folder above this program's
    /// `bin`. `None` when nothing was asked for and this program is not installed.
    pub(crate) fn find(asked: Option<&Path>) -> Result<Option<Prefix>, Diagnostic> {
        let named = asked.map(Path::to_owned).or_else(env::prefix);
        let must_exist = named.is_some();
        let Some(root) = named.or_else(own_prefix) else { return Ok(None) };
        let path = root.join("receipt.json");
        if !must_exist && !path.is_file() {
            return Ok(None);
        }
        let receipt = Receipt::read(&path).map_err(|error| Diagnostic::of(&error))?;
        Ok(Some(Prefix { root, receipt }))
    }
}

/// `<prefix>/bin/strata` → `<prefix>`, links followed.
fn own_prefix() -> Option<PathBuf> {
    let program = fs_err::canonicalize(std::env::current_exe().ok()?).ok()?;
    Some(program.parent()?.parent()?.to_owned())
}

/// Turns what the user wrote into a model file: an installed name first when it has no slash and
/// no such file is here, a path otherwise.
pub(crate) fn model_path(model: &str, prefix: Option<&Prefix>) -> Result<PathBuf, Diagnostic> {
    let path = PathBuf::from(model);
    if path.exists() {
        return Ok(path);
    }
    let installed = prefix.map_or(&[][..], |prefix| &prefix.receipt.models);
    if let (Some(prefix), Some(found)) = (prefix, installed.iter().find(|entry| entry.name == model)) {
        let path = prefix.root.join(&found.path);
        let bytes = fs_err::metadata(&path).map(|metadata| metadata.len());
        if bytes.as_ref().is_ok_and(|bytes| *bytes != found.size) {
            return Err(Diagnostic::new(
                BAD_INPUT,
                format!("the installed model `{model}` is not the file that the receipt lists"),
            )
            .fact("path", path.display())
            .fact("bytes in the receipt", found.size)
            .fact("bytes there", bytes.unwrap_or_default())
            .hint("install the model again, or give its path to use it as it is"));
        }
        return Ok(path);
    }
    Err(not_found(format!("no file and no installed model is called `{model}`"), installed, prefix))
}

/// The model to run when none is named: the only installed one.
pub(crate) fn default_model(prefix: Option<&Prefix>) -> Result<String, Diagnostic> {
    let installed = prefix.map_or(&[][..], |prefix| &prefix.receipt.models);
    match installed {
        [only] => Ok(only.name.clone()),
        [] => Err(not_found("no model is named and none is installed".to_owned(), installed, prefix)),
        _ => Err(not_found("several models are installed and none is named".to_owned(), installed, prefix)),
    }
}

fn not_found(message: String, installed: &[strata_manifest::InstalledModel], prefix: Option<&Prefix>) -> Diagnostic {
    let names: Vec<&str> = installed.iter().map(|entry| entry.name.as_str()).collect();
    let mut diagnostic = Diagnostic::new(MODEL_NOT_FOUND, message)
        .fact("prefix", prefix.map_or("none".to_owned(), |prefix| prefix.root.display().to_string()))
        .fact("installed", if names.is_empty() { "none".to_owned() } else { names.join(", ") });
    diagnostic = match names.first() {
        Some(first) => diagnostic.hint(format!("name one of them: `strata run {first}`")),
        None => diagnostic.hint("give the path of a GGUF file: `strata run PATH/model.gguf`"),
    };
    diagnostic
}
