//! What each op must give: one plain f64 loop per op, following the ABI's op documentation to the
//! letter. It shares no code with any plugin and is not meant to be fast.
//!
//! Beside each value it computes how far rounding may move it: the sizes that the error bounds in
//! `tolerance` are multiplied with. Called by the runner, op after op over a copy of the case's
//! memory; results are stored rounded to their tensor's format, so that programs of several ops work.

mod attention;
mod elementwise;
mod matmul;
mod router;
mod rows;

pub(crate) use router::{Choice, Router};

use crate::memory::{Memory, RowIndex, View};
use std::ops::Range;
use strata_backend_abi::{STRATA_NO_OPERAND, StrataOp, StrataOpKind, StrataTensor};

/// One expected element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Element {
    pub value: f64,
    /// Sum of the magnitudes that f32 arithmetic rounds on the way to the value; 0: exact.
    pub scale: f64,
    /// Error bound when activations are rounded to 8 bits per block.
    pub eight_bit: f64,
    /// Error bound when activations are rounded to the weight's (or cache's) 16-bit format.
    pub half: f64,
}

impl Element {
    pub fn exact(value: f64) -> Element {
        Element { value, scale: 0.0, eight_bit: 0.0, half: 0.0 }
    }

    pub fn float(value: f64, scale: f64) -> Element {
        Element { value, scale, eight_bit: 0.0, half: 0.0 }
    }
}

/// The rows that an op writes into one of its results, with the values they must hold.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub view: View,
    /// Numbers added up for one element, for the error bound.
    pub terms: usize,
    pub rows: Vec<(RowIndex, Vec<Element>)>,
}

impl Expected {
    pub(crate) fn new(view: View, terms: usize) -> Expected {
        Expected { view, terms, rows: Vec::new() }
    }
}

/// An op with its operands looked up.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub op: &'a StrataOp,
    pub tensors: &'a [StrataTensor],
    pub scalars: &'a [i64],
    pub memory: &'a Memory,
}

impl Call<'_> {
    pub(crate) fn view(&self, slot: usize) -> View {
        View::resolve(&self.tensors[self.op.operand[slot] as usize], self.scalars)
    }

    pub(crate) fn optional(&self, slot: usize) -> Option<View> {
        (self.op.operand[slot] != STRATA_NO_OPERAND).then(|| self.view(slot))
    }

    pub(crate) fn row(&self, view: &View, index: RowIndex) -> Vec<f64> {
        self.memory.row(view, index)
    }

    pub(crate) fn float(&self, index: usize) -> f64 {
        f64::from(self.op.float[index])
    }

    pub(crate) fn int(&self, index: usize) -> i64 {
        self.op.int[index]
    }
}

/// Runs one op over `memory`: returns what it must write and writes it.
pub(crate) fn run(op: &StrataOp, tensors: &[StrataTensor], scalars: &[i64], memory: &mut Memory) -> Vec<Expected> {
    let call = Call { op, tensors, scalars, memory };
    let kind = StrataOpKind::from_number(op.kind).expect("cases use known ops");
    let expected = match kind {
        StrataOpKind::EmbeddingLookup => vec![rows::embedding(&call)],
        StrataOpKind::RmsNorm => vec![rows::rms_norm(&call)],
        StrataOpKind::L2Norm => vec![rows::l2_norm(&call)],
        StrataOpKind::Softmax => vec![rows::softmax(&call)],
        StrataOpKind::Rope => vec![rows::rope(&call)],
        StrataOpKind::GatherRows => vec![rows::gather(&call)],
        StrataOpKind::ArgMax => vec![rows::arg_max(&call)],
        StrataOpKind::MatMul => vec![matmul::mat_mul(&call)],
        StrataOpKind::ExpertMatMul => vec![matmul::expert_mat_mul(&call)],
        StrataOpKind::ExpertCombine => vec![matmul::expert_combine(&call)],
        StrataOpKind::KvStore => vec![attention::kv_store(&call)],
        StrataOpKind::Attention => vec![attention::attention(&call)],
        StrataOpKind::Glu => vec![elementwise::glu(&call)],
        StrataOpKind::Add => vec![elementwise::add(&call)],
        StrataOpKind::Mul => vec![elementwise::mul(&call)],
        StrataOpKind::Scale => vec![elementwise::scale(&call)],
        StrataOpKind::Unary => vec![elementwise::unary(&call)],
        StrataOpKind::Copy => vec![elementwise::copy(&call)],
        StrataOpKind::RouterTopK => router::top_k(&call),
        StrataOpKind::GatedDeltaNet | StrataOpKind::ShortConv | StrataOpKind::HyperConnection => {
            unreachable!("reserved ops have no meaning yet")
        }
    };
    for result in &expected {
        if result.view.dtype.is_quantised() {
            // Which blocks a plugin chooses is its own affair; the comparison decodes them.
            continue;
        }
        for (index, elements) in &result.rows {
            let values: Vec<f64> = elements.iter().map(|element| element.value).collect();
            memory.store_row(&result.view, *index, &values);
        }
    }
    expected
}

/// Where an op writes: buffer and bytes of each row of its results.
pub(crate) fn written(
    op: &StrataOp,
    tensors: &[StrataTensor],
    scalars: &[i64],
    memory: &Memory,
) -> Vec<(usize, Range<usize>)> {
    let call = Call { op, tensors, scalars, memory };
    let out = call.view(0);
    let kind = StrataOpKind::from_number(op.kind).expect("cases use known ops");
    if kind == StrataOpKind::KvStore {
        return attention::cells(&call).map(|index| (out.buffer, out.row_range(index))).collect();
    }
    let results = if kind == StrataOpKind::RouterTopK { vec![out, call.view(1)] } else { vec![out] };
    results.iter().flat_map(|view| view.rows().map(|index| (view.buffer, view.row_range(index)))).collect()
}

/// Greatest magnitude of a slice.
fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |greatest, value| value.abs().max(greatest))
}
