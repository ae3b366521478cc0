//! What shells complete, and the man pages that packages carry.

use crate::support::{ran, strata};

#[test]
fn shells_complete_commands_and_flags() {
    for (shell, mark) in [
        ("bash", "complete -F _strata"),
        ("zsh", "#compdef strata"),
        ("fish", "complete -c strata"),
        ("elvish", "strata"),
    ] {
        let ran = ran(strata().args(["completions", shell]));
        assert_eq!(ran.status, Some(0), "{}", ran.err);
        assert!(ran.out.contains(mark) && ran.out.contains("json-schema"), "{shell}");
        assert!(ran.out.contains("verify-package"), "{shell}");
    }
}

/// Bash itself completes with the script.
#[test]
fn bash_takes_the_script() {
    let script = ran(strata().args(["completions", "bash"])).out;
    let ask = "COMP_WORDS=(strata ver); COMP_CWORD=1; _strata strata ver strata; echo \"${COMPREPLY[@]}\"";
    match std::process::Command::new("bash").args(["-c", &format!("{script}\n{ask}")]).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(said.contains("verify-package") && said.contains("version"), "{said}");
        }
        Err(error) => println!("skipped: bash cannot be started: {error}"),
    }
}

/// The committed ones are checked by `cargo xtask gen --check`; here, that each command has one.
#[test]
fn every_command_has_a_man_page() {
    let files = ran(strata().args(["internal-reference", "--files"])).json();
    let help = ran(strata().arg("--help")).out;
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands {
        let page =
            files[format!("docs/man/strata-{command}.1")].as_str().unwrap_or_else(|| panic!("no page of {command}"));
        assert!(
            page.contains(".SH SYNOPSIS") && page.contains(&format!("strata\\-{}", command.replace('-', "\\-"))),
            "{command}: {page}"
        );
    }
}
