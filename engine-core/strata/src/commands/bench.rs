//! `strata bench`: prompt and decode speed. Each figure is the median of runs after one that is not
//! counted; every run starts with an empty context, so nothing is reused.

use crate::cli::BenchArgs;
use crate::model::Loaded;
use crate::outcome::Outcome;
use crate::printer;
use std::fmt::Write;
use std::time::Instant;
use strata_diag::catalogue::general::BAD_OPTION;
use strata_diag::{Diagnostic, ExitStatus};
use strata_engine::{EngineError, Session};
use strata_manifest::report::{BenchReport, SpeedReport};

pub(crate) fn run(args: &BenchArgs) -> Outcome {
    if args.runs == 0 || args.decode_tokens == 0 || args.prompt_tokens.contains(&0) {
        let message = "`--runs`, `--prompt-tokens` and `--decode-tokens` are at least 1";
        return Err(Diagnostic::new(BAD_OPTION, message).into());
    }
    let longest = args.prompt_tokens.iter().copied().max().unwrap_or(1).max(args.decode_tokens);
    let path = crate::model::find(Some(&args.model), args.engine.prefix.as_deref())?;
    let loaded = Loaded::load(&path, &args.engine, Some(u64::from(longest) + 1))?;
    let mut session = loaded.engine.session()?;
    let tokens = text_tokens(&loaded, longest as usize);

    let mut prompt = Vec::new();
    for &count in &args.prompt_tokens {
        let speeds = repeat(args.runs, || prompt_speed(&mut session, &tokens[..count as usize]))?;
        prompt.push(SpeedReport::of(u64::from(count), speeds));
    }
    let speeds = repeat(args.runs, || decode_speed(&mut session, &tokens[..args.decode_tokens as usize]))?;
    let decode = SpeedReport::of(u64::from(args.decode_tokens), speeds);
    loaded.gguf.check_unchanged()?;

    if args.json {
        let report = BenchReport {
            schema: "strata-bench/1.0",
            model: path.display().to_string(),
            backend: loaded.chosen.report(),
            settings: loaded.settings_report(),
            prompt,
            decode,
        };
        printer::document(&report)?;
        return Ok(ExitStatus::Done);
    }
    printer::talk(&loaded.chosen.line());
    let mut text = format!(
        "{:<8} {:>7} {:>10} {:>10} {:>10}  tokens/s, {} runs\n",
        "", "tokens", "median", "min", "max", args.runs
    );
    for (name, speed) in prompt.iter().map(|speed| ("prompt", speed)).chain([("decode", &decode)]) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{name:<8} {:>7} {:>10.1} {:>10.1} {:>10.1}",
            speed.tokens, speed.median, speed.min, speed.max
        );
    }
    printer::data(&text)?;
    Ok(ExitStatus::Done)
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

/// Tokens per second one by one from an empty context.
fn decode_speed(session: &mut Session, tokens: &[u32]) -> Result<f64, EngineError> {
    session.truncate(0);
    let start = Instant::now();
    for token in tokens {
        session.evaluate(std::slice::from_ref(token))?;
    }
    Ok(tokens.len() as f64 / start.elapsed().as_secs_f64())
}
