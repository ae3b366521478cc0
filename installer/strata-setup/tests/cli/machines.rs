//! Whole machines that nobody here has: what is detected, what would be installed, what is said. Each is a
//! tree of files in `installer/strata-probe/fixtures/hosts`; its facts and messages are snapshots in
//! `tests/machines`, which `STRATA_BLESS=1` writes anew.

use crate::support::{Scene, ran};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const HOSTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../strata-probe/fixtures/hosts");
const SNAPSHOTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/machines");

fn hosts() -> Vec<PathBuf> {
    let entries = fs_err::read_dir(HOSTS).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn lay(tree: &Path, folder: &Path) {
    let tree: Value = serde_json::from_str(&fs_err::read_to_string(tree).unwrap()).unwrap();
    for (path, content) in tree.as_object().unwrap() {
        let path = folder.join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, content.as_str().or(content["text"].as_str()).unwrap()).unwrap();
        if let Some(mode) = content["mode"].as_str() {
            let mode = u32::from_str_radix(mode, 8).unwrap();
            fs_err::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

/// What differs from run to run is taken out.
fn steady(text: &str, scene: &Scene) -> String {
    let text = text.replace(&scene.text(""), "SCENE/");
    let lines = text.lines().filter(|line| !line.starts_with("  disk at ")).map(str::trim_end);
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

fn compare(name: &str, text: &str, differing: &mut Vec<String>) {
    let path = Path::new(SNAPSHOTS).join(name);
    if std::env::var_os("STRATA_BLESS").is_some() {
        fs_err::create_dir_all(SNAPSHOTS).unwrap();
        fs_err::write(path, text).unwrap();
    } else if fs_err::read_to_string(&path).unwrap_or_default() != text {
        println!("{name} is now:\n{text}");
        differing.push(name.to_owned());
    }
}

#[test]
fn machines_are_detected_and_planned_for_as_recorded() {
    let scene = Scene::new();
    let (mut differing, mut times) = (Vec::new(), Vec::new());
    for tree in hosts() {
        let name = tree.file_stem().unwrap().to_str().unwrap().to_owned();
        let root = scene.path(&format!("hosts/{name}"));
        lay(&tree, &root);
        let started = Instant::now();
        let facts = ran(scene.setup(&["detect", "--json"]).arg("--root").arg(&root));
        times.push(started.elapsed());
        assert_eq!(facts.status, Some(0), "{name}: {}", facts.err);
        compare(&format!("{name}.facts.json"), &steady(&facts.out, &scene), &mut differing);
        let words = ran(scene.setup(&["detect"]).arg("--root").arg(&root));
        let mut plan = scene.setup(&["plan", "--allow-unsigned", "--model", "qwen3-14b", "--release"]);
        let plan = ran(plan.arg(scene.path("0.1.0")).arg("--prefix").arg(scene.prefix()).arg("--root").arg(&root));
        let download = ran(scene
            .setup(&["--download-only", "--print", "--json", "--allow-unsigned", "--no-model", "--release"])
            .arg(scene.path("0.1.0"))
            .arg("--root")
            .arg(&root));
        // Fetching is never refused, whatever the machine.
        let fetched: Vec<String> = download.json()["files"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|file| file["place"].as_str())
            .filter(|place| place.ends_with(".tar.gz"))
            .map(str::to_owned)
            .collect();
        let text = format!(
            "$ strata-setup detect\n{}\n$ strata-setup plan --model qwen3-14b   (status {})\n{}{}\n$ strata-setup --download-only\n{}\n{}",
            words.out,
            plan.status.unwrap_or(-1),
            plan.out,
            plan.err,
            fetched.join("\n"),
            download.err,
        );
        compare(&format!("{name}.txt"), &steady(&text, &scene), &mut differing);
    }
    assert!(times.len() >= 25, "only {} machines", times.len());
    assert_eq!(differing, Vec::<String>::new(), "STRATA_BLESS=1 records what is right now");
    times.sort();
    let median = times[times.len() / 2];
    println!("{} machines, detecting takes {median:?} (median)", times.len());
    assert!(median < Duration::from_millis(300), "{median:?}");
}

/// The second report: two Radeon Pro VII, an old Xeon, setup stopped at its GPU check. It must not.
#[test]
fn two_radeon_pro_vii_are_planned_for_without_any_patch() {
    let scene = Scene::new();
    let root = scene.path("b");
    lay(&Path::new(HOSTS).join("radeon-pro-vii-two.json"), &root);
    let mut command = scene.setup(&["plan", "--json", "--yes", "--backend", "hip", "--gpus", "0,1", "--no-start"]);
    command.args(["--allow-unsigned", "--model", "qwen3.8-flash-next-iq3_s", "--release"]).arg(scene.path("0.1.0"));
    let models = Path::new("/proc");
    let ran = ran(command.arg("--prefix").arg(scene.prefix()).arg("--models-dir").arg(models).arg("--root").arg(&root));
    if ran.status == Some(1) {
        // 84 GB do not fit where this test runs; the refusal is about the disk and about nothing else.
        assert!(ran.err.contains("S0709"), "{}", ran.err);
        return;
    }
    let plan = ran.json();
    assert_eq!(plan["backend"]["plugins"], serde_json::json!(["hip-gfx906", "cpu"]));
    assert!(plan["devices"].as_array().unwrap().iter().all(|device| device["used"] == true));
    assert_eq!(plan["models"][0]["fit"]["verdict"], "gpu-and-ram", "{}", plan["models"][0]["fit"]["text"]);
}
