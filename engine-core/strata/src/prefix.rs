//! Where things are: the installed prefix, its receipt, models by name.
//!
//! There are two layouts. An installation has generations: its root for us is one generation
//! (`P/generations/3`, to which `P/current` leads), and models lie beside all generations in
//! `P/models`, named by a list of their own. A prefix laid out from a build is one tree with a receipt
//! that names its models.

use crate::env;
use std::path::{Path, PathBuf};
use strata_diag::Diagnostic;
use strata_diag::catalogue::general::{BAD_INPUT, MODEL_NOT_FOUND};
use strata_manifest::{Document, ModelStore, Receipt, Sha256Digest};

/// An installation: its root and what is in it.
#[derive(Debug)]
pub(crate) struct Prefix {
    /// The tree that the receipt lists: a generation, or the prefix itself.
    pub(crate) root: PathBuf,
    pub(crate) receipt: Receipt,
    /// Models by name, from the receipt and from the list beside the generations.
    pub(crate) models: Vec<Model>,
}

/// An installed model.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) name: String,
    /// The files in order; the first is the one to open.
    pub(crate) files: Vec<(PathBuf, u64, Sha256Digest)>,
}

impl Prefix {
    /// The prefix that was asked for, else `STRATA_PREFIX`, else the folder above this program's
    /// `bin`. `None` when nothing was asked for and this program is not installed.
    pub(crate) fn find(asked: Option<&Path>) -> Result<Option<Prefix>, Diagnostic> {
        let Some(root) = Prefix::place(asked) else { return Ok(None) };
        let receipt = Receipt::read(&root.join(RECEIPT)).map_err(|error| Diagnostic::of(&error))?;
        let models = models(&root, &receipt)?;
        Ok(Some(Prefix { root, receipt, models }))
    }

    /// The tree whose receipt [`Prefix::find`] reads.
    pub(crate) fn place(asked: Option<&Path>) -> Option<PathBuf> {
        let named = asked.map(Path::to_owned).or_else(env::prefix);
        let must_exist = named.is_some();
        let root = generation_of(named.or_else(own_prefix)?);
        (must_exist || root.join(RECEIPT).is_file()).then_some(root)
    }
}

const RECEIPT: &str = "receipt.json";

/// `P` and `P/current` mean the generation that is current now: it is named by its own path, so that an
/// update during a long run changes nothing under it.
fn generation_of(root: PathBuf) -> PathBuf {
    let current = root.join("current");
    let is_installation = !root.join(RECEIPT).is_file() && current.join(RECEIPT).is_file();
    let root = if is_installation { current } else { root };
    fs_err::canonicalize(&root).unwrap_or(root)
}

/// `<prefix>/bin/strata` → `<prefix>`, links followed.
fn own_prefix() -> Option<PathBuf> {
    let program = fs_err::canonicalize(std::env::current_exe().ok()?).ok()?;
    Some(program.parent()?.parent()?.to_owned())
}

/// Models of the receipt, then those that all generations share.
fn models(root: &Path, receipt: &Receipt) -> Result<Vec<Model>, Diagnostic> {
    let of_receipt = receipt.models.iter().map(|model| Model {
        name: model.name.clone(),
        files: vec![(root.join(&model.path), model.size, model.sha256)],
    });
    let mut models: Vec<Model> = of_receipt.collect();
    let shared = root.parent().filter(|folder| folder.file_name().is_some_and(|name| name == "generations"));
    let Some(folder) = shared.and_then(Path::parent).map(|prefix| prefix.join("models")) else { return Ok(models) };
    let list = folder.join("models.json");
    if list.is_file() {
        let store = ModelStore::read(&list).map_err(|error| Diagnostic::of(&error))?;
        models.extend(store.models.into_iter().map(|model| Model {
            name: model.name,
            files: model.files.into_iter().map(|file| (folder.join(file.path), file.size, file.sha256)).collect(),
        }));
    }
    Ok(models)
}

/// Turns what the user wrote into a model file: an installed name first when it has no slash and
/// no such file is here, a path otherwise.
pub(crate) fn model_path(model: &str, prefix: Option<&Prefix>) -> Result<PathBuf, Diagnostic> {
    let path = PathBuf::from(model);
    if path.exists() {
        return Ok(path);
    }
    let installed = prefix.map_or(&[][..], |prefix| &prefix.models);
    let Some(found) = installed.iter().find(|entry| entry.name == model) else {
        return Err(not_found(format!("no file and no installed model is called `{model}`"), installed, prefix));
    };
    for (path, size, _) in &found.files {
        let bytes = fs_err::metadata(path).map(|metadata| metadata.len());
        if bytes.as_ref().is_ok_and(|bytes| bytes != size) {
            let message = format!("the installed model `{model}` is not the file that was installed");
            return Err(Diagnostic::new(BAD_INPUT, message)
                .fact("path", path.display())
                .fact("bytes when installed", size)
                .fact("bytes there", bytes.unwrap_or_default())
                .hint("install the model again, or give its path to use it as it is"));
        }
    }
    // A model without files is in no list that we write; whoever opens the empty path is told that it is none.
    Ok(found.files.first().map(|(path, ..)| path.clone()).unwrap_or_default())
}

/// The model to run when none is named: the only installed one.
pub(crate) fn default_model(prefix: Option<&Prefix>) -> Result<String, Diagnostic> {
    let installed = prefix.map_or(&[][..], |prefix| &prefix.models);
    match installed {
        [only] => Ok(only.name.clone()),
        [] => Err(not_found("no model is named and none is installed".to_owned(), installed, prefix)),
        _ => Err(not_found("several models are installed and none is named".to_owned(), installed, prefix)),
    }
}

fn not_found(message: String, installed: &[Model], prefix: Option<&Prefix>) -> Diagnostic {
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

#[cfg(test)]
mod tests {
    use super::*;
    use strata_manifest::{InstalledModel, StoredFile, StoredModel, Version};

    fn receipt(models: Vec<InstalledModel>) -> Receipt {
        Receipt {
            schema: Receipt::SCHEMA.to_owned(),
            version: Version::current(),
            files: Vec::new(),
            plugins: Vec::new(),
            models,
            install: None,
        }
    }

    fn stored(name: &str, files: &[(&str, u64)]) -> StoredModel {
        let file = |(path, size): &(&str, u64)| StoredFile {
            path: (*path).to_owned(),
            size: *size,
            sha256: Sha256Digest::of_bytes(b""),
            adopted: false,
        };
        StoredModel { name: name.to_owned(), source: "folder".to_owned(), files: files.iter().map(file).collect() }
    }

    #[test]
    fn a_tree_laid_out_from_a_build_names_its_models_in_the_receipt() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("m.gguf"), "1234").unwrap();
        let model = InstalledModel {
            name: "small".to_owned(),
            path: "m.gguf".to_owned(),
            size: 4,
            sha256: Sha256Digest::of_bytes(b"1234"),
        };
        receipt(vec![model]).write(&folder.path().join(RECEIPT)).unwrap();
        let prefix = Prefix::find(Some(folder.path())).unwrap().unwrap();
        assert!(model_path("small", Some(&prefix)).unwrap().ends_with("m.gguf"));
        assert_eq!(default_model(Some(&prefix)).unwrap(), "small");
    }

    #[test]
    fn generations_share_the_models_beside_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for generation in ["generations/1", "generations/2"] {
            fs_err::create_dir_all(path(generation)).unwrap();
            receipt(Vec::new()).write(&path(generation).join(RECEIPT)).unwrap();
        }
        std::os::unix::fs::symlink("generations/2", path("current")).unwrap();
        fs_err::create_dir_all(path("models")).unwrap();
        let outside = path("elsewhere.gguf");
        for (file, text) in [("models/a-1.gguf", "1"), ("models/a-2.gguf", "22"), ("elsewhere.gguf", "333")] {
            fs_err::write(path(file), text).unwrap();
        }
        let store = ModelStore {
            models: vec![
                stored("split", &[("a-1.gguf", 1), ("a-2.gguf", 2)]),
                stored("own", &[(outside.to_str().unwrap(), 3)]),
            ],
            ..ModelStore::empty()
        };
        store.write(&path("models/models.json")).unwrap();
        for asked in ["", "current", "generations/1"] {
            let prefix = Prefix::find(Some(&path(asked))).unwrap().unwrap();
            let name = prefix.root.file_name().unwrap().to_owned();
            assert_eq!(name.to_str(), Some(if asked == "generations/1" { "1" } else { "2" }));
            assert!(model_path("split", Some(&prefix)).unwrap().ends_with("models/a-1.gguf"));
            assert_eq!(model_path("own", Some(&prefix)).unwrap(), outside);
            assert!(default_model(Some(&prefix)).is_err());
        }
        // Any shard with another size is noticed before the model is opened.
        fs_err::write(path("models/a-2.gguf"), "2").unwrap();
        let prefix = Prefix::find(Some(folder.path())).unwrap();
        assert_eq!(model_path("split", prefix.as_ref()).unwrap_err().code, BAD_INPUT);
    }
}
