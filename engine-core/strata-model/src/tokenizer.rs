//! Tokenizers as GGUF files carry them: byte-level BPE and SentencePiece BPE, special tokens,
//! decoding of streams.
//!
//! The measure is llama.cpp's result for the same file, token by token; where it differs from how
//! the model was trained, the module concerned says what was chosen. WordPiece and unigram
//! tokenizers (encoders, T5) are refused: nothing here runs such models.

mod bpe;
mod classes;
mod data;
pub(crate) mod error;
mod hash;
mod merge;
mod names;
mod pretokenize;
mod special;
mod spm;
mod stream;
mod vocabulary;

use crate::gguf::Gguf;
use bpe::Bpe;
use error::TextError;
use pretokenize::PreTokenizer;
use special::{Fragment, Special, Specials};
use spm::Spm;
use std::sync::Arc;
use vocabulary::{Vocabulary, Writing, bad};

pub use data::{Flags, SpecialIds, TokenizerData};
pub use stream::{StopMatcher, StopOutput, StreamDecoder};
pub use vocabulary::TokenKind;

/// Text to token ids and back. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    vocabulary: Vocabulary,
    engine: Engine,
    specials: Specials,
    model: String,
    pre: Option<String>,
    bos: Option<u32>,
    eos: Option<u32>,
    unk: Option<u32>,
    end_of_turn: Option<u32>,
    /// Sorted.
    ends: Vec<u32>,
    add_bos: bool,
    add_eos: bool,
    add_space_prefix: bool,
    notes: Vec<String>,
}

#[derive(Debug)]
enum Engine {
    Bpe(Bpe),
    Spm(Spm),
}

/// What `tokenizer.ggml.model` may be, with what this build makes of it.
const MODELS: &[&str] = &["gpt2", "llama", "gemma4"];

/// Longer texts are tokenized in parts, since positions have 32 bits. No prompt comes near.
const PART: usize = 1 << 30;

fn check_model(model: &str) -> Result<(), TextError> {
    if MODELS.contains(&model) {
        return Ok(());
    }
    Err(TextError::UnsupportedModel { model: model.to_owned(), known: MODELS.join(", ") })
}

/// Each token has a row of the embedding and a logit, and nothing else has: converters fill the list up
/// with unused tokens where a model's table is padded. With another number the two come from different
/// models, and no id can be trusted to mean what the weights learned. A file without weights has no rows.
fn check_rows(gguf: &Gguf, n_tokens: usize) -> Result<(), TextError> {
    for name in ["token_embd.weight", "output.weight"] {
        let Some(rows) = gguf.tensor(name).map(|tensor| tensor.ne[1]) else { continue };
        if rows != n_tokens as u64 {
            let problem = format!(
                "has {n_tokens} entries, and `{name}` has {rows} rows: tokenizer and weights do not belong together"
            );
            return Err(bad("token list", problem));
        }
    }
    Ok(())
}

impl Tokenizer {
    /// The tokenizer of a model. Fails when the file has none, when it is of a kind that this
    /// build does not know (never with a guess instead), and when its data contradicts itself or the
    /// weights beside it.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TextError> {
        let data = TokenizerData::from_gguf(gguf)?;
        check_rows(gguf, data.tokens.len())?;
        Tokenizer::from_data(&data)
    }

    /// As [`Tokenizer::from_gguf`], from plain values.
    pub fn from_data(data: &TokenizerData<'_>) -> Result<Self, TextError> {
        check_model(data.model)?;
        check_lengths(data)?;
        let mut notes = Vec::new();
        let spm = data.model == "llama";
        let pre = pre_tokenizer(data, &mut notes)?;
        let writing = if data.model == "gpt2" { Writing::ByteCharacters } else { Writing::Blanks };
        let kinds = if data.kinds.is_empty() { guessed_kinds(&data.tokens, writing) } else { data.kinds.clone() };
        let mut vocabulary = Vocabulary::new(&data.tokens, kinds, writing)?;
        // Only SentencePiece files can leave these out; their numbers are fixed there.
        let usual = |id: u32| Some(id).filter(|id| spm && (*id as usize) < data.tokens.len());
        let bos = data.ids.bos.or_else(|| usual(1));
        let eos = data.ids.eos.or_else(|| usual(2));
        let unk = data.ids.unk.or_else(|| usual(0));
        let ids = &data.ids;
        let given = names::GivenEnds { eos, eot: ids.eot, eom: ids.eom, middle: &ids.middle };
        let named = names::find(&mut vocabulary, &given);
        let engine = if spm {
            Engine::Spm(Spm::new(&vocabulary, &data.scores, unk))
        } else {
            Engine::Bpe(Bpe::new(&vocabulary, &data.merges, pre, data.model == "gpt2")?)
        };
        let specials = specials(&vocabulary, data, &named);
        let add_bos = data.flags.add_bos.unwrap_or(bos.is_some() && (spm || pre.add_bos));
        let add_eos = data.flags.add_eos.unwrap_or(false);
        for (flag, id, key) in [(add_bos, bos, "bos"), (add_eos, eos, "eos")] {
            if flag && id.is_none() {
                return Err(bad(&format!("flag `add_{key}_token`"), "is set, but no such token is named".to_owned()));
            }
        }
        let inner = Inner {
            engine,
            specials,
            model: data.model.to_owned(),
            pre: data.pre.map(str::to_owned),
            bos,
            eos,
            unk,
            end_of_turn: named.end_of_turn,
            ends: named.ends,
            add_bos,
            add_eos,
            add_space_prefix: spm && data.flags.add_space_prefix.unwrap_or(true),
            notes,
            vocabulary,
        };
        Ok(Tokenizer { inner: Arc::new(inner) })
    }

    /// The ids of `text`.
    ///
    /// `add_special` puts the BOS and EOS tokens where the file wants them. `parse_special`
    /// recognises the texts of control tokens; without it they are text like any other, which is
    /// how text from outside has to be treated. User-defined tokens are recognised always.
    ///
    /// Time is proportional to n log n for n bytes, memory to n.
    pub fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Vec<u32> {
        let inner = &*self.inner;
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        if add_special && inner.add_bos {
            ids.extend(inner.bos);
        }
        // SentencePiece's blank goes before the first text and before text behind a special token.
        let mut prefix = inner.add_space_prefix;
        for fragment in inner.specials.split(text, parse_special) {
            match fragment {
                Fragment::Token(id) => {
                    ids.push(id);
                    prefix = inner.add_space_prefix;
                }
                Fragment::Text(text) => {
                    for part in parts(text) {
                        match &inner.engine {
                            Engine::Bpe(bpe) => bpe.encode(&inner.vocabulary, part, &mut ids),
                            Engine::Spm(spm) => spm.encode(&inner.vocabulary, part, prefix, &mut ids),
                        }
                        prefix = false;
                    }
                }
            }
        }
        if add_special && inner.add_eos {
            ids.extend(inner.eos);
        }
        ids
    }

    /// The ids of a rendered chat: special tokens parsed, and BOS put first only if the template
    /// has not already written it.
    pub fn encode_rendered(&self, rendered: &str) -> Vec<u32> {
        let mut ids = self.encode(rendered, false, true);
        if self.inner.add_bos && ids.first() != self.inner.bos.as_ref() {
            ids.splice(0..0, self.inner.bos);
        }
        ids
    }

    /// The text of `ids`. Control tokens are shown only if `special`. Bytes that are no UTF-8 and
    /// ids outside the vocabulary come out as U+FFFD. A blank that encoding put before the text is
    /// taken off.
    pub fn decode(&self, ids: &[u32], special: bool) -> String {
        let mut decoder = StreamDecoder::new(self.clone(), special, self.inner.add_space_prefix);
        let mut text: String = ids.iter().map(|id| decoder.push(*id)).collect();
        text.push_str(&decoder.finish());
        text
    }

    /// Decodes a text from its beginning, token by token, without control tokens.
    pub fn decoder(&self) -> StreamDecoder {
        StreamDecoder::new(self.clone(), false, self.inner.add_space_prefix)
    }

    /// Decodes what comes behind `prompt`. A blank at its beginning is text then, unless the
    /// prompt ends with a special token (or is empty), where encoding would have put it.
    pub fn decoder_after(&self, prompt: &[u32]) -> StreamDecoder {
        let at_start = prompt.last().is_none_or(|last| {
            matches!(self.token_kind(*last), Some(TokenKind::Control | TokenKind::UserDefined | TokenKind::Unknown))
        });
        StreamDecoder::new(self.clone(), false, self.inner.add_space_prefix && at_start)
    }

    /// The bytes that a token stands for, not always whole characters. For a control token its text.
    pub fn piece_bytes(&self, id: u32) -> Option<&[u8]> {
        self.inner.vocabulary.piece(id)
    }

    /// As [`Tokenizer::piece_bytes`], with nothing for control tokens unless `special`.
    fn shown_bytes(&self, id: u32, special: bool) -> Option<&[u8]> {
        let hidden = !special && matches!(self.token_kind(id)?, TokenKind::Control | TokenKind::Unknown);
        if hidden { Some(&[]) } else { self.piece_bytes(id) }
    }

    /// A token as the file writes it: `Ġthe`, `▁the`, `<0x0A>`.
    pub fn token_text(&self, id: u32) -> Option<&str> {
        self.inner.vocabulary.text(id)
    }

    pub fn token_kind(&self, id: u32) -> Option<TokenKind> {
        self.inner.vocabulary.kind(id)
    }

    /// The token with exactly this text, as the file writes it.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        self.inner.vocabulary.id_of(text)
    }

    pub fn vocab_len(&self) -> usize {
        self.inner.vocabulary.len()
    }

    /// Fails with the first id that is outside the vocabulary.
    pub fn check_ids(&self, ids: &[u32]) -> Result<(), TextError> {
        match ids.iter().find(|id| **id as usize >= self.vocab_len()) {
            Some(id) => Err(TextError::UnknownToken { id: *id, vocabulary: self.vocab_len() }),
            None => Ok(()),
        }
    }

    pub fn bos(&self) -> Option<u32> {
        self.inner.bos
    }

    pub fn eos(&self) -> Option<u32> {
        self.inner.eos
    }

    pub fn unk(&self) -> Option<u32> {
        self.inner.unk
    }

    /// The token that ends a turn of a chat, named by the file or found by its text.
    pub fn end_of_turn(&self) -> Option<u32> {
        self.inner.end_of_turn
    }

    /// Whether generation ends with this token.
    pub fn is_eog(&self, id: u32) -> bool {
        self.inner.ends.binary_search(&id).is_ok()
    }

    /// All ids that end generation, ascending.
    pub fn eog_ids(&self) -> &[u32] {
        &self.inner.ends
    }

    /// Whether `encode` puts a BOS token first when asked for special tokens.
    pub fn adds_bos(&self) -> bool {
        self.inner.add_bos
    }

    /// Whether `encode` puts an EOS token last when asked for special tokens.
    pub fn adds_eos(&self) -> bool {
        self.inner.add_eos
    }

    /// `tokenizer.ggml.model`.
    pub fn model(&self) -> &str {
        &self.inner.model
    }

    /// `tokenizer.ggml.pre`.
    pub fn pre(&self) -> Option<&str> {
        self.inner.pre.as_deref()
    }

    /// What a user should hear: assumptions made where the file is silent.
    pub fn notes(&self) -> &[String] {
        &self.inner.notes
    }

    /// Whether the vocabulary can spell every byte. Some lack a few control characters, which
    /// encoding then leaves out.
    pub fn spells_all_bytes(&self) -> bool {
        match &self.inner.engine {
            Engine::Bpe(bpe) => bpe.is_lossless(&self.inner.vocabulary),
            Engine::Spm(spm) => spm.is_lossless(&self.inner.vocabulary),
        }
    }
}

fn check_lengths(data: &TokenizerData<'_>) -> Result<(), TextError> {
    let tokens = data.tokens.len();
    if u32::try_from(tokens + data.merges.len() * 3).is_err() || tokens == 0 {
        return Err(bad("tokens", format!("are {tokens}")));
    }
    for (place, length) in [("scores", data.scores.len()), ("token types", data.kinds.len())] {
        if length != 0 && length < tokens {
            return Err(bad(place, format!("are {length} for {tokens} tokens")));
        }
    }
    if data.model == "llama" && data.scores.is_empty() {
        return Err(bad("scores", "are missing; without them no pair can be told to be better".to_owned()));
    }
    let ids = &data.ids;
    let named = [("bos", ids.bos), ("eos", ids.eos), ("eot", ids.eot), ("eom", ids.eom), ("unknown", ids.unk)];
    let middle = ids.middle.iter().map(|(name, id)| (*name, Some(*id)));
    for (name, id) in named.into_iter().chain(middle) {
        if let Some(id) = id
            && id as usize >= tokens
        {
            return Err(bad(&format!("id of `{name}`"), format!("is {id}, but there are {tokens} tokens")));
        }
    }
    Ok(())
}

/// How text is split before merging. SentencePiece models are not split; they get the lines.
fn pre_tokenizer(data: &TokenizerData<'_>, notes: &mut Vec<String>) -> Result<PreTokenizer, TextError> {
    if data.model != "gpt2" {
        return Ok(pretokenize::LINES);
    }
    let name = data.pre.unwrap_or_else(|| {
        notes.push(
            "the file does not name its pre-tokenizer; `default` is assumed, and answers are worse if that is wrong"
                .to_owned(),
        );
        "default"
    });
    PreTokenizer::named(name)
        .ok_or_else(|| TextError::UnsupportedPre { pre: name.to_owned(), known: PreTokenizer::known() })
}

/// Kinds for a file that gives none: all normal, but for the bytes of SentencePiece's writing.
fn guessed_kinds(tokens: &[&str], writing: Writing) -> Vec<TokenKind> {
    let kind = |text: &&str| match writing {
        Writing::Blanks if vocabulary::byte_of(text).is_some() => TokenKind::Byte,
        _ => TokenKind::Normal,
    };
    tokens.iter().map(kind).collect()
}

/// The tokens that are matched before the text is split.
fn specials(vocabulary: &Vocabulary, data: &TokenizerData<'_>, named: &names::Named) -> Specials {
    // Phi-3's special tokens take the white space behind them along, all but three. The file does
    // not say so anywhere.
    let name = data.name.to_ascii_lowercase();
    let phi3 = name.contains("phi-3") || name.contains("phi3");
    let special = |id: u32| {
        let kind = vocabulary.kind(id)?;
        let strips = phi3 && !matches!(vocabulary.text(id)?, "<unk>" | "<s>" | "<|endoftext|>");
        let on_request = match kind {
            TokenKind::Control | TokenKind::Unknown => true,
            TokenKind::UserDefined => named.on_request.contains(&id),
            _ => return None,
        };
        Some(Special { id, on_request, strip_left: false, strip_right: strips })
    };
    Specials::new((0..vocabulary.len() as u32).filter_map(special).collect(), vocabulary)
}

/// The text in parts of at most [`PART`] bytes.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut end = rest.len().min(PART);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (part, others) = rest.split_at(end);
        rest = others;
        (!part.is_empty()).then_some(part)
    })
}
