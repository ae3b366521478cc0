//! Ended by force at every named step, and at system calls in between: old or new, never between.

use crate::support::{Scene, done, ran, tool};
use std::process::Command;
use strata_install::Step;

#[test]
fn killed_at_every_named_step_the_old_or_the_new_runs() {
    println!("{:10} {:6} {:>10} {:>12} {:>12}", "killed at", "", "status", "then runs", "after rerun");
    for step in Step::ALL {
        for (suffix, word) in [("", "begin"), ("+", "done")] {
            let scene = Scene::new();
            let link = ["--model", "tiny", "--link"];
            done(&mut scene.install("0.1.0", &[]));
            let killed =
                ran(scene.install("0.2.0", &link).env("STRATA_SETUP_STOP_AT", format!("{}{suffix}", step.name())));
            let then = scene.version_that_runs();
            // Old until the switch is done, new from then on.
            let switched = step > Step::Switch || (step == Step::Switch && suffix == "+");
            assert_eq!(killed.status, None, "{step:?}{suffix} was not reached: {}", killed.err);
            assert_eq!(then, if switched { "0.2.0" } else { "0.1.0" }, "{step:?}{suffix}");
            done(scene.setup(&["list", "--check"]).arg("--prefix").arg(scene.prefix()));
            let again = done(&mut scene.install("0.2.0", &link));
            let after = scene.version_that_runs();
            println!("{:10} {word:6} {:>10} {then:>12} {after:>12}", step.name(), "SIGKILL");
            assert_eq!(after, "0.2.0");
            assert_eq!(
                again.err.contains("an earlier install stopped"),
                step != Step::Finish || suffix.is_empty(),
                "{}",
                again.err
            );
            let names: Vec<String> = fs_err::read_dir(scene.prefix().join("generations"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            assert!(names.iter().all(|name| !name.starts_with('.')), "{names:?}");
            done(scene.setup(&["uninstall", "--models", "--yes"]).arg("--prefix").arg(scene.prefix()));
            assert!(!scene.prefix().exists());
            assert!(!scene.path("home/.local/bin/strata").is_symlink());
        }
    }
}

/// Calls that change the disk, as the kernel sees them.
const CHANGES: &str = "write,writev,rename,renameat,renameat2,mkdir,mkdirat,symlink,symlinkat,unlink,unlinkat,\
rmdir,link,linkat,fsync,fdatasync,ftruncate,chmod,fchmod,fchmodat,copy_file_range,pwrite64";

/// How often the program itself makes each of these calls; what its children do is theirs.
fn count_changes(scene: &Scene, strace: &str) -> Vec<(String, usize)> {
    let log = scene.path("count.log");
    traced(scene, strace, &["-e", &format!("trace={CHANGES}")], &log);
    let text = fs_err::read_to_string(log).unwrap();
    let first = text.split(' ').next().unwrap_or_default().to_owned();
    let mut counts = std::collections::BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let call = (words.next() == Some(&first)).then(|| words.next()).flatten().and_then(|word| word.split_once('('));
        if let Some((call, _)) = call.filter(|(call, _)| CHANGES.split(',').any(|known| known == *call)) {
            *counts.entry(call.to_owned()).or_insert(0) += 1;
        }
    }
    counts.into_iter().collect()
}

fn traced(scene: &Scene, strace: &str, how: &[&str], log: &std::path::Path) -> std::process::Output {
    let mut command = Command::new(strace);
    command.args(["-f", "-qq"]).args(how).arg("-o").arg(log).arg(env!("CARGO_BIN_EXE_strata-setup"));
    command.args([
        "install",
        "--backend",
        "cpu",
        "--yes",
        "--allow-unsigned",
        "--no-model",
        "--progress",
        "none",
        "--release",
    ]);
    command.arg(scene.path("0.2.0")).arg("--prefix").arg(scene.prefix()).arg("--root").arg(scene.path("root"));
    command.env("HOME", scene.path("home")).output().unwrap()
}

/// The kernel itself fails or ends the program at the n-th change of the disk, for n from first to last.
fn sweep(what: &str, injection: &str) {
    let Some(strace) = tool("strace", &["-f", "-qq", "-e", "inject=fsync:error=EIO:when=1", "-o", "/dev/null", "true"])
    else {
        return;
    };
    let scene = Scene::new();
    done(&mut scene.install("0.1.0", &[]));
    let counts = count_changes(&scene, &strace);
    let points: Vec<(&str, usize)> =
        counts.iter().flat_map(|(call, count)| (1..=*count).map(|nth| (call.as_str(), nth))).collect();
    assert!(points.len() > 60, "only {} changes of the disk were seen", points.len());
    // All of them take minutes; some fifty, spread evenly.
    let step = (points.len() / 50).max(1);
    let tried: Vec<_> = points.iter().step_by(step).collect();
    let mut seen = std::collections::BTreeMap::new();
    for (call, nth) in &tried {
        let scene = Scene::new();
        done(&mut scene.install("0.1.0", &[]));
        let inject = format!("inject={call}:{injection}:when={nth}");
        let output =
            traced(&scene, &strace, &["-e", &format!("trace={call}"), "-e", &inject], &scene.path("inject.log"));
        let then = scene.version_that_runs();
        assert!(["0.1.0", "0.2.0"].contains(&then.as_str()), "{then} after {what} at {call} {nth}");
        done(scene.setup(&["list", "--check"]).arg("--prefix").arg(scene.prefix()));
        if output.status.success() {
            assert_eq!(then, "0.2.0", "{what} at {call} {nth} was swallowed");
        }
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!text.contains("panicked"), "{text}");
        *seen.entry((output.status.code(), then)).or_insert(0_usize) += 1;
        done(&mut scene.install("0.2.0", &[]));
        assert_eq!(scene.version_that_runs(), "0.2.0", "{what} at {call} {nth}");
    }
    let ended: usize = seen.iter().filter(|((status, _), _)| *status != Some(0)).map(|(_, times)| times).sum();
    assert!(ended * 2 > tried.len(), "{what} stopped only {ended} of {} runs: {seen:?}", tried.len());
    println!("{what} at {} of {} changes of the disk: (status, then runs): times: {seen:?}", tried.len(), points.len());
}

#[test]
fn a_disk_that_is_full_at_any_system_call_leaves_the_old_or_the_new() {
    sweep("ENOSPC", "error=ENOSPC");
}

#[test]
fn a_disk_that_breaks_at_any_system_call_leaves_the_old_or_the_new() {
    sweep("EIO", "error=EIO");
}

#[test]
fn killed_at_any_system_call_the_old_or_the_new_runs() {
    sweep("SIGKILL", "signal=KILL");
}

#[test]
fn an_uninstallation_that_is_killed_is_ended_by_the_next() {
    let Some(strace) = tool("strace", &["-f", "-qq", "-e", "inject=fsync:error=EIO:when=1", "-o", "/dev/null", "true"])
    else {
        return;
    };
    let mut killed = 0;
    for nth in 1..=14 {
        let scene = Scene::new();
        done(&mut scene.install("0.1.0", &["--model", "tiny", "--link"]));
        let mine = scene.prefix().join("generations/1/mine.txt");
        fs_err::write(&mine, "mine").unwrap();
        let mut command = Command::new(&strace);
        command.args(["-f", "-qq", "-e", "trace=unlink,unlinkat,rmdir", "-o", "/dev/null", "-e"]);
        command.arg(format!("inject=unlink,unlinkat,rmdir:signal=KILL:when={nth}"));
        command.arg(env!("CARGO_BIN_EXE_strata-setup")).args(["uninstall", "--models", "--yes", "--prefix"]);
        let output = command.arg(scene.prefix()).env("HOME", scene.path("home")).output().unwrap();
        killed += u32::from(output.status.code().is_none());
        // What still runs is whole; what is no longer current does not run.
        let then = scene.version_that_runs();
        assert!(["0.1.0", "nothing"].contains(&then.as_str()), "{then}");
        let again = ran(scene.setup(&["uninstall", "--models", "--yes"]).arg("--prefix").arg(scene.prefix()));
        assert!(again.status == Some(0) || again.err.contains("S0716"), "{nth}: {}", again.err);
        assert_eq!(crate::releases::files_below(&scene.prefix()), [mine], "killed at removal {nth}");
    }
    assert!(killed >= 10, "only {killed} of 14 were killed");
    println!("killed at {killed} removals, every next uninstallation ended the work");
}
