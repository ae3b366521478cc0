//! The interactive chat of `strata run`: line editing over several lines, history, commands, files.
//! Ctrl-C stops the answer and not the program. The conversation's prefix stays in the cache, so each
//! turn reads only what is new.

mod attach;
mod command;
mod editor;

use crate::answer::{self, Manner, Style};
use crate::env;
use crate::model::Loaded;
use crate::outcome::{Outcome, Stop};
use crate::printer;
use command::Command;
use editor::Typing;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{Cmd, Editor, KeyCode, KeyEvent, Modifiers};
use std::fmt::Write;
use std::path::PathBuf;
use strata_diag::catalogue::general::FILE_UNREADABLE;
use strata_diag::{Diagnostic, ExitStatus};
use strata_engine::Session;
use strata_model::chat::{Content, Message};

const WELCOME: &str = "/help lists the commands, /exit or Ctrl-D leaves, Ctrl-C stops an answer";

pub(crate) fn run(loaded: &Loaded, style: &Style, system: Option<&str>, manner: Manner) -> Outcome {
    printer::talk(&loaded.chosen.line());
    printer::talk(&loaded.settings_line());
    printer::talk(WELCOME);
    let mut editor: Editor<Typing, DefaultHistory> = Editor::new()
        .map_err(|error| Diagnostic::new(FILE_UNREADABLE, "the terminal cannot be used").fact("because", error))?;
    editor.set_helper(Some(Typing::new()));
    editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
    let mut history = history_file();
    if let Some(file) = &history {
        // The first chat has no history yet.
        let _ = editor.load_history(file);
    }
    let session = loaded.engine.session()?;
    let mut chat = Chat { loaded, style, manner, session, system: system.map(str::to_owned), messages: Vec::new() };
    chat.start();
    loop {
        match editor.readline("> ") {
            Ok(line) if line.trim().is_empty() => {}
            Ok(line) => {
                // Only an empty line is not worth keeping, and those do not come here.
                let _ = editor.add_history_entry(line.as_str());
                // Now and not at the end: a terminal may be closed, and another chat may be open.
                if let Some(Err(error)) = history.as_ref().map(|file| editor.append_history(file)) {
                    printer::talk(&format!("note: the history is not kept: {error}"));
                    history = None;
                }
                match command::parse(&line) {
                    Some(Command::Exit) => break,
                    Some(command) => chat.obey(&command)?,
                    None => chat.ask(&editor::meant(&line))?,
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
    Ok(ExitStatus::Done)
}

fn history_file() -> Option<PathBuf> {
    let folder = env::state_dir()?;
    fs_err::create_dir_all(&folder).ok()?;
    Some(folder.join("chat-history"))
}

fn text_of(message: &Message) -> &str {
    if let Content::Text(text) = &message.content { text } else { "" }
}

struct Chat<'a> {
    loaded: &'a Loaded,
    style: &'a Style,
    manner: Manner,
    session: Session,
    system: Option<String>,
    messages: Vec<Message>,
}

impl Chat<'_> {
    fn start(&mut self) {
        self.messages = self.system.iter().map(|text| Message::text("system", text)).collect();
    }

    fn obey(&mut self, command: &Command<'_>) -> Outcome<()> {
        match *command {
            Command::Help => printer::talk(command::HELP),
            Command::Exit => {}
            Command::Clear => self.start(),
            Command::Again => match self.take_back() {
                Some(question) => self.turn(&question)?,
                None => printer::talk("there is no question yet"),
            },
            Command::Undo => printer::talk(match self.take_back() {
                Some(_) => "taken back",
                None => "there is nothing to take back",
            }),
            Command::Show => printer::talk(&self.settings()),
            Command::System(text) => {
                self.system = (!text.is_empty()).then(|| text.to_owned());
                self.start();
            }
            Command::Set(name, value) => {
                let Manner { sampling, limits, .. } = &mut self.manner;
                if let Err(why) = command::set(sampling, &mut limits.max_tokens, name, value) {
                    printer::talk(&why);
                }
            }
            Command::Save(file) => match fs_err::write(file, self.transcript()) {
                Ok(()) => printer::talk(&format!("written to `{file}`")),
                Err(error) => printer::talk(&format!("not written: {error}")),
            },
            Command::Unknown(word) => printer::talk(&format!(
                "there is no command `{word}`; /help lists them. A blank before it sends it to the model"
            )),
            Command::Incomplete(why) => printer::talk(why),
        }
        Ok(())
    }

    /// Removes the last question with its answer, if there is one.
    fn take_back(&mut self) -> Option<String> {
        let at = self.messages.iter().rposition(|message| message.role == "user")?;
        let question = text_of(&self.messages[at]).to_owned();
        self.messages.truncate(at);
        Some(question)
    }

    fn settings(&self) -> String {
        let Manner { sampling, limits, rule } = &self.manner;
        let most = limits.max_tokens.map_or_else(|| "until the context is full".to_owned(), |most| most.to_string());
        let seed = sampling.seed.map_or_else(|| "a new one each time".to_owned(), |seed| seed.to_string());
        let rule = if rule.is_some() { "\nanswers keep to the rule of the command line" } else { "" };
        format!(
            "temperature {}, top-k {}, top-p {}, min-p {}, repeat-penalty {}, max-tokens {most}, seed {seed}\n\
             context: {} of {} tokens, {} messages{rule}",
            sampling.temperature,
            sampling.top_k,
            sampling.top_p,
            sampling.min_p,
            sampling.repeat_penalty,
            self.session.position(),
            self.session.context(),
            self.messages.len(),
        )
    }

    fn transcript(&self) -> String {
        let mut text = String::new();
        for message in &self.messages {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "## {}\n\n{}\n", message.role, text_of(message));
        }
        text
    }

    /// A question with the files that it names.
    fn ask(&mut self, question: &str) -> Outcome<()> {
        match attach::attach(question) {
            Ok(attached) => {
                for note in &attached.notes {
                    printer::talk(note);
                }
                self.turn(&attached.text)
            }
            Err(diagnostic) => {
                printer::talk(&diagnostic.to_text());
                Ok(())
            }
        }
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
        let finished = answer::answer(self.loaded, &mut self.session, &tokens, &self.manner, true)?;
        printer::data("\n")?;
        printer::talk(&answer::stats_line(&finished));
        Ok(finished.text)
    }
}
