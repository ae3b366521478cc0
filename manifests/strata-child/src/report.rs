//! The lines in which a child reports what it does and how it ended. Parent and child may be of two
//! releases, and a plugin's own talk may stand before or behind a line; what is none of ours is left aside.

use serde_json::Value;

/// Marks the lines of `strata internal-probe` among whatever a plugin prints.
pub const PROBE_LINE: &str = "strata-probe-line ";
/// Marks the line of `strata internal-nvml`.
pub const NVML_LINE: &str = "strata-nvml-line ";

/// What a child said, as far as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// What it had begun last.
    pub stage: String,
    pub verdict: Option<Verdict>,
}

/// Its last word.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The diagnostic of a failure as a whole.
    Failed(Value),
    /// One entry a device.
    Devices(Vec<Value>),
}

impl Report {
    /// Reads the lines that begin with `mark`, at most `most` devices.
    pub fn read(output: &[u8], mark: &str, most: usize) -> Report {
        let mut report = Report { stage: "starting".to_owned(), verdict: None };
        for line in String::from_utf8_lossy(output).lines() {
            let Some((_, line)) = line.split_once(mark) else { continue };
            let Ok(mut value) = serde_json::from_str::<Value>(line) else { continue };
            if let Some(stage) = value["stage"].as_str() {
                stage.clone_into(&mut report.stage);
            } else if let Some(failure) = value.get_mut("failed") {
                report.verdict = Some(Verdict::Failed(failure.take()));
            } else if let Some(devices) = value.get_mut("devices").and_then(Value::as_array_mut) {
                devices.truncate(most);
                report.verdict = Some(Verdict::Devices(std::mem::take(devices)));
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_are_found_among_other_talk() {
        let text = b"hello\nwarn: strata-probe-line {\"stage\":\"opening\"}\nstrata-probe-line {oops\nstrata-probe-line 7\n\xff\nstrata-probe-line {\"devices\":[{\"uid\":\"a\"},{\"uid\":\"b\"}]}\n";
        let report = Report::read(text, PROBE_LINE, 1);
        assert_eq!(report.stage, "opening");
        assert_eq!(report.verdict, Some(Verdict::Devices(vec![json!({ "uid": "a" })])));
        let failed = Report::read(b"strata-probe-line {\"failed\":{\"code\":\"S0301\"}}", PROBE_LINE, 1);
        assert_eq!(failed.verdict, Some(Verdict::Failed(json!({ "code": "S0301" }))));
        let silent = Report::read(b"", PROBE_LINE, 1);
        assert_eq!(silent, Report { stage: "starting".to_owned(), verdict: None });
    }
}
