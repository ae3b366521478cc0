//! The installer program: flags, prompts, progress.

fn main() {}
