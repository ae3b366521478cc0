//! Everything there is in the library, behind one lock.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::code_object::{CodeObject, Kernel};
use crate::host::HostKernels;
use crate::memory::Block;
use crate::settings::{Injected, Settings};
use crate::stream::{Op, Stream};
use crate::{Answer, code};

thread_local! {
    /// The device that this thread's calls go to.
    static CURRENT: Cell<i32> = const { Cell::new(0) };
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) object: CodeObject,
    pub(crate) device: i32,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) failures: Vec<Injected>,
    /// The number that every call answers since a card was lost.
    lost: Option<i32>,
    next_handle: u64,
    pub(crate) blocks: HashMap<u64, Block>,
    pub(crate) pinned: HashMap<u64, Block>,
    pub(crate) streams: HashMap<u64, Stream>,
    /// Stream in which an event was recorded last and is not signalled yet.
    pub(crate) events: HashMap<u64, Option<u64>>,
    pub(crate) modules: HashMap<u64, Module>,
    pub(crate) functions: HashMap<u64, (i32, Kernel)>,
    pub(crate) graphs: HashMap<u64, Vec<Op>>,
    pub(crate) counters: HashMap<&'static str, i64>,
    host: HostKernels,
}

/// Makes a call: its injected failure, the card's loss, else what `body` does.
pub(crate) fn answer(call: &str, body: impl FnOnce(&mut State) -> Answer) -> i32 {
    with(|state| {
        if let Some(code) = state.injected(call) {
            return code;
        }
        // What is freed is freed on a lost card too.
        let frees = ["hipFree", "hipHostFree", "hipStreamDestroy", "hipEventDestroy", "hipSetDevice"];
        if let Some(code) = state.lost
            && !frees.contains(&call)
        {
            return code;
        }
        match body(state) {
            Ok(()) => 0,
            Err(code) => {
                if code::is_sticky(code) {
                    state.lost = Some(code);
                }
                code
            }
        }
    })
}

/// The state, made from the environment at the first use.
pub(crate) fn with<T>(body: impl FnOnce(&mut State) -> T) -> T {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    body(state.get_or_insert_with(|| State::new(Settings::of_environment())))
}

impl State {
    fn new(settings: Settings) -> State {
        State { failures: settings.failures.clone(), settings, next_handle: 0x1000, ..State::default() }
    }

    fn injected(&mut self, call: &str) -> Option<i32> {
        let failure = self.failures.iter_mut().find(|failure| failure.call == call)?;
        if failure.after > 0 {
            failure.after -= 1;
            return None;
        }
        let code = failure.code;
        if code::is_sticky(code) {
            self.lost = Some(code);
        }
        Some(code)
    }

    pub(crate) fn handle(&mut self) -> u64 {
        self.next_handle += 16;
        self.next_handle
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counters.entry(what).or_default() += 1;
    }

    pub(crate) fn current() -> i32 {
        CURRENT.get()
    }

    pub(crate) fn set_current(&self, device: i32) -> Answer {
        self.device(device)?;
        CURRENT.set(device);
        Ok(())
    }

    /// A device's number, if there is such a device.
    pub(crate) fn device(&self, device: i32) -> Result<i32, i32> {
        match u32::try_from(device) {
            Ok(number) if number < self.settings.devices => Ok(device),
            _ if self.settings.devices == 0 => Err(code::NO_DEVICE),
            _ => Err(code::INVALID_DEVICE),
        }
    }

    pub(crate) fn used(&self, device: i32) -> u64 {
        self.blocks.values().filter(|block| block.device == device).map(|block| block.bytes).sum()
    }

    /// Whether bytes lie in one allocation of a card.
    pub(crate) fn on_card(&self, address: u64, bytes: u64) -> Answer {
        let mut blocks = self.blocks.values().chain(self.pinned.values());
        if blocks.any(|block| block.contains(address, bytes)) { Ok(()) } else { Err(code::INVALID_VALUE) }
    }

    pub(crate) fn stream(&mut self, stream: u64) -> Result<&mut Stream, i32> {
        self.streams.get_mut(&stream).ok_or(code::INVALID_HANDLE)
    }

    /// Adds work to a stream that may be recorded. The stream's card must be the current one.
    pub(crate) fn push(&mut self, stream: u64, op: Op) -> Answer {
        let current = State::current();
        let stream = self.stream(stream)?;
        if stream.device != current {
            return Err(code::INVALID_HANDLE);
        }
        stream.push(op);
        Ok(())
    }

    /// What may not be done while this thread records: a wait, or taking memory.
    pub(crate) fn not_while_recording(&mut self) -> Answer {
        let mut answer = Ok(());
        for stream in self.streams.values_mut() {
            if let Some(capture) = &mut stream.capture {
                capture.invalid = true;
                answer = Err(code::CAPTURE_UNSUPPORTED);
            }
        }
        answer
    }

    /// Does a stream's work, up to the signal of an event if one is given.
    pub(crate) fn drain(&mut self, stream: u64, until: Option<u64>) -> Answer {
        loop {
            let Some(op) = self.stream(stream)?.queue.pop_front() else { return Ok(()) };
            let signal = if let Op::Signal(event) = op { Some(event) } else { None };
            if let Err(code) = self.run(op) {
                // A card that is lost does none of what was still to do.
                self.streams.values_mut().for_each(|stream| stream.queue.clear());
                return Err(code);
            }
            if signal.is_some() && signal == until {
                return Ok(());
            }
        }
    }

    /// Does all work of a card: before memory of it goes.
    pub(crate) fn drain_device(&mut self, device: i32) -> Answer {
        let streams: Vec<u64> =
            self.streams.iter().filter(|(_, stream)| stream.device == device).map(|(id, _)| *id).collect();
        streams.into_iter().try_for_each(|stream| self.drain(stream, None))
    }

    fn run(&mut self, op: Op) -> Answer {
        match op {
            Op::Copy(to, from, bytes) => {
                let from = std::ptr::with_exposed_provenance::<u8>(from as usize);
                let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
                // SAFETY: the card's side was found in an allocation when the copy was given; the host's side is the
                // caller's to keep until the stream is waited for.
                unsafe { std::ptr::copy(from, to, bytes as usize) };
                Ok(())
            }
            Op::Fill(to, value, bytes) => {
                let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
                // SAFETY: the range was found in an allocation when the call was made.
                unsafe { std::ptr::write_bytes(to, value, bytes as usize) };
                Ok(())
            }
            Op::Signal(event) => {
                if let Some(pending) = self.events.get_mut(&event) {
                    *pending = None;
                }
                Ok(())
            }
            Op::Launch(launch) => {
                if let Some(code) = self.injected("kernel") {
                    return Err(code);
                }
                self.count("kernels");
                match self.settings.kernels.clone() {
                    Some(folder) => self.host.run(&folder, self.settings.order, &launch),
                    None => Ok(()),
                }
            }
        }
    }
}
