//! Real libraries, opened the way the product opens them: a sound one, one for each way to be
//! wrong, the files that are no libraries, and the project's own CPU plugin.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail a test by panicking")]

mod files;
mod misbehaving;
mod probing;
mod product;
mod sound;
mod support;

/// The child of the tests' probes is this test program itself, run for this test alone with the
/// descriptor as its last argument. On its own the test does nothing.
#[test]
fn probe_child_mode() {
    let descriptor = std::env::args().next_back().filter(|argument| argument.ends_with(".plugin.json"));
    if let Some(descriptor) = descriptor {
        strata_plugin_host::probe_child(std::path::Path::new(&descriptor));
        // The harness's own lines would come behind; the parent must cope with those as well.
    }
}
