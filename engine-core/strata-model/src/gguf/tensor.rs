//! Where a tensor lies and what it holds, and the names of all tensor formats there have been.

use strata_backend_abi::StrataDType;

/// A tensor whose format this build reads. Its range was checked when the file was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    pub name: String,
    pub dtype: StrataDType,
    /// Elements per dimension, contiguous one first; unused ones are 1.
    pub ne: [u64; 4],
    /// Dimensions that the file gives: 1 to 4.
    pub n_dims: usize,
    /// Index into [`crate::gguf::Gguf::parts`].
    pub part: usize,
    /// Bytes from the start of the part's file.
    pub offset: u64,
    pub bytes: u64,
}

impl TensorInfo {
    /// The dimensions that the file gives.
    pub fn shape(&self) -> &[u64] {
        &self.ne[..self.n_dims]
    }

    /// Whether the shape is this one; trailing ones of either do not count.
    pub fn has_shape(&self, shape: &[u64]) -> bool {
        shape.len() <= 4 && (0..4).all(|i| self.ne[i] == shape.get(i).copied().unwrap_or(1))
    }

    pub fn elements(&self) -> u64 {
        self.ne.iter().product()
    }

    /// Rows: the product of all dimensions but the first.
    pub fn rows(&self) -> u64 {
        self.ne[1..].iter().product()
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> u64 {
        self.bytes / self.rows()
    }
}

/// A tensor of a format that this build does not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignTensor {
    pub name: String,
    /// The file's number of the format; [`type_name`] knows some.
    pub type_number: u32,
    pub ne: [u64; 4],
    pub n_dims: usize,
    pub part: usize,
    /// Bytes from the start of the part's file.
    pub offset: u64,
}

impl ForeignTensor {
    /// The dimensions that the file gives.
    pub fn shape(&self) -> &[u64] {
        &self.ne[..self.n_dims]
    }
}

/// `[576, 49152]`.
pub(crate) fn shape_text(shape: &[u64]) -> String {
    format!("{shape:?}")
}

/// The name of a tensor format, known to this build or only by name.
pub fn type_name(number: u32) -> Option<&'static str> {
    if let Some(dtype) = StrataDType::from_number(number) {
        return Some(dtype.name());
    }
    Some(match number {
        4 => "Q4_2",
        5 => "Q4_3",
        9 => "Q8_1",
        15 => "Q8_K",
        24 => "I8",
        25 => "I16",
        27 => "I64",
        28 => "F64",
        31 => "Q4_0_4_4",
        32 => "Q4_0_4_8",
        33 => "Q4_0_8_8",
        34 => "TQ1_0",
        35 => "TQ2_0",
        36 => "IQ4_NL_4_4",
        37 => "IQ4_NL_4_8",
        38 => "IQ4_NL_8_8",
        40 => "NVFP4",
        41 => "Q1_0",
        42 => "Q2_0",
        _ => return None,
    })
}
