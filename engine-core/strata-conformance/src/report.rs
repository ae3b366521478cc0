//! Verdicts: one case against its known gap, one group of cases, the whole table as text or JSON.

use crate::bench::{Bench, Stop};
use crate::cases::{Check, Group};
use crate::check::{self, Worst};
use crate::gaps::{Expect, Gaps, Place};
use serde_json::json;
use std::fmt::Write;

/// What became of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every case passed.
    Pass,
    /// Some cases are known gaps, the rest passed.
    Gap,
    Fail,
}

impl Verdict {
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Gap => "gap",
            Verdict::Fail => "FAIL",
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone)]
pub struct GroupReport {
    pub op: &'static str,
    pub format: String,
    pub check: Check,
    pub passed: usize,
    /// Names of cases that are known gaps, with the reason.
    pub gaps: Vec<(String, String)>,
    /// Names of cases that failed, with what was wrong.
    pub failures: Vec<(String, String)>,
    /// Of the precise programs that passed.
    pub precise: Worst,
    /// Of the default programs that passed.
    pub default: Worst,
}

impl GroupReport {
    pub fn verdict(&self) -> Verdict {
        match (self.failures.is_empty(), self.gaps.is_empty()) {
            (false, _) => Verdict::Fail,
            (true, false) => Verdict::Gap,
            (true, true) => Verdict::Pass,
        }
    }
}

/// Runs a group. `before_case` is told each case's name before it starts, for a plugin that
/// takes the process down with it.
pub fn run_group(bench: &Bench, group: &Group, gaps: &Gaps, before_case: &mut dyn FnMut(&str)) -> GroupReport {
    let mut report = GroupReport {
        op: group.op,
        format: group.format.clone(),
        check: group.check,
        passed: 0,
        gaps: Vec::new(),
        failures: Vec::new(),
        precise: Worst::default(),
        default: Worst::default(),
    };
    for case in group.cases() {
        before_case(&case.name);
        let place = Place {
            backend: &bench.backend,
            variant: &bench.variant,
            op: group.op,
            format: &group.format,
            case: &case.name,
        };
        let outcome = match group.check {
            Check::Values => check::values(bench, &case),
            Check::SameBits => check::same_bits(bench, &case),
        };
        match judge(outcome, gaps, place) {
            Judged::Pass(worst) => {
                report.passed += 1;
                let total = if case.precise { &mut report.precise } else { &mut report.default };
                *total = total.or(worst);
            }
            Judged::Gap(reason) => report.gaps.push((case.name, reason)),
            Judged::Fail(what) => report.failures.push((case.name, what)),
        }
    }
    report
}

enum Judged {
    Pass(Worst),
    Gap(String),
    Fail(String),
}

fn judge(outcome: Result<Worst, Stop>, gaps: &Gaps, place: Place<'_>) -> Judged {
    let gap = gaps.find(place);
    match (outcome, gap) {
        (Ok(worst), None) => Judged::Pass(worst),
        (Ok(_), Some(gap)) => {
            Judged::Fail(format!("passes, but is listed as a known gap ({}): remove the entry", gap.reason))
        }
        (Err(Stop::Unsupported(_)), Some(gap)) if gap.expect == Expect::Unsupported => Judged::Gap(gap.reason.clone()),
        (Err(Stop::Failed(_)), Some(gap)) if gap.expect == Expect::Wrong => Judged::Gap(gap.reason.clone()),
        (Err(Stop::Unsupported(reason)), _) => Judged::Fail(format!("unsupported and not a known gap: {reason}")),
        (Err(Stop::Failed(what)), _) => Judged::Fail(what),
    }
}

/// A whole run.
#[derive(Debug, Clone)]
pub struct Report {
    pub backend: String,
    pub version: String,
    pub device: String,
    pub variant: String,
    pub groups: Vec<GroupReport>,
}

/// How many cases ended how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    pub passed: usize,
    pub gaps: usize,
    pub failed: usize,
}

impl Report {
    pub fn totals(&self) -> Totals {
        let sum = |count: fn(&GroupReport) -> usize| self.groups.iter().map(count).sum();
        Totals {
            passed: sum(|group| group.passed),
            gaps: sum(|group| group.gaps.len()),
            failed: sum(|group| group.failures.len()),
        }
    }

    /// The table, then what failed, then the totals. Errors are the greatest of a line, as a share
    /// of the limit and relative to the root mean square of the row.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} {} on {}", self.backend, self.version, self.device);
        if !self.variant.is_empty() {
            let _ = write!(text, ", variant {}", self.variant);
        }
        let _ = writeln!(
            text,
            "\n\n{:<18} {:<18} {:<9} {:<7} {:>5} {:>5} {:>5}  {:>18}  {:>18}",
            "op", "format", "check", "verdict", "pass", "gap", "fail", "precise: of limit", "default: of limit"
        );
        for group in &self.groups {
            let check = check_word(group.check);
            let _ = write!(
                text,
                "{:<18} {:<18} {check:<9} {:<7} {:>5} {:>5} {:>5}",
                group.op,
                group.format,
                group.verdict().word(),
                group.passed,
                group.gaps.len(),
                group.failures.len()
            );
            if group.check == Check::Values && group.passed > 0 {
                for Worst { of_allowed, relative } in [group.precise, group.default] {
                    let _ = write!(text, "  {:>6.1} % {relative:>9.1e}", 100.0 * of_allowed);
                }
            }
            text.push('\n');
        }
        for group in &self.groups {
            for (case, what) in &group.failures {
                let _ = write!(text, "\n{} {} ({}), {case}: {what}", group.op, group.format, check_word(group.check));
            }
        }
        for (reason, count) in self.gap_reasons() {
            let _ = write!(text, "\ngap: {count} cases: {reason}");
        }
        let Totals { passed, gaps, failed } = self.totals();
        let _ = writeln!(text, "\n{passed} cases passed, {gaps} known gaps, {failed} failed");
        text
    }

    /// Reasons of gaps with their counts, in the order of first appearance.
    fn gap_reasons(&self) -> Vec<(&str, usize)> {
        let mut reasons: Vec<(&str, usize)> = Vec::new();
        for (_, reason) in self.groups.iter().flat_map(|group| &group.gaps) {
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, count)) => *count += 1,
                None => reasons.push((reason, 1)),
            }
        }
        reasons
    }

    /// The same for programs.
    pub fn to_json(&self) -> serde_json::Value {
        let pairs = |list: &[(String, String)], what: &str| {
            list.iter().map(|(case, text)| json!({ "case": case, what: text })).collect::<Vec<_>>()
        };
        let groups: Vec<_> = self
            .groups
            .iter()
            .map(|group| {
                json!({
                    "op": group.op,
                    "format": group.format,
                    "check": check_word(group.check),
                    "verdict": group.verdict().word().to_lowercase(),
                    "passed": group.passed,
                    "gaps": pairs(&group.gaps, "reason"),
                    "failures": pairs(&group.failures, "what"),
                    "precise": { "of_limit": group.precise.of_allowed, "relative": group.precise.relative },
                    "default": { "of_limit": group.default.of_allowed, "relative": group.default.relative },
                })
            })
            .collect();
        let totals = self.totals();
        json!({
            "schema": "strata-conformance/1.0",
            "backend": self.backend,
            "version": self.version,
            "device": self.device,
            "variant": self.variant,
            "groups": groups,
            "passed": totals.passed,
            "gaps": totals.gaps,
            "failed": totals.failed,
        })
    }
}

fn check_word(check: Check) -> &'static str {
    match check {
        Check::Values => "values",
        Check::SameBits => "same bits",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place<'static> =
        Place { backend: "x", variant: "", op: "rope", format: "F32", case: "default D64 T1" };

    fn listed(expect: &str) -> Gaps {
        let entry = "[[gap]]\nbackend = 'x'\nop = 'rope'\nformat = 'F32'\nreason = 'later'\n";
        Gaps::parse(&format!("{entry}expect = '{expect}'")).unwrap()
    }

    #[test]
    fn gaps_must_be_listed_and_must_still_show() {
        let unsupported = || Err(Stop::Unsupported("no".into()));
        let wrong = || Err(Stop::Failed("off".into()));
        let pass = || Ok(Worst::default());
        let none = Gaps::default();
        assert!(matches!(judge(pass(), &none, PLACE), Judged::Pass(_)));
        assert!(matches!(judge(unsupported(), &none, PLACE), Judged::Fail(what) if what.contains("not a known gap")));
        assert!(matches!(judge(wrong(), &none, PLACE), Judged::Fail(_)));
        assert!(matches!(judge(unsupported(), &listed("unsupported"), PLACE), Judged::Gap(_)));
        assert!(matches!(judge(pass(), &listed("unsupported"), PLACE), Judged::Fail(what) if what.contains("remove")));
        assert!(matches!(judge(wrong(), &listed("unsupported"), PLACE), Judged::Fail(what) if what == "off"));
        assert!(matches!(judge(wrong(), &listed("wrong"), PLACE), Judged::Gap(_)));
        assert!(matches!(judge(unsupported(), &listed("wrong"), PLACE), Judged::Fail(_)));
    }
}
