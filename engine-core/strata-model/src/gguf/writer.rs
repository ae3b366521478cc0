//! Writes small GGUF files: toy models for the tests of every crate. It checks nothing, so that
//! wrong files can be written too, and keeps everything in memory; it is no converter.

use super::ValueType;
use std::path::Path;
use strata_backend_abi::StrataDType;

/// A metadata value to write.
#[derive(Debug, Clone)]
pub enum Meta {
    U8(u8),
    U16(u16),
    U32(u32),
    I32(i32),
    U64(u64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Str(String),
    Strs(Vec<String>),
    U32s(Vec<u32>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
    Bools(Vec<bool>),
    /// Arrays within an array.
    Arrays(Vec<Meta>),
}

macro_rules! from {
    ($($source:ty => $variant:ident),* $(,)?) => {$(
        impl From<$source> for Meta {
            fn from(value: $source) -> Meta {
                Meta::$variant(value.into())
            }
        }
    )*};
}
from! {
    u8 => U8, u16 => U16, u32 => U32, i32 => I32, u64 => U64, f32 => F32, f64 => F64, bool => Bool,
    &str => Str, String => Str, Vec<String> => Strs, Vec<u32> => U32s, Vec<i32> => I32s, Vec<f32> => F32s,
    Vec<bool> => Bools,
}

/// Collects metadata and tensors, then makes the file.
#[derive(Debug, Clone)]
pub struct GgufWriter {
    version: u32,
    alignment: u64,
    values: Vec<(String, Meta)>,
    tensors: Vec<Tensor>,
}

#[derive(Debug, Clone)]
struct Tensor {
    name: String,
    type_number: u32,
    ne: Vec<u64>,
    data: Vec<u8>,
}

impl GgufWriter {
    /// An empty model of this architecture, version 3, alignment 32.
    pub fn new(architecture: &str) -> GgufWriter {
        let mut writer = GgufWriter { version: 3, alignment: 32, values: Vec::new(), tensors: Vec::new() };
        writer.set("general.architecture", architecture);
        writer
    }

    pub fn version(&mut self, version: u32) -> &mut Self {
        self.version = version;
        self
    }

    /// Also writes `general.alignment`.
    pub fn alignment(&mut self, alignment: u32) -> &mut Self {
        self.alignment = alignment.into();
        self.set("general.alignment", alignment)
    }

    /// Appends a key; an existing one is replaced in place.
    pub fn set(&mut self, key: &str, value: impl Into<Meta>) -> &mut Self {
        let value = value.into();
        match self.values.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = value,
            None => self.values.push((key.to_owned(), value)),
        }
        self
    }

    pub fn remove(&mut self, key: &str) -> &mut Self {
        self.values.retain(|(name, _)| name != key);
        self
    }

    /// Appends a tensor whose bytes are in its format already. `ne` lists the contiguous dimension first.
    pub fn tensor(&mut self, name: &str, dtype: StrataDType, ne: &[u64], data: Vec<u8>) -> &mut Self {
        self.raw_tensor(name, dtype as u32, ne, data)
    }

    /// Appends an F32 tensor.
    pub fn tensor_f32(&mut self, name: &str, ne: &[u64], data: &[f32]) -> &mut Self {
        let bytes = data.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.tensor(name, StrataDType::F32, ne, bytes)
    }

    /// Appends a tensor with any format number.
    pub fn raw_tensor(&mut self, name: &str, type_number: u32, ne: &[u64], data: Vec<u8>) -> &mut Self {
        self.tensors.push(Tensor { name: name.to_owned(), type_number, ne: ne.to_vec(), data });
        self
    }

    /// The file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.values.len() as u64).to_le_bytes());
        for (key, value) in &self.values {
            put_text(&mut out, key);
            out.extend((value_type(value) as u32).to_le_bytes());
            put_value(&mut out, value);
        }
        let align = |n: u64| n.next_multiple_of(self.alignment.max(1));
        let mut offset = 0_u64;
        for tensor in &self.tensors {
            put_text(&mut out, &tensor.name);
            out.extend((tensor.ne.len() as u32).to_le_bytes());
            out.extend(tensor.ne.iter().flat_map(|n| n.to_le_bytes()));
            out.extend(tensor.type_number.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset = align(offset + tensor.data.len() as u64);
        }
        for tensor in &self.tensors {
            out.resize(align(out.len() as u64) as usize, 0);
            out.extend(&tensor.data);
        }
        out
    }

    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        fs_err::write(path, self.to_bytes())
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn value_type(value: &Meta) -> ValueType {
    match value {
        Meta::U8(_) => ValueType::U8,
        Meta::U16(_) => ValueType::U16,
        Meta::U32(_) => ValueType::U32,
        Meta::I32(_) => ValueType::I32,
        Meta::U64(_) => ValueType::U64,
        Meta::F32(_) => ValueType::F32,
        Meta::F64(_) => ValueType::F64,
        Meta::Bool(_) => ValueType::Bool,
        Meta::Str(_) => ValueType::Str,
        Meta::Strs(_) | Meta::U32s(_) | Meta::I32s(_) | Meta::F32s(_) | Meta::Bools(_) | Meta::Arrays(_) => {
            ValueType::Array
        }
    }
}

fn put_value(out: &mut Vec<u8>, value: &Meta) {
    fn array<T>(out: &mut Vec<u8>, element: ValueType, items: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
        out.extend((element as u32).to_le_bytes());
        out.extend((items.len() as u64).to_le_bytes());
        for item in items {
            put(out, item);
        }
    }
    match value {
        Meta::U8(number) => out.push(*number),
        Meta::U16(number) => out.extend(number.to_le_bytes()),
        Meta::U32(number) => out.extend(number.to_le_bytes()),
        Meta::I32(number) => out.extend(number.to_le_bytes()),
        Meta::U64(number) => out.extend(number.to_le_bytes()),
        Meta::F32(number) => out.extend(number.to_le_bytes()),
        Meta::F64(number) => out.extend(number.to_le_bytes()),
        Meta::Bool(value) => out.push(u8::from(*value)),
        Meta::Str(text) => put_text(out, text),
        Meta::Strs(items) => array(out, ValueType::Str, items, |out, text| put_text(out, text)),
        Meta::U32s(items) => array(out, ValueType::U32, items, |out, n| out.extend(n.to_le_bytes())),
        Meta::I32s(items) => array(out, ValueType::I32, items, |out, n| out.extend(n.to_le_bytes())),
        Meta::F32s(items) => array(out, ValueType::F32, items, |out, n| out.extend(n.to_le_bytes())),
        Meta::Bools(items) => array(out, ValueType::Bool, items, |out, b| out.push(u8::from(*b))),
        Meta::Arrays(items) => array(out, ValueType::Array, items, put_value),
    }
}
