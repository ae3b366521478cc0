//! Everything that can fail between a model file and a token, with the facts a user needs.

use std::fmt::Write;

use strata_backend_abi::{StrataDType, StrataOpKind};
use strata_diag::catalogue::{engine, general, model, plugin, text};
use strata_diag::{Code, Diagnose};
use strata_model::ModelError;
use strata_plugin_host::PluginError;

use crate::memory::MemoryPlan;

/// Why a model cannot be loaded or a request cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("architecture '{architecture}' is not one that this build runs")]
    UnsupportedArch { architecture: String, known: Vec<&'static str> },

    #[error("'{key}' is '{value}', which this build does not know")]
    UnsupportedFeature { key: String, value: String, known: Vec<&'static str> },

    #[error("metadata key '{key}' is absent")]
    MissingKey { key: String },

    #[error("metadata key '{key}' is {value}: {why}")]
    BadHyperparameter { key: String, value: String, why: String },

    #[error("tensor '{}' is absent{}", first_of(names), others(*total))]
    MissingTensors {
        architecture: String,
        /// The first few names, in the order the graph needs them.
        names: Vec<String>,
        total: usize,
        /// What is there instead, when that explains it.
        instead: Option<String>,
    },

    #[error("tensor '{tensor}' has shape {}, {} is needed", shape(found), shape(expected))]
    BadTensorShape { tensor: String, expected: Vec<u64>, found: Vec<u64> },

    #[error("tensor '{tensor}' is stored as {found}, which cannot be used there")]
    BadTensorFormat { tensor: String, found: StrataDType },

    #[error("{device} cannot run {op:?}{}: {reason}", of_layer(*layer))]
    OpUnsupported {
        device: String,
        on_cpu: bool,
        op: StrataOpKind,
        layer: Option<u32>,
        /// Of the operands.
        formats: String,
        reason: String,
    },

    #[error("the model needs {} bytes of {device}'s memory and {available} are free", plan.needed())]
    DoesNotFit {
        device: String,
        plan: Box<MemoryPlan>,
        /// Free bytes less the reserve.
        available: u64,
        /// The longest context that would fit, when any does.
        context_that_fits: Option<u64>,
    },

    #[error("{tokens} tokens do not fit a context of {context}")]
    ContextExceeded { tokens: u64, context: u64 },

    #[error("the prompt has no tokens")]
    EmptyPrompt,
    #[error("stopped while the prompt was read")]
    Cancelled,

    #[error("token {token} is outside the vocabulary of {vocabulary}")]
    UnknownToken { token: u32, vocabulary: u64 },

    #[error("{setting} is {value}, allowed is {allowed}")]
    BadSampling { setting: &'static str, value: String, allowed: &'static str },

    #[error("{option} is {value}: {why}")]
    BadOption { option: &'static str, value: String, why: String },

    #[error("the model produced {value} as a logit of token {token}")]
    NotANumber { token: u32, value: f32 },

    #[error("all {sessions} sequences of this engine are in use")]
    NoFreeSession { sessions: u32 },

    #[error("the answer cannot keep to what was asked for: {why}")]
    Constraint { why: String },

    #[error("{waiting} requests wait already behind {active} that are being answered; the limit is {limit}")]
    QueueFull { waiting: usize, limit: usize, active: usize },

    /// A step that several requests shared.
    #[error("{0}")]
    Step(std::sync::Arc<EngineError>),

    #[error("{what}")]
    BadReference { what: String },

    #[error(transparent)]
    Model(#[from] ModelError),

    #[error(transparent)]
    Plugin(#[from] PluginError),
}

impl Diagnose for EngineError {
    fn code(&self) -> &'static Code {
        match self {
            EngineError::UnsupportedArch { .. } | EngineError::UnsupportedFeature { .. } => model::UNSUPPORTED_ARCH,
            EngineError::MissingKey { .. } => model::MISSING_KEY,
            EngineError::BadHyperparameter { .. } => model::BAD_MODEL,
            EngineError::MissingTensors { .. } => model::MISSING_TENSOR,
            EngineError::BadTensorShape { .. } => model::BAD_TENSOR_SHAPE,
            EngineError::BadTensorFormat { .. } => model::UNSUPPORTED_TENSOR_TYPE,
            EngineError::OpUnsupported { .. } => plugin::OP_UNSUPPORTED,
            EngineError::DoesNotFit { .. } => engine::DOES_NOT_FIT,
            EngineError::ContextExceeded { .. } => engine::CONTEXT_EXCEEDED,
            EngineError::EmptyPrompt => engine::EMPTY_PROMPT,
            EngineError::Cancelled => general::INTERRUPTED,
            EngineError::UnknownToken { .. } => text::UNKNOWN_TOKEN,
            EngineError::BadSampling { .. } => engine::BAD_SAMPLING,
            EngineError::BadOption { .. } => general::BAD_OPTION,
            EngineError::NotANumber { .. } => engine::NOT_A_NUMBER,
            EngineError::NoFreeSession { .. } => engine::NO_FREE_SEQUENCE,
            EngineError::BadReference { .. } => engine::BAD_REFERENCE,
            EngineError::Constraint { .. } => engine::CONSTRAINT,
            EngineError::QueueFull { .. } => engine::QUEUE_FULL,
            EngineError::Step(error) => error.code(),
            EngineError::Model(error) => error.code(),
            EngineError::Plugin(error) => error.code(),
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        match self {
            EngineError::UnsupportedArch { architecture, known } => {
                vec![("architecture", architecture.clone()), ("known", known.join(", "))]
            }
            EngineError::UnsupportedFeature { key, value, known } => {
                vec![("key", key.clone()), ("value", value.clone()), ("known", known.join(", "))]
            }
            EngineError::MissingKey { key } => vec![("key", key.clone())],
            EngineError::BadHyperparameter { key, value, .. } => {
                vec![("key", key.clone()), ("value", value.clone())]
            }
            EngineError::MissingTensors { architecture, names, total, .. } => vec![
                ("architecture", architecture.clone()),
                ("missing", names.join(", ")),
                ("missing in all", total.to_string()),
            ],
            EngineError::BadTensorShape { tensor, expected, found } => {
                vec![("tensor", tensor.clone()), ("expected", shape(expected)), ("found", shape(found))]
            }
            EngineError::BadTensorFormat { tensor, found } => {
                vec![("tensor", tensor.clone()), ("format", found.to_string())]
            }
            EngineError::OpUnsupported { device, op, layer, formats, reason, .. } => vec![
                ("device", device.clone()),
                ("operation", format!("{op:?}")),
                ("layer", layer.map_or_else(|| "none".to_owned(), |layer| layer.to_string())),
                ("formats", formats.clone()),
                ("reason", reason.clone()),
            ],
            EngineError::DoesNotFit { plan, available, .. } => {
                let mut facts = plan.facts();
                facts.push(("available", format!("{available} bytes")));
                facts
            }
            EngineError::ContextExceeded { tokens, context } => {
                vec![("tokens", tokens.to_string()), ("context", context.to_string())]
            }
            EngineError::UnknownToken { token, vocabulary } => {
                vec![("token", token.to_string()), ("vocabulary", vocabulary.to_string())]
            }
            EngineError::BadSampling { setting, value, allowed } => {
                vec![("setting", (*setting).to_owned()), ("value", value.clone()), ("allowed", (*allowed).to_owned())]
            }
            EngineError::BadOption { option, value, .. } => {
                vec![("option", (*option).to_owned()), ("value", value.clone())]
            }
            EngineError::NotANumber { token, value } => {
                vec![("token", token.to_string()), ("value", value.to_string())]
            }
            EngineError::NoFreeSession { sessions } => vec![("sequences", sessions.to_string())],
            EngineError::QueueFull { waiting, limit, active } => vec![
                ("waiting", waiting.to_string()),
                ("limit", limit.to_string()),
                ("being answered", active.to_string()),
            ],
            EngineError::EmptyPrompt
            | EngineError::Cancelled
            | EngineError::Constraint { .. }
            | EngineError::BadReference { .. } => Vec::new(),
            EngineError::Step(error) => error.facts(),
            EngineError::Model(error) => error.facts(),
            EngineError::Plugin(error) => error.facts(),
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            EngineError::UnsupportedArch { .. } | EngineError::UnsupportedFeature { .. } => {
                vec!["the file itself is sound; a newer Strata may run it".to_owned()]
            }
            EngineError::MissingTensors { instead, .. } => {
                let mut hints = vec![
                    "every byte the file promises is there; downloading it again will not help".to_owned(),
                    "`strata inspect FILE` lists the tensors that it has".to_owned(),
                ];
                hints.extend(instead.clone());
                hints
            }
            EngineError::DoesNotFit { context_that_fits, plan, .. } => {
                let mut hints = Vec::new();
                if let Some(context) = context_that_fits {
                    hints.push(format!("`--max-context {context}` fits"));
                }
                if plan.cache_is_wider_than_f16() {
                    hints.push("`--kv f16` halves the cache".to_owned());
                }
                hints
            }
            EngineError::ContextExceeded { .. } => {
                vec!["shorten the prompt or raise `--max-context`".to_owned()]
            }
            EngineError::OpUnsupported { on_cpu: false, .. } => {
                vec!["`--backend cpu` runs every format that this build reads".to_owned()]
            }
            EngineError::NotANumber { .. } => {
                vec!["`strata run --precise` tells whether the file or the backend is at fault".to_owned()]
            }
            EngineError::QueueFull { .. } => vec!["ask again in a moment".to_owned()],
            EngineError::Step(error) => error.hints(),
            EngineError::Model(error) => error.hints(),
            EngineError::Plugin(error) => error.hints(),
            _ => Vec::new(),
        }
    }
}

fn first_of(names: &[String]) -> &str {
    names.first().map_or("", String::as_str)
}

fn others(total: usize) -> String {
    if total > 1 { format!(" and {} more", total - 1) } else { String::new() }
}

fn of_layer(layer: Option<u32>) -> String {
    layer.map_or_else(String::new, |layer| format!(" of layer {layer}"))
}

fn shape(ne: &[u64]) -> String {
    let mut out = String::from("[");
    for (i, n) in ne.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(out, "{}{n}", if i == 0 { "" } else { ", " });
    }
    out.push(']');
    out
}
