//! General categories of characters, as the pre-tokenizers' patterns mean them: one byte of flags
//! for each character, in a table of two levels that is made once, on first use.
//!
//! The standard library's `is_alphabetic` and `is_uppercase` are other properties (derived ones),
//! so the ranges come from regex-syntax, which the patterns were written for.

use std::sync::OnceLock;

/// Lu and Lt.
pub(super) const UPPER: u8 = 1;
/// Ll.
pub(super) const LOWER: u8 = 1 << 1;
/// Lm and Lo: letters without case.
pub(super) const CASELESS: u8 = 1 << 2;
/// M.
pub(super) const MARK: u8 = 1 << 3;
/// N: digits of all scripts, letter numbers, fractions and circled numbers.
pub(super) const NUMBER: u8 = 1 << 4;
/// P.
pub(super) const PUNCTUATION: u8 = 1 << 5;
/// S.
pub(super) const SYMBOL: u8 = 1 << 6;
/// `White_Space`, which is what `\s` matches.
pub(super) const SPACE: u8 = 1 << 7;
/// L.
pub(super) const LETTER: u8 = UPPER | LOWER | CASELESS;

const PAGE: usize = 256;
const CHARACTERS: usize = 0x11_0000;

/// The table. Most of its pages are equal (all Han, unassigned), so it takes about 70 KiB.
struct Classes {
    /// Which page holds the characters of this block of 256.
    pages: Vec<u16>,
    flags: Vec<u8>,
}

impl Classes {
    fn new() -> Self {
        let mut all = vec![0u8; CHARACTERS];
        for (pattern, flag) in [
            (r"[\p{Lu}\p{Lt}]", UPPER),
            (r"\p{Ll}", LOWER),
            (r"[\p{Lm}\p{Lo}]", CASELESS),
            (r"\p{M}", MARK),
            (r"\p{N}", NUMBER),
            (r"\p{P}", PUNCTUATION),
            (r"\p{S}", SYMBOL),
        ] {
            for (first, last) in ranges(pattern) {
                for flags in &mut all[first as usize..=last as usize] {
                    *flags |= flag;
                }
            }
        }
        // The last blank of Unicode is U+3000.
        for code in (0..=0x3000u32).filter(|code| char::from_u32(*code).is_some_and(char::is_whitespace)) {
            all[code as usize] |= SPACE;
        }
        let mut classes = Classes { pages: Vec::with_capacity(CHARACTERS / PAGE), flags: Vec::new() };
        let mut known = std::collections::HashMap::new();
        for page in all.chunks_exact(PAGE) {
            let next = (classes.flags.len() / PAGE) as u16;
            let number = *known.entry(page).or_insert(next);
            if number == next {
                classes.flags.extend_from_slice(page);
            }
            classes.pages.push(number);
        }
        classes
    }
}

/// The ranges of characters that a class matches.
fn ranges(pattern: &str) -> Vec<(char, char)> {
    let parsed = regex_syntax::parse(pattern).expect("a fixed pattern of Unicode categories");
    match parsed.kind() {
        regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class)) => {
            class.ranges().iter().map(|range| (range.start(), range.end())).collect()
        }
        other => unreachable!("a class of characters parsed as {other:?}"),
    }
}

/// The flags of a character; none for controls, private use and unassigned ones.
pub(super) fn class_of(character: char) -> u8 {
    static CLASSES: OnceLock<Classes> = OnceLock::new();
    let classes = CLASSES.get_or_init(Classes::new);
    let code = character as usize;
    classes.flags[classes.pages[code / PAGE] as usize * PAGE + code % PAGE]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_has_the_class_of_its_pattern() {
        for (pattern, flag) in [
            (r"^\p{L}$", LETTER),
            (r"^[\p{Lu}\p{Lt}]$", UPPER),
            (r"^\p{M}$", MARK),
            (r"^\p{N}$", NUMBER),
            (r"^\p{P}$", PUNCTUATION),
            (r"^\p{S}$", SYMBOL),
            (r"^\s$", SPACE),
        ] {
            let regex = fancy_regex::Regex::new(pattern).unwrap();
            for character in (0..CHARACTERS as u32).filter_map(char::from_u32) {
                let mut buffer = [0; 4];
                let text = character.encode_utf8(&mut buffer);
                assert_eq!(
                    regex.is_match(text).unwrap(),
                    class_of(character) & flag != 0,
                    "{pattern} on U+{:04X}",
                    character as u32
                );
            }
        }
    }

    #[test]
    fn the_table_stays_small() {
        assert!(Classes::new().flags.len() < 100 << 10);
    }
}
