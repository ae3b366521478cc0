//! Metadata values. Scalars and strings are copied out of the file; arrays stay in it and are read
//! element by element, with an offset table for strings, since vocabularies have 10^5 entries.

use super::Mapping;
use std::sync::Arc;

/// The types of metadata; the number is the file's.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    Str = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    const ALL: [ValueType; 13] = [
        ValueType::U8,
        ValueType::I8,
        ValueType::U16,
        ValueType::I16,
        ValueType::U32,
        ValueType::I32,
        ValueType::F32,
        ValueType::Bool,
        ValueType::Str,
        ValueType::Array,
        ValueType::U64,
        ValueType::I64,
        ValueType::F64,
    ];

    pub fn from_number(number: u32) -> Option<ValueType> {
        ValueType::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Bytes of a value; `None` for strings and arrays.
    pub fn fixed_bytes(self) -> Option<usize> {
        match self {
            ValueType::U8 | ValueType::I8 | ValueType::Bool => Some(1),
            ValueType::U16 | ValueType::I16 => Some(2),
            ValueType::U32 | ValueType::I32 | ValueType::F32 => Some(4),
            ValueType::U64 | ValueType::I64 | ValueType::F64 => Some(8),
            ValueType::Str | ValueType::Array => None,
        }
    }

    /// `u32`, `str`, `array`.
    pub fn name(self) -> &'static str {
        match self {
            ValueType::U8 => "u8",
            ValueType::I8 => "i8",
            ValueType::U16 => "u16",
            ValueType::I16 => "i16",
            ValueType::U32 => "u32",
            ValueType::I32 => "i32",
            ValueType::F32 => "f32",
            ValueType::Bool => "bool",
            ValueType::Str => "str",
            ValueType::Array => "array",
            ValueType::U64 => "u64",
            ValueType::I64 => "i64",
            ValueType::F64 => "f64",
        }
    }
}

/// One metadata value.
#[derive(Debug, Clone)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::F32(_) => ValueType::F32,
            Value::Bool(_) => ValueType::Bool,
            Value::Str(_) => ValueType::Str,
            Value::Array(_) => ValueType::Array,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F64(_) => ValueType::F64,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Any integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::U64(number) => Some(*number),
            _ => u64::try_from(self.as_i64()?).ok(),
        }
    }

    /// Any integer that fits.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::U8(number) => Some(number.into()),
            Value::I8(number) => Some(number.into()),
            Value::U16(number) => Some(number.into()),
            Value::I16(number) => Some(number.into()),
            Value::U32(number) => Some(number.into()),
            Value::I32(number) => Some(number.into()),
            Value::U64(number) => i64::try_from(number).ok(),
            Value::I64(number) => Some(number),
            _ => None,
        }
    }

    /// Any number. Writers store some of them (rope bases) as integers.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::F32(number) => Some(number.into()),
            Value::F64(number) => Some(number),
            Value::U64(number) => Some(number as f64),
            _ => self.as_i64().map(|number| number as f64),
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&Array> {
        match self {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }

    /// For messages: type and value, long ones cut.
    pub fn brief(&self) -> String {
        match self {
            Value::Array(array) => format!("an array of {} {}", array.len(), array.element_type().name()),
            Value::Str(text) => {
                let cut: String = text.chars().take(40).collect();
                if cut.len() == text.len() { format!("the string `{text}`") } else { format!("the string `{cut}…`") }
            }
            Value::Bool(value) => format!("{value} (bool)"),
            Value::F32(number) => format!("{number} (f32)"),
            Value::F64(number) => format!("{number} (f64)"),
            Value::U64(number) => format!("{number} (u64)"),
            other => format!("{} ({})", other.as_i64().unwrap_or_default(), other.value_type().name()),
        }
    }
}

/// An array of metadata. Cloning is cheap: the elements stay in the mapping.
#[derive(Clone)]
pub struct Array {
    element: ValueType,
    len: usize,
    data: Data,
}

#[derive(Clone)]
enum Data {
    /// `len` values of the element's fixed size from `start` on.
    Fixed {
        map: Arc<Mapping>,
        start: usize,
    },
    /// Strings, each behind its 8 bytes of length. `firsts[i]` is where string i's first byte
    /// lies, relative to `start`; `firsts[len]` is where one more string's would. So string i ends
    /// 8 bytes before `firsts[i + 1]`, and no length is read from the file again.
    Strings {
        map: Arc<Mapping>,
        start: usize,
        firsts: Arc<[u32]>,
    },
    Nested(Arc<[Array]>),
}

impl Array {
    /// `len * element.fixed_bytes()` bytes from `start` on lie inside the mapping.
    pub(super) fn fixed(element: ValueType, len: usize, map: Arc<Mapping>, start: usize) -> Array {
        Array { element, len, data: Data::Fixed { map, start } }
    }

    /// `firsts` as said at `Data::Strings`, with one entry more than there are strings.
    pub(super) fn strings(map: Arc<Mapping>, start: usize, firsts: Arc<[u32]>) -> Array {
        Array { element: ValueType::Str, len: firsts.len() - 1, data: Data::Strings { map, start, firsts } }
    }

    pub(super) fn nested(arrays: Vec<Array>) -> Array {
        Array { element: ValueType::Array, len: arrays.len(), data: Data::Nested(arrays.into()) }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn element_type(&self) -> ValueType {
        self.element
    }

    /// The element as a value of its own; strings that are not UTF-8 have their bad bytes replaced.
    pub fn value_at(&self, index: usize) -> Option<Value> {
        let element = self.element;
        if element == ValueType::Str {
            return Some(Value::Str(String::from_utf8_lossy(self.bytes_at(index)?).into_owned()));
        }
        if element == ValueType::Array {
            return Some(Value::Array(self.array_at(index)?.clone()));
        }
        Some(decode_fixed(element, self.raw_at(index)?))
    }

    /// Bytes of a string, which need not be UTF-8.
    pub fn bytes_at(&self, index: usize) -> Option<&[u8]> {
        let Data::Strings { map, start, firsts } = &self.data else { return None };
        let first = *firsts.get(index)? as usize;
        let end = (*firsts.get(index + 1)? as usize).checked_sub(8)?;
        map.bytes().get(start + first..start + end)
    }

    /// A string; `None` also when its bytes are not UTF-8.
    pub fn str_at(&self, index: usize) -> Option<&str> {
        std::str::from_utf8(self.bytes_at(index)?).ok()
    }

    pub fn array_at(&self, index: usize) -> Option<&Array> {
        match &self.data {
            Data::Nested(arrays) => arrays.get(index),
            _ => None,
        }
    }

    /// Any integer that is not negative.
    pub fn u64_at(&self, index: usize) -> Option<u64> {
        self.number_at(index)?.as_u64()
    }

    /// Any integer that fits.
    pub fn i64_at(&self, index: usize) -> Option<i64> {
        self.number_at(index)?.as_i64()
    }

    /// Any integer that fits.
    pub fn u32_at(&self, index: usize) -> Option<u32> {
        u32::try_from(self.u64_at(index)?).ok()
    }

    /// Any integer that fits.
    pub fn i32_at(&self, index: usize) -> Option<i32> {
        i32::try_from(self.i64_at(index)?).ok()
    }

    /// Any number.
    pub fn f64_at(&self, index: usize) -> Option<f64> {
        self.number_at(index)?.as_f64()
    }

    /// Any number, rounded.
    pub fn f32_at(&self, index: usize) -> Option<f32> {
        Some(self.f64_at(index)? as f32)
    }

    pub fn bool_at(&self, index: usize) -> Option<bool> {
        self.number_at(index)?.as_bool()
    }

    /// All elements as strings; `None` for other arrays. Each is `None` when it is not UTF-8.
    pub fn strs(&self) -> Option<impl ExactSizeIterator<Item = Option<&str>>> {
        (self.element == ValueType::Str).then(|| (0..self.len).map(|index| self.str_at(index)))
    }

    fn number_at(&self, index: usize) -> Option<Value> {
        Some(decode_fixed(self.element, self.raw_at(index)?))
    }

    /// Bytes of a fixed-size element.
    fn raw_at(&self, index: usize) -> Option<&[u8]> {
        let Data::Fixed { map, start } = &self.data else { return None };
        let size = self.element.fixed_bytes()?;
        if index >= self.len {
            return None;
        }
        map.bytes().get(start + index * size..start + (index + 1) * size)
    }
}

impl std::fmt::Debug for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{}; {}]", self.element.name(), self.len)
    }
}

/// Reads a little-endian value of a fixed-size type from exactly its bytes. A `bool` is true for
/// any byte but 0; the parser has refused bytes other than 0 and 1.
pub(super) fn decode_fixed(element: ValueType, raw: &[u8]) -> Value {
    fn le<const N: usize>(raw: &[u8]) -> [u8; N] {
        std::array::from_fn(|i| raw.get(i).copied().unwrap_or_default())
    }
    match element {
        ValueType::U8 => Value::U8(le::<1>(raw)[0]),
        ValueType::I8 => Value::I8(le::<1>(raw)[0].cast_signed()),
        ValueType::U16 => Value::U16(u16::from_le_bytes(le(raw))),
        ValueType::I16 => Value::I16(i16::from_le_bytes(le(raw))),
        ValueType::U32 => Value::U32(u32::from_le_bytes(le(raw))),
        ValueType::I32 => Value::I32(i32::from_le_bytes(le(raw))),
        ValueType::F32 => Value::F32(f32::from_le_bytes(le(raw))),
        ValueType::Bool => Value::Bool(le::<1>(raw)[0] != 0),
        ValueType::U64 => Value::U64(u64::from_le_bytes(le(raw))),
        ValueType::I64 => Value::I64(i64::from_le_bytes(le(raw))),
        ValueType::F64 => Value::F64(f64::from_le_bytes(le(raw))),
        // Not of fixed size: callers handle these before.
        ValueType::Str | ValueType::Array => Value::Str(String::new()),
    }
}
