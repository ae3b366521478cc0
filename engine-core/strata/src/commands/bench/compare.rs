//! Two reports side by side: what changed, and whether by more than the runs themselves differ.

use crate::input;
use serde_json::Value;
use std::path::Path;
use strata_diag::Diagnostic;
use strata_diag::catalogue::general::BAD_INPUT;
use strata_manifest::report::{BenchReport, ChangeReport, SpeedReport};

/// An earlier report of `--json`.
pub(super) fn read(path: &Path) -> Result<Value, Diagnostic> {
    let refused = |why: String| {
        Diagnostic::new(BAD_INPUT, format!("`{}` is no report of `strata bench --json`", path.display()))
            .fact("because", why)
    };
    let report: Value = serde_json::from_str(&input::file(path)?).map_err(|error| refused(error.to_string()))?;
    match report.get("schema").and_then(Value::as_str) {
        Some(schema) if schema.starts_with("strata-bench/1.") => Ok(report),
        other => Err(refused(format!("its schema is {}", other.unwrap_or("not there")))),
    }
}

/// Every speed that both have measured.
pub(super) fn compare(earlier: &Value, now: &BenchReport) -> Vec<ChangeReport> {
    let mut changes = Vec::new();
    let list = |name: &str| earlier.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let tokens = |speed: &Value| speed.get("tokens").and_then(Value::as_u64);
    for speed in &now.prompt {
        if let Some(before) = list("prompt").iter().find(|before| tokens(before) == Some(speed.tokens)) {
            changes.extend(change(format!("prompt of {}", speed.tokens), before, speed));
        }
    }
    // Reports of the first version have one decode speed, from an empty context.
    let mut before_at: Vec<(u64, Value)> = list("decode_at")
        .iter()
        .filter_map(|at| Some((at.get("depth")?.as_u64()?, at.get("speed")?.clone())))
        .collect();
    if before_at.is_empty() {
        before_at.extend(earlier.get("decode").map(|decode| (0, decode.clone())));
    }
    for at in &now.decode_at {
        let same = |(depth, speed): &&(u64, Value)| *depth == at.depth && tokens(speed) == Some(at.speed.tokens);
        if let Some((_, before)) = before_at.iter().find(same) {
            changes.extend(change(format!("decode at {}", at.depth), before, &at.speed));
        }
    }
    changes
}

fn change(what: String, before: &Value, now: &SpeedReport) -> Option<ChangeReport> {
    let number = |name: &str| before.get(name).and_then(Value::as_f64).filter(|number| *number > 0.0);
    let (median, min, max) = (number("median")?, number("min")?, number("max")?);
    Some(ChangeReport {
        what,
        before: median,
        now: now.median,
        percent: (now.median / median - 1.0) * 100.0,
        // The runs of one lie all above or all below those of the other.
        is_beyond_spread: now.min > max || now.max < min,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_counts_when_the_runs_do_not_overlap() {
        let before = json!({ "tokens": 8, "median": 100.0, "min": 95.0, "max": 105.0 });
        for (runs, percent, beyond) in
            [(vec![99.0, 104.0, 108.0], 4.0, false), (vec![110.0, 120.0, 130.0], 20.0, true), (vec![50.0], -50.0, true)]
        {
            let change = change("x".to_owned(), &before, &SpeedReport::of(8, runs)).unwrap();
            assert!((change.percent - percent).abs() < 1e-9 && change.is_beyond_spread == beyond, "{change:?}");
        }
    }
}
