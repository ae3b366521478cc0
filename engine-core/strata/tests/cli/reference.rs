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

/// Greedy text is a weak test: another right engine may take the other of two nearly equal tokens, and
/// all after that differs. So: the same, or the reference was undecided where the texts part, or exact
/// arithmetic does not choose its token there either.
fn check_greedy(file: &str, reference: &str, exact: &str) {
    /// Nats between the reference's first and second choice. Its own activations are rounded to 8 bits,
    /// which moves single log-probabilities by up to 0.3.
    const UNDECIDED: f64 = 0.3;
    let (Some(model), Some(reference), Some(exact)) = (model(file), shared(reference), shared(exact)) else { return };
    let exact = document(&exact);
    let document = document(&reference);
    for case in ["raw", "chat"].iter().flat_map(|list| document[*list].as_array().unwrap()) {
        let expected = case["tokens"].as_array().unwrap();
        let mut run = strata_with_plugin("run");
        run.arg(&model).args(["--json", "--temperature", "0", "--max-tokens", &expected.len().to_string()]);
        match case["prompt"].as_str() {
            Some(prompt) => run.args(["--raw", prompt]),
            None => run.arg(case["messages"][0]["content"].as_str().unwrap()),
        };
        let report = ran(&mut run).json();
        let n_prompt = case["prompt_tokens"].as_array().unwrap().len();
        assert_eq!(report["stats"]["prompt_tokens_new"], json!(n_prompt));
        let ours = report["tokens"].as_array().unwrap();
        let same = ours.iter().zip(expected).take_while(|(ours, theirs)| ours == theirs).count();
        let what = case["prompt"].as_str().unwrap_or("chat");
        if same == expected.len() {
            println!("{what:?}: all {same} tokens as the reference");
            continue;
        }
        let margin = case["margin_top1_top2"][same].as_f64().unwrap();
        let whole: Vec<&Value> = case["prompt_tokens"].as_array().unwrap().iter().chain(expected).collect();
        let is_this = |other: &&Value| {
            other["tokens"]
                .as_array()
                .unwrap()
                .iter()
                .eq(whole.iter().copied().take(other["tokens"].as_array().unwrap().len()))
        };
        let exact_agrees = exact["cases"]
            .as_array()
            .unwrap()
            .iter()
            .find(is_this)
            .map(|case| case["exact_argmax_equals_engine_token"][same] == json!(1));
        println!(
            "{what:?}: parts after {same} of {} tokens, margin {margin} nats, exact arithmetic agrees with the reference: {exact_agrees:?}",
            expected.len()
        );
        assert!(
            margin < UNDECIDED || exact_agrees == Some(false),
            "{what:?} parts after {same} tokens where the reference was sure"
        );
    }
}

#[test]
fn greedy_text_parts_from_the_reference_only_where_that_was_undecided_smollm2() {
    check_greedy(
        SMOLLM2,
        "reference/greedy-smollm2-135m-instruct-q4_1.json",
        "reference/exact-smollm2-135m-instruct-q4_1.json",
    );
}

#[test]
fn greedy_text_parts_from_the_reference_only_where_that_was_undecided_gemma3() {
    check_greedy(GEMMA3, "reference/greedy-gemma-3-270m-q4_k_m.json", "reference/exact-gemma-3-270m-q4_k_m.json");
}
