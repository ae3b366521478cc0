//! A SHA-256 that can be put aside between two chunks and taken up by another run.

use sha2::digest::common::hazmat::SerializableState;
use sha2::{Digest, Sha256};
use strata_manifest::Sha256Digest;

/// A digest in the making.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running(Sha256);

impl Running {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Sha256Digest {
        Sha256Digest::from_array(self.0.finalize().into())
    }

    /// What [`Running::restore`] takes.
    pub(crate) fn save(&self) -> Vec<u8> {
        self.0.serialize().to_vec()
    }

    pub(crate) fn restore(bytes: &[u8]) -> Option<Running> {
        Sha256::deserialize(bytes.try_into().ok()?).ok().map(Running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_goes_on_where_it_was_put_aside() {
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        for cut in [0, 1, 63, 64, 65, 4096, 399_999] {
            let mut running = Running::default();
            running.update(&bytes[..cut]);
            let mut again = Running::restore(&running.save()).unwrap();
            again.update(&bytes[cut..]);
            assert_eq!(again.finish(), Sha256Digest::of_bytes(&bytes), "{cut}");
        }
        assert!(Running::restore(b"short").is_none());
    }
}
