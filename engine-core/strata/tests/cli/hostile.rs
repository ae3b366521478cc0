//! Model files that lie: the public reports under `cases/e*`. Each is refused with its code, with
//! little memory, and never by a signal.

use crate::support::{SMOLLM2, cpu_plugin, model, ran, refused, shared, state_dir, strata, strata_with_plugin};
use assert_cmd::Command;
use std::path::Path;

/// KiB of address space: the program, the CPU plugin and its threads' stacks, far below what any of
/// these files claims.
const ADDRESS_SPACE: u64 = 1 << 20;

/// Runs the program on a file under the limit; status and standard error.
fn run(file: &Path) -> (Option<i32>, String) {
    let script = format!("ulimit -v {ADDRESS_SPACE}; exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_strata"), "run"]).arg(file);
    command.args(["x", "--max-tokens", "1", "--raw", "--plugin"]).arg(cpu_plugin());
    let output = command.env("STRATA_STATE_DIR", state_dir()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Files of a case with the codes that they may be refused with. A good file gets past the reader
/// and fails on what it lacks as a model.
fn check(case: &str, files: &[(&str, &[&str])]) {
    for (file, codes) in files {
        let Some(path) = shared(&format!("cases/{case}/{file}")) else { return };
        let (status, error) = run(&path);
        assert_eq!(status, Some(1), "{case}/{file}: {error}");
        assert!(codes.iter().any(|code| error.contains(&format!("error[{code}]"))), "{case}/{file}: {error}");
        assert!(!error.contains("panicked"), "{case}/{file}: {error}");
    }
}

const PAST_THE_READER: &[&str] = &["S0105", "S0106", "S0109", "S0202"];

#[test]
fn e01_size_wraps() {
    let files = ["dims.gguf", "dims2.gguf", "negative.gguf", "offset.gguf", "sum.gguf"];
    check("e01-size-wraps", &files.map(|file| (file, &["S0103", "S0104"][..])));
    check("e01-size-wraps", &[("good.gguf", PAST_THE_READER)]);
}

#[test]
fn e04_truncated() {
    for cut in [0, 3, 4, 20, 23, 60, 128, 159] {
        let Some(path) = shared(&format!("cases/e04-truncated/cut-{cut}.gguf")) else { return };
        let (status, error) = run(&path);
        assert_eq!(status, Some(1), "{cut}: {error}");
        assert!(error.contains("error[S0104]"), "{cut}: {error}");
        assert!(error.contains("download"), "{cut}: {error}");
    }
    check("e04-truncated", &[("good.gguf", PAST_THE_READER)]);
}

#[test]
fn e05_not_truncated() {
    for (file, code) in [("complete.gguf", "S0105"), ("arch.gguf", "S0106")] {
        let Some(path) = shared(&format!("cases/e05-not-truncated/{file}")) else { return };
        let (status, error) = run(&path);
        assert_eq!(status, Some(1), "{file}: {error}");
        assert!(error.contains(&format!("error[{code}]")), "{file}: {error}");
        // The case's own folder has one of the words in its name.
        let error = error.replace(path.to_str().unwrap(), "FILE");
        for word in ["truncated", "corrupt", "incomplete"] {
            assert!(!error.contains(word), "{file} says {word}: {error}");
        }
    }
}

/// A real model with the tokenizer of another: a row less in its embedding than its list has tokens.
#[test]
fn a_tokenizer_of_another_model_is_refused() {
    let Some(model) = model(SMOLLM2) else { return };
    let mut bytes = fs_err::read(model).unwrap();
    let name = b"token_embd.weight";
    let header = &bytes[..8 << 20];
    let at = header.windows(name.len()).position(|window| window == name).unwrap() + name.len();
    // Behind the name: two dimensions, 576 in a row, 49152 rows.
    let rows = at + 4 + 8;
    assert_eq!(bytes[rows..rows + 8], 49_152_u64.to_le_bytes());
    bytes[rows..rows + 8].copy_from_slice(&49_151_u64.to_le_bytes());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.gguf");
    fs_err::write(&file, &bytes).unwrap();
    let said = refused(strata_with_plugin("run").arg(&file).args(["x", "--max-tokens", "1"]), 1, "S0202");
    assert!(said.err.contains("49152 entries") && said.err.contains("49151 rows"), "{}", said.err);
    refused(strata_with_plugin("serve").arg(&file).args(["--port", "0"]), 1, "S0202");
    let inspected = ran(strata().arg("inspect").arg(&file));
    assert!(inspected.out.contains("S0202") && inspected.status == Some(0), "{}", inspected.out);
}
