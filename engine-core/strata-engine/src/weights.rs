//! The graph's view of the file's tensors: each is asked for by name with the shape that the
//! graph needs, and told where it will lie. Asking is the check: what is absent or of another
//! shape is noted here, so that the list of needed tensors exists once, in the graph itself.

use std::collections::BTreeMap;

use strata_backend_abi::{STRATA_BUFFER_ALIGNMENT, StrataDType};
use strata_model::gguf::{Gguf, TensorInfo};

use crate::error::EngineError;

/// Names that are kept of those that are missing.
const MAX_NAMES: usize = 8;

/// Where a weight lies once the model is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the buffer of this split part.
    Part(usize),
    /// In the buffer of small tensors that are converted while loading.
    Converted,
}

/// A placed weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weight {
    pub(crate) dtype: StrataDType,
    pub(crate) ne: [u64; 4],
    /// Bytes from one index to the next, per dimension.
    pub(crate) nb: [u64; 4],
    pub(crate) place: Place,
    pub(crate) offset: u64,
}

impl Weight {
    fn new(dtype: StrataDType, ne: [u64; 4], place: Place, offset: u64) -> Weight {
        let row = dtype.row_bytes(ne[0]).unwrap_or(0);
        let matrix = row.saturating_mul(ne[1]);
        let nb = [dtype.block_bytes() as u64, row, matrix, matrix.saturating_mul(ne[2])];
        Weight { dtype, ne, nb, place, offset }
    }

    /// Rows `first..first + n` of each matrix, in place.
    pub(crate) fn rows(&self, first: u64, n: u64) -> Weight {
        Weight { ne: [self.ne[0], n, self.ne[2], self.ne[3]], offset: self.offset + first * self.nb[1], ..*self }
    }

    /// Elements `first..first + n` of an F32 vector, in place.
    pub(crate) fn elements(&self, first: u64, n: u64) -> Weight {
        Weight { ne: [n, 1, 1, 1], offset: self.offset + first * 4, ..*self }
    }
}

/// What must be done with one tensor of the file when the model is loaded.
#[derive(Debug, Clone)]
pub(crate) struct Placement<'g> {
    pub(crate) weight: Weight,
    pub(crate) tensor: &'g TensorInfo,
}

/// How the parts of the file reach the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartMode {
    /// The mapping itself is the buffer: offsets are those in the file.
    InPlace,
    /// Only what is used is copied, one tensor after another.
    Copied,
}

/// Resolves names. One for all programs of an engine, so that they share placements.
#[derive(Debug)]
pub(crate) struct Weights<'g> {
    gguf: &'g Gguf,
    mode: Vec<PartMode>,
    placed: BTreeMap<String, Placement<'g>>,
    /// Bytes given out so far per copied part.
    part_bytes: Vec<u64>,
    converted_bytes: u64,
    missing: Vec<String>,
    n_missing: usize,
    wrong: Option<EngineError>,
}

impl<'g> Weights<'g> {
    pub(crate) fn new(gguf: &'g Gguf, mode: Vec<PartMode>) -> Weights<'g> {
        Weights {
            gguf,
            part_bytes: vec![0; mode.len()],
            mode,
            placed: BTreeMap::new(),
            converted_bytes: 0,
            missing: Vec::new(),
            n_missing: 0,
            wrong: None,
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// A matrix (or a stack of them) in whatever format the file has it.
    pub(crate) fn matrix(&mut self, name: &str, ne: &[u64]) -> Weight {
        self.place(name, ne, false)
    }

    /// A small tensor that the ops want as F32; converted when it is stored otherwise.
    pub(crate) fn vector(&mut self, name: &str, ne: &[u64]) -> Weight {
        self.place(name, ne, true)
    }

    /// As `vector`, when the file has it.
    pub(crate) fn optional_vector(&mut self, name: &str, ne: &[u64]) -> Option<Weight> {
        self.has(name).then(|| self.vector(name, ne))
    }

    fn place(&mut self, name: &str, ne: &[u64], as_f32: bool) -> Weight {
        if let Some(placement) = self.placed.get(name) {
            return placement.weight;
        }
        let mut full = [1; 4];
        full[..ne.len()].copy_from_slice(ne);
        let fallback = Weight::new(StrataDType::F32, full, Place::Converted, 0);
        let gguf = self.gguf;
        let Some(info) = gguf.tensor(name) else {
            if gguf.foreign_tensors().iter().any(|foreign| foreign.name == name) {
                let reason = gguf.require_tensor(name).err().map(EngineError::from);
                self.wrong = self.wrong.take().or(reason);
                return fallback;
            }
            self.n_missing += 1;
            if self.missing.len() < MAX_NAMES && !self.missing.iter().any(|known| known == name) {
                self.missing.push(name.to_owned());
            }
            return fallback;
        };
        if info.ne != full {
            self.wrong.get_or_insert_with(|| EngineError::BadTensorShape {
                tensor: name.to_owned(),
                expected: ne.to_vec(),
                found: trim(&info.ne),
            });
            return fallback;
        }
        if info.dtype == StrataDType::I32 {
            self.wrong
                .get_or_insert_with(|| EngineError::BadTensorFormat { tensor: name.to_owned(), found: info.dtype });
            return fallback;
        }
        let weight = self.assign(info, full, as_f32);
        self.placed.insert(name.to_owned(), Placement { weight, tensor: info });
        weight
    }

    fn assign(&mut self, info: &TensorInfo, ne: [u64; 4], as_f32: bool) -> Weight {
        if as_f32 && info.dtype != StrataDType::F32 {
            let offset = self.converted_bytes;
            let bytes = ne.iter().product::<u64>() * 4;
            self.converted_bytes = align(offset + bytes);
            return Weight::new(StrataDType::F32, ne, Place::Converted, offset);
        }
        let place = Place::Part(info.part);
        let offset = match self.mode[info.part] {
            PartMode::InPlace => info.offset,
            PartMode::Copied => {
                let offset = self.part_bytes[info.part];
                self.part_bytes[info.part] = align(offset + info.bytes);
                offset
            }
        };
        Weight::new(info.dtype, ne, place, offset)
    }

    /// The first thing that is wrong with the file, if anything is.
    pub(crate) fn check(&mut self, architecture: &str) -> Result<(), EngineError> {
        if self.n_missing > 0 {
            let instead = self.missing.iter().find_map(|name| self.instead_of(name));
            return Err(EngineError::MissingTensors {
                architecture: architecture.to_owned(),
                names: std::mem::take(&mut self.missing),
                total: self.n_missing,
                instead,
            });
        }
        self.wrong.take().map_or(Ok(()), Err)
    }

    /// A dense network asked for where the file has experts, or the other way round.
    fn instead_of(&self, missing: &str) -> Option<String> {
        let stem = missing.strip_suffix(".weight")?;
        let other = match stem.strip_suffix("_exps") {
            Some(dense) => format!("{dense}.weight"),
            None => format!("{stem}_exps.weight"),
        };
        self.has(&other).then(|| {
            format!("'{other}' is there: the metadata (`expert_count`) and the tensors disagree about experts")
        })
    }

    pub(crate) fn n_parts(&self) -> usize {
        self.mode.len()
    }

    pub(crate) fn mode(&self) -> &[PartMode] {
        &self.mode
    }

    /// Bytes of the buffer of each part: the file's size in place, else what was given out.
    pub(crate) fn part_buffer_bytes(&self, part: usize) -> u64 {
        match self.mode[part] {
            PartMode::InPlace => self.gguf.parts()[part].file_bytes,
            PartMode::Copied => self.part_bytes[part],
        }
    }

    pub(crate) fn converted_bytes(&self) -> u64 {
        self.converted_bytes
    }

    /// All placed tensors, in order of their names.
    pub(crate) fn placements(&self) -> impl Iterator<Item = &Placement<'g>> {
        self.placed.values()
    }

    pub(crate) fn gguf(&self) -> &'g Gguf {
        self.gguf
    }

    /// Bytes of the tensors in use, as stored, by whether they are used in place.
    pub(crate) fn bytes_by_mode(&self) -> (u64, u64) {
        let mut in_place = 0;
        let mut copied = self.converted_bytes;
        for placement in self.placed.values() {
            let info = placement.tensor;
            match (placement.weight.place, self.mode[info.part]) {
                (Place::Part(_), PartMode::InPlace) => in_place += info.bytes,
                (Place::Part(_), PartMode::Copied) => copied += info.bytes,
                (Place::Converted, _) => {}
            }
        }
        (in_place, copied)
    }
}

pub(crate) fn align(bytes: u64) -> u64 {
    bytes.next_multiple_of(STRATA_BUFFER_ALIGNMENT)
}

fn trim(ne: &[u64; 4]) -> Vec<u64> {
    let used = ne.iter().rposition(|n| *n != 1).map_or(1, |last| last + 1);
    ne[..used].to_vec()
}
