//! Buffers of a device: memory taken from the system or lent by the host, and the account of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use strata_backend_sdk::{Failure, ForeignMemory, Result};

use crate::memory::HostMemory;
use crate::topology;

/// What a device has taken, and what it must leave.
#[derive(Debug)]
pub(crate) struct Account {
    used: AtomicU64,
    /// Bytes of the machine's memory that must stay free.
    reserve: u64,
    /// Where the machine's files are read from.
    root: PathBuf,
}

impl Account {
    pub(crate) fn new(reserve: u64, root: PathBuf) -> Account {
        Account { used: AtomicU64::new(0), reserve, root }
    }

    /// Bytes taken for buffers and programs.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Memory of the machine: `(total, free)`.
    pub(crate) fn machine(&self) -> (u64, u64) {
        topology::memory(&self.root)
    }

    /// Counts `bytes` as taken, if the machine can have them at all.
    pub(crate) fn charge(self: &Arc<Account>, bytes: u64, label: &str) -> Result<Charge> {
        let (total, free) = self.machine();
        // Pages are taken when they are touched, so what was promised earlier may still look free.
        let promised = self.used().saturating_add(bytes);
        let too_much = total > 0 && promised.saturating_add(self.reserve) > total;
        let no_reserve = self.reserve > 0 && bytes.saturating_add(self.reserve) > free;
        if too_much || no_reserve {
            return Err(Failure::out_of_memory(format!(
                "{bytes} bytes for {label}: the machine has {total}, {free} free, {} taken here, {} to be left free",
                self.used(),
                self.reserve
            )));
        }
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Ok(Charge { account: Arc::clone(self), bytes })
    }
}

/// An amount on the account, given back on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A buffer of the ABI.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Arc<HostMemory>,
    /// Imported memory is the host's and costs nothing.
    _charge: Option<Charge>,
}

impl Buffer {
    pub(crate) fn alloc(account: &Arc<Account>, bytes: u64, label: &str) -> Result<Buffer> {
        let label = if label.is_empty() { "a buffer" } else { label };
        let charge = account.charge(bytes, label)?;
        let size = usize::try_from(bytes).map_err(|_| Failure::out_of_memory(format!("{bytes} bytes for {label}")))?;
        let memory = HostMemory::map(size)
            .map_err(|error| Failure::out_of_memory(format!("{bytes} bytes for {label}: {error}")))?;
        Ok(Buffer { memory: Arc::new(memory), _charge: Some(charge) })
    }

    pub(crate) fn import(memory: ForeignMemory) -> Buffer {
        Buffer { memory: Arc::new(HostMemory::foreign(memory)), _charge: None }
    }

    pub(crate) fn memory(&self) -> &Arc<HostMemory> {
        &self.memory
    }

    /// The memory, if it may be written.
    pub(crate) fn writable(&self) -> Result<&HostMemory> {
        if self.memory.is_writable() { Ok(&self.memory) } else { Err(Failure::host_bug("a write to imported memory")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_backend_abi::StrataStatus;

    #[test]
    fn what_is_taken_is_counted_and_given_back() {
        let account = Arc::new(Account::new(0, PathBuf::from("/")));
        let buffer = Buffer::alloc(&account, 5_000, "kv").unwrap();
        assert_eq!(account.used(), 5_000);
        assert_eq!(buffer.memory().len(), 5_000);
        drop(buffer);
        assert_eq!(account.used(), 0);
    }

    #[test]
    fn too_much_is_refused_with_the_numbers() {
        let account = Arc::new(Account::new(0, PathBuf::from("/")));
        let failure = Buffer::alloc(&account, 1 << 60, "kv").unwrap_err();
        assert_eq!(failure.status, StrataStatus::OutOfMemory);
        assert!(failure.text.starts_with("1152921504606846976 bytes for kv"), "{}", failure.text);
        assert_eq!(account.used(), 0);
        let account = Arc::new(Account::new(1 << 60, PathBuf::from("/")));
        assert!(Buffer::alloc(&account, 1, "kv").is_err());
    }

    #[test]
    fn imported_memory_is_used_in_place_and_not_written() {
        static BYTES: [u8; 64] = [7; 64];
        let buffer = Buffer::import(ForeignMemory::from_static(&BYTES));
        assert_eq!(buffer.memory().address().cast_const(), BYTES.as_ptr());
        assert!(buffer.writable().is_err());
        let mut out = [0; 4];
        buffer.memory().read(60, &mut out);
        assert_eq!(out, [7; 4]);
    }
}
