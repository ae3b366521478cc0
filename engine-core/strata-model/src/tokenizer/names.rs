//! What special tokens are called in the models that people use. GGUF files carry ids for the
//! beginning and the end of a text and for little else, so the ends of turns are found by name.

use super::vocabulary::{TokenKind, Vocabulary};

/// Each of these ends an answer. Same list as llama.cpp's, so that the same file stops alike.
const ENDS: &[&str] = &[
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "</s>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<｜end▁of▁sentence｜>",
];

/// Of those, the ones that end a turn rather than a text, most telling first.
const TURN_ENDS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end|>",
    "<end_of_utterance>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<｜end▁of▁sentence｜>",
];

/// Tokens of filling in the middle, for which the file has a key each: key, names, and whether
/// such a token ends an answer (padding, the next file, the next repository).
#[rustfmt::skip]
const MIDDLE: &[(&str, &[&str], bool)] = &[
    ("fim_pre", &["<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"], false),
    ("fim_suf", &["<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>"], false),
    ("fim_mid", &["<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>"], false),
    ("fim_pad", &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"], true),
    ("fim_rep", &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"], true),
    ("fim_sep", &["<|file_sep|>"], true),
];

/// gpt-oss writes its channels with these; whoever reads the answer has to see them.
const VISIBLE: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// What the names say, with the file's own ids already known.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// Ids that end an answer, sorted.
    pub ends: Vec<u32>,
    /// The id that ends a turn.
    pub end_of_turn: Option<u32>,
    /// Tokens that a user's text matches only on request, though they decode to visible text.
    pub on_request: Vec<u32>,
}

/// The ids that the file gives, as far as they end an answer.
#[derive(Debug, Default)]
pub(super) struct GivenEnds<'a> {
    pub eos: Option<u32>,
    pub eot: Option<u32>,
    pub eom: Option<u32>,
    /// `fim_pad` and so on, as far as the file has the key.
    pub middle: &'a [(&'static str, u32)],
}

/// The keys of [`GivenEnds::middle`].
pub(super) fn middle_keys() -> impl Iterator<Item = &'static str> {
    MIDDLE.iter().map(|(key, ..)| *key)
}

/// Finds the named tokens and puts right what the file says about their kinds.
pub(super) fn find(vocabulary: &mut Vocabulary, given: &GivenEnds<'_>) -> Named {
    let mut named = Named::default();
    let mut ends: Vec<u32> = given.eos.into_iter().chain(given.eot).chain(given.eom).collect();
    for (key, names, ending) in MIDDLE {
        let from_file = given.middle.iter().find(|(name, _)| name == key).map(|(_, id)| *id);
        let by_name = || names.iter().find_map(|name| vocabulary.id_of(name));
        let id = from_file.or_else(by_name);
        if from_file.is_none()
            && let Some(id) = id
        {
            vocabulary.set_kind(id, TokenKind::Control);
        }
        ends.extend(id.filter(|_| *ending));
    }
    // A model with tool responses has `</s>` as ordinary text (HTML's strike-through).
    let plain_s = vocabulary.id_of("<|tool_response>").is_some() || vocabulary.id_of("<|plamo:eos|>").is_some();
    for name in ENDS {
        let Some(id) = vocabulary.id_of(name) else { continue };
        if *name == "</s>" && plain_s && given.eos != Some(id) {
            continue;
        }
        // Gemma 3 has it as user-defined text among other HTML. It must not end an answer there;
        // llama.cpp does let it, and matches it on request only, which is followed so that token
        // ids agree.
        if *name == "</s>" && vocabulary.kind(id) == Some(TokenKind::UserDefined) && given.eos != Some(id) {
            named.on_request.push(id);
            continue;
        }
        vocabulary.set_kind(id, TokenKind::Control);
        ends.push(id);
    }
    for name in VISIBLE {
        if let Some(id) = vocabulary.id_of(name) {
            vocabulary.set_kind(id, TokenKind::UserDefined);
        }
    }
    // In Harmony and its like `<|end|>` only closes a message; the answer goes on behind it.
    let has = |name: &str| vocabulary.id_of(name).is_some();
    if let Some(id) = vocabulary.id_of("<|end|>")
        && ((has("<|return|>") && (has("<|call|>") || has("<|calls|>")))
            || (has("<|flush|>") && (has("<|call|>") || has("<|calls|>"))))
    {
        ends.retain(|end| *end != id);
        vocabulary.set_kind(id, TokenKind::UserDefined);
    }
    ends.sort_unstable();
    ends.dedup();
    let turn_end = || TURN_ENDS.iter().filter_map(|name| vocabulary.id_of(name)).find(|id| ends.contains(id));
    named.end_of_turn = given.eot.or_else(turn_end);
    named.ends = ends;
    named
}
