//! The part of MessagePack that notes of code objects are written in: maps, arrays, texts, whole
//! numbers, truth values, nil. Every length is checked against the bytes that are there.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Nil,
    Bool(bool),
    Number(u64),
    Text(String),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

impl Value {
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        let Value::Map(entries) = self else { return None };
        entries.iter().find(|(name, _)| name.text() == Some(key)).map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }

    pub(crate) fn number(&self) -> Option<u64> {
        if let Value::Number(number) = self { Some(*number) } else { None }
    }

    pub(crate) fn list(&self) -> &[Value] {
        if let Value::List(values) = self { values } else { &[] }
    }
}

/// Deeper nesting than notes have.
const DEEPEST: u32 = 16;

/// The first value; what follows it is not looked at.
pub(crate) fn read(bytes: &[u8]) -> Option<Value> {
    Reader { bytes }.value(0)
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(n)?;
        self.bytes = rest;
        Some(taken)
    }

    /// A number of `n` bytes, the first the highest.
    fn wide(&mut self, n: usize) -> Option<u64> {
        Some(self.take(n)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn value(&mut self, depth: u32) -> Option<Value> {
        if depth > DEEPEST {
            return None;
        }
        let tag = *self.take(1)?.first()?;
        Some(match tag {
            0x00..=0x7f => Value::Number(u64::from(tag)),
            0x80..=0x8f => return self.map(usize::from(tag & 15), depth),
            0x90..=0x9f => return self.array(usize::from(tag & 15), depth),
            0xa0..=0xbf => return self.text(usize::from(tag & 31)),
            0xc0 => Value::Nil,
            0xc2 | 0xc3 => Value::Bool(tag == 0xc3),
            0xcc..=0xcf => Value::Number(self.wide(1 << (tag - 0xcc))?),
            0xd9..=0xdb => {
                let n = self.wide(1 << (tag - 0xd9))?;
                return self.text(usize::try_from(n).ok()?);
            }
            0xdc | 0xdd => {
                let n = self.wide(2 << (tag - 0xdc))?;
                return self.array(usize::try_from(n).ok()?, depth);
            }
            0xde | 0xdf => {
                let n = self.wide(2 << (tag - 0xde))?;
                return self.map(usize::try_from(n).ok()?, depth);
            }
            _ => return None,
        })
    }

    fn text(&mut self, n: usize) -> Option<Value> {
        String::from_utf8(self.take(n)?.to_vec()).ok().map(Value::Text)
    }

    fn array(&mut self, n: usize, depth: u32) -> Option<Value> {
        // Each value has a byte at least, so a length beyond the rest is a lie.
        if n > self.bytes.len() {
            return None;
        }
        (0..n).map(|_| self.value(depth + 1)).collect::<Option<Vec<Value>>>().map(Value::List)
    }

    fn map(&mut self, n: usize, depth: u32) -> Option<Value> {
        if n > self.bytes.len() {
            return None;
        }
        let entry = |reader: &mut Self| Some((reader.value(depth + 1)?, reader.value(depth + 1)?));
        (0..n).map(|_| entry(self)).collect::<Option<Vec<_>>>().map(Value::Map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_kind_are_read() {
        let bytes = b"\x83\xa1a\x92\x01\xcd\x01\x00\xa1b\xd9\x02hi\xa1c\xc3";
        let value = read(bytes).unwrap();
        let list: Vec<u64> = value.get("a").unwrap().list().iter().filter_map(Value::number).collect();
        assert_eq!(list, [1, 256]);
        assert_eq!(value.get("b").and_then(Value::text), Some("hi"));
        assert_eq!(value.get("c"), Some(&Value::Bool(true)));
        assert_eq!(value.get("d"), None);
    }

    #[test]
    fn lies_about_lengths_and_depth_are_nothing() {
        for end in 0..16 {
            let _ = read(&b"\x83\xa1a\x92\x01\xcd\x01\x00\xa1b\xd9\x02hi\xa1c\xc3"[..end]);
        }
        assert_eq!(read(b"\xdd\xff\xff\xff\xff\x01"), None);
        assert_eq!(read(b"\xdb\xff\xff\xff\xff"), None);
        assert_eq!(read(&[0x91; 1000]), None);
    }
}
