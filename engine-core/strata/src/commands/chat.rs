//! The interactive chat of `strata run`: line editing, history, Ctrl-C stops the answer and not the
//! program. The conversation's prefix stays in the cache, so each turn reads only what is new.

use crate::answer::{self, Style};
use crate::env;
use crate::model::Loaded;
use crate::outcome::{Outcome, Stop};
use crate::printer;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::path::PathBuf;
use strata_diag::catalogue::general::FILE_UNREADABLE;
use strata_diag::{Diagnostic, ExitStatus};
use strata_engine::{Limits, SamplerSettings, Session};
use strata_model::chat::Message;

const HELP: &str = "/clear forgets the conversation, /exit (or Ctrl-D) leaves, Ctrl-C stops an answer";

pub(crate) fn run(
    loaded: &Loaded,
    style: &Style,
    system: Option<&str>,
    sampling: &SamplerSettings,
    limits: &Limits,
) -> Outcome {
    printer::talk(&loaded.chosen.line());
    printer::talk(&loaded.settings_line());
    printer::talk(HELP);
    let mut editor = DefaultEditor::new()
        .map_err(|error| Diagnostic::new(FILE_UNREADABLE, "the terminal cannot be used").fact("because", error))?;
    let history = history_file();
    if let Some(file) = &history {
        // The first chat has no history yet.
        let _ = editor.load_history(file);
    }
    let mut chat = Chat { loaded, style, sampling, limits, session: loaded.engine.session()?, messages: Vec::new() };
    chat.start(system);
    loop {
        match editor.readline("> ") {
            Ok(line) if line.trim().is_empty() => {}
            Ok(line) => {
                // Only an empty line is not worth keeping, and those do not come here.
                let _ = editor.add_history_entry(line.as_str());
                match line.trim() {
                    "/exit" | "/quit" => break,
                    "/help" => printer::talk(HELP),
                    "/clear" => chat.start(system),
                    _ => chat.turn(&line)?,
                }
            }
            Err(ReadlineError::Interrupted) => printer::talk("Ctrl-D or /exit leaves"),
            Err(ReadlineError::Eof) => break,
            Err(error) => {
                return Err(Diagnostic::new(FILE_UNREADABLE, "the terminal cannot be read")
                    .fact("because", error)
                    .into());
            }
        }
    }
    if let Some(Err(error)) = history.map(|file| editor.save_history(&file)) {
        printer::talk(&format!("note: the history was not kept: {error}"));
    }
    Ok(ExitStatus::Done)
}

fn history_file() -> Option<PathBuf> {
    let folder = env::state_dir()?;
    fs_err::create_dir_all(&folder).ok()?;
    Some(folder.join("chat-history"))
}

struct Chat<'a> {
    loaded: &'a Loaded,
    style: &'a Style,
    sampling: &'a SamplerSettings,
    limits: &'a Limits,
    session: Session,
    messages: Vec<Message>,
}

impl Chat<'_> {
    fn start(&mut self, system: Option<&str>) {
        self.messages = system.iter().map(|text| Message::text("system", *text)).collect();
    }

    /// One question and its answer. A failure that concerns this turn only is shown, and the
    /// conversation is as before it.
    fn turn(&mut self, line: &str) -> Outcome<()> {
        self.messages.push(Message::text("user", line));
        match self.answer(line) {
            Ok(text) => {
                self.messages.push(Message::text("assistant", text));
                Ok(())
            }
            Err(Stop::Failed(diagnostic)) => {
                self.messages.pop();
                printer::talk(&diagnostic.to_text());
                Ok(())
            }
            Err(Stop::Gone) => Err(Stop::Gone),
        }
    }

    fn answer(&mut self, line: &str) -> Outcome<String> {
        let tokens = self.style.tokens(self.loaded, &self.messages, line)?;
        let finished = answer::answer(self.loaded, &mut self.session, &tokens, self.sampling, self.limits, true)?;
        printer::data("\n")?;
        printer::talk(&answer::stats_line(&finished));
        Ok(finished.text)
    }
}
