//! Writes the seeds of the fuzz target `gguf_parse` into a folder:
//! `cargo run -p strata-model --example gguf_seeds -- fuzz/corpus/gguf_parse`.

use std::path::PathBuf;

#[path = "../tests/gguf/seeds.rs"]
mod seeds;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| std::io::Error::other("say which folder to write to"))?;
    fs_err::create_dir_all(&folder)?;
    seeds::seeds().into_iter().try_for_each(|(name, bytes)| fs_err::write(folder.join(name), bytes))
}
