//! Answers within a rule, of a model that knows nothing: whatever it would rather say, what comes
//! out is what the rule describes.

use std::ops::ControlFlow;

use serde_json::{Value, json};
use strata_diag::Diagnose;
use strata_diag::catalogue::engine;
use strata_engine::{
    BatchRequest, Constraint, Engine, EngineOptions, FinishReason, Finished, Grammars, Limits, Rule, SamplerSettings,
    Scheduler, generate_within,
};
use strata_model::tokenizer::Tokenizer;
use strata_plugin_host::DeviceOptions;

use crate::batch::{Listener, OPTIONS, toy_tokenizer};
use crate::plugin::cpu;
use crate::support::{SMOLLM2, open, real_model, toy};

/// With room for the blanks that such a model likes between the parts of a JSON text.
fn toy_engine() -> Engine {
    let mut writer = toy("llama");
    writer.set("llama.context_length", 2048u32);
    Engine::load(open(&writer), cpu(&DeviceOptions::default()), &EngineOptions::default()).unwrap()
}

fn sampled(seed: u64) -> SamplerSettings {
    SamplerSettings { temperature: 1.5, seed: Some(seed), ..SamplerSettings::default() }
}

fn answer(engine: &Engine, tokenizer: &Tokenizer, grammars: &Grammars, rule: &Rule, seed: u64) -> Finished {
    let mut constraint = grammars.constraint(rule).unwrap();
    let limits = Limits { max_tokens: Some(2000), ..Limits::default() };
    let constraint: Option<&mut dyn Constraint> = Some(&mut *constraint);
    let mut session = engine.session().unwrap();
    let prompt = [1 + seed as u32, 7];
    generate_within(&mut session, tokenizer, &prompt, &sampled(seed), &limits, constraint, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap()
}

/// A schema as programs write it: definitions, references, enumerations, bounds.
fn schema() -> Value {
    json!({
        "$defs": {
            "Colour": { "enum": ["red", "green", "dark blue"] },
            "Part": {
                "type": "object",
                "properties": { "id": { "type": "integer", "minimum": 0, "maximum": 99 }, "colour": { "$ref": "#/$defs/Colour" } },
                "required": ["id", "colour"],
                "additionalProperties": false
            }
        },
        "type": "object",
        "properties": {
            "name": { "type": "string", "maxLength": 8 },
            "parts": { "type": "array", "items": { "$ref": "#/$defs/Part" }, "minItems": 1, "maxItems": 2 },
            "ready": { "type": "boolean" },
            "note": { "anyOf": [{ "type": "null" }, { "type": "string", "maxLength": 4 }] }
        },
        "required": ["name", "parts", "ready", "note"],
        "additionalProperties": false
    })
}

fn keeps_to_the_schema(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let fields = value.as_object().unwrap();
    let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["name", "note", "parts", "ready"], "{text}");
    assert!(value["name"].as_str().unwrap().chars().count() <= 8, "{text}");
    assert!(value["ready"].is_boolean() && (value["note"].is_null() || value["note"].is_string()), "{text}");
    let parts = value["parts"].as_array().unwrap();
    assert!((1..=2).contains(&parts.len()), "{text}");
    for part in parts {
        assert!(part.as_object().unwrap().len() == 2 && part["id"].as_u64().unwrap() <= 99, "{text}");
        assert!(["red", "green", "dark blue"].contains(&part["colour"].as_str().unwrap()), "{text}");
    }
}

#[test]
fn an_answer_is_json_of_its_schema() {
    let (engine, tokenizer) = (toy_engine(), toy_tokenizer());
    let grammars = Grammars::new(&tokenizer).unwrap();
    let mut ended = 0;
    for seed in 0..4 {
        let finished = answer(&engine, &tokenizer, &grammars, &Rule::JsonSchema(schema()), seed);
        if finished.reason == FinishReason::End {
            keeps_to_the_schema(&finished.text);
            ended += 1;
        }
    }
    assert!(ended >= 3, "{ended} of 4 came to an end");
}

#[test]
fn regular_expressions_and_grammars_are_kept_to() {
    let (engine, tokenizer) = (toy_engine(), toy_tokenizer());
    let grammars = Grammars::new(&tokenizer).unwrap();
    let date = Rule::Regex("20[0-9]{2}-(0[1-9]|1[0-2])".to_owned());
    let sum = Rule::Grammar("start: number (\"+\" number){1,3}\nnumber: /[1-9][0-9]?/\n".to_owned());
    for seed in 0..6 {
        let text = answer(&engine, &tokenizer, &grammars, &date, seed).text;
        let bytes = text.as_bytes();
        assert!(bytes.len() == 7 && text.starts_with("20") && bytes[4] == b'-', "{text}");
        assert!((1..=12).contains(&text[5..].parse::<u8>().unwrap()), "{text}");
        let text = answer(&engine, &tokenizer, &grammars, &sum, seed).text;
        let terms: Vec<u8> = text.split('+').map(|term| term.parse().unwrap()).collect();
        assert!((2..=4).contains(&terms.len()) && terms.iter().all(|term| (1..=99).contains(term)), "{text}");
    }
    let object = answer(&engine, &tokenizer, &grammars, &Rule::JsonObject, 3);
    assert!(object.text.starts_with('{'), "{}", object.text);
}

/// In shared steps, one answer within a rule beside one without.
#[test]
fn a_rule_binds_its_own_request_only() {
    let (engine, tokenizer) = (toy_engine_for_two(), toy_tokenizer());
    let grammars = Grammars::new(&tokenizer).unwrap();
    let mut scheduler = Scheduler::new(&engine, tokenizer, &OPTIONS).unwrap();
    let [bound, free] = [true, false].map(|is_bound| {
        let listener = Listener::default();
        let request = BatchRequest {
            prompt: vec![5, 9, 200],
            sampling: sampled(4),
            limits: Limits { max_tokens: Some(30), ..Limits::default() },
            top_log_probabilities: 0,
            constraint: is_bound.then(|| grammars.constraint(&Rule::Regex("(yes|no), sir".to_owned())).unwrap()),
            sink: Box::new(listener.clone()),
        };
        scheduler.submit(request).unwrap();
        listener
    });
    while !scheduler.is_idle() {
        scheduler.step();
    }
    bound.with(|heard| {
        assert!(["yes, sir", "no, sir"].contains(&heard.text.as_str()), "{}", heard.text);
        assert_eq!(heard.finished().reason, FinishReason::End);
    });
    free.with(|heard| assert!(!heard.text.contains("sir"), "{}", heard.text));
}

fn toy_engine_for_two() -> Engine {
    let options = EngineOptions { sequences: 2, ..EngineOptions::default() };
    Engine::load(open(&toy("llama")), cpu(&DeviceOptions::default()), &options).unwrap()
}

#[test]
fn what_cannot_be_kept_to_is_refused_and_says_why() {
    let grammars = Grammars::new(&toy_tokenizer()).unwrap();
    let deep = format!("start: {}\"a\"{}\n", "(".repeat(50_000), ")".repeat(50_000));
    let long = "a".repeat(2 << 20);
    for (rule, why) in [
        (Rule::Regex("(unclosed".to_owned()), ""),
        (Rule::Grammar("start: nowhere\n".to_owned()), "nowhere"),
        (Rule::Grammar(deep), "brackets"),
        (Rule::Regex(long), "bytes"),
        (Rule::JsonSchema(json!([1, 2])), "object"),
        (Rule::JsonSchema(json!({ "type": "string", "pattern": "(" })), ""),
        (Rule::JsonSchema(json!({ "type": "colour" })), "colour"),
        (Rule::JsonSchema(json!({ "$ref": "#/$defs/absent" })), "absent"),
        (Rule::JsonSchema(json!({ "type": "array", "uniqueItems": true })), "uniqueItems"),
        (Rule::JsonSchema(json!({ "type": "integer", "minimum": 5, "maximum": 3 })), ""),
    ] {
        let Err(error) = grammars.constraint(&rule) else { panic!("{rule:?} was taken") };
        assert_eq!(error.code(), engine::CONSTRAINT, "{error}");
        assert!(error.to_string().contains(why) && error.to_string().len() < 700, "{error}");
    }
}

/// Vocabularies of model files are untrusted: tokens without end, and the same one over and over.
#[test]
fn odd_vocabularies_are_no_danger() {
    use strata_model::tokenizer::{TokenKind, TokenizerData};
    let long = "x".repeat(40_000);
    let same: Vec<String> = (0..30_000).map(|i| format!("<{i}>")).collect();
    let mut tokens = vec!["a", "b", &long, "</s>"];
    tokens.extend(same.iter().map(String::as_str));
    let mut kinds = vec![TokenKind::Normal; tokens.len()];
    kinds[3] = TokenKind::Control;
    let scores = vec![0.0; tokens.len()];
    let mut data = TokenizerData { model: "llama", tokens, kinds, scores, ..TokenizerData::default() };
    data.ids.eos = Some(3);
    let tokenizer = Tokenizer::from_data(&data).unwrap();
    let grammars = Grammars::new(&tokenizer).unwrap();
    let mut rule = grammars.constraint(&Rule::Regex("a+".to_owned())).unwrap();
    let mut logits = vec![0.0; tokenizer.vocab_len() + 100];
    rule.mask(&mut logits).unwrap();
    let open: Vec<usize> = (0..logits.len()).filter(|token| logits[*token] == 0.0).collect();
    assert_eq!(open, [0]);
    assert!(rule.accept(0).unwrap().is_continue());
    logits.fill(0.0);
    rule.mask(&mut logits).unwrap();
    let open: Vec<usize> = (0..logits.len()).filter(|token| logits[*token] == 0.0).collect();
    assert_eq!(open, [0, 3], "once there is one, the answer may end");
    assert!(rule.accept(1).is_err(), "a token that was not allowed");
}

#[test]
fn a_real_model_answers_in_its_schema() {
    let Some(gguf) = real_model(SMOLLM2) else { return };
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let engine = Engine::load(gguf, cpu(&DeviceOptions::default()), &EngineOptions::default()).unwrap();
    let grammars = Grammars::new(&tokenizer).unwrap();
    let mut constraint = grammars.constraint(&Rule::JsonSchema(schema())).unwrap();
    let prompt =
        tokenizer.encode_rendered("<|im_start|>user\nDescribe a bicycle as JSON.<|im_end|>\n<|im_start|>assistant\n");
    let limits = Limits { max_tokens: Some(200), ..Limits::default() };
    let constraint: Option<&mut dyn Constraint> = Some(&mut *constraint);
    let greedy = SamplerSettings::default();
    let mut session = engine.session().unwrap();
    let finished = generate_within(&mut session, &tokenizer, &prompt, &greedy, &limits, constraint, &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(finished.reason, FinishReason::End, "{}", finished.text);
    keeps_to_the_schema(&finished.text);
}
