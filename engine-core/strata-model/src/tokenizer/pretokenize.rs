//! Splitting text into the words that BPE never merges across, by `tokenizer.ggml.pre`.
//!
//! Each model family was trained with a regular expression (or several, one after the other) that
//! does this; another split gives other tokens and a worse model, without any error. They are
//! written here as scanners, since a backtracking engine is slow on them and can be made slower by
//! the text. The tests hold the expressions themselves and compare.
//!
//! Where llama.cpp approximates an expression because its engine lacks a class (tekken, gpt-4o),
//! the original is what is done here: it is what the model saw.

mod cased;
mod words;

use super::classes::{LETTER, LOWER, MARK, NUMBER, PUNCTUATION, SPACE, SYMBOL, UPPER, class_of};
use cased::Cased;
use words::{Tail, Words};

/// How one `tokenizer.ggml.pre` splits text, and what else llama.cpp's format ties to that name.
#[derive(Debug, Clone, Copy)]
pub(super) struct PreTokenizer {
    /// Applied one after the other, each to the pieces of the one before.
    stages: &'static [Stage],
    /// A word that is a token as a whole is that token, whatever the merges say.
    pub ignore_merges: bool,
    /// Whether a BOS token is put first when the file does not say.
    pub add_bos: bool,
}

/// One expression. What it matches becomes a piece, and so does what lies between two matches.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    Words(Words),
    Cased(Cased),
    /// `\p{N}{1,n}`, or all of a run for 0.
    Numbers(usize),
    /// `[0-9][0-9][0-9]`
    ThreeDigits,
    /// `[\p{P}$+<=>^~|]+`, with the grave accent too if true.
    Punctuation(bool),
    /// `[\r\n]`
    LineEnd,
    /// `[^\n]+|[\n]+`
    Lines,
    /// `\s?\p{L}+`
    SpacedLetters,
    /// `\s?\p{P}+`
    SpacedPunctuation,
    /// `\s?` and letters with case, without some scripts; DeepSeek-LLM lists them all.
    SpacedCased,
    /// `\s?[!-/:-~！-／：-～‘-‟　-。]+`
    SpacedSigns,
    /// `\s+$`
    TrailingSpaces,
    /// `[一-龥ࠀ-一가-퟿]+`
    DeepseekCoderHan,
    /// `[一-龥぀-ゟ゠-ヿ]+`
    HanAndKana,
    /// The last expression of DeepSeek-V3.
    DeepseekV3,
}

const GPT2: &[Stage] = &[Stage::Gpt2];
const DIGITS_GPT2: &[Stage] = &[Stage::Numbers(1), Stage::Gpt2];
const LLAMA3: Words = Words { contractions: true, letters: LETTER, digits: 3, tail: Tail::LineEnds };
const QWEN2: Words = Words { digits: 1, ..LLAMA3 };
const QWEN35: Words = Words { letters: LETTER | MARK, ..QWEN2 };

/// Names, stages, ignore_merges, add_bos.
type Entry = (&'static [&'static str], &'static [Stage], bool, bool);

#[rustfmt::skip]
const KNOWN: &[Entry] = &[
    (&["default"], &[Stage::Punctuation(false), Stage::Gpt2, Stage::Numbers(0), Stage::ThreeDigits], false, false),
    (&["gpt-2", "gpt2", "gpt-neox", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "gigachat", "a.x-4.0",
       "mellum", "exaone4", "modern-bert"], GPT2, false, false),
    (&["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
       DIGITS_GPT2, false, false),
    (&["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
       &[Stage::Words(LLAMA3)], true, true),
    (&["glm4", "glm5"], &[Stage::Words(LLAMA3)], true, false),
    (&["dbrx", "smaug-bpe", "chatglm-bpe"], &[Stage::Words(LLAMA3)], false, false),
    (&["minicpm5"], &[Stage::Numbers(3), Stage::Words(LLAMA3)], true, false),
    (&["qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "kormo", "f2llmv2", "solar-open", "grok-2",
       "bailingmoe", "bailingmoe2", "llada-moe"], &[Stage::Words(QWEN2)], false, false),
    (&["qwen35"], &[Stage::Words(QWEN35)], false, false),
    (&["seed-coder"], &[Stage::Words(Words { tail: Tail::Nothing, ..QWEN2 })], false, false),
    (&["ufakzeka"], &[Stage::Words(Words { contractions: false, ..QWEN2 })], false, false),
    (&["laguna"], &[Stage::Lines, Stage::Words(QWEN2)], false, false),
    (&["tekken"], &[Stage::Cased(Cased { contractions: false, digits: 1 })], true, true),
    (&["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
       &[Stage::Cased(Cased { contractions: true, digits: 3 })], false, false),
    (&["falcon"], &[Stage::Punctuation(true), Stage::Gpt2, Stage::ThreeDigits], false, false),
    (&["deepseek-coder"], &[Stage::LineEnd, Stage::SpacedLetters, Stage::SpacedPunctuation, Stage::DeepseekCoderHan,
       Stage::Numbers(1)], false, false),
    (&["deepseek-llm"], &[Stage::LineEnd, Stage::SpacedCased, Stage::SpacedSigns, Stage::TrailingSpaces,
       Stage::DeepseekCoderHan, Stage::Numbers(0)], false, false),
    (&["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
       &[Stage::Numbers(3), Stage::HanAndKana, Stage::DeepseekV3], false, false),
];

/// For a vocabulary of SentencePiece's kind with merges (gemma4): only line ends separate.
pub(super) const LINES: PreTokenizer = PreTokenizer { stages: &[Stage::Lines], ignore_merges: false, add_bos: true };

impl PreTokenizer {
    pub(super) fn named(name: &str) -> Option<PreTokenizer> {
        let (_, stages, ignore_merges, add_bos) = KNOWN.iter().find(|(names, ..)| names.contains(&name))?;
        Some(PreTokenizer { stages, ignore_merges: *ignore_merges, add_bos: *add_bos })
    }

    /// The names, for messages.
    pub(super) fn known() -> String {
        KNOWN.iter().flat_map(|(names, ..)| names.iter().copied()).collect::<Vec<_>>().join(", ")
    }

    /// Calls `word` with each word of `text` in order; together they are the text.
    pub(super) fn split<'t>(&self, text: &'t str, word: &mut impl FnMut(&'t str)) {
        split_by(self.stages, text, word);
    }
}

fn split_by<'t>(stages: &[Stage], text: &'t str, word: &mut dyn FnMut(&'t str)) {
    let Some((stage, rest)) = stages.split_first() else {
        word(text);
        return;
    };
    let (mut at, mut gap) = (0, 0);
    while at < text.len() {
        match stage.matched(text, at) {
            Some(end) if end > at => {
                if gap < at {
                    split_by(rest, &text[gap..at], word);
                }
                split_by(rest, &text[at..end], word);
                at = end;
                gap = end;
            }
            // No alternative begins here.
            _ => at += text[at..].chars().next().map_or(1, char::len_utf8),
        }
    }
    if gap < text.len() {
        split_by(rest, &text[gap..], word);
    }
}

impl Stage {
    /// Where the match that starts at `at` ends.
    fn matched(&self, text: &str, at: usize) -> Option<usize> {
        match self {
            Stage::Gpt2 => gpt2(text, at),
            Stage::Words(words) => Some(words.matched(text, at)),
            Stage::Cased(cased) => Some(cased.matched(text, at)),
            Stage::Numbers(most) => numbers(text, at, *most),
            Stage::ThreeDigits => {
                let digits = text.as_bytes().get(at..at + 3)?;
                digits.iter().all(u8::is_ascii_digit).then_some(at + 3)
            }
            Stage::Punctuation(grave) => run(text, at, |character| {
                class_of(character) & PUNCTUATION != 0 || "$+<=>^~|".contains(character) || (*grave && character == '`')
            }),
            Stage::LineEnd => text[at..].starts_with(['\r', '\n']).then_some(at + 1),
            Stage::Lines => {
                let line_end = text[at..].starts_with('\n');
                run(text, at, |character| (character == '\n') == line_end)
            }
            Stage::SpacedLetters => run_of(text, skip_one_of(text, at, SPACE), LETTER),
            Stage::SpacedPunctuation => run_of(text, skip_one_of(text, at, SPACE), PUNCTUATION),
            Stage::SpacedCased => run(text, skip_one_of(text, at, SPACE), has_case_in_deepseek_llm),
            // The wide blank is a sign itself, and is one if no other follows.
            Stage::SpacedSigns => run(text, skip_one_of(text, at, SPACE), is_sign_in_deepseek_llm)
                .or_else(|| run(text, at, is_sign_in_deepseek_llm)),
            Stage::TrailingSpaces => {
                // Behind another blank: what starts earlier has been tried, and reached no end.
                let inside = text[..at].chars().next_back().is_some_and(char::is_whitespace);
                if inside { None } else { run_of(text, at, SPACE).filter(|end| *end == text.len()) }
            }
            Stage::DeepseekCoderHan => {
                run(text, at, |character| matches!(character, '\u{800}'..='\u{9fa5}' | '\u{ac00}'..='\u{d7ff}'))
            }
            Stage::HanAndKana => {
                run(text, at, |character| matches!(character, '\u{4e00}'..='\u{9fa5}' | '\u{3040}'..='\u{30ff}'))
            }
            Stage::DeepseekV3 => deepseek_v3(text, at),
        }
    }
}

/// The character at `at` and where the next one starts.
fn character_at(text: &str, at: usize) -> Option<(char, usize)> {
    let character = text[at..].chars().next()?;
    Some((character, at + character.len_utf8()))
}

/// The end of the run of characters from `at` on that satisfy `belongs`; `None` for an empty one.
fn run(text: &str, at: usize, belongs: impl Fn(char) -> bool) -> Option<usize> {
    let end = text[at..].find(|character| !belongs(character)).map_or(text.len(), |length| at + length);
    (end > at).then_some(end)
}

/// As [`run`], of characters with one of these flags.
fn run_of(text: &str, at: usize, flags: u8) -> Option<usize> {
    run(text, at, |character| class_of(character) & flags != 0)
}

/// As [`run`], of characters with none of these flags.
fn run_without(text: &str, at: usize, flags: u8) -> Option<usize> {
    run(text, at, |character| class_of(character) & flags == 0)
}

/// Behind the character at `at` if it has one of these flags, else `at`.
fn skip_one_of(text: &str, at: usize, flags: u8) -> usize {
    match character_at(text, at) {
        Some((character, next)) if class_of(character) & flags != 0 => next,
        _ => at,
    }
}

/// Behind a blank at `at`, else `at`.
fn skip_blank(text: &str, at: usize) -> usize {
    if text[at..].starts_with(' ') { at + 1 } else { at }
}

/// `\p{N}{1,most}`, or `\p{N}+` for 0. Looks no further than its match: a group is short, the run may not be.
fn numbers(text: &str, at: usize, most: usize) -> Option<usize> {
    if most == 0 {
        return run_of(text, at, NUMBER);
    }
    let group = text[at..].chars().take(most).take_while(|character| class_of(*character) & NUMBER != 0);
    let length: usize = group.map(char::len_utf8).sum();
    (length > 0).then_some(at + length)
}

/// `'s|'t|'re|'ve|'m|'ll|'d`. Whichever case if `any_case`, which includes the long s: `(?i)` of
/// the engines that these expressions were written for folds it.
fn contraction(text: &str, at: usize, any_case: bool) -> Option<usize> {
    let rest = text[at..].strip_prefix('\'')?;
    let mut characters = rest.chars().map(|character| match character {
        '\u{17f}' if any_case => 's',
        _ if any_case => character.to_ascii_lowercase(),
        _ => character,
    });
    let first = characters.next()?;
    let length = match (first, characters.next()) {
        ('r' | 'v', Some('e')) | ('l', Some('l')) => 2,
        ('s' | 't' | 'm' | 'd', _) => rest.chars().next()?.len_utf8(),
        _ => return None,
    };
    Some(at + 1 + length)
}

/// `\s+(?!\S)|\s+` at a white-space character: all of the run if the text ends with it, else all
/// but its last character, unless that is all there is.
fn spaces(text: &str, at: usize) -> Option<usize> {
    let end = run_of(text, at, SPACE)?;
    if end == text.len() {
        return Some(end);
    }
    let (last, _) = text[at..end].char_indices().next_back()?;
    Some(if last == 0 { end } else { at + last })
}

/// `\s*[\r\n]+` at a white-space character: up to the last line end of the run.
fn spaces_and_line_ends(text: &str, at: usize) -> Option<usize> {
    let end = run_of(text, at, SPACE)?;
    text[at..end].rfind(['\r', '\n']).map(|last| at + last + 1)
}

/// `[!-/:-~！-／：-～‘-‟　-。]`: mostly punctuation, but letters too.
fn is_sign_in_deepseek_llm(character: char) -> bool {
    matches!(character, '!'..='/' | ':'..='~' | '\u{ff01}'..='\u{ff0f}' | '\u{ff1a}'..='\u{ff5e}'
        | '\u{2018}'..='\u{201f}' | '\u{3000}'..='\u{3002}')
}

/// DeepSeek-LLM's list of letters is that of all letters with case, but for Armenian's and
/// Georgian's small ones, mathematical ones, and what Unicode got later.
fn has_case_in_deepseek_llm(character: char) -> bool {
    let left_out = matches!(character, '\u{560}'..='\u{588}' | '\u{10c7}'..='\u{10ff}' | '\u{1c80}'..='\u{1c8f}'
        | '\u{2d00}'..='\u{2d2d}' | '\u{a790}'..='\u{a7ff}' | '\u{ab30}'..='\u{ab6f}' | '\u{10570}'..='\u{105bc}'
        | '\u{10d50}'..='\u{10d85}' | '\u{16e40}'..='\u{16eff}' | '\u{1d400}'..='\u{1d7cb}' | '\u{1df00}'..='\u{1dfff}');
    class_of(character) & (UPPER | LOWER) != 0 && !left_out
}

fn gpt2(text: &str, at: usize) -> Option<usize> {
    if let Some(end) = contraction(text, at, false) {
        return Some(end);
    }
    let start = skip_blank(text, at);
    run_of(text, start, LETTER)
        .or_else(|| run_of(text, start, NUMBER))
        .or_else(|| run_without(text, start, SPACE | LETTER | NUMBER))
        .or_else(|| spaces(text, at))
}

/// ``[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*``
/// and then as everywhere: `\s*[\r\n]+|\s+(?!\S)|\s+`.
fn deepseek_v3(text: &str, at: usize) -> Option<usize> {
    let (character, next) = character_at(text, at)?;
    if character.is_ascii_punctuation()
        && let Some(end) = run(text, next, |character| character.is_ascii_alphabetic())
    {
        return Some(end);
    }
    let prefix = !matches!(character, '\r' | '\n') && class_of(character) & (LETTER | PUNCTUATION | SYMBOL) == 0;
    let letters = LETTER | MARK;
    prefix
        .then(|| run_of(text, next, letters))
        .flatten()
        .or_else(|| run_of(text, at, letters))
        .or_else(|| {
            let end = run_of(text, skip_blank(text, at), PUNCTUATION | SYMBOL)?;
            Some(run(text, end, |character| matches!(character, '\r' | '\n')).unwrap_or(end))
        })
        .or_else(|| spaces_and_line_ends(text, at))
        .or_else(|| spaces(text, at))
}

#[cfg(test)]
mod tests;
