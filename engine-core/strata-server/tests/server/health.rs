//! Alive, ready, busy; what the server tells of itself; how it stops.

use crate::support::{Answer, Playing, Script, question, until};
use serde_json::json;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use strata_diag::Diagnostic;
use strata_diag::catalogue::model::BAD_MODEL;
use strata_server::{Server, ServerOptions};

#[test]
fn e21_health_while_loading_ready_and_busy() {
    let start = Instant::now();
    let script = Script {
        loading: Duration::from_secs(5),
        slots: 1,
        pieces: vec!["x".to_owned(); 30],
        delay: Duration::from_millis(50),
        ..Script::default()
    };
    let server = Playing::with(script, |options| {
        options.keys.add("the-right-key").unwrap();
        options.most_waiting = 0;
    });
    let health = server.get("/health");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(health.status, 503);
    assert_eq!(health.json()["status"], "loading");
    let with_key = |method: &str, path: &str, body: &str| {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer the-right-key\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let body = question("x").to_string();
    let chat = with_key("POST", "/v1/chat/completions", &body);
    server.send(&with_key("GET", "/v1/models", "")).is_error(503, "S0811");
    let answer = server.send(&chat);
    answer.is_error(503, "S0811");
    assert!(answer.headers.contains_key("retry-after"));

    until(Duration::from_secs(10), "ready", || server.get("/health").status == 200);
    assert_eq!(server.get("/health").json()["backend"]["plugin"], "scripted");
    assert_eq!(server.send(&with_key("GET", "/v1/models", "")).json()["data"][0]["id"], "scripted");

    // All slots busy: healthy, and one more is told when to come again.
    let mut busy = server.connect();
    busy.write_all(chat.as_bytes()).unwrap();
    until(Duration::from_secs(2), "busy", || server.seen.active.load(Ordering::SeqCst) == 1);
    assert_eq!(server.get("/health").status, 200);
    let answer = server.send(&chat);
    answer.is_error(429, "S0812");
    assert!(answer.headers["retry-after"].parse::<u64>().unwrap() >= 1);
    assert_eq!(Answer::read(&mut busy).status, 200);
}

#[test]
fn e21_a_failed_load_ends_the_server() {
    let options = ServerOptions::new(vec!["127.0.0.1:0".parse().unwrap()], Arc::new(|_| {}));
    let mut server = Server::start(options, Box::new(|_| Err(Diagnostic::new(BAD_MODEL, "no good")))).unwrap();
    assert_eq!(server.wait_until_ready().unwrap_err().code.id, "S0103");
}

#[test]
fn the_queue_holds_as_many_as_it_says() {
    let script = Script { slots: 1, delay: Duration::from_millis(100), ..Script::default() };
    let server = Playing::with(script, |options| options.most_waiting = 2);
    let body = crate::support::post("/v1/chat/completions", &question("x").to_string());
    let mut streams: Vec<_> = (0..3)
        .map(|_| {
            let mut stream = server.connect();
            stream.write_all(body.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            stream
        })
        .collect();
    server.send(&body).is_error(429, "S0812");
    for stream in &mut streams {
        assert_eq!(Answer::read(stream).status, 200);
    }
    assert_eq!(server.send(&body).status, 200);
    // More choices than there are places are refused as one.
    let mut many = question("x");
    many["n"] = json!(4);
    server.chat(&many).is_error(429, "S0812");
}

#[test]
fn figures_tell_of_requests() {
    let server = Playing::start(Script::default());
    server.chat(&question("x"));
    let metrics = server.get("/metrics");
    assert!(metrics.headers["content-type"].starts_with("text/plain"));
    assert!(metrics.body.contains("strata_http_responses_total{path=\"/v1/chat/completions\",status=\"200\"} 1\n"));
    assert!(metrics.body.contains("strata_request_seconds_count 1\n"), "{}", metrics.body);
    assert!(metrics.body.contains("strata_ready 1\n"));
    let status = server.get("/v1/status").json();
    assert_eq!(status["recent"][0]["generated_tokens"], 4);
    assert_eq!(status["model"]["id"], "scripted");
    assert_eq!(status["backend"]["reason"], "a test");
    assert!(server.has_line("/v1/chat/completions: 200; prompt 1 tokens"));
}

#[test]
fn stopping_lets_answers_end_and_takes_no_new_ones() {
    let script = Script { pieces: vec!["x".to_owned(); 20], delay: Duration::from_millis(50), ..Script::default() };
    let mut server = Playing::start(script);
    let mut stream = server.connect();
    stream.write_all(crate::support::post("/v1/chat/completions", &question("x").to_string()).as_bytes()).unwrap();
    until(Duration::from_secs(2), "started", || server.seen.started.load(Ordering::SeqCst) == 1);
    server.stop();
    let answer = Answer::read(&mut stream);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["usage"]["completion_tokens"], 20);
    server.ended();
    assert!(std::net::TcpStream::connect(server.address).is_err());
}

#[test]
fn what_goes_on_too_long_is_ended_with_a_word() {
    let script = Script { pieces: vec!["x".to_owned(); 2000], delay: Duration::from_millis(50), ..Script::default() };
    let mut server = Playing::with(script, |options| options.grace = Duration::from_millis(300));
    let mut body = question("x");
    body["stream"] = json!(true);
    let mut stream = server.connect();
    stream.write_all(crate::support::post("/v1/chat/completions", &body.to_string()).as_bytes()).unwrap();
    until(Duration::from_secs(2), "started", || server.seen.started.load(Ordering::SeqCst) == 1);
    server.stop();
    let answer = Answer::read(&mut stream);
    assert!(answer.body.contains("the server is stopping"), "{}", answer.body);
    assert!(!answer.body.contains("[DONE]"));
    server.ended();
}

/// A thread that ends with requests in its hands is the server's fault, and the server goes on.
#[test]
fn a_room_that_drops_a_request_is_a_fault_of_ours() {
    let server = Playing::start(Script { drops: true, ..Script::default() });
    server.chat(&question("x")).is_error(500, "S0814");
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn the_description_of_the_interfaces_is_of_this_version_and_names_every_path() {
    let server = Playing::with(Script::default(), |_| {});
    until(Duration::from_secs(10), "ready", || server.get("/health").status == 200);
    let description = server.get("/openapi.json").json();
    assert_eq!(description["info"]["version"], env!("CARGO_PKG_VERSION"));
    let paths = description["paths"].as_object().unwrap();
    for path in ["/health", "/metrics", "/v1/status", "/v1/models", "/v1/chat/completions", "/v1/messages"] {
        assert!(paths.contains_key(path), "{path}");
    }
}
