//! Reads bytes as a model and touches everything that an open one offers. Used by the property
//! tests, by the replay of seeds and finds, and by the fuzz target.

use strata_model::gguf::{Gguf, Value};
use strata_model::inspect::Summary;
use strata_model::quant::dequantise_row;

/// Elements of an array or a tensor that are looked at.
const LOOKED_AT: usize = 1000;

pub(crate) fn read(bytes: Vec<u8>) {
    match Gguf::from_bytes_lenient("toy.gguf", bytes) {
        Ok(gguf) => walk(&gguf),
        Err(error) => {
            let diagnostic = strata_diag::Diagnostic::of(&error);
            assert!(!diagnostic.message.is_empty());
            assert!(diagnostic.to_text().len() < 20_000, "a message holds too much of the file");
        }
    }
}

pub(crate) fn walk(gguf: &Gguf) {
    let total: u64 = gguf.tensors().iter().map(|tensor| gguf.tensor_data(tensor).len() as u64).sum();
    assert!(total <= gguf.parts()[0].file_bytes, "tensors share bytes");
    for tensor in gguf.tensors() {
        assert_eq!(gguf.tensor(&tensor.name), Some(tensor));
        assert_eq!(tensor.row_bytes() * tensor.rows(), tensor.bytes);
        let row = &gguf.tensor_data(tensor)[..tensor.row_bytes() as usize];
        if tensor.ne[0] as usize <= LOOKED_AT {
            let mut out = vec![0.0; tensor.ne[0] as usize];
            dequantise_row(tensor.dtype, row, &mut out).expect("a row of a checked tensor");
        }
    }
    for (key, value) in gguf.keys() {
        assert!(gguf.value(key).is_some());
        assert!(value.brief().len() < 1000);
        walk_value(value);
    }
    let summary = Summary::of(gguf);
    let _ = (summary.to_text(true), summary.to_json());
}

fn walk_value(value: &Value) {
    let Some(array) = value.as_array() else { return };
    for index in 0..array.len().min(LOOKED_AT) {
        let element = array.value_at(index).expect("an element inside the array");
        walk_value(&element);
        let _ = (array.str_at(index), array.i64_at(index), array.f32_at(index), array.bool_at(index));
    }
    assert!(array.value_at(array.len()).is_none());
}
