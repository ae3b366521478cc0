//! For the ops' own tests: operands in one buffer, and one op run the way a program is.

use std::cell::Cell;
use std::sync::Arc;

use strata_backend_abi::{
    STRATA_MAX_FLOATS, STRATA_MAX_INTS, STRATA_MAX_OPERANDS, STRATA_N_SCALARS, STRATA_NO_OPERAND, StrataDType,
    StrataOp, StrataOpKind, StrataTensor,
};
use strata_backend_sdk::{ProgramView, Result};

use crate::device::kernels;
use crate::matmul::Variant;
use crate::memory::{HostMemory, View};
use crate::pool::Pool;
use crate::program::{self, Config};

/// A tensor in the machine's buffer.
#[derive(Debug, Clone)]
pub(crate) struct Operand {
    pub(crate) tensor: StrataTensor,
    pub(crate) view: View,
    memory: Arc<HostMemory>,
}

impl Operand {
    /// Another view of the same F32 elements, from element `start` on.
    pub(crate) fn part(&self, start: u64, ne: [u64; 4], nb: [u64; 4]) -> Operand {
        let tensor = StrataTensor { offset: self.tensor.offset + 4 * start, ne, nb, ..self.tensor };
        let view = View::new(&tensor, &self.memory).unwrap();
        Operand { tensor, view, memory: Arc::clone(&self.memory) }
    }

    /// Makes a dimension follow a scalar.
    pub(crate) fn dynamic(mut self, dimension: usize, scalar: u32) -> Operand {
        self.tensor.dynamic[dimension] = 1 + scalar;
        self.view = View::new(&self.tensor, &self.memory).unwrap();
        self
    }

    fn rows(&self) -> Vec<[usize; 3]> {
        let ne = self.view.ne;
        let mut rows = Vec::new();
        for i3 in 0..ne[3] {
            for i2 in 0..ne[2] {
                rows.extend((0..ne[1]).map(|i1| [i1, i2, i3]));
            }
        }
        rows
    }
}

/// Memory and workers for one test.
pub(crate) struct Machine {
    memory: Arc<HostMemory>,
    used: Cell<u64>,
    pool: Pool,
    pub(crate) precise: bool,
    pub(crate) kv_length: i64,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        Machine::with_workers(2)
    }

    pub(crate) fn with_workers(n_workers: usize) -> Machine {
        Machine {
            memory: Arc::new(HostMemory::map(64 << 20).unwrap()),
            used: Cell::new(0),
            pool: Pool::new(n_workers, &[]).unwrap(),
            precise: false,
            kv_length: 0,
        }
    }

    /// A zeroed tensor of a plain or block format.
    pub(crate) fn plain(&self, dtype: StrataDType, ne: [u64; 4]) -> Operand {
        let mut nb = [dtype.block_bytes() as u64; 4];
        nb[1] = dtype.row_bytes(ne[0]).unwrap();
        nb[2] = nb[1] * ne[1];
        nb[3] = nb[2] * ne[2];
        let tensor = StrataTensor {
            struct_size: size_of::<StrataTensor>() as u32,
            dtype: dtype as u32,
            buffer: 0,
            flags: 0,
            offset: self.used.get(),
            ne,
            nb,
            dynamic: [0; 4],
        };
        self.used.set((self.used.get() + nb[3] * ne[3]).next_multiple_of(256));
        Operand { tensor, view: View::new(&tensor, &self.memory).unwrap(), memory: Arc::clone(&self.memory) }
    }

    pub(crate) fn floats(&self, ne: [u64; 4]) -> Operand {
        self.plain(StrataDType::F32, ne)
    }

    /// Elements in memory order.
    pub(crate) fn floats_with(&self, ne: [u64; 4], value: impl Fn(usize) -> f32) -> Operand {
        let operand = self.floats(ne);
        self.fill(&operand, value);
        operand
    }

    #[expect(clippy::unused_self, reason = "reads like the other steps of a test")]
    pub(crate) fn fill(&self, operand: &Operand, value: impl Fn(usize) -> f32) {
        let n = operand.view.ne[0];
        for (index, row) in operand.rows().into_iter().enumerate() {
            let values: Vec<f32> = (0..n).map(|i| value(index * n + i)).collect();
            operand.view.store(row, 0, &values);
        }
    }

    /// Blocks written byte by byte, in order.
    pub(crate) fn raw(&self, dtype: StrataDType, ne: [u64; 4], write: impl Fn(usize, &mut [u8])) -> Operand {
        let operand = self.plain(dtype, ne);
        let n_blocks = ne.iter().product::<u64>() as usize / dtype.block_len();
        for block in 0..n_blocks {
            let mut bytes = vec![0; dtype.block_bytes()];
            write(block, &mut bytes);
            self.memory.write(operand.tensor.offset as usize + block * bytes.len(), &bytes);
        }
        operand
    }

    pub(crate) fn indices(&self, values: &[i32]) -> Operand {
        self.indices_2d(values.len() as u64, values)
    }

    /// Rows of `width` indices.
    pub(crate) fn indices_2d(&self, width: u64, values: &[i32]) -> Operand {
        let operand = self.plain(StrataDType::I32, [width, values.len() as u64 / width, 1, 1]);
        for (i, value) in values.iter().enumerate() {
            operand.view.store_i32([i / width as usize, 0, 0], i % width as usize, *value);
        }
        operand
    }

    #[expect(clippy::unused_self, reason = "reads like the other steps of a test")]
    pub(crate) fn read(&self, operand: &Operand) -> Vec<f32> {
        let mut values = Vec::new();
        for row in operand.rows() {
            let mut out = vec![0.0; operand.view.ne[0]];
            operand.view.load(row, 0, &mut out);
            values.extend(out);
        }
        values
    }

    #[expect(clippy::unused_self, reason = "reads like the other steps of a test")]
    pub(crate) fn read_indices(&self, operand: &Operand) -> Vec<i32> {
        let n = operand.view.ne[0];
        operand.rows().into_iter().flat_map(|row| (0..n).map(move |i| operand.view.load_i32(row, i))).collect()
    }

    /// An op of the ABI over operands whose tensors are numbered in order of `all`.
    pub(crate) fn describe(kind: StrataOpKind, operands: &[u32], floats: &[f32], ints: &[i64]) -> StrataOp {
        let mut op = StrataOp {
            struct_size: size_of::<StrataOp>() as u32,
            kind: kind as u32,
            flags: 0,
            layer: -1,
            operand: [STRATA_NO_OPERAND; STRATA_MAX_OPERANDS],
            float: [0.0; STRATA_MAX_FLOATS],
            int: [0; STRATA_MAX_INTS],
        };
        op.operand[..operands.len()].copy_from_slice(operands);
        op.float[..floats.len()].copy_from_slice(floats);
        op.int[..ints.len()].copy_from_slice(ints);
        op
    }

    /// Runs a program of one op.
    pub(crate) fn op(&mut self, kind: StrataOpKind, operands: &[&Operand], floats: &[f32], ints: &[i64]) -> Result<()> {
        let slots: Vec<u32> = (0..operands.len() as u32).collect();
        let op = Machine::describe(kind, &slots, floats, ints);
        let tensors = operands.iter().map(|operand| operand.tensor).collect();
        self.program(tensors, vec![op], &[]).map(|_| ())
    }

    /// Runs a program of several ops; `scalars` are tokens and outputs. Returns its number of stages.
    pub(crate) fn program(&mut self, tensors: Vec<StrataTensor>, ops: Vec<StrataOp>, scalars: &[i64]) -> Result<u32> {
        let mut values = [1, 1, self.kv_length, -1];
        values[..scalars.len()].copy_from_slice(scalars);
        let view = ProgramView {
            name: "test",
            precise: self.precise,
            flags: 0,
            tensors,
            ops,
            scalar_max: vec![i64::from(i32::MAX); STRATA_N_SCALARS],
        };
        let variant = Variant::best();
        let config = Config { variant, kernels: kernels(variant), n_workers: self.pool.n_workers() };
        let compiled = program::compile(&view, &[Arc::clone(&self.memory)], config)?;
        program::run(&compiled, &mut self.pool, &values)?;
        Ok(compiled.info().n_launches)
    }
}
