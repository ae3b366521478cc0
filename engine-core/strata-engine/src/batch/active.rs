//! One request of a scheduler, from the queue to its end.

use std::ops::ControlFlow;
use std::time::Instant;

use strata_model::tokenizer::Tokenizer;

use super::pages::{PageRef, Pages};
use super::{ActiveFigures, BatchPiece, BatchRequest, Constraint, RequestId, Sink};
use crate::engine::CacheStore;
use crate::error::EngineError;
use crate::generate::{AnswerText, FinishReason, Finished, Limits, RequestStats};
use crate::kv_cache::PAGE_CELLS;
use crate::sampler::{Sampler, log_sum_exp};

const CELLS: usize = PAGE_CELLS as usize;

/// A request in the queue.
pub(super) struct Waiting {
    pub(super) id: RequestId,
    pub(super) request: BatchRequest,
    pub(super) sampler: Sampler,
    pub(super) since: Instant,
}

/// How a request ended, for the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Finished,
    Cancelled,
    Failed,
}

/// A request that has a slot.
pub(super) struct Active {
    id: RequestId,
    slot: u32,
    /// Prompt and answer.
    tokens: Vec<u32>,
    n_prompt: usize,
    /// Tokens in the cache.
    evaluated: usize,
    reused: u64,
    is_started: bool,
    pages: Vec<PageRef>,
    /// Whether the device's page table has `pages`.
    table_is_current: bool,
    context: u64,
    sampler: Sampler,
    limits: Limits,
    n_top: usize,
    text: AnswerText,
    constraint: Option<Box<dyn Constraint>>,
    sink: Box<dyn Sink>,
    masked: Vec<f32>,
    /// Spent in the queue.
    queued_seconds: f64,
    begun: Instant,
    prompt_done: Option<Instant>,
}

impl Active {
    pub(super) fn new(waiting: Waiting, slot: u32, tokenizer: &Tokenizer, context: u64) -> Active {
        let Waiting { id, request, sampler, since } = waiting;
        let text = AnswerText::new(tokenizer.decoder_after(&request.prompt), &request.limits.stop);
        Active {
            id,
            slot,
            n_prompt: request.prompt.len(),
            tokens: request.prompt,
            evaluated: 0,
            reused: 0,
            is_started: false,
            pages: Vec::new(),
            table_is_current: false,
            context,
            sampler,
            limits: request.limits,
            n_top: request.top_log_probabilities,
            text,
            constraint: request.constraint,
            sink: request.sink,
            masked: Vec::new(),
            queued_seconds: since.elapsed().as_secs_f64(),
            begun: Instant::now(),
            prompt_done: None,
        }
    }

    pub(super) fn id(&self) -> RequestId {
        self.id
    }

    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    pub(super) fn evaluated(&self) -> usize {
        self.evaluated
    }

    /// Tokens that are to be evaluated: the rest of the prompt, or the last token of the answer.
    pub(super) fn pending(&self) -> &[u32] {
        &self.tokens[self.evaluated..]
    }

    pub(super) fn is_decoding(&self) -> bool {
        self.tokens.len() > self.n_prompt
    }

    pub(super) fn has_started(&self) -> bool {
        self.is_started
    }

    pub(super) fn is_gone(&self) -> bool {
        self.sink.is_gone()
    }

    fn generated(&self) -> u64 {
        (self.tokens.len() - self.n_prompt) as u64
    }

    pub(super) fn figures(&self) -> ActiveFigures {
        let generated = self.generated();
        let decode_seconds = self.prompt_done.map_or(0.0, |done| done.elapsed().as_secs_f64());
        let rate = (generated > 1 && decode_seconds > 0.0).then(|| (generated - 1) as f64 / decode_seconds);
        ActiveFigures {
            id: self.id,
            slot: self.slot,
            prompt: self.n_prompt as u64,
            reused: self.reused,
            evaluated: self.evaluated as u64,
            generated,
            seconds: self.begun.elapsed().as_secs_f64(),
            decode_rate: rate,
        }
    }

    pub(super) fn start(&mut self, pages: Vec<PageRef>, reused: u64) {
        self.pages = pages;
        self.reused = reused;
        self.evaluated = reused as usize;
        self.is_started = true;
        self.sink.started(reused);
    }

    /// Room for `n` more tokens, and the device's page table.
    pub(super) fn take_pages(&mut self, n: usize, pages: &mut Pages, store: &CacheStore) -> Result<(), EngineError> {
        let needed = (self.evaluated + n).div_ceil(CELLS);
        while self.pages.len() < needed {
            self.pages.push(PageRef::Own(pages.take(store)?));
            self.table_is_current = false;
        }
        if !self.table_is_current {
            let row: Vec<u32> = self.pages.iter().map(|page| page.page()).collect();
            store.write_page_row(self.slot, &row)?;
            self.table_is_current = true;
        }
        Ok(())
    }

    /// `n` more tokens are in the cache; pages that became full are shared from now on.
    pub(super) fn advance(&mut self, n: usize, pages: &mut Pages) {
        self.evaluated += n;
        for index in 0..self.evaluated / CELLS {
            let PageRef::Own(page) = self.pages[index] else { continue };
            let parent = index.checked_sub(1).and_then(|before| match self.pages[before] {
                PageRef::Shared { node, .. } => Some(node),
                PageRef::Own(_) => None,
            });
            let tokens = &self.tokens[index * CELLS..(index + 1) * CELLS];
            let shared = pages.publish(parent, tokens, page);
            self.table_is_current &= shared.page() == page;
            self.pages[index] = shared;
        }
    }

    /// Gives all pages back; what is in them can be found again.
    pub(super) fn release(&mut self, pages: &mut Pages) {
        let full = self.evaluated / CELLS * CELLS;
        let rest = &self.tokens[full..self.evaluated];
        pages.release(std::mem::take(&mut self.pages), rest);
    }

    /// Chooses a token from the logits after the last one. `Break`: the answer ends.
    pub(super) fn sample(
        &mut self,
        tokenizer: &Tokenizer,
        logits: &mut [f32],
    ) -> Result<ControlFlow<FinishReason>, EngineError> {
        self.prompt_done.get_or_insert_with(Instant::now);
        if self.limits.max_tokens == Some(0) {
            return Ok(ControlFlow::Break(FinishReason::MaxTokens));
        }
        let token = self.choose(logits)?;
        if tokenizer.is_eog(token) && !self.limits.ignore_end {
            return Ok(ControlFlow::Break(FinishReason::End));
        }
        let sum = (self.limits.log_probabilities || self.n_top > 0).then(|| log_sum_exp(logits));
        let log_probability = sum.map(|sum| f64::from(logits[token as usize]) - sum);
        let top = sum.map_or_else(Vec::new, |sum| most_probable(logits, self.n_top, sum));
        self.sampler.accept(token);
        let is_complete = match &mut self.constraint {
            Some(constraint) => constraint.accept(token).map_err(constraint_failed)?.is_break(),
            None => false,
        };
        self.tokens.push(token);
        let text = self.text.push(token);
        let piece = BatchPiece { token: Some(token), text: &text, log_probability, top: &top };
        let flow = self.sink.piece(&piece);
        let generated = self.generated();
        if let Some(reason) = self.text.stopped(&self.limits.stop) {
            return Ok(ControlFlow::Break(reason));
        }
        if flow.is_break() {
            return Ok(ControlFlow::Break(FinishReason::Cancelled));
        }
        if is_complete {
            return Ok(ControlFlow::Break(FinishReason::End));
        }
        if self.limits.max_tokens.is_some_and(|most| generated >= most) {
            return Ok(ControlFlow::Break(FinishReason::MaxTokens));
        }
        if generated >= self.context - self.n_prompt as u64 {
            return Ok(ControlFlow::Break(FinishReason::ContextFull));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn choose(&mut self, logits: &[f32]) -> Result<u32, EngineError> {
        let Some(constraint) = &mut self.constraint else { return self.sampler.sample(logits) };
        self.masked.clear();
        self.masked.extend_from_slice(logits);
        constraint.mask(&mut self.masked).map_err(constraint_failed)?;
        self.sampler.sample(&self.masked)
    }

    pub(super) fn finished(mut self, reason: FinishReason) -> Ended {
        if let Some(rest) = self.text.finish() {
            let _ = self.sink.piece(&BatchPiece { token: None, text: &rest, log_probability: None, top: &[] });
        }
        // The last of it may have completed a stop string.
        let reason = self.text.stopped(&self.limits.stop).unwrap_or(reason);
        let ended = if reason == FinishReason::Cancelled { Ended::Cancelled } else { Ended::Finished };
        let generated = self.generated();
        let prompt_done = self.prompt_done.unwrap_or_else(Instant::now);
        let stats = RequestStats {
            queued_seconds: self.queued_seconds,
            prompt_reused: self.reused,
            prompt_new: self.n_prompt as u64 - self.reused,
            prompt_seconds: (prompt_done - self.begun).as_secs_f64(),
            generated,
            decode_steps: generated.saturating_sub(1),
            decode_seconds: prompt_done.elapsed().as_secs_f64(),
            end_context: self.tokens.len() as u64,
            context_size: self.context,
        };
        let tokens = self.tokens.split_off(self.n_prompt);
        let (text, seed) = (self.text.shown, self.sampler.seed());
        self.sink.done(Ok(Finished { reason, text, tokens, seed, stats }));
        ended
    }

    pub(super) fn cancelled(self) -> Ended {
        self.sink.done(Err(EngineError::Cancelled));
        Ended::Cancelled
    }

    pub(super) fn failed(self, error: EngineError) -> Ended {
        self.sink.done(Err(error));
        Ended::Failed
    }
}

fn constraint_failed(why: String) -> EngineError {
    EngineError::Constraint { why }
}

/// The `n` most probable tokens, falling; of equal ones the lower id first.
fn most_probable(logits: &[f32], n: usize, sum: f64) -> Vec<(u32, f64)> {
    let n = n.min(logits.len());
    if n == 0 {
        return Vec::new();
    }
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    let order = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
    ids.select_nth_unstable_by(n - 1, order);
    ids.truncate(n);
    ids.sort_unstable_by(order);
    ids.into_iter().map(|id| (id, f64::from(logits[id as usize]) - sum)).collect()
}
