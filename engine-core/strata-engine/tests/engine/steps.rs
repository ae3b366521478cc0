//! What steps give: the same bits however a prompt is split, prefix reuse, and the edges of the
//! context.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strata_backend_abi::StrataDType;
use strata_diag::Diagnose;
use strata_diag::catalogue::{engine, general, plugin, text};
use strata_engine::{Engine, EngineError, EngineOptions, Session};
use strata_model::gguf::Gguf;
use strata_plugin_host::DeviceOptions;

use crate::plugin::{c_demo, cpu};
use crate::support::{ARCHITECTURES, GEMMA3, Numbers, SMOLLM2, VOCAB, open, real_model, toy};

fn load(gguf: &Arc<Gguf>, options: &EngineOptions) -> Engine {
    Engine::load(Arc::clone(gguf), cpu(&DeviceOptions::default()), options).unwrap()
}

fn tokens(n: usize, vocabulary: u64, seed: u64) -> Vec<u32> {
    let mut numbers = Numbers::new(seed);
    (0..n).map(|_| (numbers.next() % vocabulary) as u32).collect()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

/// Logits after each token, from steps of these sizes over and over; pieces of more than one token
/// give only their last.
fn last_logits(session: &mut Session, tokens: &[u32], pieces: &[usize]) -> Vec<u32> {
    session.truncate(0);
    let mut rest = tokens;
    for piece in pieces.iter().cycle() {
        let (now, later) = rest.split_at((*piece).min(rest.len()));
        session.evaluate(now).unwrap();
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    bits(session.logits())
}

fn splits_do_not_matter(gguf: &Arc<Gguf>, n: usize, what: &str) {
    let options = EngineOptions { max_context: Some(256), max_batch: 96, ..EngineOptions::default() };
    let engine = load(gguf, &options);
    let mut session = engine.session().unwrap();
    let tokens = tokens(n, session.n_vocab(), 3);
    let whole = last_logits(&mut session, &tokens, &[n]);
    for pieces in [&[1][..], &[3], &[7], &[8], &[9], &[64], &[1, 30, 2, 11]] {
        assert!(last_logits(&mut session, &tokens, pieces) == whole, "{what}: pieces of {pieces:?}");
    }
    // Rows of one step, against the last rows of steps that end there.
    session.truncate(0);
    let mut rows = Vec::new();
    session
        .logits_for_all(&tokens, |position, logits| {
            assert_eq!(position as usize, rows.len());
            rows.push(bits(logits));
            Ok(())
        })
        .unwrap();
    assert_eq!(rows.len(), n);
    for end in [1, 2, 8, 9, n / 2, n] {
        assert!(last_logits(&mut session, &tokens[..end], &[end]) == rows[end - 1], "{what}: row {end}");
    }
}

#[test]
fn toys_give_the_same_bits_however_a_prompt_is_split() {
    for architecture in ARCHITECTURES {
        splits_do_not_matter(&open(&toy(architecture)), 150, architecture);
    }
}

#[test]
fn real_models_give_the_same_bits_however_a_prompt_is_split() {
    for file in [SMOLLM2, GEMMA3] {
        let Some(gguf) = real_model(file) else { continue };
        splits_do_not_matter(&gguf, 40, file);
    }
}

#[test]
fn the_number_of_threads_does_not_matter() {
    for architecture in ["llama", "gemma3", "qwen3moe"] {
        let gguf = open(&toy(architecture));
        let tokens = tokens(70, VOCAB, 4);
        let run = |n_threads| {
            let device = cpu(&DeviceOptions { n_threads, ..DeviceOptions::default() });
            let engine = Engine::load(Arc::clone(&gguf), device, &EngineOptions::default()).unwrap();
            last_logits(&mut engine.session().unwrap(), &tokens, &[tokens.len()])
        };
        let one = run(1);
        for n_threads in [2, 3, 5] {
            assert!(run(n_threads) == one, "{architecture}: {n_threads} threads");
        }
    }
}

#[test]
fn a_prompt_reuses_what_it_shares_with_the_one_before() {
    let engine = load(&open(&toy("gemma3")), &EngineOptions::default());
    let mut session = engine.session().unwrap();
    let first = tokens(60, VOCAB, 5);
    let stats = session.prompt(&first).unwrap();
    assert_eq!((stats.reused, stats.new), (0, 60));
    let fresh = bits(session.logits());
    // The same again is all there, logits included.
    let stats = session.prompt(&first).unwrap();
    assert_eq!((stats.reused, stats.new), (60, 0));
    assert_eq!(bits(session.logits()), fresh);
    // A prefix of it has to evaluate its last token for the logits.
    let stats = session.prompt(&first[..20]).unwrap();
    assert_eq!((stats.reused, stats.new), (19, 1));
    let short = bits(session.logits());
    // Another ending.
    let mut second = first.clone();
    second[40] ^= 1;
    session.prompt(&first).unwrap();
    let stats = session.prompt(&second).unwrap();
    assert_eq!((stats.reused, stats.new), (40, 20));
    let branched = bits(session.logits());
    session.truncate(0);
    session.prompt(&second).unwrap();
    assert_eq!(bits(session.logits()), branched);
    session.truncate(0);
    session.prompt(&first[..20]).unwrap();
    assert_eq!(bits(session.logits()), short);
    assert_eq!(session.tokens(), &first[..20]);
}

/// Ctrl-C while a prompt is read: nothing is answered, and the same prompt asked again gives the
/// same bits.
#[test]
fn a_prompt_can_be_stopped() {
    let engine = load(&open(&toy("llama")), &EngineOptions::default());
    let mut session = engine.session().unwrap();
    let prompt = tokens(30, VOCAB, 8);
    session.prompt(&prompt).unwrap();
    let expected = bits(session.logits());
    session.truncate(0);
    let flag = Arc::new(AtomicBool::new(true));
    session.cancel_with(Arc::clone(&flag));
    let error = session.prompt(&prompt).unwrap_err();
    assert_eq!(error.code(), general::INTERRUPTED);
    assert!(session.logits().is_empty());
    flag.store(false, Ordering::SeqCst);
    session.prompt(&prompt).unwrap();
    assert_eq!(bits(session.logits()), expected);
}

/// A flag that is set in the middle of a long prompt is noticed within a second or so, although all of
/// the prompt would go into one step; what was read until then stays.
#[test]
fn a_long_prompt_stops_in_the_middle() {
    let Some(gguf) = real_model(SMOLLM2) else { return };
    let options = EngineOptions { max_context: Some(3000), max_batch: 2048, ..EngineOptions::default() };
    let engine = load(&gguf, &options);
    let mut session = engine.session().unwrap();
    let prompt = tokens(2040, session.n_vocab(), 21);
    let flag = Arc::new(AtomicBool::new(false));
    session.cancel_with(Arc::clone(&flag));
    let setter = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_secs(1));
        flag.store(true, Ordering::SeqCst);
        std::time::Instant::now()
    });
    match session.prompt(&prompt) {
        Ok(_) => println!("skipped: this machine reads 2040 tokens within a second"),
        Err(error) => {
            assert_eq!(error.code(), general::INTERRUPTED);
            let waited = setter.join().unwrap().elapsed();
            assert!(waited.as_secs_f64() < 3.0, "{waited:?}");
            assert!(session.position() > 0 && session.position() < 2040);
        }
    }
}

#[test]
fn the_context_ends_where_it_says() {
    let options = EngineOptions { max_context: Some(64), ..EngineOptions::default() };
    let engine = load(&open(&toy("llama")), &options);
    let mut session = engine.session().unwrap();
    session.prompt(&tokens(63, VOCAB, 6)).unwrap();
    assert_eq!(session.position(), 63);
    session.evaluate(&[1]).unwrap();
    let error = session.evaluate(&[1]).unwrap_err();
    assert!(matches!(error, EngineError::ContextExceeded { tokens: 65, context: 64 }), "{error}");
    let before = session.tokens().to_vec();
    for n in [64, 65, 5000] {
        let error = session.prompt(&tokens(n, VOCAB, 7)).unwrap_err();
        assert_eq!(error.code(), engine::CONTEXT_EXCEEDED);
        let EngineError::ContextExceeded { tokens, context } = error else { panic!("{error}") };
        assert_eq!((tokens, context), (n as u64, 64));
    }
    assert_eq!(session.tokens(), before, "a refused prompt leaves the session as it was");
    assert_eq!(session.prompt(&[]).unwrap_err().code(), engine::EMPTY_PROMPT);
    assert_eq!(session.prompt(&[VOCAB as u32]).unwrap_err().code(), text::UNKNOWN_TOKEN);
}

/// Greedy steps, however they are mixed with others and broken off, give the tokens of logits.
#[test]
fn greedy_steps_give_what_the_logits_say() {
    let options = EngineOptions { max_context: Some(40), sequences: 2, ..EngineOptions::default() };
    let engine = load(&open(&toy("gemma3")), &options);
    let (mut session, mut other) = (engine.session().unwrap(), engine.session().unwrap());
    let greatest = |logits: &[f32]| {
        let best = (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
        best as u32
    };
    let prompt = tokens(5, VOCAB, 14);
    session.prompt(&prompt).unwrap();
    let mut expected = vec![greatest(session.logits())];
    while session.position() < 40 {
        session.evaluate(&[*expected.last().unwrap()]).unwrap();
        expected.push(greatest(session.logits()));
    }
    for stray in [usize::MAX, 3, 1] {
        session.truncate(0);
        session.prompt(&prompt).unwrap();
        let mut got = vec![greatest(session.logits())];
        while session.position() < 40 {
            if got.len() % stray == 0 {
                other.truncate(0);
                other.greedy(7, true).unwrap();
            }
            got.push(session.greedy(*got.last().unwrap(), true).unwrap());
        }
        assert_eq!(got, expected, "{stray}");
        let error = session.greedy(1, true).unwrap_err();
        assert!(matches!(error, EngineError::ContextExceeded { tokens: 41, context: 40 }), "{error}");
    }
}

#[test]
fn sequences_are_apart_and_given_back() {
    let options = EngineOptions { max_context: Some(100), sequences: 2, ..EngineOptions::default() };
    let engine = load(&open(&toy("qwen3")), &options);
    let (left, right) = (tokens(50, VOCAB, 8), tokens(50, VOCAB, 9));
    let mut alone = engine.session().unwrap();
    let expected = [&left, &right].map(|tokens| last_logits(&mut alone, tokens, &[50]));
    let mut other = engine.session().unwrap();
    assert_eq!(engine.session().unwrap_err().code(), engine::NO_FREE_SEQUENCE);
    alone.truncate(0);
    for i in 0..50 {
        alone.evaluate(&left[i..=i]).unwrap();
        other.evaluate(&right[i..=i]).unwrap();
    }
    assert_eq!([bits(alone.logits()), bits(other.logits())], expected);
    drop(other);
    assert!(engine.session().is_ok());
}

#[test]
fn f32_and_f16_caches_differ_a_little_and_precise_uses_f32() {
    let gguf = open(&toy("llama"));
    let tokens = tokens(80, VOCAB, 10);
    let run = |options: &EngineOptions| {
        let engine = load(&gguf, options);
        let mut session = engine.session().unwrap();
        session.prompt(&tokens).unwrap();
        (engine.plan().kv_words(), engine.plan().kv, session.logits().to_vec())
    };
    let f16 = run(&EngineOptions::default());
    let f32_values = run(&EngineOptions { kv_v: Some(StrataDType::F32), ..EngineOptions::default() });
    let precise = run(&EngineOptions { precise: true, ..EngineOptions::default() });
    assert_eq!((f16.0.as_str(), f32_values.0.as_str(), precise.0.as_str()), ("f16", "f16,f32", "f32"));
    assert_eq!(precise.1, 2 * f16.1);
    let difference = f16.2.iter().zip(&precise.2).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(difference > 0.0 && difference < 0.05, "{difference}");
}

#[test]
fn what_does_not_fit_is_refused_with_the_numbers() {
    let gguf = open(&toy("llama"));
    let device = cpu(&DeviceOptions::default());
    let total = device.memory().unwrap().total;
    let options = EngineOptions { reserve_bytes: total, ..EngineOptions::default() };
    let error = Engine::load(Arc::clone(&gguf), device.clone(), &options).unwrap_err();
    assert_eq!(error.code(), engine::DOES_NOT_FIT);
    let facts = error.facts();
    for name in ["kv cache", "scratch", "needed", "free", "reserve", "available"] {
        assert!(facts.iter().any(|(fact, _)| *fact == name), "{name}: {facts:?}");
    }
    // A context that is asked for is refused when it is too long; the longest that fits is told.
    let options = EngineOptions { max_context: Some(i32::MAX as u64), ..EngineOptions::default() };
    let error = Engine::load(Arc::clone(&gguf), device.clone(), &options).unwrap_err();
    let EngineError::DoesNotFit { context_that_fits: Some(fits), .. } = &error else { panic!("{error}") };
    let plan = strata_engine::can_run(&gguf, &EngineOptions { max_context: Some(*fits), ..options.clone() }).unwrap();
    assert!(plan.kv_bytes <= device.memory().unwrap().total && *fits >= 1 << 16, "{fits}");
    assert!(error.hints().iter().any(|hint| hint.contains(&format!("--max-context {fits}"))));
    // One that nobody asked for is shortened, with a note.
    let free = device.memory().unwrap().free;
    let need = strata_engine::can_run(&gguf, &EngineOptions::default()).unwrap();
    let reserve_bytes = free - need.work_bytes - need.kv_bytes / 2 - (1 << 16);
    let options = EngineOptions { reserve_bytes, ..EngineOptions::default() };
    match Engine::load(gguf, device, &options) {
        Ok(engine) => {
            assert!(engine.context() < 256, "{}", engine.plan());
            assert!(engine.plan().notes.iter().any(|note| note.contains("does not fit")), "{}", engine.plan());
        }
        // Free memory changes while tests run; then it is refused with the numbers again.
        Err(error) => assert_eq!(error.code(), engine::DOES_NOT_FIT),
    }
}

/// Nothing falls to another device unsaid: a device that lacks an op is refused before anything
/// is loaded, by name of the op.
#[test]
fn an_op_that_the_device_lacks_is_named() {
    let device = c_demo();
    let used_before = device.memory().unwrap().used_here;
    let error = Engine::load(open(&toy("llama")), device.clone(), &EngineOptions::default()).unwrap_err();
    assert_eq!(error.code(), plugin::OP_UNSUPPORTED, "{error}");
    let facts = error.facts();
    for name in ["device", "operation", "layer", "formats", "reason"] {
        assert!(facts.iter().any(|(fact, text)| *fact == name && !text.is_empty()), "{name}: {facts:?}");
    }
    assert_eq!(device.memory().unwrap().used_here, used_before);
}

#[test]
fn copied_weights_compute_what_mapped_ones_do() {
    for architecture in ["qwen2", "qwen3moe"] {
        let gguf = open(&toy(architecture));
        let mapped = load(&gguf, &EngineOptions::default());
        let mut reports = Vec::new();
        let options = EngineOptions { copy_weights: true, ..EngineOptions::default() };
        let device = cpu(&DeviceOptions::default());
        let copied =
            Engine::load_with_progress(gguf, device, &options, &mut |progress| reports.push(progress)).unwrap();
        let bytes = mapped.plan().weights_in_place;
        assert_eq!((mapped.plan().weights_copied, copied.plan().weights_in_place), (0, 0));
        assert_eq!(copied.plan().weights_copied, bytes);
        assert!(reports.is_sorted_by_key(|report| report.done) && reports.iter().all(|report| report.total == bytes));
        assert_eq!(reports.last().unwrap().done, bytes);
        let tokens = tokens(30, VOCAB, 12);
        let run = |engine: &Engine| last_logits(&mut engine.session().unwrap(), &tokens, &[30]);
        assert_eq!(run(&mapped), run(&copied), "{architecture}");
    }
}
