//! Templates of the known shapes, written for these tests, and templates that misbehave.

use crate::support::gguf;
use serde_json::json;
use std::time::{Duration, SystemTime};
use strata_diag::Diagnose;
use strata_model::TextError;
use strata_model::chat::{ChatTemplate, Content, Message, RenderOptions};
use strata_model::tokenizer::{TokenKind, Tokenizer, TokenizerData};

fn tokenizer() -> Tokenizer {
    let mut data =
        TokenizerData { model: "llama", tokens: vec!["<unk>", "<s>", "</s>", "a"], ..TokenizerData::default() };
    data.kinds = vec![TokenKind::Unknown, TokenKind::Control, TokenKind::Control, TokenKind::Normal];
    data.scores = vec![0.0; 4];
    Tokenizer::from_data(&data).unwrap()
}

fn template(source: &str) -> Result<ChatTemplate, TextError> {
    ChatTemplate::from_sources(&[("default", source)], &tokenizer())
}

fn options(add_generation_prompt: bool) -> RenderOptions {
    RenderOptions { add_generation_prompt, ..RenderOptions::answer() }
}

fn messages(list: &serde_json::Value) -> Vec<Message> {
    list.as_array().unwrap().iter().map(|message| Message::from_json(message).unwrap()).collect()
}

#[track_caller]
fn render(source: &str, list: &serde_json::Value, tools: Option<&serde_json::Value>) -> String {
    template(source).unwrap().render(&messages(list), tools, &options(true)).unwrap()
}

/// An expression's text.
#[track_caller]
fn expression(source: &str) -> String {
    render(source, &json!([{"role": "user", "content": "hi"}]), None)
}

const CHATML: &str = "{% for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
";

#[test]
fn chatml() {
    let chat = json!([{"role": "user", "content": " Hi "}, {"role": "assistant", "content": "Yes?"}]);
    let expected = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n";
    assert_eq!(render(CHATML, &chat, None), format!("{expected}<|im_start|>assistant\n"));
    let without = template(CHATML).unwrap().render(&messages(&chat), None, &options(false)).unwrap();
    assert_eq!(without, expected);
}

#[test]
fn llama3_headers_with_a_date() {
    let source = "{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: ' + date_string + '\\n\\n' + system_message + '<|eot_id|>' }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}";
    let chat = messages(&json!([{"role": "system", "content": "S "}, {"role": "user", "content": "U"}]));
    let mut options = options(true);
    options.now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_785_542_400);
    let template = template(source).unwrap();
    let text = template.render(&chat, None, &options).unwrap();
    assert_eq!(
        text,
        "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 01 Aug 2026\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    );
    options.extra.insert("date_string".into(), "1 May".into());
    assert!(template.render(&chat, None, &options).unwrap().contains("Today Date: 1 May\n"));
}

#[test]
fn gemma_turns_with_content_in_parts() {
    let source = "{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = '' -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else '') }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}{{ raise_exception('Invalid content type') }}{%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}";
    let chat = json!([
        {"role": "system", "content": "S"},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " what? "}]},
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": "Sure?"},
    ]);
    assert_eq!(
        render(source, &chat, None),
        "<s><start_of_turn>user\nS\n\n<start_of_image>what?<end_of_turn>\n<start_of_turn>model\nA cat.<end_of_turn>\n<start_of_turn>user\nSure?<end_of_turn>\n<start_of_turn>model\n"
    );
    let wrong = messages(&json!([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]));
    let error = template(source).unwrap().render(&wrong, None, &options(true)).unwrap_err();
    assert!(matches!(&error, TextError::TemplateRefused { text } if text.starts_with("Conversation roles")), "{error}");
    assert_eq!(error.code().id, "S0205");
    let nothing = [Message { content: Content::Null, ..Message::text("user", "") }];
    let error = template(source).unwrap().render(&nothing, None, &options(true)).unwrap_err();
    assert_eq!(error.to_string(), "the chat template refuses these messages: Invalid content type");
}

const QWEN: &str = r##"{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {{- "# Tools\n\nYou may call one or more functions.\n\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and not(message.content.startswith('<tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {%- set content = message.content or '' %}
        {%- if '</think>' in content %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\n' + content }}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\n<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}"##;

#[test]
fn qwen_tools_and_thinking() {
    let tools = json!([{"type": "function", "function": {
        "name": "weather", "description": "Tells <the> weather of 東京 & more, \"now\"",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]);
    let chat = json!([
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\", \"days\": 2, \"t\": 1.50}"}}]},
        {"role": "tool", "content": "yes"},
        {"role": "tool", "content": "much"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."},
        {"role": "user", "content": "Thanks"},
    ]);
    let head = concat!(
        "<|im_start|>system\n# Tools\n\nYou may call one or more functions.\n\n<tools>\n",
        r#"{"type": "function", "function": {"name": "weather", "description": "Tells <the> weather of 東京 & more, \"now\"", "#,
        r#""parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}"#,
        "\n</tools><|im_end|>\n<|im_start|>user\nRain?<|im_end|>\n<|im_start|>assistant\n\n<tool_call>\n",
        r#"{"name": "weather", "arguments": {"city": "Oslo", "days": 2, "t": 1.5}}"#,
        "\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nyes\n</tool_response>\n<tool_response>\nmuch\n</tool_response><|im_end|>\n",
        "<|im_start|>assistant\nYes.<|im_end|>\n<|im_start|>user\nThanks<|im_end|>\n<|im_start|>assistant\n",
    );
    assert_eq!(render(QWEN, &chat, Some(&tools)), head);
    let mut options = options(true);
    options.extra.insert("enable_thinking".into(), false.into());
    let text = template(QWEN).unwrap().render(&messages(&chat), Some(&tools), &options).unwrap();
    assert_eq!(text, format!("{head}<think>\n\n</think>\n\n"));
}

#[test]
fn mistral_instructions() {
    let source = "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}";
    let chat = json!([
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
    ]);
    assert_eq!(render(source, &chat, None), "<s>[INST] a [/INST]b</s>[INST] c [/INST]");
    let error = template(source).unwrap().render(&[Message::text("system", "x")], None, &options(true)).unwrap_err();
    assert!(matches!(error, TextError::TemplateRefused { text } if text == "roles must alternate"));
}

/// A refusal inside a macro is still the refusal, not the macro's error.
#[test]
fn refusals_in_macros() {
    let source = "{% macro check(m) %}{% if m.role != 'user' %}{{ raise_exception('no ' ~ m.role) }}{% endif %}{% endmacro %}{% for m in messages %}{{ check(m) }}{% endfor %}";
    let error = template(source).unwrap().render(&[Message::text("bot", "x")], None, &options(true)).unwrap_err();
    assert!(matches!(error, TextError::TemplateRefused { text } if text == "no bot"));
}

#[test]
fn python_habits() {
    for (source, expected) in [
        ("{{ {'b': 1, 'a': [1.0, true, none, 'é\"']} | tojson }}", r#"{"b": 1, "a": [1.0, true, null, "é\""]}"#),
        ("{{ {'b': 'é\u{1f355}\u{1}'} | tojson(ensure_ascii=true) }}", r#"{"b": "\u00e9\ud83c\udf55\u0001"}"#),
        (
            "{{ {'b': [1, 2], 'a': {}, 'c': []} | tojson(indent=2) }}",
            "{\n  \"b\": [\n    1,\n    2\n  ],\n  \"a\": {},\n  \"c\": []\n}",
        ),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}", r#"{"a": 2, "b": 1}"#),
        ("{{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}", r#"[1,{"a":2}]"#),
        ("{{ '</s><b>\\'' | tojson }}", r#""</s><b>'""#),
        ("{% for k, v in {'x': 1, 'y': 2}.items() %}{{ k }}={{ v }};{% endfor %}", "x=1;y=2;"),
        ("{% for k, v in {'x': 1}|items %}{{ k }}{{ v }}{% endfor %}", "x1"),
        (
            "{{ 'a,b'.split(',')[1] }}{{ ' x '.strip() }}{{ 'abc'[1:] }}{{ 'ab'.upper() }}{{ 'x'.endswith('x') }}",
            "bxbcABTrue",
        ),
        ("{{ messages[0].get('name', 'nobody') }}|{{ messages[0].nothing }}|{{ nothing is defined }}", "nobody||False"),
        (
            "{% set ns = namespace(n=0) %}{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{% if i == 1 %}{% continue %}{% endif %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
            "2",
        ),
        ("  {% if true %}\n  x\n  {% endif %}\n", "  x\n"),
        ("{{ none is iterable }}{{ 'a' is iterable }}{{ [] is iterable }}{{ 1 is iterable }}", "FalseTrueTrueFalse"),
        (
            "{{ 'a' is sequence }}{{ {} is sequence }}{{ range(3) is sequence }}{{ none is sequence }}",
            "TrueTrueTrueFalse",
        ),
        ("{{ 'x' | int }}{{ '' | int(7) }}{{ '12' | int + 1 }}{{ 3.9 | int }}{{ 'x' | int(default=4) }}", "071334"),
        (
            "{{ 'ab'.removeprefix('a') }}{{ 'ab'.removesuffix('b') }}{{ 'a-b-c'.rsplit('-', 1)[0] }}{{ 'a-b'.rsplit('-') | length }}",
            "baa-b2",
        ),
        (
            "{{ 'k: v: w'.partition(': ')[2] }}|{{ 'k: v: w'.rpartition(': ')[0] }}|{{ 'x'.partition(':') | join(',') }}",
            "v: w|k: v|x,,",
        ),
        ("{% generation %}a{% endgeneration %}b", "ab"),
        ("{{ tools is none }}{{ tools is defined }}{{ documents is none }}", "TrueTrueTrue"),
        ("{{ eos_token }}{{ unk_token }}{{ pad_token }}", "</s><unk>"),
        ("{{ messages[0].content is string }}{{ messages is sequence }}{{ messages[0] is mapping }}", "TrueTrueTrue"),
        (
            "{{ messages | map(attribute='role') | join(',') }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
            "user1",
        ),
        ("{{ 'a' ~ 1 ~ none }}{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 ** 3 }}", "a1None338"),
        ("{{ ('x' if false) }}|{{ '%s-%d' | format('a', 3) }}|{{ 'b' in ['a', 'b'] }}", "|a-3|True"),
    ] {
        assert_eq!(expression(source), expected, "{source}");
    }
}

#[test]
fn wrong_templates_say_the_line() {
    let error = template("a\nb\n{% if x %}").unwrap_err();
    assert!(matches!(&error, TextError::BadChatTemplate { line: Some(3), .. }), "{error:?}");
    assert_eq!(error.code().id, "S0204");
    let running = template("a\n{{ messages[0].content.nothing.more }}").unwrap();
    let error = running.render(&[Message::text("user", "x")], None, &options(true)).unwrap_err();
    assert!(matches!(&error, TextError::BadChatTemplate { line: Some(2), .. }), "{error:?}");
    let unknown = template("{{ x | nofilter }}").and_then(|template| template.render(&[], None, &options(true)));
    assert!(matches!(unknown, Err(TextError::BadChatTemplate { .. })));
}

/// Whatever a template does, it comes to an end with an error and without much memory.
#[test]
fn hostile_templates_end() {
    for source in [
        "{% set ns = namespace(x=[]) %}{% for j in range(1000) %}{% for i in range(90000) %}{% set ns.x = [[[[[[[[ns.x]]]]]]]] %}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{% set ns = namespace(x='ab') %}{% for i in range(1000) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{{ 'x' * 100000000000 }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}",
        "{{ [[1] * 10000] * 10000 }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ {'a': 1} | tojson(indent=1000000000000) * 1000000000 }}",
        "{% include 'default' %}",
        "{% extends 'default' %}",
        "{{ range(10000000000) | list }}",
    ] {
        let result = template(source).and_then(|template| template.render(&[], None, &options(true)));
        assert!(matches!(result, Err(TextError::BadChatTemplate { .. })), "{source}: {result:?}");
    }
}

/// What the interpreter's fuel does not see: values that hold themselves, and sums of lists that
/// double. Rendering such a thing in this process would abort it or fill the machine's memory.
#[test]
fn values_without_end_end() {
    let itself = "{% set ns = namespace() %}{% set ns.a = ns %}";
    let through_a_list = "{% set ns = namespace() %}{% set ns.a = [1, ns] %}";
    let each_other = "{% set ns = namespace() %}{% set other = namespace(b=ns) %}{% set ns.a = other %}";
    let twins = "{% set ns = namespace() %}{% set ns.a = ns %}{% set o = namespace() %}{% set o.a = o %}";
    let doubled = |start: &str| {
        format!(
            "{{% set ns = namespace(s={start}) %}}{{% for i in range(60) %}}{{% set ns.s = ns.s + ns.s %}}{{% endfor %}}"
        )
    };
    let nested = "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}";
    let mut sources = Vec::new();
    for value in [itself, through_a_list, each_other] {
        for use_of_it in ["{{ ns }}", "{{ ns | tojson }}", "{{ ns | string }}", "{{ ns ~ '' }}", "{{ [ns] | join }}"] {
            sources.push(format!("{value}{use_of_it}"));
        }
    }
    sources.push(format!("{twins}{{{{ ns == o }}}}"));
    sources.push(doubled("[1]") + "{{ ns.s | length }}");
    sources.push(doubled("(1,)") + "{{ ns.s | length }}");
    sources.push(doubled("'a'") + "{{ ns.s | length }}");
    sources.push(doubled("[1] * 1000") + "{{ ns.s[0] }}");
    sources.push(doubled("[1][:]") + "{{ ns.s | join }}");
    sources.push(format!("{nested}{{{{ ns.s }}}}"));
    sources.push(format!("{nested}{{{{ ns.s | tojson }}}}"));
    for source in sources {
        let start = std::time::Instant::now();
        let result = template(&source).and_then(|template| template.render(&[], None, &options(true)));
        assert!(matches!(&result, Err(TextError::BadChatTemplate { .. })), "{source}: {result:?}");
        assert!(start.elapsed().as_secs() < 60, "{source}: {:?}", start.elapsed());
    }
}

/// Sources that are as deep as they are long, and one that is too long.
#[test]
fn deep_and_long_sources_end() {
    for part in ["-", "()", "[0]", " not", "{%elif x%}", "(", "{%if x%}"] {
        let source = format!(
            "{{% if x %}}{}{{{{ x{} }}}}",
            if part.len() > 4 { part.repeat(6000) } else { String::new() },
            part.repeat(60_000 / part.len())
        );
        let result = template(&source).and_then(|template| template.render(&[], None, &options(true)));
        assert!(matches!(result, Err(TextError::BadChatTemplate { .. })), "{part}");
    }
    let deep = format!("{{{{ {}1 }}}}", "-".repeat(60_000));
    assert_eq!(expression(&deep), "1");
    let error = template(&"a".repeat(100_000)).unwrap_err();
    assert!(error.to_string().contains("100000 bytes"), "{error}");
}

#[test]
fn long_chats_have_fuel_enough() {
    let chat: Vec<Message> = (0..4000)
        .map(|turn| Message::text(if turn % 2 == 0 { "user" } else { "assistant" }, "word ".repeat(500)))
        .collect();
    for source in [CHATML, QWEN] {
        let text = template(source).unwrap().render(&chat, None, &options(true)).unwrap();
        assert!(text.len() > 4000 * 2500);
    }
    let chat: Vec<Message> = (0..20_000).map(|_| Message::text("user", "a")).collect();
    assert!(template(QWEN).unwrap().render(&chat, None, &options(true)).is_ok());
}

#[test]
fn variants_come_from_the_file() {
    let file = gguf(&[
        ("tokenizer.chat_template", "plain".into()),
        ("tokenizer.chat_template.tool_use", "with tools {{ tools | length }}".into()),
        ("tokenizer.chat_template.rag", "{{ documents | length }}".into()),
    ]);
    let template = ChatTemplate::from_gguf(&file, &tokenizer()).unwrap();
    assert_eq!(template.names(), ["default", "tool_use", "rag"]);
    assert_eq!(template.source(), "plain");
    assert_eq!(template.render(&[], None, &options(true)).unwrap(), "plain");
    assert_eq!(template.render(&[], Some(&json!([1])), &options(true)).unwrap(), "with tools 1");
    let mut rag = RenderOptions { variant: Some("rag".into()), ..options(true) };
    rag.extra.insert("documents".into(), json!([1, 2]));
    assert_eq!(template.render(&[], None, &rag).unwrap(), "2");
    rag.variant = Some("other".into());
    let error = template.render(&[], None, &rag).unwrap_err();
    assert_eq!(error.to_string(), "the model has no chat template named `other`");
}

#[test]
fn no_template_is_said_with_what_to_do() {
    let error = ChatTemplate::from_gguf(&gguf(&[]), &tokenizer()).unwrap_err();
    assert_eq!((error.code().id, error.to_string().as_str()), ("S0203", "the model has no chat template"));
    assert!(error.hints()[0].contains("`--raw`"));
}

#[test]
fn messages_from_json_are_checked() {
    for wrong in
        [json!("x"), json!({"content": "x"}), json!({"role": 1, "content": "x"}), json!({"role": "user", "content": 5})]
    {
        assert!(Message::from_json(&wrong).is_err(), "{wrong}");
    }
    let kept = Message::from_json(&json!({"name": "n", "role": "tool", "tool_call_id": "c"})).unwrap();
    assert_eq!(kept.content, Content::Absent);
    assert_eq!(kept.fields.keys().collect::<Vec<_>>(), ["name", "tool_call_id"]);
    // Arguments that are no JSON object stay the text they are.
    let call = json!({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "not json"}}]});
    assert_eq!(Message::from_json(&call).unwrap().fields["tool_calls"][0]["function"]["arguments"], "not json");
}
