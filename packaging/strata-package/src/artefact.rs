//! What the builder reads out of a built file: libraries, floors and build record of an ELF file, GPU
//! targets of the code objects in it.
//!
//! These are our own fresh files, read whole; the verifier has its own bounded readers for files of
//! unknown origin, and so checks this one.

use object::Endianness;
use object::elf;
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use std::collections::BTreeSet;

/// Facts of one ELF file of a 64-bit little-endian machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ElfFacts {
    /// `x86_64`, `aarch64`, or the number of the machine.
    pub(crate) machine: String,
    pub(crate) soname: Option<String>,
    pub(crate) needed: Vec<String>,
    /// Highest `GLIBC_` version among the needed symbols.
    pub(crate) libc_floor: Option<String>,
    /// Highest `GLIBCXX_` version among them.
    pub(crate) libstdcxx_floor: Option<String>,
    /// JSON of the build record.
    pub(crate) record: Option<String>,
}

/// Reads an ELF file for a processor; `None` for anything else, code objects of GPUs included.
pub(crate) fn elf_facts(bytes: &[u8]) -> Result<Option<ElfFacts>, String> {
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Ok(None);
    }
    let file = ElfFile64::<Endianness>::parse(bytes).map_err(|error| error.to_string())?;
    let endian = file.endian();
    let machine = match file.elf_header().e_machine(endian) {
        elf::EM_AMDGPU | elf::EM_CUDA => return Ok(None),
        elf::EM_X86_64 => "x86_64".to_owned(),
        elf::EM_AARCH64 => "aarch64".to_owned(),
        other => format!("machine {other:?}"),
    };
    let mut facts = ElfFacts { machine, ..ElfFacts::default() };
    let sections = file.elf_section_table();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if let Some((dynamic, strings)) = sections.dynamic(endian, bytes).map_err(|error| error.to_string())? {
        let strings = sections.strings(endian, bytes, strings).map_err(|error| error.to_string())?;
        for entry in dynamic {
            let name = || entry.string(endian, strings).map(text).map_err(|error| error.to_string());
            match entry.d_tag(endian) {
                elf::DT_NEEDED => facts.needed.push(name()?),
                elf::DT_SONAME => facts.soname = Some(name()?),
                _ => {}
            }
        }
    }
    if let Some((mut needs, strings)) = sections.gnu_verneed(endian, bytes).map_err(|error| error.to_string())? {
        let strings = sections.strings(endian, bytes, strings).map_err(|error| error.to_string())?;
        while let Some((_, mut versions)) = needs.next().map_err(|error| error.to_string())? {
            while let Some(version) = versions.next().map_err(|error| error.to_string())? {
                let name = version.name(endian, strings).map(text).map_err(|error| error.to_string())?;
                raise(&mut facts.libc_floor, &name, "GLIBC_");
                raise(&mut facts.libstdcxx_floor, &name, "GLIBCXX_");
            }
        }
    }
    for header in file.elf_program_headers() {
        let Some(mut notes) = header.notes(endian, bytes).map_err(|error| error.to_string())? else { continue };
        while let Some(note) = notes.next().map_err(|error| error.to_string())? {
            if note.name() == b"Strata" {
                facts.record = Some(text(note.desc()));
            }
        }
    }
    Ok(Some(facts))
}

/// Takes the version after the prefix when it is higher than the floor so far.
fn raise(floor: &mut Option<String>, name: &str, prefix: &str) {
    let numbers = |text: &str| text.split('.').map(|part| part.parse::<u32>().ok()).collect::<Option<Vec<u32>>>();
    // `GLIBC_PRIVATE` and the like are no versions.
    let Some(version) = name.strip_prefix(prefix) else { return };
    let Some(number) = numbers(version) else { return };
    if floor.as_deref().and_then(numbers).is_none_or(|known| number > known) {
        *floor = Some(version.to_owned());
    }
}

/// GPU targets of everything that lies in a file: AMD code objects and NVIDIA machine code by their ELF
/// headers, PTX by its `.target` line. A compressed bundle of AMD's is an error here: it hides its targets.
pub(crate) fn gpu_targets(bytes: &[u8]) -> Result<BTreeSet<String>, String> {
    let mut targets = BTreeSet::new();
    for at in find_all(bytes, b"\x7fELF") {
        if let Some(target) = code_object_target(&bytes[at..])? {
            targets.insert(target);
        }
    }
    for at in find_all(bytes, b".version ") {
        if let Some(target) = ptx_target(&bytes[at..]) {
            targets.insert(target);
        }
    }
    let hip = !find_all(bytes, b".hip_fatbin\0").is_empty() || bytes.starts_with(b"CCOB");
    if hip && let Some(at) = find_all(bytes, b"CCOB").first() {
        return Err(format!("it holds a compressed offload bundle at byte {at}: build without compression"));
    }
    Ok(targets)
}

fn find_all(bytes: &[u8], needle: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = bytes[from..].windows(needle.len()).position(|window| window == needle) {
        found.push(from + at);
        from += at + 1;
    }
    found
}

/// Target of an ELF image for a GPU; `None` for one of a processor.
fn code_object_target(image: &[u8]) -> Result<Option<String>, String> {
    let half = |at: usize| image.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let word = |at: usize| image.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let (Some(machine), Some(flags)) = (half(18), word(48)) else { return Ok(None) };
    let abi_version = image[8];
    match (machine, image[4]) {
        (224, 2) => amd_target(flags).map(Some),
        // From version 8 on the number of the architecture lies one byte higher.
        (190, 2) => Ok(Some(format!("sm_{}", if abi_version >= 8 { flags >> 8 & 0xff } else { flags & 0xff }))),
        _ => Ok(None),
    }
}

/// `gfx906:sramecc+:xnack-`; a feature that any setting is good for is not named.
pub(crate) fn amd_target(flags: u32) -> Result<String, String> {
    let machine = flags & 0xff;
    let known = AMD_MACHINES.iter().find(|(number, _)| *number == machine);
    let (_, name) = known.ok_or_else(|| format!("a code object for AMD machine {machine:#x}, which is not known"))?;
    let feature = |bits: u32, word: &str| match bits {
        2 => format!(":{word}-"),
        3 => format!(":{word}+"),
        _ => String::new(),
    };
    Ok(format!("{name}{}{}", feature(flags >> 10 & 3, "sramecc"), feature(flags >> 8 & 3, "xnack")))
}

const AMD_MACHINES: &[(u32, &str)] = &[
    (0x2c, "gfx900"),
    (0x2d, "gfx902"),
    (0x2e, "gfx904"),
    (0x2f, "gfx906"),
    (0x30, "gfx908"),
    (0x31, "gfx909"),
    (0x32, "gfx90c"),
    (0x33, "gfx1010"),
    (0x34, "gfx1011"),
    (0x35, "gfx1012"),
    (0x36, "gfx1030"),
    (0x37, "gfx1031"),
    (0x38, "gfx1032"),
    (0x39, "gfx1033"),
    (0x3d, "gfx1035"),
    (0x3e, "gfx1034"),
    (0x3f, "gfx90a"),
    (0x41, "gfx1100"),
    (0x42, "gfx1013"),
    (0x43, "gfx1150"),
    (0x44, "gfx1103"),
    (0x45, "gfx1036"),
    (0x46, "gfx1101"),
    (0x47, "gfx1102"),
    (0x48, "gfx1200"),
    (0x4a, "gfx1151"),
    (0x4c, "gfx942"),
    (0x4e, "gfx1201"),
    (0x4f, "gfx950"),
];

/// `compute_80` of a PTX text: its header is three lines, version, target and address size.
fn ptx_target(text: &[u8]) -> Option<String> {
    let head = std::str::from_utf8(&text[..text.len().min(200)])
        .or_else(|error| std::str::from_utf8(&text[..error.valid_up_to()]));
    let mut lines = head.ok()?.lines();
    let version = lines.next()?.strip_prefix(".version ")?;
    let number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    let target = lines.next()?.strip_prefix(".target sm_")?.split([',', ' ']).next()?;
    (number(version.trim()) && target.starts_with(|c: char| c.is_ascii_digit())).then(|| format!("compute_{target}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(machine: u16, abi_version: u8, flags: u32) -> Vec<u8> {
        let mut image = vec![0_u8; 64];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        image[8] = abi_version;
        image[18..20].copy_from_slice(&machine.to_le_bytes());
        image[48..52].copy_from_slice(&flags.to_le_bytes());
        image
    }

    #[test]
    fn targets_come_from_the_headers_with_their_features() {
        let target = |image: &[u8]| gpu_targets(image).unwrap().into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(target(&image(224, 3, 0x52f)), "gfx906");
        assert_eq!(target(&image(224, 3, 0x62f)), "gfx906:xnack-");
        assert_eq!(target(&image(224, 3, 0xf30)), "gfx908:sramecc+:xnack+");
        assert_eq!(target(&image(224, 3, 0x041)), "gfx1100");
        assert_eq!(target(&image(190, 8, 0x0600_5a04)), "sm_90");
        assert_eq!(target(&image(190, 7, 0x0050_0550)), "sm_80");
        assert_eq!(target(&image(62, 0, 0)), "");
        let mut both = b"text .version 8.0\n.target sm_80\n.address_size 64\n\0".to_vec();
        both.extend(image(224, 3, 0x046));
        assert_eq!(target(&both), "compute_80 gfx1101");
        assert_eq!(target(b".version of what\n.target sm_80\n"), "");
        assert!(gpu_targets(&image(224, 3, 0x00fe)).unwrap_err().contains("0xfe"));
        assert!(gpu_targets(b"CCOB\x02\0").unwrap_err().contains("compressed"));
    }

    #[test]
    fn this_test_is_an_elf_file_that_needs_libc() {
        let bytes = fs_err::read(std::env::current_exe().unwrap()).unwrap();
        let facts = elf_facts(&bytes).unwrap().unwrap();
        assert!(facts.needed.iter().any(|name| name.starts_with("libc.so")), "{facts:?}");
        assert!(facts.libc_floor.unwrap().starts_with("2."));
        assert_eq!(facts.machine, std::env::consts::ARCH);
        assert_eq!(elf_facts(b"#!/bin/sh").unwrap(), None);
        assert!(elf_facts(&bytes[..40]).is_err());
    }

    #[test]
    fn floors_compare_as_numbers() {
        let mut floor = None;
        for name in ["GLIBC_2.4", "GLIBC_2.28", "GLIBC_2.9", "GLIBC_PRIVATE", "GLIBCXX_3.4.30", "GLIBC_2.2.5"] {
            raise(&mut floor, name, "GLIBC_");
        }
        assert_eq!(floor.as_deref(), Some("2.28"));
    }
}
