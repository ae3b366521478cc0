//! Any bytes as an ELF file and as something that holds GPU code; from memory and through a file, which
//! must say the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::{Cursor, Write};
use strata_package::{elf, gpu};

fuzz_target!(|bytes: &[u8]| {
    let facts = gpu::scan(&mut Cursor::new(bytes)).unwrap();
    assert!(facts.targets.len() + facts.unreadable.len() <= 1001);
    let from_memory = elf::inspect_bytes(bytes);
    if bytes.starts_with(b"\x7fELF\x02\x01") {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let from_file = elf::inspect(&file);
        assert_eq!(from_memory.ok(), from_file.ok());
    }
});
