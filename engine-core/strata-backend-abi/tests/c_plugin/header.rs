//! The header by itself: C, C++, and true to the layout.

use std::process::Command;

use strata_backend_abi::layout;

use crate::host::{compile, crate_folder, scratch};

#[test]
fn the_header_alone_is_c_and_cpp() {
    let include = b"#include \"strata_backend.h\"\n#include \"strata_backend.h\"\n";
    let (c, cpp) = (scratch("header.c"), scratch("header.cpp"));
    fs_err::write(&c, include).unwrap();
    fs_err::write(&cpp, include).unwrap();
    compile(("CC", "cc"), &["-std=c11", "-fsyntax-only"], &c, None);
    for version in ["-std=c++11", "-std=c++17", "-std=c++20"] {
        compile(("CXX", "c++"), &[version, "-fsyntax-only"], &cpp, None);
    }
    fs_err::remove_file(&c).unwrap();
    fs_err::remove_file(&cpp).unwrap();
}

#[test]
fn the_layout_asserts_bite() {
    let source = scratch("wrong.c");
    let wrong = "#include \"strata_backend.h\"\n_Static_assert(sizeof(struct StrataOp) == 160, \"\");\n";
    fs_err::write(&source, wrong).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let include = crate_folder().join("include");
    let result = Command::new(compiler).args(["-std=c11", "-fsyntax-only", "-I"]).arg(include).arg(&source).output();
    assert!(!result.unwrap().status.success(), "a wrong size compiled");
    fs_err::remove_file(&source).unwrap();
}

#[test]
fn the_header_names_the_layouts_hash() {
    let header = fs_err::read_to_string(crate_folder().join("include/strata_backend.h")).unwrap();
    let line = format!("#define STRATA_ABI_LAYOUT_HASH \"{}\"", layout::hash());
    assert!(header.lines().any(|found| found == line), "run `cargo xtask gen`: no line {line}");
}
