//! How far models are from exact arithmetic, against reference data that lies beside the checkout,
//! and what generation does with a real model.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use strata_engine::eval::{DistanceSummary, compare, perplexity, summarise};
use strata_engine::{Engine, EngineOptions, FinishReason, Limits, Reference, ReferenceCase, SamplerSettings, generate};
use strata_manifest::Sha256Digest;
use strata_model::gguf::Gguf;
use strata_model::tokenizer::Tokenizer;
use strata_plugin_host::DeviceOptions;

use crate::plugin::cpu;
use crate::support::{GEMMA3, SMOLLM2, models_dir, real_model, shared};

fn load(gguf: &Arc<Gguf>, options: &EngineOptions) -> Engine {
    Engine::load(Arc::clone(gguf), cpu(&DeviceOptions::default()), options).unwrap()
}

fn distances<'r>(
    gguf: &Arc<Gguf>,
    precise: bool,
    cases: impl IntoIterator<Item = &'r ReferenceCase>,
) -> DistanceSummary {
    let options = EngineOptions { precise, max_context: Some(1024), max_outputs: 64, ..EngineOptions::default() };
    let engine = load(gguf, &options);
    let mut session = engine.session().unwrap();
    let all: Vec<_> = cases.into_iter().flat_map(|case| compare(&mut session, case).unwrap()).collect();
    summarise(&all)
}

fn reference(path: &str) -> Option<Reference> {
    Some(Reference::parse(&fs_err::read_to_string(shared(path)?).unwrap()).unwrap())
}

/// The gates of the design: 8-bit activations within 0.005 nats of exact arithmetic on average,
/// float activations within 1e-5, and the greatest logit nearly always the same.
fn real_gate(file: &str, reference_file: &str) {
    let (Some(gguf), Some(reference)) = (real_model(file), reference(reference_file)) else { return };
    let quick = distances(&gguf, false, &reference.cases);
    println!("{file}: {quick:?}");
    let precise = distances(&gguf, true, &reference.cases);
    println!("{file}, precise: {precise:?}");
    assert!(quick.kl_mean <= 0.005 && quick.kl_max < 0.1 && quick.top1 > 0.95, "{file}: {quick:?}");
    assert!(precise.kl_mean < 1e-5 && precise.top1 > 0.995, "{file}, precise: {precise:?}");
}

#[test]
fn smollm2_is_as_near_to_exact_as_it_must_be() {
    real_gate(SMOLLM2, "reference/exact-smollm2-135m-instruct-q4_1.json");
}

#[test]
fn gemma3_is_as_near_to_exact_as_it_must_be() {
    real_gate(GEMMA3, "reference/exact-gemma-3-270m-q4_k_m.json");
}

/// The made-up model of a case, generated once into the models' folder; `None` with a word why.
fn made_up(case: &ReferenceCase, arguments: &str) -> Option<Arc<Gguf>> {
    let name = case.name.clone().unwrap();
    let path = models_dir().join(format!("synthetic-{name}.gguf"));
    if !path.is_file() {
        let (generator, tokenizer) = (shared("tools/make_moe_gguf.py")?, models_dir().join(SMOLLM2));
        if !tokenizer.is_file() {
            println!("skipped: {} is absent", tokenizer.display());
            return None;
        }
        // Written under another name first: tests of another process may look for it meanwhile.
        let part = path.with_extension(format!("{}.part", std::process::id()));
        let made = Command::new("python3")
            .arg(generator)
            .arg("--out")
            .arg(&part)
            .arg("--tokenizer-from")
            .arg(tokenizer)
            .args(["--seed", "1"])
            .args(arguments.split_whitespace())
            .output();
        match made {
            Ok(output) if output.status.success() => fs_err::rename(&part, &path).unwrap(),
            Ok(output) => {
                println!("skipped: {name} was not made: {}", String::from_utf8_lossy(&output.stderr));
                return None;
            }
            Err(error) => {
                println!("skipped: {name} was not made: {error}");
                return None;
            }
        }
    }
    let digest = sha256_of(&path);
    if Some(&digest) != case.model_sha256.as_ref() {
        // Another numpy makes other bytes; then the reference says nothing about this file.
        println!("skipped: {name} has SHA-256 {digest}, the reference is for {:?}", case.model_sha256);
        return None;
    }
    Some(Arc::new(Gguf::open(&path).unwrap()))
}

fn sha256_of(path: &Path) -> String {
    Sha256Digest::of_reader(fs_err::File::open(path).unwrap()).unwrap().0.to_string()
}

/// Each made-up model's generator arguments and llama.cpp's mean distance with its defaults.
fn generators(path: PathBuf) -> BTreeMap<String, (String, f64)> {
    let document: serde_json::Value = serde_json::from_str(&fs_err::read_to_string(path).unwrap()).unwrap();
    let cases = document["cases"].as_array().unwrap();
    let entry = |case: &serde_json::Value| {
        let text = |key: &str| case[key].as_str().unwrap().to_owned();
        let peer = case["llama_cpp_distance_from_exact"]["default"]["kl_mean"].as_f64().unwrap();
        (text("name"), (text("generator_args"), peer))
    };
    cases.iter().map(entry).collect()
}

#[test]
fn made_up_models_are_as_near_to_exact_as_they_must_be() {
    const FILE: &str = "reference/synthetic-exact.json";
    let (Some(reference), Some(path)) = (reference(FILE), shared(FILE)) else { return };
    let generators = generators(path);
    for case in &reference.cases {
        let name = case.name.as_deref().unwrap();
        let (arguments, peer) = &generators[name];
        let Some(gguf) = made_up(case, arguments) else { continue };
        let quick = distances(&gguf, false, [case]);
        let precise = distances(&gguf, true, [case]);
        println!("{name}: {quick:?}, llama.cpp {peer}; precise {precise:?}");
        assert!(precise.kl_mean < 1e-6 && precise.top1 == 1.0, "{name}, precise: {precise:?}");
        if name.ends_with("F32") {
            assert!(quick.kl_mean < 1e-6 && quick.top1 == 1.0, "{name}: {quick:?}");
        } else {
            assert!(quick.kl_mean <= *peer, "{name}: {quick:?}, llama.cpp has {peer}");
        }
    }
}

/// Debian's copy of the GPL version 3, by its digest.
const TEXT: &str = "/usr/share/common-licenses/GPL-3";

/// llama.cpp's figure for the same text, within the half percent that tells two correct engines.
#[test]
fn perplexity_of_a_known_text_is_the_peers() {
    let (Some(gguf), Some(path)) = (real_model(SMOLLM2), shared("reference/perplexity.json")) else { return };
    let document: serde_json::Value = serde_json::from_str(&fs_err::read_to_string(path).unwrap()).unwrap();
    let is_the_text = Path::new(TEXT).is_file() && document["text"]["sha256"] == sha256_of(Path::new(TEXT));
    if !is_the_text {
        println!("skipped: {TEXT} is not the text of the reference");
        return;
    }
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let tokens = tokenizer.encode(&fs_err::read_to_string(TEXT).unwrap(), true, false);
    let bos = if tokenizer.adds_bos() { tokenizer.bos() } else { None };
    let options = EngineOptions { max_context: Some(512), max_outputs: 256, ..EngineOptions::default() };
    let mut session = load(&gguf, &options).session().unwrap();
    let result = perplexity(&mut session, &tokens, bos, 512, |_| {}).unwrap();
    println!("{result:?}");
    let expected = &document["results"][0];
    assert_eq!(result.chunks, expected["chunks"].as_u64().unwrap());
    let peer = expected["ppl"].as_f64().unwrap();
    assert!((result.perplexity / peer - 1.0).abs() < 0.005, "{result:?}, llama.cpp has {peer}");
    assert!((result.stderr / expected["stderr"].as_f64().unwrap() - 1.0).abs() < 0.02, "{result:?}");
}

#[test]
fn an_answer_streams_stops_and_is_the_same_every_time() {
    let Some(gguf) = real_model(SMOLLM2) else { return };
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let engine = load(&gguf, &EngineOptions { max_context: Some(64), ..EngineOptions::default() });
    let mut session = engine.session().unwrap();
    let prompt = tokenizer.encode("The capital of France is", true, false);
    let greedy = SamplerSettings::default();
    let mut run = |sampling: &SamplerSettings, limits: &Limits| {
        let mut streamed = String::new();
        let mut n_tokens = 0;
        let finished = generate(&mut session, &tokenizer, &prompt, sampling, limits, &mut |piece| {
            streamed.push_str(piece.text);
            n_tokens += u64::from(piece.token.is_some());
            if let Some(log_probability) = piece.log_probability {
                assert!(log_probability < 0.0 && log_probability.is_finite());
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(streamed, finished.text);
        assert_eq!(n_tokens, finished.stats.generated);
        assert_eq!(finished.stats.end_context, prompt.len() as u64 + finished.stats.generated);
        assert_eq!(finished.stats.prompt_reused + finished.stats.prompt_new, prompt.len() as u64);
        finished
    };

    let twelve = Limits { max_tokens: Some(12), log_probabilities: true, ..Limits::default() };
    let first = run(&greedy, &twelve);
    assert_eq!(
        (first.reason.clone(), first.stats.generated, first.stats.decode_steps),
        (FinishReason::MaxTokens, 12, 11)
    );
    assert!(first.text.starts_with(" Paris"), "{:?}", first.text);
    let again = run(&greedy, &twelve);
    assert_eq!((again.tokens, again.text), (first.tokens.clone(), first.text.clone()));

    // The context is full at 64, prompt and answer together.
    let open_end = Limits { ignore_end: true, ..Limits::default() };
    let full = run(&greedy, &open_end);
    assert_eq!((full.reason, full.stats.end_context, full.stats.context_size), (FinishReason::ContextFull, 64, 64));
    assert!(full.text.starts_with(&first.text));

    // A stop string across token borders is no part of the text, and nothing before it is lost.
    let at = first.text.char_indices().nth(9).map(|(at, _)| at).unwrap();
    let stop: String = first.text[at..].chars().take(5).collect();
    let stopped = run(&greedy, &Limits { stop: vec![stop.clone()], ..twelve.clone() });
    assert_eq!(stopped.text, first.text[..first.text.find(&stop).unwrap()]);
    assert_eq!(stopped.reason, FinishReason::StopText(stop));
    // What only looked like the beginning of one comes out in the end.
    let last: String = first.text.chars().rev().take(1).collect();
    let held = run(&greedy, &Limits { stop: vec![format!("{last}\u{1}")], ..twelve.clone() });
    assert_eq!(held.text, first.text);

    let drawn = SamplerSettings { temperature: 1.0, top_k: 40, seed: Some(7), ..SamplerSettings::default() };
    let one = run(&drawn, &twelve);
    assert_eq!(run(&drawn, &twelve).tokens, one.tokens);
    assert_eq!(one.seed, 7);

    let mut calls = 0;
    let cancelled = generate(&mut session, &tokenizer, &prompt, &greedy, &twelve, &mut |_| {
        calls += 1;
        if calls == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    assert_eq!((cancelled.reason, cancelled.tokens.len()), (FinishReason::Cancelled, 3));
}
