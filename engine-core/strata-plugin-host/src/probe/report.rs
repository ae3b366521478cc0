//! What a probe child says in its lines and its parent reads back. Both are of one build, so this is no
//! document of manifests/; still, what comes from the child is read as if anybody had written it.

use super::ProbedDevice;
use serde_json::{Value, json};
use strata_diag::{Diagnostic, catalogue};

pub(super) fn of_failure(diagnostic: &Diagnostic) -> Value {
    json!({ "failed": diagnostic.to_json()["error"] })
}

pub(super) fn of_devices(devices: &[ProbedDevice]) -> Value {
    let device = |device: &ProbedDevice| {
        let failure = device.failure.as_ref().map(|failure| failure.to_json()["error"].clone());
        json!({ "uid": device.uid, "failure": failure })
    };
    json!({ "devices": devices.iter().map(device).collect::<Vec<_>>() })
}

/// Reads devices back; `None` when one of them cannot be read.
pub(super) fn devices(list: &[Value]) -> Option<Vec<ProbedDevice>> {
    let device = |device: &Value| {
        let failure = match device.get("failure") {
            None | Some(Value::Null) => None,
            Some(failure) => Some(diagnostic(failure)?),
        };
        Some(ProbedDevice { uid: device["uid"].as_str()?.to_owned(), failure })
    };
    list.iter().map(device).collect()
}

/// Reads a diagnostic back; `None` when its code is none of ours.
pub(super) fn diagnostic(value: &Value) -> Option<Diagnostic> {
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
    use strata_child::{PROBE_LINE, Report, Verdict};

    fn verdict(value: &Value) -> Verdict {
        let line = format!("{PROBE_LINE}{value}");
        assert!(!line.contains('\n'));
        Report::read(line.as_bytes(), PROBE_LINE, 10).verdict.unwrap()
    }

    #[test]
    fn lines_come_back_as_they_were() {
        let error = PluginError::Digest { path: "x\ny".into(), expected: "a".into(), got: "b".into() };
        let sent = vec![
            ProbedDevice { uid: "cpu".into(), failure: None },
            ProbedDevice { uid: "0000:01:00.0".into(), failure: Some(Diagnostic::of(&error)) },
        ];
        let Verdict::Devices(list) = verdict(&of_devices(&sent)) else { panic!("no devices") };
        assert_eq!(format!("{:?}", devices(&list).unwrap()), format!("{sent:?}"));
        let failure = Diagnostic::of(&error);
        let Verdict::Failed(value) = verdict(&of_failure(&failure)) else { panic!("no failure") };
        assert_eq!(format!("{:?}", diagnostic(&value).unwrap()), format!("{failure:?}"));
    }

    #[test]
    fn garbage_is_no_report() {
        assert!(devices(&[json!({})]).is_none() && devices(&[json!(3)]).is_none());
        assert!(devices(&[json!({ "uid": "a", "failure": { "code": "S9999" } })]).is_none());
        assert!(diagnostic(&json!({ "code": "S9999", "message": "x" })).is_none());
    }
}
