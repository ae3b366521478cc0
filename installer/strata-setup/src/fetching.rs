//! The door to the download engine: from what is wanted to checked files. Files that lie in a folder
//! are copied here; only what has an address goes to the network.

use crate::cli::InstallArgs;
use crate::lockbook::Book;
use crate::outcome::Outcome;
use crate::progress::Progress;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use strata_diag::Diagnostic;
use strata_diag::catalogue::general::{FILE_UNREADABLE, FILE_UNWRITABLE, INTERRUPTED};
use strata_diag::catalogue::installing::MODEL_FILE;
use strata_fetch::{CancelFlag, FetchError, Fetcher, Request, Settings};
use strata_install::Observer;
use strata_manifest::{LOCK_FILE, Lock, LockedFile, Sha256Digest};

/// How the network is used.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) ca_file: Option<PathBuf>,
    /// No socket may be opened.
    pub(crate) offline: bool,
    /// Where what was resolved is written down, and whether nothing else is fetched.
    pub(crate) book: Book,
    /// Files that may hold bytes of what is fetched.
    adopt: Vec<PathBuf>,
    audit: bool,
}

impl Network {
    /// `models` is the folder that models go to.
    pub(crate) fn new(args: &InstallArgs, models: Option<&Path>) -> Network {
        let path = args.lock.clone().or_else(|| models.map(|folder| folder.join(LOCK_FILE)));
        Network {
            ca_file: args.ca_file.clone(),
            offline: args.offline,
            book: Book { path, locked: args.locked, update: args.update },
            adopt: args.adopt.clone(),
            audit: args.audit,
        }
    }
}

/// One file to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// For people.
    pub(crate) name: String,
    /// In order of preference: paths, `https:`, `hf:`, `pip:`.
    pub(crate) sources: Vec<String>,
    pub(crate) size: Option<u64>,
    pub(crate) about_bytes: u64,
    pub(crate) sha256: Option<Sha256Digest>,
    pub(crate) to: PathBuf,
    /// Digests of its 8 MiB pieces, where the index of the release has them.
    pub(crate) chunks: Vec<Sha256Digest>,
    /// It is a file of a model, and what its source is resolved to is written into the lock file.
    pub(crate) in_lock: bool,
    /// What it was resolved to just now.
    pub(crate) pin: Option<LockedFile>,
    /// It lies there damaged: only its broken chunks are fetched.
    pub(crate) mend: bool,
}

/// One file that is there and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
    pub(crate) sha256: Sha256Digest,
}

/// Brings every file to its place, checked; what is there already and right is left as it is.
pub(crate) fn fetch(wanted: &[Wanted], network: &Network, progress: &Progress) -> Outcome<Vec<Got>> {
    let mut got: Vec<Option<Got>> = Vec::new();
    let mut remote = Vec::new();
    for (index, file) in wanted.iter().enumerate() {
        let found = match there(file, progress)? {
            Some(found) => Some(found),
            None => match file.sources.iter().map(Path::new).find(|path| path.is_file()) {
                Some(path) => Some(copy(path, file, progress)?),
                None => None,
            },
        };
        if found.is_none() {
            remote.push((index, file.clone()));
        }
        got.push(found);
    }
    if let (true, Some((_, first))) = (network.offline, remote.first()) {
        return Err(absent_offline(first).into());
    }
    for ((index, _), fetched) in remote.iter().zip(download(&remote, network, progress)?) {
        got[*index] = Some(fetched);
    }
    Ok(got.into_iter().flatten().collect())
}

fn absent_offline(file: &Wanted) -> Diagnostic {
    Diagnostic::new(
        strata_diag::catalogue::installing::ARCHIVE_ABSENT,
        format!("`{}` is not at hand, and `--offline` opens no socket", file.name),
    )
    .fact("sources", file.sources.join(", "))
    .hint("on a machine with network: `strata-setup --download-only --to DIR` fetches what is missing")
}

/// The file at its place, when it is the right one. Without a digest nothing can be said about it.
fn there(file: &Wanted, progress: &Progress) -> Outcome<Option<Got>> {
    let (Some(size), Some(sha256)) = (file.size, file.sha256) else { return Ok(None) };
    if !fs_err::metadata(&file.to).is_ok_and(|metadata| metadata.is_file() && metadata.len() == size) {
        return Ok(None);
    }
    let (got_size, got) = digest(&file.to, &file.name, progress)?;
    if (got_size, got) == (size, sha256) {
        return Ok(Some(Got { path: file.to.clone(), size, sha256 }));
    }
    progress.trouble(&format!("`{}` is there and has other bytes; it is fetched again", file.to.display()));
    Ok(None)
}

/// Digest of a file, with progress.
pub(crate) fn digest(path: &Path, name: &str, progress: &Progress) -> Outcome<(u64, Sha256Digest)> {
    use std::io::Read;
    let unreadable = |error: std::io::Error| {
        Diagnostic::new(FILE_UNREADABLE, format!("cannot read `{}`", path.display())).fact("because", error)
    };
    let mut file = fs_err::File::open(path).map_err(unreadable)?;
    let total = file.metadata().map_err(unreadable)?.len();
    progress.file(name, 0, Some(total));
    let mut reader = Counted { inner: &mut file, done: 0, each: &mut |done| progress.advance(name, done) };
    let (sha256, size) = Sha256Digest::of_reader(reader.by_ref()).map_err(unreadable)?;
    progress.file_done(name, size);
    Ok((size, sha256))
}

/// Copies a file of a folder; only the right bytes get the name.
fn copy(from: &Path, file: &Wanted, progress: &Progress) -> Outcome<Got> {
    use std::io::Write;
    let unreadable = |error: std::io::Error| {
        Diagnostic::new(FILE_UNREADABLE, format!("cannot read `{}`", from.display())).fact("because", error)
    };
    let unwritable = |error: std::io::Error| {
        Diagnostic::new(FILE_UNWRITABLE, format!("cannot write `{}`", file.to.display())).fact("because", error)
    };
    if let Some(parent) = file.to.parent() {
        fs_err::create_dir_all(parent).map_err(unwritable)?;
    }
    let beside = file.to.with_file_name(format!(".{}.new-{}", file_name(&file.to), std::process::id()));
    let result = (|| -> Outcome<Got> {
        let mut source = fs_err::File::open(from).map_err(unreadable)?;
        let total = source.metadata().map_err(unreadable)?.len();
        progress.file(&file.name, 0, Some(total));
        let mut target = fs_err::File::create(&beside).map_err(unwritable)?;
        let mut counted = Counted { inner: &mut source, done: 0, each: &mut |done| progress.advance(&file.name, done) };
        let mut tee = Tee { from: &mut counted, to: &mut target, failed: None };
        let read = Sha256Digest::of_reader(&mut tee);
        if let Some(error) = tee.failed.take() {
            return Err(unwritable(error).into());
        }
        let (sha256, size) = read.map_err(unreadable)?;
        if progress.cancelled() {
            return Err(Diagnostic::new(INTERRUPTED, "stopped by the user; what was fetched is kept").into());
        }
        target.flush().and_then(|()| target.sync_all()).map_err(unwritable)?;
        compare(file, from, size, sha256)?;
        fs_err::rename(&beside, &file.to).map_err(unwritable)?;
        progress.file_done(&file.name, size);
        Ok(Got { path: file.to.clone(), size, sha256 })
    })();
    if result.is_err() {
        let _ = fs_err::remove_file(&beside);
    }
    result
}

fn compare(file: &Wanted, from: &Path, size: u64, sha256: Sha256Digest) -> Outcome<()> {
    let right =
        file.size.is_none_or(|expected| expected == size) && file.sha256.is_none_or(|expected| expected == sha256);
    if right {
        return Ok(());
    }
    let expected = |size: Option<u64>, sha256: Option<Sha256Digest>| {
        let size = size.map_or("any size".to_owned(), |size| format!("{size} bytes"));
        sha256.map_or(size.clone(), |sha256| format!("{size}, SHA-256 {sha256}"))
    };
    Err(Diagnostic::new(MODEL_FILE, format!("`{}` is not the file that is wanted as `{}`", from.display(), file.name))
        .fact("expected", expected(file.size, file.sha256))
        .fact("got", expected(Some(size), Some(sha256)))
        .into())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A reader that says how far it is.
struct Counted<'a> {
    inner: &'a mut dyn std::io::Read,
    done: u64,
    each: &'a mut dyn FnMut(u64),
}

impl std::io::Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.done += count as u64;
        (self.each)(self.done);
        Ok(count)
    }
}

/// A reader that writes what it reads; a failed write ends it and is kept apart from a failed read.
struct Tee<'a> {
    from: &'a mut dyn std::io::Read,
    to: &'a mut dyn std::io::Write,
    failed: Option<std::io::Error>,
}

impl std::io::Read for Tee<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if crate::interrupt::asked() {
            return Ok(0);
        }
        let count = self.from.read(buffer)?;
        if let Err(error) = self.to.write_all(&buffer[..count]) {
            self.failed = Some(error);
            return Err(std::io::Error::other("the copy could not be written"));
        }
        Ok(count)
    }
}

/// Joins parts into one file, which then has its digest checked.
pub(crate) fn join(parts: &[PathBuf], file: &Wanted, progress: &Progress) -> Outcome<Got> {
    let unwritable = |error: std::io::Error| {
        Diagnostic::new(FILE_UNWRITABLE, format!("cannot write `{}`", file.to.display())).fact("because", error)
    };
    let beside = file.to.with_file_name(format!(".{}.new-{}", file_name(&file.to), std::process::id()));
    let mut target = fs_err::File::create(&beside).map_err(unwritable)?;
    for part in parts {
        let mut source = fs_err::File::open(part).map_err(unwritable)?;
        std::io::copy(&mut source, &mut target).map_err(unwritable)?;
    }
    target.sync_all().map_err(unwritable)?;
    let (size, sha256) = digest(&beside, &file.name, progress)?;
    if let Err(stop) = compare(file, &beside, size, sha256) {
        let _ = fs_err::remove_file(&beside);
        return Err(stop);
    }
    fs_err::rename(&beside, &file.to).map_err(unwritable)?;
    Ok(Got { path: file.to.clone(), size, sha256 })
}

/// What has an address goes through the download engine, which is started only now: an installation without
/// network opens no socket.
fn download(remote: &[(usize, Wanted)], network: &Network, progress: &Progress) -> Outcome<Vec<Got>> {
    if remote.is_empty() {
        return Ok(Vec::new());
    }
    let mut lock = network.book.open()?;
    let requests: Vec<Request> =
        remote.iter().map(|(_, file)| request(file, network, &lock, remote.len())).collect::<Outcome<_>>()?;
    let fetcher = fetcher(network)?;
    let total = remote.iter().map(|(_, file)| file.size.unwrap_or(file.about_bytes)).sum();
    progress.downloads(0, total);
    let result = fetcher.fetch(&requests, &Heard(progress), cancel_flag());
    progress.downloads_over();
    let result = result?;
    let mut changed = false;
    for ((_, wanted), fetched) in remote.iter().zip(&result) {
        if let Some(locked) = fetched.locked.clone().filter(|_| wanted.in_lock) {
            changed |= lock.put(locked);
        }
    }
    if changed {
        network.book.write(&lock)?;
    }
    let got = result.into_iter().map(|file| Got { path: file.path, size: file.size, sha256: file.sha256 });
    Ok(got.collect())
}

fn fetcher(network: &Network) -> Outcome<Fetcher> {
    let settings = Settings { ca_file: network.ca_file.clone(), ..Settings::from_environment() };
    Ok(Fetcher::new(settings)?)
}

fn request(file: &Wanted, network: &Network, lock: &Lock, of: usize) -> Outcome<Request> {
    let name = file_name(&file.to);
    let locked = file.sources.iter().find_map(|source| lock.find(&strata_fetch::shown(source), &name));
    let locked = locked.filter(|_| file.in_lock && !network.book.update).cloned();
    if network.book.locked && file.in_lock && locked.is_none() && file.sha256.is_none() {
        return Err(network.book.absent(&file.sources).into());
    }
    Ok(Request {
        name: file.name.clone(),
        sources: file.sources.clone(),
        size: file.size,
        sha256: file.sha256,
        to: file.to.clone(),
        authorization: None,
        chunks: file.chunks.clone(),
        pin: locked.or_else(|| file.pin.clone()),
        adopt: candidates(&network.adopt, file, &name, of == 1),
        mend: file.mend,
        audit: network.audit,
    })
}

/// Files that may hold bytes of a file: by its name, by its digest (as the hub's cache names them), or the only
/// file that is meant.
fn candidates(paths: &[PathBuf], file: &Wanted, name: &str, only: bool) -> Vec<PathBuf> {
    let digest = file.sha256.or(file.pin.as_ref().map(|pin| pin.sha256)).map(|sha256| sha256.to_string());
    let fits = |path: &Path| {
        let own = file_name(path);
        own.starts_with(name) || digest.as_ref().is_some_and(|digest| own.starts_with(digest.as_str()))
    };
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            let entries = fs_err::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
            found.extend(entries.filter(|path| path.is_file() && fits(path)));
        } else if fits(path) || (only && file.in_lock) || !file.chunks.is_empty() {
            found.push(path.clone());
        }
    }
    found
}

/// Set by the first Ctrl-C.
fn cancel_flag() -> &'static CancelFlag {
    static FLAG: OnceLock<CancelFlag> = OnceLock::new();
    FLAG.get_or_init(|| {
        let flag = CancelFlag::default();
        let on_press = flag.clone();
        crate::interrupt::on_first(move || on_press.cancel());
        if crate::interrupt::asked() {
            flag.cancel();
        }
        flag
    })
}

/// The engine's events as progress.
struct Heard<'a>(&'a Progress);

impl strata_fetch::Observer for Heard<'_> {
    fn file(&self, name: &str, done: u64, total: Option<u64>) {
        self.0.file(name, done, total);
    }

    fn advance(&self, name: &str, done: u64) {
        self.0.advance(name, done);
    }

    fn file_done(&self, name: &str, size: u64) {
        self.0.file_done(name, size);
    }

    fn note(&self, text: &str) {
        self.0.trouble(text);
    }
}

/// Like [`fetch`], but a file that the server does not have is no failure.
pub(crate) fn fetch_if_there(wanted: &Wanted, network: &Network, progress: &Progress) -> Outcome<Option<Got>> {
    if network.offline {
        return Err(absent_offline(wanted).into());
    }
    let request = request(wanted, network, &Lock::default(), 1)?;
    match fetcher(network)?.fetch(&[request], &Heard(progress), cancel_flag()) {
        Ok(mut got) => Ok(got.pop().map(|file| Got { path: file.path, size: file.size, sha256: file.sha256 })),
        Err(FetchError::Status { status: 403 | 404 | 410, .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The files of a model of the hub.
pub(crate) fn hub_model(
    reference: &str,
    network: &Network,
    progress: &Progress,
) -> Outcome<Vec<strata_fetch::HubFile>> {
    Ok(fetcher(network)?.hub(reference, &Heard(progress), cancel_flag())?)
}

/// Reads a file whole, and says which of its pieces are not what is known of them.
pub(crate) fn audit(path: &Path, locked: Option<&LockedFile>) -> Result<strata_fetch::Audit, FetchError> {
    strata_fetch::audit(path, strata_fetch::CHUNK, &[], locked, cancel_flag())
}

/// Address of the model hub.
pub(crate) fn hub() -> String {
    let named = std::env::var("HF_ENDPOINT").ok().filter(|value| !value.is_empty());
    named.unwrap_or_else(|| strata_fetch::HUB.to_owned())
}
