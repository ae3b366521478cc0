//! ELF files of unknown origin: what the loader would do with one, read without loading it.
//!
//! 64-bit little-endian files of a processor; code objects of GPUs are `gpu`'s. Memory: what is read is
//! bounded by [`MAX_READ_BYTES`] for a file, whatever its headers claim.

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, Sym};
use object::read::{ReadCache, ReadRef};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// Most bytes of headers and tables that are read of one file.
pub const MAX_READ_BYTES: u64 = 48 << 20;
/// Longest name that is kept, in bytes.
const MAX_NAME: usize = 1024;
/// Most libraries, and most versions, that a file may ask for.
const MAX_ASKED: usize = 2000;
/// Names of exports that are kept; of more, only how many.
const MAX_EXPORTS: usize = 32;
/// Longest build record, in bytes.
const MAX_RECORD: usize = 64 << 10;

/// What an ELF file asks of the machine that it is loaded on.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the file format")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElfFacts {
    /// `x86_64`, `aarch64`, or the number of the machine.
    pub machine: String,
    /// `DT_SONAME`: by which name others ask for it.
    pub soname: Option<String>,
    /// `DT_NEEDED`, in order, and what is loaded like it: filters and auditors.
    pub needed: Vec<String>,
    /// The loader that a program asks for.
    pub interpreter: Option<String>,
    /// Parts of `DT_RPATH`.
    pub rpath: Vec<String>,
    /// Parts of `DT_RUNPATH`.
    pub runpath: Vec<String>,
    /// Versions that it needs of others: library, version.
    pub versions: Vec<(String, String)>,
    /// JSON of the build record in its note.
    pub record: Option<String>,
    /// Names that it defines for others, the first of them.
    pub exports: Vec<String>,
    /// How many it defines.
    pub export_count: usize,
    /// Its stack may hold code: it says so, or does not say that it may not.
    pub executable_stack: bool,
    /// Code is changed while it is loaded.
    pub text_relocations: bool,
    /// It takes room in the static thread-local block, which is scarce when a library is opened at run time.
    pub static_tls: bool,
    /// Whether it is a library or a position-independent program, which say the same in their header.
    pub dynamic: bool,
}

impl ElfFacts {
    /// About how much memory they take.
    pub(crate) fn kept_bytes(&self) -> usize {
        let names = [&self.needed, &self.rpath, &self.runpath, &self.exports];
        let of = |name: &String| name.len() + 32;
        let names: usize = names.into_iter().flatten().map(of).sum();
        let versions: usize = self.versions.iter().map(|(library, version)| of(library) + of(version)).sum();
        let record = self.record.as_ref().map_or(0, String::len);
        500 + names + versions + record
    }
}

/// Reads a file. `None`: not an ELF file, or one of a GPU. The error is a sentence's end.
pub fn inspect(file: &File) -> Result<Option<ElfFacts>, String> {
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let mut head = [0_u8; 20];
    let mut start = file;
    let count =
        start.seek(SeekFrom::Start(0)).and_then(|_| start.read(&mut head)).map_err(|error| error.to_string())?;
    if count < 20 || !head.starts_with(b"\x7fELF") {
        return Ok(None);
    }
    if head[4..6] != [2, 1] {
        return Err("it is no 64-bit little-endian ELF file, and no other is read".to_owned());
    }
    let limited = Limited { file, length, at: 0, left: MAX_READ_BYTES };
    facts(&ReadCache::new(limited))
}

/// Reads an ELF file that lies in memory.
pub fn inspect_bytes(bytes: &[u8]) -> Result<Option<ElfFacts>, String> {
    if bytes.len() < 20 || !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Ok(None);
    }
    facts(bytes)
}

fn facts<'d>(data: impl ReadRef<'d>) -> Result<Option<ElfFacts>, String> {
    let text = |error: object::read::Error| error.to_string();
    let header = FileHeader64::<Endianness>::parse(data).map_err(text)?;
    let endian = header.endian().map_err(text)?;
    let machine = match header.e_machine(endian) {
        elf::EM_AMDGPU | elf::EM_CUDA => return Ok(None),
        elf::EM_X86_64 => "x86_64".to_owned(),
        elf::EM_AARCH64 => "aarch64".to_owned(),
        other => format!("machine {other:?}"),
    };
    let mut facts = ElfFacts { machine, dynamic: header.e_type(endian) == elf::ET_DYN, ..ElfFacts::default() };
    segments(header, endian, data, &mut facts).map_err(text)?;
    let mut seen = Tables::default();
    sections(header, endian, data, &mut facts, &mut seen).map_err(text)?;
    seen.are_the_loaders(header, endian, data)?;
    if facts.needed.len().max(facts.versions.len()) > MAX_ASKED {
        return Err(format!("it asks for more than {MAX_ASKED} libraries or versions"));
    }
    Ok(Some(facts))
}

type Parsed<T = ()> = object::read::Result<T>;

fn segments<'d, R: ReadRef<'d>>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: R,
    facts: &mut ElfFacts,
) -> Parsed {
    let mut stack = None;
    for segment in header.program_headers(endian, data)? {
        if segment.p_type(endian) == elf::PT_GNU_STACK {
            stack = Some(segment.p_flags(endian));
        }
        if let Some(path) = segment.interpreter(endian, data)? {
            facts.interpreter = Some(String::from_utf8_lossy(&path[..path.len().min(MAX_NAME)]).into_owned());
        }
        if let Some(mut notes) = segment.notes(endian, data)? {
            while let Some(note) = notes.next()? {
                if note.name() == b"Strata" && note.desc().len() <= MAX_RECORD {
                    facts.record = Some(String::from_utf8_lossy(note.desc()).into_owned());
                }
            }
        }
    }
    facts.executable_stack = stack.is_none_or(|flags| flags & elf::PF_X == elf::PF_X);
    Ok(())
}

fn sections<'d, R: ReadRef<'d>>(
    header: &FileHeader64<Endianness>,
    endian: Endianness,
    data: R,
    facts: &mut ElfFacts,
    seen: &mut Tables,
) -> Parsed {
    let name = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_NAME)]).into_owned();
    let table = header.sections(endian, data)?;
    for section in table.iter() {
        let place = Some(section.sh_offset(endian));
        match section.sh_type(endian) {
            elf::SHT_DYNAMIC => seen.dynamic = Some((section.sh_offset(endian), section.sh_size(endian))),
            elf::SHT_DYNSYM => seen.symbols = place,
            elf::SHT_GNU_VERNEED => seen.versions = place,
            _ => {}
        }
    }
    if let Some((dynamic, strings)) = table.dynamic(endian, data)? {
        seen.strings = Some(table.section(strings)?.sh_offset(endian));
        let strings = table.strings(endian, data, strings)?;
        // The loader stops at the first empty entry.
        for entry in dynamic.iter().take_while(|entry| entry.d_tag(endian) != elf::DT_NULL) {
            let path = |list: &[u8]| {
                // What is not read whole leads nowhere that could be judged.
                let rest = (list.len() > MAX_NAME).then(|| format!("({} bytes in all)", list.len()));
                name(list).split(':').map(str::to_owned).chain(rest).collect::<Vec<_>>()
            };
            if facts.needed.len() > MAX_ASKED {
                break;
            }
            match entry.d_tag(endian) {
                elf::DT_NEEDED | elf::DT_AUDIT | elf::DT_DEPAUDIT | elf::DT_AUXILIARY | elf::DT_FILTER => {
                    facts.needed.push(name(entry.string(endian, strings)?));
                }
                elf::DT_SONAME => facts.soname = Some(name(entry.string(endian, strings)?)),
                elf::DT_RPATH => facts.rpath = path(entry.string(endian, strings)?),
                elf::DT_RUNPATH => facts.runpath = path(entry.string(endian, strings)?),
                elf::DT_TEXTREL => facts.text_relocations = true,
                elf::DT_FLAGS => {
                    let flags = entry.d_val(endian);
                    facts.text_relocations |= flags & 4 != 0;
                    facts.static_tls |= flags & 0x10 != 0;
                }
                _ => {}
            }
        }
    }
    if let Some((mut needs, strings)) = table.gnu_verneed(endian, data)? {
        let strings = table.strings(endian, data, strings)?;
        while let Some((need, mut versions)) = needs.next()? {
            let library = name(need.file(endian, strings)?);
            while let Some(version) = versions.next()?
                && facts.versions.len() <= MAX_ASKED
            {
                facts.versions.push((library.clone(), name(version.name(endian, strings)?)));
            }
        }
    }
    let symbols = table.symbols(endian, data, elf::SHT_DYNSYM)?;
    for symbol in symbols.iter() {
        let public = matches!(symbol.st_bind(), elf::STB_GLOBAL | elf::STB_WEAK | elf::STB_GNU_UNIQUE)
            && matches!(symbol.st_visibility(), elf::STV_DEFAULT | elf::STV_PROTECTED);
        if public && symbol.st_shndx(endian) != elf::SHN_UNDEF {
            facts.export_count += 1;
            if facts.exports.len() < MAX_EXPORTS {
                facts.exports.push(name(symbol.name(endian, symbols.strings())?));
            }
        }
    }
    Ok(())
}

/// Where the tables lie that were read, by the section headers: offsets in the file.
///
/// The loader does not look at section headers: it goes by the segments. A file whose two views differ
/// would show one thing here and do another when it is loaded, so it is refused.
#[derive(Default)]
struct Tables {
    /// Offset and size.
    dynamic: Option<(u64, u64)>,
    strings: Option<u64>,
    symbols: Option<u64>,
    versions: Option<u64>,
}

impl Tables {
    fn are_the_loaders<'d, R: ReadRef<'d>>(
        &self,
        header: &FileHeader64<Endianness>,
        endian: Endianness,
        data: R,
    ) -> Result<(), String> {
        let segments = header.program_headers(endian, data).map_err(|error| error.to_string())?;
        let dynamic: Vec<_> = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_DYNAMIC).collect();
        let loaded: Vec<_> = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD).collect();
        let apart = |pair: &[&elf::ProgramHeader64<Endianness>]| {
            pair[0]
                .p_vaddr(endian)
                .checked_add(pair[0].p_memsz(endian))
                .is_some_and(|end| end <= pair[1].p_vaddr(endian))
        };
        if !loaded.windows(2).all(apart) {
            return Err("segments of it lie over each other in memory".to_owned());
        }
        let place = |address: u64| {
            loaded.iter().find_map(|segment| {
                let within = address.checked_sub(segment.p_vaddr(endian))?;
                (within < segment.p_filesz(endian)).then(|| segment.p_offset(endian).checked_add(within))?
            })
        };
        let differ = |what: &str| Err(format!("its section headers and its segments differ about {what}"));
        let [segment] = dynamic.as_slice() else {
            return match (dynamic.len(), self.dynamic) {
                (0, None) => Ok(()),
                _ => differ("where its dynamic table is"),
            };
        };
        let (offset, size) = (segment.p_offset(endian), segment.p_filesz(endian));
        if self.dynamic != Some((offset, size)) || place(segment.p_vaddr(endian)) != Some(offset) {
            return differ("where its dynamic table is");
        }
        let entries = segment.dynamic(endian, data).map_err(|error| error.to_string())?.unwrap_or_default();
        for entry in entries.iter().take_while(|entry| entry.d_tag(endian) != elf::DT_NULL) {
            let (read, what) = match entry.d_tag(endian) {
                elf::DT_STRTAB => (self.strings, "where its names are"),
                elf::DT_SYMTAB => (self.symbols, "where its symbols are"),
                elf::DT_VERNEED => (self.versions, "which versions it needs"),
                _ => continue,
            };
            if read.is_none() || place(entry.d_val(endian)) != read {
                return differ(what);
            }
        }
        Ok(())
    }
}

/// The highest version with that prefix among those needed: `2.28` of `GLIBC_`.
pub fn floor<'v>(versions: impl Iterator<Item = &'v str>, prefix: &str) -> Option<String> {
    versions
        .filter_map(|name| name.strip_prefix(prefix))
        .filter_map(|text| Some((numbers(text)?, text)))
        .max()
        .map(|(_, text)| text.to_owned())
}

/// `2.28` as numbers, which compare as versions do; `None` for `PRIVATE` and the like.
pub fn numbers(version: &str) -> Option<Vec<u32>> {
    version.split('.').map(|part| part.parse().ok()).collect()
}

/// A file of which only so much is read.
struct Limited<'f> {
    file: &'f File,
    length: u64,
    at: u64,
    left: u64,
}

impl Read for Limited<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = (buffer.len() as u64).min(self.length.saturating_sub(self.at));
        self.left =
            self.left.checked_sub(wanted).ok_or_else(|| io::Error::other("its tables are larger than are read"))?;
        let count = self.file.read(&mut buffer[..wanted as usize])?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Limited<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = self.file.seek(to)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_program_is_read_as_it_is() {
        let facts =
            inspect(&fs_err::File::open(std::env::current_exe().unwrap()).unwrap().into_parts().0).unwrap().unwrap();
        assert_eq!(facts.machine, std::env::consts::ARCH);
        assert!(facts.needed.iter().any(|name| name.starts_with("libc.so")), "{:?}", facts.needed);
        assert!(!facts.executable_stack && !facts.text_relocations && facts.record.is_none());
        let libc = floor(facts.versions.iter().map(|(_, version)| version.as_str()), "GLIBC_").unwrap();
        assert!(libc.starts_with("2."), "{libc}");
    }

    /// Where a section header lies in an ELF file, by the type of its section.
    fn header_of(program: &[u8], wanted: u32) -> usize {
        let long = |at: usize| u64::from_le_bytes(program[at..at + 8].try_into().unwrap()) as usize;
        let count = usize::from(u16::from_le_bytes([program[60], program[61]]));
        let mut headers = (0..count).map(|index| long(40) + 64 * index);
        headers.find(|at| program[at + 4..at + 8] == wanted.to_le_bytes()).unwrap()
    }

    #[test]
    fn a_file_that_shows_other_tables_than_it_is_loaded_with_is_refused() {
        let program = fs_err::read(std::env::current_exe().unwrap()).unwrap();
        assert!(inspect_bytes(&program).unwrap().unwrap().interpreter.unwrap().starts_with("/lib"));
        // Of the dynamic table, its section header moved, then gone; of the names, versions and symbols, moved.
        for (kind, at, value) in [(6_u32, 24, 64_u64), (6, 32, 16), (11, 24, 64), (0x6fff_fffe, 24, 64)] {
            let mut other = program.clone();
            let header = header_of(&program, kind);
            other[header + at..header + at + 8].copy_from_slice(&value.to_le_bytes());
            assert!(inspect_bytes(&other).is_err(), "{kind} {at}");
        }
        let mut stripped = program.clone();
        stripped[40..48].fill(0);
        stripped[58..64].fill(0);
        let why = inspect_bytes(&stripped).unwrap_err();
        assert!(why.contains("its section headers and its segments differ"), "{why}");
    }

    #[test]
    fn floors_compare_as_numbers_and_damage_is_an_error() {
        let names = ["GLIBC_2.4", "GLIBC_2.28", "GLIBC_2.9", "GLIBC_PRIVATE", "GLIBCXX_3.4.30"];
        assert_eq!(floor(names.into_iter(), "GLIBC_").as_deref(), Some("2.28"));
        assert_eq!(floor(["GLIBC_PRIVATE"].into_iter(), "GLIBC_"), None);
        let program = fs_err::read(std::env::current_exe().unwrap()).unwrap();
        for length in [20, 40, 64, 100, 4096] {
            // An error or fewer facts, never a panic.
            let _ = inspect_bytes(&program[..length]);
        }
        let mut huge = program[..64].to_vec();
        huge[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(inspect_bytes(&huge).is_err());
    }
}
