//! One file from one source: what an earlier run left is taken up, the rest comes in parts where the server
//! gives parts and in one piece where it does not, and the file gets its name when it is the right one.

use crate::answer::{ContentRange, MAX_SIZE, content_range, validator};
use crate::client::{Clients, Lent, Line, Part, Route, Trouble, host};
use crate::journal::{Identity, Journal, NO_FOLLOW, Validator};
use crate::place::{self, FileLock};
use crate::source::Resolved;
use crate::{CancelFlag, FetchError, Fetched, Observer, Request, Settings, adopt};
use fs_err::os::unix::fs::OpenOptionsExt;
use reqwest::Response;
use reqwest::header::{ETAG, LAST_MODIFIED};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use strata_manifest::{LockedFile, LockedPieces, Sha256Digest};

/// How often a file is begun anew, or mended, because the server or the disk contradicts itself.
const MAX_RESTARTS: u32 = 5;
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Why an attempt ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Begin anew: what is there is of no use.
    Anew {
        why: String,
        whole: bool,
    },
    /// Go on: what was wrong has been taken out of the journal.
    Damaged {
        why: String,
    },
    Failed(FetchError),
}

impl From<FetchError> for End {
    fn from(error: FetchError) -> End {
        End::Failed(error)
    }
}

/// What an attempt brought.
#[derive(Debug)]
pub(crate) struct Brought {
    pub(crate) size: u64,
    pub(crate) sha256: Sha256Digest,
    /// CRC-32 of each chunk.
    pub(crate) sums: Vec<u32>,
}

/// One file from one source.
pub(crate) struct Job<'a> {
    pub(crate) clients: &'a Clients,
    pub(crate) settings: &'a Settings,
    pub(crate) request: &'a Request,
    pub(crate) resolved: &'a Resolved,
    pub(crate) route: Route,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) cancel: &'a CancelFlag,
    pub(crate) lock: &'a FileLock,
    /// Entity tag and date of change, as the server gives them.
    seen: Mutex<(Option<String>, Option<String>)>,
    began: Instant,
    /// What lies elsewhere is looked at once: what of it turned out wrong is not taken again.
    looked: AtomicBool,
    /// When something last came, in milliseconds since the beginning.
    came: AtomicU64,
}

/// Fetches the file; blocks.
pub(crate) fn fetch(
    (clients, settings): (&Clients, &Settings),
    request: &Request,
    resolved: &Resolved,
    lock: &FileLock,
    (observer, cancel): (&dyn Observer, &CancelFlag),
) -> Result<Fetched, FetchError> {
    let job = Job {
        clients,
        settings,
        request,
        resolved,
        route: Route::new(resolved)?,
        observer,
        cancel,
        lock,
        seen: Mutex::default(),
        looked: AtomicBool::new(false),
        began: Instant::now(),
        came: AtomicU64::new(0),
    };
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
            Err(End::Damaged { why }) => observer.note(&format!("{}: {why}", request.name)),
        }
    }
    Err(job.network("the server keeps contradicting itself".to_owned(), 0))
}

impl Job<'_> {
    pub(crate) fn clear(&self) {
        let _ = fs_err::remove_file(&self.lock.part);
        let _ = fs_err::remove_file(&self.lock.journal);
    }

    pub(crate) fn disk(&self, source: std::io::Error) -> FetchError {
        let kept = Journal::open(&self.lock.journal, &self.lock.part).map_or(0, |journal| journal.done_bytes());
        FetchError::Disk { path: self.request.to.clone(), source, kept }
    }

    pub(crate) fn host(&self) -> String {
        host(&self.resolved.url)
    }

    pub(crate) fn network(&self, why: String, kept: u64) -> FetchError {
        let seconds = self.idle().as_secs();
        FetchError::Network { name: self.request.name.clone(), host: self.host(), why, seconds, kept }
    }

    pub(crate) fn page(&self, host: String, what: String) -> End {
        End::Failed(FetchError::Page { name: self.request.name.clone(), host, what })
    }

    pub(crate) fn cancelled(&self) -> FetchError {
        FetchError::Cancelled { name: self.request.name.clone() }
    }

    fn idle(&self) -> Duration {
        self.began.elapsed().saturating_sub(Duration::from_millis(self.came.load(Ordering::Relaxed)))
    }

    /// Something came that counts as progress.
    pub(crate) fn came(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.came.fetch_max(now, Ordering::Relaxed);
    }

    /// The digest that a chunk must have, where the index says it.
    pub(crate) fn expected(&self, identity: &Identity, index: u64) -> Option<Sha256Digest> {
        let digests = &self.request.chunks;
        if digests.len() as u64 != identity.chunks() {
            return None;
        }
        digests.get(usize::try_from(index).ok()?).copied()
    }

    fn attempt(&self, whole: bool) -> Result<Fetched, End> {
        if whole {
            return self.whole();
        }
        let journal = self.left_by_earlier_runs();
        let journal = if self.looked.swap(true, Ordering::Relaxed) { journal } else { adopt::adopt(self, journal)? };
        let resumed = journal.as_ref().is_some_and(|journal| !journal.chunks.is_empty());
        let (journal, first) = match journal {
            Some(journal) => (journal, None),
            None => match self.first_part()? {
                First::Parts(journal, given) => (*journal, Some(given)),
                First::Whole(response, line) => return self.finish(&self.in_one_piece(&line, Some(response))?),
            },
        };
        let (brought, mut journal) = self.in_parts(journal, first)?;
        match self.finish(&brought) {
            Err(End::Failed(error @ FetchError::Mismatch { .. })) => Err(self.doubted(&mut journal, resumed, error)),
            result => result,
        }
    }

    fn whole(&self) -> Result<Fetched, End> {
        let line = self.clients.line()?;
        let brought = self.in_one_piece(&line, None)?;
        self.finish(&brought).inspect_err(|_| self.clear())
    }

    /// All chunks are there and they are not the file: what may be to blame is taken out.
    fn doubted(&self, journal: &mut Journal, resumed: bool, error: FetchError) -> End {
        let unproven: Vec<u64> =
            journal.chunks.iter().filter(|(_, held)| held.unproven).map(|(index, _)| *index).collect();
        let blamed = if unproven.is_empty() && resumed {
            adopt::broken(&self.lock.part, journal).unwrap_or_default()
        } else {
            unproven
        };
        if !blamed.is_empty() {
            for index in &blamed {
                if let Err(error) = journal.drop_chunk(*index) {
                    return self.disk(error).into();
                }
            }
            let why = format!("{} chunks that were there already are not the wanted file's", blamed.len());
            return End::Damaged { why: format!("{why}; they are fetched") };
        }
        if resumed {
            let why = "what an earlier run left and what came now are not the wanted file".to_owned();
            return End::Anew { why, whole: false };
        }
        self.clear();
        error.into()
    }

    /// A journal of this very file, of this source if nothing else says what its bytes are.
    fn left_by_earlier_runs(&self) -> Option<Journal> {
        let journal = Journal::open(&self.lock.journal, &self.lock.part)?;
        let (size, wanted) = (self.resolved.size, self.resolved.sha256);
        let identity = &journal.identity;
        let fits = size.is_none_or(|size| size == identity.size)
            && identity.chunk == self.settings.chunk
            && (identity.sha256 == wanted || identity.sha256.is_none());
        let told = journal.validator.as_ref().is_some_and(|validator| validator.source == self.resolved.source);
        if fits && (wanted.is_some() || told) {
            return Some(journal);
        }
        if !journal.chunks.is_empty() {
            let why = if fits { "neither digest nor validator tells whose it is" } else { "it is of another file" };
            self.observer.note(&format!("{}: what an earlier run left is of no use: {why}", self.request.name));
        }
        None
    }

    pub(crate) fn finish(&self, brought: &Brought) -> Result<Fetched, End> {
        let (size, sha256) = (brought.size, brought.sha256);
        let wanted = (self.resolved.size, self.resolved.sha256);
        place::check(self.request, &self.host(), wanted, (size, sha256))?;
        let to = &self.request.to;
        let disk = |source| FetchError::Disk { path: to.clone(), source, kept: size };
        let file = fs_err::File::open(&self.lock.part).map_err(disk)?;
        file.sync_all().map_err(disk)?;
        // Where locks lie, somebody else may have put another file in the place of the one that was checked.
        let mine = file.metadata().map_err(disk)?;
        let theirs = fs_err::symlink_metadata(&self.lock.part).map_err(disk)?;
        if !place::same(&mine, &theirs) || mine.len() != size {
            let why = "another run works on the same file".to_owned();
            return Err(End::Anew { why, whole: false });
        }
        place::usable(to)?;
        fs_err::rename(&self.lock.part, to).map_err(disk)?;
        // The name is durable too; a file system that cannot do that for folders says so, and that is all.
        let _ = fs_err::File::open(place::folder_of(to)).and_then(|folder| folder.sync_all());
        let _ = fs_err::remove_file(&self.lock.journal);
        let locked = self.locked(brought);
        Ok(Fetched { path: to.clone(), size, sha256, source: self.resolved.source.clone(), locked: Some(locked) })
    }

    fn locked(&self, brought: &Brought) -> LockedFile {
        let (etag, last_modified) = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let address = self.resolved.pinned.is_none();
        LockedFile {
            source: self.resolved.asked.clone(),
            name: self.request.to.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            resolved: self.resolved.pinned.clone(),
            size: brought.size,
            sha256: brought.sha256,
            etag: etag.clone().filter(|_| address),
            last_modified: last_modified.filter(|_| address && etag.is_none()),
            wheel: None,
            pieces: (brought.size > self.settings.chunk).then(|| LockedPieces::new(self.settings.chunk, &brought.sums)),
        }
    }

    /// Keeps what an answer says about the state of the file, for the lock file.
    fn see(&self, response: &Response) {
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = (text(ETAG), text(LAST_MODIFIED));
    }

    /// Asks again and again until an answer comes or the patience ends.
    pub(crate) fn ask(&self, line: &Line, part: Option<&Part>, kept: u64) -> Result<Response, End> {
        let mut pause = FIRST_PAUSE;
        loop {
            let asked = line.block_on(or_cancel(self.cancel, line.get(&self.route, part, &self.request.name)));
            match asked.ok_or_else(|| self.cancelled())? {
                Ok(response) => {
                    self.see(&response);
                    return Ok(response);
                }
                Err(Trouble::Final(error)) => return Err(error.into()),
                Err(Trouble::Again { why, pause: asked }) => self.wait(&why, asked, &mut pause, kept)?,
            }
        }
    }

    /// A growing pause with some chance in it, so that many clients do not come back at one moment.
    pub(crate) fn wait(&self, why: &str, asked: Option<Duration>, pause: &mut Duration, kept: u64) -> Result<(), End> {
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
    fn first_part(&self) -> Result<First<'_>, End> {
        let part = Part { first: 0, last: Some(self.settings.chunk - 1), validator: None };
        let line = self.clients.line()?;
        let response = self.ask(&line, Some(&part), 0)?;
        match response.status().as_u16() {
            206 => {
                self.refuse_pages(&response)?;
                let fits = |range: &ContentRange| range.first == 0 && range.last < self.settings.chunk;
                let Some(range) = content_range(&response).filter(fits) else {
                    let why = "the server sent another part than was asked for".to_owned();
                    return Err(End::Anew { why, whole: true });
                };
                self.right_size(Some(range.total))?;
                let mut journal = self.begin(range.total)?;
                if let Some(text) = validator(&response) {
                    let validator = Validator { source: self.resolved.source.clone(), text };
                    journal.record_validator(validator).map_err(|error| self.disk(error))?;
                }
                Ok(First::Parts(Box::new(journal), Given { response, line, end: range.last + 1 }))
            }
            200 => Ok(First::Whole(response, line)),
            // Nothing has this range, not even the first byte.
            _ => Err(End::Anew { why: "the server gives no part of it".to_owned(), whole: true }),
        }
    }

    /// An empty part and its journal, for a file for which there is room.
    pub(crate) fn begin(&self, size: u64) -> Result<Journal, FetchError> {
        place::room(place::folder_of(&self.request.to), size)?;
        let disk = |source| FetchError::Disk { path: self.lock.part.clone(), source, kept: 0 };
        let identity = Identity { size, chunk: self.settings.chunk, sha256: self.resolved.sha256 };
        self.new_part().map_err(disk)?;
        Journal::create(&self.lock.journal, identity).map_err(disk)
    }

    /// A part file that nobody else has open.
    pub(crate) fn new_part(&self) -> std::io::Result<fs_err::File> {
        let _ = fs_err::remove_file(&self.lock.part);
        let mut options = fs_err::OpenOptions::new();
        options.custom_flags(NO_FOLLOW);
        options.create_new(true).read(true).write(true).open(&self.lock.part)
    }

    /// Bytes that a file of unknown length may have.
    pub(crate) fn most(&self, length: Option<u64>) -> u64 {
        length.or(self.resolved.size).unwrap_or(MAX_SIZE)
    }
}

/// An answer, the line that it comes over, and where what was promised ends.
pub(crate) struct Given<'a> {
    pub(crate) response: Response,
    pub(crate) line: Lent<'a>,
    pub(crate) end: u64,
}

enum First<'a> {
    Parts(Box<Journal>, Given<'a>),
    Whole(Response, Lent<'a>),
}

/// Waits for something, but not past a wish to stop.
pub(crate) async fn or_cancel<T>(cancel: &CancelFlag, work: impl Future<Output = T>) -> Option<T> {
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
