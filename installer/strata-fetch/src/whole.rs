//! Servers that give no parts: the whole file in one go, and again from its start after a break.

use crate::answer::validator;
use crate::client::{Line, chain, host};
use crate::job::{Brought, End, FIRST_PAUSE, Job, or_cancel};
use crate::journal::{Identity, Journal, Validator};
use crate::parts::{Pace, Summing};
use crate::running::Running;
use crate::{FetchError, place};
use reqwest::Response;
use std::os::unix::fs::FileExt;

enum Streamed {
    All(Brought),
    Broke(String),
}

impl Job<'_> {
    pub(crate) fn in_one_piece(&self, line: &Line, first: Option<Response>) -> Result<Brought, End> {
        let mut given = first;
        let mut best = 0;
        let mut pause = FIRST_PAUSE;
        loop {
            let response = match given.take() {
                Some(response) => response,
                None => self.ask(line, None, 0)?,
            };
            let from = host(response.url());
            if response.status().as_u16() != 200 {
                return Err(self.page(from, format!("status {} for the whole file", response.status().as_u16())));
            }
            self.refuse_pages(&response)?;
            let length = response.content_length();
            self.right_size(length)?;
            let folder = place::folder_of(&self.request.to);
            place::room(folder, length.or(self.resolved.size).unwrap_or(0))?;
            self.observer.file(&self.request.name, 0, length.or(self.resolved.size));
            let theirs = validator(&response);
            match self.stream_whole(line, response, length, &mut best)? {
                Streamed::All(brought) if brought.size == 0 && self.resolved.size != Some(0) => {
                    self.clear();
                    return Err(self.page(from, "nothing at all".to_owned()));
                }
                Streamed::All(brought) => {
                    self.keep(&brought, theirs).map_err(|error| self.disk(error))?;
                    return Ok(brought);
                }
                Streamed::Broke(why) => self.wait(&why, None, &mut pause, 0)?,
            }
        }
    }

    /// All is there: a run that ends before it has its name is to fetch none of it again.
    fn keep(&self, brought: &Brought, theirs: Option<String>) -> std::io::Result<()> {
        let (size, chunk, sha256) = (brought.size, self.settings.chunk, self.resolved.sha256);
        let mut journal = Journal::create(&self.lock.journal, Identity { size, chunk, sha256 })?;
        if let Some(text) = theirs {
            journal.record_validator(Validator { source: self.resolved.source.clone(), text })?;
        }
        for (index, crc) in (0..).zip(&brought.sums) {
            journal.record(index, *crc)?;
        }
        Ok(())
    }

    fn stream_whole(
        &self,
        line: &Line,
        mut response: Response,
        length: Option<u64>,
        best: &mut u64,
    ) -> Result<Streamed, End> {
        let file = self.new_part().map_err(|error| self.disk(error))?;
        let size = length.or(self.resolved.size);
        let identity = Identity { size: self.most(length), chunk: self.settings.chunk, sha256: self.resolved.sha256 };
        let from = host(response.url());
        let (mut running, mut sums, mut done) = (Running::default(), Vec::new(), 0_u64);
        let mut summing = Summing::new(self.expected(&identity, 0));
        let mut pace = Pace::new();
        loop {
            let came = line.block_on(or_cancel(self.cancel, response.chunk())).ok_or_else(|| self.cancelled())?;
            let bytes = match came {
                Ok(Some(bytes)) => bytes,
                Ok(None) if size.is_none_or(|size| size == done) => {
                    if !done.is_multiple_of(identity.chunk) {
                        sums.push(summing.finish().0);
                    }
                    let sha256 = running.finish();
                    return Ok(Streamed::All(Brought { size: done, sha256, sums }));
                }
                Ok(None) => return Ok(Streamed::Broke(format!("it ended after {done} bytes"))),
                Err(error) => return Ok(Streamed::Broke(chain(&error))),
            };
            if done == 0 {
                self.refuse_page_bytes(&from, &bytes)?;
            }
            if done + bytes.len() as u64 > identity.size {
                return Ok(Streamed::Broke(format!("more came than the {} bytes that it has", identity.size)));
            }
            file.file().write_all_at(&bytes, done).map_err(|error| self.disk(error))?;
            running.update(&bytes);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (index, within) = (done / identity.chunk, done % identity.chunk);
                let room = usize::try_from(identity.chunk - within).unwrap_or(usize::MAX);
                let (now, later) = rest.split_at(rest.len().min(room));
                summing.update(now);
                done += now.len() as u64;
                rest = later;
                if done.is_multiple_of(identity.chunk) {
                    let next = Summing::new(self.expected(&identity, index + 1));
                    let (crc, wrong) = std::mem::replace(&mut summing, next).finish();
                    if let Some(mismatch) = wrong {
                        return Err(self.poisoned(&identity, index, &mismatch).into());
                    }
                    sums.push(crc);
                }
            }
            pace.count(bytes.len() as u64);
            if let Some(why) = pace.too_slow(2 * self.settings.stall) {
                return Ok(Streamed::Broke(why));
            }
            if done > *best {
                *best = done;
                self.came();
            }
            self.observer.advance(&self.request.name, done);
        }
    }

    /// A chunk that is not what the index says: nothing of this source can be believed.
    pub(crate) fn poisoned(&self, identity: &Identity, index: u64, wrong: &crate::parts::Wrong) -> FetchError {
        let place =
            format!("chunk {index} ({} bytes from {}): SHA-256", identity.chunk_len(index), identity.start(index));
        FetchError::Mismatch {
            name: self.request.name.clone(),
            host: self.host(),
            expected: format!("{place} {}", wrong.expected),
            got: format!("{place} {}", wrong.got),
            locked: false,
        }
    }
}
