//! Small vocabularies: what the real models do not show, and data that contradicts itself.

use crate::support::gguf;
use proptest::prelude::*;
use strata_diag::Diagnose;
use strata_model::TextError;
use strata_model::gguf::Gguf;
use strata_model::gguf::writer::{GgufWriter, Meta};
use strata_model::tokenizer::{Flags, TokenKind, Tokenizer, TokenizerData};

/// GPT-2's characters for the 256 bytes.
fn byte_texts() -> Vec<String> {
    let shown = |byte: &u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut moved = 0x100..;
    (0..256)
        .map(|byte| if shown(&byte) { byte } else { moved.next().unwrap() })
        .map(|code| char::from_u32(code).unwrap().to_string())
        .collect()
}

/// A byte-level BPE with a few merges and special tokens.
fn bpe(pre: &str, change: impl FnOnce(&mut TokenizerData<'_>)) -> Result<Tokenizer, TextError> {
    let bytes = byte_texts();
    let mut tokens: Vec<&str> = bytes.iter().map(String::as_str).collect();
    tokens.extend(["he", "ll", "hell", "hello", "Ġw", "<|endoftext|>", "<|im_end|>", "<user>", "Ġhello", "12"]);
    let mut kinds = vec![TokenKind::Normal; tokens.len()];
    kinds[261] = TokenKind::Control;
    kinds[263] = TokenKind::UserDefined;
    let merges = vec!["h e", "l l", "he ll", "hell o", "Ġ w", "1 2"];
    let mut data = TokenizerData { model: "gpt2", pre: Some(pre), tokens, kinds, merges, ..TokenizerData::default() };
    data.ids.eos = Some(261);
    change(&mut data);
    Tokenizer::from_data(&data)
}

/// A SentencePiece vocabulary with all bytes.
fn spm(add_space_prefix: Option<bool>, change: impl FnOnce(&mut TokenizerData<'_>)) -> Result<Tokenizer, TextError> {
    let bytes: Vec<String> = (0..256).map(|byte| format!("<0x{byte:02X}>")).collect();
    let mut tokens = vec!["<unk>", "<s>", "</s>"];
    let mut kinds = vec![TokenKind::Unknown, TokenKind::Control, TokenKind::Control];
    tokens.extend(bytes.iter().map(String::as_str));
    kinds.extend([TokenKind::Byte; 256]);
    let mut scores = vec![0.0; tokens.len()];
    for (text, score) in [("▁", -1.0), ("a", -2.0), ("b", -3.0), ("▁a", -4.0), ("ab", -3.5), ("▁▁", -5.0), ("é", -6.0)]
    {
        tokens.push(text);
        kinds.push(TokenKind::Normal);
        scores.push(score);
    }
    tokens.push("<tool>");
    kinds.push(TokenKind::UserDefined);
    scores.push(0.0);
    let flags = Flags { add_space_prefix, ..Flags::default() };
    let mut data = TokenizerData { model: "llama", tokens, kinds, scores, flags, ..TokenizerData::default() };
    change(&mut data);
    Tokenizer::from_data(&data)
}

fn texts(tokenizer: &Tokenizer, text: &str) -> Vec<String> {
    let ids = tokenizer.encode(text, false, true);
    ids.iter().map(|id| tokenizer.token_text(*id).unwrap().to_owned()).collect()
}

#[test]
fn merges_go_by_rank() {
    let tokenizer = bpe("gpt-2", |_| ()).unwrap();
    assert_eq!(texts(&tokenizer, "hello w12"), ["hello", "Ġw", "12"]);
    assert_eq!(texts(&tokenizer, "helo"), ["he", "l", "o"]);
    assert!(tokenizer.spells_all_bytes());
    // `Ġhello` is a token, but no merge leads to it, unless merges are not asked.
    assert_eq!(texts(&tokenizer, " hello"), ["Ġ", "hello"]);
    assert_eq!(texts(&bpe("llama-bpe", |_| ()).unwrap(), " hello"), ["Ġhello"]);
    assert_eq!(texts(&bpe("smollm", |_| ()).unwrap(), "12"), ["1", "2"]);
}

#[test]
fn control_tokens_are_text_unless_asked_for() {
    let tokenizer = bpe("gpt-2", |_| ()).unwrap();
    assert_eq!(tokenizer.encode("<|endoftext|>", false, true), [261]);
    let plain = tokenizer.encode("<|endoftext|>", false, false);
    assert!(!plain.contains(&261));
    assert_eq!(tokenizer.decode(&plain, false), "<|endoftext|>");
    // Known by its name, whatever the file says about its kind.
    assert_eq!(tokenizer.token_kind(262), Some(TokenKind::Control));
    assert!(tokenizer.is_eog(262) && tokenizer.is_eog(261) && !tokenizer.is_eog(263));
    assert_eq!(tokenizer.end_of_turn(), Some(262));
    // User-defined ones always match, and are seen when decoded.
    assert_eq!(tokenizer.encode("a<user>", false, false).last(), Some(&263));
    assert_eq!(tokenizer.decode(&[104, 263, 262], false), "h<user>");
    assert_eq!(tokenizer.decode(&[104, 263, 262], true), "h<user><|im_end|>");
}

#[test]
fn beginnings_and_ends_are_put_where_the_file_wants_them() {
    let tokenizer = bpe("gpt-2", |data| {
        data.ids.bos = Some(261);
        data.flags.add_bos = Some(true);
        data.flags.add_eos = Some(true);
    })
    .unwrap();
    assert_eq!(tokenizer.encode("", true, false), [261, 261]);
    assert_eq!(tokenizer.encode("h", true, false), [261, 104, 261]);
    assert_eq!(tokenizer.encode("h", false, false).len(), 1);
    // A template that wrote the BOS itself gets no second one.
    assert_eq!(tokenizer.encode_rendered("<|endoftext|>h").iter().filter(|id| **id == 261).count(), 1);
    assert_eq!(tokenizer.encode_rendered("h")[0], 261);
    let silent = bpe("llama-bpe", |data| data.ids.bos = Some(261)).unwrap();
    assert!(silent.adds_bos() && !silent.adds_eos());
    assert!(!bpe("llama-bpe", |_| ()).unwrap().adds_bos());
}

#[test]
fn sentencepiece_puts_a_blank_first_and_takes_it_off() {
    let with = spm(None, |_| ()).unwrap();
    assert_eq!(texts(&with, "ab"), ["▁", "ab"]);
    assert_eq!(texts(&with, "a"), ["▁a"]);
    assert_eq!(texts(&with, "<s>a<tool>b"), ["<s>", "▁a", "<tool>", "▁", "b"]);
    let ids = with.encode(" a", true, false);
    assert_eq!(ids[0], 1);
    assert_eq!(with.decode(&ids, false), " a");
    assert_eq!(with.encode("", true, false), [1]);
    let without = spm(Some(false), |_| ()).unwrap();
    assert_eq!(texts(&without, "a"), ["a"]);
    assert_eq!(without.decode(&without.encode(" a", true, false), false), " a");
    // Behind a prompt that ends in text, a blank is text.
    let a = with.token_id("▁a").unwrap();
    assert_eq!(with.decoder_after(&[a]).push(a), " a");
    assert_eq!(with.decoder_after(&[a, 1]).push(a), "a");
    assert_eq!(with.decoder_after(&[]).push(a), "a");
}

#[test]
fn characters_outside_the_vocabulary_are_spelled() {
    let tokenizer = spm(Some(false), |_| ()).unwrap();
    assert_eq!(texts(&tokenizer, "aß"), ["a", "<0xC3>", "<0x9F>"]);
    assert_eq!(texts(&tokenizer, "é\n"), ["é", "<0x0A>"]);
    let ids = tokenizer.encode("ß🍕", false, false);
    let mut decoder = tokenizer.decoder();
    let pieces: Vec<String> = ids.iter().map(|id| decoder.push(*id)).collect();
    assert_eq!(pieces, ["", "ß", "", "", "", "🍕"]);
    assert_eq!(decoder.finish(), "");
    // Cut short: one replacement for what was there.
    let mut decoder = tokenizer.decoder();
    assert_eq!(decoder.push(ids[0]) + &decoder.finish(), "\u{fffd}");
    // A byte that continues nothing is replaced at once, and text behind it is not lost.
    let mut decoder = tokenizer.decoder();
    assert_eq!(decoder.push(ids[1]), "\u{fffd}");
    assert_eq!(decoder.push(ids[0]), "");
    assert_eq!(decoder.push(tokenizer.token_id("a").unwrap()), "\u{fffd}a");
}

#[test]
fn ids_outside_the_vocabulary_are_told() {
    let tokenizer = spm(None, |_| ()).unwrap();
    let beyond = tokenizer.vocab_len() as u32;
    assert!(matches!(tokenizer.check_ids(&[0, beyond]), Err(TextError::UnknownToken { .. })));
    assert!(tokenizer.check_ids(&[0, beyond - 1]).is_ok());
    assert_eq!(tokenizer.decode(&[beyond, u32::MAX], true), "\u{fffd}\u{fffd}");
    assert_eq!(
        (tokenizer.token_text(beyond), tokenizer.piece_bytes(beyond), tokenizer.is_eog(beyond)),
        (None, None, false)
    );
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let error = bpe("brand-new", |_| ()).unwrap_err();
    assert_eq!((error.code().id, error.to_string().contains("`brand-new`")), ("S0201", true));
    assert!(error.facts().iter().any(|(name, value)| *name == "known" && value.contains("qwen35")));
    for model in ["bert", "t5", "rwkv", "none", "plamo2"] {
        let error = bpe("gpt-2", |data| data.model = model).unwrap_err();
        assert!(error.to_string().contains(model), "{error}");
        assert_eq!(error.code().id, "S0201");
    }
    // A file that names none is taken for the default, and that is said.
    let silent = bpe("", |data| data.pre = None).unwrap();
    assert_eq!(silent.notes().len(), 1);
}

/// Makes data wrong.
type Change = fn(&mut TokenizerData<'_>);

#[test]
fn contradictions_are_refused() {
    let wrong: [(&str, Change); 8] = [
        ("no tokens", |data| data.tokens.clear()),
        ("kinds too few", |data| data.kinds.truncate(5)),
        ("eos outside", |data| data.ids.eos = Some(100_000)),
        ("bos outside", |data| data.ids.bos = Some(u32::MAX)),
        ("bos wanted, none named", |data| data.flags.add_bos = Some(true)),
        ("merge of one", |data| data.merges.push("abc")),
        ("merge with nothing", |data| data.merges.push("abc ")),
        ("byte token of no byte", |data| data.kinds[0] = TokenKind::Byte),
    ];
    for (what, change) in wrong {
        let error = bpe("gpt-2", change).unwrap_err();
        assert_eq!(error.code().id, "S0202", "{what}: {error}");
    }
    let wrong: [Change; 2] = [|data| data.scores.clear(), |data| data.scores.truncate(3)];
    for change in wrong {
        assert_eq!(spm(None, change).unwrap_err().code().id, "S0202");
    }
}

#[test]
fn merges_may_pass_through_symbols_that_are_no_tokens() {
    let tokenizer = bpe("gpt-2", |data| {
        data.tokens.extend(["xyz"]);
        data.kinds.push(TokenKind::Normal);
        data.merges.extend(["x y", "xy z"]);
    })
    .unwrap();
    assert_eq!(texts(&tokenizer, "xyz"), ["xyz"]);
    // Left at a symbol that is none, it is spelled.
    assert_eq!(texts(&tokenizer, "xy"), ["x", "y"]);
}

#[test]
fn gemma4_merges_characters() {
    let tokens = vec!["<pad>", "<eos>", "<bos>", "▁", "a", "b", "▁a", "\n", "\n\n", "<0xC3>", "<0x9F>", "▁▁"];
    let mut kinds = vec![TokenKind::Normal; tokens.len()];
    kinds[..3].fill(TokenKind::Control);
    kinds[9..11].fill(TokenKind::Byte);
    let mut data =
        TokenizerData { model: "gemma4", tokens, kinds, merges: vec!["▁ a", "▁ ▁"], ..TokenizerData::default() };
    data.ids.bos = Some(2);
    let tokenizer = Tokenizer::from_data(&data).unwrap();
    assert_eq!(tokenizer.encode("b a\n\nß  ", true, true), [2, 5, 6, 8, 9, 10, 11]);
    assert_eq!(tokenizer.decode(&[2, 5, 6, 8, 9, 10, 11], false), "b a\n\nß  ");
}

#[test]
fn files_are_read_key_by_key() {
    let strs = |texts: &[&str]| Meta::Strs(texts.iter().map(|text| (*text).to_owned()).collect());
    let whole = [
        ("tokenizer.ggml.model", Meta::from("gpt2")),
        ("tokenizer.ggml.pre", Meta::from("qwen2")),
        ("tokenizer.ggml.tokens", strs(&["a", "b", "ab", "<|im_end|>"])),
        ("tokenizer.ggml.token_type", Meta::I32s(vec![1, 1, 1, 3])),
        ("tokenizer.ggml.merges", strs(&["a b"])),
        ("tokenizer.ggml.eos_token_id", Meta::U32(3)),
        ("tokenizer.ggml.padding_token_id", Meta::U32(u32::MAX)),
    ];
    let tokenizer = Tokenizer::from_gguf(&gguf(&whole)).unwrap();
    assert_eq!(tokenizer.encode("aba<|im_end|>", true, true), [2, 0, 3]);
    assert_eq!((tokenizer.pre(), tokenizer.model(), tokenizer.vocab_len()), (Some("qwen2"), "gpt2", 4));
    for (missing, id) in [("model", "S0105"), ("tokens", "S0105"), ("merges", "S0105")] {
        let key = format!("tokenizer.ggml.{missing}");
        let rest: Vec<_> = whole.iter().filter(|(name, _)| *name != key).cloned().collect();
        let error = Tokenizer::from_gguf(&gguf(&rest)).unwrap_err();
        assert!(error.to_string().contains(&key), "{error}, {id}");
    }
    for (key, value) in [
        ("tokenizer.ggml.tokens", Meta::U32s(vec![1, 2])),
        ("tokenizer.ggml.tokens", Meta::U32(1)),
        ("tokenizer.ggml.model", Meta::U32(1)),
        ("tokenizer.ggml.token_type", strs(&["a"])),
        ("tokenizer.ggml.token_type", Meta::I32s(vec![1])),
        ("tokenizer.ggml.eos_token_id", Meta::U32(4)),
        ("tokenizer.ggml.eos_token_id", Meta::from("x")),
    ] {
        let mut changed: Vec<_> = whole.iter().filter(|(name, _)| *name != key).cloned().collect();
        changed.push((key, value));
        assert!(Tokenizer::from_gguf(&gguf(&changed)).is_err(), "{key}");
    }
}

/// A token without a row cannot be read, a row without a token cannot be written, and with either nobody
/// knows which ids the weights were made for.
#[test]
fn tokens_and_rows_of_the_weights_are_as_many() {
    let open = |tensors: &[(&str, u64)]| {
        let mut writer = GgufWriter::new("llama");
        writer.set("tokenizer.ggml.model", "gpt2").set("tokenizer.ggml.pre", "qwen2");
        writer.set("tokenizer.ggml.tokens", Meta::Strs(["a", "b", "ab"].map(str::to_owned).to_vec()));
        writer.set("tokenizer.ggml.merges", Meta::Strs(vec!["a b".to_owned()]));
        for (name, rows) in tensors {
            writer.tensor_f32(name, &[2, *rows], &vec![0.0; 2 * *rows as usize]);
        }
        Tokenizer::from_gguf(&Gguf::from_bytes("made-up", writer.to_bytes()).unwrap())
    };
    for fitting in [&[][..], &[("token_embd.weight", 3)], &[("token_embd.weight", 3), ("output.weight", 3)]] {
        assert!(open(fitting).is_ok(), "{fitting:?}");
    }
    for (name, rows) in [("token_embd.weight", 2), ("token_embd.weight", 4), ("output.weight", 2), ("output.weight", 4)]
    {
        let error = open(&[(name, rows)]).unwrap_err();
        assert_eq!(error.code().id, "S0202");
        let said = error.to_string();
        assert!(said.contains("3 entries") && said.contains(&format!("`{name}` has {rows} rows")), "{said}");
    }
}

#[test]
fn phi3_tokens_take_white_space_along() {
    let build = |name: &'static str| {
        spm(Some(false), |data| {
            data.name = name;
            data.tokens.push("<|end|>");
            data.kinds.push(TokenKind::Control);
            data.scores.push(0.0);
        })
        .unwrap()
    };
    assert_eq!(texts(&build("Phi-3 mini"), "<|end|>\n a"), ["<|end|>", "a"]);
    assert_eq!(texts(&build("Other"), "<|end|>\n a"), ["<|end|>", "<0x0A>", "▁a"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_is_encoded_comes_back(text in any::<String>(), parse in any::<bool>()) {
        let bpe = bpe("qwen35", |_| ()).unwrap();
        prop_assert_eq!(bpe.decode(&bpe.encode(&text, false, parse), true), text.as_str());
        let text = text.replace('▁', "_");
        for prefix in [false, true] {
            let spm = spm(Some(prefix), |_| ()).unwrap();
            prop_assert_eq!(spm.decode(&spm.encode(&text, false, false), true), text.as_str());
        }
    }

    /// Any ids: no panic, and the stream gives what decoding all at once gives.
    #[test]
    fn streams_equal_the_whole(ids in proptest::collection::vec(0u32..280, 0..40), special in any::<bool>()) {
        for tokenizer in [spm(None, |_| ()).unwrap(), bpe("gpt-2", |_| ()).unwrap()] {
            let known: Vec<u8> = ids.iter().filter(|id| (**id as usize) < tokenizer.vocab_len())
                .filter(|id| special || !matches!(tokenizer.token_kind(**id), Some(TokenKind::Control | TokenKind::Unknown)))
                .flat_map(|id| tokenizer.piece_bytes(*id).unwrap().to_vec()).collect();
            if ids.iter().all(|id| (*id as usize) < tokenizer.vocab_len()) {
                let whole = String::from_utf8_lossy(&known).into_owned();
                let decoded = tokenizer.decode(&ids, special);
                prop_assert!(decoded == whole || whole.strip_prefix(' ') == Some(decoded.as_str()));
            }
        }
    }
}
