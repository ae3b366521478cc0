//! A report for people.

use crate::cli::BenchArgs;
use std::fmt::Write;
use strata_manifest::report::{BenchReport, SessionReport, SpeedReport, StartsReport};

/// Writing to a String cannot fail, so results of `writeln!` are dropped here.
pub(super) fn text(report: &BenchReport, args: &BenchArgs) -> String {
    let mut text = format!(
        "{:<18} {:>7} {:>10} {:>10} {:>10} {:>8}  tokens/s, {} runs\n",
        "", "tokens", "median", "min", "max", "spread", args.runs
    );
    for speed in &report.prompt {
        line(&mut text, "prompt", speed);
    }
    for at in &report.decode_at {
        let name = if at.depth == 0 { "decode".to_owned() } else { format!("decode at {}", at.depth) };
        line(&mut text, &name, &at.speed);
    }
    if let Some(session) = &report.session {
        session_lines(&mut text, session);
    }
    if let Some(starts) = &report.starts {
        start_lines(&mut text, starts);
    }
    if !report.needle.is_empty() {
        let found = report.needle.iter().filter(|needle| needle.is_found).count();
        let _ = writeln!(text, "\nneedle found at {found} of {} depths", report.needle.len());
        for needle in &report.needle {
            let word = if needle.is_found { "found" } else { "MISSED" };
            let answer = needle.answer.trim().replace('\n', " ");
            let _ = writeln!(
                text,
                "  {:>3} % of {} tokens: {word}, {answer:?}",
                needle.depth_percent, needle.prompt_tokens
            );
        }
    }
    if let Some(file) = &args.compare {
        let _ = writeln!(text, "\nagainst {}", file.display());
        for change in &report.comparison {
            let word = if change.is_beyond_spread { "" } else { "  within the spread" };
            let _ = writeln!(
                text,
                "  {:<18} {:>10.1} -> {:>10.1}  {:+6.1} %{word}",
                change.what, change.before, change.now, change.percent
            );
        }
        if report.comparison.is_empty() {
            let _ = writeln!(text, "  nothing was measured in both");
        }
    }
    text
}

fn line(text: &mut String, name: &str, speed: &SpeedReport) {
    let _ = writeln!(
        text,
        "{name:<18} {:>7} {:>10.1} {:>10.1} {:>10.1} {:>6.1} %",
        speed.tokens,
        speed.median,
        speed.min,
        speed.max,
        speed.spread * 100.0
    );
}

fn session_lines(text: &mut String, session: &SessionReport) {
    let share = 100.0 * session.reused_tokens as f64 / session.prompt_tokens.max(1) as f64;
    let _ = writeln!(
        text,
        "\nsession of {} turns: {:.2} s, {} prompt tokens, {share:.1} % of them from the cache",
        session.turns.len(),
        session.seconds,
        session.prompt_tokens
    );
    for (i, turn) in session.turns.iter().enumerate() {
        let _ = writeln!(
            text,
            "  turn {:>3}: {:>6} reused + {:>5} new, first token after {:.3} s",
            i + 1,
            turn.reused,
            turn.new,
            turn.first_token_seconds
        );
    }
    let _ = writeln!(text, "  the last turn from an empty cache: {:.3} s", session.last_turn_cold_seconds);
}

fn start_lines(text: &mut String, starts: &StartsReport) {
    let _ = writeln!(text, "\n{} fresh processes", starts.processes);
    for (name, figure, unit) in [
        ("until ready", &starts.ready_seconds, "s"),
        ("whole process", &starts.whole_seconds, "s"),
        ("first prompt", &starts.first_prompt, "tokens/s"),
        ("first decode", &starts.first_decode, "tokens/s"),
    ] {
        let _ = writeln!(
            text,
            "  {name:<16} median {:>9.2}, {:>9.2} to {:>9.2} {unit}, spread {:.1} %",
            figure.median,
            figure.min,
            figure.max,
            figure.spread * 100.0
        );
    }
}
