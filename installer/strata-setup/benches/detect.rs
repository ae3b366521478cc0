//! How long `strata-setup detect` takes, as a user starts it: the whole program over each machine of the fixtures,
//! and over this one. `cargo bench -p strata-setup` prints the medians.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark that cannot go on fails, and prints numbers"
)]

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const HOSTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../strata-probe/fixtures/hosts");
const RUNS: usize = 15;
/// What is promised for a machine's files.
const BOUND: Duration = Duration::from_millis(300);

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

/// Wall-clock time of one start.
fn once(root: Option<&Path>) -> Duration {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strata-setup"));
    command.args(["detect", "--json"]).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(root) = root {
        command.arg("--root").arg(root);
    }
    let started = Instant::now();
    assert!(command.status().unwrap().success());
    started.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let mut trees: Vec<_> = fs_err::read_dir(HOSTS).unwrap().map(|entry| entry.unwrap().path()).collect();
    trees.sort();
    let mut medians = Vec::new();
    println!("strata-setup detect --json, {RUNS} starts each, median and slowest");
    for tree in &trees {
        let name = tree.file_stem().unwrap().to_string_lossy().into_owned();
        let root = folder.path().join(&name);
        lay(tree, &root);
        once(Some(&root));
        let times: Vec<Duration> = (0..RUNS).map(|_| once(Some(&root))).collect();
        let slowest = times.iter().max().copied().unwrap_or_default();
        let middle = median(times);
        println!("  {name:<32} {middle:>10.2?} {slowest:>10.2?}");
        medians.push(middle);
    }
    let own = median((0..RUNS).map(|_| once(None)).collect());
    println!("  {:<32} {own:>10.2?}", "this machine, with its tools");
    let all = median(medians);
    println!("median over {} machines: {all:.2?} (bound: {BOUND:?})", trees.len());
    assert!(all < BOUND, "{all:?}");
}
