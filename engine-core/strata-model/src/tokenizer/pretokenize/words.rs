//! The family of Llama 3 and Qwen: a word takes one character before it along, digits come in
//! groups, and line ends stick to what is before them.

use super::{character_at, contraction, numbers, run, run_of, run_without, skip_blank, spaces, spaces_and_line_ends};
use crate::tokenizer::classes::{LETTER, NUMBER, SPACE, class_of};

/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
/// |\s*[\r\n]+|\s+(?!\S)|\s+` with its variations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words {
    /// Whether the first alternative is there.
    pub contractions: bool,
    /// What counts as a letter in the second and fourth: L, or L and M.
    pub letters: u8,
    /// Digits in a group.
    pub digits: usize,
    pub tail: Tail,
}

/// What a run of other characters takes along behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    Nothing,
    LineEnds,
}

impl Words {
    /// The alternatives cover all characters, so there always is a match.
    pub(super) fn matched(&self, text: &str, at: usize) -> usize {
        let contraction = if self.contractions { contraction(text, at, true) } else { None };
        contraction
            .or_else(|| self.word(text, at))
            .or_else(|| numbers(text, at, self.digits))
            .or_else(|| self.others(text, at))
            .or_else(|| spaces_and_line_ends(text, at))
            .or_else(|| spaces(text, at))
            .unwrap_or(text.len())
    }

    /// `[^\r\n\p{L}\p{N}]?` and letters. With marks as letters, the character before the word may
    /// itself be one of them, and then stands alone if no letter follows.
    fn word(&self, text: &str, at: usize) -> Option<usize> {
        let (character, next) = character_at(text, at)?;
        let prefix = !matches!(character, '\r' | '\n') && class_of(character) & (LETTER | NUMBER) == 0;
        prefix.then(|| run_of(text, next, self.letters)).flatten().or_else(|| run_of(text, at, self.letters))
    }

    fn others(&self, text: &str, at: usize) -> Option<usize> {
        let end = run_without(text, skip_blank(text, at), SPACE | NUMBER | self.letters)?;
        match self.tail {
            Tail::Nothing => Some(end),
            Tail::LineEnds => Some(run(text, end, |character| matches!(character, '\r' | '\n')).unwrap_or(end)),
        }
    }
}
