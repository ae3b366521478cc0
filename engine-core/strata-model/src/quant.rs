//! Dequantising, scalar: the definition of what a block of each format means.

use crate::ModelError;
use strata_backend_abi::StrataDType;

/// Decodes one row.
pub fn dequantise_row(dtype: StrataDType, data: &[u8], out: &mut [f32]) -> Result<(), ModelError> {
    Err(ModelError::RowSize { dtype, data: data.len(), elements: out.len() })
}
