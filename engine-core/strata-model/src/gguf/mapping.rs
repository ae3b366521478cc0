//! A model file's bytes: mapped from disk, or held in memory for tests. The only place of this
//! crate with unsafe code.
#![expect(unsafe_code, reason = "memory-mapping a file and outliving its shrinking are unsafe calls")]

mod guard;

use crate::ModelError;
use guard::Watch;
use std::path::Path;

pub use guard::guard_mappings;

/// The bytes of one file, for as long as this lives.
#[derive(Debug)]
pub struct Mapping {
    source: Source,
}

#[derive(Debug)]
enum Source {
    // The watch ends before the mapping does.
    Mapped { watch: Watch, map: memmap2::Mmap, file: fs_err::File },
    Memory(Vec<u8>),
}

impl Mapping {
    /// Maps a regular file. Nothing of it is read yet.
    pub(super) fn open(path: &Path) -> Result<Mapping, ModelError> {
        let io = |source| ModelError::Io { path: path.to_owned(), source };
        // Looked at before opening: opening a FIFO would wait for a writer.
        let metadata = fs_err::metadata(path).map_err(io)?;
        if !metadata.is_file() {
            return Err(io(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file")));
        }
        let file = fs_err::File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.len() == 0 {
            return Ok(Mapping::from_memory(Vec::new()));
        }
        // SAFETY: the mapping is read-only and private. That nobody changes or shortens the file
        // meanwhile is up to whoever runs the program; the crate relies on it for no invariant
        // that was checked before a read: text is checked as UTF-8 at each access and every range
        // is taken from bounds that were copied out of the file.
        let map = unsafe { memmap2::MmapOptions::new().map(&file) }.map_err(io)?;
        Ok(Mapping { source: Source::Mapped { watch: Watch::new(&map), map, file } })
    }

    pub(super) fn from_memory(bytes: Vec<u8>) -> Mapping {
        Mapping { source: Source::Memory(bytes) }
    }

    pub fn bytes(&self) -> &[u8] {
        match &self.source {
            Source::Mapped { map, .. } => map,
            Source::Memory(bytes) => bytes,
        }
    }

    /// Asks the system to read a range ahead. Advice: failure and ranges outside are ignored.
    pub fn prefetch(&self, offset: u64, bytes: u64) {
        let Source::Mapped { map, .. } = &self.source else { return };
        let len = map.len() as u64;
        if offset < len {
            let _ = map.advise_range(memmap2::Advice::WillNeed, offset as usize, bytes.min(len - offset) as usize);
        }
    }

    /// See [`crate::gguf::Gguf::check_unchanged`].
    pub(super) fn check_unchanged(&self, path: &Path) -> Result<(), ModelError> {
        let Source::Mapped { watch, map, file } = &self.source else { return Ok(()) };
        let now = file.metadata().map_err(|source| ModelError::Io { path: path.to_owned(), source })?.len();
        let opened = map.len() as u64;
        if now != opened {
            return Err(ModelError::Changed { path: path.to_owned(), opened, now });
        }
        if watch.faulted() {
            return Err(ModelError::ReadFault { path: path.to_owned() });
        }
        Ok(())
    }
}
