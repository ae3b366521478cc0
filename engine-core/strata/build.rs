//! Gathers the build record that `embed!` places in the program, and the pages of docs/errors that
//! `strata explain` prints.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    strata_build_record::emit();

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    let mut pages: Vec<PathBuf> = fs_err::read_dir(&folder)
        .expect("docs/errors lies in the repository")
        .map(|entry| entry.expect("docs/errors can be read").path())
        .filter(|path| path.file_stem().is_some_and(|stem| stem.to_string_lossy().starts_with('S')))
        .collect();
    pages.sort();
    let mut list = String::from("pub(super) const PAGES: &[(&str, &str)] = &[\n");
    for page in &pages {
        let id = page.file_stem().unwrap_or_default().to_string_lossy();
        // Writing to a String cannot fail.
        let _ = writeln!(list, "    ({id:?}, include_str!({:?})),", page.to_string_lossy());
    }
    list += "];\n";
    let target = PathBuf::from(std::env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR")).join("pages.rs");
    fs_err::write(target, list).expect("OUT_DIR can be written");
    println!("cargo::rerun-if-changed={}", folder.display());
}
