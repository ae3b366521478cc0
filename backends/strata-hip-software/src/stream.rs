//! Work that was given and not yet done. A stream does nothing before somebody waits for it.

use std::collections::VecDeque;

use crate::host::LaunchOp;

#[derive(Debug, Clone)]
pub(crate) enum Op {
    /// To, from, bytes: between any two places.
    Copy(u64, u64, u64),
    /// To, value, bytes.
    Fill(u64, u8, u64),
    Launch(LaunchOp),
    /// An event is signalled.
    Signal(u64),
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) device: i32,
    pub(crate) queue: VecDeque<Op>,
    pub(crate) capture: Option<Capture>,
}

/// A recording under way.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    pub(crate) ops: Vec<Op>,
    /// Something was done that no recording may hold.
    pub(crate) invalid: bool,
}

impl Stream {
    pub(crate) fn new(device: i32) -> Stream {
        Stream { device, queue: VecDeque::new(), capture: None }
    }

    pub(crate) fn push(&mut self, op: Op) {
        match &mut self.capture {
            Some(capture) => capture.ops.push(op),
            None => self.queue.push_back(op),
        }
    }
}
