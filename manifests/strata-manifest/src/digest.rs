//! A SHA-256 as lower-case hexadecimal, checked once where it enters.

use crate::ManifestError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::io::Read;
use std::str::FromStr;

/// SHA-256 of a file or text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Sha256Digest(Sha256::digest(bytes).into())
    }

    /// Digest over other digests, 32 bytes each: what stands for a list of chunks.
    pub fn of_digests(digests: &[Sha256Digest]) -> Self {
        let mut hasher = Sha256::new();
        for digest in digests {
            hasher.update(digest.0);
        }
        Sha256Digest(hasher.finalize().into())
    }

    pub fn from_array(bytes: [u8; 32]) -> Self {
        Sha256Digest(bytes)
    }

    pub fn as_array(&self) -> &[u8; 32] {
        &self.0
    }

    /// Digest of all that is left in `reader`, and how many bytes that was.
    pub fn of_reader(mut reader: impl Read) -> std::io::Result<(Self, u64)> {
        let mut hasher = Sha256::new();
        let mut buffer = vec![0_u8; 256 * 1024];
        let mut total = 0_u64;
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => return Ok((Sha256Digest(hasher.finalize().into()), total)),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            hasher.update(&buffer[..count]);
            total += count as u64;
        }
    }
}

/// A digest in the making, for who sees the bytes pass by.
#[derive(Debug, Clone, Default)]
pub struct Sha256Hasher(Sha256);

impl Sha256Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> Sha256Digest {
        Sha256Digest(self.0.finalize().into())
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sha256Digest {
    type Err = ManifestError;

    /// Takes 64 hexadecimal digits of either case.
    fn from_str(text: &str) -> Result<Self, ManifestError> {
        let bad = || ManifestError::BadDigest { text: text.chars().take(80).collect() };
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(bad());
        }
        let mut bytes = [0_u8; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16).ok_or_else(bad);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Ok(Sha256Digest(bytes))
    }
}

impl TryFrom<String> for Sha256Digest {
    type Error = ManifestError;

    fn try_from(text: String) -> Result<Self, ManifestError> {
        text.parse()
    }
}

impl From<Sha256Digest> for String {
    fn from(digest: Sha256Digest) -> String {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_nothing_is_the_published_one() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Sha256Digest::of_bytes(b"").to_string(), empty);
        assert_eq!(empty.to_uppercase().parse::<Sha256Digest>().unwrap().to_string(), empty);
        assert_eq!(Sha256Digest::of_reader(&b""[..]).unwrap().1, 0);
        assert!("e3b0".parse::<Sha256Digest>().is_err());
        assert!("é".repeat(32).parse::<Sha256Digest>().is_err());
    }
}
