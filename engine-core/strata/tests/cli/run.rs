//! `strata run` on a real model.

use crate::support::{GEMMA3, SMOLLM2, model, ran, refused, strata_with_plugin};
use std::io::Read;
use std::process::Stdio;

const GREEDY: &[&str] = &["--temperature", "0", "--max-tokens", "24"];

#[test]
fn text_goes_to_stdout_and_figures_to_stderr() {
    let Some(model) = model(SMOLLM2) else { return };
    let ran = ran(strata_with_plugin("run").arg(model).arg("What is two plus two?").args(GREEDY));
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    assert!(ran.out.trim().len() > 10, "{}", ran.out);
    for figure in [
        "backend: cpu on ",
        "settings: --max-context 8192 --kv f16",
        "0 reused",
        "tok/s",
        "of 8192; cut off at --max-tokens]",
    ] {
        assert!(ran.err.contains(figure), "{figure}: {}", ran.err);
    }
    assert!(!ran.out.contains("tok/s"));
}

/// Temperature 0: model, prompt and settings alone decide.
#[test]
fn greedy_text_is_the_same_for_every_number_of_threads() {
    let Some(model) = model(SMOLLM2) else { return };
    let tokens = |threads: &str| {
        let mut run = strata_with_plugin("run");
        let report =
            ran(run.arg(&model).args(["Name three rivers.", "--json", "--threads", threads]).args(GREEDY)).json();
        assert_eq!(
            report["stats"]["generated_tokens"].as_u64().unwrap(),
            report["tokens"].as_array().unwrap().len() as u64
        );
        report["tokens"].clone()
    };
    assert_eq!(tokens("1"), tokens("2"));
}

#[test]
fn a_seed_makes_a_sampled_text_repeat() {
    let Some(model) = model(SMOLLM2) else { return };
    let text = |seed: &str| {
        let mut run = strata_with_plugin("run");
        run.arg(&model).args(["Tell a story.", "--json", "--max-tokens", "16", "--temperature", "1.5", "--seed", seed]);
        ran(&mut run).json()["text"].clone()
    };
    assert_eq!(text("7"), text("7"));
    assert_ne!(text("7"), text("8"));
}

#[test]
fn the_prompt_may_come_from_standard_input() {
    let Some(model) = model(SMOLLM2) else { return };
    let by_argument = ran(strata_with_plugin("run").arg(&model).arg("Hello there").args(GREEDY)).out;
    let by_pipe = ran(strata_with_plugin("run").arg(&model).args(GREEDY).write_stdin("Hello there\n")).out;
    assert_eq!(by_argument, by_pipe);
}

#[test]
fn a_model_without_a_template_continues_the_text_and_says_so() {
    let Some(model) = model(GEMMA3) else { return };
    let ran = ran(strata_with_plugin("run").arg(model).arg("The capital of France is").args(GREEDY));
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    assert!(ran.err.contains("no chat template"), "{}", ran.err);
    assert!(ran.out.contains("the"), "{}", ran.out);
}

/// Case e15: both numbers, before any work.
#[test]
fn a_prompt_longer_than_the_context_is_refused_with_both_numbers() {
    let Some(model) = model(SMOLLM2) else { return };
    let words = "word ".repeat(80);
    let ran = refused(strata_with_plugin("run").arg(&model).args([&words, "--raw", "--max-context", "64"]), 1, "S0401");
    assert!(ran.err.contains("64"), "{}", ran.err);
    let fits = strata_with_plugin("run")
        .arg(&model)
        .args(["word word word", "--raw", "--max-context", "64", "--temperature", "0", "--json"])
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&fits.stdout).unwrap();
    assert_eq!(report["settings"]["max_context"], 64);
    assert!(report["stats"]["end_context"].as_u64().unwrap() <= 64);
}

#[test]
fn a_stop_text_ends_the_answer_and_is_not_printed() {
    let Some(model) = model(SMOLLM2) else { return };
    let run = |stop: &[&str]| {
        let mut command = strata_with_plugin("run");
        command.arg(&model).args(["Count from one to ten.", "--json"]).args(GREEDY).args(stop);
        ran(&mut command).json()
    };
    let whole = run(&[])["text"].as_str().unwrap().to_owned();
    let word = whole.split_whitespace().nth(3).unwrap().to_owned();
    let stopped = run(&["--stop", &word]);
    assert_eq!(stopped["finish_reason"], "stop");
    assert_eq!(stopped["text"].as_str().unwrap(), &whole[..whole.find(&word).unwrap()]);
}

/// `| head -c 1`: nobody reads any more, which is no reason to panic or to go on.
#[test]
fn a_closed_pipe_ends_the_run_quietly() {
    let Some(model) = model(SMOLLM2) else { return };
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_strata"))
        .args(["run", "--plugin"])
        .arg(crate::support::cpu_plugin())
        .arg(model)
        .args(["Write a long story.", "--temperature", "0", "--max-tokens", "400"])
        .env("STRATA_STATE_DIR", crate::support::state_dir())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
}

#[test]
fn bench_prints_medians() {
    let Some(model) = model(SMOLLM2) else { return };
    let mut bench = strata_with_plugin("bench");
    bench.arg(model).args(["--runs", "2", "--prompt-tokens", "16,32", "--decode-tokens", "4", "--json"]);
    let report = ran(&mut bench).json();
    assert_eq!(report["prompt"].as_array().unwrap().len(), 2);
    for speed in report["prompt"].as_array().unwrap().iter().chain([&report["decode"]]) {
        assert_eq!(speed["runs"].as_array().unwrap().len(), 2);
        assert!(speed["median"].as_f64().unwrap() > 0.0);
    }
}

/// `--json-schema`, `--regex` and `--grammar`: the answer is what they describe, and a mistake in them is
/// said before any work.
#[test]
fn an_answer_keeps_to_a_rule() {
    let Some(model) = model(SMOLLM2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs_err::write(&path, text).unwrap();
        path
    };
    let schema = write(
        "schema.json",
        r#"{"type":"object","properties":{"city":{"enum":["Rome","Oslo"]},"people":{"type":"integer","minimum":1,"maximum":9999}},
            "required":["city","people"],"additionalProperties":false}"#,
    );
    let question = "Describe a city as JSON.";
    let text = |flag: &str, value: &std::path::Path| {
        let mut run = strata_with_plugin("run");
        let ran =
            ran(run.arg(&model).arg(question).args(["--temperature", "0", "--max-tokens", "200", flag]).arg(value));
        assert_eq!(ran.status, Some(0), "{}", ran.err);
        ran.out.trim_end().to_owned()
    };
    let value: serde_json::Value = serde_json::from_str(&text("--json-schema", &schema)).unwrap();
    assert!(["Rome", "Oslo"].contains(&value["city"].as_str().unwrap()) && value["people"].as_u64().unwrap() < 10_000);
    assert!(["Rome", "Oslo"].contains(&text("--regex", "Rome|Oslo".as_ref()).as_str()));
    let grammar = write("list.lark", "start: \"Rome\" (\", \" \"Rome\"){2}\n");
    assert_eq!(text("--grammar", &grammar), "Rome, Rome, Rome");
    let broken = write("broken.lark", "start: nowhere\n");
    let mut run = strata_with_plugin("run");
    refused(run.arg(&model).arg(question).arg("--grammar").arg(broken), 1, "S0408");
    let no_json = write("no.json", "{");
    let mut run = strata_with_plugin("run");
    refused(run.arg(&model).arg(question).arg("--json-schema").arg(no_json), 1, "S0005");
}

#[test]
fn a_bias_of_a_token_that_the_model_does_not_have_is_refused() {
    let Some(model) = model(SMOLLM2) else { return };
    let mut run = strata_with_plugin("run");
    refused(run.arg(&model).args(["Hello", "--logit-bias", "49152=1"]), 1, "S0206");
}
