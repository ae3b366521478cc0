//! Whatever comes in, the server answers with a status or closes, and goes on.

use crate::support::{Playing, Script, post, question};
use serde_json::json;
use std::io::Write;

#[test]
fn no_body_gets_a_500() {
    let server = Playing::start(Script::default());
    let deep = |open: &str, close: &str, n: usize| format!("{}{}", open.repeat(n), close.repeat(n));
    let bodies: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"   ".to_vec(),
        b"{".to_vec(),
        b"null".to_vec(),
        b"{\"messages\": [}".to_vec(),
        b"\xff\xfe{\"messages\": []}".to_vec(),
        b"{\"messages\": [{\"role\": \"user\", \"content\": \"\xc3\x28\"}]}".to_vec(),
        b"{\"messages\": [{\"role\": \"user\", \"content\": \"\\ud800\"}]}".to_vec(),
        deep("[", "]", 100_000).into_bytes(),
        format!("{{\"messages\": {}}}", deep("{\"a\":", "}", 50_000)).into_bytes(),
        b"{\"temperature\": 1e999, \"messages\": []}".to_vec(),
        b"{\"max_tokens\": 99999999999999999999999, \"messages\": [{\"role\":\"user\",\"content\":\"x\"}]}".to_vec(),
        format!("{{\"{}\": 1, \"messages\": [{{\"role\":\"user\",\"content\":\"x\"}}]}}", "k".repeat(100_000))
            .into_bytes(),
    ];
    for path in ["/v1/chat/completions", "/v1/completions"] {
        for body in &bodies {
            let mut request = format!(
                "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                body.len()
            )
            .into_bytes();
            request.extend_from_slice(body);
            let answer = server.send_bytes(&request);
            assert_eq!(answer.status, 400, "{}: {}", String::from_utf8_lossy(&body[..body.len().min(80)]), answer.body);
            assert!(answer.body.len() < 2000, "an error does not repeat what was sent");
        }
    }
    assert_eq!(server.chat(&question("x")).status, 200);
}

/// Every field with a value of every kind: an error of the client's or an answer, never ours.
#[test]
fn every_field_with_every_kind_of_value() {
    let server = Playing::start(Script::default());
    let fields = [
        "model",
        "messages",
        "tools",
        "tool_choice",
        "response_format",
        "chat_template_kwargs",
        "reasoning_effort",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repeat_penalty",
        "repeat_last_n",
        "presence_penalty",
        "frequency_penalty",
        "seed",
        "logit_bias",
        "stop",
        "max_tokens",
        "max_completion_tokens",
        "n",
        "logprobs",
        "top_logprobs",
        "parallel_tool_calls",
        "stream_options",
        "metadata",
        "modalities",
        "audio",
        "functions",
    ];
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(1e308),
        json!(u64::MAX),
        json!(""),
        json!("x"),
        json!([]),
        json!([null]),
        json!([[]]),
        json!([{}]),
        json!({}),
        json!({"type": "x"}),
        json!({"a": {"b": []}}),
        json!([{"role": "user", "content": [{}]}]),
        json!({"type": "function", "function": {}}),
        json!([{"type": "function"}]),
    ];
    for field in fields {
        for value in &values {
            let mut body = question("x");
            body[field] = value.clone();
            let answer = server.chat(&body);
            assert!([200, 400, 429].contains(&answer.status), "{field} {value}: {} {}", answer.status, answer.body);
        }
    }
}

#[test]
fn broken_http_gets_a_status_or_a_closed_connection() {
    let server = Playing::start(Script::default());
    for bytes in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".as_slice(),
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: abc\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"TRACE /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /page/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ] {
        let mut socket = server.connect();
        socket.write_all(bytes).unwrap();
        socket.shutdown(std::net::Shutdown::Write).unwrap();
        let mut out = Vec::new();
        let _ = std::io::Read::read_to_end(&mut socket, &mut out);
        let text = String::from_utf8_lossy(&out);
        assert!(out.is_empty() || text.starts_with("HTTP/1."), "{text}");
        assert!(!text.starts_with("HTTP/1.1 5"), "{}: {text}", String::from_utf8_lossy(bytes));
        assert!(!text.contains("root:"));
    }
    assert_eq!(server.get("/health").status, 200);
}

/// Two requests in one piece get two answers, in their order.
#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Playing::start(Script::default());
    let chat = post("/v1/chat/completions", &question("x").to_string()).replace("Connection: close\r\n", "");
    let last = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut socket = server.connect();
    socket.write_all(format!("{chat}{chat}{last}").as_bytes()).unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut socket, &mut text).unwrap();
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 3, "{text}");
    assert!(text.rfind("\"object\":\"list\"").unwrap() > text.rfind("chat.completion").unwrap());
}

#[test]
fn an_old_client_is_answered() {
    let server = Playing::start(Script::default());
    let mut body = question("x");
    body["stream"] = json!(true);
    let request = post("/v1/chat/completions", &body.to_string()).replace("HTTP/1.1", "HTTP/1.0");
    let answer = server.send(&request);
    assert_eq!(answer.status, 200);
    assert!(answer.body.ends_with("data: [DONE]\n\n"), "{}", answer.body);
}
