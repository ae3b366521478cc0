//! A kernel's argument struct as bytes, built field by field with C's alignment. The order of the
//! calls is the order of the fields in the `.cu` file, which is the law.

/// The bytes so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Params {
    bytes: Vec<u8>,
}

impl Params {
    pub(crate) fn new() -> Params {
        Params { bytes: Vec::with_capacity(160) }
    }

    fn push(mut self, bytes: &[u8]) -> Params {
        let aligned = self.bytes.len().next_multiple_of(bytes.len());
        self.bytes.resize(aligned, 0);
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// An address; 0 is null.
    pub(crate) fn ptr(self, address: u64) -> Params {
        self.push(&address.to_ne_bytes())
    }

    pub(crate) fn i64(self, value: u64) -> Params {
        self.push(&value.to_ne_bytes())
    }

    pub(crate) fn i64s(self, values: &[u64]) -> Params {
        values.iter().fold(self, |params, value| params.i64(*value))
    }

    pub(crate) fn i32(self, value: i64) -> Params {
        self.push(&(value as i32).to_ne_bytes())
    }

    /// A length or a stride that fits, since the host's tensors are below 2^31 elements a row.
    pub(crate) fn n(self, value: u64) -> Params {
        self.push(&(value as u32).to_ne_bytes())
    }

    pub(crate) fn f32(self, value: f32) -> Params {
        self.push(&value.to_ne_bytes())
    }

    /// Padded to the struct's alignment, which every struct here has because of its pointers.
    pub(crate) fn done(mut self) -> Vec<u8> {
        let whole = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(whole, 0);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_aligned_as_in_c() {
        let bytes = Params::new().i32(1).ptr(2).n(3).f32(0.5).i32(-1).done();
        assert_eq!(bytes.len(), 32);
        assert_eq!(bytes[0..4], 1_i32.to_ne_bytes());
        assert_eq!(bytes[8..16], 2_u64.to_ne_bytes());
        assert_eq!(bytes[20..24], 0.5_f32.to_ne_bytes());
        assert_eq!(bytes[24..28], (-1_i32).to_ne_bytes());
    }
}
