//! The example for containers and Kubernetes: what can be checked of it without an engine. Its rehearsal,
//! which needs root and minutes, is a command of docs/CONTAINER.md.

use crate::support::{ran, strata};
use std::path::Path;
use std::process::Command;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/container");

#[test]
fn the_example_fits_the_schemas_and_itself() {
    let python = |arguments: &[&str]| Command::new("python3").args(arguments).output();
    if !python(&["-c", "import kubernetes_validate, yaml"]).is_ok_and(|output| output.status.success()) {
        println!("skipped: no Python packages `kubernetes-validate` and `PyYAML`");
        return;
    }
    let output = python(&[&format!("{FOLDER}/rehearse.py"), "--validate-only"]).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for kind in ["Deployment", "Service", "PodDisruptionBudget", "ConfigMap"] {
        assert!(said.contains(&format!("ok: {kind} fits the schema")), "{said}");
    }
}

/// Every flag that the server's container is started with is one of this program's.
#[test]
fn the_flags_of_the_example_are_flags_of_this_program() {
    let text = fs_err::read_to_string(Path::new(FOLDER).join("kubernetes.yaml")).unwrap();
    let serve = &text[text.find("- serve\n").unwrap()
        ..text.find("envFrom:\n            - configMapRef: {name: strata}\n          ports").unwrap()];
    let words: Vec<&str> = serve.lines().filter_map(|line| line.trim().strip_prefix("- ")).collect();
    assert!(words.iter().filter(|word| word.starts_with("--")).count() >= 8, "{words:?}");
    // An unknown flag at the end is what is refused: all before it were taken.
    let ran = ran(strata().args(&words).arg("--slots-of-another-program"));
    assert_eq!(ran.status, Some(2));
    assert!(ran.err.contains("'--slots-of-another-program'"), "{}", ran.err);
}
