//! Token ids and distances from exact arithmetic, through the commands that a third party would use.

use crate::support::{GEMMA3, SMOLLM2, model, ran, shared, strata, strata_with_plugin};
use serde_json::{Value, json};

fn document(path: &std::path::Path) -> Value {
    serde_json::from_str(&fs_err::read_to_string(path).unwrap()).unwrap()
}

fn check_tokens(file: &str, reference: &str) {
    let (Some(model), Some(reference)) = (model(file), shared(reference)) else { return };
    let cases = document(&reference)["cases"].as_array().unwrap().clone();
    let texts: Vec<&Value> = cases.iter().map(|case| &case["text"]).collect();
    for (flags, expected) in [(&["--json"][..], "plain"), (&["--json", "--special"], "special")] {
        let ran = ran(strata().arg("tokenize").arg(&model).args(flags).write_stdin(json!(texts).to_string()));
        let ids = ran.json();
        for (case, ids) in cases.iter().zip(ids.as_array().unwrap()) {
            assert_eq!(ids, &case[expected], "{expected}: {}", case["text"]);
        }
    }
    let plain: Vec<&Value> = cases.iter().map(|case| &case["plain"]).collect();
    let ran =
        ran(strata().arg("tokenize").arg(&model).args(["--json", "--decode"]).write_stdin(json!(plain).to_string()));
    for (case, text) in cases.iter().zip(ran.json().as_array().unwrap()) {
        assert_eq!(text == &case["text"], case["roundtrip_equal"] == json!(true), "{}", case["text"]);
    }
}

#[test]
fn token_ids_equal_the_reference_smollm2() {
    check_tokens(SMOLLM2, "reference/tokenize-smollm2-135m-instruct-q4_1.json");
}

#[test]
fn token_ids_equal_the_reference_gemma3() {
    check_tokens(GEMMA3, "reference/tokenize-gemma-3-270m-q4_k_m.json");
}

#[test]
fn eval_prints_the_distance_from_exact_arithmetic() {
    let reference = "reference/exact-gemma-3-270m-q4_k_m.json";
    let (Some(model), Some(reference)) = (model(GEMMA3), shared(reference)) else { return };
    let ran = ran(strata_with_plugin("eval").arg(model).arg("--reference").arg(reference).arg("--json"));
    let report = ran.json();
    println!("{report:#}");
    assert!(report["kl_mean"].as_f64().unwrap() <= 0.005);
    assert!(report["kl_max"].as_f64().unwrap() >= report["kl_mean"].as_f64().unwrap());
    assert!(report["top1"].as_f64().unwrap() > 0.95);
}

#[test]
fn a_reference_that_is_none_is_refused() {
    let Some(model) = model(SMOLLM2) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("reference.json");
    fs_err::write(&file, "{\"cases\": [{\"tokens\": [1], \"positions\": []}]}").unwrap();
    crate::support::refused(strata_with_plugin("eval").arg(model).arg("--reference").arg(&file), 1, "S0405");
}

#[test]
fn bad_ids_and_bad_input_are_refused() {
    let Some(model) = model(SMOLLM2) else { return };
    let tokenize = || {
        let mut command = strata();
        command.arg("tokenize").arg(&model);
        command
    };
    crate::support::refused(tokenize().args(["--decode", "49152"]), 1, "S0206");
    crate::support::refused(tokenize().args(["--decode", "x"]), 1, "S0005");
    crate::support::refused(tokenize().arg("--json").write_stdin("\"text\""), 1, "S0005");
    crate::support::refused(tokenize().write_stdin(&b"\xff\xfe"[..]), 1, "S0005");
}
