//! The two-machine route: fetch into a folder here, install from it there, with no socket.

use crate::support::{Scene, done, model_bytes, ran, refused, tool};
use std::process::Command;

fn fetch(scene: &Scene) -> crate::support::Ran {
    let mut command = scene.setup(&["--download-only", "--model", "tiny", "--allow-unsigned"]);
    done(
        command
            .arg("--release")
            .arg(scene.path("0.1.0"))
            .arg("--to")
            .arg(scene.path("stick"))
            .arg("--root")
            .arg(scene.path("root")),
    )
}

#[test]
fn a_folder_that_was_fetched_installs_and_runs() {
    let scene = Scene::new();
    let fetched = fetch(&scene);
    assert!(fetched.out.contains("strata-setup --offline --from"), "{}", fetched.out);
    for name in ["release.json", "download.json", "HOW-TO.txt", "models/tiny-model.gguf"] {
        assert!(scene.path("stick").join(name).is_file(), "{name}");
    }
    // No question is asked and the same again has nothing to do.
    let again = fetch(&scene);
    assert_eq!(again.out, fetched.out);

    let mut offline = scene.setup(&["--offline", "--backend", "cpu", "--yes", "--allow-unsigned"]);
    let offline = done(
        offline
            .arg("--from")
            .arg(scene.path("stick"))
            .arg("--prefix")
            .arg(scene.prefix())
            .arg("--root")
            .arg(scene.path("root")),
    );
    assert!(offline.out.contains("model tiny is ready"), "{}", offline.out);
    assert_eq!(scene.version_that_runs(), "0.1.0");
    assert_eq!(fs_err::read(scene.prefix().join("models/tiny-model.gguf")).unwrap(), model_bytes());
    let list = done(scene.setup(&["list", "--json"]).arg("--prefix").arg(scene.prefix())).json();
    assert_eq!(list["models"][0]["name"], "tiny");
    assert_eq!(list["generations"][0]["plugins"], serde_json::json!(["cpu"]));
}

#[test]
fn an_offline_installation_opens_no_socket() {
    let scene = Scene::new();
    fetch(&scene);
    let arguments = |prefix: &str| {
        let words = ["--offline", "--backend", "cpu", "--yes", "--allow-unsigned", "--from"];
        let mut all: Vec<String> = words.map(str::to_owned).to_vec();
        all.extend([
            scene.text("stick"),
            "--prefix".to_owned(),
            scene.text(prefix),
            "--root".to_owned(),
            scene.text("root"),
        ]);
        all
    };
    let program = env!("CARGO_BIN_EXE_strata-setup");
    if let Some(unshare) = tool("unshare", &["--map-root-user", "--net", "true"]) {
        let mut command = Command::new(unshare);
        command.args(["--map-root-user", "--net", program]).args(arguments("prefix"));
        let output = command.env("HOME", scene.path("home")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(scene.version_that_runs(), "0.1.0");
        println!("installed in a network namespace without an interface");
    }
    if let Some(strace) = tool("strace", &["-o", "/dev/null", "true"]) {
        let log = scene.path("strace.log");
        let mut command = Command::new(strace);
        command.args(["-f", "-e", "trace=%network", "-o"]).arg(&log).arg(program).args(arguments("traced"));
        let output = command.env("HOME", scene.path("home")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let calls: Vec<String> = fs_err::read_to_string(&log)
            .unwrap()
            .lines()
            .filter(|line| !line.contains("+++") && !line.contains("---"))
            .map(str::to_owned)
            .collect();
        println!("network calls of an offline installation: {}", calls.len());
        assert_eq!(calls, Vec::<String>::new());
    }
}

/// What `--print` says is typed into a shell, word for word.
#[test]
fn the_way_by_hand_works_as_it_is_printed() {
    let scene = Scene::new();
    let mut command =
        scene.setup(&["--download-only", "--print", "--model", "tiny", "--allow-unsigned", "--backend", "cpu"]);
    let printed = done(
        command
            .arg("--release")
            .arg(scene.path("0.1.0"))
            .arg("--to")
            .arg(scene.path("by hand"))
            .arg("--root")
            .arg(scene.path("root")),
    );
    assert!(!scene.path("by hand").exists(), "printing fetches nothing");
    let mut script = String::from("set -e\n");
    let mut heredoc = false;
    for line in printed.out.lines() {
        if let Some(typed) = line.strip_prefix("    $ ") {
            script = script + typed + "\n";
        } else if line.starts_with("mkdir -p") || line.starts_with("tar ") || line.starts_with("sha256sum") || heredoc {
            script = script + line + "\n";
            heredoc = line.starts_with("sha256sum") || (heredoc && line != "SUMS");
        }
    }
    let output = Command::new("sh").arg("-c").arg(&script).output().unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("models/tiny-model.gguf: OK"));
    assert!(printed.out.contains("bin/strata-setup --offline --from . --backend cpu"), "{}", printed.out);
    // The packages of this test hold no installer, so this one stands in for the unpacked one.
    let mut offline = scene.setup(&["--offline", "--backend", "cpu", "--yes", "--allow-unsigned", "--model"]);
    offline.arg(scene.path("by hand/models/tiny-model.gguf"));
    done(
        offline
            .arg("--from")
            .arg(scene.path("by hand"))
            .arg("--prefix")
            .arg(scene.prefix())
            .arg("--root")
            .arg(scene.path("root")),
    );
    assert_eq!(scene.version_that_runs(), "0.1.0");
}

#[test]
fn a_damaged_or_incomplete_folder_is_noticed_and_completed() {
    let scene = Scene::new();
    fetch(&scene);
    let offline = || {
        let mut command = scene.setup(&["--offline", "--backend", "cpu", "--yes", "--allow-unsigned"]);
        command
            .arg("--from")
            .arg(scene.path("stick"))
            .arg("--prefix")
            .arg(scene.prefix())
            .arg("--root")
            .arg(scene.path("root"));
        command
    };
    let model = scene.path("stick/models/tiny-model.gguf");
    let mut bytes = model_bytes();
    bytes[77] ^= 1;
    fs_err::write(&model, &bytes).unwrap();
    refused(&mut offline(), 1, "S0726");
    assert_eq!(scene.version_that_runs(), "nothing");
    let archive = scene.path("stick/strata-engine-0.1.0-linux-x86_64-cpu.tar.gz");
    fs_err::remove_file(&archive).unwrap();
    refused(&mut offline(), 1, "S0713");
    // Fetching once more brings what is missing or wrong, and nothing else.
    let fetched = fetch(&scene);
    assert!(fetched.err.contains("it is fetched again"), "{}", fetched.err);
    done(&mut offline());
    assert_eq!(scene.version_that_runs(), "0.1.0");
    fs_err::remove_file(scene.path("stick/release.json")).unwrap();
    refused(&mut offline(), 1, "S0725");
}

#[test]
fn models_are_shared_by_generations_and_can_lie_elsewhere() {
    let scene = Scene::new();
    done(&mut scene.install("0.1.0", &["--model", "tiny", "--models-dir", &scene.text("big disk")]));
    assert!(scene.path("big disk/tiny-model.gguf").is_file());
    done(&mut scene.install("0.2.0", &[]));
    let list = || done(scene.setup(&["list", "--json"]).arg("--prefix").arg(scene.prefix())).json();
    assert_eq!(list()["models"][0]["name"], "tiny");
    done(scene.setup(&["rollback"]).arg("--prefix").arg(scene.prefix()));
    assert_eq!(list()["models"][0]["name"], "tiny");
    // A file of one's own is used where it lies and survives an uninstallation of models.
    let own = scene.path("My Model.Q8_0.gguf");
    fs_err::write(&own, "GGUF my own").unwrap();
    let mut command = scene.install("0.2.0", &["--model"]);
    done(command.arg(&own));
    assert!(list()["models"].as_array().unwrap().iter().any(|model| model["name"] == "my-model.q8_0"));
    done(scene.setup(&["uninstall", "--models", "--yes"]).arg("--prefix").arg(scene.prefix()));
    assert!(own.is_file() && !scene.path("big disk/tiny-model.gguf").exists());
}

#[test]
fn a_dry_run_prints_the_plan_and_changes_nothing() {
    let scene = Scene::new();
    let plan = done(&mut scene.install("0.1.0", &["--dry-run", "--model", "tiny"]));
    assert!(plan.out.contains("plan: install Strata 0.1.0"), "{}", plan.out);
    assert!(!scene.prefix().exists());
    let plan = done(&mut scene.install("0.1.0", &["--dry-run", "--json", "--model", "tiny"])).json();
    assert_eq!((plan["schema"].as_str(), plan["action"].as_str()), (Some("strata-plan/1.0"), Some("install")));
    assert_eq!(plan["components"].as_array().unwrap().len(), 2);
    done(&mut scene.install("0.1.0", &["--model", "tiny"]));
    let keep = done(&mut scene.install("0.1.0", &["--dry-run", "--json"])).json();
    assert_eq!(keep["action"], "keep");
    let update = done(&mut scene.install("0.2.0", &["--dry-run", "--json"])).json();
    assert_eq!((update["action"].as_str(), update["previous"].as_u64()), (Some("update"), Some(1)));
}

#[test]
fn progress_can_be_read_by_programs() {
    let scene = Scene::new();
    let ran = ran(&mut scene.install("0.1.0", &["--progress", "json", "--model", "tiny", "--json"]));
    assert_eq!(ran.status, Some(0), "{}", ran.err);
    assert_eq!(ran.json()["version"], "0.1.0");
    let events: Vec<serde_json::Value> =
        ran.err.lines().filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect();
    let steps: Vec<&str> =
        events.iter().filter(|event| event["event"] == "step").filter_map(|event| event["step"].as_str()).collect();
    assert_eq!(
        steps,
        ["recover", "stage", "verify", "prove", "receipt", "commit", "models", "switch", "pin", "finish"]
    );
}
