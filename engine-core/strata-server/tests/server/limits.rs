//! Bodies that are too long or too slow, heads that are too large, fields that are wrong.

use crate::support::{Answer, Playing, Script, post, question};
use serde_json::{Value, json};
use std::io::Write;
use std::time::{Duration, Instant};

#[test]
fn a_long_body_is_refused_by_its_length_and_by_its_bytes() {
    let server = Playing::with(Script::default(), |options| options.most_body = 1000);
    let announced =
        format!("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", 100 << 20);
    server.send(&announced).is_error(413, "S0809");
    let chunk = format!("400\r\n{}\r\n", "x".repeat(0x400));
    let chunked = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        chunk.repeat(50)
    );
    server.send(&chunked).is_error(413, "S0809");
    // A client that sends everything before it reads still gets to see why.
    let whole = post("/v1/chat/completions", &"x".repeat(4 << 20));
    server.send(&whole).is_error(413, "S0809");
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn a_slow_body_is_given_up() {
    let server = Playing::start(Script::default());
    let mut socket = server.connect();
    socket.write_all(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{").unwrap();
    let start = Instant::now();
    let answer = Answer::read(&mut socket);
    answer.is_error(408, "S0810");
    assert!((8..20).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[test]
fn large_heads_are_refused() {
    let server = Playing::start(Script::default());
    let many = (0..200).map(|n| format!("x-{n}: y\r\n")).collect::<Vec<_>>().concat();
    let answer = server.send(&format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"));
    assert_eq!(answer.status, 431);
    let long = format!("GET /health HTTP/1.1\r\nHost: localhost\r\nx: {}\r\n\r\n", "y".repeat(200 << 10));
    assert_eq!(server.send(&long).status, 431);
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn paths_and_methods_that_are_not_there() {
    let server = Playing::start(Script::default());
    server.get("/v2/nothing").is_error(404, "S0808");
    let answer = server.get("/v1/chat/completions");
    answer.is_error(405, "S0808");
    assert!(answer.headers["allow"].contains("POST"));
    assert_eq!(server.get("/v1/models/scripted").json()["id"], "scripted");
    let error = server.get("/v1/models/gpt-4o").is_error(404, "S0006");
    assert_eq!(error["code"], "model_not_found");
}

#[test]
fn wrong_fields_are_named() {
    let server = Playing::start(Script::default());
    let with = |field: &str, value: Value| {
        let mut body = question("x");
        body[field] = value;
        body
    };
    let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
    for (body, param) in [
        (json!([]), Value::Null),
        (json!({}), json!("messages")),
        (with("messages", json!([])), json!("messages")),
        (with("messages", json!("hi")), json!("messages")),
        (with("messages", json!([{"role": "robot", "content": "x"}])), json!("messages[0].role")),
        (with("messages", json!([{"content": "x"}])), json!("messages[0].role")),
        (with("messages", json!([{"role": "user"}])), json!("messages[0].content")),
        (
            with("messages", json!([{"role": "user", "content": [{"type": "text"}]}])),
            json!("messages[0].content[0].text"),
        ),
        (with("messages", json!([{"role": "tool", "content": "x"}])), json!("messages[0].tool_call_id")),
        (with("temperature", json!(3)), json!("temperature")),
        (with("temperature", json!("hot")), json!("temperature")),
        (with("top_p", json!(-0.1)), json!("top_p")),
        (with("max_tokens", json!(0)), json!("max_tokens")),
        (with("max_tokens", json!(-5)), json!("max_tokens")),
        (with("n", json!(1000)), json!("n")),
        (with("stop", json!(["a", 1])), json!("stop[1]")),
        (with("stop", json!("")), json!("stop")),
        (with("stream", json!("yes")), json!("stream")),
        (with("stream_options", json!({"include_usage": true})), json!("stream_options")),
        (with("logit_bias", json!({"abc": 1})), json!("logit_bias.abc")),
        (with("logit_bias", json!({"5": 500})), json!("logit_bias.5")),
        (with("top_logprobs", json!(3)), json!("top_logprobs")),
        (with("tools", json!([tool("a b")])), json!("tools[0].function.name")),
        (with("tools", json!([tool("a"), tool("a")])), json!("tools[1]")),
        (with("tool_choice", json!("required")), json!("tool_choice")),
        (with("seed", json!(1.5)), json!("seed")),
        (with("temprature", json!(1)), json!("temprature")),
    ] {
        let error = server.chat(&body).is_error(400, "S0805");
        assert_eq!(error["param"], param, "{body}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
    }
    for body in [
        with("messages", json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])),
        with("audio", json!({})),
        with("modalities", json!(["text", "audio"])),
        with("functions", json!([])),
    ] {
        server.chat(&body).is_error(400, "S0813");
    }
    // null is absent, as official clients mean it.
    let mut body = with("temperature", Value::Null);
    body["tools"] = Value::Null;
    assert_eq!(server.chat(&body).status, 200);
}

#[test]
fn connections_are_kept_and_closed_when_idle_too_long() {
    let server = Playing::start(Script::default());
    let mut socket = server.connect();
    for _ in 0..3 {
        socket.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut text = String::new();
        while !text.contains("}\n") {
            let mut part = [0; 4096];
            let count = std::io::Read::read(&mut socket, &mut part).unwrap();
            assert!(count > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&part[..count]));
        }
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    }
    let start = Instant::now();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut socket, &mut rest).unwrap();
    assert!((20..50).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}
