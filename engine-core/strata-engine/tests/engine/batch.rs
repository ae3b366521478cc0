//! Requests that share steps: each gets what it gets alone, bit for bit; one that goes away makes
//! room; prompts and answers wait for each other no longer than a step; and the cache of earlier
//! requests gives back what it was given, within its budget.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use strata_diag::Diagnose;
use strata_diag::catalogue::{engine, general, text};
use strata_engine::{
    BatchPiece, BatchRequest, Constraint, Engine, EngineError, EngineOptions, FinishReason, Finished, Limits,
    SamplerSettings, Scheduler, SchedulerOptions, Sink, generate,
};
use strata_model::gguf::Gguf;
use strata_model::tokenizer::{TokenKind, Tokenizer, TokenizerData};
use strata_plugin_host::DeviceOptions;

use crate::plugin::cpu;
use crate::support::{Numbers, SMOLLM2, VOCAB, open, real_model, toy};

const PAGE: usize = 64;

/// What a request's sink heard.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    reused: Option<u64>,
    tokens: Vec<u32>,
    log_probabilities: Vec<u64>,
    top: Vec<Vec<(u32, f64)>>,
    pub(crate) text: String,
    result: Option<Result<Finished, EngineError>>,
}

impl Heard {
    pub(crate) fn finished(&self) -> &Finished {
        self.result.as_ref().unwrap().as_ref().unwrap()
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Listener {
    heard: Arc<Mutex<Heard>>,
    gone: Arc<AtomicBool>,
    /// Says `Break` at this many tokens.
    enough: Option<usize>,
}

impl Listener {
    pub(crate) fn with<T>(&self, look: impl FnOnce(&Heard) -> T) -> T {
        look(&self.heard.lock().unwrap())
    }

    fn is_done(&self) -> bool {
        self.with(|heard| heard.result.is_some())
    }

    fn n_tokens(&self) -> usize {
        self.with(|heard| heard.tokens.len())
    }
}

impl Sink for Listener {
    fn started(&mut self, reused: u64) {
        assert!(self.heard.lock().unwrap().reused.replace(reused).is_none(), "started twice");
    }

    fn piece(&mut self, piece: &BatchPiece<'_>) -> ControlFlow<()> {
        let mut heard = self.heard.lock().unwrap();
        heard.text.push_str(piece.text);
        if let Some(token) = piece.token {
            heard.tokens.push(token);
            heard.log_probabilities.extend(piece.log_probability.map(f64::to_bits));
            heard.top.push(piece.top.to_vec());
        }
        if self.enough == Some(heard.tokens.len()) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    fn done(self: Box<Self>, result: Result<Finished, EngineError>) {
        assert!(self.heard.lock().unwrap().result.replace(result).is_none(), "done twice");
    }
}

/// A vocabulary of the toy models' size: all bytes, pairs of letters, an end.
pub(crate) fn toy_tokenizer() -> Arc<Tokenizer> {
    let shown = |byte: &u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut moved = 0x100..;
    let mut texts: Vec<String> = (0..256)
        .map(|byte| if shown(&byte) { byte } else { moved.next().unwrap() })
        .map(|code| char::from_u32(code).unwrap().to_string())
        .collect();
    texts.extend((0..VOCAB - 257).map(|i| format!("{}{}", (b'a' + (i / 8) as u8) as char, i % 8)));
    texts.push("<|end|>".to_owned());
    let mut kinds = vec![TokenKind::Normal; texts.len()];
    kinds[VOCAB as usize - 1] = TokenKind::Control;
    let mut data = TokenizerData {
        model: "gpt2",
        pre: Some("gpt-2"),
        tokens: texts.iter().map(String::as_str).collect(),
        kinds,
        merges: vec!["a 0"],
        ..TokenizerData::default()
    };
    data.ids.eos = Some(VOCAB as u32 - 1);
    Arc::new(Tokenizer::from_data(&data).unwrap())
}

fn load(gguf: &Arc<Gguf>, sequences: u32, context: u64) -> Engine {
    let options = EngineOptions { sequences, max_context: Some(context), ..EngineOptions::default() };
    Engine::load(Arc::clone(gguf), cpu(&DeviceOptions::default()), &options).unwrap()
}

fn toy_engine(sequences: u32, context: u64) -> Engine {
    load(&open(&toy("llama")), sequences, context)
}

pub(crate) const OPTIONS: SchedulerOptions = SchedulerOptions { conversation_bytes: 64 << 20, max_waiting: 100 };

fn scheduler(engine: &Engine, options: &SchedulerOptions) -> Scheduler {
    Scheduler::new(engine, toy_tokenizer(), options).unwrap()
}

fn tokens(n: usize, seed: u64) -> Vec<u32> {
    let mut numbers = Numbers::new(seed);
    (0..n).map(|_| (numbers.next() % VOCAB) as u32).collect()
}

fn limits(max_tokens: u64) -> Limits {
    Limits { max_tokens: Some(max_tokens), ignore_end: true, log_probabilities: true, ..Limits::default() }
}

fn request(prompt: &[u32], max_tokens: u64, listener: &Listener) -> BatchRequest {
    BatchRequest {
        prompt: prompt.to_vec(),
        sampling: SamplerSettings::default(),
        limits: limits(max_tokens),
        top_log_probabilities: 0,
        constraint: None,
        sink: Box::new(listener.clone()),
    }
}

fn submit(scheduler: &mut Scheduler, prompt: &[u32], max_tokens: u64) -> Listener {
    let listener = Listener::default();
    scheduler.submit(request(prompt, max_tokens, &listener)).unwrap();
    listener
}

fn run(scheduler: &mut Scheduler) {
    for _ in 0..10_000 {
        if scheduler.is_idle() {
            return;
        }
        scheduler.step();
    }
    panic!("not idle after ten thousand steps: {:?}", scheduler.figures());
}

/// What a request gives with the engine to itself: tokens, and the bits of their log-probabilities.
fn alone(
    engine: &Engine,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    sampling: &SamplerSettings,
    n: u64,
) -> (Vec<u32>, Vec<u64>) {
    let mut bits = Vec::new();
    let mut session = engine.session().unwrap();
    let finished = generate(&mut session, tokenizer, prompt, sampling, &limits(n), &mut |piece| {
        bits.extend(piece.log_probability.map(f64::to_bits));
        ControlFlow::Continue(())
    });
    (finished.unwrap().tokens, bits)
}

fn sampled(seed: u64) -> SamplerSettings {
    let greedy = SamplerSettings::default();
    if seed.is_multiple_of(2) {
        return greedy;
    }
    SamplerSettings { temperature: 0.9, top_p: 0.95, repeat_penalty: 1.1, seed: Some(seed), ..greedy }
}

/// Requests of all lengths that come and go, more of them than slots, some with a beginning in
/// common, in a cache so small that pages move to host memory and back.
fn shared_steps_give_what_each_gives_alone(gguf: &Arc<Gguf>, tokenizer: &Arc<Tokenizer>, scale: usize, what: &str) {
    let vocabulary = Engine::hyperparameters(&load(gguf, 1, 256)).n_vocab;
    let cut = |n: usize, seed: u64| -> Vec<u32> {
        let mut numbers = Numbers::new(seed);
        (0..n).map(|_| (numbers.next() % vocabulary.min(u64::from(u32::MAX))) as u32).collect()
    };
    let common = cut(PAGE + 9, 1);
    let prompts: Vec<Vec<u32>> = (0..4 + 3 * scale)
        .map(|i| match i % 3 {
            0 => cut(1 + 17 * i, 100 + i as u64),
            1 => [&common[..], &cut(i, 200 + i as u64)].concat(),
            _ => common[..common.len() - i].to_vec(),
        })
        .collect();
    let n_answer = |i: usize| 3 + (i as u64 * 7) % 20;
    let engine = load(gguf, 3, 256);
    let expected: Vec<_> = prompts
        .iter()
        .enumerate()
        .map(|(i, prompt)| alone(&engine, tokenizer, prompt, &sampled(i as u64), n_answer(i)))
        .collect();
    let mut scheduler = Scheduler::new(&engine, Arc::clone(tokenizer), &OPTIONS).unwrap();
    for round in 0..2 {
        let mut listeners = Vec::new();
        for (i, prompt) in prompts.iter().enumerate() {
            let listener = Listener::default();
            let sampling = sampled(i as u64);
            scheduler.submit(BatchRequest { sampling, ..request(prompt, n_answer(i), &listener) }).unwrap();
            listeners.push(listener);
            // Some come while others are in the middle of their answers.
            for _ in 0..i % 4 {
                scheduler.step();
            }
        }
        run(&mut scheduler);
        for (i, (listener, (tokens, bits))) in listeners.iter().zip(&expected).enumerate() {
            listener.with(|heard| {
                assert_eq!(&heard.tokens, tokens, "{what}, round {round}: tokens of request {i}");
                assert_eq!(&heard.log_probabilities, bits, "{what}, round {round}: bits of request {i}");
                let finished = heard.finished();
                assert_eq!((&finished.tokens, &finished.text), (tokens, &heard.text));
                assert_eq!(finished.stats.prompt_reused + finished.stats.prompt_new, prompts[i].len() as u64);
            });
        }
    }
    let figures = scheduler.figures();
    assert!(figures.reused_tokens > 0, "{what}: {figures:?}");
    assert_eq!(figures.finished as usize, 2 * prompts.len());
    assert!(figures.steps < figures.generated_tokens, "{what}: steps were shared: {figures:?}");
}

#[test]
fn toys_give_in_shared_steps_what_they_give_alone() {
    for architecture in ["llama", "gemma3", "qwen3moe"] {
        shared_steps_give_what_each_gives_alone(&open(&toy(architecture)), &toy_tokenizer(), 3, architecture);
    }
}

#[test]
fn a_real_model_gives_in_shared_steps_what_it_gives_alone() {
    let Some(gguf) = real_model(SMOLLM2) else { return };
    let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf).unwrap());
    shared_steps_give_what_each_gives_alone(&gguf, &tokenizer, 1, SMOLLM2);
}

#[test]
fn who_is_gone_frees_its_work_before_the_next_step() {
    let engine = toy_engine(1, 256);
    let mut scheduler = scheduler(&engine, &OPTIONS);
    let first = submit(&mut scheduler, &tokens(10, 1), 200);
    let second = submit(&mut scheduler, &tokens(10, 2), 2);
    scheduler.step();
    scheduler.step();
    assert_eq!(first.n_tokens(), 2);
    first.gone.store(true, Ordering::SeqCst);
    scheduler.step();
    assert_eq!(second.n_tokens(), 1, "the slot was free for the very next step");
    assert_eq!(first.with(|heard| heard.result.as_ref().unwrap().as_ref().unwrap_err().code()), general::INTERRUPTED);
    // One that waits can go as well, and one can be ended by name.
    let waiting = submit(&mut scheduler, &tokens(10, 3), 2);
    waiting.gone.store(true, Ordering::SeqCst);
    let named = Listener::default();
    let id = scheduler.submit(request(&tokens(10, 4), 2, &named)).unwrap();
    assert!(scheduler.cancel(id) && named.is_done());
    assert!(!scheduler.cancel(id), "there is no such request any more");
    run(&mut scheduler);
    assert!(waiting.is_done() && waiting.with(|heard| heard.reused.is_none()));
    // A sink that has enough says so itself.
    let enough = Listener { enough: Some(3), ..Listener::default() };
    scheduler.submit(request(&tokens(10, 5), 100, &enough)).unwrap();
    run(&mut scheduler);
    assert_eq!(enough.with(|heard| heard.finished().reason.clone()), FinishReason::Cancelled);
    assert_eq!(enough.n_tokens(), 3);
    let figures = scheduler.figures();
    assert_eq!((figures.cancelled, figures.finished, figures.failed), (4, 1, 0));
    assert_eq!(figures.cache.pages, figures.cache.free_pages + figures.cache.cached_pages, "every page came back");
}

/// While a long prompt is read, an answer gets its token in each step, and steps are no longer than
/// somebody who waits for a token likes: all of the prompt's rows at once would take seconds.
#[test]
fn a_long_prompt_does_not_stall_an_answer() {
    let mut writer = toy("llama");
    writer.set("llama.context_length", 8192u32);
    let engine = load(&open(&writer), 2, 5000);
    let mut scheduler = scheduler(&engine, &OPTIONS);
    let talker = submit(&mut scheduler, &tokens(5, 1), 4000);
    scheduler.step();
    let long = submit(&mut scheduler, &tokens(4096, 2), 1);
    let start = scheduler.figures();
    while !long.is_done() {
        let before = talker.n_tokens();
        scheduler.step();
        assert_eq!(talker.n_tokens(), before + 1, "each step brings the answer a token");
    }
    let end = scheduler.figures();
    let mean = (end.step_seconds - start.step_seconds) / (end.steps - start.steps) as f64;
    assert!(mean < 0.3, "a step took {mean:.3} s");
    // A short prompt that comes behind a long one is answered long before that one is read.
    talker.gone.store(true, Ordering::SeqCst);
    let long = submit(&mut scheduler, &tokens(2000, 3), 1);
    scheduler.step();
    let short = submit(&mut scheduler, &tokens(20, 4), 1);
    while !short.is_done() {
        scheduler.step();
        assert!(!long.is_done(), "the short prompt waited for the long one");
    }
}

#[test]
fn a_conversation_that_comes_back_is_not_read_again() {
    let engine = toy_engine(2, 256);
    let mut scheduler = scheduler(&engine, &OPTIONS);
    let mut talk = tokens(90, 1);
    for turn in 0..3 {
        let before = talk.len();
        let listener = submit(&mut scheduler, &talk, 20);
        run(&mut scheduler);
        listener.with(|heard| {
            let expected = if turn == 0 { 0 } else { before - 5 - 1 };
            assert_eq!(heard.reused, Some(expected as u64), "turn {turn}");
            talk.extend_from_slice(&heard.tokens);
        });
        talk.extend(tokens(5, 50 + turn));
    }
    // The same prompt for several answers at one time is read once.
    let prompt = tokens(150, 9);
    let before = scheduler.figures().prompt_tokens;
    let first = submit(&mut scheduler, &prompt, 3);
    let second = submit(&mut scheduler, &prompt, 3);
    run(&mut scheduler);
    assert_eq!(first.with(|heard| heard.tokens.clone()), second.with(|heard| heard.tokens.clone()));
    let read = scheduler.figures().prompt_tokens - before;
    assert!(read < 150 + PAGE as u64, "{read} tokens were read for two answers to 150");
}

/// Ten conversations through a device cache of one: what was moved to host memory comes back, the
/// budget is kept, and the oldest goes when it is full.
#[test]
fn host_memory_keeps_conversations_within_its_budget() {
    let engine = toy_engine(1, 256);
    let page_bytes = scheduler(&engine, &OPTIONS).figures().cache.page_bytes;
    let prompts: Vec<Vec<u32>> = (0..10).map(|i| tokens(3 * PAGE + 1, 10 + i)).collect();
    for (pages, last_is_kept) in [(0, false), (6, true), (40, true)] {
        let options = SchedulerOptions { conversation_bytes: pages * page_bytes, ..OPTIONS };
        let mut scheduler = scheduler(&engine, &options);
        let mut answers = Vec::new();
        for prompt in &prompts {
            let listener = submit(&mut scheduler, prompt, 4);
            run(&mut scheduler);
            answers.push(listener.with(|heard| (heard.tokens.clone(), heard.log_probabilities.clone())));
            let cache = scheduler.figures().cache;
            assert!(cache.host_bytes <= pages * page_bytes, "{cache:?}");
            assert_eq!(cache.pages, cache.free_pages + cache.cached_pages, "{cache:?}");
        }
        let reused = |scheduler: &mut Scheduler, i: usize| {
            let listener = submit(scheduler, &prompts[i], 4);
            run(scheduler);
            listener.with(|heard| {
                assert_eq!(
                    (&heard.tokens, &heard.log_probabilities),
                    (&answers[i].0, &answers[i].1),
                    "conversation {i}"
                );
                heard.reused.unwrap()
            })
        };
        assert_eq!(reused(&mut scheduler, 8) > 0, last_is_kept, "budget of {pages} pages");
        assert_eq!(reused(&mut scheduler, 0) > 0, pages == 40, "budget of {pages} pages");
    }
}

/// Letters in a row, then the end.
struct Spelling {
    left: Vec<u32>,
}

impl Constraint for Spelling {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), String> {
        let allowed = *self.left.last().ok_or("nothing may follow")?;
        for (token, logit) in logits.iter_mut().enumerate() {
            if token != allowed as usize {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<ControlFlow<()>, String> {
        if self.left.pop() != Some(token) {
            return Err(format!("token {token} was not allowed"));
        }
        Ok(if self.left.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

#[test]
fn a_constraint_decides_what_may_come_and_when_it_ends() {
    let engine = toy_engine(2, 256);
    let mut scheduler = scheduler(&engine, &OPTIONS);
    let listener = Listener::default();
    let left = "dlrow".bytes().map(u32::from).collect();
    let constraint: Option<Box<dyn Constraint>> = Some(Box::new(Spelling { left }));
    let free = submit(&mut scheduler, &tokens(10, 1), 8);
    scheduler
        .submit(BatchRequest { constraint, top_log_probabilities: 3, ..request(&tokens(10, 1), 50, &listener) })
        .unwrap();
    run(&mut scheduler);
    listener.with(|heard| {
        assert_eq!((heard.text.as_str(), &heard.finished().reason), ("world", &FinishReason::End));
        // What is told is the model's own opinion, before the constraint.
        let best = heard.top[0][0];
        assert_ne!(best.0, heard.tokens[0]);
        assert!(heard.top[0].len() == 3 && heard.top[0].is_sorted_by(|a, b| a.1 >= b.1));
        free.with(|free| assert_eq!((best.0, best.1.to_bits()), (free.tokens[0], free.log_probabilities[0])));
    });
    // One that cannot be kept to ends its own request and no other.
    let (lost, other) = (Listener::default(), submit(&mut scheduler, &tokens(10, 2), 8));
    let constraint: Option<Box<dyn Constraint>> = Some(Box::new(Spelling { left: Vec::new() }));
    scheduler.submit(BatchRequest { constraint, ..request(&tokens(10, 1), 50, &lost) }).unwrap();
    run(&mut scheduler);
    lost.with(|heard| {
        let error = heard.result.as_ref().unwrap().as_ref().unwrap_err();
        assert_eq!((error.code(), error.code().id), (engine::CONSTRAINT, "S0408"));
        assert!(error.to_string().contains("nothing may follow"));
    });
    assert_eq!(other.n_tokens(), 8);
}

#[test]
fn what_cannot_be_answered_is_refused_with_the_numbers_before_any_work() {
    let engine = toy_engine(1, 128);
    let mut scheduler = scheduler(&engine, &SchedulerOptions { max_waiting: 2, ..OPTIONS });
    let mut refused = |prompt: &[u32], sampling: SamplerSettings| {
        let listener = Listener::default();
        let error = scheduler.submit(BatchRequest { sampling, ..request(prompt, 5, &listener) }).unwrap_err();
        assert!(!listener.is_done(), "a sink of a refused request hears nothing");
        error
    };
    let greedy = SamplerSettings::default();
    let error = refused(&tokens(128, 1), greedy.clone());
    assert!(matches!(error, EngineError::ContextExceeded { tokens: 128, context: 128 }), "{error}");
    assert_eq!(refused(&[], greedy.clone()).code(), engine::EMPTY_PROMPT);
    assert_eq!(refused(&[VOCAB as u32], greedy.clone()).code(), text::UNKNOWN_TOKEN);
    let bias = SamplerSettings { logit_bias: vec![(3, 1.0), (VOCAB as u32, 1.0)], ..greedy.clone() };
    assert_eq!(refused(&tokens(3, 1), bias).code(), text::UNKNOWN_TOKEN);
    let hot = SamplerSettings { temperature: f32::NAN, ..greedy };
    assert_eq!(refused(&tokens(3, 1), hot).code(), engine::BAD_SAMPLING);
    // One is answered and two wait; the next is one too many.
    for seed in 0..3 {
        submit(&mut scheduler, &tokens(20, seed), 50);
    }
    let error = scheduler.submit(request(&tokens(3, 9), 1, &Listener::default())).unwrap_err();
    assert_eq!((error.code(), error.code().id), (engine::QUEUE_FULL, "S0409"));
    assert!(error.facts().contains(&("limit", "2".to_owned())), "{:?}", error.facts());
    run(&mut scheduler);
    // A prompt that fills all but one position gets one token.
    let full = submit(&mut scheduler, &tokens(127, 5), 50);
    run(&mut scheduler);
    assert_eq!(full.with(|heard| heard.finished().reason.clone()), FinishReason::ContextFull);
    assert_eq!(full.n_tokens(), 1);
}

/// Long use does not make it larger: cancelled, finished and refused requests leave nothing.
#[test]
fn pages_are_all_there_after_a_thousand_requests() {
    let engine = toy_engine(4, 192);
    let page_bytes = scheduler(&engine, &OPTIONS).figures().cache.page_bytes;
    let mut scheduler = scheduler(&engine, &SchedulerOptions { conversation_bytes: 20 * page_bytes, max_waiting: 9 });
    let mut numbers = Numbers::new(77);
    let mut live: Vec<Listener> = Vec::new();
    for i in 0..1000 {
        let n = 1 + (numbers.next() % 190) as usize;
        let listener = Listener::default();
        // A few seeds, so that beginnings come again.
        let _ = scheduler.submit(request(&tokens(n, numbers.next() % 12), 1 + numbers.next() % 9, &listener));
        live.push(listener);
        if numbers.next().is_multiple_of(3) {
            let at = (numbers.next() % live.len() as u64) as usize;
            live.swap_remove(at).gone.store(true, Ordering::SeqCst);
        }
        scheduler.step();
        let cache = scheduler.figures().cache;
        assert!(cache.host_bytes <= cache.host_budget, "request {i}: {cache:?}");
        assert!(cache.free_pages + cache.cached_pages <= cache.pages, "request {i}: {cache:?}");
    }
    run(&mut scheduler);
    let figures = scheduler.figures();
    assert_eq!(figures.cache.pages, figures.cache.free_pages + figures.cache.cached_pages, "{figures:?}");
    assert_eq!(figures.failed, 0, "{figures:?}");
    assert!(figures.reused_tokens > figures.prompt_tokens / 4, "{figures:?}");
    drop(scheduler);
    // The sequences are back, and a session finds its own pages.
    let mut session = engine.session().unwrap();
    session.prompt(&tokens(100, 1)).unwrap();
    let again = session.logits().to_vec();
    session.truncate(0);
    for token in tokens(100, 1) {
        session.evaluate(&[token]).unwrap();
    }
    assert_eq!(session.logits(), again);
}

#[test]
fn a_scheduler_can_be_sent_and_needs_the_engine_for_itself() {
    fn is_send<T: Send>() {}
    is_send::<Scheduler>();
    is_send::<BatchRequest>();
    let engine = toy_engine(2, 128);
    let session = engine.session().unwrap();
    let error = Scheduler::new(&engine, toy_tokenizer(), &OPTIONS).unwrap_err();
    assert_eq!(error.code(), engine::NO_FREE_SEQUENCE);
    drop(session);
    let mut scheduler = scheduler(&engine, &OPTIONS);
    assert!(engine.session().is_err());
    // What still runs when it is dropped is told so.
    let listener = submit(&mut scheduler, &tokens(10, 1), 100);
    scheduler.step();
    drop(scheduler);
    assert!(listener.is_done());
    assert!(engine.session().is_ok());
}
