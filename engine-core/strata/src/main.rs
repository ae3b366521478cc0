//! The `strata` command.
strata_build_record::embed!();
fn main() {
    println!("{BUILD_RECORD}");
}
