//! Failures before any model is computed: each has its code, its facts and its exit status.

use crate::support::{SMOLLM2, model, ran, refused, strata, strata_with_plugin};

#[test]
fn every_code_has_a_page_that_the_program_prints() {
    let list = ran(strata().arg("explain"));
    assert_eq!(list.status, Some(0));
    for code in strata_diag::catalogue::all() {
        assert!(list.out.contains(code.id) && list.out.contains(code.name));
        for asked in [code.id, code.name] {
            let page = ran(strata().args(["explain", asked]));
            assert_eq!(page.status, Some(0), "{asked}: {}", page.err);
            assert!(page.out.starts_with(&format!("# {}: {}\n", code.id, code.title)), "{}", page.out);
            assert!(page.out.contains("## What to do"), "{asked}");
        }
    }
    refused(strata().args(["explain", "S9999"]), 2, "S0001");
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    for args in [&["frobnicate"][..], &["run", "--temperature"], &["eval", "x.gguf"], &["run", "--backend", "tpu"]] {
        let ran = ran(strata().args(args));
        assert_eq!(ran.status, Some(2), "{args:?}: {}", ran.err);
        assert!(ran.out.is_empty(), "{args:?}: {}", ran.out);
        assert!(ran.err.starts_with("error[S0001]: "), "{args:?}: {}", ran.err);
    }
    for args in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let ran = ran(strata().args(args));
        assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{args:?}");
        assert!(!ran.out.is_empty(), "{args:?}");
    }
    // Without any argument the help is what was needed, and the status says that nothing ran.
    assert_eq!(ran(&mut strata()).status, Some(2));
}

/// Found before the model is read: the file does not even exist.
#[test]
fn settings_that_cannot_be_are_refused_first() {
    let run = |args: &[&str], code| refused(strata().args(["run", "absent.gguf", "x"]).args(args), 2, code);
    assert!(run(&["--kv", "q9_9"], "S0002").err.contains("f16"));
    assert!(run(&["--kv", "q8_0"], "S0002").err.contains("f16"));
    run(&["--precise", "--kv", "f16"], "S0002");
    run(&["--max-context", "0"], "S0002");
    run(&["--threads", "0"], "S0002");
    run(&["--threads", "100000"], "S0002");
    run(&["--logit-bias", "five"], "S0002");
    for bad in [["--temperature", "-1"], ["--top-p", "0"], ["--min-p", "2"], ["--repeat-penalty", "0"]] {
        let ran = ran(strata().args(["run", "absent.gguf", "x"]).arg(format!("{}={}", bad[0], bad[1])));
        assert_eq!(ran.status, Some(2), "{bad:?}: {}", ran.err);
        assert!(ran.err.contains("error[S0403]") && ran.err.contains(bad[1]), "{bad:?}: {}", ran.err);
    }
}

#[test]
fn a_model_that_is_not_there_is_named() {
    let ran = refused(strata().args(["run", "absent.gguf", "x"]), 1, "S0006");
    assert!(ran.err.contains("absent.gguf"), "{}", ran.err);
    refused(strata().args(["inspect", "absent.gguf"]), 1, "S0006");
    refused(strata().args(["run", "absent.gguf", " "]), 1, "S0404");
}

#[test]
fn failures_are_json_where_json_was_asked_for() {
    let ran = refused(strata().args(["inspect", "absent.gguf", "--json"]), 1, "S0006");
    let error = &ran.json()["error"];
    assert_eq!(error["code"], "S0006");
    assert_eq!(error["name"], "model-not-found");
}

#[test]
fn without_an_installation_there_is_no_backend() {
    let Some(model) = model(SMOLLM2) else { return };
    let ran = refused(strata().args(["run"]).arg(model).arg("x"), 1, "S0314");
    assert!(ran.err.contains("--plugin"), "{}", ran.err);
}

/// A GPU that was asked for is never replaced by the CPU.
#[test]
fn a_gpu_that_was_asked_for_and_is_not_there_is_an_error() {
    let Some(model) = model(SMOLLM2) else { return };
    for backend in ["cuda", "hip"] {
        let ran = refused(strata_with_plugin("run").arg(&model).args(["x", "--backend", backend]), 1, "S0313");
        assert!(ran.err.contains(backend) && ran.out.is_empty(), "{}", ran.err);
    }
}

/// Standard output on a full disk: what was printed is not all, so the run failed.
#[test]
fn a_full_disk_is_not_success() {
    for args in [&["explain"][..], &["version", "--json"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_strata"));
        let output = child.args(args).stdout(full).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("error[S0004]"));
    }
}

#[test]
fn text_that_would_take_all_memory_is_not_read() {
    let Some(model) = model(SMOLLM2) else { return };
    let ran = refused(strata_with_plugin("eval").arg(&model).args(["--perplexity", "/dev/zero"]), 1, "S0003");
    assert!(ran.err.contains("no ordinary file"), "{}", ran.err);
    refused(strata().arg("tokenize").arg(&model).write_stdin(vec![b'a'; (64 << 20) + 1]), 1, "S0005");
    refused(strata_with_plugin("eval").arg(&model).args(["--perplexity", "/etc/passwd", "--chunk", "3"]), 2, "S0002");
}

/// A model that the receipt lists with another size is not that model.
#[test]
fn an_installed_model_of_another_size_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let receipt = serde_json::json!({
        "schema": "strata-receipt/1.0", "version": "0.1.0", "files": [], "plugins": [],
        "models": [{"name": "m", "path": "m.gguf", "size": 5, "sha256": "0".repeat(64)}],
    });
    fs_err::write(folder.path().join("receipt.json"), receipt.to_string()).unwrap();
    fs_err::write(folder.path().join("m.gguf"), "four").unwrap();
    let ran = refused(strata().args(["inspect", "m", "--prefix"]).arg(folder.path()), 1, "S0005");
    assert!(ran.err.contains("bytes when installed: 5") && ran.err.contains("m.gguf"), "{}", ran.err);
    let ran = refused(strata().args(["inspect", "m", "--prefix", "/nonexistent"]), 1, "S0003");
    assert!(ran.err.contains("because:"), "{}", ran.err);
}

#[test]
fn a_broken_receipt_is_said_to_be_one() {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("receipt.json"), "{\"schema\": \"strata-receipt/9.0\"}").unwrap();
    let ran = refused(strata().args(["run", "m", "x", "--prefix"]).arg(folder.path()), 1, "S0005");
    assert!(ran.err.contains("strata-receipt/9.0") && ran.err.contains("newer Strata"), "{}", ran.err);
}
