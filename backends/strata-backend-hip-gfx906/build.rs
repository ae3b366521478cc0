//! Compiles the kernels and gathers the build record. Without a compiler the plugin is built without
//! kernels, and says so when it is opened.

use std::path::{Path, PathBuf};

use strata_kernel_build::{HIP_GFX906_TARGETS, Outcome, Recipe};

fn main() {
    strata_build_record::emit();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels");
    let Some(out) = std::env::var_os("OUT_DIR").map(PathBuf::from) else {
        fail("OUT_DIR is not set: this is a build script");
    };
    match strata_kernel_build::build(&Recipe {
        sources: &sources,
        targets: &HIP_GFX906_TARGETS,
        cubins: &[],
        out: &out,
    }) {
        Ok(Outcome::Built(_)) => {}
        Ok(Outcome::NotBuilt(why)) => say(&format!("cargo::warning=the HIP plugin is built without kernels: {why}")),
        Err(text) => fail(&text),
    }
}

fn say(text: &str) {
    println!("{text}");
}

#[expect(clippy::panic, reason = "a build script that cannot go on stops the build with its text")]
fn fail(text: &str) -> ! {
    panic!("{text}")
}
