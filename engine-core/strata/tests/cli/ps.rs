//! `strata ps` and `strata stop` by the notes that servers leave. The processes of these tests are
//! no servers, which the notes do not know.

use crate::support::{ran, refused};
use assert_cmd::Command;
use serde_json::json;
use std::path::Path;
use std::process::{Child, Stdio};
use tempfile::TempDir;

fn strata(state: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strata"));
    command.env_remove("STRATA_PREFIX").env("STRATA_STATE_DIR", state.path()).args(arguments);
    command
}

/// A process that ends when it is asked to, or, if `deaf`, only by force.
fn process(deaf: bool) -> Child {
    let script =
        if deaf { "trap '' TERM; echo ready; while :; do sleep 0.1; done" } else { "echo ready; exec sleep 60" };
    let mut child = std::process::Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    child
}

fn note(state: &TempDir, pid: u32, port: u16, model: &str) {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let started = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)?.parse::<u64>().ok());
    let boot = fs_err::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let note = json!({
        "schema": "strata-instance/1.0", "pid": pid, "started_ticks": started.unwrap_or(7), "boot": boot.trim(),
        "model": model, "address": format!("127.0.0.1:{port}"), "backend": "cpu", "version": "0.1.0", "since": 1_700_000_000,
    });
    let folder = state.path().join("servers");
    fs_err::create_dir_all(&folder).unwrap();
    fs_err::write(folder.join(format!("{pid}.json")), note.to_string()).unwrap();
}

fn notes(state: &Path) -> usize {
    fs_err::read_dir(state.join("servers")).unwrap().count()
}

#[test]
fn servers_are_listed_and_those_that_are_gone_are_swept_away() {
    let state = TempDir::new().unwrap();
    let nothing = ran(&mut strata(&state, &["ps"]));
    assert!(nothing.out.is_empty() && nothing.err.contains("no server runs") && nothing.status == Some(0));
    let mut one = process(false);
    note(&state, one.id(), 8080, "a\u{1b}[31m model");
    // One of an earlier boot, one whose number another process has now, one that is no note.
    note(&state, std::process::id(), 9, "mine");
    let mine = state.path().join(format!("servers/{}.json", std::process::id()));
    let changed = fs_err::read_to_string(&mine).unwrap().replace("\"started_ticks\":", "\"started_ticks\":1");
    fs_err::write(&mine, changed).unwrap();
    fs_err::write(state.path().join("servers/77.json"), "no note").unwrap();
    assert_eq!(notes(state.path()), 3);
    let listed = ran(&mut strata(&state, &["ps"]));
    assert!(listed.out.contains("127.0.0.1:8080") && listed.out.contains("a[31m model"), "{}", listed.out);
    assert_eq!(listed.out.lines().count(), 2, "{}", listed.out);
    assert_eq!(notes(state.path()), 1);
    let report = ran(&mut strata(&state, &["ps", "--json"])).json();
    assert_eq!(report["servers"][0]["pid"], one.id());
    one.kill().unwrap();
    // Ended, and not yet waited for by its parent.
    while ran(&mut strata(&state, &["ps", "--json"])).json()["servers"][0].is_object() {}
    one.wait().unwrap();
    assert_eq!(notes(state.path()), 0);
}

#[test]
fn stop_ends_the_one_that_is_meant_and_no_other() {
    let state = TempDir::new().unwrap();
    refused(&mut strata(&state, &["stop"]), 1, "S0410");
    let (mut one, mut other) = (process(false), process(false));
    note(&state, one.id(), 8080, "first");
    note(&state, other.id(), 8081, "second");
    let ran_refused = refused(&mut strata(&state, &["stop"]), 1, "S0410");
    assert!(ran_refused.err.contains("8081"), "it says which there are: {}", ran_refused.err);
    refused(&mut strata(&state, &["stop", "third"]), 1, "S0410");
    let stopped = ran(&mut strata(&state, &["stop", "8081"]));
    assert_eq!(stopped.status, Some(0), "{}", stopped.err);
    assert!(stopped.err.contains("stopped second"), "{}", stopped.err);
    assert!(other.try_wait().unwrap().is_some() && one.try_wait().unwrap().is_none());
    let stopped = ran(&mut strata(&state, &["stop"]));
    assert_eq!(stopped.status, Some(0), "the only one needs no name: {}", stopped.err);
    one.wait().unwrap();
}

#[test]
fn one_that_does_not_end_is_said_and_ended_by_force_when_asked() {
    let state = TempDir::new().unwrap();
    let mut deaf = process(true);
    note(&state, deaf.id(), 8080, "deaf");
    let refused = refused(&mut strata(&state, &["stop", "--timeout", "1"]), 1, "S0411");
    assert!(refused.err.contains("--force") && deaf.try_wait().unwrap().is_none(), "{}", refused.err);
    let forced = ran(&mut strata(&state, &["stop", "--all", "--timeout", "0", "--force"]));
    assert!(forced.status == Some(0) && forced.err.contains("by force"), "{}", forced.err);
    deaf.wait().unwrap();
}
