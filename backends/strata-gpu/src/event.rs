//! A point in a card's work that other threads can wait for while the next run is handed over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use strata_backend_sdk::Result;

use crate::driver::Driver;
use crate::memory::{Core, late};

/// The driver's event, and whether a run has signalled it yet: the driver takes one that was never
/// recorded for reached, the host does not.
#[derive(Debug)]
pub struct Event<D: Driver> {
    core: Arc<Core<D>>,
    handle: u64,
    is_recorded: AtomicBool,
    /// For those who wait before the run that signals.
    turn: (Mutex<()>, Condvar),
}

impl<D: Driver> Event<D> {
    pub(crate) fn new(core: &Arc<Core<D>>) -> Result<Event<D>> {
        let handle = core.driver.event().map_err(|error| core.failure("making an event", &error))?;
        let turn = (Mutex::new(()), Condvar::new());
        Ok(Event { core: Arc::clone(core), handle, is_recorded: AtomicBool::new(false), turn })
    }

    /// Signalled once all work so far is done.
    pub(crate) fn record(&self) -> Result<()> {
        let recorded = self.core.driver.record(self.handle);
        recorded.map_err(|error| self.core.failure("recording an event", &error))?;
        let _held = self.turn.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_recorded.store(true, Ordering::Release);
        self.turn.1.notify_all();
        Ok(())
    }

    pub(crate) fn is_reached(&self) -> Result<bool> {
        if !self.is_recorded.load(Ordering::Acquire) {
            return Ok(false);
        }
        self.core.driver.reached(self.handle).map_err(|error| late(&self.core, "", &error))
    }

    pub(crate) fn wait(&self) -> Result<()> {
        if !self.is_recorded.load(Ordering::Acquire) {
            let mut held = self.turn.0.lock().unwrap_or_else(PoisonError::into_inner);
            while !self.is_recorded.load(Ordering::Acquire) {
                held = self.turn.1.wait(held).unwrap_or_else(PoisonError::into_inner);
            }
        }
        self.core.driver.wait(self.handle).map_err(|error| late(&self.core, "", &error))
    }
}

impl<D: Driver> Drop for Event<D> {
    fn drop(&mut self) {
        self.core.driver.free_event(self.handle);
    }
}
