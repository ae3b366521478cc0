//! A disk that fails at every n-th change, and a user who stops at every step: the old or the new
//! installation, never anything between.

use crate::support::{Site, all_packages, quick_folder, release, state};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use strata_diag::Diagnose;
use strata_install::{Disk, Observer, Step, Unwatched};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const EROFS: i32 = 30;

/// A disk that fails with `errno` at its `nth` change and all later ones.
fn failing(nth: u64, errno: i32) -> (Disk, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    let gate = move |_, _: &std::path::Path| {
        let now = counter.fetch_add(1, Ordering::Relaxed);
        if now >= nth { Err(io::Error::from_raw_os_error(errno)) } else { Ok(()) }
    };
    (Disk::gated(gate), count)
}

#[test]
fn a_full_or_broken_disk_at_every_change_leaves_the_old_or_the_new() {
    let folder = quick_folder();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    release(&one, "0.1.0", 1, &all_packages("0.1.0"));
    release(&two, "0.2.0", 2, &all_packages("0.2.0"));
    let mut outcomes = std::collections::BTreeMap::new();
    for errno in [ENOSPC, EIO] {
        for nth in 0.. {
            let site = Site::new(&folder.path().join(format!("prefix-{errno}-{nth}")));
            site.install(&one, &Disk::real(), &Unwatched).unwrap();
            let (disk, count) = failing(nth, errno);
            let result = site.install(&two, &disk, &Unwatched);
            let after = state(&site.root);
            match &result {
                Ok(_) => assert_eq!(after, "0.2.0"),
                Err(error) => {
                    assert_eq!(error.code().id, "S0722", "{error}");
                    assert!(["0.1.0", "0.2.0"].contains(&after.as_str()), "{after} after change {nth}");
                }
            }
            *outcomes.entry((errno, result.is_ok(), after)).or_insert(0_u32) += 1;
            // With a disk that works again the same command ends in the new state.
            site.install(&two, &Disk::real(), &Unwatched).unwrap();
            assert_eq!(state(&site.root), "0.2.0");
            let names: Vec<String> = fs_err::read_dir(site.root.generations())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            assert!(names.iter().all(|name| !name.starts_with('.')), "{names:?}");
            fs_err::remove_dir_all(site.root.path()).unwrap();
            if result.is_ok() && count.load(Ordering::Relaxed) <= nth {
                break;
            }
        }
    }
    println!("(errno, finished, state after): runs");
    for (outcome, runs) in &outcomes {
        println!("  {outcome:?}: {runs}");
    }
    let failures: u32 = outcomes.iter().filter(|((_, ok, _), _)| !ok).map(|(_, runs)| runs).sum();
    assert!(failures > 60, "only {failures} changes of the disk were made to fail");
}

/// Asks to stop from one step on.
struct StopAt {
    step: Step,
    reached: AtomicBool,
}

impl Observer for StopAt {
    fn step(&self, step: Step) {
        if step == self.step {
            self.reached.store(true, Ordering::Relaxed);
        }
    }

    fn cancelled(&self) -> bool {
        self.reached.load(Ordering::Relaxed)
    }
}

#[test]
fn a_user_who_stops_at_any_step_has_the_old_or_the_new() {
    let folder = quick_folder();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    release(&one, "0.1.0", 1, &all_packages("0.1.0"));
    release(&two, "0.2.0", 2, &all_packages("0.2.0"));
    for step in Step::ALL {
        let site = Site::new(&folder.path().join(step.name()));
        site.install(&one, &Disk::real(), &Unwatched).unwrap();
        let observer = StopAt { step, reached: AtomicBool::new(false) };
        match site.install(&two, &Disk::real(), &observer) {
            Ok(_) => assert_eq!(state(&site.root), "0.2.0", "{step:?}"),
            Err(error) => {
                assert_eq!(error.code().id, "S0007", "{error}");
                assert_eq!(state(&site.root), "0.1.0", "{step:?}");
            }
        }
        site.install(&two, &Disk::real(), &Unwatched).unwrap();
        assert_eq!(state(&site.root), "0.2.0", "{step:?}");
    }
}

#[test]
fn a_prefix_that_cannot_be_written_is_said_to_be_one() {
    let folder = quick_folder();
    release(&folder.path().join("one"), "0.1.0", 1, &all_packages("0.1.0"));
    let site = Site::new(&folder.path().join("prefix"));
    let (disk, _) = failing(0, EROFS);
    let error = site.install(&folder.path().join("one"), &disk, &Unwatched).unwrap_err();
    assert_eq!(error.code().id, "S0711", "{error}");
    assert!(error.hints().iter().any(|hint| hint.contains("--prefix")));
}
