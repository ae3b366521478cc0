//! Each way of writing reasoning and calls, whole and cut into pieces of any length.

use super::*;
use serde_json::json;

fn tools() -> Vec<Value> {
    vec![json!({"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}})]
}

fn expected(calls: CallStyle) -> Expected {
    let style = Style { thinks: true, calls, knows_tools: true };
    Expected { style, tools: tools(), forced: false, in_reasoning: false, plain: false }
}

/// Neighbouring parts of a kind joined.
fn joined(parts: Vec<Part>) -> Vec<Part> {
    let mut all: Vec<Part> = Vec::new();
    for part in parts {
        match (all.last_mut(), part) {
            (Some(Part::Text(text)), Part::Text(more))
            | (Some(Part::Reasoning(text)), Part::Reasoning(more))
            | (Some(Part::Arguments(text)), Part::Arguments(more)) => text.push_str(&more),
            (_, part) => all.push(part),
        }
    }
    all
}

/// The parts of a text, which must not depend on how it is cut.
fn split(expected: &Expected, text: &str) -> Vec<Part> {
    let run = |pieces: Vec<&str>| {
        let mut splitter = Splitter::new(expected.clone());
        let mut parts: Vec<Part> = pieces.into_iter().flat_map(|piece| splitter.push(piece)).collect();
        parts.extend(splitter.finish());
        joined(parts)
    };
    let whole = run(vec![text]);
    for length in [1, 2, 3, 7] {
        let mut pieces = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let end = (length..=rest.len()).find(|end| rest.is_char_boundary(*end)).unwrap_or(rest.len());
            pieces.push(&rest[..end]);
            rest = &rest[end..];
        }
        assert_eq!(run(pieces), whole, "cut by {length}: {text}");
    }
    whole
}

fn text(text: &str) -> Part {
    Part::Text(text.to_owned())
}

fn reasoning(text: &str) -> Part {
    Part::Reasoning(text.to_owned())
}

fn call(name: &str, arguments: &str) -> Vec<Part> {
    let mut parts = vec![Part::Call { name: name.to_owned() }];
    if !arguments.is_empty() {
        parts.push(Part::Arguments(arguments.to_owned()));
    }
    parts.push(Part::CallEnd);
    parts
}

#[test]
fn plain_text_stays_as_it_is() {
    let expected = expected(CallStyle::Tagged);
    assert_eq!(split(&expected, "Hello, wörld!\n\n  x < y"), [text("Hello, wörld!\n\n  x < y")]);
    assert_eq!(split(&expected, "a <tool b"), [text("a <tool b")]);
    assert_eq!(split(&expected, ""), []);
    let without = Expected { tools: Vec::new(), ..expected };
    assert_eq!(split(&without, "<tool_call>{}</tool_call> "), [text("<tool_call>{}</tool_call> ")]);
}

#[test]
fn reasoning_comes_apart() {
    let mut expected = expected(CallStyle::Tagged);
    assert_eq!(split(&expected, "<think>\nhm, 2 < 3\n</think>\n\nYes"), [reasoning("hm, 2 < 3"), text("Yes")]);
    assert_eq!(split(&expected, "\n<think></think>Yes"), [text("Yes")]);
    assert_eq!(split(&expected, "No <think> here"), [text("No <think> here")]);
    expected.in_reasoning = true;
    assert_eq!(split(&expected, "hm</think>Yes"), [reasoning("hm"), text("Yes")]);
    assert_eq!(split(&expected, "cut off </thi"), [reasoning("cut off </thi")]);
    expected.in_reasoning = false;
    expected.style.thinks = false;
    assert_eq!(split(&expected, "<think>x</think>"), [text("<think>x</think>")]);
}

#[test]
fn tagged_calls_come_apart() {
    let expected = expected(CallStyle::Tagged);
    let answer = "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Ky\\\"}o\", \"n\": [1, {}]}}\n</tool_call>\n\
                  <tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"b\"}</tool_call>";
    let mut wanted = vec![text("I look.")];
    wanted.extend(call("get_weather", "{\"city\": \"Ky\\\"}o\", \"n\": [1, {}]}"));
    wanted.extend(call("b", "{\"a\": 1}"));
    assert_eq!(split(&expected, answer), wanted);
    // Arguments in quotes, none at all, cut off.
    assert_eq!(
        split(&expected, r#"<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>"#),
        call("f", "{\"a\": 1}")
    );
    assert_eq!(split(&expected, r#"<tool_call>{"name": "f"}</tool_call>"#), call("f", ""));
    assert_eq!(split(&expected, r#"<tool_call>{"name": "f", "arguments": {"a": [1"#), call("f", "{\"a\": [1"));
    let mut wanted = vec![reasoning("think first")];
    wanted.extend(call("f", "{}"));
    wanted.push(text("done"));
    assert_eq!(
        split(
            &expected,
            "<think>think first</think>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\ndone"
        ),
        wanted
    );
}

#[test]
fn what_only_looks_like_a_call_is_text() {
    let expected = expected(CallStyle::Tagged);
    assert_eq!(split(&expected, "<tool_call>{\"x\": 1}</tool_call>")[0], text("{\"x\": 1}</tool_call>"));
    assert_eq!(split(&expected, "<tool_call>abc"), [text("<tool_call>abc")]);
}

#[test]
fn functions_in_tags_come_apart() {
    let expected = expected(CallStyle::Tagged);
    let answer = "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>";
    assert_eq!(split(&expected, answer), call("get_weather", r#"{"city":"12","days":3}"#));
}

#[test]
fn listed_calls_come_apart() {
    let mut expected = expected(CallStyle::Listed);
    let answer = "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]";
    let wanted: Vec<Part> = call("f", "{\"a\": 1}").into_iter().chain(call("g", "{}")).collect();
    assert_eq!(split(&expected, answer), wanted);
    assert_eq!(split(&expected, "[TOOL_CALLS]f[ARGS]{\"a\": {\"b\": 1}}"), call("f", "{\"a\": {\"b\": 1}}"));
    assert_eq!(split(&expected, "See [1]."), [text("See [1].")]);
    expected.forced = true;
    assert_eq!(split(&expected, "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]"), call("f", "{\"a\": 1}"));
}

#[test]
fn bare_calls_come_apart() {
    let expected = expected(CallStyle::Bare);
    assert_eq!(split(&expected, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}"), call("f", "{\"a\": 1}"));
    assert_eq!(split(&expected, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}"), call("f", "{}"));
    assert_eq!(split(&expected, "{\"answer\": 1}"), [text("{\"answer\": 1}")]);
    assert_eq!(split(&expected, "{\"name\": \"f\", \"paramet")[0], text("{\"name\": \"f\", \"paramet"));
    assert_eq!(split(&expected, "Just text {\"name\": \"f\"}"), [text("Just text {\"name\": \"f\"}")]);
}

#[test]
fn arguments_stream_while_they_are_written() {
    let mut splitter = Splitter::new(expected(CallStyle::Tagged));
    assert_eq!(
        splitter.push("<tool_call>\n{\"name\": \"write\", \"arguments\": {\"text\": \"a"),
        [Part::Call { name: "write".to_owned() }, Part::Arguments("{\"text\": \"a".to_owned()),]
    );
    assert_eq!(splitter.push("b"), [Part::Arguments("b".to_owned())]);
    assert_eq!(splitter.push("\"}}"), [Part::Arguments("\"}".to_owned()), Part::CallEnd]);
    assert_eq!(splitter.calls(), 1);
}

#[test]
fn the_style_is_read_off_the_template() {
    let style = |text: &str| Style::of_template(Some(text));
    assert_eq!(style("{% if tools %}<tool_call>{% endif %}").calls, CallStyle::Tagged);
    assert_eq!(style("{% if tools %}[TOOL_CALLS]{% endif %}").calls, CallStyle::Listed);
    assert_eq!(style("{% if tools %}\"parameters\"{% endif %}").calls, CallStyle::Bare);
    let plain = style("{{ message.tool_calls }} {{ my_tools }}");
    assert!(!plain.knows_tools && !plain.thinks && plain.calls == CallStyle::Tagged);
    assert!(style("</think>").begins_in_reasoning("<|im_start|>assistant\n<think>\n"));
    assert!(!style("</think>").begins_in_reasoning("<think>\n\n</think>\n\n"));
}
