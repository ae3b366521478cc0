//! Any text, through a small vocabulary of each kind. It must come back from its ids, the stream
//! must give the same as the whole, and any ids must decode.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;
use strata_model::tokenizer::{Flags, StopMatcher, TokenKind, Tokenizer, TokenizerData};

const PRES: &[&str] = &[
    "gpt-2",
    "smollm",
    "llama-bpe",
    "qwen2",
    "qwen35",
    "tekken",
    "gpt-4o",
    "default",
    "falcon",
    "deepseek-v3",
    "deepseek-coder",
    "laguna",
    "minicpm5",
    "seed-coder",
];

/// Byte-level BPE: all bytes, words that merge, tokens of all kinds that are matched whole.
fn bpe(pre: &str) -> Tokenizer {
    let shown = |byte: &u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut moved = 0x100..;
    let bytes: Vec<String> = (0..256)
        .map(|byte| if shown(&byte) { byte } else { moved.next().unwrap() })
        .map(|code| char::from_u32(code).unwrap().to_string())
        .collect();
    let mut tokens: Vec<&str> = bytes.iter().map(String::as_str).collect();
    tokens.extend(["he", "ll", "hell", "Ġa", "aa", "aaaa", "ĠĠ", "ĊĊ", "12", "Ã©", "'s"]);
    let mut kinds = vec![TokenKind::Normal; tokens.len()];
    for (text, kind) in [
        ("<|im_end|>", TokenKind::Control),
        ("<|im_end|><", TokenKind::Control),
        ("<a>", TokenKind::UserDefined),
        (">a", TokenKind::UserDefined),
        ("\n\n\n", TokenKind::UserDefined),
    ] {
        tokens.push(text);
        kinds.push(kind);
    }
    let merges = vec!["h e", "l l", "he ll", "Ġ a", "a a", "aa aa", "Ġ Ġ", "Ċ Ċ", "1 2", "Ã ©", "' s"];
    let data = TokenizerData { model: "gpt2", pre: Some(pre), tokens, kinds, merges, ..TokenizerData::default() };
    Tokenizer::from_data(&data).unwrap()
}

/// SentencePiece: all bytes, some of them in longer tokens.
fn spm(prefix: bool) -> Tokenizer {
    let bytes: Vec<String> = (0..256).map(|byte| format!("<0x{byte:02X}>")).collect();
    let mut tokens = vec!["<unk>", "<s>", "</s>"];
    let mut kinds = vec![TokenKind::Unknown, TokenKind::Control, TokenKind::Control];
    tokens.extend(bytes.iter().map(String::as_str));
    kinds.extend([TokenKind::Byte; 256]);
    let mut scores = vec![0.0; tokens.len()];
    for (text, score) in
        [("▁", -1.0), ("a", -2.0), ("▁a", -4.0), ("aa", -3.0), ("aaa", -3.0), ("▁▁", -5.0), ("é", -6.0), ("éa", -0.5)]
    {
        tokens.push(text);
        kinds.push(TokenKind::Normal);
        scores.push(score);
    }
    tokens.push("\n\n");
    kinds.push(TokenKind::UserDefined);
    scores.push(0.0);
    let flags = Flags { add_space_prefix: Some(prefix), ..Flags::default() };
    Tokenizer::from_data(&TokenizerData { model: "llama", tokens, kinds, scores, flags, ..TokenizerData::default() })
        .unwrap()
}

fn all() -> &'static [Tokenizer] {
    static ALL: OnceLock<Vec<Tokenizer>> = OnceLock::new();
    ALL.get_or_init(|| PRES.iter().map(|pre| bpe(pre)).chain([spm(false), spm(true)]).collect())
}

fn check(tokenizer: &Tokenizer, text: &str) {
    let spm = tokenizer.model() == "llama";
    for parse_special in [false, true] {
        let ids = tokenizer.encode(text, false, parse_special);
        tokenizer.check_ids(&ids).unwrap();
        let back = tokenizer.decode(&ids, true);
        // U+2581 is how SentencePiece writes a blank, and a blank stands behind each special token.
        if !spm || (!parse_special && !text.contains('\u{2581}') && !text.contains("\n\n")) {
            assert_eq!(back, text);
        }
        let mut decoder = tokenizer.decoder();
        let mut streamed: String = ids.iter().map(|id| decoder.push(*id)).collect();
        streamed += &decoder.finish();
        assert_eq!(streamed, tokenizer.decode(&ids, false));
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let tokenizer = &all()[*choice as usize % all().len()];
    // The same bytes as ids, whatever they mean.
    let ids: Vec<u32> =
        rest.chunks(2).map(|pair| pair.iter().fold(0, |id, byte| id << 8 | u32::from(*byte)) % 300).collect();
    let mut decoder = tokenizer.decoder_after(&ids[..ids.len() / 2]);
    ids.iter().for_each(|id| drop(decoder.push(*id)));
    assert!(decoder.finish().chars().all(|character| character == '\u{fffd}'));
    let text = String::from_utf8_lossy(rest);
    check(tokenizer, &text);
    // A stop string cut out of the text itself is found at its first place, however it is pushed.
    let characters: Vec<char> = text.chars().collect();
    let start = *choice as usize % (characters.len() + 1);
    let stop: String = characters[start..].iter().take(3).collect();
    if !stop.is_empty() {
        let mut matcher = StopMatcher::new([stop.as_str()]);
        let shown: String =
            characters.iter().map(|character| matcher.push(character.encode_utf8(&mut [0; 4])).text).collect();
        assert_eq!(Some(shown.len()), text.find(&stop));
    }
});
