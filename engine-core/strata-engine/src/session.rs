//! One sequence: which tokens its cache holds, and the logits after the last of them. What the
//! logits are depends on those tokens alone, not on how they were split into steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::engine::Core;
use crate::error::EngineError;
use crate::sampler::{check_logits, greatest};
use crate::step::{StepRow, Wanted};

/// Tokens of a prompt's first step, and the fewest of a later one, while somebody may stop it.
const FIRST_STEP: usize = 64;
const LEAST_STEP: usize = 16;
/// Longest that a step of such a prompt should take: how soon Ctrl-C is noticed.
const STEP_SECONDS: f64 = 0.5;

/// A sequence with its share of the engine's cache, given back on drop.
#[derive(Debug)]
pub struct Session {
    core: Arc<Core>,
    sequence: u32,
    tokens: Vec<u32>,
    logits: Vec<f32>,
    /// Whether `logits` belong to the last of `tokens`.
    logits_are_current: bool,
    cancel: Option<Arc<AtomicBool>>,
}

/// What reading a prompt took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PromptStats {
    /// Tokens that were in the cache already.
    pub reused: u64,
    /// Tokens that were evaluated.
    pub new: u64,
    pub seconds: f64,
}

impl Session {
    pub(crate) fn new(core: Arc<Core>, sequence: u32) -> Session {
        let context = core.plan.context as usize;
        let logits = vec![0.0; core.hyper.n_vocab as usize];
        // A decode step must not allocate; a very long context may grow later all the same.
        let tokens = Vec::with_capacity(context.min(1 << 20));
        Session { core, sequence, tokens, logits, logits_are_current: false, cancel: None }
    }

    /// Tokens in the cache, which is the position of the next one.
    pub fn position(&self) -> u64 {
        self.tokens.len() as u64
    }

    /// The tokens in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Positions that this sequence may have.
    pub fn context(&self) -> u64 {
        self.core.plan.context
    }

    pub fn n_vocab(&self) -> u64 {
        self.core.hyper.n_vocab
    }

    /// From now on `prompt` looks at this flag before each step, and ends with `Cancelled` when it
    /// is set. What was evaluated until then stays in the cache.
    pub fn cancel_with(&mut self, flag: Arc<AtomicBool>) {
        self.cancel = Some(flag);
    }

    /// Logits after the last token; empty before the first and after `truncate`.
    pub fn logits(&self) -> &[f32] {
        if self.logits_are_current { &self.logits } else { &[] }
    }

    /// Forgets all tokens from position `n` on.
    pub fn truncate(&mut self, n: u64) {
        if n < self.position() {
            self.tokens.truncate(n as usize);
            self.logits_are_current = false;
        }
    }

    /// Makes the sequence hold exactly this prompt, evaluating only what its cache does not hold
    /// yet. Refused, before any work, when no room for a single answer token would be left.
    pub fn prompt(&mut self, tokens: &[u32]) -> Result<PromptStats, EngineError> {
        if tokens.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        self.check(tokens)?;
        if tokens.len() as u64 >= self.context() {
            return Err(EngineError::ContextExceeded { tokens: tokens.len() as u64, context: self.context() });
        }
        let start = Instant::now();
        let common = self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let is_current = self.logits_are_current && common == tokens.len() && common == self.tokens.len();
        // Logits come from evaluating a token, so the last one is evaluated again if need be.
        let reused = if is_current { common } else { common.min(tokens.len() - 1) };
        self.truncate(reused as u64);
        self.run(&tokens[reused..], self.cancel.clone().as_deref())?;
        let new = (tokens.len() - reused) as u64;
        Ok(PromptStats { reused: reused as u64, new, seconds: start.elapsed().as_secs_f64() })
    }

    /// Evaluates tokens after those in the cache; the logits after the last can be read then.
    /// Refused, before any work, when they do not fit the context. When a step fails, the tokens
    /// of the steps before it are kept.
    pub fn evaluate(&mut self, tokens: &[u32]) -> Result<(), EngineError> {
        self.check(tokens)?;
        self.check_room(tokens)?;
        self.run(tokens, None)
    }

    /// Evaluates a token and gives the most probable one after it. Where the device can choose it, no
    /// logits come back (`logits` is empty then), and with `goes_on` the step after this one begins
    /// before the host has seen the token: for callers that will most likely ask for just that.
    pub fn greedy(&mut self, token: u32, goes_on: bool) -> Result<u32, EngineError> {
        self.check(&[token])?;
        self.check_room(&[token])?;
        self.logits_are_current = false;
        let row = StepRow { token, position: self.tokens.len() as u64, sequence: self.sequence };
        // The step ahead needs a cell too.
        let goes_on = goes_on && row.position + 2 <= self.core.plan.context;
        let choice = self.core.runner().choose(row, goes_on)?;
        let Some((chosen, logit)) = choice else {
            self.run(&[token], None)?;
            check_logits(&self.logits)?;
            return Ok(greatest(&self.logits));
        };
        self.tokens.push(token);
        if !logit.is_finite() {
            return Err(EngineError::NotANumber { token: chosen, value: logit });
        }
        Ok(chosen)
    }

    /// Evaluates tokens and hands over the logits after each of them, in order, with their position.
    pub fn logits_for_all(
        &mut self,
        tokens: &[u32],
        mut each: impl FnMut(u64, &[f32]) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.check(tokens)?;
        self.check_room(tokens)?;
        let core = Arc::clone(&self.core);
        let mut runner = core.runner();
        let most = runner.max_tokens(Wanted::All);
        for step in tokens.chunks(most) {
            let first = self.position();
            self.logits_are_current = false;
            runner.run(step, first, self.sequence, Wanted::All)?;
            self.tokens.extend_from_slice(step);
            for row in 0..step.len() {
                runner.read_logits(row, &mut self.logits)?;
                each(first + row as u64, &self.logits)?;
            }
            self.logits_are_current = true;
        }
        Ok(())
    }

    fn run(&mut self, tokens: &[u32], cancel: Option<&AtomicBool>) -> Result<(), EngineError> {
        if tokens.is_empty() {
            return Ok(());
        }
        self.logits_are_current = false;
        let mut runner = self.core.runner();
        let most = runner.max_tokens(Wanted::Last);
        let mut size = if cancel.is_some() { FIRST_STEP.min(most) } else { most };
        let mut rest = tokens;
        while !rest.is_empty() {
            if cancel.is_some_and(|flag| flag.load(Ordering::SeqCst)) {
                return Err(EngineError::Cancelled);
            }
            let (step, after) = rest.split_at(size.min(rest.len()));
            let start = Instant::now();
            runner.run(step, self.tokens.len() as u64, self.sequence, Wanted::Last)?;
            self.tokens.extend_from_slice(step);
            rest = after;
            if cancel.is_some() && !rest.is_empty() {
                // Waits for the step, so that its time is known.
                runner.read_logits(0, &mut self.logits)?;
                let rate = step.len() as f64 / start.elapsed().as_secs_f64().max(1e-9);
                size = ((rate * STEP_SECONDS) as usize).clamp(LEAST_STEP.min(most), most);
            }
        }
        runner.read_logits(0, &mut self.logits)?;
        self.logits_are_current = true;
        Ok(())
    }

    fn check(&self, tokens: &[u32]) -> Result<(), EngineError> {
        let vocabulary = self.n_vocab();
        match tokens.iter().find(|token| u64::from(**token) >= vocabulary) {
            Some(token) => Err(EngineError::UnknownToken { token: *token, vocabulary }),
            None => Ok(()),
        }
    }

    fn check_room(&self, tokens: &[u32]) -> Result<(), EngineError> {
        let needed = self.position() + tokens.len() as u64;
        if needed > self.context() {
            return Err(EngineError::ContextExceeded { tokens: needed, context: self.context() });
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.core.give_back(self.sequence);
    }
}
