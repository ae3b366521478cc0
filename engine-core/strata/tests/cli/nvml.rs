//! `strata internal-nvml` over a stand-in for the driver's library, which the loader finds before any other.

use crate::support::strata;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Compiles the stand-in into a folder of its own.
fn stand_in(defines: &[&str]) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/libnvidia-ml.c");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = std::process::Command::new(&compiler);
    command.args(["-shared", "-fPIC", "-o"]).arg(folder.path().join("libnvidia-ml.so.1")).args(defines).arg(source);
    match command.output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("skipped: no C compiler `{compiler}`: {error}");
            return None;
        }
    }
    Some(folder)
}

fn ask(folder: &Path, how: &str, addresses: &[&str]) -> (Option<i32>, Value) {
    let mut command = strata();
    command.env("LD_LIBRARY_PATH", folder).env("STANDIN", how).timeout(Duration::from_secs(20));
    let output = command.arg("internal-nvml").args(addresses).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("strata-nvml-line "));
    let value = line.map_or(Value::Null, |line| serde_json::from_str(line).unwrap());
    (output.status.code(), value)
}

#[test]
fn cards_and_slices_are_told_by_the_library() {
    let Some(folder) = stand_in(&[]) else { return };
    let (status, answer) = ask(folder.path(), "", &[]);
    assert_eq!(status, Some(0));
    assert_eq!(answer["driver"], "570.86.15");
    assert_eq!(
        answer["devices"],
        json!([
            {
                "pci": "00000000:01:00.0", "uuid": "GPU-1", "name": "NVIDIA Example",
                "memory": { "total": 40_000_000_000_u64, "free": 10_000_000_000_u64 },
                "capability": [8, 0], "display": false,
                "mig": [{
                    "uuid": "MIG-5", "name": "NVIDIA Example MIG 3g.20gb",
                    "memory": { "total": 20_000_000_000_u64, "free": 10_000_000_000_u64 },
                }],
            },
            {
                "pci": "00000000:02:00.0", "uuid": "GPU-2", "name": "NVIDIA Example",
                "memory": { "total": 40_000_000_000_u64, "free": 10_000_000_000_u64 },
                "capability": [12, 0], "display": true, "mig": [],
            },
        ])
    );
    let (_, one) = ask(folder.path(), "", &["0000:02:00.0"]);
    assert_eq!((one["devices"].as_array().unwrap().len(), &one["devices"][0]["uuid"]), (1, &json!("GPU-2")));
    let (_, unified) = ask(folder.path(), "unified", &[]);
    assert_eq!(unified["devices"][0]["memory"], json!({ "code": 3 }));
    let (_, lost) = ask(folder.path(), "lost", &[]);
    assert_eq!(lost["devices"][1]["failed"], json!({ "code": 15, "text": "GPU is lost" }));
    // A library that claims more cards than there can be, and one that fills its buffers to the brim.
    let (_, many) = ask(folder.path(), "many", &[]);
    assert_eq!(many["devices"].as_array().unwrap().len(), 256);
    let (_, endless) = ask(folder.path(), "endless", &[]);
    assert_eq!(endless["driver"].as_str().unwrap().len(), 255);
    // An old driver's library lacks functions; the rest is told all the same.
    let Some(old) = stand_in(&["-DOLD_DRIVER"]) else { return };
    let (status, answer) = ask(old.path(), "", &[]);
    assert_eq!(
        (status, &answer["devices"][0]["display"], &answer["devices"][0]["mig"]),
        (Some(0), &json!(null), &json!([]))
    );
    assert_eq!(answer["devices"][0]["capability"], json!([8, 0]));
}

#[test]
fn a_library_that_fails_is_quoted_and_one_that_crashes_ends_the_child_only() {
    let Some(folder) = stand_in(&[]) else { return };
    let (status, answer) = ask(folder.path(), "mismatch", &[]);
    assert_eq!(status, Some(1));
    assert_eq!(answer["failed"], json!({ "code": 18, "text": "Driver/library version mismatch" }));
    assert_eq!(ask(folder.path(), "crash", &[]), (None, Value::Null));
    // No library at all is told apart from one that fails.
    let empty = tempfile::tempdir().unwrap();
    fs_err::write(empty.path().join("libnvidia-ml.so.1"), "no library").unwrap();
    let (status, answer) = ask(empty.path(), "", &[]);
    assert_eq!((status, &answer["failed"]["absent"]), (Some(1), &json!(true)));
    assert!(answer["failed"]["text"].as_str().unwrap().starts_with("the library is not here"), "{answer}");
}
