//! `strata bench`: what it measures is there and adds up. How fast is not asked here.

use crate::support::{SMOLLM2, model, ran, refused, strata, strata_with_plugin};
use serde_json::Value;

#[test]
fn every_measurement_is_in_the_report_and_compares_with_an_earlier_one() {
    let Some(model) = model(SMOLLM2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("before.json");
    let bench = |more: &[&str]| {
        let mut bench = strata_with_plugin("bench");
        bench.arg(&model).args(["--prompt-tokens", "16,48", "--decode-tokens", "4", "--depths", "0,32", "--runs", "2"]);
        bench.args(more);
        ran(&mut bench)
    };
    let first = bench(&["--json", "--session", "2", "--starts", "2", "--needle", "50", "--needle-tokens", "300"]);
    assert_eq!(first.status, Some(0), "{}", first.err);
    let report = first.json();
    let lengths: Vec<&Value> = report["prompt"].as_array().unwrap().iter().map(|speed| &speed["tokens"]).collect();
    assert_eq!(lengths, [16, 48]);
    assert_eq!(report["decode_at"][1]["depth"], 32);
    let speed = &report["decode_at"][1]["speed"];
    let number = |name: &str| speed[name].as_f64().unwrap();
    assert!(number("min") <= number("median") && number("median") <= number("max") && number("min") > 0.0, "{speed}");
    assert!((number("spread") - (number("max") - number("min")) / number("median")).abs() < 1e-9);
    let session = &report["session"];
    assert_eq!(session["turns"].as_array().unwrap().len(), 2);
    // The second turn finds the first one and its answer in the cache.
    assert_eq!(session["turns"][1]["reused"], 512 + 192 + 32);
    assert_eq!(session["turns"][1]["new"], 192);
    assert_eq!(session["reused_tokens"], 512 + 192 + 32);
    assert_eq!(report["starts"]["first_decode"]["runs"].as_array().unwrap().len(), 2);
    assert_eq!(report["needle"][0]["depth_percent"], 50);
    assert!((200..=400).contains(&report["needle"][0]["prompt_tokens"].as_u64().unwrap()), "{}", report["needle"]);

    fs_err::write(&file, &first.out).unwrap();
    let second = bench(&["--compare", file.to_str().unwrap()]);
    assert_eq!(second.status, Some(0), "{}", second.err);
    for line in ["prompt of 16", "prompt of 48", "decode at 0", "decode at 32", "spread"] {
        assert!(second.out.contains(line), "{line}: {}", second.out);
    }
}

#[test]
fn what_cannot_be_measured_is_refused_before_a_model_is_read() {
    let bench = |more: &[&str]| {
        let mut command = strata();
        command.args(["bench", "no-such-model.gguf"]).args(more);
        command
    };
    refused(&mut bench(&["--runs", "0"]), 2, "S0002");
    refused(&mut bench(&["--needle", "101"]), 2, "S0002");
    refused(&mut bench(&["--needle", "1", "--needle-tokens", "10"]), 2, "S0002");
    refused(&mut bench(&["--starts", "100000"]), 2, "S0002");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.json");
    fs_err::write(&file, r#"{"schema":"strata-run/1.0"}"#).unwrap();
    refused(&mut bench(&["--compare", file.to_str().unwrap()]), 1, "S0005");
    refused(&mut bench(&[]), 1, "S0006");
}
