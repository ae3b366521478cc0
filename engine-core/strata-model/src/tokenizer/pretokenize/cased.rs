//! The family of GPT-4o and Mistral's Tekken: `FooBar` is two words, and letters without case and
//! marks go with either.

use super::{character_at, contraction, numbers, run, run_of, run_without, skip_blank, spaces, spaces_and_line_ends};
use crate::tokenizer::classes::{CASELESS, LETTER, LOWER, MARK, NUMBER, SPACE, UPPER, class_of};

/// `P?U*W+C?|P?U+W*C?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+` where P is
/// `[^\r\n\p{L}\p{N}]`, U is `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, W is `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
/// and C is a contraction of any case.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cased {
    /// Whether C is there.
    pub contractions: bool,
    /// Digits in a group.
    pub digits: usize,
}

const NO_CASE: u8 = CASELESS | MARK;
const UPPER_SIDE: u8 = UPPER | NO_CASE;
const LOWER_SIDE: u8 = LOWER | NO_CASE;

impl Cased {
    /// The alternatives cover all characters, so there always is a match.
    pub(super) fn matched(&self, text: &str, at: usize) -> usize {
        self.word(text, at)
            .or_else(|| numbers(text, at, self.digits))
            .or_else(|| others(text, at))
            .or_else(|| spaces_and_line_ends(text, at))
            .or_else(|| spaces(text, at))
            .unwrap_or(text.len())
    }

    fn word(&self, text: &str, at: usize) -> Option<usize> {
        let (character, next) = character_at(text, at)?;
        let prefix = !matches!(character, '\r' | '\n') && class_of(character) & (LETTER | NUMBER) == 0;
        let behind = prefix.then_some(next);
        // The order of a backtracking engine: the first alternative with and without the character
        // before the word, then the second.
        let end = behind
            .and_then(|start| ends_lower(text, start))
            .or_else(|| ends_lower(text, at))
            .or_else(|| behind.and_then(|start| run_of(text, start, UPPER_SIDE)))
            .or_else(|| run_of(text, at, UPPER_SIDE))?;
        let contraction = if self.contractions { contraction(text, end, true) } else { None };
        Some(contraction.unwrap_or(end))
    }
}

/// `U*W+`. When no W follows the run of U, the run gives characters back until its rest starts
/// with one that is both; what follows that one is upper case, so the match ends behind it.
fn ends_lower(text: &str, at: usize) -> Option<usize> {
    let upper_end = run_of(text, at, UPPER_SIDE).unwrap_or(at);
    run_of(text, upper_end, LOWER_SIDE).or_else(|| {
        let (start, character) =
            text[at..upper_end].char_indices().rev().find(|(_, character)| class_of(*character) & NO_CASE != 0)?;
        Some(at + start + character.len_utf8())
    })
}

fn others(text: &str, at: usize) -> Option<usize> {
    let end = run_without(text, skip_blank(text, at), SPACE | LETTER | NUMBER)?;
    Some(run(text, end, |character| matches!(character, '\r' | '\n' | '/')).unwrap_or(end))
}
