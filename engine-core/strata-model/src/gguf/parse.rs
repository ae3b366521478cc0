//! One GGUF file's header: reads every field through bounds, and says which field is wrong.
//!
//! Two kinds of wrong are kept apart. A number that no file could honour (it wraps, or exceeds the
//! limits below) makes the file *bad*. A number that only this file cannot honour because it ends
//! too early makes it *truncated*, which is what a stopped download looks like.

use super::tensor::{ForeignTensor, TensorInfo, shape_text};
use super::value::{Array, Value, ValueType, decode_fixed};
use super::{LooksLike, Mapping};
use crate::ModelError;
use std::path::Path;
use std::sync::Arc;
use strata_backend_abi::StrataDType;

/// Longest header (metadata and tensor list), bytes. Real ones have a tenth of it: vocabularies of
/// 262,144 tokens take 6 MB. It bounds what opening any file can cost.
pub const MAX_HEADER_BYTES: u64 = 256 << 20;
/// Most metadata keys; real models have tens.
pub const MAX_KEYS: u64 = 1 << 16;
/// Most tensors of one file; real models have hundreds to some ten thousand.
pub const MAX_TENSORS: u64 = 1 << 18;
/// Most bytes of one tensor: 256 TiB.
pub const MAX_TENSOR_BYTES: u64 = 1 << 48;
/// Longest key, from the format's definition.
const MAX_KEY_BYTES: u64 = (1 << 16) - 1;
/// Longest tensor name; writers keep to 64.
const MAX_NAME_BYTES: u64 = 1024;
/// Greatest alignment that a file may ask for.
const MAX_ALIGNMENT: u64 = 1 << 24;
/// Arrays within arrays.
const MAX_ARRAY_DEPTH: usize = 3;
/// Arrays within arrays in one file, since each costs memory of its own.
const MAX_NESTED_ARRAYS: usize = 1 << 16;

const MAGIC: &[u8; 4] = b"GGUF";
/// Magic, version, tensor count, key count.
const FIXED_HEADER_BYTES: u64 = 24;
const DEFAULT_ALIGNMENT: u64 = 32;

/// What one file's header says, checked against the file.
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) alignment: u64,
    pub(super) values: Vec<(String, Value)>,
    pub(super) tensors: Vec<TensorInfo>,
    pub(super) foreign: Vec<ForeignTensor>,
}

/// Reads the header of the file that `map` holds; `part` goes into its tensors.
pub(super) fn header(path: &Path, map: &Arc<Mapping>, part: usize) -> Result<Header, ModelError> {
    let mut reader = Reader { path, map, pos: 0, nested_arrays: 0 };
    let version = reader.magic_and_version()?;
    let n_tensors = reader.count("tensor count", MAX_TENSORS)?;
    let n_keys = reader.count("key count", MAX_KEYS)?;

    let mut values = Vec::new();
    for index in 0..n_keys {
        values.push(reader.key_value(index)?);
    }
    let alignment = reader.alignment(&values)?;

    let mut raw_tensors = Vec::new();
    for index in 0..n_tensors {
        raw_tensors.push(reader.raw_tensor(index)?);
    }
    let Some(data_start) = (reader.pos as u64).checked_next_multiple_of(alignment) else {
        return Err(reader.bad("header", format!("its length {} wraps when aligned to {alignment}", reader.pos)));
    };

    let mut header = Header { version, alignment, values, tensors: Vec::new(), foreign: Vec::new() };
    for raw in raw_tensors {
        reader.place(raw, part, data_start, &mut header)?;
    }
    reader.check_ranges(&header)?;
    Ok(header)
}

/// A tensor entry as it stands in the file.
struct RawTensor {
    name: String,
    ne: [u64; 4],
    n_dims: usize,
    type_number: u32,
    /// Relative to the data section.
    offset: u64,
}

struct Reader<'a> {
    path: &'a Path,
    map: &'a Arc<Mapping>,
    pos: usize,
    nested_arrays: usize,
}

impl<'a> Reader<'a> {
    fn bad(&self, place: impl Into<String>, problem: impl Into<String>) -> ModelError {
        ModelError::Bad { path: self.path.to_owned(), place: place.into(), problem: problem.into() }
    }

    fn truncated(&self, what: &str, needed: u64, at_least: bool) -> ModelError {
        let present = self.map.bytes().len() as u64;
        ModelError::Truncated { path: self.path.to_owned(), what: what.to_owned(), needed, at_least, present }
    }

    /// The next `n` bytes, which belong to `what`.
    fn take(&mut self, n: u64, what: &str) -> Result<&'a [u8], ModelError> {
        let end = (self.pos as u64).checked_add(n).filter(|end| *end <= MAX_HEADER_BYTES);
        let Some(end) = end else {
            return Err(self.bad(
                what,
                format!("a length of {n} bytes at byte {} exceeds any header ({MAX_HEADER_BYTES} bytes)", self.pos),
            ));
        };
        // `end` is at most MAX_HEADER_BYTES, so it fits usize.
        let Some(bytes) = self.map.bytes().get(self.pos..end as usize) else {
            return Err(self.truncated(what, end, true));
        };
        self.pos = end as usize;
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32, ModelError> {
        let bytes = self.take(4, what)?;
        Ok(u32::from_le_bytes(std::array::from_fn(|i| bytes[i])))
    }

    fn u64(&mut self, what: &str) -> Result<u64, ModelError> {
        let bytes = self.take(8, what)?;
        Ok(u64::from_le_bytes(std::array::from_fn(|i| bytes[i])))
    }

    fn magic_and_version(&mut self) -> Result<u32, ModelError> {
        let bytes = self.map.bytes();
        let start = &bytes[..bytes.len().min(MAGIC.len())];
        if !MAGIC.starts_with(start) {
            let found = if start.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') {
                format!("`{}`", String::from_utf8_lossy(start))
            } else {
                format!("the bytes {start:02x?}")
            };
            let looks_like = LooksLike::guess(bytes);
            return Err(ModelError::NotAModel { path: self.path.to_owned(), found, looks_like });
        }
        if (bytes.len() as u64) < 8 {
            return Err(self.truncated("the header", FIXED_HEADER_BYTES, true));
        }
        self.pos = MAGIC.len();
        let version = self.u32("the header")?;
        match version {
            2 | 3 if (bytes.len() as u64) < FIXED_HEADER_BYTES => {
                Err(self.truncated("the header", FIXED_HEADER_BYTES, true))
            }
            2 | 3 => Ok(version),
            // The version is a small number, so in the other byte order its low half is zero.
            _ if version.trailing_zeros() >= 16 && version != 0 => {
                Err(ModelError::BigEndian { path: self.path.to_owned(), version: version.swap_bytes() })
            }
            _ => Err(ModelError::UnsupportedVersion { path: self.path.to_owned(), version }),
        }
    }

    fn count(&mut self, what: &str, limit: u64) -> Result<u64, ModelError> {
        let count = self.u64("the header")?;
        if count > limit {
            return Err(self.bad("header", format!("a {what} of {count} exceeds the limit of {limit}")));
        }
        Ok(count)
    }

    /// A length-prefixed text of at most `limit` bytes.
    fn text(&mut self, limit: u64, what: &str) -> Result<&'a str, ModelError> {
        let len = self.u64(what)?;
        if len > limit {
            return Err(self.bad(what, format!("a text of {len} bytes exceeds the limit of {limit}")));
        }
        let start = self.pos;
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes).map_err(|error| {
            self.bad(what, format!("the text at byte {start} is not UTF-8 from its byte {} on", error.valid_up_to()))
        })
    }

    fn key_value(&mut self, index: u64) -> Result<(String, Value), ModelError> {
        let key = self.text(MAX_KEY_BYTES, &format!("key number {index}"))?;
        let place = format!("key `{}`", shortened(key));
        if key.is_empty() {
            return Err(self.bad(format!("key number {index}"), "its name has 0 bytes"));
        }
        let value_type = self.value_type(&place)?;
        Ok((key.to_owned(), self.value(value_type, &place)?))
    }

    fn value_type(&mut self, place: &str) -> Result<ValueType, ModelError> {
        let number = self.u32(place)?;
        ValueType::from_number(number).ok_or_else(|| self.bad(place, format!("there is no value type {number}")))
    }

    fn value(&mut self, value_type: ValueType, place: &str) -> Result<Value, ModelError> {
        match value_type {
            ValueType::Str => Ok(Value::Str(self.text(MAX_HEADER_BYTES, place)?.to_owned())),
            ValueType::Array => Ok(Value::Array(self.array(place, 1)?)),
            ValueType::Bool => {
                let raw = self.take(1, place)?;
                self.check_bools(raw, place)?;
                Ok(decode_fixed(value_type, raw))
            }
            fixed => {
                let bytes = fixed.fixed_bytes().unwrap_or_default() as u64;
                Ok(decode_fixed(fixed, self.take(bytes, place)?))
            }
        }
    }

    fn check_bools(&self, raw: &[u8], place: &str) -> Result<(), ModelError> {
        match raw.iter().find(|byte| **byte > 1) {
            None => Ok(()),
            Some(byte) => Err(self.bad(place, format!("a bool is {byte} and neither 0 nor 1"))),
        }
    }

    fn array(&mut self, place: &str, depth: usize) -> Result<Array, ModelError> {
        let element = self.value_type(place)?;
        let len = self.u64(place)?;
        let start = self.pos;
        // An element takes at least this much, so the claim is compared with the file first.
        let least = match element {
            ValueType::Array => 12,
            other => other.fixed_bytes().unwrap_or(8) as u64,
        };
        let Some(least_bytes) = len.checked_mul(least).filter(|bytes| *bytes <= MAX_HEADER_BYTES) else {
            let problem = format!("an array of {len} {} exceeds any header ({MAX_HEADER_BYTES} bytes)", element.name());
            return Err(self.bad(place, problem));
        };
        let elements = self.take(least_bytes, place)?;
        // `take` bounded it by MAX_HEADER_BYTES.
        let len = len as usize;
        match element {
            ValueType::Str => {
                self.pos = start;
                self.strings(len, place)
            }
            ValueType::Array => {
                self.pos = start;
                self.nested(len, place, depth)
            }
            fixed => {
                if fixed == ValueType::Bool {
                    self.check_bools(elements, place)?;
                }
                Ok(Array::fixed(fixed, len, Arc::clone(self.map), start))
            }
        }
    }

    fn strings(&mut self, len: usize, place: &str) -> Result<Array, ModelError> {
        let start = self.pos;
        // At most half of the bytes that the caller has seen to exist.
        let mut firsts = Vec::with_capacity(len + 1);
        for _ in 0..len {
            let bytes = self.u64(place)?;
            // Below MAX_HEADER_BYTES, so it fits.
            firsts.push((self.pos - start) as u32);
            self.take(bytes, place)?;
        }
        firsts.push((self.pos - start + 8) as u32);
        Ok(Array::strings(Arc::clone(self.map), start, firsts.into()))
    }

    fn nested(&mut self, len: usize, place: &str, depth: usize) -> Result<Array, ModelError> {
        if depth >= MAX_ARRAY_DEPTH {
            return Err(
                self.bad(place, format!("arrays are nested {} deep, the limit is {MAX_ARRAY_DEPTH}", depth + 1))
            );
        }
        self.nested_arrays += len;
        if self.nested_arrays > MAX_NESTED_ARRAYS {
            let problem =
                format!("{} arrays within arrays exceed the limit of {MAX_NESTED_ARRAYS}", self.nested_arrays);
            return Err(self.bad(place, problem));
        }
        let arrays: Result<Vec<Array>, ModelError> = (0..len).map(|_| self.array(place, depth + 1)).collect();
        Ok(Array::nested(arrays?))
    }

    fn alignment(&self, values: &[(String, Value)]) -> Result<u64, ModelError> {
        let Some((key, value)) = values.iter().find(|(key, _)| key == "general.alignment") else {
            return Ok(DEFAULT_ALIGNMENT);
        };
        match value.as_u64() {
            Some(alignment) if alignment.is_power_of_two() && alignment <= MAX_ALIGNMENT => Ok(alignment),
            _ => {
                let problem = format!("is {} and not a power of two up to {MAX_ALIGNMENT}", value.brief());
                Err(self.bad(format!("key `{key}`"), problem))
            }
        }
    }

    fn raw_tensor(&mut self, index: u64) -> Result<RawTensor, ModelError> {
        let what = format!("the entry of tensor number {index}");
        let name = self.text(MAX_NAME_BYTES, &what)?;
        if name.is_empty() {
            return Err(self.bad(what, "its name has 0 bytes"));
        }
        let what = format!("the entry of tensor `{}`", shortened(name));
        let n_dims = self.u32(&what)?;
        if !(1..=4).contains(&n_dims) {
            return Err(self.bad(what, format!("it has {n_dims} dimensions, 1 to 4 are possible")));
        }
        let n_dims = n_dims as usize;
        let mut ne = [1; 4];
        for n in &mut ne[..n_dims] {
            *n = self.u64(&what)?;
        }
        let type_number = self.u32(&what)?;
        let offset = self.u64(&what)?;
        Ok(RawTensor { name: name.to_owned(), ne, n_dims, type_number, offset })
    }

    /// Turns an entry into a tensor with a checked size and place. Whether the file reaches that
    /// far is looked at afterwards, when nothing else is wrong with any tensor.
    fn place(&self, raw: RawTensor, part: usize, data_start: u64, header: &mut Header) -> Result<(), ModelError> {
        let RawTensor { name, ne, n_dims, type_number, offset } = raw;
        let place = format!("tensor `{}`", shortened(&name));
        let shape = shape_text(&ne[..n_dims]);
        if ne.contains(&0) {
            return Err(self.bad(place, format!("its shape {shape} has a dimension of 0")));
        }
        let elements = ne.iter().try_fold(1_u64, |product, n| product.checked_mul(*n));
        let Some(elements) = elements.filter(|elements| i64::try_from(*elements).is_ok()) else {
            return Err(self.bad(place, format!("the number of elements of its shape {shape} exceeds 2^63")));
        };
        if !offset.is_multiple_of(header.alignment) {
            let problem = format!("its offset {offset} is no multiple of the alignment {}", header.alignment);
            return Err(self.bad(place, problem));
        }
        let Some(start) = data_start.checked_add(offset) else {
            return Err(self.bad(place, format!("its offset {offset} wraps around")));
        };
        let Some(dtype) = StrataDType::from_number(type_number) else {
            header.foreign.push(ForeignTensor { name, type_number, ne, n_dims, part, offset: start });
            return Ok(());
        };
        if !ne[0].is_multiple_of(dtype.block_len() as u64) {
            let (row, block) = (ne[0], dtype.block_len());
            return Err(
                self.bad(place, format!("its rows of {row} elements are no whole number of {dtype} blocks of {block}"))
            );
        }
        let bytes = dtype.row_bytes(elements).filter(|bytes| *bytes <= MAX_TENSOR_BYTES);
        let Some(bytes) = bytes else {
            return Err(self.bad(place, format!("the bytes of its shape {shape} in {dtype} exceed {MAX_TENSOR_BYTES}")));
        };
        // File sizes are signed 64-bit numbers on every system.
        if start.checked_add(bytes).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(self.bad(place, format!("its offset {offset} and size {bytes} lie beyond any file")));
        }
        header.tensors.push(TensorInfo { name, dtype, ne, n_dims, part, offset: start, bytes });
        Ok(())
    }

    /// No two tensors share bytes, and the last one ends inside the file.
    ///
    /// Shared bytes would be harmless to read, but no writer makes them; they come from offsets
    /// that were computed wrongly, and without them the sum of all tensors is bounded by the file,
    /// which is what memory plans count on.
    fn check_ranges(&self, header: &Header) -> Result<(), ModelError> {
        let mut by_offset: Vec<&TensorInfo> = header.tensors.iter().collect();
        by_offset.sort_by_key(|tensor| (tensor.offset, tensor.bytes));
        for (before, after) in by_offset.iter().zip(by_offset.iter().skip(1)) {
            if before.offset + before.bytes > after.offset {
                let problem = format!(
                    "it starts at byte {}, inside tensor `{}`, which takes {} bytes from byte {} on",
                    after.offset,
                    shortened(&before.name),
                    before.bytes,
                    before.offset
                );
                return Err(self.bad(format!("tensor `{}`", shortened(&after.name)), problem));
            }
        }
        // Tensors do not overlap, so the last one ends last.
        let Some(last) = by_offset.last() else { return Ok(()) };
        let needed = last.offset + last.bytes;
        if needed > self.map.bytes().len() as u64 {
            let at_least = !header.foreign.is_empty();
            return Err(self.truncated(&format!("tensor `{}`", shortened(&last.name)), needed, at_least));
        }
        Ok(())
    }
}

/// A name out of the file, cut to what a message can bear.
fn shortened(name: &str) -> String {
    const LONGEST: usize = 100;
    match name.char_indices().nth(LONGEST) {
        None => name.to_owned(),
        Some((cut, _)) => format!("{}…", &name[..cut]),
    }
}
