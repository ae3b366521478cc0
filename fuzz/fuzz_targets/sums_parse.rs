//! Any bytes as a list of SHA-256 sums: every line is an entry, a line that is told as unread, or no
//! line of a list; and checking against it looks at nothing outside the list's folder.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use strata_package::sums::{self, SumResult};

fuzz_target!(|bytes: &[u8]| {
    let list = sums::parse(bytes);
    let folder = Path::new("/nonexistent-folder-of-a-fuzzer");
    let checks = sums::check(&list, folder, &[]);
    assert!(checks.len() <= list.entries.len());
    for check in checks {
        assert!(!matches!(check.result, SumResult::Verified | SumResult::Differs { .. }), "{check:?}");
    }
});
