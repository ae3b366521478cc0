//! One case: a small program, the bytes of its buffers and the scalars of one run.
//!
//! [`CaseBuilder`] lays tensors out the way a hostile host would be allowed to: guard bytes around
//! every tensor, gaps between rows, rows beyond the run's token count, results over old contents.
//! Every byte that an op has no business reading is *undefined* and filled with a pattern that
//! differs from run to run.

use crate::blocks::{Blocks, random_row};
use crate::memory::{Memory, RowIndex, View, encode_element};
use crate::rng::Rng;
use strata_backend_abi::{
    STRATA_BUFFER_ALIGNMENT, STRATA_MAX_FLOATS, STRATA_MAX_INTS, STRATA_MAX_OPERANDS, STRATA_N_SCALARS,
    STRATA_NO_OPERAND, STRATA_TENSOR_CONSTANT, SizedStruct, StrataDType, StrataOp, StrataOpKind, StrataScalar,
    StrataTensor,
};

/// An extent of a tensor.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dim {
    Fixed(u64),
    /// The run's token count.
    Tokens,
    /// The run's output count.
    Outputs,
}

/// Where a tensor lies: one buffer each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Weights,
    Scratch,
    Cache,
}

/// A buffer's contents.
#[derive(Debug, Clone)]
pub struct Storage {
    pub place: Place,
    bytes: Vec<u8>,
    defined: Vec<bool>,
}

/// How results are judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Judge {
    /// By the op's line in the tolerance table.
    Table,
    /// A program of several ops: error relative to the root mean square of the result's row.
    RowScale(f64),
}

/// A program with everything that one run of it needs.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    pub precise: bool,
    pub tensors: Vec<StrataTensor>,
    pub ops: Vec<StrataOp>,
    pub scalars: [i64; STRATA_N_SCALARS],
    pub scalar_max: [i64; STRATA_N_SCALARS],
    pub storages: Vec<Storage>,
    /// Ops whose results are judged; the others' are only allowed to be written.
    pub checked: Vec<usize>,
    pub judge: Judge,
    /// Weights are handed over as host memory to use in place, where the plugin can.
    pub import_weights: bool,
    /// Later tokens read what the step stored for earlier ones: parts of the step are run in order.
    pub carries_state: bool,
}

impl Case {
    /// The buffers with every undefined byte set to `pattern`.
    pub fn memory(&self, pattern: u8) -> Memory {
        let fill = |storage: &Storage| {
            let bytes = storage.bytes.iter().zip(&storage.defined);
            bytes.map(|(byte, defined)| if *defined { *byte } else { pattern }).collect()
        };
        Memory { buffers: self.storages.iter().map(fill).collect() }
    }

    pub fn tokens(&self) -> u64 {
        self.scalars[StrataScalar::Tokens as usize] as u64
    }

    /// The same program over tokens `first..first + count` only, alone in their step.
    #[must_use]
    pub fn slice(&self, first: u64, count: u64) -> Case {
        let mut case = self.clone();
        let tag = StrataScalar::Tokens as u32 + 1;
        for tensor in &mut case.tensors {
            for k in 1..tensor.ne.len() {
                if tensor.dynamic[k] == tag {
                    tensor.offset += first * tensor.nb[k];
                    tensor.ne[k] = count;
                    tensor.dynamic[k] = 0;
                }
            }
            // A vector of one number per token: its only dimension is not dynamic by rule.
            if tensor.dynamic[0] == tag {
                tensor.offset += first * tensor.nb[0];
                tensor.ne[0] = count;
                tensor.dynamic[0] = 0;
            }
        }
        case.scalars[StrataScalar::Tokens as usize] = count as i64;
        case.scalar_max[StrataScalar::Tokens as usize] = count as i64;
        case.set_kv_length();
        case
    }

    /// The same compiled program, run for the first `count` tokens.
    #[must_use]
    pub fn with_tokens(&self, count: u64) -> Case {
        let mut case = self.clone();
        case.scalars[StrataScalar::Tokens as usize] = count as i64;
        case.set_kv_length();
        case
    }

    /// Sets the KvLength and Position scalars from the positions that the run's tokens have.
    fn set_kv_length(&mut self) {
        let memory = self.memory(0);
        for op in &self.ops {
            let slot = match StrataOpKind::from_number(op.kind) {
                Some(StrataOpKind::KvStore) => 4,
                Some(StrataOpKind::Attention) => 6,
                _ => continue,
            };
            let view = View::resolve(&self.tensors[op.operand[slot] as usize], &self.scalars);
            let positions: Vec<i64> = (0..self.tokens()).map(|t| memory.integer(&view, t, [0; 3])).collect();
            self.scalars[StrataScalar::KvLength as usize] = positions.iter().max().map_or(0, |last| last + 1);
            let one_run = positions.windows(2).all(|pair| pair[1] == pair[0] + 1) && self.one_sequence(op, &memory);
            self.scalars[StrataScalar::Position as usize] = if one_run { positions[0] } else { -1 };
        }
    }

    fn one_sequence(&self, op: &StrataOp, memory: &Memory) -> bool {
        let slot = if op.kind == StrataOpKind::KvStore as u32 { 3 } else { 5 };
        let view = View::resolve(&self.tensors[op.operand[slot] as usize], &self.scalars);
        (0..self.tokens()).all(|t| memory.integer(&view, t, [0; 3]) == memory.integer(&view, 0, [0; 3]))
    }
}

/// Builds one case. Tensor ids are indices into the program's tensors.
#[derive(Debug)]
pub(crate) struct CaseBuilder {
    case: Case,
    pub rng: Rng,
    dynamic: bool,
    constant_weights: bool,
    long_vectors: bool,
}

/// Undefined bytes before and after each tensor, at least.
const GUARD: usize = 64;

impl CaseBuilder {
    /// A case over `tokens` tokens. `dynamic`: the program is compiled for more and told by scalar.
    pub(crate) fn new(name: impl Into<String>, precise: bool, tokens: u64, dynamic: bool) -> CaseBuilder {
        let mode = if precise { "precise" } else { "default" };
        let name = format!("{mode} {} T{tokens}{}", name.into(), if dynamic { "" } else { " fixed" });
        let mut rng = Rng::named(&name);
        let spare = if dynamic { 3 } else { 0 };
        let constant_weights = rng.chance(0.7);
        let storage = |place| Storage { place, bytes: vec![0; GUARD], defined: vec![false; GUARD] };
        let case = Case {
            name,
            precise,
            tensors: Vec::new(),
            ops: Vec::new(),
            scalars: [tokens as i64, 1, 0, -1],
            scalar_max: [tokens as i64 + spare, 1 + spare, 0, 0],
            storages: [Place::Weights, Place::Scratch, Place::Cache].map(storage).into(),
            checked: Vec::new(),
            judge: Judge::Table,
            import_weights: false,
            carries_state: false,
        };
        CaseBuilder { case, rng, dynamic, constant_weights, long_vectors: false }
    }

    pub(crate) fn tokens(&self) -> u64 {
        self.case.tokens()
    }

    pub(crate) fn set_outputs(&mut self, outputs: u64) {
        let spare = if self.dynamic { 3 } else { 0 };
        self.case.scalars[StrataScalar::Outputs as usize] = outputs as i64;
        self.case.scalar_max[StrataScalar::Outputs as usize] = outputs as i64 + spare;
    }

    pub(crate) fn import_weights(&mut self) {
        self.case.import_weights = true;
    }

    pub(crate) fn judge(&mut self, judge: Judge) {
        self.case.judge = judge;
    }

    /// A tensor with contiguous rows one after another.
    pub(crate) fn tensor(&mut self, place: Place, dtype: StrataDType, dims: &[Dim]) -> u32 {
        self.strided(place, dtype, dims, [0; 3])
    }

    /// A tensor with `gaps[k]` unused elements (blocks) between the items of dimension k + 1.
    pub(crate) fn strided(&mut self, place: Place, dtype: StrataDType, dims: &[Dim], gaps: [u64; 3]) -> u32 {
        let (ne, dynamic) = self.extents(dims);
        let element = dtype.block_bytes() as u64;
        let row = dtype.row_bytes(ne[0]).expect("cases have whole blocks");
        let mut nb = [element, row + gaps[0] * element, 0, 0];
        nb[2] = nb[1] * ne[1] + gaps[1] * element;
        nb[3] = nb[2] * ne[2] + gaps[2] * element;
        let alignment = if self.case.import_weights && place == Place::Weights {
            // What a model file promises; deliberately not what the host's own buffers have.
            32
        } else {
            STRATA_BUFFER_ALIGNMENT as usize
        };
        let buffer = place as usize;
        let storage = &mut self.case.storages[buffer];
        let mut offset = (storage.bytes.len() + GUARD).next_multiple_of(alignment);
        if alignment == 32 && offset.is_multiple_of(64) {
            offset += 32;
        }
        let end = offset + (nb[3] * ne[3]) as usize + GUARD;
        storage.bytes.resize(end, 0);
        storage.defined.resize(end, false);
        let constant = place == Place::Weights && self.constant_weights;
        self.add_tensor(StrataTensor {
            struct_size: StrataTensor::SIZE,
            dtype: dtype as u32,
            buffer: buffer as u32,
            flags: if constant { STRATA_TENSOR_CONSTANT } else { 0 },
            offset: offset as u64,
            ne,
            nb,
            dynamic,
        })
    }

    /// Another view of bytes that some tensor already has.
    pub(crate) fn add_tensor(&mut self, tensor: StrataTensor) -> u32 {
        self.case.tensors.push(tensor);
        self.case.tensors.len() as u32 - 1
    }

    pub(crate) fn get(&self, id: u32) -> StrataTensor {
        self.case.tensors[id as usize]
    }

    fn extents(&self, dims: &[Dim]) -> ([u64; 4], [u32; 4]) {
        let (mut ne, mut dynamic) = ([1; 4], [0; 4]);
        for (k, dim) in dims.iter().enumerate() {
            let scalar = match dim {
                Dim::Fixed(extent) => {
                    ne[k] = *extent;
                    continue;
                }
                Dim::Tokens => StrataScalar::Tokens,
                Dim::Outputs => StrataScalar::Outputs,
            };
            ne[k] = self.case.scalar_max[scalar as usize] as u64;
            dynamic[k] = if self.dynamic { scalar as u32 + 1 } else { 0 };
        }
        (ne, dynamic)
    }

    fn view(&self, id: u32) -> View {
        View::resolve(&self.case.tensors[id as usize], &self.case.scalars)
    }

    /// Defines the bytes of one row.
    pub(crate) fn put_row(&mut self, id: u32, index: RowIndex, bytes: &[u8]) {
        let view = self.view(id);
        let range = view.row_range(index);
        let storage = &mut self.case.storages[view.buffer];
        storage.bytes[range.clone()].copy_from_slice(bytes);
        storage.defined[range].fill(true);
    }

    /// Defines every row that the run has, element by element, in order.
    pub(crate) fn fill(&mut self, id: u32, mut value: impl FnMut(&mut Rng) -> f64) {
        let view = self.view(id);
        let element = view.dtype.block_bytes();
        for index in view.rows() {
            let mut bytes = vec![0; view.ne[0] as usize * element];
            for slot in bytes.chunks_exact_mut(element) {
                encode_element(view.dtype, value(&mut self.rng), slot);
            }
            self.put_row(id, index, &bytes);
        }
    }

    /// Activations: normal with the given size, one in 50 much larger, as models have them.
    pub(crate) fn fill_activations(&mut self, id: u32, size: f64) {
        self.fill(id, |rng| {
            let outlier = if rng.chance(0.02) { 8.0 } else { 1.0 };
            rng.normal() * size * outlier
        });
    }

    /// The given numbers in order.
    pub(crate) fn fill_list(&mut self, id: u32, values: &[f64]) {
        let mut values = values.iter();
        self.fill(id, |_| *values.next().expect("one value per element"));
        assert!(values.next().is_none(), "values left over");
    }

    /// Weights in any format.
    pub(crate) fn fill_blocks(&mut self, id: u32, size: f64, kind: Blocks) {
        let view = self.view(id);
        for index in view.rows() {
            let bytes = random_row(view.dtype, view.ne[0], size, kind, &mut self.rng);
            self.put_row(id, index, &bytes);
        }
    }

    /// Contiguous activations in scratch, filled.
    pub(crate) fn activations(&mut self, dims: &[Dim], size: f64) -> u32 {
        let id = self.tensor(Place::Scratch, StrataDType::F32, dims);
        self.fill_activations(id, size);
        id
    }

    /// A result in scratch, over whatever was there.
    pub(crate) fn result(&mut self, dims: &[Dim]) -> u32 {
        self.tensor(Place::Scratch, StrataDType::F32, dims)
    }

    /// Vectors of indices are longer than the step and not dynamic, which the ABI allows.
    pub(crate) fn long_vectors(&mut self) {
        self.long_vectors = true;
    }

    /// I32 values, one per token.
    pub(crate) fn per_token(&mut self, values: &[f64]) -> u32 {
        if !self.long_vectors {
            let id = self.tensor(Place::Scratch, StrataDType::I32, &[Dim::Tokens]);
            self.fill_list(id, values);
            return id;
        }
        let most = self.case.scalar_max[StrataScalar::Tokens as usize] as u64;
        let id = self.tensor(Place::Scratch, StrataDType::I32, &[Dim::Fixed(most + 5)]);
        let start = self.get(id).offset as usize;
        let storage = &mut self.case.storages[Place::Scratch as usize];
        for (i, value) in values.iter().enumerate() {
            let range = start + 4 * i..start + 4 * (i + 1);
            encode_element(StrataDType::I32, *value, &mut storage.bytes[range.clone()]);
            storage.defined[range].fill(true);
        }
        id
    }

    /// Appends an op and marks it to be judged.
    pub(crate) fn op(&mut self, kind: StrataOpKind, operands: &[Option<u32>], floats: &[f64], ints: &[i64]) {
        let mut op = StrataOp {
            struct_size: StrataOp::SIZE,
            kind: kind as u32,
            flags: 0,
            layer: -1,
            operand: [STRATA_NO_OPERAND; STRATA_MAX_OPERANDS],
            float: [0.0; STRATA_MAX_FLOATS],
            int: [0; STRATA_MAX_INTS],
        };
        for (slot, operand) in op.operand.iter_mut().zip(operands) {
            *slot = operand.unwrap_or(STRATA_NO_OPERAND);
        }
        for (slot, value) in op.float.iter_mut().zip(floats) {
            *slot = *value as f32;
        }
        op.int[..ints.len()].copy_from_slice(ints);
        self.case.checked.push(self.case.ops.len());
        self.case.ops.push(op);
    }

    /// Only the last op's results are judged.
    pub(crate) fn check_last_only(&mut self) {
        self.case.checked = vec![self.case.ops.len() - 1];
    }

    /// The finished case, with unused buffers dropped.
    pub(crate) fn finish(mut self) -> Case {
        let used: Vec<usize> =
            (0..3).filter(|buffer| self.case.tensors.iter().any(|tensor| tensor.buffer as usize == *buffer)).collect();
        for tensor in &mut self.case.tensors {
            let place = used.iter().position(|buffer| *buffer == tensor.buffer as usize);
            tensor.buffer = place.expect("the buffer of a tensor is used") as u32;
        }
        self.case.storages = used.iter().map(|buffer| self.case.storages[*buffer].clone()).collect();
        self.case.set_kv_length();
        let kv_length = StrataScalar::KvLength as usize;
        self.case.scalar_max[kv_length] = self.case.scalars[kv_length];
        self.case.scalar_max[StrataScalar::Position as usize] = self.case.scalars[kv_length];
        self.case
    }
}
