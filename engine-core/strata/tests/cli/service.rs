//! `strata serve --install-service`: a unit in a settings folder of the test's own. Nothing is started,
//! since no test may touch the machine's systemd; its own checker reads the units where it is here.

use crate::support::{Ran, ran, refused};
use assert_cmd::Command;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

struct Home(TempDir);

impl Home {
    fn new() -> Home {
        let home = Home(TempDir::new().unwrap());
        fs_err::write(home.0.path().join("model 1.gguf"), "a model").unwrap();
        home
    }

    fn strata(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strata"));
        for variable in ["STRATA_PREFIX", "STRATA_STATE_DIR", "STRATA_API_KEY", "CUDA_VISIBLE_DEVICES"] {
            command.env_remove(variable);
        }
        command.env("XDG_CONFIG_HOME", self.0.path().join("config")).current_dir(self.0.path());
        command.arg("serve").args(words);
        command
    }

    fn unit(&self, name: &str) -> PathBuf {
        self.0.path().join(format!("config/systemd/user/{name}.service"))
    }

    fn read(&self, name: &str) -> String {
        fs_err::read_to_string(self.unit(name)).unwrap()
    }

    #[track_caller]
    fn done(&self, words: &[&str]) -> Ran {
        let ran = ran(&mut self.strata(words));
        assert_eq!(ran.status, Some(0), "{}", ran.err);
        ran
    }
}

/// What systemd itself says about a unit; `None`, said, where it is not installed.
fn verified(unit: &Path) -> Option<String> {
    let runtime = TempDir::new().unwrap();
    let mut verify = std::process::Command::new("systemd-analyze");
    verify.args(["verify", "--user", "--man=no"]).arg(unit).env("XDG_RUNTIME_DIR", runtime.path());
    let output = verify.output();
    match output {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!said.contains("Failed to initialize"), "{said}");
            // Units of the machine itself may have faults of their own.
            Some(said.lines().filter(|line| line.contains("strata") || line.contains("spoiled")).collect())
        }
        Err(error) => {
            println!("skipped: systemd-analyze cannot be started: {error}");
            None
        }
    }
}

#[test]
fn the_line_becomes_a_unit_that_systemd_takes() {
    let home = Home::new();
    fs_err::write(home.0.path().join("keys"), "a-key-of-this-test\n").unwrap();
    let said = home.done(&[
        "model 1.gguf",
        "--install-service",
        "--port",
        "9000",
        "--api-key-file",
        "keys",
        "--name",
        "50% \"$HOME\"",
        "--grace=20",
        "--plugin",
        "a.json",
        "--plugin",
        "/b.json",
        "--precise",
    ]);
    assert!(said.out.is_empty() && said.err.contains("written: "), "{}", said.err);
    let unit = home.read("strata");
    let here = home.0.path().display();
    let program = env!("CARGO_BIN_EXE_strata");
    let start = unit.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
    assert!(start.starts_with(&format!("ExecStart=\"{program}\" \"serve\" \"{here}/model 1.gguf\" \"--")), "{start}");
    for word in [
        "\"--port=9000\"".to_owned(),
        format!("\"--api-key-file={here}/keys\""),
        "\"--name=50%% \\\"$$HOME\\\"\"".to_owned(),
        format!("\"--plugin={here}/a.json\" \"--plugin=/b.json\""),
        "\"--precise\"".to_owned(),
    ] {
        assert!(start.contains(&word), "no {word} in {start}");
    }
    // What was not said is not written, so that it stays the program's to choose.
    assert!(!start.contains("service") && !start.contains("--slots"), "{start}");
    assert!(unit.contains("\nTimeoutStopSec=30\n") && unit.contains("\nWantedBy=default.target\n"), "{unit}");
    if let Some(said) = verified(&home.unit("strata")) {
        assert_eq!(said, "");
        // The checker tells: a unit that is spoiled is refused by it.
        let spoiled = home.unit("spoiled");
        fs_err::write(&spoiled, unit.replace("ExecStart=\"", "ExecStart=\"relative")).unwrap();
        assert!(!verified(&spoiled).unwrap().is_empty());
    }
    let names: Vec<_> = fs_err::read_dir(home.unit("strata").parent().unwrap()).unwrap().collect();
    assert!(names.iter().all(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "service")));
    let booted = Path::new("/run/systemd/system").exists();
    let next = if booted { "systemctl --user enable --now strata" } else { "systemd does not run on this machine" };
    assert!(said.err.contains(next) && said.err.contains("loginctl enable-linger") == booted, "{}", said.err);
}

/// The words that systemd would start the program with are those that were meant: its own reader is asked.
#[test]
fn a_program_in_a_folder_with_an_odd_name_is_found() {
    let home = Home::new();
    let folder = home.0.path().join("a 50% $HOME b");
    fs_err::create_dir_all(&folder).unwrap();
    let program = folder.join("strata");
    fs_err::copy(env!("CARGO_BIN_EXE_strata"), &program).unwrap();
    let mut command = Command::new(&program);
    command.env("XDG_CONFIG_HOME", home.0.path().join("config")).env("STRATA_STATE_DIR", "state here");
    command.current_dir(home.0.path()).args(["serve", "model 1.gguf", "--install-service"]);
    assert_eq!(ran(&mut command).status, Some(0));
    let unit = home.read("strata");
    assert!(unit.contains(&format!("Environment=\"STRATA_STATE_DIR={}/state here\"\n", home.0.path().display())));
    let Some(said) = verified(&home.unit("strata")) else { return };
    assert_eq!(said, "", "systemd finds the program: {unit}");
    // It looks for the program, so the word was read as the path that was meant.
    fs_err::rename(&program, folder.join("elsewhere")).unwrap();
    let said = verified(&home.unit("strata")).unwrap();
    assert!(said.contains("a 50% $HOME b/strata is not executable"), "{said}");
    // What systemd would not start is refused.
    let quoted = home.0.path().join("it's");
    fs_err::create_dir_all(&quoted).unwrap();
    let program = quoted.join("strata");
    fs_err::copy(folder.join("elsewhere"), &program).unwrap();
    let mut command = Command::new(&program);
    command.env("XDG_CONFIG_HOME", home.0.path().join("config")).current_dir(home.0.path());
    refused(command.args(["serve", "model 1.gguf", "--install-service", "--service-name", "two"]), 2, "S0002");
}

#[test]
fn a_unit_of_somebody_else_stays() {
    let home = Home::new();
    let install = ["model 1.gguf", "--install-service"];
    let path = home.unit("strata");
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(&path, "[Service]\nExecStart=/bin/true\n").unwrap();
    let said = refused(&mut home.strata(&install), 1, "S0412");
    assert!(said.err.contains("--service-name") && said.err.contains("--replace-service"), "{}", said.err);
    refused(&mut home.strata(&["--uninstall-service"]), 1, "S0412");
    assert_eq!(home.read("strata"), "[Service]\nExecStart=/bin/true\n");
    // Beside it, and in its place when that is meant.
    home.done(&["model 1.gguf", "--install-service", "--service-name", "strata-2"]);
    let said = home.done(&["model 1.gguf", "--install-service", "--replace-service"]);
    assert!(said.err.contains("replaced one that something else had written"), "{}", said.err);
    let written = home.read("strata");
    assert_eq!(written, home.read("strata-2"));
    // Again changes nothing, another line does, a hand's change is not lost.
    assert!(home.done(&install).err.contains("as it was"));
    assert!(home.done(&["model 1.gguf", "--install-service", "--slots=2"]).err.contains("written anew"));
    let changed = home.read("strata").replace("RestartSec=5", "RestartSec=7");
    fs_err::write(&path, &changed).unwrap();
    refused(&mut home.strata(&install), 1, "S0412");
    refused(&mut home.strata(&["--uninstall-service"]), 1, "S0412");
    assert_eq!(home.read("strata"), changed);
    assert!(home.done(&["--uninstall-service", "--replace-service"]).err.contains("removed"));
    assert!(!path.exists());
}

#[test]
fn removing_takes_the_unit_and_its_link_and_nothing_else() {
    let home = Home::new();
    assert!(home.done(&["--uninstall-service"]).err.contains("nothing to remove"));
    home.done(&["model 1.gguf", "--install-service"]);
    let wants = home.unit("strata").with_file_name("default.target.wants");
    fs_err::create_dir_all(&wants).unwrap();
    let link = |name: &str, target: &Path| std::os::unix::fs::symlink(target, wants.join(name)).unwrap();
    link("strata.service", &home.unit("strata"));
    link("other.service", &home.unit("other"));
    home.done(&["--uninstall-service"]);
    assert!(!home.unit("strata").exists());
    let left: Vec<_> = fs_err::read_dir(&wants).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["other.service"]);
}

#[test]
fn what_a_service_could_not_do_is_refused_before_anything_is_written() {
    let home = Home::new();
    refused(&mut home.strata(&["model 1.gguf", "--install-service", "--api-key", "a-long-key"]), 2, "S0002");
    // The key of this shell is not the service's.
    let mut open = home.strata(&["model 1.gguf", "--install-service", "--host", "0.0.0.0"]);
    refused(open.env("STRATA_API_KEY", "a-long-key"), 2, "S0803");
    refused(&mut home.strata(&["absent.gguf", "--install-service"]), 1, "S0006");
    for name in ["../up", "a b", "", "x@y", ".hidden", "a/b"] {
        refused(&mut home.strata(&["model 1.gguf", "--install-service", "--service-name", name]), 2, "S0002");
    }
    assert!(!home.0.path().join("config").exists());
    // A folder that cannot be written: a file stands where a folder is needed.
    fs_err::write(home.0.path().join("config"), "").unwrap();
    let said = ran(&mut home.strata(&["model 1.gguf", "--install-service"]));
    assert_eq!(said.status, Some(1), "{}", said.err);
    assert!(said.err.contains("error[S0003]") || said.err.contains("error[S0004]"), "{}", said.err);
}

/// After an update the service is to start the new program: the path goes through `current`.
#[test]
fn an_installed_program_is_named_by_the_path_that_stays() {
    let home = Home::new();
    let prefix = home.0.path().join("prefix");
    let bin = prefix.join("generations/3/bin");
    fs_err::create_dir_all(&bin).unwrap();
    fs_err::copy(env!("CARGO_BIN_EXE_strata"), bin.join("strata")).unwrap();
    fs_err::set_permissions(bin.join("strata"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("generations/3", prefix.join("current")).unwrap();
    let mut command = Command::new(prefix.join("current/bin/strata"));
    command.env("XDG_CONFIG_HOME", home.0.path().join("config")).env_remove("STRATA_PREFIX");
    command.current_dir(home.0.path()).args(["serve", "model 1.gguf", "--install-service"]);
    let said = ran(&mut command);
    assert_eq!(said.status, Some(0), "{}", said.err);
    let prefix = fs_err::canonicalize(prefix).unwrap();
    let start = format!("ExecStart=\"{}/current/bin/strata\" ", prefix.display());
    assert!(home.read("strata").contains(&start), "{}", home.read("strata"));
}
