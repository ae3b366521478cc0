//! The text of a systemd user unit: pure, from a command line to a file. The quoting is systemd's own,
//! which is neither a shell's nor that of any other program.

use std::fmt::Write;
use strata_manifest::Sha256Digest;

/// First words of a unit that is ours; the digest of all that follows the line stands behind them.
const MARK: &str = "# Written by `strata serve --install-service`; digest of what follows: ";

/// What a unit is made of.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) model: String,
    /// The program and its arguments, absolute where they are paths.
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
    /// Variables that the command had and that change what it does.
    pub(super) environment: Vec<(String, String)>,
    /// Seconds that the server takes to end its answers.
    pub(super) grace: u64,
}

/// What a file of the unit's name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Written by this program and not changed since.
    Ours,
    Changed,
    Foreign,
}

pub(super) fn origin(text: &str) -> Origin {
    let Some(rest) = text.strip_prefix(MARK) else { return Origin::Foreign };
    let Some((digest, body)) = rest.split_once('\n') else { return Origin::Changed };
    if digest == Sha256Digest::of_bytes(body.as_bytes()).to_string() { Origin::Ours } else { Origin::Changed }
}

impl Unit {
    pub(super) fn text(&self) -> String {
        // Restarts: a wrong command line is not cured by another start, and a model that cannot be
        // loaded is not read for ever.
        let mut body = format!(
            "# Changes belong into `systemctl --user edit`, which leaves this file as it is.\n\
             [Unit]\n\
             Description=Strata serves {model}\n\
             Documentation=man:strata-serve(1)\n\
             StartLimitIntervalSec=300\n\
             StartLimitBurst=5\n\
             \n\
             [Service]\n\
             Type=exec\n",
            model = specifiers(&shown(&self.model)),
        );
        for (name, value) in &self.environment {
            // Writing to a String cannot fail.
            let _ = writeln!(body, "Environment={}", quoted(&format!("{name}={value}"), false));
        }
        // Of the first word systemd replaces no variable, of the others it does.
        let words = self.arguments.iter().map(|argument| quoted(argument, true));
        let line: Vec<String> = std::iter::once(quoted(&self.program, false)).chain(words).collect();
        let _ = write!(
            body,
            "ExecStart={}\n\
             Restart=on-failure\n\
             RestartSec=5\n\
             RestartPreventExitStatus=2\n\
             TimeoutStopSec={}\n\
             NoNewPrivileges=yes\n\
             \n\
             [Install]\n\
             WantedBy=default.target\n",
            line.join(" "),
            self.grace.saturating_add(10),
        );
        format!("{MARK}{}\n{body}", Sha256Digest::of_bytes(body.as_bytes()))
    }
}

/// One word of a command line or a setting. Quotes are always there, so nothing in it is a separator.
fn quoted(word: &str, has_variables: bool) -> String {
    let mut text = String::from("\"");
    for letter in word.chars() {
        match letter {
            '"' => text += "\\\"",
            '\\' => text += "\\\\",
            '%' => text += "%%",
            '$' if has_variables => text += "$$",
            '\n' => text += "\\n",
            '\t' => text += "\\t",
            control if control.is_ascii_control() => {
                // Writing to a String cannot fail.
                let _ = write!(text, "\\x{:02x}", u32::from(control));
            }
            other => text.push(other),
        }
    }
    text + "\""
}

fn specifiers(text: &str) -> String {
    text.replace('%', "%%")
}

/// Text for a line that has no quoting.
fn shown(text: &str) -> String {
    let text: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    // A backslash at the end would draw the next line into this one.
    text.trim_end_matches('\\').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(arguments: &[&str]) -> Unit {
        Unit {
            model: "100 % mine\nExecStart=/bin/false\\".to_owned(),
            program: "/opt/a $HOME/strata".to_owned(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            environment: vec![("STRATA_PREFIX".to_owned(), "/opt/50%/\"x\" $y".to_owned())],
            grace: 30,
        }
    }

    #[test]
    fn words_are_quoted_as_systemd_reads_them() {
        let text = unit(&["serve", "a b", "50%", "$HOME", "say \"hi\"", "back\\slash", "two\nlines", ";", ""]).text();
        let expected = r#"ExecStart="/opt/a $HOME/strata" "serve" "a b" "50%%" "$$HOME" "say \"hi\"" "back\\slash" "two\nlines" ";" """#;
        assert!(text.lines().any(|line| line == expected), "{text}");
        assert!(text.contains("Environment=\"STRATA_PREFIX=/opt/50%%/\\\"x\\\" $y\"\n"), "{text}");
        assert!(text.contains("Description=Strata serves 100 %% mine ExecStart=/bin/false\n"), "{text}");
        assert!(text.contains("TimeoutStopSec=40\n"), "{text}");
    }

    #[test]
    fn a_unit_knows_whether_it_is_ours() {
        let text = unit(&["serve"]).text();
        assert_eq!(origin(&text), Origin::Ours);
        assert_eq!(origin(&text.replace("RestartSec=5", "RestartSec=1")), Origin::Changed);
        assert_eq!(origin(&text.replace('\n', "")), Origin::Changed);
        assert_eq!(origin("[Unit]\nDescription=mine\n"), Origin::Foreign);
    }
}
