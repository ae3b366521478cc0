//! A selection in words and as JSON: what was asked for, what was found, what was chosen and why.

use super::{Selection, Verdict};
use serde_json::{Value, json};
use std::fmt::Write;

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Chosen => "chosen",
            Verdict::Usable => "usable",
            Verdict::Unusable => "unusable",
            Verdict::LeftAlone => "left alone",
        }
    }
}

impl Selection {
    /// For `--backend-report`: a line for what was asked, one a candidate, one for the choice.
    pub fn to_text(&self) -> String {
        let mut out = format!("asked: {}\n", self.request.words());
        for reason in &self.reasons {
            let device = reason.device.as_ref().map(|device| format!(" {device}")).unwrap_or_default();
            // Writing to a String cannot fail.
            let _ = writeln!(out, "  {}{device}: {}: {}", reason.plugin, reason.verdict.word(), reason.text);
        }
        for note in &self.notes {
            let _ = writeln!(out, "  note: {note}");
        }
        let chosen = self.reasons.iter().find(|reason| reason.verdict == Verdict::Chosen);
        match (&self.outcome, chosen) {
            (Ok(choice), Some(reason)) => {
                let device = reason.device.as_deref().unwrap_or_default();
                let _ = writeln!(out, "chosen: {} {device}: {}", reason.plugin, choice.why);
            }
            (Ok(choice), None) => {
                let _ = writeln!(out, "chosen: {}", choice.why);
            }
            (Err(error), _) => {
                let _ = writeln!(out, "chosen: none: {error}");
            }
        }
        out
    }

    pub fn to_json(&self) -> Value {
        let reasons: Vec<Value> = self
            .reasons
            .iter()
            .map(|reason| {
                json!({
                    "plugin": reason.plugin,
                    "device": reason.device,
                    "verdict": reason.verdict.word(),
                    "reason": reason.text,
                })
            })
            .collect();
        let warnings: Vec<Value> = self.warnings.iter().map(|warning| warning.to_json()["error"].clone()).collect();
        json!({
            "asked": self.request.words(),
            "candidates": reasons,
            "chosen": self.reasons.iter().find(|reason| reason.verdict == Verdict::Chosen).map(|reason| &reason.plugin),
            "why": self.outcome.as_ref().map_or_else(ToString::to_string, |chosen| chosen.why.clone()),
            "warnings": warnings,
            "notes": self.notes,
        })
    }
}
