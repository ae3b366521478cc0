//! `strata tokenize`: texts to token ids and back.

use crate::cli::TokenizeArgs;
use crate::outcome::Outcome;
use crate::{input, printer};
use serde_json::Value;
use strata_diag::catalogue::general::BAD_INPUT;
use strata_diag::catalogue::text::UNKNOWN_TOKEN;
use strata_diag::{Diagnostic, ExitStatus};
use strata_model::gguf::Gguf;
use strata_model::tokenizer::Tokenizer;

pub(crate) fn run(args: &TokenizeArgs) -> Outcome {
    let path = crate::model::find(Some(&args.model), args.prefix.as_deref())?;
    // Formats of tensors do not matter here.
    let gguf = Gguf::open_lenient(&path)?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let input = match &args.text {
        Some(text) => text.clone(),
        None => input::stdin()?,
    };
    match (args.json, args.decode) {
        (true, false) => {
            let texts = strings(&input)?;
            let ids: Vec<_> = texts.iter().map(|text| tokenizer.encode(text, args.special, args.special)).collect();
            printer::compact(&serde_json::json!(ids))?;
        }
        (true, true) => {
            let lists = id_lists(&input)?;
            let texts = lists.iter().map(|ids| decode(&tokenizer, ids, args.special)).collect::<Result<Vec<_>, _>>()?;
            printer::compact(&serde_json::json!(texts))?;
        }
        (false, false) => {
            let ids = tokenizer.encode(&input, args.special, args.special);
            let line = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            printer::data(&format!("{line}\n"))?;
        }
        (false, true) => {
            let ids =
                input.split_whitespace().map(|word| word.trim_matches(['[', ']', ','])).filter(|word| !word.is_empty());
            let ids = ids
                .flat_map(|word| word.split(','))
                .map(|word| {
                    word.parse::<u32>().map_err(|_| Diagnostic::new(BAD_INPUT, format!("`{word}` is no token id")))
                })
                .collect::<Result<Vec<_>, _>>()?;
            printer::data(&decode(&tokenizer, &ids, args.special)?)?;
        }
    }
    Ok(ExitStatus::Done)
}

fn decode(tokenizer: &Tokenizer, ids: &[u32], special: bool) -> Result<String, Diagnostic> {
    match ids.iter().find(|id| **id as usize >= tokenizer.vocab_len()) {
        Some(id) => Err(Diagnostic::new(UNKNOWN_TOKEN, format!("token {id} is outside the vocabulary"))
            .fact("vocabulary", tokenizer.vocab_len())),
        None => Ok(tokenizer.decode(ids, special)),
    }
}

fn strings(input: &str) -> Result<Vec<String>, Diagnostic> {
    let expected = "an array of strings";
    let items = array(&parse(input, expected)?, expected)?;
    items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(|| not(expected, item))).collect()
}

fn id_lists(input: &str) -> Result<Vec<Vec<u32>>, Diagnostic> {
    let expected = "an array of arrays of token ids";
    let id = |item: &Value| item.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| not(expected, item));
    let lists = array(&parse(input, expected)?, expected)?;
    lists.iter().map(|list| array(list, expected)?.iter().map(id).collect()).collect()
}

fn parse(input: &str, expected: &str) -> Result<Value, Diagnostic> {
    serde_json::from_str(input).map_err(|error| not(expected, &error))
}

fn array(value: &Value, expected: &str) -> Result<Vec<Value>, Diagnostic> {
    value.as_array().cloned().ok_or_else(|| not(expected, value))
}

fn not(expected: &str, found: &impl std::fmt::Display) -> Diagnostic {
    let found: String = found.to_string().chars().take(120).collect();
    Diagnostic::new(BAD_INPUT, format!("standard input is not {expected}"))
        .fact("found", found)
        .hint("for example: `echo '[\"Hello\"]' | strata tokenize MODEL --json`")
}
