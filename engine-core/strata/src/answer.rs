//! One answer: from messages or a plain text to streamed text and its figures. Shared by `run` and
//! the chat.

use crate::model::Loaded;
use crate::outcome::Outcome;
use crate::printer;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use strata_diag::Diagnostic;
use strata_diag::catalogue::general::BAD_OPTION;
use strata_engine::{
    FinishReason, Finished, Grammars, Limits, RequestStats, Rule, SamplerSettings, Session, generate_within,
};
use strata_manifest::report::StatsReport;
use strata_model::chat::{ChatTemplate, Message, RenderOptions};

/// Set by Ctrl-C; whoever answers looks at it after each token.
pub(crate) static STOP: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Makes Ctrl-C set [`STOP`] instead of ending the program. A second one while the first was not
/// looked at yet ends it.
pub(crate) fn catch_ctrl_c() -> Result<(), Diagnostic> {
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            #[expect(clippy::exit, reason = "a signal handler has nowhere to return to")]
            std::process::exit(130);
        }
    })
    .map_err(|error| Diagnostic::new(BAD_OPTION, "Ctrl-C cannot be caught").fact("because", error))
}

/// How prompts become tokens.
pub(crate) enum Style {
    /// Messages through the model's own template.
    Chat(Box<ChatTemplate>),
    /// Text as it is.
    Raw,
}

impl Style {
    /// The model's template; without one, or when asked, raw. A missing template is said, not hidden.
    pub(crate) fn of(loaded: &Loaded, raw: bool) -> Outcome<Style> {
        if raw {
            return Ok(Style::Raw);
        }
        match ChatTemplate::from_gguf(&loaded.gguf, &loaded.tokenizer) {
            Ok(template) => Ok(Style::Chat(Box::new(template))),
            Err(error) if strata_diag::Diagnose::code(&error) == strata_diag::catalogue::text::NO_CHAT_TEMPLATE => {
                printer::talk("note: the model has no chat template, so it continues the text as it is (`--raw`)");
                Ok(Style::Raw)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Tokens of a prompt that is one text or a list of messages.
    pub(crate) fn tokens(&self, loaded: &Loaded, messages: &[Message], text: &str) -> Outcome<Vec<u32>> {
        let tokenizer = &loaded.tokenizer;
        match self {
            Style::Raw => Ok(tokenizer.encode(text, true, true)),
            Style::Chat(template) => {
                let rendered = template.render(messages, None, &RenderOptions::answer())?;
                Ok(tokenizer.encode_rendered(&rendered))
            }
        }
    }
}

/// How the answers of a command are made.
pub(crate) struct Manner {
    pub(crate) sampling: SamplerSettings,
    pub(crate) limits: Limits,
    /// What each of them keeps to.
    pub(crate) rule: Option<(Grammars, Rule)>,
}

/// Generates and, when `stream` is set, prints text as it becomes certain.
pub(crate) fn answer(
    loaded: &Loaded,
    session: &mut Session,
    prompt: &[u32],
    manner: &Manner,
    stream: bool,
) -> Outcome<Finished> {
    let Manner { sampling, limits, rule } = manner;
    let mut constraint = rule.as_ref().map(|(grammars, rule)| grammars.constraint(rule)).transpose()?;
    STOP.store(false, Ordering::SeqCst);
    session.cancel_with(Arc::clone(&STOP));
    let mut gone = None;
    let constraint = constraint.as_deref_mut().map(|constraint| constraint as &mut dyn strata_engine::Constraint);
    let tokenizer = &loaded.tokenizer;
    let finished = generate_within(session, tokenizer, prompt, sampling, limits, constraint, &mut |piece| {
        if stream && let Err(error) = printer::data(piece.text) {
            gone = Some(error);
            return ControlFlow::Break(());
        }
        if STOP.load(Ordering::SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    // Also what was evaluated may lie in the file's missing end: say so instead of answering with zeros.
    loaded.gguf.check_unchanged()?;
    match gone {
        Some(error) => Err(error.into()),
        None => Ok(finished),
    }
}

/// The figures of a request, a line.
pub(crate) fn stats_line(finished: &Finished) -> String {
    let stats = &finished.stats;
    let ended = match &finished.reason {
        FinishReason::End => "",
        FinishReason::StopText(_) => "; ended by --stop",
        FinishReason::MaxTokens => "; cut off at --max-tokens",
        FinishReason::ContextFull => "; cut off, the context is full",
        FinishReason::Cancelled => "; stopped",
    };
    let rate = |rate: Option<f64>| rate.map_or_else(String::new, |rate| format!(" at {rate:.1} tok/s"));
    format!(
        "[prompt {} tokens ({} reused + {} new){}; generated {}{}; context {} of {}{ended}]",
        stats.prompt_reused + stats.prompt_new,
        stats.prompt_reused,
        stats.prompt_new,
        rate(stats.prompt_rate()),
        stats.generated,
        rate(stats.decode_rate()),
        stats.end_context,
        stats.context_size
    )
}

pub(crate) fn stats_report(stats: &RequestStats) -> StatsReport {
    StatsReport {
        prompt_tokens_reused: stats.prompt_reused,
        prompt_tokens_new: stats.prompt_new,
        prompt_seconds: stats.prompt_seconds,
        prompt_speed: stats.prompt_rate(),
        generated_tokens: stats.generated,
        decode_seconds: stats.decode_seconds,
        decode_speed: stats.decode_rate(),
        end_context: stats.end_context,
        context_size: stats.context_size,
    }
}
