//! Questions. Each has a default, `--yes` takes it, and what was typed before a question was shown is
//! never its answer: the terminal's input is thrown away first.

use crate::outcome::Outcome;
use dialoguer::{Confirm, Error, Input, Select};
use rustix::termios::{QueueSelector, tcflush};
use std::io::{ErrorKind, IsTerminal};
use strata_diag::Diagnostic;
use strata_diag::catalogue::general::INTERRUPTED;
use strata_diag::catalogue::installing::NO_ANSWER;

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A person in front of a terminal.
    Person,
    /// `--yes`: the defaults.
    Defaults,
    /// Nobody, and nobody said that the defaults are fine.
    Nobody,
}

impl Asker {
    pub(crate) fn new(yes: bool) -> Asker {
        match (yes, std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            (true, _) => Asker::Defaults,
            (false, true) => Asker::Person,
            (false, false) => Asker::Nobody,
        }
    }

    pub(crate) fn is_person(self) -> bool {
        self == Asker::Person
    }

    /// Yes or no. `flag` is how the question is answered on the command line.
    pub(crate) fn confirm(self, question: &str, default: bool, flag: &str) -> Outcome<bool> {
        match self {
            Asker::Defaults => Ok(default),
            Asker::Nobody => Err(nobody(question, flag).into()),
            Asker::Person => {
                forget_typed();
                Confirm::new()
                    .with_prompt(question)
                    .default(default)
                    .interact()
                    .map_err(|error| failed(question, flag, &error).into())
            }
        }
    }

    /// One of several; the answer is its position.
    pub(crate) fn select(self, question: &str, choices: &[String], default: usize, flag: &str) -> Outcome<usize> {
        match self {
            Asker::Defaults => Ok(default),
            Asker::Nobody => Err(nobody(question, flag).into()),
            Asker::Person => {
                forget_typed();
                let select = Select::new().with_prompt(question).items(choices).default(default);
                select.interact().map_err(|error| failed(question, flag, &error).into())
            }
        }
    }

    /// A text; an empty answer is the default.
    pub(crate) fn text(self, question: &str, default: &str, flag: &str) -> Outcome<String> {
        match self {
            Asker::Defaults => Ok(default.to_owned()),
            Asker::Nobody => Err(nobody(question, flag).into()),
            Asker::Person => {
                forget_typed();
                let input = Input::<String>::new().with_prompt(question).default(default.to_owned());
                input.interact_text().map_err(|error| failed(question, flag, &error).into())
            }
        }
    }
}

/// Throws away what was typed before now; a terminal that cannot do that has nothing typed ahead.
fn forget_typed() {
    let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
}

fn nobody(question: &str, flag: &str) -> Diagnostic {
    Diagnostic::new(NO_ANSWER, format!("`{question}` needs an answer, and standard input is no terminal"))
        .hint("take the defaults: `--yes`")
        .hint(format!("or answer on the command line: `{flag}`"))
}

fn failed(question: &str, flag: &str, error: &Error) -> Diagnostic {
    // A question that is left half way has hidden the cursor.
    let _ = dialoguer::console::Term::stderr().show_cursor();
    let Error::IO(error) = error;
    match error.kind() {
        ErrorKind::Interrupted => Diagnostic::new(INTERRUPTED, "stopped by the user; nothing was changed"),
        _ => nobody(question, flag).fact("because", error),
    }
}
