//! Models by what people type: a name of the catalog or the release, a source, or a file of their own.

use crate::cli::InstallArgs;
use crate::fetching::{self, Network};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::source::Opened;
use std::path::{Path, PathBuf};
use strata_diag::Diagnostic;
use strata_diag::catalogue::general::FILE_UNREADABLE;
use strata_diag::catalogue::installing::{DOWNLOAD_FOLDER as DOWNLOAD_FOLDER_CODE, MODEL_UNKNOWN};
use strata_fetch::Shard;
use strata_install::plan::WantedModel;
use strata_install::{InstallError, InstallRoot, ModelFile, Placing};
use strata_manifest::plan::DownloadFolder;
use strata_manifest::{
    BadPath, Catalog, CatalogFile, CatalogModel, Document, Lock, LockedFile, PackagePath, ReleaseModel, Sha256Digest,
};

/// Name of the list in a download folder.
pub(crate) const DOWNLOAD_FILE: &str = "download.json";

/// A model with everything that is known about where its bytes are.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) model: CatalogModel,
    pub(crate) reason: String,
    /// By file: where its bytes lie already.
    pub(crate) local: Vec<Option<PathBuf>>,
    /// By file: what is known of it beside size and digest.
    pub(crate) known: Vec<Known>,
    /// It is the user's own file, used where it is.
    pub(crate) adopted: bool,
}

/// What a fetch may know of a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    /// Digests of its pieces, from the index of the release.
    pub(crate) chunks: Vec<Sha256Digest>,
    /// What the hub resolved it to just now.
    pub(crate) pin: Option<LockedFile>,
}

/// Where models can come from.
#[derive(Debug)]
pub(crate) struct Shelf<'a> {
    pub(crate) catalog: Catalog,
    offered: Vec<ReleaseModel>,
    /// Address or folder that relative paths of the release are below.
    base: String,
    /// A download folder, and what its list says.
    downloaded: Option<(PathBuf, DownloadFolder)>,
    network: Network,
    progress: &'a Progress,
}

impl<'a> Shelf<'a> {
    /// With the folder that models go to, for its lock file.
    pub(crate) fn open(
        args: &InstallArgs,
        opened: &Opened,
        (models, progress): (&Path, &'a Progress),
    ) -> Outcome<Shelf<'a>> {
        let catalog = catalog(args.catalog.as_deref())?;
        let list = opened.folder.path().join(DOWNLOAD_FILE);
        let downloaded =
            if list.is_file() { Some((opened.folder.path().to_owned(), DownloadFolder::read(&list)?)) } else { None };
        let base = opened.base.clone().unwrap_or_else(|| format!("{}/", opened.folder.path().display()));
        let network = Network::new(args, Some(models));
        Ok(Shelf { catalog, offered: opened.release.models.clone(), base, downloaded, network, progress })
    }

    /// What lies in the download folder.
    pub(crate) fn downloaded_names(&self) -> Vec<String> {
        let list = self.downloaded.as_ref().map(|(_, list)| &list.models);
        list.into_iter().flatten().map(|model| model.name.clone()).collect()
    }

    /// Finds a model: what lies in the folder first, then the release, then the catalog, then what the
    /// text itself names.
    pub(crate) fn find(&self, text: &str) -> Outcome<Request> {
        let canonical = self.catalog.find(text).map_or(text, |model| &model.name);
        if let Some(request) = self.in_folder(canonical)? {
            return Ok(request);
        }
        if let Some(model) = self.offered.iter().find(|model| model.name == canonical) {
            return Ok(self.of_release(model));
        }
        if let Some(model) = self.catalog.find(text) {
            let local = vec![None; model.files.len()];
            return Ok(Request {
                model: model.clone(),
                reason: "named; from the catalog".to_owned(),
                known: vec![Known::default(); local.len()],
                local,
                adopted: false,
            });
        }
        if let Some(reference) = text.strip_prefix("hf:").filter(|_| !self.network.offline) {
            return self.of_hub(reference);
        }
        if text.starts_with("hf:")
            || text.starts_with("pip:")
            || text.starts_with("https://")
            || text.starts_with("http://")
        {
            return by_source(text);
        }
        let path = Path::new(text);
        if path.is_file() {
            return own_file(path);
        }
        Err(self.unknown(text).into())
    }

    fn unknown(&self, text: &str) -> Diagnostic {
        let near = self.catalog.near(text);
        let mut diagnostic = Diagnostic::new(MODEL_UNKNOWN, format!("no model is called `{text}`"));
        if !near.is_empty() {
            diagnostic = diagnostic.hint(format!("nearest names: {}", near.join(", ")));
        }
        diagnostic
            .hint("all names: `strata-setup list --models`")
            .hint("or give a source (`hf:owner/repo@revision/file.gguf`, `https://…`) or the path of a GGUF file")
    }

    fn in_folder(&self, name: &str) -> Outcome<Option<Request>> {
        let Some((folder, list)) = &self.downloaded else { return Ok(None) };
        let Some(found) = list.models.iter().find(|model| model.name == name) else { return Ok(None) };
        let known = self.catalog.find(name);
        let mut local = Vec::new();
        let mut files = Vec::new();
        for file in &found.files {
            let path: PackagePath = file.path.parse().map_err(|error: BadPath| {
                Diagnostic::new(DOWNLOAD_FOLDER_CODE, error.to_string())
                    .fact("path", folder.join(DOWNLOAD_FILE).display())
            })?;
            let place = path.below(folder);
            whole(&place, &path, file.size, name)?;
            local.push(Some(place));
            files.push(CatalogFile {
                name: path.file_name().to_owned(),
                sources: vec![found.source.clone()],
                size: Some(file.size),
                about_bytes: None,
                sha256: Some(file.sha256),
            });
        }
        let model = bare(name, found.source.clone(), files, known);
        let reason = format!("lies in {}", folder.display());
        let known = vec![Known::default(); local.len()];
        Ok(Some(Request { model, reason, local, known, adopted: false }))
    }

    /// A model of the hub: as the lock file has it, else as its repository lists it.
    fn of_hub(&self, reference: &str) -> Outcome<Request> {
        let lock = self.network.book.open()?;
        let pinned = if self.network.book.update { Vec::new() } else { in_lock(&lock, reference) };
        let files: Vec<(String, Option<u64>, Option<LockedFile>)> = if !pinned.is_empty() {
            pinned.into_iter().map(|pin| (pin.source.clone(), Some(pin.size), Some(pin))).collect()
        } else if self.network.book.locked {
            return Err(self.network.book.absent(&[format!("hf:{reference}")]).into());
        } else {
            let found = fetching::hub_model(reference, &self.network, self.progress)?;
            found.into_iter().map(|file| (file.source, Some(file.size), file.pin)).collect()
        };
        let mut request = named(files.iter().map(|(source, ..)| source.clone()).collect(), &format!("hf:{reference}"))?;
        for ((file, known), (_, size, pin)) in request.model.files.iter_mut().zip(&mut request.known).zip(files) {
            file.size = size;
            file.sha256 = pin.as_ref().map(|pin| pin.sha256);
            known.pin = pin;
        }
        Ok(request)
    }

    fn of_release(&self, found: &ReleaseModel) -> Request {
        let files = found.files.iter().map(|file| {
            let source = match (&file.path, &file.url) {
                (Some(path), _) => format!("{}{path}", self.base),
                (None, url) => url.clone().unwrap_or_default(),
            };
            CatalogFile {
                name: strata_install::plan::file_name(file),
                sources: vec![source],
                size: Some(file.size),
                about_bytes: None,
                sha256: Some(file.sha256),
            }
        });
        let known = self.catalog.find(&found.name);
        let model = bare(&found.name, "offered by the release".to_owned(), files.collect(), known);
        let beside = |file: &strata_manifest::ReleaseFile| {
            let path = file.path.as_ref()?.below(Path::new(&self.base));
            path.is_file().then_some(path)
        };
        let local = found.files.iter().map(beside).collect();
        let known = found.files.iter().map(|file| Known { chunks: file.chunks.clone(), pin: None }).collect();
        Request { model, reason: "named; offered by the release".to_owned(), local, known, adopted: false }
    }
}

/// Refuses a file of a download folder that is not there or was cut while it was copied.
fn whole(place: &Path, path: &PackagePath, size: u64, model: &str) -> Outcome<()> {
    let why = match fs_err::metadata(place) {
        Ok(metadata) if metadata.is_file() && metadata.len() == size => return Ok(()),
        Ok(metadata) => {
            format!("has {} bytes, and {size} are listed: it was not copied whole", metadata.len())
        }
        Err(_) => "is not in the folder".to_owned(),
    };
    Err(Diagnostic::new(DOWNLOAD_FOLDER_CODE, format!("`{path}` of model `{model}` {why}"))
        .hint("copy the folder again; where there is network, `strata-setup --download-only --to DIR` mends it")
        .hint("without a model: `--no-model`")
        .into())
}

/// The built-in catalog, or the one of a file.
pub(crate) fn catalog(path: Option<&Path>) -> Outcome<Catalog> {
    let Some(path) = path else { return Ok(Catalog::built_in()) };
    let text = fs_err::read_to_string(path).map_err(|error| {
        Diagnostic::new(FILE_UNREADABLE, format!("cannot read `{}`", path.display())).fact("because", error)
    })?;
    Ok(Catalog::parse(&text, path)?)
}

/// A model of which the catalog may know more.
fn bare(name: &str, title: String, files: Vec<CatalogFile>, known: Option<&CatalogModel>) -> CatalogModel {
    match known {
        Some(known) => CatalogModel { files, ..known.clone() },
        None => CatalogModel {
            name: name.to_owned(),
            aliases: Vec::new(),
            title,
            architecture: "unknown".to_owned(),
            licence: "see its source".to_owned(),
            context: 8192,
            kv_bytes_per_token: None,
            expert_bytes: None,
            paged_bytes: None,
            recommended: false,
            note: None,
            files,
        },
    }
}

/// A name for `strata run` out of a file name: `Qwen3-4B-Q4_K_M-00001-of-00002.gguf` is `qwen3-4b-q4_k_m`.
pub(crate) fn name_of_file(file: &str) -> String {
    let stem = file.strip_suffix(".gguf").unwrap_or(file);
    let stem = match shards(file).and_then(|_| stem.rsplit_once("-of-")).and_then(|(head, _)| head.rsplit_once('-')) {
        Some((name, _)) => name,
        None => stem,
    };
    let good = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c.to_ascii_lowercase() } else { '-' };
    let name: String = stem.chars().map(good).collect();
    let name = name.trim_start_matches(['.', '-']).chars().take(80).collect::<String>();
    if name.is_empty() { "model".to_owned() } else { name }
}

/// A model by its address; of a split set all shards are meant, whichever is named.
fn by_source(source: &str) -> Outcome<Request> {
    let plain = source.split(['?', '#']).next().unwrap_or(source);
    let (folder, file) = plain.rsplit_once('/').unwrap_or(("", plain));
    let sources: Vec<String> = match shards(file) {
        Some(names) => names.iter().map(|name| format!("{folder}/{name}")).collect(),
        None => vec![source.to_owned()],
    };
    named(sources, source)
}

/// What the lock file holds for a reference to the hub: the file, its whole set, or the one with these words in
/// its name; nothing when that is not all there.
fn in_lock(lock: &Lock, reference: &str) -> Vec<LockedFile> {
    let (repository, rest) = if let Some((repository, rest)) = reference.split_once('@') {
        (repository.to_owned(), rest.to_owned())
    } else {
        let at = reference.match_indices(['/', ':']).nth(1).map_or(reference.len(), |(at, _)| at);
        (reference[..at].to_owned(), format!("main{}", &reference[at..]))
    };
    let (revision, asked) = match rest.split_once(['/', ':']) {
        Some((revision, asked)) => (revision, Some(asked)),
        None => (rest.as_str(), None),
    };
    let head = format!("hf:{repository}@{revision}/");
    let held: Vec<&str> = lock.files.iter().filter_map(|file| file.source.strip_prefix(&head)).collect();
    let path = asked.filter(|asked| rest.contains(&format!("/{asked}")));
    let chosen = strata_fetch::choose(&held, path, asked).unwrap_or_default();
    let find = |path: &String| lock.files.iter().find(|file| file.source == format!("{head}{path}")).cloned();
    chosen.iter().filter_map(find).collect()
}

/// A model of files by their sources; `source` is what the user wrote.
fn named(sources: Vec<String>, source: &str) -> Outcome<Request> {
    let first = sources.first().cloned().unwrap_or_default();
    let file = first.split(['?', '#']).next().unwrap_or(&first).rsplit('/').next().unwrap_or_default().to_owned();
    let mut files = Vec::new();
    for source in sources {
        let last = source.split(['?', '#']).next().unwrap_or(&source).rsplit('/').next().unwrap_or_default();
        // A name from elsewhere becomes a path only when it is a plain one.
        let name: PackagePath = last.parse().map_err(|error: BadPath| {
            Diagnostic::new(MODEL_UNKNOWN, format!("the file of `{source}` cannot be stored under its name"))
                .fact("because", error)
                .hint("fetch it yourself and give its path: `--model ./NAME.gguf`")
        })?;
        files.push(CatalogFile {
            name: name.to_string(),
            sources: vec![source],
            size: None,
            about_bytes: None,
            sha256: None,
        });
    }
    let local = vec![None; files.len()];
    let known = vec![Known::default(); files.len()];
    let model = bare(&name_of_file(&file), source.to_owned(), files, None);
    Ok(Request { model, reason: "named by its source".to_owned(), local, known, adopted: false })
}

/// All names of a split set, for the name of any shard: `x-00002-of-00003.gguf`.
fn shards(file: &str) -> Option<Vec<String>> {
    let shard = Shard::parse(file).filter(|shard| (1..=999).contains(&shard.count))?;
    Some(shard.set())
}

/// A file of the user's own, with its further shards when it is the first of a set.
fn own_file(path: &Path) -> Outcome<Request> {
    let unreadable = |error: std::io::Error| Diagnostic::new(FILE_UNREADABLE, error.to_string());
    let path = fs_err::canonicalize(path).map_err(unreadable)?;
    if path.to_str().is_none() {
        let message = format!("`{}` is no UTF-8, and the list of models holds only such paths", path.display());
        return Err(Diagnostic::new(FILE_UNREADABLE, message)
            .hint("rename it, or link to it under another name")
            .into());
    }
    let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut paths = vec![path.clone()];
    if let Some(names) = shards(&file_name) {
        paths = names.into_iter().map(|name| path.with_file_name(name)).collect();
    }
    let mut files = Vec::new();
    for path in &paths {
        let size = fs_err::metadata(path).map_err(unreadable)?.len();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.push(CatalogFile {
            name,
            sources: vec![path.display().to_string()],
            size: Some(size),
            about_bytes: None,
            sha256: None,
        });
    }
    let model = bare(&name_of_file(&file_name), path.display().to_string(), files, None);
    let local: Vec<Option<PathBuf>> = paths.into_iter().map(Some).collect();
    let known = vec![Known::default(); local.len()];
    Ok(Request { model, reason: "your own file, used where it lies".to_owned(), local, known, adopted: true })
}

impl Request {
    /// Where each file will lie.
    pub(crate) fn places(&self, models_dir: &Path) -> Vec<PathBuf> {
        let place = |(file, local): (&CatalogFile, &Option<PathBuf>)| match local {
            Some(local) if self.adopted => local.clone(),
            _ => models_dir.join(&file.name),
        };
        self.model.files.iter().zip(&self.local).map(place).collect()
    }

    /// For the planner: what is there already counts when its size is right.
    pub(crate) fn wanted(&self, models_dir: &Path, root: &InstallRoot) -> Result<WantedModel, InstallError> {
        let store = root.model_store()?;
        let known = store.models.iter().find(|model| model.name == self.model.name);
        let places = self.places(models_dir).into_iter().zip(&self.model.files).map(|(place, file)| {
            let size = fs_err::metadata(&place).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
            let listed = known
                .into_iter()
                .flat_map(|model| &model.files)
                .find(|stored| root.models().join(&stored.path) == place);
            let expected = file.size.or(listed.map(|stored| stored.size));
            (place, size.is_some() && size == expected)
        });
        Ok(WantedModel { model: self.model.clone(), reason: self.reason.clone(), places: places.collect() })
    }

    /// Source in one line, for the list of models.
    pub(crate) fn source(&self) -> String {
        self.model.files.first().and_then(|file| file.sources.first()).cloned().unwrap_or_default()
    }

    /// For the installer: where each file's bytes are and shall be. `fetched` says by file what a
    /// download brought and checked.
    pub(crate) fn placing(&self, models_dir: &Path, fetched: &[Option<ModelFile>]) -> Placing {
        let files = self.places(models_dir).into_iter().zip(&self.model.files).zip(&self.local).zip(fetched);
        let files = files.map(|(((to, file), local), fetched)| match (fetched, local) {
            (Some(fetched), _) => fetched.clone(),
            (None, local) => ModelFile {
                from: local.clone().unwrap_or_else(|| to.clone()),
                to,
                expected: file.size.zip(file.sha256),
                checked: false,
                adopted: self.adopted,
            },
        });
        Placing { name: self.model.name.clone(), source: self.source(), files: files.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::{by_source, name_of_file};

    #[test]
    fn a_name_from_elsewhere_is_a_plain_name_or_refused() {
        for bad in [
            "https://x.example/a/..",
            "https://x.example/a\\..\\b.gguf",
            "hf:o/r@main/",
            "https://x.example/a%/m\u{0}.gguf",
        ] {
            let stop = by_source(bad).unwrap_err();
            assert_eq!(stop.0.code.id, "S0718", "{bad}");
        }
        let request = by_source("hf:o/r@main/Q4/m-00002-of-00003.gguf").unwrap();
        let names: Vec<&str> = request.model.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"]);
        assert_eq!(request.model.files[0].sources, ["hf:o/r@main/Q4/m-00001-of-00003.gguf"]);
        assert_eq!(request.model.name, "m");
    }

    #[test]
    fn names_come_from_file_names() {
        for (file, name) in [
            ("Qwen3-4B-Q4_K_M.gguf", "qwen3-4b-q4_k_m"),
            ("Big-00001-of-00004.gguf", "big"),
            ("a-12-of-34.gguf", "a-12-of-34"),
            ("two words (1).gguf", "two-words--1-"),
            (".gguf", "model"),
            ("..", "model"),
        ] {
            assert_eq!(name_of_file(file), name, "{file}");
            assert!(strata_manifest::catalog::is_model_name(&name_of_file(file)));
        }
    }
}
