//! What begins with a slash in the chat. A word that is no command is said to be none, instead of
//! going to the model; a path or a text that begins with a slash is not taken for one.

use strata_engine::SamplerSettings;

/// All names, for the tab key.
pub(super) const NAMES: &[&str] =
    &["/again", "/clear", "/exit", "/help", "/quit", "/save", "/set", "/show", "/system", "/undo"];

pub(super) const HELP: &str = "\
/help               this list
/clear              forget the conversation
/again              answer the last question anew
/undo               take the last question and its answer back
/system TEXT        another system message; without a text, none. Forgets the conversation
/set NAME VALUE     temperature, top-k, top-p, min-p, repeat-penalty, max-tokens or seed for what follows
/show               settings, and how full the context is
/save FILE          write the conversation to a file
/exit, Ctrl-D       leave
@FILE               in a question: the file's text goes with it; @\"a name with blanks\"
Alt-Enter           goes on in the next line, and so does \\ at a line's end; \"\"\" begins and ends a longer text
Ctrl-C              stops an answer; the arrow keys and Ctrl-R find earlier questions";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command<'a> {
    Help,
    Exit,
    Clear,
    Again,
    Undo,
    Show,
    System(&'a str),
    Set(&'a str, &'a str),
    Save(&'a str),
    /// The word, which is no command.
    Unknown(&'a str),
    /// What the command lacks.
    Incomplete(&'static str),
}

/// `None`: a question for the model.
pub(super) fn parse(line: &str) -> Option<Command<'_>> {
    let line = line.trim_end();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    let name = word.strip_prefix('/')?;
    // `/home/me is full` and `/* a comment */` are no commands.
    if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-' || letter == '?') {
        return None;
    }
    Some(match name {
        "help" | "?" => Command::Help,
        "exit" | "quit" | "bye" => Command::Exit,
        "clear" | "reset" => Command::Clear,
        "again" | "regen" => Command::Again,
        "undo" => Command::Undo,
        "show" => Command::Show,
        "system" => Command::System(rest),
        "save" if rest.is_empty() => Command::Incomplete("/save wants the name of a file"),
        "save" => Command::Save(rest),
        "set" => match rest.split_once(char::is_whitespace) {
            Some((name, value)) => Command::Set(name, value.trim()),
            None => Command::Incomplete("/set wants a name and a value, as in `/set temperature 0.2`"),
        },
        _ => Command::Unknown(word),
    })
}

/// Changes a setting. Says what is wrong with a name or a value; nothing is changed then.
pub(super) fn set(
    sampling: &mut SamplerSettings,
    max_tokens: &mut Option<u64>,
    name: &str,
    value: &str,
) -> Result<(), String> {
    fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
        value.parse().map_err(|_| format!("`{value}` is no value for {name}"))
    }
    let mut changed = sampling.clone();
    match name {
        "temperature" => changed.temperature = number(name, value)?,
        "top-k" => changed.top_k = number(name, value)?,
        "top-p" => changed.top_p = number(name, value)?,
        "min-p" => changed.min_p = number(name, value)?,
        "repeat-penalty" => changed.repeat_penalty = number(name, value)?,
        "seed" => changed.seed = Some(number(name, value)?),
        "max-tokens" => *max_tokens = Some(number(name, value)?),
        _ => return Err(format!("there is no setting `{name}`; /help names them")),
    }
    changed.check().map_err(|error| error.to_string())?;
    *sampling = changed;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_questions_and_slips_are_told_apart() {
        assert_eq!(parse("/help"), Some(Command::Help));
        assert_eq!(parse("/system be brief"), Some(Command::System("be brief")));
        assert_eq!(parse("/system"), Some(Command::System("")));
        assert_eq!(parse("/set top-k  5"), Some(Command::Set("top-k", "5")));
        assert!(matches!(parse("/set top-k"), Some(Command::Incomplete(_))));
        assert!(matches!(parse("/save"), Some(Command::Incomplete(_))));
        assert_eq!(parse("/claer"), Some(Command::Unknown("/claer")));
        assert_eq!(parse("/home/me is full, why?"), None);
        assert_eq!(parse("/ what does a slash mean"), None);
        assert_eq!(parse("what does /help mean"), None);
        for name in NAMES {
            assert!(!matches!(parse(name), None | Some(Command::Unknown(_))), "{name}");
            assert!(HELP.contains(name) || *name == "/quit", "{name} is in the help");
        }
    }

    #[test]
    fn settings_are_checked_before_they_hold() {
        let (mut sampling, mut most) = (SamplerSettings::default(), None);
        set(&mut sampling, &mut most, "temperature", "0.5").unwrap();
        set(&mut sampling, &mut most, "max-tokens", "12").unwrap();
        assert_eq!((sampling.temperature, most), (0.5, Some(12)));
        for (name, value) in [("temperature", "-1"), ("top-p", "2"), ("top-k", "many"), ("colour", "1")] {
            let before = sampling.clone();
            assert!(set(&mut sampling, &mut most, name, value).is_err(), "{name} {value}");
            assert_eq!(sampling, before);
        }
    }
}
