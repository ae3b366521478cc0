//! A staged file, read once: size, digests, and what an ELF file or GPU code in it says of itself.

use crate::stage::{Content, Staged};
use crate::{PackageError, elf, gpu};
use memchr::memmem;
use std::collections::BTreeSet;
use std::io::Cursor;
use std::path::Path;
use strata_manifest::{BuildRecord, CHUNK_BYTES, Document, FileMode, PackageFile, PackagePath, Role, Sha256Digest};

/// A file as the manifest lists it, with what else is known of it.
#[derive(Debug, Clone)]
pub(crate) struct Described {
    pub(crate) listed: PackageFile,
    pub(crate) content: Content,
    pub(crate) record: Option<BuildRecord>,
    pub(crate) needed: Vec<String>,
    /// Names under which others may need it.
    pub(crate) provides: Vec<String>,
    pub(crate) libc_floor: Option<String>,
    pub(crate) libstdcxx_floor: Option<String>,
    pub(crate) gpu_targets: BTreeSet<String>,
}

/// Reads every staged file.
pub(crate) fn describe(staged: Vec<Staged>, cpu_arch: &str) -> Result<Vec<Described>, PackageError> {
    staged.into_iter().map(|file| one(file, cpu_arch)).collect()
}

impl Described {
    pub(crate) fn of_text(path: PackagePath, text: String, role: Role) -> Self {
        Self::of_bytes(path, text.into_bytes(), role)
    }

    pub(crate) fn of_bytes(path: PackagePath, bytes: Vec<u8>, role: Role) -> Self {
        let listed = listed(path, FileMode::Plain, role, &bytes);
        Self::bare(listed, Content::Bytes(bytes))
    }

    fn bare(listed: PackageFile, content: Content) -> Self {
        Described {
            listed,
            content,
            record: None,
            needed: Vec::new(),
            provides: Vec::new(),
            libc_floor: None,
            libstdcxx_floor: None,
            gpu_targets: BTreeSet::new(),
        }
    }
}

fn listed(path: PackagePath, mode: FileMode, role: Role, bytes: &[u8]) -> PackageFile {
    let size = bytes.len() as u64;
    let chunks = if size > CHUNK_BYTES {
        bytes.chunks(CHUNK_BYTES as usize).map(Sha256Digest::of_bytes).collect()
    } else {
        Vec::new()
    };
    PackageFile { path, size, mode, sha256: Sha256Digest::of_bytes(bytes), role, chunks }
}

fn one(file: Staged, cpu_arch: &str) -> Result<Described, PackageError> {
    let bytes = match &file.content {
        Content::File(path) => fs_err::read(path).map_err(PackageError::unreadable(path))?,
        Content::Bytes(bytes) => bytes.clone(),
    };
    let path = file.path.to_string();
    let broken = |why: String| PackageError::Disagrees {
        path: path.clone(),
        what: "cannot be read as what it is",
        expected: "a whole ELF file".to_owned(),
        got: why,
    };
    let mut described = Described::bare(listed(file.path, file.mode, file.role, &bytes), file.content);
    described.provides.push(described.listed.path.file_name().to_owned());
    let code = matches!(file.role, Role::Binary | Role::Plugin | Role::RuntimeLib | Role::Kernel);
    if !code {
        return Ok(described);
    }
    if let Some(facts) = elf::inspect_bytes(&bytes).map_err(&broken)? {
        if facts.machine != cpu_arch {
            let (expected, got) = (cpu_arch.to_owned(), facts.machine);
            return Err(PackageError::Disagrees { path, what: "is for another processor", expected, got });
        }
        let record = facts.record.map(|text| BuildRecord::parse(&text, Path::new(&path))).transpose()?;
        described.record = record;
        described.needed = facts.needed;
        described.provides.extend(facts.soname);
        let versions = || facts.versions.iter().map(|(_, version)| version.as_str());
        described.libc_floor = elf::floor(versions(), "GLIBC_");
        described.libstdcxx_floor = elf::floor(versions(), "GLIBCXX_");
    }
    // Programs of ours hold no GPU code, and may well hold these words as text.
    if file.role != Role::Binary {
        described.gpu_targets = gpu_targets(&bytes).map_err(&broken)?;
    }
    Ok(described)
}

/// GPU targets of everything that lies in a file of ours. A compressed bundle of AMD's is an error here: our
/// own builds make none.
fn gpu_targets(bytes: &[u8]) -> Result<BTreeSet<String>, String> {
    let hip = memmem::find(bytes, b".hip_fatbin\0").is_some() || bytes.starts_with(b"CCOB");
    if let Some(at) = memmem::find(bytes, b"CCOB").filter(|_| hip) {
        return Err(format!("it holds a compressed offload bundle at byte {at}: build without compression"));
    }
    let facts = gpu::scan(&mut Cursor::new(bytes)).map_err(|error| error.to_string())?;
    match facts.unreadable.into_iter().next() {
        Some(why) => Err(why),
        None => Ok(facts.targets),
    }
}

#[cfg(test)]
mod tests {
    use super::gpu_targets;

    #[test]
    fn compressed_and_unknown_gpu_code_is_refused() {
        assert!(gpu_targets(b"CCOB\x02\0").unwrap_err().contains("compressed"));
        let mut image = vec![0_u8; 64];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        image[18..20].copy_from_slice(&224_u16.to_le_bytes());
        image[48..52].copy_from_slice(&0xfe_u32.to_le_bytes());
        assert!(gpu_targets(&image).unwrap_err().contains("0xfe"));
        image[48] = 0x46;
        assert_eq!(gpu_targets(&image).unwrap().into_iter().collect::<Vec<_>>(), ["gfx1101"]);
    }
}
