//! The proof that the header is C and enough to write a plugin with: a C compiler and a C++ compiler
//! take it without a warning, `tests/c/plugin.c` and the plugin of docs/ABI.md are made into
//! libraries, and those run programs through the raw table.
//!
//! Needs `cc` and `c++`, which a machine that links Rust has. `CC` and `CXX` override them.

#[cfg(test)]
mod document;
#[cfg(test)]
mod header;
#[cfg(test)]
mod host;
#[cfg(test)]
mod plugin;
