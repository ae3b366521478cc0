//! Gives the library the name that programs ask the loader for.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libamdhip64.so.7");
    println!("cargo::rerun-if-changed=build.rs");
}
