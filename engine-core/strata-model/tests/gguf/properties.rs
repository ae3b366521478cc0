//! Whatever is done to a file's bytes, reading it ends, in a model or in an error.

use crate::seeds::rich;
use crate::walk::{read, walk};
use proptest::prelude::*;
use strata_model::gguf::Gguf;
use strata_model::gguf::writer::GgufWriter;

#[test]
fn the_rich_file_is_right() {
    let gguf = Gguf::from_bytes("toy.gguf", rich()).unwrap();
    assert_eq!(gguf.keys().count(), 15);
    walk(&gguf);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = rich();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read(bytes);
    }

    /// Numbers that matter are 64-bit, so whole ones are overwritten with values at the edges.
    #[test]
    fn changed_numbers(
        at in any::<prop::sample::Index>(),
        number in prop_oneof![any::<u64>(), (0..64_u32).prop_map(|bit| 1 << bit), (0..300_u64).prop_map(u64::wrapping_neg)],
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = rich();
        let at = at.index(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        read(bytes.clone());
        bytes.truncate(cut.index(bytes.len()));
        read(bytes);
    }

    #[test]
    fn random_tails(tail in prop::collection::vec(any::<u8>(), 0..400), counts in (0..4_u8, 0..4_u8)) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend([counts.0, 0, 0, 0, 0, 0, 0, 0, counts.1, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(tail);
        read(bytes);
    }

    #[test]
    fn written_models_are_read_back(
        numbers in prop::collection::btree_map("[a-z]{1,8}\\.[a-z]{1,8}", any::<u32>(), 0..20),
        words in prop::collection::vec(".{0,6}", 0..50),
        rows in 1..5_u64,
    ) {
        let mut writer = GgufWriter::new("x");
        for (key, number) in &numbers {
            writer.set(key, *number);
        }
        writer.set("the.words", words.clone());
        let data: Vec<f32> = (0..rows * 8).map(|n| n as f32).collect();
        writer.tensor_f32("t", &[8, rows], &data);
        let gguf = Gguf::from_bytes("toy.gguf", writer.to_bytes()).unwrap();
        for (key, number) in &numbers {
            prop_assert_eq!(gguf.require_u32(key).unwrap(), *number);
        }
        let read: Vec<&str> = gguf.require_array("the.words").unwrap().strs().unwrap().map(Option::unwrap).collect();
        prop_assert_eq!(read, words);
        prop_assert_eq!(gguf.tensor("t").unwrap().ne, [8, rows, 1, 1]);
    }
}
