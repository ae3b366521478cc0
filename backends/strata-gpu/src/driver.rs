//! What a vendor's driver must do for the rest of this crate. One value is one open card with one
//! stream; every call makes the card current by itself. Addresses and handles are numbers here:
//! nothing in this crate follows them.

use std::fmt;

use strata_backend_sdk::abi::StrataStatus;

/// What a failed call means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The card has no memory left.
    OutOfMemory,
    /// The card or its context is gone: every later call fails too.
    Lost,
    /// The machine code is not for this card, or is no machine code.
    BadImage,
    /// Anything else.
    Other,
}

/// A driver call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverError {
    /// The function: `cuMemAlloc_v2`.
    pub call: &'static str,
    /// Its number.
    pub code: i32,
    /// Its name and sentence, as the driver says them.
    pub text: String,
    /// What it means.
    pub cause: Cause,
}

impl DriverError {
    /// The status that the host gets.
    pub fn status(&self) -> StrataStatus {
        match self.cause {
            Cause::OutOfMemory => StrataStatus::OutOfMemory,
            Cause::Lost => StrataStatus::DeviceLost,
            Cause::BadImage => StrataStatus::ArchMissing,
            Cause::Other => StrataStatus::DeviceFailed,
        }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {} ({})", self.call, self.code, self.text)
    }
}

/// Result of a driver call.
pub type DriverResult<T> = Result<T, DriverError>;

/// What a card is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Marketing name and identity, for messages: `NVIDIA H200 (GPU-…)`.
    pub name: String,
    /// `sm_90`, `gfx906`.
    pub arch: String,
    /// Multiprocessors or compute units.
    pub n_units: u32,
    /// What its maker calls those, in the plural.
    pub unit: &'static str,
    /// Most dynamic shared memory that a kernel may ask for, bytes.
    pub most_shared: u32,
    /// A kernel may begin before the one in front of it has ended, and waits for it inside.
    pub early_launch: bool,
    /// The runtime can record work and replay it. Without, every run is enqueued launch by launch.
    pub can_record: bool,
}

/// A kernel launch.
#[derive(Debug, Clone, Copy)]
pub struct LaunchCall<'a> {
    /// From [`Driver::function`].
    pub function: u64,
    /// Blocks per dimension.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Dynamic shared memory, bytes.
    pub shared: u32,
    /// The one argument struct, at most 4096 bytes.
    pub params: &'a [u8],
    /// May begin early: see [`Card::early_launch`].
    pub early: bool,
}

/// Pinned memory of the host that the card can address. Freed on drop.
pub trait Pinned: fmt::Debug + Send + Sync + 'static {
    /// The card's address of it.
    fn address(&self) -> u64;
    /// The host's address of it.
    fn pointer(&self) -> *mut u8;
    /// Copies in. The range is inside; the card does not use it now.
    fn write(&self, offset: usize, data: &[u8]);
    /// Copies out, likewise.
    fn read(&self, offset: usize, out: &mut [u8]);
}

/// An open card.
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// Memory from [`Driver::pin`].
    type Pinned: Pinned;

    /// What it is.
    fn card(&self) -> &Card;
    /// Free and all bytes, now.
    fn memory(&self) -> DriverResult<(u64, u64)>;
    /// Takes device memory, aligned to 256 bytes at least.
    fn alloc(&self, bytes: u64) -> DriverResult<u64>;
    /// Gives it back; waits for work that uses it.
    fn free(&self, address: u64);
    /// Takes pinned memory.
    fn pin(&self, bytes: usize) -> DriverResult<Self::Pinned>;
    /// Enqueues a copy from pinned memory to the card.
    fn upload(&self, to: u64, from: &Self::Pinned, offset: usize, bytes: usize) -> DriverResult<()>;
    /// Enqueues a copy from the card to pinned memory.
    fn download(&self, to: &Self::Pinned, offset: usize, from: u64, bytes: usize) -> DriverResult<()>;
    /// Enqueues a copy on the card.
    fn copy(&self, to: u64, from: u64, bytes: u64) -> DriverResult<()>;
    /// Enqueues zeros.
    fn clear(&self, to: u64, bytes: u64) -> DriverResult<()>;
    /// Waits for all work.
    fn synchronize(&self) -> DriverResult<()>;
    /// Makes an event.
    fn event(&self) -> DriverResult<u64>;
    /// Enqueues its signal.
    fn record(&self, event: u64) -> DriverResult<()>;
    /// Waits for its last signal; at once when it was never recorded.
    fn wait(&self, event: u64) -> DriverResult<()>;
    /// Whether its last signal was given; true when it was never recorded.
    fn reached(&self, event: u64) -> DriverResult<bool>;
    /// Frees an event.
    fn free_event(&self, event: u64);
    /// Loads machine code.
    fn load(&self, image: &[u8]) -> DriverResult<u64>;
    /// A kernel of a module, allowed to use `shared` bytes of dynamic shared memory.
    fn function(&self, module: u64, name: &str) -> DriverResult<u64>;
    /// Allows a kernel more dynamic shared memory than usual.
    fn allow_shared(&self, function: u64, bytes: u32) -> DriverResult<()>;
    /// Enqueues a kernel.
    fn launch(&self, call: &LaunchCall<'_>) -> DriverResult<()>;
    /// From here on work is recorded instead of done.
    fn begin_capture(&self) -> DriverResult<()>;
    /// Ends it; the recorded work as something to replay.
    fn end_capture(&self) -> DriverResult<u64>;
    /// Enqueues a replay.
    fn replay(&self, graph: u64) -> DriverResult<()>;
    /// Frees a recording.
    fn free_graph(&self, graph: u64);
}
