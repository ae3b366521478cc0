//! Claims of a small file take no memory: the greatest numbers that the limits let through, read
//! in a child process whose address space is too small for what they announce.

use crate::{open, with};
use strata_diag::Diagnose;
use strata_diag::catalogue::model::TRUNCATED_MODEL;
use strata_model::gguf::writer::{GgufWriter, Meta};
use strata_model::gguf::{MAX_HEADER_BYTES, MAX_KEYS, MAX_TENSORS};

const CHILD: &str = "STRATA_TEST_IN_LITTLE_MEMORY";
/// KiB of address space: the test program itself takes some of it.
const LIMIT_KIB: &str = "196608";

/// Files whose claims are the greatest possible, each a lie.
fn lying_files() -> Vec<Vec<u8>> {
    let empty = || GgufWriter::new("llama").to_bytes();
    let mut files = vec![with(empty(), 8, &MAX_TENSORS.to_le_bytes()), with(empty(), 16, &MAX_KEYS.to_le_bytes())];
    let arrays = [
        (Meta::from(Vec::<String>::new()), 8),
        (Meta::from(Vec::<u32>::new()), 4),
        (Meta::from(Vec::<bool>::new()), 1),
        (Meta::Arrays(Vec::new()), 12),
    ];
    for (array, least_bytes) in arrays {
        let bytes = GgufWriter::new("llama").set("the.array", array).to_bytes();
        let length = (MAX_HEADER_BYTES - 1000) / least_bytes;
        let at = bytes.len() - 8;
        files.push(with(bytes, at, &length.to_le_bytes()));
    }
    let text = GgufWriter::new("llama").set("the.text", "").to_bytes();
    let at = text.len() - 8;
    files.push(with(text, at, &(MAX_HEADER_BYTES - 1000).to_le_bytes()));
    files
}

#[test]
fn claims_take_no_memory() {
    if std::env::var_os(CHILD).is_some() {
        for bytes in lying_files() {
            let error = open(bytes).expect_err("the file was accepted");
            assert_eq!(error.code(), TRUNCATED_MODEL, "{error}");
        }
        return;
    }
    let output = std::process::Command::new("sh")
        .args(["-c", &format!("ulimit -v {LIMIT_KIB} && exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "memory::claims_take_no_memory", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
}
