//! Small questions that are asked until an answer comes or the patience ends.

use crate::client::Trouble;
use crate::job::or_cancel;
use crate::{CancelFlag, FetchError, Line, Observer, Settings};
use std::time::{Duration, Instant};

/// Who asks, and who hears of it.
pub(crate) struct Asker<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) cancel: &'a CancelFlag,
    pub(crate) name: &'a str,
    pub(crate) host: String,
}

impl Asker<'_> {
    /// Asks over a line until `work` has an answer.
    pub(crate) fn insist<T>(
        &self,
        line: &Line,
        mut work: impl AsyncFnMut(&Line) -> Result<T, Trouble>,
    ) -> Result<T, FetchError> {
        let began = Instant::now();
        let mut pause = crate::job::FIRST_PAUSE;
        loop {
            let answer = line.block_on(or_cancel(self.cancel, work(line)));
            let (why, asked) = match answer.ok_or_else(|| self.cancelled())? {
                Ok(answer) => return Ok(answer),
                Err(Trouble::Final(error)) => return Err(error),
                Err(Trouble::Again { why, pause }) => (why, pause),
            };
            self.rest(began, &why, asked, &mut pause)?;
        }
    }

    pub(crate) fn cancelled(&self) -> FetchError {
        FetchError::Cancelled { name: self.name.to_owned() }
    }

    /// A pause before the next try, or the end of the patience.
    pub(crate) fn rest(
        &self,
        began: Instant,
        why: &str,
        asked: Option<Duration>,
        pause: &mut Duration,
    ) -> Result<(), FetchError> {
        let idle = began.elapsed();
        if idle >= self.settings.patience {
            let (name, host) = (self.name.to_owned(), self.host.clone());
            return Err(FetchError::Network { name, host, why: why.to_owned(), seconds: idle.as_secs(), kept: 0 });
        }
        let rest = asked.unwrap_or(*pause).max(*pause).min(self.settings.patience.saturating_sub(idle));
        self.observer.note(&format!("{}: {why}; next try in {:.1} s", self.name, rest.as_secs_f64()));
        let until = Instant::now() + rest;
        while Instant::now() < until {
            if self.cancel.is_set() {
                return Err(self.cancelled());
            }
            std::thread::sleep(Duration::from_millis(50).min(until.saturating_duration_since(Instant::now())));
        }
        *pause = (*pause * 2).min(self.settings.longest_pause);
        Ok(())
    }
}
