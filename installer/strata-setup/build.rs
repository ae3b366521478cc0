//! Gathers the build record that `embed!` places in the program.

fn main() {
    strata_build_record::emit();
    println!("cargo::rerun-if-env-changed=STRATA_RELEASE_URL");
    println!("cargo::rerun-if-env-changed=STRATA_RELEASE_KEYS");
}
