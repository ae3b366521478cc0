//! The kit itself, by what it says about plugins that are wrong, and its command line.

mod support;

#[cfg(test)]
mod tests {
    use super::support;
    use std::path::Path;
    use std::process::{Command, Output};
    use strata_conformance::{Bench, Check, Gaps, GroupReport, Verdict, groups, run_group};
    use strata_plugin_host::{OpenOptions, Plugin, PluginEntry};

    fn report(stem: &str, changes: &[(&str, &str)], group: &str, check: Check, gaps: &Gaps) -> GroupReport {
        let folder = tempfile::tempdir().unwrap();
        let entry = PluginEntry::from_descriptor(&support::c_demo(folder.path(), stem, changes).unwrap()).unwrap();
        let plugin = Plugin::open(&entry, &OpenOptions::in_process()).unwrap();
        let bench = Bench::open(&plugin, 0, "").unwrap();
        let found =
            groups().into_iter().find(|found| found.check == check && found.name().replace(".same_bits", "") == group);
        run_group(&bench, &found.unwrap(), gaps, &mut |_| {})
    }

    fn c_demo_gaps() -> Gaps {
        Gaps::parse(include_str!("c_demo_gaps.toml")).unwrap()
    }

    /// Some case of the group fails, in these words, and some other passes: it is that one fault.
    #[track_caller]
    fn caught(stem: &str, change: (&str, &str), group: &str, check: Check, words: &str) {
        let report = report(stem, &[change], group, check, &c_demo_gaps());
        assert_eq!(report.verdict(), Verdict::Fail, "{report:?}");
        assert!(report.failures.iter().any(|(_, what)| what.contains(words)), "{:?}", report.failures);
    }

    #[test]
    fn a_forgotten_epsilon_is_caught() {
        let change = ("sum / (double)out.ne[0] + epsilon", "sum / (double)out.ne[0]");
        caught("no-epsilon", change, "rms_norm::F32", Check::Values, "expected");
    }

    #[test]
    fn rows_taken_for_contiguous_are_caught() {
        let change = ("w.data + m * w.nb[1]", "w.data + m * w.ne[0] * 4");
        caught("no-stride", change, "mat_mul::F32", Check::Values, "is NaN");
    }

    #[test]
    fn more_tokens_than_the_step_has_are_caught() {
        let change = (
            "scalar == 0 ? tensor->ne[dim] : (uint64_t)scalars[scalar - 1]",
            "scalars == NULL || scalar > 9 ? 0 : tensor->ne[dim]",
        );
        let report = report("all-tokens", &[change], "add::F32", Check::Values, &c_demo_gaps());
        assert!(report.failures.iter().any(|(_, what)| what.contains("belongs to no result")), "{report:?}");
        assert!(report.passed > 0, "programs compiled for their very token count are right: {report:?}");
    }

    #[test]
    fn a_write_beyond_the_row_is_caught() {
        let change = ("(size_t)out.ne[0] * sizeof(float)", "((size_t)out.ne[0] + 1) * sizeof(float)");
        caught("one-too-many", change, "copy::F32->F32", Check::Values, "belongs to no result");
    }

    #[test]
    fn a_sum_that_depends_on_the_batch_is_caught() {
        let change = ("to[m] = (float)sum;", "to[m] = (float)(out.ne[1] > 4 ? sum * (1 + 1e-7) : sum);");
        caught("batch", change, "mat_mul::F32", Check::SameBits, "when only the first");
    }

    #[test]
    fn a_result_that_depends_on_the_run_is_caught() {
        let change = ("to[m] = (float)sum;", "static int n; to[m] = (float)sum + (n++ % 1000 == 999 ? 1e-3f : 0);");
        caught("flaky", change, "mat_mul::F32", Check::SameBits, "differs");
    }

    #[test]
    fn halved_precision_is_caught_in_precise_programs() {
        let change = (
            "sum += (double)weights[k] * from[k];",
            "sum += (double)weights[k] * ((from[k] + from[k] * 4096) - from[k] * 4096);",
        );
        caught("rounded", change, "mat_mul::F32", Check::Values, "allowed");
    }

    #[test]
    fn an_op_that_is_missing_must_be_listed() {
        let change = ("case STRATA_OP_KIND_COPY:\n        return 2;", "");
        caught("no-copy", change, "copy::F32->F32", Check::Values, "unsupported and not a known gap");
    }

    #[test]
    fn a_gap_that_no_longer_shows_fails() {
        let entry = "[[gap]]\nbackend = 'c-demo'\nop = 'copy'\nformat = '*'\nreason = 'once upon a time'";
        let report = report("stale-gap", &[], "copy::F32->F32", Check::Values, &Gaps::parse(entry).unwrap());
        assert_eq!(report.passed, 0);
        assert!(report.failures.iter().all(|(_, what)| what.contains("remove the entry")), "{report:?}");
    }

    fn conform(arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_strata-conform")).args(arguments).output().unwrap()
    }

    #[test]
    fn the_exit_status_tells_gaps_from_failures() {
        let folder = tempfile::tempdir().unwrap();
        let plugin = support::c_demo(folder.path(), "cli", &[]).unwrap();
        let plugin = plugin.to_str().unwrap();
        let gaps = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c_demo_gaps.toml");
        let with_gaps = ["--plugin", plugin, "--filter", "::F32", "--gaps", gaps.to_str().unwrap(), "--json"];
        let output = conform(&with_gaps);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{report:#}");
        assert_eq!((&report["failed"], &report["backend"]), (&0.into(), &"c-demo".into()));
        assert!(report["gaps"].as_u64() > Some(0) && report["passed"].as_u64() > Some(0), "{report:#}");

        // The repository's own list says nothing about this backend: its missing ops are failures.
        let output = conform(&["--plugin", plugin, "--filter", "softmax"]);
        let table = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{table}");
        assert!(table.contains("FAIL") && table.contains("unsupported and not a known gap"), "{table}");
    }

    #[test]
    fn a_wrong_command_line_or_plugin_is_said() {
        let output = conform(&["--plugin", "/no/such.plugin.json"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("error[S03"), "{output:?}");
        let output = conform(&["--list", "--filter", "no such group"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("no group matches"), "{output:?}");
        assert_eq!(conform(&[]).status.code(), Some(2));
        let output = conform(&["--list", "--filter", "rope"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "rope::F32\nrope.same_bits::F32\n");
    }
}
