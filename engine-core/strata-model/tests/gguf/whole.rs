//! Files that are right.

use crate::{models, open, small};
use strata_backend_abi::StrataDType;
use strata_diag::catalogue::{general, model};
use strata_model::gguf::Gguf;
use strata_model::gguf::writer::{GgufWriter, Meta};

#[test]
fn every_value_type_round_trips() {
    let mut writer = GgufWriter::new("llama");
    writer
        .set("u8", 200_u8)
        .set("u16", 65535_u16)
        .set("u32", u32::MAX)
        .set("i32", -7)
        .set("u64", u64::MAX)
        .set("f32", 0.1_f32)
        .set("f64", 0.1_f64)
        .set("bool", true)
        .set("str", "zwölf")
        .set("strs", vec!["a".to_owned(), String::new(), "日本".to_owned()])
        .set("u32s", vec![1_u32, 2])
        .set("i32s", vec![-1, 2])
        .set("f32s", vec![0.5_f32])
        .set("bools", vec![true, false])
        .set("empty", Vec::<String>::new())
        .set("nested", Meta::Arrays(vec![vec![1_u32].into(), vec!["x".to_owned()].into()]));
    let gguf = open(writer.to_bytes()).unwrap();
    assert_eq!(gguf.keys().count(), 17);
    assert_eq!(gguf.architecture().unwrap(), "llama");
    assert_eq!(gguf.require_u64("u8").unwrap(), 200);
    assert_eq!(gguf.require_u64("u16").unwrap(), 65535);
    assert_eq!(gguf.require_u32("u32").unwrap(), u32::MAX);
    assert_eq!(gguf.value("i32").unwrap().as_i64(), Some(-7));
    assert_eq!(gguf.value("i32").unwrap().as_u64(), None);
    assert_eq!(gguf.require_u64("u64").unwrap(), u64::MAX);
    assert_eq!(gguf.value("u64").unwrap().as_i64(), None);
    assert_eq!(gguf.require_f64("f32").unwrap().to_bits(), f64::from(0.1_f32).to_bits());
    assert_eq!(gguf.require_f64("f64").unwrap().to_bits(), 0.1_f64.to_bits());
    assert!(gguf.require_bool("bool").unwrap());
    assert_eq!(gguf.require_str("str").unwrap(), "zwölf");
    let strs = gguf.require_array("strs").unwrap();
    assert_eq!(strs.strs().unwrap().collect::<Vec<_>>(), [Some("a"), Some(""), Some("日本")]);
    assert_eq!(strs.str_at(3), None);
    assert_eq!(strs.u32_at(0), None);
    let u32s = gguf.require_array("u32s").unwrap();
    assert_eq!((u32s.u32_at(0), u32s.u32_at(1), u32s.u32_at(2)), (Some(1), Some(2), None));
    assert_eq!(u32s.str_at(0), None);
    let i32s = gguf.require_array("i32s").unwrap();
    assert_eq!((i32s.i32_at(0), i32s.u32_at(0), i32s.i64_at(1)), (Some(-1), None, Some(2)));
    assert_eq!(gguf.require_array("f32s").unwrap().f32_at(0), Some(0.5));
    let bools = gguf.require_array("bools").unwrap();
    assert_eq!((bools.bool_at(0), bools.bool_at(1), bools.bool_at(2)), (Some(true), Some(false), None));
    assert!(gguf.require_array("empty").unwrap().is_empty());
    let nested = gguf.require_array("nested").unwrap();
    assert_eq!(nested.array_at(0).unwrap().u32_at(0), Some(1));
    assert_eq!(nested.array_at(1).unwrap().str_at(0), Some("x"));
}

#[test]
fn tensors_lie_where_they_were_written() {
    for alignment in [1, 32, 64, 4096] {
        let mut writer = GgufWriter::new("llama");
        writer
            .alignment(alignment)
            .tensor("a", StrataDType::Q8_0, &[64, 3], (0..204).collect())
            .tensor("b", StrataDType::Q4K, &[256, 1, 2], vec![7; 288])
            .tensor_f32("c", &[1], &[3.0]);
        let gguf = open(writer.to_bytes()).unwrap();
        assert_eq!(gguf.alignment(), u64::from(alignment));
        let a = gguf.tensor("a").unwrap();
        assert_eq!((a.dtype, a.shape(), a.ne, a.bytes), (StrataDType::Q8_0, &[64, 3][..], [64, 3, 1, 1], 204));
        assert_eq!((a.elements(), a.rows(), a.row_bytes()), (192, 3, 68));
        assert_eq!(gguf.tensor_data(a), (0..204).collect::<Vec<u8>>());
        let b = gguf.require_shaped("b", &[256, 1, 2, 1]).unwrap();
        assert_eq!(gguf.tensor_data(b), [7; 288]);
        assert_eq!(gguf.tensor_data(gguf.tensor("c").unwrap()), 3_f32.to_le_bytes());
        assert_eq!(gguf.tensors().iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(gguf.tensor("d").is_none());
    }
}

#[test]
fn versions_2_and_3_are_read() {
    for version in [2, 3] {
        let gguf = open(small().version(version).to_bytes()).unwrap();
        assert_eq!(gguf.version(), version);
        assert_eq!(gguf.tensors().len(), 2);
    }
}

#[test]
fn what_the_architecture_needs_and_lacks_has_its_own_errors() {
    let gguf = open(small().to_bytes()).unwrap();
    let check = crate::check_error;
    check(&gguf.require_u64("llama.context_length").unwrap_err(), model::MISSING_KEY, &["llama.context_length"]);
    check(
        &gguf.require_str("llama.block_count").unwrap_err(),
        model::BAD_MODEL,
        &["key `llama.block_count` is 1 (u32), expected a string"],
    );
    check(&gguf.require_tensor("blk.0.ffn_up.weight").unwrap_err(), model::MISSING_TENSOR, &["blk.0.ffn_up.weight"]);
    check(
        &gguf.require_shaped("output_norm.weight", &[5]).unwrap_err(),
        model::BAD_TENSOR_SHAPE,
        &["output_norm.weight", "[5]", "[4]"],
    );
    assert_eq!(gguf.optional_u64("llama.context_length").unwrap(), None);
    assert_eq!(gguf.optional_u64("llama.block_count").unwrap(), Some(1));
    assert!(gguf.optional_str("llama.block_count").is_err());
    assert_eq!(gguf.arch_value("block_count").unwrap().as_u64(), Some(1));
}

#[test]
fn a_file_of_keys_alone_is_a_model() {
    let gguf = open(GgufWriter::new("clip").to_bytes()).unwrap();
    assert_eq!(gguf.tensors().len(), 0);
}

#[test]
fn mapped_from_disk_it_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    small().write(&path).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let [part] = gguf.parts() else { panic!("one part") };
    assert_eq!(part.file_bytes, small().to_bytes().len() as u64);
    assert_eq!(part.map.bytes(), small().to_bytes());
    assert_eq!(gguf.tensor_data(&gguf.tensors()[1]), 1_f32.to_le_bytes().repeat(4));
    part.map.prefetch(0, u64::MAX);
    part.map.prefetch(u64::MAX, 1);
    gguf.check_unchanged().unwrap();
}

#[test]
fn a_file_that_shrank_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    small().write(&path).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let length = gguf.parts()[0].file_bytes;
    fs_err::OpenOptions::new().write(true).open(&path).unwrap().set_len(length - 1).unwrap();
    let error = gguf.check_unchanged().unwrap_err();
    crate::check_error(
        &error,
        model::TRUNCATED_MODEL,
        &[&format!("had {length} bytes"), &format!("has {} now", length - 1), "download"],
    );
}

#[test]
fn what_is_no_file_is_said_plainly() {
    let folder = tempfile::tempdir().unwrap();
    let absent = Gguf::open(&folder.path().join("absent.gguf")).unwrap_err();
    crate::check_error(&absent, general::MODEL_NOT_FOUND, &["absent.gguf"]);
    let directory = Gguf::open(folder.path()).unwrap_err();
    crate::check_error(&directory, general::FILE_UNREADABLE, &["not a regular file"]);
}

#[test]
fn real_models_are_whole() {
    let Some(models) = models() else { return println!("skipped: no folder of real models") };
    for (name, n_tensors, n_tokens) in
        [("SmolLM2-135M-Instruct.Q4_1.gguf", 272, 49_152), ("gemma-3-270m-q4_k_m.gguf", 236, 262_144)]
    {
        let path = models.join(name);
        if !path.is_file() {
            println!("skipped: no {name}");
            continue;
        }
        let gguf = Gguf::open(&path).unwrap();
        assert_eq!(gguf.tensors().len(), n_tensors, "{name}");
        let tokens = gguf.require_array("tokenizer.ggml.tokens").unwrap();
        assert_eq!(tokens.len(), n_tokens);
        assert!(tokens.strs().unwrap().all(|token| token.is_some()));
        let in_tensors: u64 = gguf.tensors().iter().map(|tensor| tensor.bytes).sum();
        assert!(in_tensors < gguf.parts()[0].file_bytes);
    }
}
