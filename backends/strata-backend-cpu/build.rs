//! Gathers the build record that `embed!` places in the plugin.
fn main() {
    strata_build_record::emit();
}
