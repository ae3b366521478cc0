//! `strata run`: answers one prompt, or chats when none is given.

use crate::answer::{self, Manner, Style};
use crate::cli::RunArgs;
use crate::commands::chat;
use crate::model::{self, Loaded};
use crate::outcome::Outcome;
use crate::{input, printer, settings};
use std::io::IsTerminal;
use std::path::Path;
use strata_diag::catalogue::engine::EMPTY_PROMPT;
use strata_diag::catalogue::general::BAD_INPUT;
use strata_diag::{Diagnostic, ExitStatus};
use strata_engine::{FinishReason, Finished, Grammars, Limits, Rule};
use strata_manifest::report::RunReport;
use strata_model::chat::Message;

pub(crate) fn run(args: &RunArgs) -> Outcome {
    // Everything that can be wrong with the line is found before the model is read.
    let sampling = settings::sampler_settings(&args.sampling)?;
    settings::engine_options(&args.engine)?;
    let rule = rule(args)?;
    let prompt = prompt_text(args)?;
    let path = model::find(args.model.as_deref(), args.engine.prefix.as_deref())?;
    let loaded = Loaded::load(&path, &args.engine, None)?;
    let style = Style::of(&loaded, args.raw)?;
    let limits = Limits { max_tokens: args.max_tokens, stop: args.stop.clone(), ..Limits::default() };
    let rule = rule.map(|rule| Ok::<_, Diagnostic>((grammars(&loaded, &rule)?, rule))).transpose()?;
    let manner = Manner { sampling, limits, rule };
    answer::catch_ctrl_c()?;

    let Some(prompt) = prompt else {
        return chat::run(&loaded, &style, args.system.as_deref(), manner);
    };
    let mut messages: Vec<Message> = args.system.iter().map(|text| Message::text("system", text)).collect();
    messages.push(Message::text("user", &prompt));
    let tokens = style.tokens(&loaded, &messages, &prompt)?;
    let mut session = loaded.engine.session()?;
    let finished = answer::answer(&loaded, &mut session, &tokens, &manner, !args.json)?;
    if args.json {
        printer::document(&report(&path, &loaded, &finished))?;
    } else {
        printer::data("\n")?;
        printer::talk(&loaded.chosen.line());
        printer::talk(&loaded.settings_line());
        printer::talk(&answer::stats_line(&finished));
    }
    Ok(if finished.reason == FinishReason::Cancelled { ExitStatus::Interrupted } else { ExitStatus::Done })
}

/// What the answer must be, by the flag that says so.
fn rule(args: &RunArgs) -> Result<Option<Rule>, Diagnostic> {
    if let Some(path) = &args.json_schema {
        let schema = serde_json::from_str(&input::file(path)?).map_err(|error| {
            Diagnostic::new(BAD_INPUT, format!("`{}` is not JSON", path.display())).fact("because", error)
        })?;
        return Ok(Some(Rule::JsonSchema(schema)));
    }
    if let Some(path) = &args.grammar {
        return Ok(Some(Rule::Grammar(input::file(path)?)));
    }
    Ok(args.regex.clone().map(Rule::Regex))
}

/// The vocabulary for the rule; a rule with a mistake is refused here, before any work.
fn grammars(loaded: &Loaded, rule: &Rule) -> Result<Grammars, Diagnostic> {
    let grammars = Grammars::new(&loaded.tokenizer).map_err(|error| Diagnostic::of(&error))?;
    grammars.constraint(rule).map_err(|error| Diagnostic::of(&error))?;
    Ok(grammars)
}

/// The prompt of the command line; of standard input when it says `-`, or when nothing is said and
/// nobody types there. `None`: chat.
fn prompt_text(args: &RunArgs) -> Result<Option<String>, Diagnostic> {
    let text = match args.prompt.as_deref() {
        Some("-") => read_input()?,
        Some(text) => text.to_owned(),
        None if std::io::stdin().is_terminal() => return Ok(None),
        None => read_input()?,
    };
    if text.trim().is_empty() && !(args.raw && args.prompt.is_some()) {
        return Err(Diagnostic::new(EMPTY_PROMPT, "the prompt is empty")
            .hint("give it after the model: `strata run MODEL \"Why is the sky blue?\"`"));
    }
    Ok(Some(text))
}

fn read_input() -> Result<String, Diagnostic> {
    let text = input::stdin()?;
    // A shell's `echo` ends its text with a line end that is not meant.
    let without = text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
    Ok(without.to_owned())
}

fn report(path: &Path, loaded: &Loaded, finished: &Finished) -> RunReport {
    RunReport {
        schema: "strata-run/1.0",
        model: path.display().to_string(),
        backend: loaded.chosen.report(),
        settings: loaded.settings_report(),
        text: finished.text.clone(),
        tokens: finished.tokens.clone(),
        finish_reason: finished.reason.name().to_owned(),
        seed: finished.seed,
        stats: answer::stats_report(&finished.stats),
    }
}
