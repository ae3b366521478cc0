//! Continuous batching: requests of many clients share steps. Each step holds the next token of
//! every answer and a fair share of every prompt that is still being read; a request that ends, or
//! whose client has gone, makes room for the next one before the following step.
//!
//! What a request gets does not depend on its company: each row of a step is computed from its own
//! sequence, and a backend that keeps the rule of the CPU plugin (no result depends on the batch)
//! gives the very bits that the request gives alone.
//!
//! It opens no socket and has no thread: a server calls [`Scheduler::step`] in a loop.

mod active;
mod pages;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use strata_model::tokenizer::Tokenizer;

use crate::engine::{Core, Engine};
use crate::error::EngineError;
use crate::generate::{Finished, Limits};
use crate::sampler::{Sampler, SamplerSettings};
use crate::step::StepRow;
use active::{Active, Waiting};
pub use pages::CacheFigures;
use pages::Pages;

/// Seconds that a step may take while somebody waits for the next token of an answer.
const STEP_SECONDS_SHARED: f64 = 0.1;
/// The same while prompts are all there is; also how soon a client that has gone is noticed.
const STEP_SECONDS_ALONE: f64 = 0.5;
/// Prompt tokens of a step before any speed is known, and the fewest of any.
const FIRST_CHUNK: usize = 64;
const LEAST_CHUNK: usize = 16;

/// A rule that an answer must keep to, such as a grammar: says which tokens may come next.
pub trait Constraint: Send {
    /// Sets the logits of tokens that may not come now to −∞.
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), String>;
    /// Notes the token that was chosen. `Break`: the answer is complete.
    fn accept(&mut self, token: u32) -> Result<ControlFlow<()>, String>;
}

/// Who hears what becomes of a request.
pub trait Sink: Send {
    /// The request left the queue; so many tokens of its prompt were in the cache.
    fn started(&mut self, reused: u64);
    /// A token of the answer, or text that was held back until the end. `Break` cancels.
    fn piece(&mut self, piece: &BatchPiece<'_>) -> ControlFlow<()>;
    /// Nobody wants the answer any more. Asked before each step.
    fn is_gone(&self) -> bool;
    /// The end; called once.
    fn done(self: Box<Self>, result: Result<Finished, EngineError>);
}

/// What a [`Sink`] is told of a token.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchPiece<'a> {
    /// `None` for text that was held back until the end.
    pub token: Option<u32>,
    /// Text that is certain now; may be empty.
    pub text: &'a str,
    /// Of the token under the model alone. When asked for.
    pub log_probability: Option<f64>,
    /// The most probable tokens under the model alone, falling. As many as asked for.
    pub top: &'a [(u32, f64)],
}

/// How a scheduler is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// Bytes of host memory for the keys and values of earlier requests that the device has no room
    /// for any more. 0: what the device cannot keep is computed again.
    pub conversation_bytes: u64,
    /// Requests that may wait for a slot; one more is refused.
    pub max_waiting: usize,
}

/// Names a request of one scheduler. Never used twice.
pub type RequestId = u64;

/// A request for one answer.
pub struct BatchRequest {
    pub prompt: Vec<u32>,
    pub sampling: SamplerSettings,
    pub limits: Limits,
    /// How many of the most probable tokens to tell with each token.
    pub top_log_probabilities: usize,
    pub constraint: Option<Box<dyn Constraint>>,
    pub sink: Box<dyn Sink>,
}

impl std::fmt::Debug for BatchRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchRequest").field("prompt", &self.prompt.len()).finish_non_exhaustive()
    }
}

/// What a scheduler is doing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BatchFigures {
    pub waiting: usize,
    /// One for each request that has a slot, by slot.
    pub active: Vec<ActiveFigures>,
    pub slots: usize,
    /// Steps since the start, and what they evaluated.
    pub steps: u64,
    pub prompt_tokens: u64,
    pub reused_tokens: u64,
    pub generated_tokens: u64,
    pub step_seconds: f64,
    pub finished: u64,
    pub cancelled: u64,
    pub failed: u64,
    pub cache: CacheFigures,
}

/// A request that has a slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActiveFigures {
    pub id: RequestId,
    pub slot: u32,
    pub prompt: u64,
    pub reused: u64,
    /// Tokens in the cache.
    pub evaluated: u64,
    pub generated: u64,
    pub seconds: f64,
    /// Tokens of the answer per second, once there are two.
    pub decode_rate: Option<f64>,
}

/// All requests of an engine. Holds all its sequences.
pub struct Scheduler {
    core: Arc<Core>,
    engine: Engine,
    tokenizer: Arc<Tokenizer>,
    max_waiting: usize,
    waiting: VecDeque<Waiting>,
    slots: Vec<Option<Active>>,
    pages: Pages,
    figures: BatchFigures,
    next_id: RequestId,
    /// Prompt tokens per second of the last steps.
    prompt_rate: Option<f64>,
    logits: Vec<f32>,
    rows: Vec<StepRow>,
    outputs: Vec<u32>,
    parts: Vec<Part>,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler").field("figures", &self.figures()).finish_non_exhaustive()
    }
}

/// A slot's rows of a step.
#[derive(Debug, Clone, Copy)]
struct Part {
    slot: usize,
    n: usize,
    /// Which output holds the logits after its last token, when they are wanted.
    output: Option<usize>,
}

/// Refuses what cannot be answered, with the numbers, before any work: no tokens, unknown tokens,
/// settings out of range, a prompt that leaves no room for one token of an answer.
pub fn check_request(engine: &Engine, prompt: &[u32], sampling: &SamplerSettings) -> Result<(), EngineError> {
    if prompt.is_empty() {
        return Err(EngineError::EmptyPrompt);
    }
    let vocabulary = engine.hyperparameters().n_vocab;
    if let Some(token) = prompt.iter().find(|token| u64::from(**token) >= vocabulary) {
        return Err(EngineError::UnknownToken { token: *token, vocabulary });
    }
    if prompt.len() as u64 >= engine.context() {
        return Err(EngineError::ContextExceeded { tokens: prompt.len() as u64, context: engine.context() });
    }
    sampling.check_for(vocabulary)
}

impl Scheduler {
    /// Takes all sequences of the engine: as many requests as it has sequences are answered at one
    /// time. Fails when a session or another scheduler holds one.
    pub fn new(
        engine: &Engine,
        tokenizer: Arc<Tokenizer>,
        options: &SchedulerOptions,
    ) -> Result<Scheduler, EngineError> {
        let core = Arc::clone(engine.core());
        let n_slots = core.take_all_sequences()?;
        Ok(Scheduler {
            pages: Pages::new(&core.store.layout, options.conversation_bytes),
            logits: vec![0.0; core.hyper.n_vocab as usize],
            engine: engine.clone(),
            tokenizer,
            max_waiting: options.max_waiting,
            waiting: VecDeque::new(),
            slots: (0..n_slots).map(|_| None).collect(),
            figures: BatchFigures { slots: n_slots as usize, ..BatchFigures::default() },
            next_id: 0,
            prompt_rate: None,
            rows: Vec::new(),
            outputs: Vec::new(),
            parts: Vec::new(),
            core,
        })
    }

    /// Puts a request into the queue. Refused, with the numbers, when [`check_request`] says so or
    /// the queue is full; its sink then hears nothing.
    pub fn submit(&mut self, request: BatchRequest) -> Result<RequestId, EngineError> {
        check_request(&self.engine, &request.prompt, &request.sampling)?;
        if self.waiting.len() >= self.max_waiting + self.free_slots() {
            let active = self.slots.len();
            return Err(EngineError::QueueFull { waiting: self.waiting.len(), limit: self.max_waiting, active });
        }
        let sampler = Sampler::new(&request.sampling, &request.prompt)?;
        self.next_id += 1;
        self.waiting.push_back(Waiting { id: self.next_id, request, sampler, since: Instant::now() });
        Ok(self.next_id)
    }

    fn free_slots(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_none()).count()
    }

    /// Ends a request: its sink hears `Cancelled`, its slot is free for the next step. Whether
    /// there was one of that name.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        if let Some(slot) = self.slots.iter().position(|slot| slot.as_ref().is_some_and(|active| active.id() == id)) {
            self.end(slot, Active::cancelled);
            return true;
        }
        let at = self.waiting.iter().position(|waiting| waiting.id == id);
        let Some(waiting) = at.and_then(|at| self.waiting.remove(at)) else { return false };
        self.figures.cancelled += 1;
        waiting.request.sink.done(Err(EngineError::Cancelled));
        true
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slots.iter().all(Option::is_none)
    }

    pub fn figures(&self) -> BatchFigures {
        BatchFigures {
            waiting: self.waiting.len(),
            active: self.slots.iter().flatten().map(Active::figures).collect(),
            cache: self.pages.figures(),
            ..self.figures.clone()
        }
    }

    /// Ends every request with this.
    pub fn cancel_all(&mut self) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.figures.cancelled += 1;
            waiting.request.sink.done(Err(EngineError::Cancelled));
        }
        for slot in 0..self.slots.len() {
            self.end(slot, Active::cancelled);
        }
    }

    /// One step. Requests end through their sinks; a step that fails ends the requests that had a
    /// part in it, and no other.
    pub fn step(&mut self) {
        self.drop_gone();
        self.fill_slots();
        self.plan();
        if self.parts.is_empty() {
            return;
        }
        let start = Instant::now();
        let mut done = self.prepare();
        if done.is_ok() {
            done = self.core.runner().run_rows(&self.rows, &self.outputs);
        }
        let parts = std::mem::take(&mut self.parts);
        match done {
            Ok(()) => {
                for part in &parts {
                    self.after(*part);
                }
            }
            Err(error) => {
                let error = Arc::new(error);
                for part in &parts {
                    self.end(part.slot, |active| active.failed(EngineError::Step(Arc::clone(&error))));
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        self.note(&parts, seconds);
        self.parts = parts;
    }

    fn note(&mut self, parts: &[Part], seconds: f64) {
        self.figures.steps += 1;
        self.figures.step_seconds += seconds;
        let rows = self.rows.len();
        if rows > parts.len() && seconds > 0.0 {
            let rate = rows as f64 / seconds;
            self.prompt_rate = Some(self.prompt_rate.map_or(rate, |old| 0.7 * old + 0.3 * rate));
        }
    }

    fn drop_gone(&mut self) {
        let gone = |waiting: &Waiting| waiting.request.sink.is_gone();
        let mut kept = VecDeque::with_capacity(self.waiting.len());
        for waiting in std::mem::take(&mut self.waiting) {
            if gone(&waiting) {
                self.figures.cancelled += 1;
                waiting.request.sink.done(Err(EngineError::Cancelled));
            } else {
                kept.push_back(waiting);
            }
        }
        self.waiting = kept;
        for slot in 0..self.slots.len() {
            if self.slots[slot].as_ref().is_some_and(Active::is_gone) {
                self.end(slot, Active::cancelled);
            }
        }
    }

    fn fill_slots(&mut self) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_none() {
                let Some(waiting) = self.waiting.pop_front() else { return };
                self.slots[slot] = Some(Active::new(waiting, slot as u32, &self.tokenizer, self.core.plan.context));
            }
        }
    }

    /// Decides the rows of the next step: a row for each answer, the rest shared among the prompts.
    fn plan(&mut self) {
        self.parts.clear();
        let mut prompts = Vec::new();
        for slot in 0..self.slots.len() {
            let Some(active) = &self.slots[slot] else { continue };
            if active.is_decoding() {
                self.parts.push(Part { slot, n: 1, output: None });
            } else if active.has_started() || !self.should_follow(slot) {
                prompts.push(slot);
            }
        }
        let most = self.core.runner().max_tokens(crate::step::Wanted::Last);
        let mut budget = self.prompt_budget().min(most.saturating_sub(self.parts.len()));
        // The oldest first, so that what is left of a division goes to it.
        prompts.sort_by_key(|slot| self.slots[*slot].as_ref().map(Active::id));
        for (i, slot) in prompts.iter().enumerate() {
            let share = budget.div_ceil(prompts.len() - i).min(budget);
            self.start(*slot);
            let Some(active) = &self.slots[*slot] else { continue };
            let n = active.pending().len().min(share);
            if n > 0 {
                self.parts.push(Part { slot: *slot, n, output: None });
                budget -= n;
            }
        }
    }

    fn prompt_budget(&self) -> usize {
        let seconds = if self.parts.is_empty() { STEP_SECONDS_ALONE } else { STEP_SECONDS_SHARED };
        self.prompt_rate.map_or(FIRST_CHUNK, |rate| ((rate * seconds) as usize).max(LEAST_CHUNK))
    }

    /// Whether an older request is about to put more of this prompt into the cache than is there.
    fn should_follow(&self, slot: usize) -> bool {
        let Some(active) = &self.slots[slot] else { return false };
        let prompt = active.tokens();
        let there = self.pages.lookup(prompt).reused();
        self.slots.iter().flatten().any(|other| {
            let older = other.id() < active.id() && !other.is_decoding();
            older && {
                let common = prompt.iter().zip(other.tokens()).take_while(|(a, b)| a == b).count();
                common.min(prompt.len() - 1) >= there + kv_page()
            }
        })
    }

    /// Takes over what the cache holds of a prompt, the first time that it has a share of a step.
    fn start(&mut self, slot: usize) {
        let Some(active) = &mut self.slots[slot] else { return };
        if active.has_started() {
            return;
        }
        let adopted = self.pages.adopt(&self.core.store, active.tokens());
        match adopted {
            Ok((pages, reused)) => {
                self.figures.reused_tokens += reused;
                active.start(pages, reused);
            }
            Err(error) => self.end(slot, |active| active.failed(error)),
        }
    }

    /// Pages for all rows, the page tables, and the rows themselves.
    fn prepare(&mut self) -> Result<(), EngineError> {
        self.rows.clear();
        self.outputs.clear();
        self.parts.sort_by_key(|part| part.slot);
        for part in &mut self.parts {
            let Some(active) = &mut self.slots[part.slot] else { continue };
            active.take_pages(part.n, &mut self.pages, &self.core.store)?;
            let first = active.evaluated();
            let tokens = &active.pending()[..part.n];
            let row = |(i, token): (usize, &u32)| StepRow {
                token: *token,
                position: (first + i) as u64,
                sequence: part.slot as u32,
            };
            self.rows.extend(tokens.iter().enumerate().map(row));
            if part.n == active.pending().len() {
                part.output = Some(self.outputs.len());
                self.outputs.push(self.rows.len() as u32 - 1);
            }
        }
        if self.outputs.is_empty() {
            // Programs have at least one row of logits.
            self.outputs.push(self.rows.len() as u32 - 1);
        }
        Ok(())
    }

    /// What a slot's rows brought.
    fn after(&mut self, part: Part) {
        let Some(active) = &mut self.slots[part.slot] else { return };
        if active.is_decoding() {
            self.figures.generated_tokens += 1;
        } else {
            self.figures.prompt_tokens += part.n as u64;
        }
        active.advance(part.n, &mut self.pages);
        let Some(output) = part.output else { return };
        let read = self.core.runner().read_logits(output, &mut self.logits);
        match read.and_then(|()| active.sample(&self.tokenizer, &mut self.logits)) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(reason)) => self.end(part.slot, |active| active.finished(reason)),
            Err(error) => self.end(part.slot, |active| active.failed(error)),
        }
    }

    /// Ends the request of a slot: what it evaluated stays in the cache for others.
    fn end(&mut self, slot: usize, how: impl FnOnce(Active) -> active::Ended) {
        let Some(mut active) = self.slots[slot].take() else { return };
        active.release(&mut self.pages);
        match how(active) {
            active::Ended::Finished => self.figures.finished += 1,
            active::Ended::Cancelled => self.figures.cancelled += 1,
            active::Ended::Failed => self.figures.failed += 1,
        }
    }
}

fn kv_page() -> usize {
    crate::kv_cache::PAGE_CELLS as usize
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.cancel_all();
        // A device that fails here fails every later step as well, and says so there.
        let _ = self.core.store.reset_page_table();
        for sequence in 0..self.slots.len() {
            self.core.give_back(sequence as u32);
        }
    }
}
