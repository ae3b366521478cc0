//! Clients that leave: their work ends at once, and nobody else's.

use crate::support::{Answer, Playing, Script, post, question, until};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What the case allows.
const SOON: Duration = Duration::from_secs(2);

fn slow() -> Script {
    Script {
        slots: 1,
        pieces: (0..2000).map(|n| format!(" {n}")).collect(),
        delay: Duration::from_millis(100),
        ..Script::default()
    }
}

fn ask(server: &Playing, text: &str, stream: bool) -> TcpStream {
    let mut body = question(text);
    body["stream"] = json!(stream);
    body["max_tokens"] = json!(2000);
    let mut socket = server.connect();
    socket.write_all(post("/v1/chat/completions", &body.to_string()).as_bytes()).unwrap();
    socket
}

#[track_caller]
fn is_free(server: &Playing) {
    until(SOON, "the slot is free", || server.seen.active.load(Ordering::SeqCst) == 0);
    until(SOON, "a line says so", || server.has_line("client closed"));
    assert_eq!(server.get("/health").status, 200);
}

fn is_busy(server: &Playing, started: usize) {
    until(SOON, "started", || server.seen.started.load(Ordering::SeqCst) == started);
}

#[test]
fn e23_a_while_streaming() {
    let server = Playing::start(slow());
    let mut socket = ask(&server, "x", true);
    let mut text = Vec::new();
    while String::from_utf8_lossy(&text).matches("data: ").count() < 3 {
        let mut part = [0; 4096];
        let count = socket.read(&mut part).unwrap();
        text.extend_from_slice(&part[..count]);
    }
    drop(socket);
    is_free(&server);
}

#[test]
fn e23_b_without_streaming() {
    let server = Playing::start(slow());
    let socket = ask(&server, "x", false);
    is_busy(&server, 1);
    drop(socket);
    is_free(&server);
}

#[test]
fn e23_c_while_a_long_prompt_is_read() {
    for stream in [false, true] {
        let server = Playing::start(Script { prompt_delay: Duration::from_millis(20), ..slow() });
        let socket = ask(&server, &"x".repeat(2000), stream);
        is_busy(&server, 1);
        // Past the time after which a stream has begun without a token.
        std::thread::sleep(Duration::from_millis(if stream { 2500 } else { 300 }));
        drop(socket);
        is_free(&server);
    }
}

#[test]
fn e23_d_while_queued() {
    let server = Playing::start(slow());
    let first = ask(&server, "first", true);
    is_busy(&server, 1);
    let second = ask(&server, "second", false);
    std::thread::sleep(Duration::from_millis(200));
    drop(second);
    until(SOON, "a line says so", || server.has_line("client closed"));
    drop(first);
    until(SOON, "both are over", || server.seen.cancelled.load(Ordering::SeqCst) == 2);
    assert_eq!(server.seen.started.load(Ordering::SeqCst), 1, "the queued one never started");
}

#[test]
fn e23_e_only_the_sending_side_is_shut() {
    for stream in [false, true] {
        let script = Script { pieces: vec![" x".to_owned(); 20], ..slow() };
        let server = Playing::start(script);
        let mut socket = ask(&server, "x", stream);
        socket.shutdown(Shutdown::Write).unwrap();
        let answer = Answer::read(&mut socket);
        assert_eq!(answer.status, 200);
        if stream {
            assert!(answer.body.ends_with("data: [DONE]\n\n"), "{}", answer.body);
        } else {
            assert_eq!(answer.json()["usage"]["completion_tokens"], 20);
        }
        assert_eq!(server.seen.cancelled.load(Ordering::SeqCst), 0);
        assert!(!server.has_line("client closed"));
    }
}

/// A client that sent its next request already is noticed as well.
#[test]
fn a_pipelining_client_goes() {
    let server = Playing::start(slow());
    let mut body = question("x");
    body["max_tokens"] = json!(2000);
    let one = post("/v1/chat/completions", &body.to_string()).replace("Connection: close\r\n", "");
    let mut socket = server.connect();
    socket.write_all(format!("{one}{one}").as_bytes()).unwrap();
    is_busy(&server, 1);
    drop(socket);
    is_free(&server);
    assert_eq!(server.seen.started.load(Ordering::SeqCst), 1);
}

/// HTTP/1.0 knows no interim response, so the end of sending counts as the end.
#[test]
fn an_old_client_goes() {
    let server = Playing::start(slow());
    let mut body = question("x");
    body["max_tokens"] = json!(2000);
    let one = post("/v1/chat/completions", &body.to_string()).replace("HTTP/1.1", "HTTP/1.0");
    let mut socket = server.connect();
    socket.write_all(one.as_bytes()).unwrap();
    is_busy(&server, 1);
    drop(socket);
    is_free(&server);
}
