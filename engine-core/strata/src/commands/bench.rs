//! `strata bench`: prompt and decode speed, and on request an agent's session, fresh starts, and
//! whether a model finds a sentence in a long text. Each speed is the median of runs after one that
//! is not counted; every run starts with an empty context unless it says otherwise.
//! docs/BENCH.md says what each figure means.

mod compare;
mod needle;
mod session;
mod starts;
mod table;

use crate::cli::BenchArgs;
use crate::model::Loaded;
use crate::outcome::Outcome;
use crate::printer;
use std::time::Instant;
use strata_diag::catalogue::general::BAD_OPTION;
use strata_diag::{Diagnostic, ExitStatus};
use strata_engine::{EngineError, Session};
use strata_manifest::report::{BenchReport, DepthReport, SpeedReport};

pub(crate) fn run(args: &BenchArgs) -> Outcome {
    check(args)?;
    let earlier = args.compare.as_deref().map(compare::read).transpose()?;
    let path = crate::model::find(Some(&args.model), args.engine.prefix.as_deref())?;
    if args.internal_start {
        return starts::child(&path, args);
    }
    let loaded = Loaded::load(&path, &args.engine, Some(needed_context(args)))?;
    let mut session = loaded.engine.session()?;
    let tokens = text_tokens(&loaded, needed_context(args) as usize);

    let mut prompt = Vec::new();
    for &count in &args.prompt_tokens {
        let speeds = repeat(args.runs, || prompt_speed(&mut session, &tokens[..count as usize]))?;
        prompt.push(SpeedReport::of(u64::from(count), speeds));
    }
    let mut decode_at = Vec::new();
    for &depth in &args.depths {
        let (before, after) = tokens.split_at(depth as usize);
        let speeds = repeat(args.runs, || decode_speed(&mut session, before, after[0], args.decode_tokens))?;
        decode_at.push(DepthReport {
            depth: u64::from(depth),
            speed: SpeedReport::of(u64::from(args.decode_tokens), speeds),
        });
    }
    let talk = (args.session > 0).then(|| session::measure(&mut session, &tokens, args.session)).transpose()?;
    let needle = needle::find(&loaded, &mut session, args)?;
    loaded.gguf.check_unchanged()?;
    let mut report = BenchReport {
        schema: "strata-bench/1.1",
        model: path.display().to_string(),
        backend: loaded.chosen.report(),
        settings: loaded.settings_report(),
        prompt,
        decode: decode_at.first().map_or_else(|| SpeedReport::of(0, Vec::new()), |first| first.speed.clone()),
        decode_at,
        session: talk,
        starts: None,
        needle,
        comparison: Vec::new(),
    };
    // A fresh process is to have the machine for itself.
    drop(session);
    let line = loaded.chosen.line();
    drop(loaded);
    if args.starts > 0 {
        report.starts = Some(starts::measure(args.starts)?);
    }
    if let Some(earlier) = earlier {
        report.comparison = compare::compare(&earlier, &report);
    }
    if args.json {
        printer::document(&report)?;
    } else {
        printer::talk(&line);
        printer::data(&table::text(&report, args))?;
    }
    Ok(ExitStatus::Done)
}

fn check(args: &BenchArgs) -> Result<(), Diagnostic> {
    let refused = |message: &str| Err(Diagnostic::new(BAD_OPTION, message));
    if args.runs == 0 || args.decode_tokens == 0 || args.prompt_tokens.contains(&0) {
        return refused("`--runs`, `--prompt-tokens` and `--decode-tokens` are at least 1");
    }
    if args.needle.iter().any(|depth| *depth > 100) {
        return refused("`--needle` takes percent, 0 to 100");
    }
    if !args.needle.is_empty() && args.needle_tokens < needle::LEAST_TOKENS {
        return refused(&format!("`--needle-tokens` is at least {}", needle::LEAST_TOKENS));
    }
    if args.session > session::MOST_TURNS || args.starts > starts::MOST_STARTS {
        let (turns, starts) = (session::MOST_TURNS, starts::MOST_STARTS);
        return refused(&format!("`--session` is at most {turns}, `--starts` at most {starts}"));
    }
    Ok(())
}

/// Positions that the longest of all measurements needs.
fn needed_context(args: &BenchArgs) -> u64 {
    let prompt = args.prompt_tokens.iter().copied().max().unwrap_or(1);
    let depth = args.depths.iter().copied().max().unwrap_or(0).saturating_add(args.decode_tokens);
    let needle = if args.needle.is_empty() { 0 } else { args.needle_tokens.saturating_add(needle::ANSWER_TOKENS) };
    u64::from(prompt.max(depth).max(needle)).max(session::positions(args.session)) + 1
}

/// Ordinary text as tokens, as long as needed: speed may depend on the tokens (routed experts).
fn text_tokens(loaded: &Loaded, count: usize) -> Vec<u32> {
    const TEXT: &str = "A benchmark is a command that someone can run again. The same text is read every time, so that \
        two runs differ in nothing but the machine's mood; the median says what to expect and the spread how much to \
        trust it. Rivers do not hurry, and yet the sea is full. ";
    let mut tokens = loaded.tokenizer.encode(TEXT, true, false);
    let more = loaded.tokenizer.encode(TEXT, false, false);
    while tokens.len() < count && !more.is_empty() {
        tokens.extend_from_slice(&more);
    }
    tokens.truncate(count);
    tokens
}

fn repeat(runs: u32, mut once: impl FnMut() -> Result<f64, EngineError>) -> Result<Vec<f64>, EngineError> {
    once()?;
    (0..runs).map(|_| once()).collect()
}

/// Tokens per second of reading a prompt, the logits after its last token included.
fn prompt_speed(session: &mut Session, tokens: &[u32]) -> Result<f64, EngineError> {
    session.truncate(0);
    let start = Instant::now();
    session.evaluate(tokens)?;
    Ok(tokens.len() as f64 / start.elapsed().as_secs_f64())
}

/// Tokens per second one by one, each the most probable one after the token before it, after those
/// that the context holds already.
fn decode_speed(session: &mut Session, before: &[u32], first: u32, count: u32) -> Result<f64, EngineError> {
    // What a run before this one decoded goes; what lies below it stays.
    if session.tokens().starts_with(before) {
        session.truncate(before.len() as u64);
    } else {
        session.truncate(0);
        session.evaluate(before)?;
    }
    let start = Instant::now();
    let mut token = first;
    for step in 1..=count {
        token = session.greedy(token, step < count)?;
    }
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}
