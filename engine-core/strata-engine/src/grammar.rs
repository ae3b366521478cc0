//! Answers within a rule: a JSON schema, a regular expression or a grammar says before each token
//! which ones may come. The rule comes from whoever asks, the vocabulary out of a model file, so both
//! are bounded before the library that knows grammars sees them.
//!
//! It chooses no token: a [`Constraint`] masks the logits that the sampler chooses from.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};
use strata_model::tokenizer::{TokenKind, Tokenizer};

use crate::batch::Constraint;
use crate::error::EngineError;

/// A longer token is not offered to a rule: the library's tree of tokens is that deep at most.
const LONGEST_TOKEN: usize = 512;
/// Bytes of all tokens together, likewise a limit of that tree.
const MOST_TOKEN_BYTES: usize = (1 << 22) - 1;
/// Bytes of a rule's text.
const MOST_RULE_BYTES: usize = 1 << 20;
/// Brackets within brackets: a rule is read by functions that call themselves.
const DEEPEST_RULE: usize = 100;
/// Blanks between the parts of a JSON text: some for people, no endless row of them.
const JSON_BLANKS: &str = r"[ \t\n\r]{0,40}";
/// Longest explanation that is passed on.
const LONGEST_WHY: usize = 500;

/// What an answer must be.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// Any JSON object.
    JsonObject,
    /// JSON that this schema describes. A keyword that cannot be kept to is refused, not passed over.
    JsonSchema(Value),
    /// Text that this regular expression matches as a whole.
    Regex(String),
    /// Text of a context-free grammar in Lark's notation, from its rule `start` on.
    Grammar(String),
}

/// A model's vocabulary in the form that rules are checked against. Made once a model, since it
/// takes about a second for a large vocabulary.
pub struct Grammars {
    factory: ParserFactory,
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammars").finish_non_exhaustive()
    }
}

impl Grammars {
    /// Fails for a vocabulary without a token that ends an answer, and for one that is too large.
    pub fn new(tokenizer: &Tokenizer) -> Result<Grammars, EngineError> {
        let vocabulary = tokenizer.vocab_len() as u32;
        let ends: Vec<u32> = tokenizer.eog_ids().iter().copied().filter(|id| *id < vocabulary).collect();
        let first = *ends.first().ok_or_else(|| refused("the model names no token that ends an answer"))?;
        let words = words(tokenizer);
        let bytes: usize = words.iter().map(Vec::len).sum();
        if bytes > MOST_TOKEN_BYTES {
            return Err(refused(&format!("the model's tokens have {bytes} bytes; {MOST_TOKEN_BYTES} can be handled")));
        }
        let made = guarded(|| {
            let trie = TokTrie::from(&TokRxInfo::new(vocabulary, first), &words).with_eos_tokens(&ends);
            let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
            ParserFactory::new_simple(&env)
        })?;
        let mut factory = made.map_err(|error| refused(&error.to_string()))?;
        factory.quiet().limits_mut().verbose_errors = false;
        Ok(Grammars { factory })
    }

    /// A rule for one answer. Fails when the rule has a mistake, asks for something that cannot be
    /// checked while text is made, or is too large.
    pub fn constraint(&self, rule: &Rule) -> Result<Box<dyn Constraint>, EngineError> {
        let grammar = grammar(rule)?;
        let parser = guarded(|| self.factory.create_parser(grammar))?;
        let mut matcher = Matcher::new(parser);
        if let Some(why) = matcher.get_error() {
            return Err(refused(&why));
        }
        // What would be passed over in silence.
        if let Some(why) = matcher.grammar_warnings().first() {
            return Err(refused(why));
        }
        Ok(Box::new(Within { matcher }))
    }
}

/// The bytes of each token: nothing for those that no text may become. Of tokens with the same
/// bytes only one is offered, an ordinary one rather than a single byte's.
fn words(tokenizer: &Tokenizer) -> Vec<Vec<u8>> {
    let mut words = vec![Vec::new(); tokenizer.vocab_len()];
    let mut seen = std::collections::HashSet::new();
    let is_byte = |id: &u32| tokenizer.token_kind(*id) == Some(TokenKind::Byte);
    let ids = 0..tokenizer.vocab_len() as u32;
    for id in ids.clone().filter(|id| !is_byte(id)).chain(ids.filter(is_byte)) {
        let Some(bytes) = tokenizer.piece_bytes(id) else { continue };
        let word = match tokenizer.token_kind(id) {
            // Marked, so that a grammar can name it and no text spells it.
            Some(TokenKind::Control) => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
            Some(TokenKind::Normal | TokenKind::UserDefined | TokenKind::Byte)
                if bytes.first() != Some(&TokTrie::SPECIAL_TOKEN_MARKER) =>
            {
                bytes.to_vec()
            }
            _ => continue,
        };
        if word.len() <= LONGEST_TOKEN && seen.insert(word.clone()) {
            words[id as usize] = word;
        }
    }
    words
}

fn grammar(rule: &Rule) -> Result<TopLevelGrammar, EngineError> {
    let schema = |schema: &Value| {
        bounded(&schema.to_string())?;
        let options = json!({ "whitespace_pattern": JSON_BLANKS });
        // Options belong to this program, not to whoever sends a schema.
        let schema = match schema {
            Value::Object(fields) => {
                let mut fields = fields.clone();
                fields.insert("x-guidance".to_owned(), options);
                Value::Object(fields)
            }
            Value::Bool(true) => json!({ "x-guidance": options }),
            other => return Err(refused(&format!("a schema is an object, this is {other}"))),
        };
        Ok(TopLevelGrammar::from_json_schema(schema))
    };
    match rule {
        Rule::JsonObject => schema(&json!({ "type": "object" })),
        Rule::JsonSchema(value) => schema(value),
        Rule::Regex(text) => bounded(text).map(|()| TopLevelGrammar::from_regex(text)),
        Rule::Grammar(text) => bounded(text).map(|()| TopLevelGrammar::from_lark(text.clone())),
    }
}

/// Refuses a rule that would take all memory or all of the stack to read.
fn bounded(text: &str) -> Result<(), EngineError> {
    if text.len() > MOST_RULE_BYTES {
        return Err(refused(&format!("the rule has {} bytes; at most {MOST_RULE_BYTES} are read", text.len())));
    }
    let mut depth = 0usize;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST_RULE {
            return Err(refused(&format!("the rule has more than {DEEPEST_RULE} brackets within each other")));
        }
    }
    Ok(())
}

/// The library says with a panic what it did not foresee; that is the end of one request.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| refused("it could not be read"))
}

fn refused(why: &str) -> EngineError {
    EngineError::Constraint { why: short(why) }
}

/// One line, not too long: reasons quote what they were given.
fn short(why: &str) -> String {
    why.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LONGEST_WHY).collect()
}

struct Within {
    matcher: Matcher,
}

impl Constraint for Within {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), String> {
        let allowed = self.matcher.compute_mask_or_eos().map_err(|error| short(&error.to_string()))?;
        let mut any = false;
        for (token, logit) in logits.iter_mut().enumerate() {
            // Models may have more logits than their vocabulary has tokens.
            if token < allowed.len() && allowed.get(token) {
                any = true;
            } else {
                *logit = f32::NEG_INFINITY;
            }
        }
        if any { Ok(()) } else { Err("no token of the model's vocabulary may come next".to_owned()) }
    }

    fn accept(&mut self, token: u32) -> Result<ControlFlow<()>, String> {
        self.matcher.consume_token(token).map_err(|error| short(&error.to_string()))?;
        Ok(if self.matcher.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}
