//! The fuzz target's seeds, and whatever it once found, on every run of the tests.

use crate::{seeds, walk};

/// One file a line as hexadecimal digits behind a name; lines of `#` are comments.
const FINDS: &str = include_str!("../fixtures/gguf_finds.txt");

#[test]
fn seeds_are_read() {
    for (name, bytes) in seeds::seeds() {
        println!("{name}");
        walk::read(bytes);
    }
}

#[test]
fn finds_stay_fixed() {
    for line in FINDS.lines().filter(|line| !line.starts_with('#')) {
        let (name, digits) = line.split_once(' ').expect("a name and digits");
        println!("{name}");
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
        walk::read((0..digits.len()).step_by(2).map(byte).collect());
    }
}

/// Every single byte of the rich seed, set to values at the edges.
#[test]
fn each_byte_at_its_edges() {
    let rich = seeds::rich();
    for at in 0..rich.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = rich.clone();
            bytes[at] = value;
            walk::read(bytes);
        }
    }
}
