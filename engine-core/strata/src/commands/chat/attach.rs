//! Files that a question names: `@notes.txt`, or `@"a name with blanks"`. Their texts follow the
//! question. What names no file stays as it is, since people and decorators begin with `@` too.

use crate::input;
use std::fmt::Write;
use std::path::Path;
use strata_diag::Diagnostic;

/// A question with the files that it names.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) text: String,
    /// What was attached and what was not, a line each.
    pub(super) notes: Vec<String>,
}

/// Fails when a file that is there cannot be read as text.
pub(super) fn attach(question: &str) -> Result<Attached, Diagnostic> {
    let mut attached = Attached { text: question.to_owned(), notes: Vec::new() };
    for name in names(question) {
        let path = Path::new(name);
        if !path.is_file() {
            // Only what looks like a file is worth a word.
            if path.extension().is_some() || name.contains('/') {
                attached.notes.push(format!("note: there is no file `{name}`; `@{name}` stays as it is"));
            }
            continue;
        }
        let content = input::file(path)?;
        // A fence that the text itself does not hold.
        let mut fence = "```".to_owned();
        while content.contains(&fence) {
            fence.push('`');
        }
        // Writing to a String cannot fail.
        let _ = write!(attached.text, "\n\n{name}:\n{fence}\n{}\n{fence}", content.trim_end_matches('\n'));
        attached.notes.push(format!("attached {name} ({} bytes)", content.len()));
    }
    Ok(attached)
}

/// What stands behind each `@` that begins a word, once each.
fn names(question: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in question.match_indices('@') {
        if question[..at].chars().next_back().is_some_and(|before| !before.is_whitespace()) {
            continue;
        }
        let rest = &question[at + 1..];
        let name = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').map_or("", |(name, _)| name),
            None => rest.split(char::is_whitespace).next().unwrap_or(""),
        };
        // `Look at @notes.txt.` means the file without the full stop, unless there is one with it.
        let short = name.trim_end_matches([',', '.', ';', ':', '!', '?', ')']);
        let name = if Path::new(name).is_file() { name } else { short };
        if !name.is_empty() && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_with_the_question_and_all_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("notes.txt");
        let blanks = folder.path().join("two words.md");
        fs_err::write(&plain, "first\nsecond\n").unwrap();
        fs_err::write(&blanks, "```\ncode\n```\n").unwrap();
        let question = format!("Compare @{}, with @\"{}\".", plain.display(), blanks.display());
        let attached = attach(&question).unwrap();
        assert!(attached.text.starts_with(&question));
        assert!(attached.text.contains("notes.txt:\n```\nfirst\nsecond\n```"), "{}", attached.text);
        assert!(attached.text.contains("two words.md:\n````\n```\ncode\n```\n````"), "{}", attached.text);
        assert_eq!(attached.notes.len(), 2);
        let untouched = "ask @alice or me@example.org about @property";
        let attached = attach(untouched).unwrap();
        assert_eq!((attached.text.as_str(), attached.notes.len()), (untouched, 0));
        let absent = attach("read @no/such.txt").unwrap();
        assert_eq!(absent.text, "read @no/such.txt");
        assert!(absent.notes[0].contains("no/such.txt"));
        fs_err::write(&plain, [0xff, 0xfe]).unwrap();
        assert!(attach(&question).is_err(), "what is no text is refused");
    }
}
