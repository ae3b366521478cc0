//! The line that is typed in the chat: it may go over several lines, and the tab key completes
//! commands and the names of files.

use super::command::NAMES;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper};

/// Begins and ends a text of several lines.
const FENCE: &str = "\"\"\"";

/// What rustyline asks while a line is typed.
pub(super) struct Typing {
    files: FilenameCompleter,
}

impl Typing {
    pub(super) fn new() -> Typing {
        Typing { files: FilenameCompleter::new() }
    }
}

impl Helper for Typing {}
impl Highlighter for Typing {}

impl Hinter for Typing {
    type Hint = String;
}

impl Validator for Typing {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let whole = is_whole(context.input());
        Ok(if whole { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Completer for Typing {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..at];
        if typed.starts_with('/') && !typed.contains(char::is_whitespace) {
            let fitting = NAMES.iter().filter(|name| name.starts_with(typed));
            return Ok((0, fitting.map(|name| pair(name)).collect()));
        }
        let word = typed.rfind(char::is_whitespace).map_or(0, |blank| blank + 1);
        if typed[word..].starts_with('@') {
            return self.files.complete_path(line, at);
        }
        Ok((at, Vec::new()))
    }
}

fn pair(text: &str) -> Pair {
    Pair { display: text.to_owned(), replacement: text.to_owned() }
}

/// Whether a text goes on in the next line: it ends with a backslash, or began with three quotes and
/// has not ended with them.
fn is_whole(text: &str) -> bool {
    match text.trim_start().strip_prefix(FENCE) {
        Some(rest) => rest.trim_end().ends_with(FENCE),
        None => !text.ends_with('\\'),
    }
}

/// What was meant by what was typed: without the fence, and without the backslashes at line ends.
pub(super) fn meant(text: &str) -> String {
    let inside = text.trim().strip_prefix(FENCE).and_then(|rest| rest.strip_suffix(FENCE));
    match inside {
        Some(inside) => inside.trim_matches('\n').to_owned(),
        None => text.replace("\\\n", "\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_lines_are_one_text() {
        for (text, whole) in [
            ("one line", true),
            ("goes on \\", false),
            ("goes on \\\nhere", true),
            ("\"\"\"", false),
            ("\"\"\"first\nsecond", false),
            ("\"\"\"first\nsecond\"\"\"", true),
            ("say \"\"\" in between", true),
        ] {
            assert_eq!(is_whole(text), whole, "{text:?}");
        }
        assert_eq!(meant("\"\"\"\nfirst\nsecond\n\"\"\""), "first\nsecond");
        assert_eq!(meant("goes on \\\nhere"), "goes on \nhere");
        assert_eq!(meant("as it is"), "as it is");
    }
}
