//! The lines that a probe child writes and its parent reads. Both are of one build, so this is no
//! document of manifests/; still, what comes from the child is read as if anybody had written it.

use super::ProbedDevice;
use serde_json::{Value, json};
use strata_diag::{Diagnostic, catalogue};

/// Marks our lines among whatever a plugin prints.
pub(super) const LINE_PREFIX: &str = "strata-probe-line ";
/// More devices than this in a report are not read.
const MAX_DEVICES: usize = 4096;

/// One line.
#[derive(Debug)]
pub(super) enum Line {
    /// What is begun now.
    Stage(String),
    Verdict(Verdict),
}

#[derive(Debug)]
pub(super) enum Verdict {
    Devices(Vec<ProbedDevice>),
    Failed(Diagnostic),
}

impl Line {
    pub(super) fn parse(text: &str) -> Option<Line> {
        let value: Value = serde_json::from_str(text).ok()?;
        if let Some(stage) = value["stage"].as_str() {
            return Some(Line::Stage(stage.to_owned()));
        }
        if let Some(error) = value.get("failed") {
            return Some(Line::Verdict(Verdict::Failed(diagnostic(error)?)));
        }
        let devices = value["devices"].as_array()?.iter().take(MAX_DEVICES);
        let devices = devices.map(|device| {
            let failure = match device.get("failure") {
                None | Some(Value::Null) => None,
                Some(failure) => Some(diagnostic(failure)?),
            };
            Some(ProbedDevice { uid: device["uid"].as_str()?.to_owned(), failure })
        });
        Some(Line::Verdict(Verdict::Devices(devices.collect::<Option<_>>()?)))
    }

    pub(super) fn to_json(&self) -> String {
        match self {
            Line::Stage(stage) => json!({ "stage": stage }),
            Line::Verdict(Verdict::Failed(diagnostic)) => json!({ "failed": diagnostic.to_json()["error"] }),
            Line::Verdict(Verdict::Devices(devices)) => {
                let device = |device: &ProbedDevice| {
                    let failure = device.failure.as_ref().map(|failure| failure.to_json()["error"].clone());
                    json!({ "uid": device.uid, "failure": failure })
                };
                json!({ "devices": devices.iter().map(device).collect::<Vec<_>>() })
            }
        }
        .to_string()
    }
}

/// Reads a diagnostic back; `None` when its code is none of ours.
fn diagnostic(value: &Value) -> Option<Diagnostic> {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let mut out = Diagnostic::new(catalogue::find(value["code"].as_str()?)?, value["message"].as_str()?);
    for (name, fact) in value["facts"].as_object().into_iter().flatten() {
        // Names of facts are static; these are the ones that plugin errors have.
        let known = ["expected", "got", "loader", "during", "its last words", "entry", "program", "candidate"];
        let name = known.into_iter().find(|known| known == name).unwrap_or("fact");
        out = out.fact(name, fact.as_str()?);
    }
    out.hints = texts(&value["hints"]);
    out.causes = texts(&value["causes"]);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PluginError;

    fn there_and_back(line: &Line) -> String {
        let text = line.to_json();
        assert!(!text.contains('\n'));
        format!("{:?}", Line::parse(&text).unwrap())
    }

    #[test]
    fn lines_come_back_as_they_were() {
        let error = PluginError::Digest { path: "x\ny".into(), expected: "a".into(), got: "b".into() };
        let devices = vec![
            ProbedDevice { uid: "cpu".into(), failure: None },
            ProbedDevice { uid: "0000:01:00.0".into(), failure: Some(Diagnostic::of(&error)) },
        ];
        for line in [
            Line::Stage("opening device 1 \"x\"".into()),
            Line::Verdict(Verdict::Failed(Diagnostic::of(&error))),
            Line::Verdict(Verdict::Devices(devices)),
        ] {
            assert_eq!(there_and_back(&line), format!("{line:?}"));
        }
    }

    #[test]
    fn garbage_is_no_line() {
        for text in
            ["", "{", "[]", "7", "{}", r#"{"devices": 3}"#, r#"{"devices": [{}]}"#, r#"{"failed": {"code": "S9999"}}"#]
        {
            assert!(Line::parse(text).is_none(), "{text}");
        }
    }
}
