//! The lattice points that the kernels look up are those of the ABI crate, number for number.

use strata_backend_abi::codebook::{IQ1S_GRID, IQ2S_GRID, IQ2XS_GRID, IQ2XXS_GRID, IQ3S_GRID, IQ3XXS_GRID};

/// The numbers of the array `name` in a C header.
fn numbers(header: &str, name: &str) -> Vec<u64> {
    let start = header.find(&format!(" {name}[")).unwrap_or_else(|| panic!("no array {name}"));
    let body = header[start..].split_once('{').expect("a list").1.split_once('}').expect("its end").0;
    let number = |word: &str| {
        let digits = word.trim().strip_prefix("0x").expect("hexadecimal").trim_end_matches(['u', 'l']);
        u64::from_str_radix(digits, 16).expect("a number")
    };
    body.split(',').filter(|word| !word.trim().is_empty()).map(number).collect()
}

#[test]
fn tables_of_the_kernels_are_the_abis() {
    let header = include_str!("../../kernels/codebook.h");
    for (name, grid) in [
        ("IQ2XXS_GRID", IQ2XXS_GRID.to_vec()),
        ("IQ2XS_GRID", IQ2XS_GRID.to_vec()),
        ("IQ2S_GRID", IQ2S_GRID.to_vec()),
        ("IQ3XXS_GRID", IQ3XXS_GRID.iter().map(|point| u64::from(*point)).collect()),
        ("IQ3S_GRID", IQ3S_GRID.iter().map(|point| u64::from(*point)).collect()),
        ("IQ1S_GRID", IQ1S_GRID.to_vec()),
    ] {
        assert_eq!(numbers(header, name), grid, "{name}");
    }
}
