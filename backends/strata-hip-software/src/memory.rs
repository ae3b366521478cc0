//! A card's memory: pages of the host, full of NaNs at first, with a page behind that may not be touched.

use crate::code;

const PAGE: usize = 4096;
/// What the real runtime aligns to.
const ALIGNMENT: usize = 256;

/// An allocation; gone on drop.
#[derive(Debug)]
pub(crate) struct Block {
    map: *mut libc::c_void,
    mapped: usize,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) device: i32,
}

// SAFETY: pages that only this value frees; who reads and writes them is the caller's business, as on a card.
unsafe impl Send for Block {}

impl Block {
    pub(crate) fn new(bytes: usize, device: i32) -> Result<Block, i32> {
        let room = bytes.max(1).checked_next_multiple_of(ALIGNMENT).ok_or(code::OUT_OF_MEMORY)?;
        let pages = room.checked_next_multiple_of(PAGE).ok_or(code::OUT_OF_MEMORY)?;
        let mapped = pages + PAGE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new pages wherever there is room.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), mapped, protection, flags, -1, 0) };
        if map == libc::MAP_FAILED {
            return Err(code::OUT_OF_MEMORY);
        }
        // SAFETY: inside the pages just mapped.
        let guard = unsafe { map.cast::<u8>().add(pages) };
        // SAFETY: the last page of the mapping.
        unsafe { libc::mprotect(guard.cast(), PAGE, libc::PROT_NONE) };
        // SAFETY: inside the pages just mapped, so that the allocation ends where the guard begins.
        let start = unsafe { map.cast::<u8>().add(pages - room) };
        // SAFETY: `room` bytes from here on are mapped and nobody else's.
        unsafe { std::ptr::write_bytes(start, 0xff, room) };
        Ok(Block { map, mapped, address: start.expose_provenance() as u64, bytes: bytes as u64, device })
    }

    pub(crate) fn contains(&self, address: u64, bytes: u64) -> bool {
        address >= self.address && address.checked_add(bytes).is_some_and(|end| end <= self.address + self.bytes)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` and unmapped once.
        unsafe { libc::munmap(self.map, self.mapped) };
    }
}
