//! One file from one source: chunks over several connections where the server gives parts, in one piece
//! where it does not; every answer is checked before a byte of it counts.

use crate::client::{Client, Part, Trouble, host};
use crate::journal::{Identity, Journal, paths};
use crate::source::Resolved;
use crate::{CancelFlag, FetchError, Fetched, Observer, Request, Settings};
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, ETAG};
use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use strata_manifest::Sha256Digest;
use tokio::runtime::Handle;

/// No file of ours is larger.
const MAX_SIZE: u64 = 1 << 44;
/// How often a file is begun anew because the server contradicts itself.
const MAX_RESTARTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// The file at its place, when it is the right one. Without a digest nothing can be said about it.
pub(crate) fn there(request: &Request, observer: &dyn Observer) -> Result<Option<Fetched>, FetchError> {
    let (Some(size), Some(sha256)) = (request.size, request.sha256) else { return Ok(None) };
    if !fs_err::metadata(&request.to).is_ok_and(|metadata| metadata.is_file() && metadata.len() == size) {
        return Ok(None);
    }
    let unreadable = |source| FetchError::Unreadable { path: request.to.clone(), source };
    let (got, _) = Sha256Digest::of_reader(fs_err::File::open(&request.to).map_err(unreadable)?).map_err(unreadable)?;
    if got != sha256 {
        observer.note(&format!("`{}` is there and has other bytes; it is fetched again", request.to.display()));
        return Ok(None);
    }
    Ok(Some(Fetched { path: request.to.clone(), size, sha256, source: "there already".to_owned() }))
}

/// Keeps two runs from fetching one file twice. Correctness does not hang on it: a lock that cannot be
/// taken because the file system has none is no failure.
pub(crate) fn lock(request: &Request, observer: &dyn Observer, cancel: &CancelFlag) -> Result<FileLock, FetchError> {
    let disk = |path: &Path, source| FetchError::Disk { path: path.to_owned(), source };
    if let Some(parent) = request.to.parent() {
        fs_err::create_dir_all(parent).map_err(|error| disk(parent, error))?;
    }
    let (part, _) = paths(&request.to);
    let path = part.with_extension("part.lock");
    let mut waited = false;
    loop {
        let file = fs_err::File::create(&path).map_err(|error| disk(&path, error))?;
        if flock(file.file(), FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK) {
            if cancel.is_set() {
                return Err(FetchError::Cancelled { name: request.name.clone() });
            }
            if !std::mem::replace(&mut waited, true) {
                observer.note(&format!("{}: another run is fetching it; this one waits", request.name));
            }
            std::thread::sleep(Duration::from_millis(100));
            continue;
        }
        // The run before may have removed the file that this lock is on.
        let same = fs_err::metadata(&path).ok().zip(file.metadata().ok()).is_some_and(|(a, b)| {
            use std::os::unix::fs::MetadataExt;
            (a.dev(), a.ino()) == (b.dev(), b.ino())
        });
        if same {
            return Ok(FileLock { path, _file: file });
        }
    }
}

/// Held while a file is fetched; its own file goes with it.
#[derive(Debug)]
pub(crate) struct FileLock {
    path: PathBuf,
    _file: fs_err::File,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        let _ = fs_err::remove_file(&self.path);
    }
}

/// Compares what came with what is wanted.
pub(crate) fn check(
    request: &Request,
    host: &str,
    size: Option<u64>,
    sha256: Option<Sha256Digest>,
    got_size: u64,
    got: Sha256Digest,
) -> Result<(), FetchError> {
    if size.is_none_or(|size| size == got_size) && sha256.is_none_or(|sha256| sha256 == got) {
        return Ok(());
    }
    let words = |size: Option<u64>, sha256: Option<Sha256Digest>| {
        let size = size.map_or("any size".to_owned(), |size| format!("{size} bytes"));
        sha256.map_or(size.clone(), |sha256| format!("{size}, SHA-256 {sha256}"))
    };
    Err(FetchError::Mismatch {
        name: request.name.clone(),
        host: host.to_owned(),
        expected: words(size, sha256),
        got: words(Some(got_size), Some(got)),
    })
}

/// Why an attempt ended.
enum End {
    /// Begin anew: what is there is of no use.
    Anew {
        why: String,
        whole: bool,
    },
    Failed(FetchError),
}

impl From<FetchError> for End {
    fn from(error: FetchError) -> End {
        End::Failed(error)
    }
}

/// One file from one source.
struct Job<'a> {
    client: &'a Client,
    settings: &'a Settings,
    handle: &'a Handle,
    request: &'a Request,
    resolved: &'a Resolved,
    observer: &'a dyn Observer,
    cancel: &'a CancelFlag,
    part: PathBuf,
    journal: PathBuf,
    /// When something last came.
    progress: Mutex<Instant>,
}

/// Fetches the file; blocks.
pub(crate) fn fetch(
    (client, settings, handle): (&Client, &Settings, &Handle),
    request: &Request,
    resolved: &Resolved,
    observer: &dyn Observer,
    cancel: &CancelFlag,
) -> Result<Fetched, FetchError> {
    let (part, journal) = paths(&request.to);
    let progress = Mutex::new(Instant::now());
    let job = Job { client, settings, handle, request, resolved, observer, cancel, part, journal, progress };
    let mut whole = false;
    for _ in 0..MAX_RESTARTS {
        match job.attempt(whole) {
            Ok(fetched) => return Ok(fetched),
            Err(End::Failed(error)) => return Err(error),
            Err(End::Anew { why, whole: next }) => {
                observer.note(&format!("{}: {why}; it is begun anew", request.name));
                job.clear();
                whole |= next;
            }
        }
    }
    let why = "the server keeps contradicting itself".to_owned();
    Err(job.network(why, 0))
}

impl Job<'_> {
    fn clear(&self) {
        let _ = fs_err::remove_file(&self.part);
        let _ = fs_err::remove_file(&self.journal);
    }

    fn disk(&self, source: std::io::Error) -> FetchError {
        FetchError::Disk { path: self.part.clone(), source }
    }

    fn network(&self, why: String, kept: u64) -> FetchError {
        FetchError::Network {
            name: self.request.name.clone(),
            host: host(&self.resolved.url),
            why,
            seconds: self.idle().as_secs(),
            kept,
        }
    }

    fn page(&self, what: String) -> End {
        End::Failed(FetchError::Page { name: self.request.name.clone(), host: host(&self.resolved.url), what })
    }

    fn cancelled(&self) -> FetchError {
        FetchError::Cancelled { name: self.request.name.clone() }
    }

    fn idle(&self) -> Duration {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    fn came(&self) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn attempt(&self, whole: bool) -> Result<Fetched, End> {
        let known = self.resolved.size;
        let journal = Journal::open(&self.journal, &self.part)
            .filter(|journal| known.is_none_or(|size| size == journal.identity.size))
            .filter(|journal| journal.identity.chunk == self.settings.chunk);
        let resumed = journal.as_ref().is_some_and(|journal| !journal.chunks.is_empty());
        if whole {
            return self.in_one_piece(None);
        }
        let (journal, first) = match journal {
            Some(journal) => (journal, None),
            None => match self.first_part()? {
                First::Parts(journal, response) => (journal, Some(response)),
                First::Whole(response) => return self.in_one_piece(Some(response)),
            },
        };
        let size = journal.identity.size;
        let sha256 = self.in_parts(journal, first)?;
        match self.finish(size, sha256) {
            Err(End::Failed(FetchError::Mismatch { .. })) if resumed => Err(End::Anew {
                why: "what an earlier run left and what came now are not the wanted file".to_owned(),
                whole: false,
            }),
            result => result,
        }
    }

    fn finish(&self, size: u64, sha256: Sha256Digest) -> Result<Fetched, End> {
        let from = host(&self.resolved.url);
        if let Err(error) = check(self.request, &from, self.resolved.size, self.resolved.sha256, size, sha256) {
            self.clear();
            return Err(error.into());
        }
        let file = fs_err::File::open(&self.part).map_err(|error| self.disk(error))?;
        file.sync_all().map_err(|error| self.disk(error))?;
        let to = &self.request.to;
        fs_err::rename(&self.part, to).map_err(|source| FetchError::Disk { path: to.clone(), source })?;
        let _ = fs_err::remove_file(&self.journal);
        Ok(Fetched { path: to.clone(), size, sha256, source: self.resolved.source.clone() })
    }

    /// Asks again and again until an answer comes or the patience ends.
    fn ask(&self, part: Option<&Part>, kept: u64) -> Result<Response, End> {
        let mut pause = FIRST_PAUSE;
        loop {
            let asked =
                self.handle.block_on(or_cancel(self.cancel, self.client.get(self.resolved, part, &self.request.name)));
            match asked.ok_or_else(|| self.cancelled())? {
                Ok(response) => return Ok(response),
                Err(Trouble::Final(error)) => return Err(error.into()),
                Err(Trouble::Again { why, pause: asked }) => self.wait(&why, asked, &mut pause, kept)?,
            }
        }
    }

    /// A growing pause with some chance in it, so that many clients do not come back at one moment.
    fn wait(&self, why: &str, asked: Option<Duration>, pause: &mut Duration, kept: u64) -> Result<(), End> {
        let idle = self.idle();
        if idle >= self.settings.patience {
            return Err(self.network(why.to_owned(), kept).into());
        }
        let spread = pause.mul_f64(0.5 + f64::from(random_byte()) / 255.0);
        let rest = asked.unwrap_or(spread).max(spread).min(self.settings.patience.saturating_sub(idle));
        self.observer.note(&format!("{}: {why}; next try in {:.1} s", self.request.name, rest.as_secs_f64()));
        let until = Instant::now() + rest;
        while Instant::now() < until {
            if self.cancel.is_set() {
                return Err(self.cancelled().into());
            }
            std::thread::sleep(Duration::from_millis(50).min(until.saturating_duration_since(Instant::now())));
        }
        *pause = (*pause * 2).min(self.settings.longest_pause);
        Ok(())
    }

    /// The first chunk's answer says whether the server gives parts, and what the file is.
    fn first_part(&self) -> Result<First, End> {
        let part = Part { first: 0, last: Some(self.settings.chunk - 1), validator: None };
        let response = self.ask(Some(&part), 0)?;
        match response.status().as_u16() {
            206 => {
                let Some(range) = content_range(&response).filter(|range| range.first == 0) else {
                    return Err(End::Anew {
                        why: "the server sent another part than was asked for".to_owned(),
                        whole: true,
                    });
                };
                self.refuse_pages(&response)?;
                self.right_size(Some(range.total))?;
                let identity =
                    Identity { size: range.total, validator: validator(&response), chunk: self.settings.chunk };
                let journal = Journal::create(&self.journal, identity).map_err(|error| self.disk(error))?;
                fs_err::File::create(&self.part).map_err(|error| self.disk(error))?;
                Ok(First::Parts(journal, response))
            }
            200 => Ok(First::Whole(response)),
            // Nothing has this range, not even the first byte.
            _ => Err(End::Anew { why: "the server gives no part of it".to_owned(), whole: true }),
        }
    }

    fn right_size(&self, size: Option<u64>) -> Result<(), End> {
        let (Some(size), wanted) = (size, self.resolved.size) else { return Ok(()) };
        if size > MAX_SIZE || wanted.is_some_and(|wanted| wanted != size) {
            let expected = wanted.map_or(format!("at most {MAX_SIZE} bytes"), |wanted| format!("{wanted} bytes"));
            let name = self.request.name.clone();
            let got = format!("{size} bytes");
            return Err(End::Failed(FetchError::Mismatch { name, host: host(&self.resolved.url), expected, got }));
        }
        Ok(())
    }

    /// A login page, an error text or an encoded body is no file.
    fn refuse_pages(&self, response: &Response) -> Result<(), End> {
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let encoding = header(CONTENT_ENCODING);
        if !encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity") {
            return Err(self.page(format!("a body encoded as {encoding}, which was not asked for,")));
        }
        let kind = header(CONTENT_TYPE).to_ascii_lowercase();
        if kind.starts_with("text/html") && !self.is_called("html") {
            return Err(self.page("a web page".to_owned()));
        }
        if kind.starts_with("application/json") && !self.is_called("json") {
            return Err(self.page("a JSON text".to_owned()));
        }
        Ok(())
    }

    fn is_called(&self, suffix: &str) -> bool {
        self.request.to.extension().is_some_and(|end| end.eq_ignore_ascii_case(suffix))
    }

    /// The same by the first bytes, for servers that lie about what they send.
    fn refuse_page_bytes(&self, bytes: &[u8]) -> Result<(), End> {
        let head: Vec<u8> = bytes.iter().copied().skip_while(u8::is_ascii_whitespace).take(15).collect();
        let head = head.to_ascii_lowercase();
        if (head.starts_with(b"<!doctype html") || head.starts_with(b"<html")) && !self.is_called("html") {
            return Err(self.page("a web page".to_owned()));
        }
        Ok(())
    }

    /// Servers that give no parts: the whole file in one go, and again from its start after a break.
    fn in_one_piece(&self, first: Option<Response>) -> Result<Fetched, End> {
        let mut given = first;
        let mut best = 0;
        let mut pause = FIRST_PAUSE;
        loop {
            let response = match given.take() {
                Some(response) => response,
                None => self.ask(None, 0)?,
            };
            if response.status().as_u16() != 200 {
                return Err(self.page(format!("status {} for the whole file", response.status().as_u16())));
            }
            self.refuse_pages(&response)?;
            let length = response.content_length();
            self.right_size(length)?;
            self.observer.file(&self.request.name, 0, length.or(self.resolved.size));
            match self.stream_whole(response, length, &mut best)? {
                Streamed::All(0, _) if self.resolved.size != Some(0) => {
                    self.clear();
                    return Err(self.page("nothing at all".to_owned()));
                }
                Streamed::All(size, sha256) => return self.finish(size, sha256),
                Streamed::Broke(why) => self.wait(&why, None, &mut pause, 0)?,
            }
        }
    }

    fn stream_whole(&self, mut response: Response, length: Option<u64>, best: &mut u64) -> Result<Streamed, End> {
        let file = fs_err::File::create(&self.part).map_err(|error| self.disk(error))?;
        let mut hasher = Sha256::new();
        let mut done = 0_u64;
        loop {
            let came =
                self.handle.block_on(or_cancel(self.cancel, response.chunk())).ok_or_else(|| self.cancelled())?;
            match came {
                Ok(Some(bytes)) => {
                    if done == 0 {
                        self.refuse_page_bytes(&bytes)?;
                    }
                    let most = length.or(self.resolved.size).unwrap_or(MAX_SIZE);
                    if done + bytes.len() as u64 > most {
                        return Ok(Streamed::Broke(format!("more came than the {most} bytes that it has")));
                    }
                    file.file().write_all_at(&bytes, done).map_err(|error| self.disk(error))?;
                    hasher.update(&bytes);
                    done += bytes.len() as u64;
                    if done > *best {
                        *best = done;
                        self.came();
                    }
                    self.observer.advance(&self.request.name, done);
                }
                Ok(None) if length.or(self.resolved.size).is_none_or(|length| length == done) => {
                    return Ok(Streamed::All(done, Sha256Digest::from_array(hasher.finalize().into())));
                }
                Ok(None) => return Ok(Streamed::Broke(format!("it ended after {done} bytes"))),
                Err(error) => return Ok(Streamed::Broke(crate::client::chain(&error))),
            }
        }
    }

    /// All missing chunks, over several connections; a thread behind them hashes what is there in order.
    fn in_parts(&self, journal: Journal, first: Option<Response>) -> Result<Sha256Digest, End> {
        let identity = journal.identity.clone();
        let size = identity.size;
        let mut queue: VecDeque<u64> =
            (0..journal.identity.chunks()).filter(|index| !journal.chunks.contains(index)).collect();
        let done = journal.done_bytes();
        self.observer.file(&self.request.name, done, Some(size));
        let mut options = fs_err::OpenOptions::new();
        let file = options.read(true).write(true).open(&self.part).map_err(|error| self.disk(error))?;
        if first.is_some() {
            queue.pop_front();
        }
        let workers = self.settings.connections.max(1).min(queue.len() + usize::from(first.is_some()));
        let shared = Shared {
            state: Mutex::new(State { journal, queue, done, heard: false, end: None }),
            changed: Condvar::new(),
        };
        let mut first = first;
        let hashed = std::thread::scope(|scope| {
            for _ in 0..workers {
                let given = first.take();
                let (shared, file) = (&shared, &file);
                scope.spawn(move || {
                    if let Err(end) = self.work(shared, file, given) {
                        let mut state = shared.lock();
                        state.end.get_or_insert(end);
                        drop(state);
                        shared.changed.notify_all();
                    }
                });
            }
            self.hash(&shared, &file, &identity)
        });
        match (hashed, shared.state.into_inner().unwrap_or_else(PoisonError::into_inner).end) {
            (Some(sha256), None) => Ok(sha256),
            (_, Some(end)) => Err(end),
            (None, None) => Err(self.network("the work ended early".to_owned(), 0).into()),
        }
    }

    fn hash(&self, shared: &Shared, file: &fs_err::File, identity: &Identity) -> Option<Sha256Digest> {
        let mut hasher = Sha256::new();
        let mut buffer = vec![0_u8; 1 << 20];
        // What an earlier run left is read while the rest comes, not before: nobody waits for it.
        let mut state = shared.lock();
        while !state.heard && (state.journal.chunks.len() as u64) < identity.chunks() && state.end.is_none() {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        for index in 0..identity.chunks() {
            let mut state = shared.lock();
            while !state.journal.chunks.contains(&index) {
                if state.end.is_some() {
                    return None;
                }
                state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            let (mut at, end) = (index * identity.chunk, index * identity.chunk + identity.chunk_len(index));
            while at < end {
                let want = usize::try_from((end - at).min(buffer.len() as u64)).unwrap_or(buffer.len());
                if let Err(error) = file.file().read_exact_at(&mut buffer[..want], at) {
                    shared.lock().end.get_or_insert(End::Failed(self.disk(error)));
                    return None;
                }
                hasher.update(&buffer[..want]);
                at += want as u64;
            }
        }
        Some(Sha256Digest::from_array(hasher.finalize().into()))
    }

    /// One connection: takes chunk after chunk until none is left or somebody failed.
    fn work(&self, shared: &Shared, file: &fs_err::File, given: Option<Response>) -> Result<(), End> {
        let mut given = given.map(|response| (0, response));
        loop {
            let (index, response) = if let Some((index, response)) = given.take() {
                (index, Some(response))
            } else {
                let mut state = shared.lock();
                if state.end.is_some() {
                    return Ok(());
                }
                let Some(index) = state.queue.pop_front() else { return Ok(()) };
                (index, None)
            };
            self.chunk(shared, file, index, response)?;
            let mut state = shared.lock();
            state.journal.record(index).map_err(|error| self.disk(error))?;
            drop(state);
            shared.changed.notify_all();
        }
    }

    fn chunk(&self, shared: &Shared, file: &fs_err::File, index: u64, given: Option<Response>) -> Result<(), End> {
        let identity = shared.lock().journal.identity.clone();
        let (start, length) = (index * identity.chunk, identity.chunk_len(index));
        let mut have = 0;
        let mut given = given;
        let mut pause = FIRST_PAUSE;
        while have < length {
            let part =
                Part { first: start + have, last: Some(start + length - 1), validator: identity.validator.clone() };
            let response = if let Some(response) = given.take() {
                response
            } else {
                let kept = shared.lock().journal.done_bytes();
                let response = self.ask(Some(&part), kept)?;
                self.right_part(&response, &part, &identity)?;
                response
            };
            let why = self.stream_part(shared, file, response, (start, length), &mut have)?;
            if let Some(why) = why.filter(|_| have < length) {
                let kept = shared.lock().journal.done_bytes();
                self.wait(&why, None, &mut pause, kept)?;
            }
        }
        Ok(())
    }

    /// An answer to a request for a part counts only when it is that part of that file.
    fn right_part(&self, response: &Response, part: &Part, identity: &Identity) -> Result<(), End> {
        let anew = |why: &str, whole| Err(End::Anew { why: why.to_owned(), whole });
        let theirs = validator(response);
        let changed = identity.validator.is_some() && theirs.is_some() && theirs != identity.validator;
        match response.status().as_u16() {
            206 => {
                let Some(range) = content_range(response) else {
                    return anew("the server does not say which part it sends", true);
                };
                if changed || range.total != identity.size {
                    return anew("the file was replaced on the server", false);
                }
                if range.first != part.first || part.last.is_some_and(|last| range.last > last) {
                    return anew("the server sends other parts than were asked for", true);
                }
                self.refuse_pages(response)
            }
            200 if changed || identity.validator.is_some() && theirs.is_none() => {
                anew("the file was replaced on the server", false)
            }
            200 => {
                self.refuse_pages(response)?;
                anew("the server gives no parts any more", true)
            }
            _ => anew("the file on the server has another length now", false),
        }
    }

    /// Bytes into their place; says why it ended before the chunk did.
    fn stream_part(
        &self,
        shared: &Shared,
        file: &fs_err::File,
        mut response: Response,
        (start, length): (u64, u64),
        have: &mut u64,
    ) -> Result<Option<String>, End> {
        while *have < length {
            let came =
                self.handle.block_on(or_cancel(self.cancel, response.chunk())).ok_or_else(|| self.cancelled())?;
            match came {
                Ok(Some(bytes)) => {
                    if start + *have == 0 {
                        self.refuse_page_bytes(&bytes)?;
                    }
                    if *have + bytes.len() as u64 > length {
                        return Err(End::Anew { why: "more came than was asked for".to_owned(), whole: true });
                    }
                    file.file().write_all_at(&bytes, start + *have).map_err(|error| self.disk(error))?;
                    *have += bytes.len() as u64;
                    self.came();
                    let mut state = shared.lock();
                    state.done += bytes.len() as u64;
                    if !std::mem::replace(&mut state.heard, true) {
                        shared.changed.notify_all();
                    }
                    let done = state.done;
                    let ended = state.end.is_some();
                    drop(state);
                    self.observer.advance(&self.request.name, done);
                    if ended {
                        return Err(End::Failed(self.cancelled()));
                    }
                }
                Ok(None) => return Ok(Some(format!("a part ended after {have} of {length} bytes"))),
                Err(error) => return Ok(Some(crate::client::chain(&error))),
            }
        }
        Ok(None)
    }
}

enum First {
    Parts(Journal, Response),
    Whole(Response),
}

enum Streamed {
    All(u64, Sha256Digest),
    Broke(String),
}

/// What the connections of one file share.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    journal: Journal,
    queue: VecDeque<u64>,
    /// Bytes that are there, of chunks under way too.
    done: u64,
    /// Something came over the network.
    heard: bool,
    /// Why the work ends early.
    end: Option<End>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `bytes 0-99/1000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ContentRange {
    first: u64,
    last: u64,
    total: u64,
}

fn content_range(response: &Response) -> Option<ContentRange> {
    parse_range(response.headers().get(CONTENT_RANGE)?.to_str().ok()?)
}

fn parse_range(text: &str) -> Option<ContentRange> {
    let (range, total) = text.trim().strip_prefix("bytes")?.trim_start().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let range = ContentRange { first: number(first)?, last: number(last)?, total: number(total)? };
    (range.first <= range.last && range.last < range.total && range.total <= MAX_SIZE).then_some(range)
}

/// A strong validator; a weak one does not tell bytes apart.
fn validator(response: &Response) -> Option<String> {
    let tag = response.headers().get(ETAG)?.to_str().ok()?.trim();
    (tag.starts_with('"') && tag.len() > 2).then(|| tag.to_owned())
}

/// Waits for something, but not past a wish to stop.
async fn or_cancel<T>(cancel: &CancelFlag, work: impl Future<Output = T>) -> Option<T> {
    tokio::pin!(work);
    loop {
        // Asked first: bytes that keep coming would win every race against the clock below.
        if cancel.is_set() {
            return None;
        }
        tokio::select! {
            result = &mut work => return Some(result),
            () = tokio::time::sleep(Duration::from_millis(100)) => {}
        }
    }
}

fn random_byte() -> u8 {
    let mut byte = [127_u8];
    let _ = getrandom::fill(&mut byte);
    byte[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_or_refused() {
        assert_eq!(parse_range("bytes 0-99/1000"), Some(ContentRange { first: 0, last: 99, total: 1000 }));
        for bad in [
            "",
            "bytes */1000",
            "bytes 5-4/10",
            "bytes 0-10/10",
            "bytes 0-9/*",
            "items 0-9/10",
            "bytes 0-9/99999999999999999999",
        ] {
            assert_eq!(parse_range(bad), None, "{bad}");
        }
    }
}
