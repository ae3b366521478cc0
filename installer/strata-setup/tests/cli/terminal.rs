//! The questions, in front of a terminal that Python's `pty` makes (skipped where there is none).

use crate::support::{Scene, tool};
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};

struct Session {
    screen: String,
    status: Value,
}

/// Plays steps (`wait` for a text, `send` keys, `pause` seconds) against the program on a terminal.
fn play(scene: &Scene, args: &[&str], steps: &Value) -> Option<Session> {
    let python = tool("python3", &["-c", "import pty"])?;
    let mut command = vec![env!("CARGO_BIN_EXE_strata-setup").to_owned()];
    command.extend(args.iter().map(|arg| (*arg).to_owned()));
    let script = json!({ "command": command, "steps": steps, "home": scene.path("home"), "folder": scene.path("") });
    let driver = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/terminal.py");
    let mut child = Command::new(python).arg(driver).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(script.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    Some(Session { screen: value["screen"].as_str().unwrap().to_owned(), status: value["status"].clone() })
}

fn arguments(scene: &Scene) -> Vec<String> {
    let mut args = vec!["--allow-unsigned".to_owned(), "--release".to_owned(), scene.text("0.1.0")];
    args.extend(["--root".to_owned(), scene.text("root")]);
    args
}

const ENTER: &str = "\r";

#[test]
fn questions_have_defaults_and_answers_count() {
    let scene = Scene::new();
    let args = arguments(&scene);
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["--no-start", "--model", "tiny"]).collect();
    let steps = json!([
        { "wait": "Where to install" }, { "send": ENTER },
        { "wait": "Link `strata` into" }, { "send": "y" },
        { "wait": "Go on?" }, { "send": "y" },
        { "wait": "is ready" },
    ]);
    let Some(session) = play(&scene, &args, &steps) else { return };
    assert_eq!(session.status, json!(0), "{}", session.screen);
    assert!(scene.path("home/.local/share/strata/current/bin/strata").is_file(), "{}", session.screen);
    assert!(scene.path("home/.local/bin/strata").is_symlink(), "{}", session.screen);
    println!("{}", session.screen);
}

#[test]
fn what_was_typed_ahead_is_never_an_answer() {
    let scene = Scene::new();
    let args = arguments(&scene);
    let prefix = scene.text("prefix");
    let args: Vec<&str> =
        args.iter().map(String::as_str).chain(["--prefix", &prefix, "--model", "tiny", "--no-start"]).collect();
    // Keys that would answer every question are typed before the program has shown one.
    let steps = json!([
        { "send": "y\ry\ry\ry\r" }, { "wait": "Link `strata` into" }, { "pause": 0.5 }, { "send": "ny" },
        { "wait": "Go on?" }, { "pause": 0.5 }, { "send": "n" }, { "wait": "nothing was changed" },
    ]);
    let Some(session) = play(&scene, &args, &steps) else { return };
    assert_eq!(session.status, json!(0), "{}", session.screen);
    assert!(!scene.path("home/.local/bin/strata").exists());
    assert_eq!(scene.version_that_runs(), "nothing", "{}", session.screen);
}

#[test]
fn ctrl_c_at_a_question_changes_nothing_and_says_how_to_go_on() {
    let scene = Scene::new();
    let args = arguments(&scene);
    let prefix = scene.text("prefix");
    let args: Vec<&str> =
        args.iter().map(String::as_str).chain(["--prefix", &prefix, "--model", "tiny", "--no-start"]).collect();
    let steps =
        json!([{ "wait": "Link `strata` into" }, { "pause": 0.3 }, { "send": "\u{3}" }, { "wait": "to go on: `" }]);
    let Some(session) = play(&scene, &args, &steps) else { return };
    assert_eq!(session.status, json!(130), "{}", session.screen);
    assert_eq!(scene.version_that_runs(), "nothing");
    // The terminal is as it was: the cursor is shown again.
    assert!(session.screen.contains("\u{1b}[?25h") || !session.screen.contains("\u{1b}[?25l"), "{:?}", session.screen);
}

#[test]
fn without_a_terminal_a_question_is_an_error_and_yes_takes_defaults() {
    let scene = Scene::new();
    let mut command = scene.setup(&["uninstall"]);
    crate::support::done(&mut scene.install("0.1.0", &[]));
    crate::support::refused(command.arg("--prefix").arg(scene.prefix()), 2, "S0721");
}
