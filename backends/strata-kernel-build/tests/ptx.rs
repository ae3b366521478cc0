//! NVIDIA's assembler takes every kernel for every card from Turing to Blackwell: what the driver would do with our
//! PTX at its first start, without a card.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use strata_kernel_build::{CUDA_TARGETS, Recipe, assemble};

/// One of each generation, and those between that have other limits.
const CARDS: [&str; 6] = ["sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120"];

#[test]
fn nvidias_assembler_takes_every_kernel_for_every_card() {
    // A variable of its own: `STRATA_PTXAS` puts machine code into the plugin as well.
    let Some(ptxas) = std::env::var_os("STRATA_TEST_PTXAS").map(PathBuf::from).filter(|path| path.is_file()) else {
        eprintln!("skipped: no NVIDIA assembler: STRATA_TEST_PTXAS names none");
        return;
    };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../backends/kernels");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ptx");
    let recipe = Recipe { sources: &sources, targets: &CUDA_TARGETS, cubins: &CARDS, out: &out };
    let made = assemble(&recipe, &ptxas).unwrap_or_else(|error| panic!("{error}"));
    let Some(modules) = made else {
        eprintln!("skipped: clang-19 was not found");
        return;
    };
    let modules: BTreeMap<String, Vec<String>> = modules.into_iter().collect();
    let cubins = |name: &str| -> Vec<&str> {
        modules[name].iter().map(String::as_str).filter(|target| target.starts_with("sm_")).collect()
    };
    let newest_first = |cards: &[&'static str]| -> Vec<&'static str> { cards.iter().rev().copied().collect() };
    // Everything that a model needs is there from the oldest card on; tensor cores' forms from 8.0 and 9.0 on.
    for name in ["attention", "elementwise", "embed", "matmul_float", "mmv_t1", "mmv_t8", "mmx", "moe", "norm", "route"]
    {
        assert_eq!(cubins(name), newest_first(&CARDS), "{name}");
    }
    for name in ["attention_f16", "halves", "hmm", "hmv", "mmq"] {
        assert_eq!(cubins(name), newest_first(&CARDS[1..]), "{name}");
    }
    assert_eq!(cubins("hmw"), ["sm_90a"]);
    eprintln!("{} modules taken for {} cards", modules.len(), CARDS.len());
}
