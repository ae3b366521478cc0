//! Any bytes as a GGUF file: reading them ends in a model, which is then walked, or in an error,
//! which is then rendered. The walk is the one of the property tests.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../engine-core/strata-model/tests/gguf/walk.rs"]
mod walk;

fuzz_target!(|bytes: &[u8]| walk::read(bytes.to_vec()));
