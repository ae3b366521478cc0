//! Order and end of event streams, finish reasons, tool calls, choices.

use crate::support::{Answer, Playing, Script, case, question};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::time::Duration;
use strata_server::{FailureKind, Form};

fn chunks(answer: &Answer) -> Vec<Value> {
    answer.events().iter().filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Role, contents, finish, usage if asked for, `[DONE]`: in this order and each once.
#[track_caller]
fn check_order(answer: &Answer, text: &str, finish: &str, usage: bool) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.headers["content-type"].starts_with("text/event-stream"));
    assert!(answer.body.ends_with("data: [DONE]\n\n"), "{}", answer.body);
    assert_eq!(answer.events().iter().filter(|data| *data == "[DONE]").count(), 1);
    let chunks = chunks(answer);
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let n_tail = if usage { 2 } else { 1 };
    let (contents, tail) = chunks[1..].split_at(chunks.len() - 1 - n_tail);
    let mut joined = String::new();
    for chunk in contents {
        assert_eq!(chunk["choices"][0]["finish_reason"], Value::Null);
        joined += chunk["choices"][0]["delta"]["content"].as_str().unwrap();
    }
    assert_eq!(joined, text);
    assert_eq!(tail[0]["choices"][0]["delta"], json!({}));
    assert_eq!(tail[0]["choices"][0]["finish_reason"], finish);
    if usage {
        assert_eq!(tail[1]["choices"], json!([]));
        assert!(tail[1]["usage"]["total_tokens"].as_u64().unwrap() > 0);
    }
    for chunk in &chunks[..chunks.len() - usize::from(usage)] {
        assert!(chunk["usage"].is_null());
    }
    chunks
}

#[test]
fn e13_stream_order() {
    let Some(request) = case("e13-stream-order/request.json") else { return };
    let mut request: Value = serde_json::from_str(&request).unwrap();
    let server = Playing::start(Script::default());
    let chunks = check_order(&server.chat(&request), "Hello, world", "length", true);
    assert_eq!(chunks.last().unwrap()["usage"]["completion_tokens"], 4);
    assert_eq!(chunks.last().unwrap()["usage"]["prompt_tokens"], 6);

    request.as_object_mut().unwrap().remove("stream_options");
    check_order(&server.chat(&request), "Hello, world", "length", false);

    request["max_tokens"] = json!(1);
    check_order(&server.chat(&request), "Hello", "length", false);

    request["max_tokens"] = json!(100);
    check_order(&server.chat(&request), "Hello, world", "stop", false);

    // An error in mid-stream: an error event, no finish, no end mark.
    let failing = Playing::start(Script { fails: Some((2, FailureKind::Internal)), ..Script::default() });
    let answer = failing.chat(&request);
    assert_eq!(answer.status, 200);
    assert!(!answer.body.contains("[DONE]"), "{}", answer.body);
    let chunks = self::chunks(&answer);
    let (error, before) = chunks.split_last().unwrap();
    assert!(before.iter().all(|chunk| chunk["choices"][0]["finish_reason"].is_null()));
    assert_eq!(error["error"]["type"], "server_error");
    assert_eq!(error["error"]["strata"]["code"], "S0406");
}

/// The first event is there before the second token is made.
#[test]
fn e13_first_event_comes_at_once() {
    let server = Playing::start(Script { delay: Duration::from_millis(400), ..Script::default() });
    let mut body = question("x");
    body["stream"] = json!(true);
    let mut stream = server.connect();
    stream.write_all(crate::support::post("/v1/chat/completions", &body.to_string()).as_bytes()).unwrap();
    let start = std::time::Instant::now();
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains("Hello") {
        let mut part = [0; 1024];
        let count = stream.read(&mut part).unwrap();
        assert!(count > 0);
        text.extend_from_slice(&part[..count]);
    }
    assert!(start.elapsed() < Duration::from_millis(790), "{:?}", start.elapsed());
    assert!(!String::from_utf8_lossy(&text).contains("wor"));
}

#[test]
fn e12_held_back_text() {
    let Some(table) = case("e12-held-back-text/pieces.json") else { return };
    let table: Vec<Value> = serde_json::from_str(&table).unwrap();
    for row in table {
        let pieces: Vec<String> =
            row["pieces"].as_array().unwrap().iter().map(|p| p.as_str().unwrap().to_owned()).collect();
        let n = pieces.len();
        // A script that goes on is ended by the limit.
        let more = if row["end"] == "length" { vec!["more".to_owned()] } else { Vec::new() };
        let server = Playing::start(Script { pieces: pieces.into_iter().chain(more).collect(), ..Script::default() });
        let mut body = question("x");
        body["stop"] = row["stop"].clone();
        if row["end"] == "length" {
            body["max_tokens"] = json!(n);
        }
        let whole = server.chat(&body).json();
        assert_eq!(whole["choices"][0]["message"]["content"], row["text"], "{row}");
        let finish = if row["end"] == "length" { "length" } else { "stop" };
        assert_eq!(whole["choices"][0]["finish_reason"], finish, "{row}");
        body["stream"] = json!(true);
        check_order(&server.chat(&body), row["text"].as_str().unwrap(), finish, false);
    }
}

#[test]
fn e15_prompt_too_long() {
    let server = Playing::start(Script { context: 64, pieces: vec!["a".to_owned(); 200], ..Script::default() });
    for stream in [false, true] {
        for length in [64, 65, 5000] {
            let mut body = question(&"x".repeat(length));
            body["stream"] = json!(stream);
            let error = server.chat(&body).is_error(400, "S0401");
            assert_eq!(error["code"], "context_length_exceeded");
            assert_eq!(error["strata"]["kind"], "exceed_context_size");
            assert_eq!((&error["n_prompt_tokens"], &error["n_ctx"]), (&json!(length), &json!(64)));
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(&length.to_string()) && message.contains("64"), "{message}");
        }
        let mut body = question(&"x".repeat(63));
        body["stream"] = json!(stream);
        assert_eq!(server.chat(&body).status, 200);
    }
    let whole = server.chat(&question(&"x".repeat(63))).json();
    assert_eq!(whole["usage"]["completion_tokens"], 1);
    let mut body = question(&"x".repeat(60));
    body["max_tokens"] = json!(100);
    assert_eq!(server.chat(&body).json()["choices"][0]["finish_reason"], "length");
}

#[test]
fn e18_memory_at_request() {
    let script = Script { fails: Some((0, FailureKind::OutOfMemory)), ..Script::default() };
    let server = Playing::start(script);
    for stream in [false, true] {
        let mut body = question("x");
        body["stream"] = json!(stream);
        // Nothing of the answer went out yet, so a stream has a status too.
        let answer = server.chat(&body);
        let error = answer.is_error(503, "S0319");
        assert_eq!(error["type"], "out_of_memory");
        assert!(answer.headers.contains_key("retry-after"));
        assert_eq!(server.get("/health").status, 200);
    }
}

#[test]
fn several_choices_and_log_probabilities() {
    let server = Playing::start(Script::default());
    let mut body = question("x");
    body["n"] = json!(3);
    body["seed"] = json!(5);
    body["logprobs"] = json!(true);
    body["top_logprobs"] = json!(2);
    let whole = server.chat(&body).json();
    let choices = whole["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 3);
    for (index, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], index);
        assert_eq!(choice["message"]["content"], "Hello, world");
        let tokens = choice["logprobs"]["content"].as_array().unwrap();
        assert_eq!(tokens.len(), 4);
        assert_eq!(tokens[2]["token"], "wor");
        assert_eq!(tokens[2]["bytes"], json!([119, 111, 114]));
        assert_eq!(tokens[2]["top_logprobs"].as_array().unwrap().len(), 2);
    }
    assert_eq!(whole["usage"]["prompt_tokens"], 1);
    assert_eq!(whole["usage"]["completion_tokens"], 12);
    let mut seeds: Vec<_> = server.seen.sampling.lock().unwrap().iter().map(|settings| settings.seed).collect();
    seeds.sort_unstable();
    assert_eq!(seeds, [Some(5), Some(6), Some(7)]);

    body["stream"] = json!(true);
    let answer = server.chat(&body);
    for index in 0..3 {
        let of_index: Vec<Value> =
            chunks(&answer).into_iter().filter(|chunk| chunk["choices"][0]["index"] == index).collect();
        let tokens = |chunk: &Value| chunk["choices"][0]["logprobs"]["content"].as_array().map_or(0, Vec::len);
        assert_eq!(of_index.iter().map(tokens).sum::<usize>(), 4);
        assert_eq!(of_index.last().unwrap()["choices"][0]["finish_reason"], "stop");
    }
}

#[test]
fn tool_calls_come_as_deltas_and_as_a_whole() {
    let call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Kyoto\"}}\n</tool_call>";
    let pieces: Vec<String> = call.chars().map(String::from).collect();
    let server = Playing::start(Script { pieces, ..Script::default() });
    let mut body = question("weather?");
    body["tools"] = json!([{"type": "function", "function": {"name": "get_weather", "description": "d",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]);
    let whole = server.chat(&body).json();
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], Value::Null);
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["function"], json!({"name": "get_weather", "arguments": "{\"city\": \"Kyoto\"}"}));
    assert!(call["id"].as_str().unwrap().starts_with("call_"));

    body["stream"] = json!(true);
    body["tool_choice"] = json!("required");
    let chunks = chunks(&server.chat(&body));
    let calls: Vec<&Value> = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0])
        .filter(|call| !call.is_null())
        .collect();
    assert_eq!(calls[0]["function"]["name"], "get_weather");
    assert_eq!(calls[0]["type"], "function");
    let arguments: String = calls.iter().filter_map(|call| call["function"]["arguments"].as_str()).collect();
    assert_eq!(arguments, "{\"city\": \"Kyoto\"}");
    assert!(calls.len() > 5, "arguments come while they are written");
    let forms = server.seen.forms.lock().unwrap();
    assert!(matches!(&forms[0], Form::Tools(forms) if forms[0].before.contains("get_weather")));
}

#[test]
fn one_call_ends_the_answer_when_no_more_are_wanted() {
    let call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    let script = Script { pieces: vec![call.to_owned(); 50], delay: Duration::from_millis(20), ..Script::default() };
    let server = Playing::start(script);
    let mut body = question("x");
    body["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
    body["parallel_tool_calls"] = json!(false);
    let whole = server.chat(&body).json();
    assert_eq!(whole["choices"][0]["message"]["tool_calls"].as_array().unwrap().len(), 1);
    assert_eq!(whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{}");
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    assert!(server.seen.cancelled.load(std::sync::atomic::Ordering::SeqCst) <= 1);
}

#[test]
fn reasoning_is_apart_from_the_answer() {
    let pieces = ["<think>", "\n", "hm", "\n</think>", "\n\nYes"].map(str::to_owned).to_vec();
    let template = "{{ messages }}<think></think>";
    let server = Playing::start(Script { pieces, template, ..Script::default() });
    let whole = server.chat(&question("x")).json();
    assert_eq!(whole["choices"][0]["message"]["reasoning_content"], "hm");
    assert_eq!(whole["choices"][0]["message"]["content"], "Yes");
    assert!(whole["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap() > 0);
}

#[test]
fn completions_go_on_from_texts_and_tokens() {
    let server = Playing::start(Script::default());
    let body = json!({"prompt": ["ab", "c"], "n": 2, "echo": true, "logprobs": 1, "max_tokens": 2});
    let whole = server.post("/v1/completions", &body).json();
    let texts: Vec<&str> = whole["choices"].as_array().unwrap().iter().map(|c| c["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["abHello, ", "abHello, ", "cHello, ", "cHello, "]);
    assert_eq!(whole["choices"][0]["logprobs"]["text_offset"], json!([2, 7]));
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    assert_eq!(whole["usage"]["prompt_tokens"], 3);
    let body = json!({"prompt": [97, 98], "stream": true, "stream_options": {"include_usage": true}});
    let answer = server.post("/v1/completions", &body);
    let texts: String =
        chunks(&answer).iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str().map(str::to_owned)).collect();
    assert_eq!(texts, "Hello, world");
    assert!(answer.body.ends_with("data: [DONE]\n\n"));
    for (bad, why) in [
        (json!({}), "`prompt` is needed"),
        (json!({"prompt": []}), "an array of 0 items"),
        (json!({"prompt": [1, 300]}), "no token id below 256"),
        (json!({"prompt": "x", "suffix": "y"}), "suffix"),
        (json!({"prompt": "x", "best_of": 3}), "best_of"),
    ] {
        let answer = server.post("/v1/completions", &bad);
        assert_eq!(answer.status, 400, "{bad}");
        assert!(answer.body.contains(why), "{}", answer.body);
    }
}

#[test]
fn schemas_reach_the_room() {
    let server = Playing::start(Script::default());
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let mut body = question("x");
    body["response_format"] =
        json!({"type": "json_schema", "json_schema": {"name": "s", "strict": true, "schema": schema}});
    assert_eq!(server.chat(&body).status, 200);
    body["response_format"] = json!({"type": "json_object"});
    assert_eq!(server.chat(&body).status, 200);
    body["response_format"] = json!({"type": "text"});
    assert_eq!(server.chat(&body).status, 200);
    assert_eq!(*server.seen.forms.lock().unwrap(), [Form::Schema(schema), Form::Json]);
    for bad in [json!({"type": "xml"}), json!({"type": "json_schema"}), json!({}), json!({"type": "text", "x": 1})] {
        body["response_format"] = bad;
        server.chat(&body).is_error(400, "S0805");
    }
}
