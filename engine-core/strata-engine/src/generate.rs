//! From a prompt to a finished answer: read the prompt, then sample, show and evaluate one token
//! after another until something ends it. Text goes out as it becomes certain, and all of it goes
//! out: what was held back as the possible beginning of a stop string, or as half a character, is
//! shown when the answer ends in another way.

use std::ops::ControlFlow;
use std::time::Instant;

use strata_model::tokenizer::{StopMatcher, StreamDecoder, Tokenizer};

use crate::batch::Constraint;
use crate::error::EngineError;
use crate::sampler::{Sampler, SamplerSettings, log_sum_exp};
use crate::session::{PromptStats, Session};

/// What ends an answer beside the model's own end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// Most tokens of the answer; `None`: until the context is full.
    pub max_tokens: Option<u64>,
    /// Texts that end the answer and are not part of it.
    pub stop: Vec<String>,
    /// Goes on when the model says that it is done: for measuring.
    pub ignore_end: bool,
    /// Tell the log-probability of each token.
    pub log_probabilities: bool,
}

/// One token of the answer, or what was held back at its end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Piece<'a> {
    /// `None` for text that was held back until the end.
    pub token: Option<u32>,
    /// Text that is certain now; may be empty.
    pub text: &'a str,
    /// Of the token under the model alone, before any sampling setting. When asked for.
    pub log_probability: Option<f64>,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishReason {
    /// The model said so.
    End,
    /// This stop string came up.
    StopText(String),
    /// `max_tokens` were generated.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// The caller's function said stop.
    Cancelled,
}

impl FinishReason {
    /// The name in JSON: `stop`, `length` or `cancelled`.
    pub fn name(&self) -> &'static str {
        match self {
            FinishReason::End | FinishReason::StopText(_) => "stop",
            FinishReason::MaxTokens | FinishReason::ContextFull => "length",
            FinishReason::Cancelled => "cancelled",
        }
    }
}

/// What a request took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RequestStats {
    /// Waiting for a slot; 0 for a request that has a sequence to itself.
    pub queued_seconds: f64,
    pub prompt_reused: u64,
    pub prompt_new: u64,
    pub prompt_seconds: f64,
    /// Tokens of the answer.
    pub generated: u64,
    /// Steps after the prompt; the first token comes out of the prompt's own.
    pub decode_steps: u64,
    /// From the end of the prompt to the end of the answer.
    pub decode_seconds: f64,
    /// Tokens of prompt and answer.
    pub end_context: u64,
    /// Positions that there are.
    pub context_size: u64,
}

impl RequestStats {
    /// Prompt tokens evaluated per second; `None` when all were in the cache.
    pub fn prompt_rate(&self) -> Option<f64> {
        (self.prompt_new > 0 && self.prompt_seconds > 0.0).then(|| self.prompt_new as f64 / self.prompt_seconds)
    }

    /// Tokens decoded per second; `None` when no step was needed.
    pub fn decode_rate(&self) -> Option<f64> {
        (self.decode_steps > 0 && self.decode_seconds > 0.0).then(|| self.decode_steps as f64 / self.decode_seconds)
    }
}

/// A finished answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    pub reason: FinishReason,
    /// The whole text, as it was handed out.
    pub text: String,
    pub tokens: Vec<u32>,
    /// The seed that was used.
    pub seed: u64,
    pub stats: RequestStats,
}

/// Answers a prompt. `on_piece` is called for each token, once it is certain what of its text may
/// be shown, and returns `Break` to stop. A prompt that leaves no room for an answer is refused
/// before any work.
pub fn generate(
    session: &mut Session,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    sampling: &SamplerSettings,
    limits: &Limits,
    on_piece: &mut dyn FnMut(Piece<'_>) -> ControlFlow<()>,
) -> Result<Finished, EngineError> {
    generate_within(session, tokenizer, prompt, sampling, limits, None, on_piece)
}

/// The same with a rule that the answer keeps to.
pub fn generate_within(
    session: &mut Session,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    sampling: &SamplerSettings,
    limits: &Limits,
    constraint: Option<&mut dyn Constraint>,
    on_piece: &mut dyn FnMut(Piece<'_>) -> ControlFlow<()>,
) -> Result<Finished, EngineError> {
    sampling.check_for(session.n_vocab())?;
    let mut chooser = Chooser { sampler: Sampler::new(sampling, prompt)?, constraint, masked: Vec::new() };
    let prompt_stats = session.prompt(prompt)?;
    let start = Instant::now();
    let mut answer = Answer {
        text: AnswerText::new(tokenizer.decoder_after(prompt), &limits.stop),
        tokens: Vec::new(),
        decode_steps: 0,
    };
    let reason = answer.run(session, tokenizer, &mut chooser, limits, on_piece)?;
    if let Some(rest) = answer.text.finish() {
        let _ = on_piece(Piece { token: None, text: &rest, log_probability: None });
    }
    // The last of it may have completed a stop string.
    let reason = answer.text.stopped(&limits.stop).unwrap_or(reason);
    let stats = answer.stats(prompt_stats, start.elapsed().as_secs_f64(), prompt.len(), session.context());
    Ok(Finished { reason, text: answer.text.shown, tokens: answer.tokens, seed: chooser.sampler.seed(), stats })
}

/// The sampler, within a rule if there is one.
struct Chooser<'a> {
    sampler: Sampler,
    constraint: Option<&'a mut dyn Constraint>,
    masked: Vec<f32>,
}

impl Chooser<'_> {
    fn choose(&mut self, logits: &[f32]) -> Result<u32, EngineError> {
        let Some(constraint) = &mut self.constraint else { return self.sampler.sample(logits) };
        self.masked.clear();
        self.masked.extend_from_slice(logits);
        constraint.mask(&mut self.masked).map_err(|why| EngineError::Constraint { why })?;
        self.sampler.sample(&self.masked)
    }

    fn is_greedy(&self) -> bool {
        self.constraint.is_none() && self.sampler.is_plain_greedy()
    }

    /// Whether the answer is complete with this token.
    fn accept(&mut self, token: u32) -> Result<bool, EngineError> {
        self.sampler.accept(token);
        let Some(constraint) = &mut self.constraint else { return Ok(false) };
        Ok(constraint.accept(token).map_err(|why| EngineError::Constraint { why })?.is_break())
    }
}

struct Answer {
    text: AnswerText,
    tokens: Vec<u32>,
    decode_steps: u64,
}

impl Answer {
    fn run(
        &mut self,
        session: &mut Session,
        tokenizer: &Tokenizer,
        chooser: &mut Chooser<'_>,
        limits: &Limits,
        on_piece: &mut dyn FnMut(Piece<'_>) -> ControlFlow<()>,
    ) -> Result<FinishReason, EngineError> {
        // At least one: a prompt that fills the context was refused.
        let room = session.context() - session.position();
        if limits.max_tokens == Some(0) {
            return Ok(FinishReason::MaxTokens);
        }
        // Nobody asks for the logits: the device may choose, and begin the next step meanwhile.
        let is_greedy = chooser.is_greedy() && !limits.log_probabilities;
        let mut token = chooser.choose(session.logits())?;
        loop {
            if tokenizer.is_eog(token) && !limits.ignore_end {
                return Ok(FinishReason::End);
            }
            let log_probability = limits.log_probabilities.then(|| {
                let logits = session.logits();
                f64::from(logits[token as usize]) - log_sum_exp(logits)
            });
            let is_complete = chooser.accept(token)?;
            self.tokens.push(token);
            let text = self.text.push(token);
            let flow = on_piece(Piece { token: Some(token), text: &text, log_probability });
            let generated = self.tokens.len() as u64;
            if let Some(reason) = self.text.stopped(&limits.stop) {
                return Ok(reason);
            }
            if flow.is_break() {
                return Ok(FinishReason::Cancelled);
            }
            if is_complete {
                return Ok(FinishReason::End);
            }
            if limits.max_tokens.is_some_and(|most| generated >= most) {
                return Ok(FinishReason::MaxTokens);
            }
            if generated >= room {
                return Ok(FinishReason::ContextFull);
            }
            if is_greedy {
                let goes_on = generated + 1 < room && limits.max_tokens.is_none_or(|most| generated + 1 < most);
                token = session.greedy(token, goes_on)?;
            } else {
                session.evaluate(&[token])?;
                token = chooser.choose(session.logits())?;
            }
            self.decode_steps += 1;
        }
    }

    fn stats(&self, prompt: PromptStats, decode_seconds: f64, n_prompt: usize, context_size: u64) -> RequestStats {
        let generated = self.tokens.len() as u64;
        RequestStats {
            queued_seconds: 0.0,
            prompt_reused: prompt.reused,
            prompt_new: prompt.new,
            prompt_seconds: prompt.seconds,
            generated,
            decode_steps: self.decode_steps,
            decode_seconds,
            end_context: n_prompt as u64 + generated,
            context_size,
        }
    }
}

/// The text of an answer on its way out. The scheduler's answers go the same way.
pub(crate) struct AnswerText {
    decoder: StreamDecoder,
    stops: StopMatcher,
    pub(crate) shown: String,
}

impl AnswerText {
    pub(crate) fn new(decoder: StreamDecoder, stops: &[String]) -> AnswerText {
        AnswerText { decoder, stops: StopMatcher::new(stops.iter().map(String::as_str)), shown: String::new() }
    }

    /// What may be shown once this token is there.
    pub(crate) fn push(&mut self, token: u32) -> String {
        let text = self.decoder.push(token);
        self.pass(&text)
    }

    fn pass(&mut self, text: &str) -> String {
        let certain = self.stops.push(text).text;
        self.shown.push_str(&certain);
        certain
    }

    /// What was held back, once no token comes any more.
    pub(crate) fn finish(&mut self) -> Option<String> {
        let half_character = self.decoder.finish();
        let mut rest = self.pass(&half_character);
        let held = self.stops.finish();
        self.shown.push_str(&held);
        rest.push_str(&held);
        (!rest.is_empty()).then_some(rest)
    }

    pub(crate) fn stopped(&self, stops: &[String]) -> Option<FinishReason> {
        let index = self.stops.stopped()?;
        Some(FinishReason::StopText(stops.get(index).cloned().unwrap_or_default()))
    }
}
