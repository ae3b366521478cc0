//! What can be wrong with a model's tokenizer or chat template, and what a template can refuse.

use crate::ModelError;
use strata_diag::catalogue::text;
use strata_diag::{Code, Diagnose};

/// Text that cannot be turned into tokens, or messages that cannot be turned into text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The file itself is at fault: a key is absent or of another type.
    #[error(transparent)]
    Model(#[from] ModelError),

    /// `tokenizer.ggml.model` names a kind of tokenizer that is not built in.
    #[error("the tokenizer model `{model}` is not one that this build knows")]
    UnsupportedModel { model: String, known: String },

    /// `tokenizer.ggml.pre` names a way of splitting text that is not built in.
    #[error("the pre-tokenizer `{pre}` is not one that this build knows")]
    UnsupportedPre { pre: String, known: String },

    /// The tokenizer's lists and ids do not fit together.
    #[error("the tokenizer's {place} {problem}")]
    BadTokenizer {
        /// `tokens`, `key `tokenizer.ggml.bos_token_id``.
        place: String,
        /// A predicate with the numbers: `has 3 entries for 5 tokens`.
        problem: String,
    },

    #[error("token id {id} is outside the vocabulary of {vocabulary} tokens")]
    UnknownToken { id: u32, vocabulary: usize },

    #[error("the model has no chat template{}", name.as_ref().map(|name| format!(" named `{name}`")).unwrap_or_default())]
    NoChatTemplate {
        /// The variant that was asked for, if one was.
        name: Option<String>,
        /// The variants that the model has.
        present: Vec<String>,
    },

    #[error("the chat template fails{}: {problem}", line.map(|line| format!(" at line {line}")).unwrap_or_default())]
    BadChatTemplate { line: Option<usize>, problem: String },

    /// The template called `raise_exception`: it does not take these messages.
    #[error("the chat template refuses these messages: {text}")]
    TemplateRefused { text: String },
}

impl Diagnose for TextError {
    fn code(&self) -> &'static Code {
        match self {
            TextError::Model(error) => error.code(),
            TextError::UnsupportedModel { .. } | TextError::UnsupportedPre { .. } => text::UNSUPPORTED_TOKENIZER,
            TextError::BadTokenizer { .. } => text::BAD_TOKENIZER,
            TextError::UnknownToken { .. } => text::UNKNOWN_TOKEN,
            TextError::NoChatTemplate { .. } => text::NO_CHAT_TEMPLATE,
            TextError::BadChatTemplate { .. } => text::BAD_CHAT_TEMPLATE,
            TextError::TemplateRefused { .. } => text::TEMPLATE_REFUSED,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        match self {
            TextError::Model(error) => error.facts(),
            TextError::UnsupportedModel { model, known } => {
                vec![("tokenizer.ggml.model", model.clone()), ("known", known.clone())]
            }
            TextError::UnsupportedPre { pre, known } => {
                vec![("tokenizer.ggml.pre", pre.clone()), ("known", known.clone())]
            }
            TextError::BadTokenizer { place, problem } => {
                vec![("place", place.clone()), ("problem", problem.clone())]
            }
            TextError::UnknownToken { id, vocabulary } => {
                vec![("id", id.to_string()), ("vocabulary", vocabulary.to_string())]
            }
            TextError::NoChatTemplate { name, present } => {
                let mut facts: Vec<_> = name.iter().map(|name| ("asked for", name.clone())).collect();
                if !present.is_empty() {
                    facts.push(("present", present.join(", ")));
                }
                facts
            }
            TextError::BadChatTemplate { line, problem } => {
                let mut facts: Vec<_> = line.iter().map(|line| ("line", line.to_string())).collect();
                facts.push(("problem", problem.clone()));
                facts
            }
            TextError::TemplateRefused { text } => vec![("template says", text.clone())],
        }
    }

    fn hints(&self) -> Vec<String> {
        let hint = match self {
            TextError::Model(error) => return error.hints(),
            TextError::UnsupportedModel { .. } => {
                "choose a model with a byte-level BPE or SentencePiece BPE tokenizer; `strata inspect FILE` shows it"
            }
            TextError::UnsupportedPre { .. } => {
                "a newer build may know it; splitting its text in another way would give wrong tokens"
            }
            TextError::BadTokenizer { .. } => {
                "the file is damaged or was converted wrongly: fetch it again, or another conversion of this model"
            }
            TextError::NoChatTemplate { name: None, .. } => {
                "it is probably a base model: give it text to continue with `--raw`"
            }
            TextError::BadChatTemplate { .. } => "pass the prompt without a template with `--raw`",
            TextError::NoChatTemplate { .. } | TextError::UnknownToken { .. } | TextError::TemplateRefused { .. } => {
                return Vec::new();
            }
        };
        vec![hint.to_owned()]
    }
}
