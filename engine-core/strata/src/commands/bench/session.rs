//! A session as an agent has it: the whole talk is the prompt of each turn, and grows by what a tool
//! said and by the model's answer. With the cache only the new part is read; the same turn from an
//! empty cache says what that saves.

use std::time::Instant;
use strata_engine::{EngineError, Session};
use strata_manifest::report::{SessionReport, TurnReport};

/// The instructions that a talk begins with.
const SYSTEM_TOKENS: usize = 512;
/// What a tool says in a turn.
const TOOL_TOKENS: usize = 192;
/// An answer, such as a call of the next tool.
const ANSWER_TOKENS: usize = 32;
pub(super) const MOST_TURNS: u32 = 1000;

/// Positions that so many turns need.
pub(super) fn positions(turns: u32) -> u64 {
    if turns == 0 { 0 } else { (SYSTEM_TOKENS + turns as usize * (TOOL_TOKENS + ANSWER_TOKENS)) as u64 }
}

pub(super) fn measure(session: &mut Session, tokens: &[u32], turns: u32) -> Result<SessionReport, EngineError> {
    session.truncate(0);
    let mut reports = Vec::new();
    let (mut prompt_tokens, mut reused_tokens) = (0, 0);
    let mut end = SYSTEM_TOKENS;
    let start = Instant::now();
    for _ in 0..turns {
        end += TOOL_TOKENS;
        let stats = session.prompt(&tokens[..end])?;
        let answer = Instant::now();
        for token in &tokens[end..end + ANSWER_TOKENS] {
            session.evaluate(std::slice::from_ref(token))?;
        }
        end += ANSWER_TOKENS;
        prompt_tokens += stats.reused + stats.new;
        reused_tokens += stats.reused;
        reports.push(TurnReport {
            reused: stats.reused,
            new: stats.new,
            first_token_seconds: stats.seconds,
            answer_seconds: answer.elapsed().as_secs_f64(),
        });
    }
    let seconds = start.elapsed().as_secs_f64();
    session.truncate(0);
    let last = end - ANSWER_TOKENS;
    let cold = session.prompt(&tokens[..last])?.seconds;
    Ok(SessionReport { turns: reports, seconds, prompt_tokens, reused_tokens, last_turn_cold_seconds: cold })
}
