//! Gathers the build record that `embed!` places in the program.
fn main() {
    strata_build_record::emit();
}
