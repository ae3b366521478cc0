//! Compiles the kernels and gathers the build record. Without a compiler the plugin is built without
//! kernels, and says so when it is opened.

use std::path::{Path, PathBuf};

use strata_kernel_build::{Outcome, Recipe, Target, TargetKind};

/// PTX for every card from 8.0 on, and for 9.0 with what is new there.
const TARGETS: [Target; 2] =
    [Target { arch: "sm_80", kind: TargetKind::Ptx(72) }, Target { arch: "sm_90", kind: TargetKind::Ptx(80) }];
/// Machine code where the assembler is at hand.
const CUBINS: [&str; 4] = ["sm_80", "sm_86", "sm_89", "sm_90"];

fn main() {
    strata_build_record::emit();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels");
    let Some(out) = std::env::var_os("OUT_DIR").map(PathBuf::from) else {
        fail("OUT_DIR is not set: this is a build script");
    };
    match strata_kernel_build::build(&Recipe { sources: &sources, targets: &TARGETS, cubins: &CUBINS, out: &out }) {
        Ok(Outcome::Built(_)) => {}
        Ok(Outcome::NotBuilt(why)) => say(&format!("cargo::warning=the CUDA plugin is built without kernels: {why}")),
        Err(text) => fail(&text),
    }
}

#[expect(clippy::print_stdout, reason = "cargo reads directives from a build script's standard output")]
fn say(text: &str) {
    println!("{text}");
}

#[expect(clippy::panic, reason = "a build script that cannot go on stops the build with its text")]
fn fail(text: &str) -> ! {
    panic!("{text}")
}
