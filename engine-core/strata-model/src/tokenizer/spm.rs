//! SentencePiece's BPE: the pair whose product has the best score merges first, and characters
//! that are in no token are spelled as bytes.

use super::merge::{Merge, Merger, NONE, Symbol};
use super::vocabulary::{BLANK, Vocabulary};

#[derive(Debug)]
pub(super) struct Spm {
    /// For each token, its place when sorted by score; smaller is better.
    orders: Vec<u32>,
    /// The token of each byte, [`NONE`] where there is none.
    bytes: Box<[u32; 256]>,
    /// Stands for what cannot be spelled.
    unknown: Option<u32>,
    /// No token is longer, in bytes.
    longest: u32,
}

impl Spm {
    pub(super) fn new(vocabulary: &Vocabulary, scores: &[f32], unknown: Option<u32>) -> Self {
        let bytes = std::array::from_fn(|byte| {
            // llama.cpp also takes a token that is the byte itself, written plainly.
            let plain = u8::try_from(byte).ok().filter(u8::is_ascii).map(|byte| char::from(byte).to_string());
            let spelled = vocabulary.id_of(&format!("<0x{byte:02X}>"));
            spelled.or_else(|| plain.and_then(|text| vocabulary.id_of(&text))).unwrap_or(NONE)
        });
        let longest = (0..vocabulary.len() as u32).filter_map(|id| vocabulary.text(id)).map(str::len).max();
        Spm {
            orders: scores.iter().map(|score| order_of(*score)).collect(),
            bytes: Box::new(bytes),
            unknown,
            longest: longest.unwrap_or_default() as u32,
        }
    }

    /// Appends the tokens of `text`, which is below 4 GiB when written. `prefix` puts a blank first.
    pub(super) fn encode(&self, vocabulary: &Vocabulary, text: &str, prefix: bool, ids: &mut Vec<u32>) {
        let mut written = String::with_capacity(text.len() + text.len() / 2);
        if prefix {
            written.push(BLANK);
        }
        written.extend(text.chars().map(|character| if character == ' ' { BLANK } else { character }));
        let mut symbols: Vec<Symbol> = written
            .char_indices()
            .map(|(at, character)| {
                let end = at + character.len_utf8();
                Symbol { id: vocabulary.find(&written[at..end]), start: at as u32, end: end as u32 }
            })
            .collect();
        Merger::default().merge(&mut symbols, |left, right| {
            if right.end - left.start > self.longest {
                return None;
            }
            let id = vocabulary.find(&written[left.start as usize..right.end as usize]);
            Some(Merge { order: *self.orders.get(id as usize)?, id })
        });
        for symbol in symbols {
            if symbol.id == NONE {
                self.spell(&written.as_bytes()[symbol.start as usize..symbol.end as usize], ids);
            } else {
                ids.push(symbol.id);
            }
        }
    }

    fn spell(&self, bytes: &[u8], ids: &mut Vec<u32>) {
        if bytes.iter().all(|byte| self.bytes[*byte as usize] != NONE) {
            ids.extend(bytes.iter().map(|byte| self.bytes[*byte as usize]));
        } else {
            ids.extend(self.unknown);
        }
    }

    /// Whether all text without U+2581 can be told from its tokens.
    pub(super) fn is_lossless(&self, vocabulary: &Vocabulary) -> bool {
        use super::vocabulary::TokenKind;
        self.bytes.iter().all(|id| vocabulary.kind(*id) == Some(TokenKind::Byte))
    }
}

/// Numbers in the order of scores, best first. Zeros of both signs are equal; what is no number is last.
fn order_of(score: f32) -> u32 {
    if score.is_nan() {
        return u32::MAX;
    }
    let bits = (score + 0.0).to_bits();
    // The usual trick: as integers, positive floats are in order and negative ones in reverse.
    let ascending = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    !ascending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_scores_come_first() {
        let scores = [f32::INFINITY, 3.5, 1e-30, 0.0, -1e-30, -1.0, -236_280.0, f32::NEG_INFINITY, f32::NAN];
        assert!(scores.windows(2).all(|pair| order_of(pair[0]) < order_of(pair[1])));
        assert_eq!(order_of(0.0), order_of(-0.0));
    }
}
