//! Reference files for `eval`: the greatest logits and the log-sum-exp of exact arithmetic at every
//! position of some token lists. Untrusted input, read without trusting any count in it.

use serde_json::Value;

use crate::error::EngineError;

/// A reference file.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// SHA-256 of the model that all cases are for, when the file is about one model.
    pub model_sha256: Option<String>,
    pub cases: Vec<ReferenceCase>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReferenceCase {
    /// Cases of files about several models have names.
    pub name: Option<String>,
    /// SHA-256 of this case's own model.
    pub model_sha256: Option<String>,
    pub tokens: Vec<u32>,
    /// `positions[i]` is what is predicted after `tokens[..=i]`.
    pub positions: Vec<ReferencePosition>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReferencePosition {
    /// Over the whole vocabulary.
    pub log_sum_exp: f64,
    /// Tokens with the greatest logits, greatest first.
    pub top: Vec<(u32, f64)>,
}

impl Reference {
    /// Reads `exact-*.json` and `synthetic-exact.json` documents.
    pub fn parse(text: &str) -> Result<Reference, EngineError> {
        let document: Value = serde_json::from_str(text).map_err(|error| bad(format!("no JSON: {error}")))?;
        let shared_tokens = match document.get("tokens") {
            Some(tokens) => Some(read_tokens(tokens, "tokens")?),
            None => None,
        };
        let cases = document.get("cases").and_then(Value::as_array).ok_or_else(|| bad("'cases' is no list"))?;
        if cases.is_empty() {
            return Err(bad("'cases' is empty"));
        }
        let cases = cases
            .iter()
            .enumerate()
            .map(|(number, case)| read_case(case, &format!("cases[{number}]"), shared_tokens.as_deref()))
            .collect::<Result<_, _>>()?;
        Ok(Reference { model_sha256: text_of(&document, "gguf_sha256"), cases })
    }

    /// The cases that are about the model with this SHA-256, or all when the file names no model.
    pub fn cases_for(&self, sha256: &str) -> Vec<&ReferenceCase> {
        let is_meant = |case: &&ReferenceCase| {
            let expected = case.model_sha256.as_ref().or(self.model_sha256.as_ref());
            expected.is_none_or(|expected| expected.eq_ignore_ascii_case(sha256))
        };
        self.cases.iter().filter(is_meant).collect()
    }
}

fn bad(what: impl Into<String>) -> EngineError {
    EngineError::BadReference { what: what.into() }
}

fn text_of(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn read_tokens(value: &Value, place: &str) -> Result<Vec<u32>, EngineError> {
    let list = value.as_array().ok_or_else(|| bad(format!("'{place}' is no list")))?;
    list.iter().map(|token| read_token(token, place)).collect()
}

fn read_token(value: &Value, place: &str) -> Result<u32, EngineError> {
    let token = value.as_u64().and_then(|token| u32::try_from(token).ok());
    token.ok_or_else(|| bad(format!("'{place}' holds {value}, which is no token id")))
}

fn read_number(value: &Value, place: &str) -> Result<f64, EngineError> {
    let number = value.as_f64().filter(|number| number.is_finite());
    number.ok_or_else(|| bad(format!("'{place}' holds {value}, which is no finite number")))
}

fn read_case(case: &Value, place: &str, shared: Option<&[u32]>) -> Result<ReferenceCase, EngineError> {
    let tokens = match (case.get("tokens"), shared) {
        (Some(tokens), _) => read_tokens(tokens, &format!("{place}.tokens"))?,
        (None, Some(shared)) => shared.to_vec(),
        (None, None) => return Err(bad(format!("'{place}' has no tokens"))),
    };
    let positions = case.get("positions").and_then(Value::as_array);
    let positions = positions.ok_or_else(|| bad(format!("'{place}.positions' is no list")))?;
    if positions.is_empty() || positions.len() > tokens.len() {
        return Err(bad(format!("'{place}' has {} tokens and {} positions", tokens.len(), positions.len())));
    }
    let positions = positions
        .iter()
        .enumerate()
        .map(|(number, position)| read_position(position, &format!("{place}.positions[{number}]")))
        .collect::<Result<_, _>>()?;
    Ok(ReferenceCase { name: text_of(case, "name"), model_sha256: text_of(case, "file_sha256"), tokens, positions })
}

fn read_position(position: &Value, place: &str) -> Result<ReferencePosition, EngineError> {
    let log_sum_exp = read_number(position.get("logsumexp").unwrap_or(&Value::Null), &format!("{place}.logsumexp"))?;
    let top = position.get("top").and_then(Value::as_array).filter(|top| !top.is_empty());
    let top = top.ok_or_else(|| bad(format!("'{place}.top' is no list of tokens")))?;
    let pair = |entry: &Value| match entry.as_array().map(Vec::as_slice) {
        Some([token, logit]) => Ok((read_token(token, place)?, read_number(logit, place)?)),
        _ => Err(bad(format!("'{place}.top' holds {entry}, which is no pair of token and logit"))),
    };
    Ok(ReferencePosition { log_sum_exp, top: top.iter().map(pair).collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_and_own_tokens_are_read() {
        let own = r#"{"gguf_sha256":"AB","cases":[{"tokens":[1,2],"positions":[{"logsumexp":2.5,"top":[[7,1.5]]}]}]}"#;
        let reference = Reference::parse(own).unwrap();
        assert_eq!(reference.cases[0].positions[0].top, [(7, 1.5)]);
        assert_eq!(reference.cases_for("ab").len(), 1);
        assert_eq!(reference.cases_for("cd").len(), 0);
        let shared =
            r#"{"tokens":[4],"cases":[{"name":"x","file_sha256":"cd","positions":[{"logsumexp":0,"top":[[0,0]]}]}]}"#;
        let reference = Reference::parse(shared).unwrap();
        assert_eq!(reference.cases[0].tokens, [4]);
        assert_eq!(reference.cases_for("cd").len(), 1);
        assert_eq!(reference.cases_for("ab").len(), 0);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, expected) in [
            ("{", "no JSON"),
            ("{}", "'cases' is no list"),
            (r#"{"cases":[{}]}"#, "'cases[0]' has no tokens"),
            (r#"{"cases":[{"tokens":[-1],"positions":[]}]}"#, "no token id"),
            (r#"{"cases":[{"tokens":[1],"positions":[{},{}]}]}"#, "1 tokens and 2 positions"),
            (r#"{"cases":[{"tokens":[1],"positions":[{"logsumexp":null,"top":[[1,2]]}]}]}"#, "no finite number"),
            (r#"{"cases":[{"tokens":[1],"positions":[{"logsumexp":1,"top":[[1]]}]}]}"#, "no pair"),
        ] {
            let error = Reference::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
