//! Buffers as the oracle sees them: plain bytes, and views that find an element by the formula of
//! the ABI (`offset + Σ iₖ·nb[k]`), one element or one row at a time.

use crate::number::{bf16_to_f64, f16_to_f64, f64_to_bf16, f64_to_f16};
use std::ops::Range;
use strata_backend_abi::{StrataDType, StrataTensor};

/// Position of a row: the indices of dimensions 1, 2 and 3.
pub(crate) type RowIndex = [u64; 3];

/// A tensor with its dynamic dimensions filled in for one run.
#[derive(Debug, Clone, Copy)]
pub struct View {
    pub dtype: StrataDType,
    pub buffer: usize,
    pub offset: u64,
    pub ne: [u64; 4],
    pub nb: [u64; 4],
}

impl View {
    /// Fills in the dynamic dimensions from the run's scalars.
    pub fn resolve(tensor: &StrataTensor, scalars: &[i64]) -> View {
        let mut ne = tensor.ne;
        for (extent, dynamic) in ne.iter_mut().zip(tensor.dynamic) {
            if dynamic > 0 {
                *extent = scalars[dynamic as usize - 1] as u64;
            }
        }
        let dtype = StrataDType::from_number(tensor.dtype).expect("cases use known formats");
        View { dtype, buffer: tensor.buffer as usize, offset: tensor.offset, ne, nb: tensor.nb }
    }

    pub fn rows(&self) -> impl Iterator<Item = RowIndex> + use<> {
        let [_, n1, n2, n3] = self.ne;
        (0..n3).flat_map(move |i3| (0..n2).flat_map(move |i2| (0..n1).map(move |i1| [i1, i2, i3])))
    }

    /// Bytes of a row within its buffer.
    pub fn row_range(&self, [i1, i2, i3]: RowIndex) -> Range<usize> {
        let start = (self.offset + i1 * self.nb[1] + i2 * self.nb[2] + i3 * self.nb[3]) as usize;
        let bytes = self.dtype.row_bytes(self.ne[0]).expect("rows are whole blocks") as usize;
        start..start + bytes
    }
}

/// The bytes of all buffers of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    pub buffers: Vec<Vec<u8>>,
}

impl Memory {
    pub fn row_bytes(&self, view: &View, index: RowIndex) -> &[u8] {
        &self.buffers[view.buffer][view.row_range(index)]
    }

    /// A row's values, whatever its format.
    pub fn row(&self, view: &View, index: RowIndex) -> Vec<f64> {
        decode_row(view.dtype, self.row_bytes(view, index), view.ne[0] as usize)
    }

    /// An element of an I32 or plain float tensor.
    pub fn element(&self, view: &View, i0: u64, index: RowIndex) -> f64 {
        let bytes = view.dtype.block_bytes();
        let start = i0 as usize * bytes;
        decode_row(view.dtype, &self.row_bytes(view, index)[start..start + bytes], 1)[0]
    }

    /// An element of an I32 tensor.
    pub fn integer(&self, view: &View, i0: u64, index: RowIndex) -> i64 {
        self.element(view, i0, index) as i64
    }

    /// Stores a row, rounded to the tensor's format, which is a plain one.
    pub fn store_row(&mut self, view: &View, index: RowIndex, values: &[f64]) {
        let range = view.row_range(index);
        let target = &mut self.buffers[view.buffer][range];
        for (slot, value) in target.chunks_exact_mut(view.dtype.block_bytes()).zip(values) {
            encode_element(view.dtype, *value, slot);
        }
    }
}

fn decode_row(dtype: StrataDType, bytes: &[u8], n: usize) -> Vec<f64> {
    match dtype {
        StrataDType::F32 => {
            bytes.as_chunks().0.iter().map(|chunk: &[u8; 4]| f64::from(f32::from_le_bytes(*chunk))).collect()
        }
        StrataDType::I32 => {
            bytes.as_chunks().0.iter().map(|chunk: &[u8; 4]| f64::from(i32::from_le_bytes(*chunk))).collect()
        }
        StrataDType::F16 => bytes.as_chunks().0.iter().map(|chunk| f16_to_f64(u16::from_le_bytes(*chunk))).collect(),
        StrataDType::BF16 => bytes.as_chunks().0.iter().map(|chunk| bf16_to_f64(u16::from_le_bytes(*chunk))).collect(),
        quantised => {
            let mut out = vec![0.0_f32; n];
            strata_model::quant::dequantise_row(quantised, bytes, &mut out).expect("whole blocks of a known format");
            out.into_iter().map(f64::from).collect()
        }
    }
}

/// Rounds one value into `slot`, which has the bytes of one element of a plain format.
pub(crate) fn encode_element(dtype: StrataDType, value: f64, slot: &mut [u8]) {
    match dtype {
        StrataDType::F32 => slot.copy_from_slice(&(value as f32).to_le_bytes()),
        StrataDType::I32 => slot.copy_from_slice(&(value as i32).to_le_bytes()),
        StrataDType::F16 => slot.copy_from_slice(&f64_to_f16(value).to_le_bytes()),
        StrataDType::BF16 => slot.copy_from_slice(&f64_to_bf16(value).to_le_bytes()),
        quantised => unreachable!("no op of this ABI has a {quantised} result that the oracle rounds"),
    }
}
