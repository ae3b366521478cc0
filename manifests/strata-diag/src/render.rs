//! The one renderer of diagnostics. Text goes to stderr, JSON to stdout or stderr as the
//! command decides; neither depends on colour.

use crate::Diagnostic;
use serde_json::{Value, json};
use std::fmt::Write;

impl Diagnostic {
    /// `error[S0104]: sentence`, then facts, causes and hints, a line each.
    pub fn to_text(&self) -> String {
        self.block("error")
    }

    /// The same block for something that went on all the same.
    pub fn to_warning_text(&self) -> String {
        self.block("warning")
    }

    fn block(&self, severity: &str) -> String {
        let mut out = format!("{severity}[{}]: {}\n", self.code.id, printable(&self.message));
        for (name, value) in &self.facts {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "  {name}: {}", printable(value));
        }
        for cause in &self.causes {
            let _ = writeln!(out, "  because: {}", printable(cause));
        }
        for hint in &self.hints {
            let _ = writeln!(out, "  hint: {}", printable(hint));
        }
        let _ = writeln!(out, "  more: `strata explain {}`", self.code.id);
        out
    }

    /// `{"error": {code, name, message, facts, causes, hints}}`; schema in manifests/schemas.
    pub fn to_json(&self) -> Value {
        let facts: serde_json::Map<String, Value> =
            self.facts.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        json!({
            "error": {
                "code": self.code.id,
                "name": self.code.name,
                "message": self.message,
                "facts": facts,
                "causes": self.causes,
                "hints": self.hints,
            }
        })
    }
}

/// Names and texts out of untrusted files must not drive the terminal.
fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}
