//! GGUF files, versions 2 and 3, little-endian: opened by memory map, split sets joined, every
//! number checked before it is used.
//!
//! What opening guarantees to everything behind it:
//! - tensor ranges lie inside their file, start at a multiple of the alignment, hold whole rows of
//!   their format, and do not overlap, so that the sum of all tensors is at most the file's size;
//! - names and keys are unique; keys and strings that come as [`Value::Str`] are UTF-8;
//! - memory taken is bounded by header bytes that exist (a header over [`MAX_HEADER_BYTES`] is refused);
//! - the content of tensors is *not* looked at: any bits are a valid block of any format.
//!
//! The file must stay as it is while it is open. See [`Gguf::check_unchanged`] for what happens
//! when it does not.

mod looks_like;
mod mapping;
mod parse;
mod split;
mod tensor;
mod value;
pub mod writer;

use crate::ModelError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use looks_like::LooksLike;
pub use mapping::{Mapping, guard_mappings};
pub use parse::{MAX_HEADER_BYTES, MAX_KEYS, MAX_TENSOR_BYTES, MAX_TENSORS};
pub use tensor::{ForeignTensor, TensorInfo, type_name};
pub use value::{Array, Value, ValueType};

/// One file of a model; a model that is not split has one.
#[derive(Debug)]
pub struct Part {
    pub path: PathBuf,
    pub file_bytes: u64,
    /// The whole file. Holding it keeps the mapping alive beyond the `Gguf`.
    pub map: Arc<Mapping>,
}

/// An open model: its metadata, its tensors' places, and the mappings of all its parts.
#[derive(Debug)]
pub struct Gguf {
    parts: Vec<Part>,
    version: u32,
    alignment: u64,
    values: Index<(String, Value)>,
    tensors: Index<TensorInfo>,
    foreign: Vec<ForeignTensor>,
}

impl Gguf {
    /// Opens a model. Any part of a split model opens all of it; the other parts are looked for
    /// beside it under the names that the format prescribes.
    ///
    /// Fails on the first thing that is wrong, and with `UnsupportedTensorType` when a tensor has
    /// a format that this build does not read.
    pub fn open(path: &Path) -> Result<Gguf, ModelError> {
        Gguf::open_lenient(path)?.all_readable()
    }

    /// As [`Gguf::open`], but tensors of formats that this build does not read are listed in
    /// [`Gguf::foreign_tensors`] instead of refused: for inspecting, and for the tokenizer alone.
    pub fn open_lenient(path: &Path) -> Result<Gguf, ModelError> {
        split::open(path)
    }

    /// A model out of memory, for tests and fuzzing. It has one part; `label` stands where a path
    /// would in messages.
    pub fn from_bytes(label: &str, bytes: Vec<u8>) -> Result<Gguf, ModelError> {
        Gguf::from_bytes_lenient(label, bytes)?.all_readable()
    }

    /// As [`Gguf::from_bytes`], with unreadable formats as in [`Gguf::open_lenient`].
    pub fn from_bytes_lenient(label: &str, bytes: Vec<u8>) -> Result<Gguf, ModelError> {
        split::from_bytes(Path::new(label), bytes)
    }

    fn all_readable(self) -> Result<Gguf, ModelError> {
        match self.foreign.first() {
            None => Ok(self),
            Some(foreign) => Err(self.unsupported(foreign)),
        }
    }

    /// Metadata of this key. Keys of later parts of a split model are not metadata.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.values.find(key).map(|(_, value)| value)
    }

    /// All metadata in file order.
    pub fn keys(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.items.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// `general.architecture`.
    pub fn architecture(&self) -> Result<&str, ModelError> {
        self.require_str("general.architecture")
    }

    /// The key `<architecture>.<suffix>`, if the model has an architecture and that key.
    pub fn arch_value(&self, suffix: &str) -> Option<&Value> {
        self.value(&self.arch_key(suffix)?)
    }

    /// `<architecture>.<suffix>`.
    pub fn arch_key(&self, suffix: &str) -> Option<String> {
        self.value("general.architecture")?.as_str().map(|architecture| format!("{architecture}.{suffix}"))
    }

    pub fn require(&self, key: &str) -> Result<&Value, ModelError> {
        self.value(key).ok_or_else(|| ModelError::MissingKey { path: self.path().to_owned(), key: key.to_owned() })
    }

    pub fn require_str(&self, key: &str) -> Result<&str, ModelError> {
        let value = self.require(key)?;
        value.as_str().ok_or_else(|| self.wrong_type(key, "a string", value))
    }

    pub fn require_u64(&self, key: &str) -> Result<u64, ModelError> {
        let value = self.require(key)?;
        value.as_u64().ok_or_else(|| self.wrong_type(key, "a whole number from 0 on", value))
    }

    pub fn require_u32(&self, key: &str) -> Result<u32, ModelError> {
        let value = self.require(key)?;
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| self.wrong_type(key, "a whole number below 2^32", value))
    }

    pub fn require_f64(&self, key: &str) -> Result<f64, ModelError> {
        let value = self.require(key)?;
        value.as_f64().ok_or_else(|| self.wrong_type(key, "a number", value))
    }

    pub fn require_bool(&self, key: &str) -> Result<bool, ModelError> {
        let value = self.require(key)?;
        value.as_bool().ok_or_else(|| self.wrong_type(key, "true or false", value))
    }

    pub fn require_array(&self, key: &str) -> Result<&Array, ModelError> {
        let value = self.require(key)?;
        value.as_array().ok_or_else(|| self.wrong_type(key, "an array", value))
    }

    /// `None` when the key is absent; a key of another type is an error all the same.
    pub fn optional_str(&self, key: &str) -> Result<Option<&str>, ModelError> {
        self.value(key).map(|_| self.require_str(key)).transpose()
    }

    /// As [`Gguf::optional_str`].
    pub fn optional_u64(&self, key: &str) -> Result<Option<u64>, ModelError> {
        self.value(key).map(|_| self.require_u64(key)).transpose()
    }

    /// As [`Gguf::optional_str`].
    pub fn optional_u32(&self, key: &str) -> Result<Option<u32>, ModelError> {
        self.value(key).map(|_| self.require_u32(key)).transpose()
    }

    /// As [`Gguf::optional_str`].
    pub fn optional_f64(&self, key: &str) -> Result<Option<f64>, ModelError> {
        self.value(key).map(|_| self.require_f64(key)).transpose()
    }

    /// As [`Gguf::optional_str`].
    pub fn optional_bool(&self, key: &str) -> Result<Option<bool>, ModelError> {
        self.value(key).map(|_| self.require_bool(key)).transpose()
    }

    /// As [`Gguf::optional_str`].
    pub fn optional_array(&self, key: &str) -> Result<Option<&Array>, ModelError> {
        self.value(key).map(|_| self.require_array(key)).transpose()
    }

    /// The error that says what `key` holds and what it should.
    pub fn wrong_type(&self, key: &str, expected: &'static str, got: &Value) -> ModelError {
        ModelError::WrongType { path: self.path().to_owned(), key: key.to_owned(), expected, got: got.brief() }
    }

    /// The error that says why the value of `key` cannot be.
    pub fn bad_key(&self, key: &str, problem: impl Into<String>) -> ModelError {
        ModelError::Bad { path: self.path().to_owned(), place: format!("key `{key}`"), problem: problem.into() }
    }

    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.find(name)
    }

    /// The tensor, or why it cannot be had: absent, or of a format that this build does not read.
    pub fn require_tensor(&self, name: &str) -> Result<&TensorInfo, ModelError> {
        self.tensor(name).ok_or_else(|| match self.foreign.iter().find(|foreign| foreign.name == name) {
            Some(foreign) => self.unsupported(foreign),
            None => ModelError::MissingTensor { path: self.path().to_owned(), tensor: name.to_owned() },
        })
    }

    /// The tensor, which must have this shape; trailing ones of either shape do not count.
    pub fn require_shaped(&self, name: &str, shape: &[u64]) -> Result<&TensorInfo, ModelError> {
        let tensor = self.require_tensor(name)?;
        if tensor.has_shape(shape) {
            return Ok(tensor);
        }
        Err(ModelError::BadShape {
            path: self.path().to_owned(),
            tensor: name.to_owned(),
            expected: tensor::shape_text(shape),
            got: tensor::shape_text(tensor.shape()),
        })
    }

    /// All readable tensors, part by part in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors.items
    }

    /// Tensors that were left out because this build does not read their format. Empty unless the
    /// model was opened leniently.
    pub fn foreign_tensors(&self) -> &[ForeignTensor] {
        &self.foreign
    }

    /// The tensor's bytes in the mapping. `tensor` must come from this model (panics otherwise).
    pub fn tensor_data(&self, tensor: &TensorInfo) -> &[u8] {
        let range = tensor.offset as usize..(tensor.offset + tensor.bytes) as usize;
        self.parts[tensor.part].map.bytes().get(range).expect("the tensor comes from another model")
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The first part's path: what messages about this model name.
    pub fn path(&self) -> &Path {
        &self.parts[0].path
    }

    /// GGUF version: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// `general.alignment`, bytes; 32 when the file does not say.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Compares each part's size on disk with the size it had when it was opened.
    ///
    /// Call it before work that reads much of the model (loading, a request). Between this call
    /// and the reads a file can still shrink; a read beyond its new end would then be a SIGBUS,
    /// unless the program installed [`guard_mappings`], in which case such reads give zeros and
    /// the next call of this function returns the error. Overwriting a file in place without
    /// changing its size is not noticed: the model then holds what was written.
    pub fn check_unchanged(&self) -> Result<(), ModelError> {
        self.parts.iter().try_for_each(|part| part.map.check_unchanged(&part.path))
    }

    fn unsupported(&self, foreign: &ForeignTensor) -> ModelError {
        ModelError::UnsupportedTensorType {
            path: self.parts[foreign.part].path.clone(),
            tensor: foreign.name.clone(),
            number: foreign.type_number,
            name: type_name(foreign.type_number),
        }
    }
}

/// Items in file order, with an order by name beside them: no second copy of the names, and no
/// hash function that a file could be made against.
#[derive(Debug)]
struct Index<T> {
    items: Vec<T>,
    by_name: Vec<u32>,
}

trait Named {
    fn name(&self) -> &str;
}

impl Named for (String, Value) {
    fn name(&self) -> &str {
        &self.0
    }
}

impl Named for TensorInfo {
    fn name(&self) -> &str {
        &self.name
    }
}

impl<T: Named> Index<T> {
    fn new(items: Vec<T>) -> Self {
        // Counts are limited far below 2^32 by the parser.
        let mut by_name: Vec<u32> = (0..items.len() as u32).collect();
        by_name.sort_by(|a, b| items[*a as usize].name().cmp(items[*b as usize].name()));
        Index { items, by_name }
    }

    fn find(&self, name: &str) -> Option<&T> {
        let found = self.by_name.binary_search_by(|index| self.items[*index as usize].name().cmp(name)).ok()?;
        Some(&self.items[self.by_name[found] as usize])
    }

    /// A name that occurs more than once.
    fn duplicate(&self) -> Option<&str> {
        let names = || self.by_name.iter().map(|index| self.items[*index as usize].name());
        names().zip(names().skip(1)).find(|(a, b)| a == b).map(|(name, _)| name)
    }
}
