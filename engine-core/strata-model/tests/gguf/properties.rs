//! Whatever is done to a file's bytes, reading it ends, in a model or in an error.

use crate::small;
use proptest::prelude::*;
use strata_model::gguf::writer::{GgufWriter, Meta};
use strata_model::gguf::{Gguf, Value};

/// Touches everything that an open model offers.
fn walk(gguf: &Gguf) {
    let total: u64 = gguf.tensors().iter().map(|tensor| gguf.tensor_data(tensor).len() as u64).sum();
    assert!(total <= gguf.parts()[0].file_bytes, "tensors share bytes");
    for tensor in gguf.tensors() {
        assert_eq!(gguf.tensor(&tensor.name), Some(tensor));
        assert_eq!(tensor.row_bytes() * tensor.rows(), tensor.bytes);
    }
    for (key, value) in gguf.keys() {
        assert!(gguf.value(key).is_some());
        let _ = value.brief();
        walk_value(value);
    }
    let _ = strata_model::inspect::Summary::of(gguf);
}

fn walk_value(value: &Value) {
    let Some(array) = value.as_array() else { return };
    for index in 0..array.len().min(1000) {
        let element = array.value_at(index).expect("an element inside the array");
        walk_value(&element);
        let _ = (array.str_at(index), array.i64_at(index), array.f32_at(index), array.bool_at(index));
    }
    assert!(array.value_at(array.len()).is_none());
}

/// A file with something of everything.
fn rich() -> Vec<u8> {
    small()
        .set("a.number", 5_u64)
        .set("a.flag", true)
        .set("a.nest", Meta::Arrays(vec![vec![1_u32, 2].into(), vec!["x".to_owned()].into()]))
        .set("a.floats", vec![0.5_f32; 3])
        .set("general.alignment", 32_u32)
        .tensor("q", strata_backend_abi::StrataDType::Q4K, &[256, 2], vec![3; 288])
        .to_bytes()
}

fn read(bytes: Vec<u8>) {
    if let Ok(gguf) = Gguf::from_bytes_lenient("toy.gguf", bytes) {
        walk(&gguf);
    }
}

#[test]
fn the_rich_file_is_right() {
    let gguf = Gguf::from_bytes("toy.gguf", rich()).unwrap();
    assert_eq!(gguf.keys().count(), 8);
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
