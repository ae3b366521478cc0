//! Models in parts.

use crate::check_error;
use std::path::{Path, PathBuf};
use strata_diag::catalogue::model::{BAD_MODEL, SPLIT_INCOMPLETE, TRUNCATED_MODEL};
use strata_model::gguf::Gguf;
use strata_model::gguf::writer::GgufWriter;

fn part_path(folder: &Path, number: usize, count: usize) -> PathBuf {
    folder.join(format!("model-{number:05}-of-{count:05}.gguf"))
}

/// Part `index` of three, with two tensors; only the first has metadata.
fn part(index: u16) -> GgufWriter {
    let mut writer = GgufWriter::new("llama");
    if index == 0 {
        writer.set("llama.block_count", 3_u32);
    } else {
        writer.remove("general.architecture");
    }
    let value = f32::from(index);
    writer
        .set("split.no", index)
        .set("split.count", 3_u16)
        .set("split.tensors.count", 6)
        .tensor_f32(&format!("blk.{index}.a"), &[4], &[value; 4])
        .tensor_f32(&format!("blk.{index}.b"), &[16], &[value + 0.5; 16]);
    writer
}

fn folder_of_parts() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for index in 0..3 {
        part(index).write(&part_path(folder.path(), usize::from(index) + 1, 3)).unwrap();
    }
    folder
}

#[test]
fn any_part_opens_the_whole() {
    let folder = folder_of_parts();
    for number in 1..=3 {
        let gguf = Gguf::open(&part_path(folder.path(), number, 3)).unwrap();
        assert_eq!(gguf.parts().len(), 3);
        assert_eq!(gguf.path(), part_path(folder.path(), 1, 3));
        assert_eq!(gguf.architecture().unwrap(), "llama");
        assert_eq!(gguf.tensors().len(), 6);
        for index in 0..3_usize {
            let a = gguf.tensor(&format!("blk.{index}.a")).unwrap();
            assert_eq!(a.part, index);
            assert_eq!(gguf.tensor_data(a), (index as f32).to_le_bytes().repeat(4));
            let b = gguf.tensor(&format!("blk.{index}.b")).unwrap();
            assert_eq!(gguf.tensor_data(b), (index as f32 + 0.5).to_le_bytes().repeat(16));
        }
        gguf.check_unchanged().unwrap();
    }
}

#[test]
fn a_missing_part_is_named() {
    let folder = folder_of_parts();
    fs_err::remove_file(part_path(folder.path(), 2, 3)).unwrap();
    let error = Gguf::open(&part_path(folder.path(), 1, 3)).unwrap_err();
    check_error(&error, SPLIT_INCOMPLETE, &["model-00002-of-00003.gguf", "one part of 3", "1 of them"]);
}

#[test]
fn a_great_count_of_parts_is_only_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model-00001-of-65535.gguf");
    part(0).set("split.count", 65_535_u16).write(&path).unwrap();
    let error = Gguf::open(&path).unwrap_err();
    check_error(&error, SPLIT_INCOMPLETE, &["model-00002-of-65535.gguf", "65534 of them", "more"]);
    part(0).set("split.count", u64::MAX).write(&path).unwrap();
    check_error(&Gguf::open(&path).unwrap_err(), SPLIT_INCOMPLETE, &["18446744073709551615"]);
}

#[test]
fn a_renamed_part_says_what_name_it_needs() {
    let folder = folder_of_parts();
    let renamed = folder.path().join("renamed.gguf");
    fs_err::rename(part_path(folder.path(), 1, 3), &renamed).unwrap();
    check_error(&Gguf::open(&renamed).unwrap_err(), SPLIT_INCOMPLETE, &["renamed.gguf", "-00001-of-00003.gguf"]);
}

#[test]
fn swapped_parts_are_noticed() {
    let folder = folder_of_parts();
    part(2).write(&part_path(folder.path(), 2, 3)).unwrap();
    let error = Gguf::open(&part_path(folder.path(), 1, 3)).unwrap_err();
    check_error(&error, SPLIT_INCOMPLETE, &["model-00002-of-00003.gguf", "part 3 of 3", "expected part 2"]);
    GgufWriter::new("llama").write(&part_path(folder.path(), 2, 3)).unwrap();
    let error = Gguf::open(&part_path(folder.path(), 1, 3)).unwrap_err();
    check_error(&error, SPLIT_INCOMPLETE, &["does not call itself a part"]);
}

#[test]
fn tensors_are_counted_over_all_parts() {
    let folder = folder_of_parts();
    part(0).set("split.tensors.count", 7).write(&part_path(folder.path(), 1, 3)).unwrap();
    let error = Gguf::open(&part_path(folder.path(), 1, 3)).unwrap_err();
    check_error(&error, SPLIT_INCOMPLETE, &["announces 7 tensors", "hold 6"]);
}

#[test]
fn the_same_tensor_in_two_parts_is_refused() {
    let folder = folder_of_parts();
    let mut second = part(1);
    second.tensor_f32("blk.0.a", &[4], &[0.0; 4]);
    second.write(&part_path(folder.path(), 2, 3)).unwrap();
    let error = Gguf::open(&part_path(folder.path(), 1, 3)).unwrap_err();
    check_error(&error, BAD_MODEL, &["blk.0.a", "more than once"]);
}

#[test]
fn a_truncated_part_is_the_one_that_is_named() {
    let folder = folder_of_parts();
    let path = part_path(folder.path(), 3, 3);
    let whole = fs_err::read(&path).unwrap();
    fs_err::write(&path, &whole[..whole.len() - 1]).unwrap();
    let error = Gguf::open(&part_path(folder.path(), 1, 3)).unwrap_err();
    check_error(&error, TRUNCATED_MODEL, &["model-00003-of-00003.gguf", "blk.2.b"]);
}

#[test]
fn a_name_alone_makes_no_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = part_path(folder.path(), 1, 2);
    crate::small().write(&path).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().parts().len(), 1);
    crate::small().set("split.count", 1_u16).set("split.no", 0_u16).write(&path).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().parts().len(), 1);
}

#[test]
fn a_part_in_memory_says_that_it_needs_the_others() {
    let error = crate::open(part(1).to_bytes()).unwrap_err();
    check_error(&error, SPLIT_INCOMPLETE, &["part 2 of 3"]);
}
