//! What a tokenizer is made of, as plain values: read from a GGUF's metadata, or made up by tests.

use super::error::TextError;
use super::names;
use super::vocabulary::{TokenKind, bad};
use crate::gguf::{Array, Gguf};

/// A tokenizer's data, not yet checked. Texts are borrowed from the file's mapping.
#[derive(Debug, Clone, Default)]
pub struct TokenizerData<'a> {
    /// `tokenizer.ggml.model`: `gpt2`, `llama`, `gemma4`.
    pub model: &'a str,
    /// `tokenizer.ggml.pre`.
    pub pre: Option<&'a str>,
    /// `general.name`; a few models' tokens behave in a way that nothing else in the file tells.
    pub name: &'a str,
    pub tokens: Vec<&'a str>,
    /// Empty, or one for each token.
    pub scores: Vec<f32>,
    /// Empty, or one for each token.
    pub kinds: Vec<TokenKind>,
    /// Pairs of symbols with a blank between, best first.
    pub merges: Vec<&'a str>,
    pub ids: SpecialIds,
    pub flags: Flags,
}

/// The ids that the file gives. `None` where it does not.
#[derive(Debug, Clone, Default)]
pub struct SpecialIds {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    /// End of turn.
    pub eot: Option<u32>,
    /// End of message.
    pub eom: Option<u32>,
    pub unk: Option<u32>,
    /// Those of filling in the middle, `fim_pre` and so on.
    pub middle: Vec<(&'static str, u32)>,
}

/// What the file says about text as a whole. `None` where it does not, and the model's kind decides.
///
/// `add_sep_token` is not among them: it belongs to pairs of texts, which only encoders take.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flags {
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
}

/// An id that means "none" in files written from a -1.
const NO_ID: u64 = u32::MAX as u64;

impl<'a> TokenizerData<'a> {
    /// Collects the keys. Fails for a key of another type, a text that is not UTF-8, and a file
    /// without a tokenizer.
    pub fn from_gguf(gguf: &'a Gguf) -> Result<Self, TextError> {
        let id = |name: &str| {
            let id = gguf.optional_u64(&format!("tokenizer.ggml.{name}_token_id"))?;
            let id = id.filter(|id| *id != NO_ID);
            id.map(|id| u32::try_from(id).map_err(|_| bad(&format!("id of {name}"), format!("is {id}")))).transpose()
        };
        let mut middle = Vec::new();
        for name in names::middle_keys() {
            middle.extend(id(name)?.map(|id| (name, id)));
        }
        // A file of another architecture may carry no vocabulary; say that before its keys are missed.
        let model = gguf.require_str("tokenizer.ggml.model")?;
        super::check_model(model)?;
        Ok(TokenizerData {
            model,
            pre: gguf.optional_str("tokenizer.ggml.pre")?,
            name: gguf.value("general.name").and_then(|value| value.as_str()).unwrap_or_default(),
            tokens: strings(gguf.require_array("tokenizer.ggml.tokens")?, "tokens")?,
            scores: match gguf.optional_array("tokenizer.ggml.scores")? {
                Some(array) => numbers(array, "scores", |index| array.f64_at(index).map(|score| score as f32))?,
                None => Vec::new(),
            },
            kinds: match gguf.optional_array("tokenizer.ggml.token_type")? {
                Some(array) => numbers(array, "token types", |index| array.i64_at(index).map(TokenKind::from_number))?,
                None => Vec::new(),
            },
            merges: if model == "llama" {
                Vec::new()
            } else {
                strings(gguf.require_array("tokenizer.ggml.merges")?, "merges")?
            },
            ids: SpecialIds {
                bos: id("bos")?,
                eos: id("eos")?,
                eot: id("eot")?,
                eom: id("eom")?,
                unk: id("unknown")?,
                middle,
            },
            flags: Flags {
                add_bos: gguf.optional_bool("tokenizer.ggml.add_bos_token")?,
                add_eos: gguf.optional_bool("tokenizer.ggml.add_eos_token")?,
                add_space_prefix: gguf.optional_bool("tokenizer.ggml.add_space_prefix")?,
            },
        })
    }
}

fn strings<'a>(array: &'a Array, place: &str) -> Result<Vec<&'a str>, TextError> {
    numbers(array, place, |index| array.str_at(index))
}

fn numbers<T>(array: &Array, place: &str, at: impl Fn(usize) -> Option<T>) -> Result<Vec<T>, TextError> {
    let element = array.element_type().name();
    let wrong = |index| bad(place, format!("hold entry {index} ({element}), which cannot be read as one"));
    (0..array.len()).map(|index| at(index).ok_or_else(|| wrong(index))).collect()
}
