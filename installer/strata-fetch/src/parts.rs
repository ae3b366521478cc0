//! All missing chunks, over several connections. Each takes a run of chunks in one request and records every
//! chunk as it is complete; one that has nothing left takes half of what the slowest still has before it. Behind
//! them one thread takes the chunks into the digest of the whole in order and one makes the file durable
//! (`behind.rs`).

use crate::answer::validator;
use crate::behind::{keep_durable, make_durable};
use crate::client::{Lent, Line, Part, chain, host};
use crate::job::{Brought, End, FIRST_PAUSE, Given, Job};
use crate::journal::{Identity, Journal, NO_FOLLOW, Validator};
use fs_err::os::unix::fs::OpenOptionsExt;
use reqwest::Response;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use strata_manifest::Sha256Digest;

/// Longest run of chunks in one request. Longer ones save round trips and leave more for the digest to read back.
const LONGEST_RUN: u64 = 16;
/// Bytes that count as progress, and between two reports of it.
const STEP: u64 = 64 << 10;
/// A connection slower than so many bytes a second is opened anew.
const SLOWEST: u64 = 200;

/// Checksum of a chunk as it passes by, and its digest where that is known beforehand.
pub(crate) struct Summing {
    crc: crc32fast::Hasher,
    sha256: Option<(Sha256, Sha256Digest)>,
}

/// A chunk's digest that is not the one of the index.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) expected: Sha256Digest,
    pub(crate) got: Sha256Digest,
}

impl Summing {
    pub(crate) fn new(expected: Option<Sha256Digest>) -> Summing {
        Summing { crc: crc32fast::Hasher::new(), sha256: expected.map(|expected| (Sha256::new(), expected)) }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
        if let Some((sha256, _)) = &mut self.sha256 {
            sha256.update(bytes);
        }
    }

    pub(crate) fn finish(self) -> (u32, Option<Wrong>) {
        let wrong = self.sha256.and_then(|(sha256, expected)| {
            let got = Sha256Digest::from_array(sha256.finalize().into());
            (got != expected).then_some(Wrong { expected, got })
        });
        (self.crc.finalize(), wrong)
    }
}

/// What the connections of one file share.
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) changed: Condvar,
    pub(crate) identity: Identity,
    /// Bytes that are there, of chunks under way too.
    done: AtomicU64,
    /// Something came over the network.
    pub(crate) heard: AtomicBool,
    /// Every chunk that an earlier run left in doubt has been compared with its line.
    pub(crate) sure: AtomicBool,
    /// Nobody needs to go on.
    pub(crate) ended: AtomicBool,
}

pub(crate) struct State {
    pub(crate) journal: Journal,
    /// Runs that nobody has taken yet.
    todo: VecDeque<Range<u64>>,
    /// By connection: what it has taken; the first of it is under way.
    claims: Vec<Range<u64>>,
    /// Chunks that were recorded since the file was last made durable.
    pub(crate) unsynced: u64,
    /// Connections at work.
    working: usize,
    /// Why the work ends early.
    end: Option<End>,
}

impl Shared {
    fn new(journal: Journal, connections: usize) -> Shared {
        let identity = journal.identity.clone();
        let mut todo: VecDeque<Range<u64>> = VecDeque::new();
        for index in (0..identity.chunks()).filter(|index| !journal.chunks.contains_key(index)) {
            match todo.back_mut() {
                Some(run) if run.end == index => run.end += 1,
                _ => todo.push_back(index..index + 1),
            }
        }
        let done = AtomicU64::new(journal.done_bytes());
        let claims = vec![0..0; connections];
        let unsynced = journal.chunks.values().filter(|held| held.doubtful).count() as u64;
        Shared {
            state: Mutex::new(State { journal, todo, claims, unsynced, working: connections, end: None }),
            changed: Condvar::new(),
            identity,
            done,
            heard: AtomicBool::new(false),
            sure: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn end(&self, end: End) {
        self.lock().end.get_or_insert(end);
        self.ended.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// The next chunk for a connection: of what it has taken, of what nobody has, of what another has.
    fn next(&self, worker: usize) -> Option<u64> {
        let mut state = self.lock();
        if state.claims[worker].is_empty() {
            let left: u64 = state.todo.iter().map(|run| run.end - run.start).sum();
            // Runs get shorter towards the end, so that no connection is left alone with a long one.
            let length = (left / (2 * state.claims.len() as u64)).clamp(1, LONGEST_RUN);
            let taken = if let Some(run) = state.todo.front_mut() {
                let taken = run.start..run.end.min(run.start + length);
                run.start = taken.end;
                if run.is_empty() {
                    state.todo.pop_front();
                }
                taken
            } else {
                let longest = state.claims.iter_mut().max_by_key(|claim| claim.end - claim.start)?;
                let length = longest.end - longest.start;
                if length < 2 {
                    return None;
                }
                let taken = longest.end - length / 2..longest.end;
                longest.end = taken.start;
                taken
            };
            state.claims[worker] = taken;
        }
        Some(state.claims[worker].start)
    }

    /// Where the run of a connection ends now: another may have taken some of it.
    fn claim_end(&self, worker: usize) -> u64 {
        self.lock().claims[worker].end
    }

    fn validator(&self, source: &str) -> Option<String> {
        let state = self.lock();
        let validator = state.journal.validator.as_ref().filter(|validator| validator.source == source);
        validator.map(|validator| validator.text.clone())
    }

    fn kept(&self) -> u64 {
        self.lock().journal.done_bytes()
    }
}

/// How far a connection is in the chunk that is under way.
struct Cursor {
    index: u64,
    have: u64,
    summing: Summing,
}

/// Speed of one answer, looked at now and then.
pub(crate) struct Pace {
    since: Instant,
    bytes: u64,
    /// Bytes since progress was last reported.
    step: u64,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace { since: Instant::now(), bytes: 0, step: 0 }
    }

    pub(crate) fn count(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.step += bytes;
    }

    /// Why an answer is not waited for any longer, when it is too slow over a while of this length.
    pub(crate) fn too_slow(&mut self, window: Duration) -> Option<String> {
        let seconds = self.since.elapsed().as_secs_f64();
        if self.since.elapsed() < window {
            return None;
        }
        let bytes = std::mem::take(&mut self.bytes);
        self.since = Instant::now();
        ((bytes as f64) < seconds * SLOWEST as f64).then(|| format!("only {bytes} bytes came in {seconds:.0} s"))
    }
}

impl Job<'_> {
    /// Brings what is missing; the whole's digest when all is there.
    pub(crate) fn in_parts(&self, journal: Journal, first: Option<Given<'_>>) -> Result<(Brought, Journal), End> {
        let mut options = fs_err::OpenOptions::new();
        options.custom_flags(NO_FOLLOW);
        let file = options.read(true).write(true).open(&self.lock.part).map_err(|error| self.disk(error))?;
        let missing = journal.identity.chunks() - journal.chunks.len() as u64;
        let workers = (self.settings.connections.max(1) as u64).min(missing);
        let shared = Shared::new(journal, usize::try_from(workers).unwrap_or(1));
        self.observer.file(&self.request.name, shared.done.load(Ordering::Relaxed), Some(shared.identity.size));
        if first.is_some() {
            // The answer that is there already begins with the first byte, and is the first connection's.
            shared.next(0);
        }
        let mut first = first;
        let sha256 = std::thread::scope(|scope| {
            let (shared, file) = (&shared, &file);
            for worker in 0..usize::try_from(workers).unwrap_or(1) {
                let given = first.take();
                scope.spawn(move || {
                    if let Err(end) = self.work(shared, file, worker, given) {
                        shared.end(end);
                    }
                    shared.lock().working -= 1;
                    shared.changed.notify_all();
                });
            }
            scope.spawn(move || keep_durable(shared, file));
            let sha256 = self.hash(shared, file);
            // The durable one sleeps until something changes.
            shared.ended.store(true, Ordering::Relaxed);
            shared.changed.notify_all();
            sha256
        });
        let size = shared.identity.size;
        let state = shared.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        match (sha256, state.end) {
            (Some(sha256), None) => {
                let sums = state.journal.chunks.values().map(|held| held.crc).collect();
                Ok((Brought { size, sha256, sums }, state.journal))
            }
            (_, end) => {
                // A person stopped it, or the network did: what is there stays, whatever happens to the machine.
                if shared.sure.into_inner() {
                    make_durable(state.journal, &file, state.unsynced);
                }
                Err(end.unwrap_or_else(|| self.network("the work ended early".to_owned(), 0).into()))
            }
        }
    }

    /// One connection: takes run after run until nothing is left or somebody failed.
    fn work(&self, shared: &Shared, file: &fs_err::File, worker: usize, given: Option<Given<'_>>) -> Result<(), End> {
        let mut given = given.map(|given| (given.response, given.line, given.end));
        let mut line: Option<Lent<'_>> = None;
        let mut cursor: Option<Cursor> = None;
        let mut pause = FIRST_PAUSE;
        loop {
            if shared.ended.load(Ordering::Relaxed) {
                return Ok(());
            }
            let mut at = match cursor.take() {
                Some(at) => at,
                None => match shared.next(worker) {
                    Some(index) => self.cursor(shared, index),
                    None => return Ok(()),
                },
            };
            let (response, end) = if let Some((response, with, end)) = given.take() {
                line = Some(with);
                (response, end)
            } else {
                let line = match &mut line {
                    Some(line) => &*line,
                    None => &*line.insert(self.clients.line()?),
                };
                self.ask_for(shared, worker, line, &at)?
            };
            let Some(line) = &line else { continue };
            let before = (at.index, at.have);
            let poured = line.block_on(self.pour(shared, file, worker, response, end, &mut at))?;
            if (at.index, at.have) != before {
                pause = FIRST_PAUSE;
            }
            match poured {
                Poured::Over => {}
                Poured::Short => cursor = Some(at),
                Poured::Broke(why) => {
                    self.wait(&why, None, &mut pause, shared.kept())?;
                    cursor = Some(at);
                }
            }
        }
    }

    fn cursor(&self, shared: &Shared, index: u64) -> Cursor {
        Cursor { index, have: 0, summing: Summing::new(self.expected(&shared.identity, index)) }
    }

    /// Asks for what is left of a run from a place on; says where the answer ends.
    fn ask_for(&self, shared: &Shared, worker: usize, line: &Line, at: &Cursor) -> Result<(Response, u64), End> {
        let identity = &shared.identity;
        let end = identity.start(shared.claim_end(worker)).min(identity.size);
        let known = shared.validator(&self.resolved.source);
        let first = identity.start(at.index) + at.have;
        let part = Part { first, last: Some(end - 1), validator: known.clone() };
        let response = self.ask(line, Some(&part), shared.kept())?;
        let end = self.right_part(&response, &part, identity, known.as_deref())?;
        if let (None, Some(text)) = (&known, validator(&response)) {
            let mut state = shared.lock();
            let source = &self.resolved.source;
            let other = state.journal.validator.as_ref().filter(|validator| validator.source == *source);
            match other {
                Some(other) if other.text != text => {
                    let why = "the file was replaced on the server".to_owned();
                    return Err(End::Anew { why, whole: false });
                }
                Some(_) => {}
                None => {
                    let validator = Validator { source: source.clone(), text };
                    state.journal.record_validator(validator).map_err(|error| self.disk(error))?;
                }
            }
        }
        Ok((response, end))
    }

    /// Bytes into their places, over as many chunks as the run has.
    async fn pour(
        &self,
        shared: &Shared,
        file: &fs_err::File,
        worker: usize,
        mut response: Response,
        end: u64,
        at: &mut Cursor,
    ) -> Result<Poured, End> {
        let identity = &shared.identity;
        let from = host(response.url());
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        let mut pace = Pace::new();
        loop {
            let offset = identity.start(at.index) + at.have;
            let came = self.next_bytes(shared, &mut response, &mut tick).await?;
            let bytes = match came {
                Ok(Some(bytes)) => bytes,
                Ok(None) if offset >= end => return Ok(Poured::Short),
                Ok(None) => return Ok(Poured::Broke(format!("a part ended {} bytes early", end - offset))),
                Err(error) => return Ok(Poured::Broke(chain(&error))),
            };
            if offset == 0 {
                self.refuse_page_bytes(&from, &bytes)?;
            }
            if offset + bytes.len() as u64 > end {
                return Err(End::Anew { why: "more came than was asked for".to_owned(), whole: true });
            }
            if !shared.heard.swap(true, Ordering::Relaxed) {
                shared.changed.notify_all();
            }
            file.file().write_all_at(&bytes, offset).map_err(|error| self.disk(error))?;
            self.count(shared, &mut pace, bytes.len() as u64);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let room = usize::try_from(identity.chunk_len(at.index) - at.have).unwrap_or(usize::MAX);
                let (now, later) = rest.split_at(rest.len().min(room));
                at.summing.update(now);
                at.have += now.len() as u64;
                rest = later;
                if at.have == identity.chunk_len(at.index) && !self.chunk_done(shared, worker, at)? {
                    return Ok(Poured::Over);
                }
            }
            if let Some(why) = pace.too_slow(2 * self.settings.stall) {
                return Ok(Poured::Broke(why));
            }
        }
    }

    async fn next_bytes(
        &self,
        shared: &Shared,
        response: &mut Response,
        tick: &mut tokio::time::Interval,
    ) -> Result<reqwest::Result<Option<bytes::Bytes>>, End> {
        loop {
            // Asked first: bytes that keep coming would win every race against the clock below.
            if self.cancel.is_set() || shared.ended.load(Ordering::Relaxed) {
                return Err(self.cancelled().into());
            }
            tokio::select! {
                biased;
                came = response.chunk() => return Ok(came),
                _ = tick.tick() => {}
            }
        }
    }

    fn count(&self, shared: &Shared, pace: &mut Pace, bytes: u64) {
        let done = shared.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        pace.count(bytes);
        if pace.step >= STEP {
            pace.step = 0;
            self.came();
            self.observer.advance(&self.request.name, done.min(shared.identity.size));
        }
    }

    /// Records a chunk that is complete; whether the same answer goes on with the next one.
    fn chunk_done(&self, shared: &Shared, worker: usize, at: &mut Cursor) -> Result<bool, End> {
        let next = self.cursor(shared, at.index + 1);
        let Cursor { index, summing, .. } = std::mem::replace(at, next);
        let (crc, wrong) = summing.finish();
        if let Some(wrong) = wrong {
            return Err(self.poisoned(&shared.identity, index, &wrong).into());
        }
        let mut state = shared.lock();
        state.journal.record(index, crc).map_err(|error| self.disk(error))?;
        state.unsynced += 1;
        state.claims[worker].start = index + 1;
        let goes_on = !state.claims[worker].is_empty();
        drop(state);
        self.came();
        self.observer.advance(&self.request.name, shared.done.load(Ordering::Relaxed).min(shared.identity.size));
        shared.changed.notify_all();
        Ok(goes_on)
    }
}

enum Poured {
    /// The run is done.
    Over,
    /// The answer ended where it said it would, before the run did.
    Short,
    Broke(String),
}

impl State {
    /// Nothing more will come.
    pub(crate) fn idle(&self) -> bool {
        self.working == 0
    }
}
