//! Files that lie. Each lie is refused by name and number, at once and without taking memory for it.

use crate::{check_error, check_refused, open, patched, small, with};
use strata_backend_abi::StrataDType;
use strata_diag::catalogue::model::{
    BAD_MODEL, NOT_A_MODEL, TRUNCATED_MODEL, UNSUPPORTED_GGUF_VERSION, UNSUPPORTED_TENSOR_TYPE,
};
use strata_diag::{Diagnose, Diagnostic};
use strata_model::gguf::Gguf;
use strata_model::gguf::writer::{GgufWriter, Meta};

/// Where the tensor and key counts stand.
const TENSOR_COUNT: usize = 8;
const KEY_COUNT: usize = 16;

/// A file of one tensor.
fn one_tensor(type_number: u32, ne: &[u64], data: Vec<u8>) -> Vec<u8> {
    GgufWriter::new("llama").raw_tensor("token_embd.weight", type_number, ne, data).to_bytes()
}

/// The small model with the first tensor's entry changed: `ne` and what follows it.
fn with_dims(ne: [u64; 2]) -> Vec<u8> {
    let old: Vec<u8> = [4_u64, 2].iter().flat_map(|n| n.to_le_bytes()).collect();
    let new: Vec<u8> = ne.iter().flat_map(|n| n.to_le_bytes()).collect();
    patched(small().to_bytes(), &old, &new)
}

fn with_offset_of_second(offset: u64) -> Vec<u8> {
    let entry = |offset: u64| [&1_u32.to_le_bytes()[..], &4_u64.to_le_bytes(), &[0; 4], &offset.to_le_bytes()].concat();
    patched(small().to_bytes(), &entry(32), &entry(offset))
}

#[test]
fn every_prefix_of_a_file_is_truncated() {
    let whole = small().to_bytes();
    for length in 0..whole.len() {
        let error = open(whole[..length].to_vec()).expect_err("a prefix was accepted");
        assert_eq!(error.code(), TRUNCATED_MODEL, "the first {length} bytes: {error}");
        let text = Diagnostic::of(&error).to_text();
        assert!(text.contains(&format!("present bytes: {length}")), "{text}");
        assert!(text.contains("download"), "{text}");
        let strata_model::ModelError::Truncated { needed, at_least, .. } = error else { panic!("{error}") };
        assert!(needed > length as u64, "the first {length} bytes need {needed}");
        assert!(at_least || needed == whole.len() as u64, "the first {length} bytes need {needed}");
    }
}

#[test]
fn other_files_are_not_models() {
    for (start, hint) in [
        ("<!DOCTYPE html><html>", "web page"),
        ("version https://git-lfs.github.com/spec/v1", "git lfs pull"),
        ("PK\u{3}\u{4}", "archive"),
        ("tjgg\u{3}\u{0}\u{0}\u{0}", "before GGUF"),
        ("hello, world", "`hell`"),
        ("\u{1}\u{2}\u{3}\u{4}", "[01, 02, 03, 04]"),
        ("X", "`X`"),
    ] {
        check_refused(start.as_bytes().to_vec(), NOT_A_MODEL, &["toy.gguf", hint]);
    }
}

#[test]
fn other_versions_are_named() {
    for version in [0, 1, 4, 1000] {
        let text = format!("version {version}");
        check_refused(with(small().to_bytes(), 4, &u32::to_le_bytes(version)), UNSUPPORTED_GGUF_VERSION, &[&text]);
    }
    let big_endian = with(small().to_bytes(), 4, &3_u32.to_be_bytes());
    check_refused(big_endian, UNSUPPORTED_GGUF_VERSION, &["big-endian", "version 3"]);
}

#[test]
fn counts_beyond_any_model() {
    for count in [1 << 20, 1 << 32, u64::MAX] {
        let number = count.to_string();
        check_refused(
            with(small().to_bytes(), TENSOR_COUNT, &count.to_le_bytes()),
            BAD_MODEL,
            &["toy.gguf", "tensor count", &number],
        );
        check_refused(
            with(small().to_bytes(), KEY_COUNT, &count.to_le_bytes()),
            BAD_MODEL,
            &["toy.gguf", "key count", &number],
        );
    }
    // Within the limits, but more than the file holds.
    let error = open(with(small().to_bytes(), KEY_COUNT, &1000_u64.to_le_bytes())).unwrap_err();
    assert!([BAD_MODEL, TRUNCATED_MODEL].contains(&error.code()), "{error}");
}

#[test]
fn lengths_beyond_any_header() {
    let key_length = |length: u64| {
        patched(small().to_bytes(), &key("llama.block_count"), &{
            let mut bytes = key("llama.block_count");
            bytes[..8].copy_from_slice(&length.to_le_bytes());
            bytes
        })
    };
    for length in [1 << 16, 1 << 40, u64::MAX - 3] {
        check_refused(key_length(length), BAD_MODEL, &["key number 1", &length.to_string()]);
    }
    check_refused(key_length(5000), TRUNCATED_MODEL, &["key number 1"]);

    let value_length = |length: u64| {
        patched(small().to_bytes(), &key("llama"), &{
            let mut bytes = key("llama");
            bytes[..8].copy_from_slice(&length.to_le_bytes());
            bytes
        })
    };
    for length in [1 << 30, u64::MAX, u64::MAX - 64] {
        check_refused(value_length(length), BAD_MODEL, &["key `general.architecture`", &length.to_string()]);
    }
}

/// A text as it stands in a file.
fn key(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

#[test]
fn array_lengths_beyond_the_file() {
    for array in
        [Meta::from(vec![1_u32; 3]), vec![1.0_f32; 3].into(), vec!["x".to_owned(); 3].into(), vec![true; 3].into()]
    {
        let bytes = GgufWriter::new("llama").set("the.array", array).to_bytes();
        let at = bytes.windows(9).position(|window| window == b"the.array").unwrap() + 9 + 4 + 4;
        for length in [1_u64 << 28, 1 << 61, 1 << 62, u64::MAX] {
            check_refused(
                with(bytes.clone(), at, &length.to_le_bytes()),
                BAD_MODEL,
                &["key `the.array`", &length.to_string()],
            );
        }
        check_refused(with(bytes.clone(), at, &100_000_u64.to_le_bytes()), TRUNCATED_MODEL, &["key `the.array`"]);
    }
}

#[test]
fn string_lengths_inside_an_array() {
    let bytes = GgufWriter::new("llama").set("words", vec!["one".to_owned(), "two".to_owned()]).to_bytes();
    let lying = |length: u64| patched(bytes.clone(), &key("two"), &[&length.to_le_bytes()[..], b"two"].concat());
    check_refused(lying(4), TRUNCATED_MODEL, &["key `words`"]);
    check_refused(lying(u64::MAX), BAD_MODEL, &["key `words`", &u64::MAX.to_string()]);
    check_refused(lying(u64::MAX - 100), BAD_MODEL, &["key `words`"]);
}

#[test]
fn nested_arrays_are_bounded() {
    let nest = |depth: usize| (0..depth).fold(Meta::from(vec![1_u32]), |inner, _| Meta::Arrays(vec![inner]));
    let file = |meta: Meta| GgufWriter::new("llama").set("nested", meta).to_bytes();
    assert!(open(file(nest(2))).is_ok());
    check_refused(file(nest(3)), BAD_MODEL, &["key `nested`", "4 deep"]);
    check_refused(file(nest(200)), BAD_MODEL, &["key `nested`"]);
    let many = |n: usize| file(Meta::Arrays(vec![Meta::Arrays(vec![]); n]));
    assert!(open(many(65_536)).is_ok());
    check_refused(many(65_537), BAD_MODEL, &["key `nested`", "65537"]);
}

#[test]
fn products_and_sums_that_wrap() {
    for ne in
        [[(1 << 62) + 1, 4], [1 << 21, (1 << 41) + 1], [(1 << 63) + 4, 2], [u64::MAX, 1], [1 << 50, 1], [u64::MAX; 2]]
    {
        check_refused(with_dims(ne), BAD_MODEL, &["tensor `token_embd.weight`", &ne[0].to_string()]);
    }
    for offset in [u64::MAX - 31, u64::MAX - 63, 1_u64.wrapping_neg() << 20] {
        check_refused(with_offset_of_second(offset), BAD_MODEL, &["tensor `output_norm.weight`", &offset.to_string()]);
    }
    // Far, but it does not wrap: the file ends before it.
    check_refused(with_offset_of_second(1 << 40), TRUNCATED_MODEL, &["tensor `output_norm.weight`"]);
}

#[test]
fn dimensions_that_cannot_be() {
    check_refused(with_dims([0, 2]), BAD_MODEL, &["tensor `token_embd.weight`", "[0, 2]"]);
    check_refused(with_dims([4, 0]), BAD_MODEL, &["tensor `token_embd.weight`", "[4, 0]"]);
    check_refused(one_tensor(0, &[], vec![0; 4]), BAD_MODEL, &["token_embd.weight", "0 dimensions"]);
    check_refused(one_tensor(0, &[1; 5], vec![0; 4]), BAD_MODEL, &["token_embd.weight", "5 dimensions"]);
    check_refused(one_tensor(8, &[33], vec![0; 68]), BAD_MODEL, &["token_embd.weight", "33", "blocks of 32"]);
    check_refused(one_tensor(12, &[64, 4], vec![0; 144]), BAD_MODEL, &["token_embd.weight", "64", "blocks of 256"]);
}

#[test]
fn offsets_that_cannot_be() {
    check_refused(with_offset_of_second(33), BAD_MODEL, &["output_norm.weight", "33", "alignment 32"]);
    check_refused(with_offset_of_second(0), BAD_MODEL, &["output_norm.weight", "inside tensor", "token_embd.weight"]);
}

#[test]
fn alignments_that_cannot_be() {
    for alignment in [0, 3, 33, u32::MAX, 1 << 31] {
        let mut writer = small();
        writer.set("general.alignment", alignment);
        check_refused(writer.to_bytes(), BAD_MODEL, &["key `general.alignment`", &alignment.to_string()]);
    }
    let mut writer = small();
    writer.set("general.alignment", "32");
    check_refused(writer.to_bytes(), BAD_MODEL, &["key `general.alignment`"]);
}

#[test]
fn names_that_occur_twice() {
    let mut writer = GgufWriter::new("llama");
    writer.set("key.a", 1_u32).set("key.b", 2_u32);
    check_refused(patched(writer.to_bytes(), b"key.b", b"key.a"), BAD_MODEL, &["key `key.a`", "more than once"]);
    let mut writer = GgufWriter::new("llama");
    writer.tensor_f32("t.a", &[8], &[0.0; 8]).tensor_f32("t.a", &[8], &[0.0; 8]);
    check_refused(writer.to_bytes(), BAD_MODEL, &["tensor `t.a`", "more than once"]);
}

#[test]
fn values_that_cannot_be() {
    let bytes = GgufWriter::new("llama").set("the.flag", true).to_bytes();
    let at = bytes.len() - 1;
    check_refused(with(bytes.clone(), at, &[2]), BAD_MODEL, &["key `the.flag`", "2"]);
    check_refused(with(bytes, at - 4, &13_u32.to_le_bytes()), BAD_MODEL, &["key `the.flag`", "value type 13"]);
    let bools = GgufWriter::new("llama").set("the.flags", vec![true, true]).to_bytes();
    let at = bools.len() - 1;
    check_refused(with(bools, at, &[7]), BAD_MODEL, &["key `the.flags`", "7"]);
    check_refused(patched(small().to_bytes(), b"block", b"bl\xffck"), BAD_MODEL, &["key number 1", "UTF-8"]);
    check_refused(
        patched(small().to_bytes(), b"output_norm", b"output\xffnorm"),
        BAD_MODEL,
        &["tensor number 1", "UTF-8"],
    );
    check_refused(GgufWriter::new("llama").set("", 1_u32).to_bytes(), BAD_MODEL, &["key number 1", "0 bytes"]);
    check_refused(one_tensor(0, &[0], vec![]), BAD_MODEL, &["[0]"]);
}

#[test]
fn strings_of_arrays_need_not_be_text() {
    let bytes = GgufWriter::new("llama").set("words", vec!["one".to_owned(), "two".to_owned()]).to_bytes();
    let gguf = open(patched(bytes, b"two", b"t\xffo")).unwrap();
    let words = gguf.require_array("words").unwrap();
    assert_eq!((words.str_at(0), words.str_at(1), words.bytes_at(1)), (Some("one"), None, Some(&b"t\xffo"[..])));
}

#[test]
fn formats_that_are_not_read() {
    for (number, name) in [(4, "Q4_2"), (34, "TQ1_0"), (40, "NVFP4"), (28, "F64"), (12_345, "no known name")] {
        let bytes = one_tensor(number, &[256], vec![0; 512]);
        let texts = ["token_embd.weight", name, &number.to_string()];
        check_refused(bytes.clone(), UNSUPPORTED_TENSOR_TYPE, &texts);
        let gguf = Gguf::from_bytes_lenient("toy.gguf", bytes).unwrap();
        assert_eq!((gguf.tensors().len(), gguf.foreign_tensors().len()), (0, 1));
        check_error(&gguf.require_tensor("token_embd.weight").unwrap_err(), UNSUPPORTED_TENSOR_TYPE, &texts);
    }
    assert!(open(one_tensor(StrataDType::IQ1M as u32, &[256], vec![0; 56])).is_ok());
}

#[test]
fn long_names_are_cut_in_messages() {
    let mut writer = GgufWriter::new("llama");
    writer.set(&"k".repeat(60_000), true);
    let mut bytes = writer.to_bytes();
    *bytes.last_mut().unwrap() = 9;
    let text = Diagnostic::of(&open(bytes).unwrap_err()).to_text();
    assert!(text.len() < 1000, "{} bytes", text.len());
}
