//! Just enough of ELF to keep a file that would hurt away from the loader: a library that is cut
//! off makes the loader touch bytes behind the end of its mapping, which ends the process with
//! SIGBUS. What a library needs and exports is checked when it is packaged, not here.

/// Machine numbers of `e_machine` for the names of `std::env::consts::ARCH`.
const MACHINES: [(u16, &str); 4] = [(62, "x86_64"), (183, "aarch64"), (243, "riscv64"), (3, "x86")];
const HEADER: usize = 64;
const PROGRAM_HEADER: u64 = 56;
const TYPE_SHARED: u16 = 3;
const SEGMENT_LOAD: u32 = 1;
const SEGMENT_DYNAMIC: u32 = 2;
/// A library has about ten program headers; the table of them is read whole.
const MAX_PROGRAM_HEADERS: u16 = 256;

/// The bytes at the head of a file that [`check`] needs.
pub(crate) const HEAD_BYTES: usize = 64 << 10;

/// What is wrong with a file as a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ElfFault {
    /// No complete shared library.
    Broken(String),
    /// A library for this machine, by the name of the architecture.
    Machine(String),
}

/// Checks the head of a file of `size` bytes against the machine's architecture.
pub(crate) fn check(head: &[u8], size: u64, arch: &str) -> Result<(), ElfFault> {
    let broken = |reason: &str| Err(ElfFault::Broken(reason.to_owned()));
    if size == 0 {
        return broken("the file is empty");
    }
    if !head.starts_with(b"\x7fELF") {
        return broken("it is no ELF file");
    }
    if head.len() < HEADER {
        return broken("the ELF header is cut off");
    }
    if head[4] != 2 || head[5] != 1 {
        return Err(ElfFault::Machine("a 32-bit or big-endian processor".to_owned()));
    }
    let machine = u16_at(head, 18);
    if !MACHINES.contains(&(machine, arch)) {
        let name = MACHINES.iter().find(|(number, _)| *number == machine);
        return Err(ElfFault::Machine(
            name.map_or_else(|| format!("ELF machine {machine}"), |(_, name)| (*name).to_owned()),
        ));
    }
    if u16_at(head, 16) != TYPE_SHARED {
        return broken("it is an ELF file, but no shared library");
    }
    let (table, entry_size, count) = (u64_at(head, 32), u16_at(head, 54), u16_at(head, 56));
    if u64::from(entry_size) != PROGRAM_HEADER || count == 0 || count > MAX_PROGRAM_HEADERS {
        return broken("its table of program headers makes no sense");
    }
    segments(head, size, table, count)
}

fn segments(head: &[u8], size: u64, table: u64, count: u16) -> Result<(), ElfFault> {
    let broken = |reason: String| Err(ElfFault::Broken(reason));
    let end = table.checked_add(u64::from(count) * PROGRAM_HEADER).filter(|end| *end <= size);
    let Some(end) = end else { return broken("it is cut off: its program headers lie behind its end".to_owned()) };
    // Linkers put the table right behind the header.
    let Some(headers) = usize::try_from(end).ok().and_then(|end| head.get(table as usize..end)) else {
        return broken("its program headers lie far from its start".to_owned());
    };
    let mut is_dynamic = false;
    for header in headers.chunks_exact(PROGRAM_HEADER as usize) {
        let kind = u32_at(header, 0);
        let (offset, file_bytes, memory_bytes) = (u64_at(header, 8), u64_at(header, 32), u64_at(header, 40));
        is_dynamic |= kind == SEGMENT_DYNAMIC;
        if kind != SEGMENT_LOAD && kind != SEGMENT_DYNAMIC {
            continue;
        }
        match offset.checked_add(file_bytes) {
            Some(end) if end <= size => {}
            Some(end) => return broken(format!("it is cut off: a segment ends at byte {end}, the file at {size}")),
            None => return broken("a segment's end does not fit 64 bits".to_owned()),
        }
        if kind == SEGMENT_LOAD && file_bytes > memory_bytes {
            return broken("a segment has more bytes in the file than in memory".to_owned());
        }
    }
    if is_dynamic { Ok(()) } else { broken("it has no dynamic segment".to_owned()) }
}

// The callers' offsets lie within 64 bytes of a header or 56 of a program header.

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header and two program headers, as small as a library can be for the check.
    fn library() -> Vec<u8> {
        let mut file = vec![0_u8; 4096];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[16] = 3;
        file[18] = 62;
        file[32] = 64;
        file[54] = 56;
        file[56] = 2;
        file[64] = 1;
        file[64 + 32..64 + 34].copy_from_slice(&4096_u16.to_le_bytes());
        file[64 + 40..64 + 42].copy_from_slice(&4096_u16.to_le_bytes());
        file[120] = 2;
        file[120 + 8] = 200;
        file[120 + 32] = 16;
        file
    }

    fn verdict(file: &[u8]) -> String {
        match check(&file[..file.len().min(HEAD_BYTES)], file.len() as u64, "x86_64") {
            Ok(()) => "fine".to_owned(),
            Err(ElfFault::Broken(reason)) => reason,
            Err(ElfFault::Machine(name)) => format!("for {name}"),
        }
    }

    #[test]
    fn each_fault_has_its_words() {
        assert_eq!(verdict(&library()), "fine");
        let changed = |at: usize, value: u8| {
            let mut file = library();
            file[at] = value;
            verdict(&file)
        };
        assert_eq!(verdict(b""), "the file is empty");
        assert_eq!(verdict(b"this is no library\n"), "it is no ELF file");
        assert_eq!(verdict(b"\x7fELF\x02\x01"), "the ELF header is cut off");
        assert_eq!(changed(4, 1), "for a 32-bit or big-endian processor");
        assert_eq!(changed(5, 2), "for a 32-bit or big-endian processor");
        assert_eq!(changed(18, 183), "for aarch64");
        assert_eq!(changed(19, 9), "for ELF machine 2366");
        assert_eq!(changed(16, 2), "it is an ELF file, but no shared library");
        assert_eq!(changed(16, 1), "it is an ELF file, but no shared library");
        assert_eq!(changed(54, 32), "its table of program headers makes no sense");
        assert_eq!(changed(56, 0), "its table of program headers makes no sense");
        assert_eq!(changed(57, 200), "its table of program headers makes no sense");
        assert_eq!(changed(33, 200), "it is cut off: its program headers lie behind its end");
        assert_eq!(changed(39, 255), "it is cut off: its program headers lie behind its end");
        assert_eq!(changed(72, 1), "it is cut off: a segment ends at byte 4097, the file at 4096");
        assert_eq!(changed(103, 255), "it is cut off: a segment ends at byte 18374686479671627776, the file at 4096");
        assert_eq!(changed(105, 0), "a segment has more bytes in the file than in memory");
        assert_eq!(changed(120, 4), "it has no dynamic segment");
        let mut wraps = library();
        wraps[72..80].fill(255);
        assert_eq!(verdict(&wraps), "a segment's end does not fit 64 bits");
        assert_eq!(verdict(&library()[..512]), "it is cut off: a segment ends at byte 4096, the file at 512");
    }

    #[test]
    fn no_byte_makes_it_panic() {
        let mut file = library();
        for at in 0..192 {
            let before = file[at];
            for value in 0..=255 {
                file[at] = value;
                let _ = verdict(&file);
            }
            file[at] = before;
        }
    }

    #[test]
    fn every_cut_is_noticed() {
        let file = library();
        for len in 0..file.len() {
            assert_ne!(verdict(&file[..len]), "fine", "{len}");
        }
    }
}
