//! A quick hash for short strings and pairs, with a random key: merging a text asks for several
//! texts a character, and the standard library's hash would be half of that work.
//!
//! It is no cryptographic hash. The key keeps a file that was written to collide from doing so.

use std::hash::{BuildHasher, Hasher, RandomState};

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The key; also a `BuildHasher` for maps with number keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    first: u64,
    second: u64,
}

impl Key {
    pub(super) fn random() -> Self {
        let source = RandomState::new();
        Key { first: source.hash_one(1), second: source.hash_one(2) }
    }

    pub(super) fn hash(self, bytes: &[u8]) -> u64 {
        let mut state = self.first ^ (bytes.len() as u64).wrapping_mul(FACTOR);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            state = fold(state ^ u64::from_le_bytes(*word), self.second);
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        fold(fold(state ^ u64::from_le_bytes(last), self.second), FACTOR ^ self.first)
    }
}

/// Both halves of the product, so that every bit of the input reaches the result's low bits.
fn fold(value: u64, factor: u64) -> u64 {
    let product = u128::from(value) * u128::from(factor | 1);
    (product as u64) ^ ((product >> 64) as u64)
}

impl BuildHasher for Key {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher { key: *self, state: self.first }
    }
}

/// For `u64` keys; other types go through their bytes.
#[derive(Debug)]
pub(super) struct KeyHasher {
    key: Key,
    state: u64,
}

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.state ^= self.key.hash(bytes);
    }

    fn write_u64(&mut self, number: u64) {
        self.state = fold(self.state ^ number, self.key.second);
    }

    fn finish(&self) -> u64 {
        fold(self.state, FACTOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn close_texts_spread_over_the_low_bits() {
        let key = Key::random();
        let texts = (0..10_000).map(|number: u32| format!("{number}"));
        let slots: HashSet<u64> = texts.map(|text| key.hash(text.as_bytes()) & 0xffff).collect();
        // 10,000 balls into 65,536 bins leave about 9,270 bins hit.
        assert!(slots.len() > 9_000, "{}", slots.len());
        let pairs: HashSet<u64> =
            (0..100).flat_map(|a: u64| (0..100).map(move |b: u64| key.hash_one(a << 32 | b) & 0xffff)).collect();
        assert!(pairs.len() > 9_000, "{}", pairs.len());
    }

    #[test]
    fn length_counts() {
        let key = Key::random();
        let zeros: HashSet<u64> = (0..40).map(|length| key.hash(&vec![0; length])).collect();
        assert_eq!(zeros.len(), 40);
    }
}
