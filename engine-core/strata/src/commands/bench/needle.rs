//! A sentence hidden at several depths of a long text, and a question that only it answers. It tells
//! a broken cache or a wrong position from a model that reads; a small model may fail it honestly.

use crate::answer::Style;
use crate::cli::BenchArgs;
use crate::model::Loaded;
use crate::outcome::Outcome;
use std::fmt::Write;
use std::ops::ControlFlow;
use strata_engine::{Limits, SamplerSettings, Session, generate};
use strata_manifest::report::NeedleReport;
use strata_model::chat::Message;

/// Room for the question, the template and the needle itself.
pub(super) const LEAST_TOKENS: u32 = 256;
pub(super) const ANSWER_TOKENS: u32 = 32;
const FRAME_TOKENS: usize = 96;
const SENTENCES: [&str; 6] = [
    "The harbour was quiet in the morning and the boats lay still.",
    "A baker opened the shutters and swept the step before the door.",
    "Two children counted the carts that went by on the bridge.",
    "In the afternoon the wind turned and brought the smell of rain.",
    "An old man mended nets and said nothing to anybody.",
    "At night the lamps along the quay were lit one after another.",
];

pub(super) fn find(loaded: &Loaded, session: &mut Session, args: &BenchArgs) -> Outcome<Vec<NeedleReport>> {
    if args.needle.is_empty() {
        return Ok(Vec::new());
    }
    let style = Style::of(loaded, false)?;
    let mut reports = Vec::new();
    for (i, depth) in args.needle.iter().enumerate() {
        // Another number each time, so that no answer comes out of an earlier prompt.
        let number = (40_000 + 7919 * (i as u32 + 1) % 50_000).to_string();
        let text = haystack(loaded, args.needle_tokens as usize - FRAME_TOKENS, *depth, &number);
        let question = "What is the number of the lighthouse keeper's key? Answer with the number only.";
        let message = Message::text("user", format!("{text}\n\n{question}"));
        let raw = format!("{text}\n\nThe number of the lighthouse keeper's key is");
        let prompt = style.tokens(loaded, &[message], &raw)?;
        let limits = Limits { max_tokens: Some(u64::from(ANSWER_TOKENS)), ..Limits::default() };
        let greedy = SamplerSettings::default();
        let finished =
            generate(session, &loaded.tokenizer, &prompt, &greedy, &limits, &mut |_| ControlFlow::Continue(()))?;
        reports.push(NeedleReport {
            depth_percent: *depth,
            prompt_tokens: prompt.len() as u64,
            is_found: finished.text.replace([',', '.', ' '], "").contains(&number),
            answer: finished.text,
        });
    }
    Ok(reports)
}

/// So many tokens of text with the needle at a depth.
fn haystack(loaded: &Loaded, n_tokens: usize, depth: u32, number: &str) -> String {
    let count = |text: &str| loaded.tokenizer.encode(text, false, false).len();
    let round: usize = SENTENCES.iter().map(|sentence| count(sentence) + 1).sum();
    let n_sentences = (n_tokens * SENTENCES.len() / round.max(1)).max(1);
    let at = n_sentences * depth as usize / 100;
    let mut text = String::new();
    for i in 0..=n_sentences {
        if i == at {
            // Writing to a String cannot fail.
            let _ = write!(text, "The number of the lighthouse keeper's key is {number}. ");
        }
        if i < n_sentences {
            text.push_str(SENTENCES[i % SENTENCES.len()]);
            text.push(' ');
        }
    }
    text.trim_end().to_owned()
}
