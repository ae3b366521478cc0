//! Memory of one card: what was taken and what for, the reserve, and the two pinned areas through
//! which everything goes to the card and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use strata_backend_sdk::abi::StrataStatus;
use strata_backend_sdk::{Failure, Result};

use crate::driver::{Cause, Driver, DriverError, DriverResult, Pinned};

/// One of the two staging areas.
const STAGING_BYTES: usize = 8 << 20;
/// Small writes are packed into an area at this alignment.
const STAGING_ALIGNMENT: usize = 256;

/// An open card, shared by everything on it.
#[derive(Debug)]
pub(crate) struct Core<D: Driver> {
    pub(crate) driver: D,
    reserve: u64,
    used: AtomicU64,
}

impl<D: Driver> Core<D> {
    pub(crate) fn new(driver: D, reserve: u64) -> Core<D> {
        Core { driver, reserve, used: AtomicU64::new(0) }
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// A driver's error with what was tried and on which card.
    pub(crate) fn failure(&self, doing: &str, error: &DriverError) -> Failure {
        Failure::new(error.status(), format!("{doing} on {}: {error}", self.driver.card().name))
    }

    fn full(&self, label: &str, bytes: u64, why: &str) -> Failure {
        let (free, total) = self.driver.memory().unwrap_or((0, 0));
        Failure::out_of_memory(format!(
            "{bytes} bytes for {label} on {}: {why}; {free} of {total} bytes are free, {} are this program's, \
             {} are kept in reserve",
            self.driver.card().name,
            self.used(),
            self.reserve
        ))
    }

    /// Takes device memory. Zeroed memory is not promised.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64, label: &str) -> Result<Block<D>> {
        let bytes = bytes.max(256).next_multiple_of(256);
        let (free, _) = self.driver.memory().map_err(|error| self.failure("asking for the free memory", &error))?;
        if self.reserve > 0 && free < bytes.saturating_add(self.reserve) {
            return Err(self.full(label, bytes, "the reserve would be touched"));
        }
        match self.driver.alloc(bytes) {
            Ok(address) => {
                self.used.fetch_add(bytes, Ordering::Relaxed);
                Ok(Block { core: Arc::clone(self), address, bytes })
            }
            Err(error) if error.cause == Cause::OutOfMemory => Err(self.full(label, bytes, &error.to_string())),
            Err(error) => Err(self.failure(&format!("taking {bytes} bytes for {label}"), &error)),
        }
    }
}

/// Device memory, given back on drop.
#[derive(Debug)]
pub(crate) struct Block<D: Driver> {
    core: Arc<Core<D>>,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl<D: Driver> Drop for Block<D> {
    fn drop(&mut self) {
        self.core.driver.free(self.address);
        self.core.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A buffer of the host's.
#[derive(Debug)]
pub struct Buffer<D: Driver>(pub(crate) Place<D>);

/// Where it lies.
#[derive(Debug)]
pub(crate) enum Place<D: Driver> {
    Device(Block<D>),
    Host(D::Pinned),
}

impl<D: Driver> Buffer<D> {
    /// The card's address.
    pub(crate) fn address(&self) -> u64 {
        match &self.0 {
            Place::Device(block) => block.address,
            Place::Host(pinned) => pinned.address(),
        }
    }
}

/// The two pinned areas, used in turn: while one is on its way, the other is filled.
#[derive(Debug)]
pub(crate) struct Staging<D: Driver> {
    areas: [Area<D>; 2],
    current: usize,
}

#[derive(Debug)]
struct Area<D: Driver> {
    pinned: D::Pinned,
    event: u64,
    filled: usize,
    /// The event was recorded behind what the area holds.
    closed: bool,
}

impl<D: Driver> Staging<D> {
    pub(crate) fn new(core: &Core<D>) -> Result<Staging<D>> {
        let area = || -> Result<Area<D>> {
            let doing = "taking pinned memory for transfers";
            let pinned = core.driver.pin(STAGING_BYTES).map_err(|error| core.failure(doing, &error))?;
            let event = core.driver.event().map_err(|error| core.failure("making an event", &error))?;
            Ok(Area { pinned, event, filled: 0, closed: false })
        };
        Ok(Staging { areas: [area()?, area()?], current: 0 })
    }

    /// Enqueues a write behind all work so far. The data may change when this returns.
    pub(crate) fn write(&mut self, core: &Core<D>, mut to: u64, mut data: &[u8]) -> Result<()> {
        let failed = |error: DriverError| core.failure("copying to the card", &error);
        while !data.is_empty() {
            if self.areas[self.current].filled >= STAGING_BYTES {
                self.turn(core).map_err(failed)?;
            }
            let area = &mut self.areas[self.current];
            let n = data.len().min(STAGING_BYTES - area.filled);
            let (now, later) = data.split_at(n);
            area.pinned.write(area.filled, now);
            core.driver.upload(to, &area.pinned, area.filled, n).map_err(failed)?;
            area.filled = (area.filled + n).next_multiple_of(STAGING_ALIGNMENT);
            to += n as u64;
            data = later;
        }
        Ok(())
    }

    /// Goes on with the other area once what it held has arrived.
    fn turn(&mut self, core: &Core<D>) -> DriverResult<()> {
        let area = &mut self.areas[self.current];
        core.driver.record(area.event)?;
        area.closed = true;
        self.current = 1 - self.current;
        let area = &mut self.areas[self.current];
        if area.closed {
            core.driver.wait(area.event)?;
        }
        (area.filled, area.closed) = (0, false);
        Ok(())
    }

    /// Waits for all work, then copies out.
    pub(crate) fn read(&mut self, core: &Core<D>, mut from: u64, mut out: &mut [u8]) -> Result<()> {
        let failed = |error: DriverError| core.failure("copying from the card", &error);
        while !out.is_empty() {
            let n = out.len().min(STAGING_BYTES);
            let (now, later) = out.split_at_mut(n);
            // Everything enqueued before has arrived after the wait, so both areas are free.
            let area = &mut self.areas[self.current];
            if area.filled + n > STAGING_BYTES {
                core.driver.synchronize().map_err(failed)?;
                area.filled = 0;
            }
            let at = area.filled;
            core.driver.download(&area.pinned, at, from, n).map_err(failed)?;
            core.driver.synchronize().map_err(failed)?;
            area.pinned.read(at, now);
            for area in &mut self.areas {
                (area.filled, area.closed) = (0, false);
            }
            from += n as u64;
            out = later;
        }
        Ok(())
    }

    pub(crate) fn close(&self, core: &Core<D>) {
        for area in &self.areas {
            core.driver.free_event(area.event);
        }
    }
}

/// A failure of work that was enqueued earlier, said by a wait.
pub(crate) fn late<D: Driver>(core: &Core<D>, last: &str, error: &DriverError) -> Failure {
    let doing = if last.is_empty() { "waiting".to_owned() } else { format!("waiting for program {last}") };
    let failure = core.failure(&doing, error);
    if failure.status == StrataStatus::ArchMissing {
        Failure::new(StrataStatus::DeviceFailed, failure.text)
    } else {
        failure
    }
}
