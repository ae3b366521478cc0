//! The child process and what is remembered of it.

use crate::support::{Folder, expect};
use std::time::Instant;
use strata_plugin_host::{OpenOptions, Plugin, ProbeCommand, ProbeOptions};

fn state_files(folder: &Folder) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs_err::read_dir(folder.state_dir().join("probe")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Opens anew as another process would: under another path, since a process opens a path once.
fn again(folder: &Folder) -> Folder {
    let copy = Folder::new();
    fs_err::copy(folder.library(), copy.library()).unwrap();
    copy.describe(|_| {});
    if folder.state_dir().exists() {
        fs_err::create_dir_all(copy.state_dir().join("probe")).unwrap();
        for file in state_files(folder) {
            fs_err::copy(&file, copy.state_dir().join("probe").join(file.file_name().unwrap())).unwrap();
        }
    }
    copy
}

#[test]
fn success_is_remembered_and_saves_the_child() {
    let folder = Folder::compiled(&[]);
    let plugin = folder.open_probed().unwrap();
    let outcome = plugin.probe().unwrap();
    assert!(!outcome.remembered);
    assert_eq!(outcome.devices.len(), 1);
    assert_eq!((outcome.devices[0].uid.as_str(), &outcome.devices[0].failure), ("test:0", &None));
    assert_eq!(state_files(&folder).len(), 1);

    let second = again(&folder);
    // A child would fail now.
    let command = ProbeCommand { program: "/nonexistent/strata".into(), args: Vec::new() };
    let options = ProbeOptions { command, ..second.probe() };
    let plugin = Plugin::open(&second.entry().unwrap(), &OpenOptions::probed(options)).unwrap();
    assert!(plugin.probe().unwrap().remembered);
}

#[test]
fn a_crash_is_quarantined_for_this_very_file_until_a_retry() {
    let folder = Folder::compiled(&["FAULT_SEGV"]);
    expect(folder.open_probed(), "plugin-crashed", "SIGSEGV");
    let error = expect(folder.open_probed(), "plugin-quarantined", "it crashed before, opening device 0");
    let hints = strata_diag::Diagnose::hints(&error);
    let file = state_files(&folder).remove(0);
    assert!(hints[0].contains("--retry-plugin") && hints[1].contains(&file.display().to_string()), "{hints:?}");

    // Tried again when asked to, and quarantined again.
    let retry = ProbeOptions { retry: true, ..folder.probe() };
    let opened = Plugin::open(&folder.entry().unwrap(), &OpenOptions::probed(retry));
    expect(opened, "plugin-crashed", "SIGSEGV");
    expect(folder.open_probed(), "plugin-quarantined", "");

    // Another file under the same name is another plugin.
    let sound = Folder::compiled(&[]);
    fs_err::rename(sound.library(), folder.library()).unwrap();
    folder.describe(|_| {});
    assert!(!folder.open_probed().unwrap().probe().unwrap().remembered);

    // Removing the file lifts it as well.
    let crashing = Folder::compiled(&["FAULT_SEGV"]);
    expect(crashing.open_probed(), "plugin-crashed", "");
    fs_err::remove_file(&state_files(&crashing)[0]).unwrap();
    expect(crashing.open_probed(), "plugin-crashed", "");
}

#[test]
fn a_hang_is_quarantined() {
    let folder = Folder::compiled(&["FAULT_HANG"]);
    let started = Instant::now();
    let probe = ProbeOptions { limit: Some(std::time::Duration::from_millis(700)), ..folder.probe() };
    let options = OpenOptions::probed(probe);
    expect(Plugin::open(&folder.entry().unwrap(), &options), "plugin-hung", "within 700 ms");
    assert!(started.elapsed().as_secs() < 10);
    expect(Plugin::open(&folder.entry().unwrap(), &options), "plugin-quarantined", "it hung before");
}

/// A first start that takes long is no silent one.
#[test]
fn a_long_try_is_announced() {
    let folder = Folder::compiled(&["FAULT_HANG"]);
    let lines = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = std::sync::Arc::clone(&lines);
    let probe = ProbeOptions { limit: Some(std::time::Duration::from_millis(3500)), ..folder.probe() };
    let log = std::sync::Arc::new(move |_, text: &str| sink.lock().unwrap().push(text.to_owned()));
    let options = OpenOptions { probe: Some(probe), log };
    expect(Plugin::open(&folder.entry().unwrap(), &options), "plugin-hung", "within 3500 ms");
    assert_eq!(*lines.lock().unwrap(), ["`test` is tried for the first time, for at most 3 s"]);
}

#[test]
fn what_is_remembered_holds_for_one_driver_and_host_and_undamaged_files_only() {
    let folder = Folder::compiled(&["FAULT_SEGV"]);
    expect(folder.open_probed(), "plugin-crashed", "");
    let file = state_files(&folder).remove(0);
    let text = fs_err::read_to_string(&file).unwrap();
    for key in ["sha256", "driver", "host", "schema"] {
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(value[key].is_string(), "{text}");
        value[key] = "another".into();
        fs_err::write(&file, value.to_string()).unwrap();
        expect(folder.open_probed(), "plugin-crashed", "");
    }
    let damaged: [&[u8]; 5] =
        [b"", b"{", &text.as_bytes()[..text.len() / 2], b"\xff\xfe\x00", b"{\"verdict\": \"crashed\"}"];
    for damaged in damaged {
        fs_err::write(&file, damaged).unwrap();
        expect(folder.open_probed(), "plugin-crashed", "");
        expect(folder.open_probed(), "plugin-quarantined", "");
    }
}

#[test]
fn other_failures_are_not_remembered() {
    for fault in ["FAULT_NULL_TABLE", "FAULT_PANIC", "FAULT_NUMBERS"] {
        let folder = Folder::compiled(&[fault]);
        let _ = folder.open_probed();
        assert!(state_files(&folder).is_empty(), "{fault}");
    }
}

#[test]
fn a_state_folder_that_cannot_be_written_costs_a_child_each_time() {
    let folder = Folder::compiled(&[]);
    // A file where the folder should be: no user, not even root, can write below it.
    fs_err::write(folder.state_dir(), "in the way").unwrap();
    assert!(!folder.open_probed().unwrap().probe().unwrap().remembered);
    let second = again(&folder);
    let options = ProbeOptions { state_dir: None, ..second.probe() };
    let plugin = Plugin::open(&second.entry().unwrap(), &OpenOptions::probed(options)).unwrap();
    assert!(!plugin.probe().unwrap().remembered);
}

#[test]
fn a_plugin_that_talks_on_stdout_is_understood_all_the_same() {
    for fault in ["FAULT_NOISE", "FAULT_NO_NEWLINE"] {
        let folder = Folder::compiled(&[fault]);
        let plugin = folder.open_probed().unwrap();
        assert_eq!(plugin.probe().unwrap().devices.len(), 1, "{fault}");
    }
}

#[test]
fn a_child_that_cannot_be_started_or_says_nothing() {
    let folder = Folder::compiled(&[]);
    let with = |program: &str, args: &[&str]| {
        let args = args.iter().map(Into::into).collect();
        let options = ProbeOptions { command: ProbeCommand { program: program.into(), args }, ..folder.probe() };
        Plugin::open(&folder.entry().unwrap(), &OpenOptions::probed(options))
    };
    expect(with("/nonexistent/strata", &[]), "plugin-probe", "program=/nonexistent/strata");
    // Ended from outside: nothing is known about the plugin, so nothing is remembered.
    expect(with("/bin/sh", &["-c", "kill -TERM $$"]), "plugin-probe", "ended from outside by SIGTERM");
    assert!(state_files(&folder).is_empty());
    expect(with("/bin/sh", &["-c", "echo hello; exit 0"]), "plugin-crashed", "without a result");
}

/// A remembered success speaks of the devices that were there then.
#[test]
fn a_device_that_was_added_later_is_tried() {
    let folder = Folder::compiled(&[]);
    folder.open_probed().unwrap();
    let second = again(&folder);
    let file = state_files(&second).remove(0);
    let text = fs_err::read_to_string(&file).unwrap();
    assert!(text.contains("test:0"), "{text}");
    fs_err::write(&file, text.replace("test:0", "test:9")).unwrap();
    let plugin = second.open_probed().unwrap();
    assert!(!plugin.probe().unwrap().remembered);
    assert_eq!(plugin.probe().unwrap().devices[0].uid, "test:0");
}
