//! `strata serve` with a real model: the official clients and a real browser use it, unmodified; its
//! note for `ps`, its end on a signal, its refusals.

use crate::support::{SMOLLM2, cpu_plugin, model, refused, state_dir, strata, strata_with_plugin};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const KEY: &str = "a-key-for-tests";

/// A server in a process of its own, ended with the test.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(model: &Path, more: &[&str]) -> Serving {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strata"));
        command.env_remove("STRATA_PREFIX").env_remove("STRATA_API_KEY").env("STRATA_STATE_DIR", state_dir());
        command.arg("serve").arg(model).arg("--plugin").arg(cpu_plugin()).args(["--port", "0"]).args(more);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with("ready after"));
        let ready = ready.expect("the server says that it is ready");
        let address = ready.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
        // Somebody has to read on, or the server's talk fills the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Serving { child, address }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(file)
}

/// Whether a program runs at all; otherwise the test says what is missing.
fn has(program: &str, arguments: &[&str], what: &str) -> bool {
    let ran = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if ran.is_ok_and(|status| status.success()) {
        return true;
    }
    println!("skipped: no {what}");
    false
}

#[track_caller]
fn passes(command: &mut Command, trials: usize) {
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert_eq!(out.lines().filter(|line| line.starts_with("ok ")).count(), trials, "{out}");
}

#[test]
fn official_python_clients() {
    let Some(model) = model(SMOLLM2) else { return };
    if !has("python3", &["-c", "import openai, anthropic"], "Python packages `openai` and `anthropic`") {
        return;
    }
    let serving = Serving::start(&model, &["--api-key", KEY]);
    passes(Command::new("python3").arg(client("official.py")).arg(&serving.address), 11);
}

#[test]
fn official_node_client() {
    let Some(model) = model(SMOLLM2) else { return };
    if !has("node", &["-e", "require('openai')"], "npm package `openai` (NODE_PATH says where)") {
        return;
    }
    let serving = Serving::start(&model, &["--api-key", KEY]);
    passes(Command::new("node").arg(client("official.mjs")).arg(&serving.address), 6);
}

/// A short load by many clients that come and go: the whole one is in docs/SERVE.md.
#[test]
fn many_clients_get_what_one_gets() {
    let Some(model) = model(SMOLLM2) else { return };
    let serving = Serving::start(&model, &["--max-context", "512", "--slots", "4", "--max-queue", "4"]);
    let mut load = Command::new("python3");
    load.arg(client("load.py")).arg(&serving.address).args(["--clients", "12", "--seconds", "8"]);
    // What a short run in a debug build grows by is not yet a leak.
    passes(load.args(["--alone", "1", "--tokens", "4", "--growth", "64"]), 1);
}

/// Thousands of requests made up from our own description of the interfaces: whatever they hold, no status of a broken
/// server, and every answer is as the description says.
#[test]
fn made_up_requests_never_break_the_server() {
    let Some(model) = model(SMOLLM2) else { return };
    if !has("python3", &["-c", "import schemathesis"], "Python package `schemathesis`") {
        return;
    }
    let serving = Serving::start(&model, &["--max-context", "64", "--slots", "4"]);
    let mut run = Command::new("python3");
    let address = format!("{}/openapi.json", serving.address);
    let checks = "not_a_server_error,status_code_conformance,response_schema_conformance,content_type_conformance";
    run.args(["-m", "schemathesis.cli", "run", &address, "--checks", checks, "--phases", "coverage,fuzzing"]);
    run.args(["--max-examples", "10", "--seed", "1", "--request-timeout", "60", "--no-color"]);
    let done = run.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    assert!(said.contains("generated"), "{said}");
    println!("{}", said.lines().rev().take(12).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_page_in_a_browser() {
    let Some(model) = model(SMOLLM2) else { return };
    let browsers = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    let Some(browser) = browsers.into_iter().find(|path| Path::new(path).exists()) else {
        println!("skipped: no Chromium");
        return;
    };
    if !has("python3", &["-c", "import playwright"], "Python package `playwright`") {
        return;
    }
    let axe = std::env::var("NODE_PATH").map(|folder| format!("{folder}/axe-core/axe.min.js"));
    let axe = axe.ok().filter(|path| Path::new(path).exists()).unwrap_or_else(|| {
        println!("without axe-core: no npm package of that name below NODE_PATH");
        "-".to_owned()
    });
    let serving = Serving::start(&model, &[]);
    passes(Command::new("python3").arg(client("page.py")).arg(&serving.address).arg(browser).arg(axe), 7);
}

/// Listed while it runs; ended by a signal with status 0, and listed no more.
#[cfg(unix)]
#[test]
fn a_server_is_listed_and_stops_on_a_signal() {
    let Some(model) = model(SMOLLM2) else { return };
    let mut serving = Serving::start(&model, &[]);
    let pid = serving.child.id();
    let listed = || String::from_utf8(strata().arg("ps").output().unwrap().stdout).unwrap();
    assert!(listed().contains(&pid.to_string()));
    assert!(Command::new("kill").arg(pid.to_string()).status().unwrap().success());
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
    assert!(!listed().contains(&pid.to_string()));
}

#[test]
fn what_is_wrong_with_the_line_is_said_before_the_model_is_read() {
    let Some(model) = model(SMOLLM2) else { return };
    let serve = || {
        let mut command = strata_with_plugin("serve");
        command.arg(&model).env_remove("STRATA_API_KEY");
        command
    };
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    let taken = refused(serve().args(["--port", &port]), 1, "S0801");
    assert!(taken.err.contains("--port") && taken.err.contains("127.0.0.1"), "{}", taken.err);
    refused(serve().args(["--host", "0.0.0.0"]), 2, "S0803");
    refused(serve().args(["--api-key", "short"]), 2, "S0804");
    refused(serve().args(["--api-key-file", "/nowhere/at/all"]), 2, "S0804");
    refused(serve().args(["--cors-origin", "page.example/"]), 2, "S0002");
    refused(serve().args(["--port", "0", "--temperature", "-1"]), 2, "S0403");
    // A model that cannot be loaded ends the server with the model's own error.
    refused(strata_with_plugin("serve").arg(client("official.py")).args(["--port", "0"]), 1, "S0101");
}
