//! What shells complete, and the man pages that packages carry.

use crate::support::Scene;
use std::path::Path;
use std::process::Command;

fn printed(arguments: &[&str]) -> String {
    let output = Scene::new().setup(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn shells_complete_commands_and_flags() {
    for (shell, mark) in
        [("bash", "complete -F"), ("zsh", "#compdef strata-setup"), ("fish", "complete -c strata-setup")]
    {
        let script = printed(&["completions", shell]);
        assert!(script.contains(mark) && script.contains("download-only") && script.contains("self-update"), "{shell}");
    }
    let script = printed(&["completions", "bash"]);
    let ask = "COMP_WORDS=(strata-setup sel); COMP_CWORD=1\n\
               _strata__setup strata-setup sel strata-setup; echo \"${COMPREPLY[@]}\"";
    match Command::new("bash").args(["-c", &format!("{script}\n{ask}")]).output() {
        Ok(output) => assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "self-update"),
        Err(error) => println!("skipped: bash cannot be started: {error}"),
    }
}

/// The committed ones are checked by `cargo xtask gen --check`; here, that every command has one, that
/// `man` has nothing to say against it, and that the package of the programs carries everything.
#[test]
fn every_command_has_a_man_page_and_packages_carry_it() {
    let files: serde_json::Value = serde_json::from_str(&printed(&["internal-reference", "--files"])).unwrap();
    let commands = "install plan fetch detect list rollback repair uninstall gc self-update completions";
    let names = commands.split(' ').map(|command| format!("strata-setup-{command}"));
    let folder = tempfile::tempdir().unwrap();
    for name in std::iter::once("strata-setup".to_owned()).chain(names) {
        let text = files[format!("docs/man/{name}.1")].as_str().unwrap_or_else(|| panic!("no page of {name}"));
        assert!(text.contains(".SH SYNOPSIS"), "{name}: {text}");
        let page = folder.path().join(format!("{name}.1"));
        fs_err::write(&page, text).unwrap();
        match Command::new("man").args(["--warnings", "-l"]).arg(&page).env("LC_ALL", "C.UTF-8").output() {
            Ok(output) => assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}"),
            Err(error) => println!("skipped: man cannot be started: {error}"),
        }
    }
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/recipes/control.toml");
    let recipe = fs_err::read_to_string(recipe).unwrap();
    assert!(recipe.contains("from = \"source:docs/man/*.1\"\nto = \"share/man/man1/\""));
    for path in files.as_object().unwrap().keys().filter(|path| !path.ends_with(".1")) {
        assert!(recipe.contains(&format!("from = \"source:{path}\"")), "{path} is in no package");
    }
}
