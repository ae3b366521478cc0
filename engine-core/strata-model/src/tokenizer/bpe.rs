//! BPE by a list of merges: GPT-2's on bytes, and Gemma 4's on characters.

use super::error::TextError;
use super::hash::Key;
use super::merge::{Merge, Merger, NONE, Symbol};
use super::pretokenize::PreTokenizer;
use super::vocabulary::{BLANK, Vocabulary, bad, byte_characters};
use std::collections::HashMap;

/// What text is made of before the first merge.
#[derive(Debug)]
enum Alphabet {
    /// Bytes: the symbol of each, and the character that it is written with.
    Bytes { symbols: Box<[u32; 256]>, characters: Box<[char; 256]> },
    /// Characters, with U+2581 for a blank. What is no token in the end becomes `<0x0A>` tokens.
    Characters,
}

#[derive(Debug)]
pub(super) struct Bpe {
    pre: PreTokenizer,
    alphabet: Alphabet,
    /// For two symbols the rank of their merge and what it makes.
    merges: HashMap<u64, Merge, Key>,
    /// Symbols that merges speak of but that are no tokens, numbered on behind the vocabulary.
    /// Trimmed vocabularies have them.
    others: HashMap<String, u32>,
}

/// Buffers kept from word to word.
#[derive(Debug, Default)]
struct Scratch {
    merger: Merger,
    symbols: Vec<Symbol>,
    written: String,
}

impl Bpe {
    /// `bytes` chooses the alphabet. `merges` are pairs with a blank between, best first.
    pub(super) fn new(
        vocabulary: &Vocabulary,
        merges: &[&str],
        pre: PreTokenizer,
        bytes: bool,
    ) -> Result<Self, TextError> {
        let mut others = HashMap::new();
        let mut table = HashMap::with_capacity_and_hasher(merges.len(), Key::random());
        let mut product = String::new();
        for (order, line) in (0..).zip(merges) {
            // The blank is looked for from the second character on: a symbol may itself be one.
            let after_first = line.chars().next().map_or(0, char::len_utf8);
            let blank = line[after_first..].find(' ').map(|at| after_first + at);
            let Some(blank) = blank.filter(|at| at + 1 < line.len()) else {
                return Err(bad("merges", format!("hold entry {order}, `{line}`, which is no pair")));
            };
            let (left, right) = (&line[..blank], &line[blank + 1..]);
            product.clear();
            product.push_str(left);
            product.push_str(right);
            let mut symbol = |text: &str| symbol_or_new(vocabulary, &mut others, text);
            let key = pair(symbol(left), symbol(right));
            let id = symbol(&product);
            table.entry(key).or_insert(Merge { order, id });
        }
        let find = |text: &str| vocabulary.id_of(text).or_else(|| others.get(text).copied()).unwrap_or(NONE);
        let alphabet = if bytes {
            let characters = byte_characters();
            let symbols = characters.map(|character| find(character.encode_utf8(&mut [0; 4])));
            Alphabet::Bytes { symbols: Box::new(symbols), characters: Box::new(characters) }
        } else {
            Alphabet::Characters
        };
        Ok(Bpe { pre, alphabet, merges: table, others })
    }

    /// Appends the tokens of `text`, which is below 4 GiB.
    pub(super) fn encode(&self, vocabulary: &Vocabulary, text: &str, ids: &mut Vec<u32>) {
        let mut scratch = Scratch::default();
        let written;
        let text = match &self.alphabet {
            Alphabet::Bytes { .. } => text,
            Alphabet::Characters => {
                written = text.replace(' ', BLANK.encode_utf8(&mut [0; 4]));
                &written
            }
        };
        self.pre.split(text, &mut |word| self.encode_word(vocabulary, word, &mut scratch, ids));
    }

    fn encode_word(&self, vocabulary: &Vocabulary, word: &str, scratch: &mut Scratch, ids: &mut Vec<u32>) {
        if let Some(id) = self.whole_word(vocabulary, word, scratch) {
            ids.push(id);
            return;
        }
        let symbols = &mut scratch.symbols;
        symbols.clear();
        match &self.alphabet {
            Alphabet::Bytes { symbols: of_byte, .. } => {
                symbols.extend((0..).zip(word.bytes()).map(|(at, byte)| Symbol {
                    id: of_byte[byte as usize],
                    start: at,
                    end: at + 1,
                }));
            }
            Alphabet::Characters => symbols.extend(word.char_indices().map(|(at, character)| {
                let id = self.find(vocabulary, character.encode_utf8(&mut [0; 4]));
                Symbol { id, start: at as u32, end: (at + character.len_utf8()) as u32 }
            })),
        }
        scratch.merger.merge(symbols, |left, right| self.merges.get(&pair(left.id, right.id)).copied());
        for symbol in symbols.iter() {
            if (symbol.id as usize) < vocabulary.len() {
                ids.push(symbol.id);
            } else {
                self.spell(vocabulary, &word.as_bytes()[symbol.start as usize..symbol.end as usize], ids);
            }
        }
    }

    /// The token that the word is as a whole, where merges are not asked about that.
    fn whole_word(&self, vocabulary: &Vocabulary, word: &str, scratch: &mut Scratch) -> Option<u32> {
        match &self.alphabet {
            Alphabet::Bytes { characters, .. } if self.pre.ignore_merges => {
                scratch.written.clear();
                scratch.written.extend(word.bytes().map(|byte| characters[byte as usize]));
                vocabulary.id_of(&scratch.written)
            }
            // Runs of line ends are tokens that no merge leads to.
            Alphabet::Characters if word.starts_with('\n') => vocabulary.id_of(word),
            _ => None,
        }
    }

    /// A symbol that is no token, in its smallest parts. What has no token at all is left out:
    /// some vocabularies lack control characters.
    fn spell(&self, vocabulary: &Vocabulary, bytes: &[u8], ids: &mut Vec<u32>) {
        for byte in bytes {
            let id = match &self.alphabet {
                Alphabet::Bytes { symbols, .. } => Some(symbols[*byte as usize]),
                Alphabet::Characters => vocabulary.id_of(&format!("<0x{byte:02X}>")),
            };
            ids.extend(id.filter(|id| (*id as usize) < vocabulary.len()));
        }
    }

    fn find(&self, vocabulary: &Vocabulary, text: &str) -> u32 {
        vocabulary.id_of(text).or_else(|| self.others.get(text).copied()).unwrap_or(NONE)
    }

    /// Whether all text can be told from its tokens: every byte has one.
    pub(super) fn is_lossless(&self, vocabulary: &Vocabulary) -> bool {
        match &self.alphabet {
            Alphabet::Bytes { symbols, .. } => symbols.iter().all(|id| (*id as usize) < vocabulary.len()),
            Alphabet::Characters => false,
        }
    }
}

/// Two symbols as one key.
fn pair(left: u32, right: u32) -> u64 {
    (left as u64) << 32 | right as u64
}

fn symbol_or_new(vocabulary: &Vocabulary, others: &mut HashMap<String, u32>, text: &str) -> u32 {
    vocabulary.id_of(text).unwrap_or_else(|| {
        let next = (vocabulary.len() + others.len()) as u32;
        *others.entry(text.to_owned()).or_insert(next)
    })
}
