//! A step of a model as a flat program. An architecture calls one method an op, in the order of
//! computation; tensors that only live inside the step get their place in the scratch buffer
//! afterwards, when it is known how long each is needed.
//!
//! It knows nothing about any architecture. Called by `arch`, planned by `memory`.

use strata_backend_abi::{
    STRATA_NO_OPERAND, STRATA_TENSOR_CONSTANT, SizedStruct, StrataActivation, StrataDType, StrataRopeStyle,
    StrataRouterScore, StrataScalar, StrataTensor, StrataUnary,
};
use strata_plugin_host::{
    Attention, Dim, ExpertMatMul, KvStore, ProgramBuilder, ProgramSpec, Rope, RouterTopK, ScalarMax, TensorId,
};

use crate::kv_cache::{CacheLayout, CachePart, PAGE_CELLS};
use crate::memory::{Lifetime, plan_scratch};
use crate::weights::{Place, Weight, Weights, align};

/// Which buffer of an engine a tensor lies in. The parts of the file come first, so the number
/// of the others depends on how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    Part(usize),
    /// Converted weights, page tables and other tables that change seldom.
    Tables,
    Cache,
    /// What the host writes before each step.
    Input,
    Scratch,
    /// The logits, and behind them the tokens that steps chose.
    Output,
}

/// What a program leaves in the output buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The logits of the wanted rows, which the host chooses from.
    Logits,
    /// The token with the greatest logit. The step's own token comes from such a place too, so
    /// that the next step can be handed over before the host knows what this one chose.
    Choice { from: u64, to: u64 },
}

/// Bytes of a place for a chosen token: its id, and its logit `CHOICE_LOGIT` further on.
pub(crate) const CHOICE_BYTES: u64 = 256;
pub(crate) const CHOICE_LOGIT: u64 = 128;

/// Buffers beside the parts of the file.
pub(crate) const N_OWN_BUFFERS: usize = 5;

impl Home {
    pub(crate) fn index(self, n_parts: usize) -> u32 {
        let n_parts = n_parts as u32;
        match self {
            Home::Part(part) => part as u32,
            Home::Tables => n_parts,
            Home::Cache => n_parts + 1,
            Home::Input => n_parts + 2,
            Home::Scratch => n_parts + 3,
            Home::Output => n_parts + 4,
        }
    }
}

/// How large a step of this program can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepLimits {
    pub(crate) tokens: u64,
    pub(crate) outputs: u64,
}

/// Where the host writes a step's inputs, in bytes into the input buffer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct InputLayout {
    pub(crate) ids: u64,
    pub(crate) positions: u64,
    pub(crate) sequences: u64,
    pub(crate) out_rows: u64,
    /// One table for each rope base of the model; rows of `n_rot / 2` (cos, sin) pairs.
    pub(crate) rope: Vec<u64>,
    pub(crate) bytes: u64,
}

/// Tables that stay between steps, in bytes into the tables buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableLayout {
    /// 0, 1, 2, … for as many tokens as the largest step has.
    pub(crate) iota: u64,
    pub(crate) n_iota: u64,
    pub(crate) pages: u64,
    /// Where converted weights begin.
    pub(crate) converted: u64,
}

impl TableLayout {
    pub(crate) fn new(max_tokens: u64, cache: &CacheLayout) -> TableLayout {
        let pages = align(max_tokens * 4);
        TableLayout { iota: 0, n_iota: max_tokens, pages, converted: pages + align(cache.page_table_bytes()) }
    }
}

/// Builds one program.
#[derive(Debug)]
pub(crate) struct Graph<'w, 'g> {
    pub(crate) weights: &'w mut Weights<'g>,
    cache: &'w CacheLayout,
    tables: TableLayout,
    limits: StepLimits,
    ending: Ending,
    n_parts: usize,
    builder: ProgramBuilder,
    /// Which scratch value a tensor is a view of, if of any.
    scratch_of: Vec<Option<usize>>,
    /// Bytes of each scratch value.
    scratch: Vec<u64>,
    input: InputLayout,
    n_rot: u64,
    output_bytes: u64,
    ids: TensorId,
    positions: TensorId,
    sequences: TensorId,
    out_rows: TensorId,
    iota: TensorId,
    pages: TensorId,
    rope: Vec<TensorId>,
}

/// A finished program and what the host needs to feed it.
#[derive(Debug)]
pub(crate) struct Lowered {
    pub(crate) spec: ProgramSpec,
    pub(crate) input: InputLayout,
    pub(crate) scratch_bytes: u64,
    pub(crate) output_bytes: u64,
}

/// What all programs of an engine share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared<'w> {
    pub(crate) cache: &'w CacheLayout,
    pub(crate) tables: TableLayout,
    pub(crate) n_rot: u64,
    /// Rope tables that the model's layers use.
    pub(crate) n_rope: usize,
}

impl<'w, 'g> Graph<'w, 'g> {
    pub(crate) fn new(
        name: &str,
        precise: bool,
        limits: StepLimits,
        ending: Ending,
        shared: Shared<'w>,
        weights: &'w mut Weights<'g>,
    ) -> Graph<'w, 'g> {
        let context = shared.cache.context as i64;
        let max = ScalarMax {
            tokens: limits.tokens as i64,
            outputs: limits.outputs as i64,
            kv_length: context,
            position: context,
        };
        // Replaced by `declare_inputs`.
        let none = TensorId(0);
        let mut graph = Graph {
            n_parts: weights.n_parts(),
            weights,
            cache: shared.cache,
            tables: shared.tables,
            limits,
            ending,
            builder: ProgramBuilder::new(name, max).precise(precise),
            scratch_of: Vec::new(),
            scratch: Vec::new(),
            input: InputLayout::default(),
            n_rot: shared.n_rot,
            output_bytes: 0,
            ids: none,
            positions: none,
            sequences: none,
            out_rows: none,
            iota: none,
            pages: none,
            rope: Vec::new(),
        };
        graph.declare_inputs(shared.n_rope as u64);
        graph
    }

    fn declare_inputs(&mut self, n_rope: u64) {
        let tokens = align(self.limits.tokens * 4);
        let rope_bytes = align(self.limits.tokens * self.n_rot / 2 * 8);
        self.input = InputLayout {
            ids: 0,
            positions: tokens,
            sequences: tokens * 2,
            out_rows: tokens * 3,
            rope: (0..n_rope).map(|i| tokens * 4 + i * rope_bytes).collect(),
            bytes: tokens * 4 + n_rope * rope_bytes,
        };
        let input = self.input.clone();
        let (home, at) = match self.ending {
            Ending::Logits => (Home::Input, input.ids),
            Ending::Choice { from, .. } => (Home::Output, from),
        };
        self.ids = self.fixed(StrataDType::I32, home, at, &[Dim::TOKENS]);
        self.positions = self.fixed(StrataDType::I32, Home::Input, input.positions, &[Dim::TOKENS]);
        self.sequences = self.fixed(StrataDType::I32, Home::Input, input.sequences, &[Dim::TOKENS]);
        self.out_rows = self.fixed(StrataDType::I32, Home::Input, input.out_rows, &[Dim::OUTPUTS]);
        self.iota = self.fixed(StrataDType::I32, Home::Tables, self.tables.iota, &[Dim::TOKENS]);
        let pages = [Dim::Fixed(self.cache.pages_per_sequence), Dim::Fixed(self.cache.n_sequences)];
        self.pages = self.fixed(StrataDType::I32, Home::Tables, self.tables.pages, &pages);
        let row = [Dim::Fixed(2), Dim::Fixed(self.n_rot / 2), Dim::TOKENS];
        self.rope = input.rope.iter().map(|offset| self.fixed(StrataDType::F32, Home::Input, *offset, &row)).collect();
    }

    /// Ops that follow belong to this layer, or to none.
    pub(crate) fn enter_layer(&mut self, layer: Option<u64>) {
        self.builder.layer(layer.map_or(-1, |layer| layer as i32));
    }

    // Tensors.

    fn tensor(&self, id: TensorId) -> &StrataTensor {
        &self.builder.spec().tensors[id.0 as usize]
    }

    fn dims(&self, id: TensorId) -> [Dim; 4] {
        let tensor = self.tensor(id);
        std::array::from_fn(|k| match tensor.dynamic[k] {
            0 => Dim::Fixed(tensor.ne[k]),
            tokens if tokens == 1 + StrataScalar::Tokens as u32 => Dim::TOKENS,
            _ => Dim::OUTPUTS,
        })
    }

    /// Keeps `scratch_of` in step with the builder's tensors.
    fn note(&mut self, id: TensorId, scratch: Option<usize>) -> TensorId {
        self.scratch_of.push(scratch);
        debug_assert_eq!(self.scratch_of.len(), id.0 as usize + 1, "a tensor was added past the graph");
        id
    }

    fn fixed(&mut self, dtype: StrataDType, home: Home, offset: u64, dims: &[Dim]) -> TensorId {
        let id = self.builder.tensor(dtype, home.index(self.n_parts), offset, dims);
        self.note(id, None)
    }

    /// A tensor that lives inside the step.
    fn activation(&mut self, dtype: StrataDType, dims: &[Dim]) -> TensorId {
        let id = self.builder.tensor(dtype, Home::Scratch.index(self.n_parts), 0, dims);
        let tensor = self.tensor(id);
        let bytes = align((tensor.nb[3] * tensor.ne[3]).max(1));
        self.scratch.push(bytes);
        self.note(id, Some(self.scratch.len() - 1))
    }

    fn f32_like(&mut self, id: TensorId) -> TensorId {
        let dims = self.dims(id);
        self.activation(StrataDType::F32, &dims)
    }

    /// The same elements of an activation under another shape.
    pub(crate) fn reshape(&mut self, id: TensorId, dims: &[Dim]) -> TensorId {
        let old = *self.tensor(id);
        let dtype = StrataDType::from_number(old.dtype).unwrap_or(StrataDType::F32);
        let scratch = self.scratch_of[id.0 as usize];
        let view = self.builder.tensor(dtype, old.buffer, old.offset, dims);
        self.note(view, scratch)
    }

    fn weight(&mut self, weight: &Weight) -> TensorId {
        let (home, base) = match weight.place {
            Place::Part(part) => (Home::Part(part), 0),
            Place::Converted => (Home::Tables, self.tables.converted),
        };
        let id = self.builder.raw_tensor(StrataTensor {
            struct_size: StrataTensor::SIZE,
            dtype: weight.dtype as u32,
            buffer: home.index(self.n_parts),
            flags: STRATA_TENSOR_CONSTANT,
            offset: base + weight.offset,
            ne: weight.ne,
            nb: weight.nb,
            dynamic: [0; 4],
        });
        self.note(id, None)
    }

    // Ops.

    /// Rows of the table chosen by the step's tokens, times `scale`.
    pub(crate) fn embedding(&mut self, table: &Weight, scale: f32) -> TensorId {
        let out = self.activation(StrataDType::F32, &[Dim::Fixed(table.ne[0]), Dim::TOKENS]);
        let table = self.weight(table);
        self.builder.embedding_lookup(out, table, self.ids, scale);
        out
    }

    pub(crate) fn rms_norm(&mut self, x: TensorId, weight: &Weight, eps: f32) -> TensorId {
        let out = self.f32_like(x);
        let weight = self.weight(weight);
        self.builder.rms_norm(out, x, Some(weight), eps);
        out
    }

    /// The same in the place of `x`.
    pub(crate) fn rms_norm_in_place(&mut self, x: TensorId, weight: &Weight, eps: f32) {
        let weight = self.weight(weight);
        self.builder.rms_norm(x, x, Some(weight), eps);
    }

    /// `W x (+ b)`.
    pub(crate) fn mat_mul(&mut self, weight: &Weight, x: TensorId, bias: Option<&Weight>) -> TensorId {
        let out = self.activation(StrataDType::F32, &[Dim::Fixed(weight.ne[1]), self.dims(x)[1]]);
        self.mat_mul_into(out, weight, x, bias);
        out
    }

    fn mat_mul_into(&mut self, out: TensorId, weight: &Weight, x: TensorId, bias: Option<&Weight>) {
        let weight = self.weight(weight);
        let bias = bias.map(|bias| self.weight(bias));
        self.builder.mat_mul(out, weight, x, bias);
    }

    /// Rotates `x` [D, heads, T] in place by rope table number `table`.
    pub(crate) fn rope(&mut self, x: TensorId, table: usize, style: StrataRopeStyle) {
        let rope = Rope { out: x, x, table: self.rope[table], row: self.iota, style, rotated: self.n_rot };
        self.builder.rope(rope);
    }

    fn cache_tensor(&mut self, layer: u64, part: CachePart) -> TensorId {
        let tensor = self.cache.tensor(layer, part, Home::Cache.index(self.n_parts));
        let id = self.builder.raw_tensor(tensor);
        self.note(id, None)
    }

    /// Stores k [Dk, kv heads, T] and v [Dv, kv heads, T] and attends with q [Dk, heads, T].
    /// Returns [Dv·heads, T].
    pub(crate) fn attention(
        &mut self,
        layer: u64,
        [q, k, v]: [TensorId; 3],
        scale: f32,
        softcap: Option<f32>,
        window: Option<u64>,
    ) -> TensorId {
        let k_cache = self.cache_tensor(layer, CachePart::Keys);
        let v_cache = self.cache_tensor(layer, CachePart::Values);
        let (pages, sequence, position, page_size) = (self.pages, self.sequences, self.positions, PAGE_CELLS);
        self.builder.kv_store(KvStore { cache: k_cache, x: k, pages, sequence, position, page_size });
        self.builder.kv_store(KvStore { cache: v_cache, x: v, pages, sequence, position, page_size });
        let heads = self.tensor(q).ne[1];
        let head_dim = self.tensor(v).ne[0];
        let out = self.activation(StrataDType::F32, &[Dim::Fixed(head_dim), Dim::Fixed(heads), Dim::TOKENS]);
        self.builder.attention(Attention {
            out,
            q,
            k: k_cache,
            v: v_cache,
            pages,
            sequence,
            position,
            sinks: None,
            scale,
            softcap,
            window,
            page_size,
        });
        self.reshape(out, &[Dim::Fixed(head_dim * heads), Dim::TOKENS])
    }

    /// `act(gate) · up`, in the place of `gate`.
    pub(crate) fn glu(&mut self, gate: TensorId, up: TensorId, activation: StrataActivation) -> TensorId {
        self.builder.glu(gate, gate, up, activation);
        gate
    }

    /// `a + b`, in the place of `a`.
    pub(crate) fn add(&mut self, a: TensorId, b: TensorId) -> TensorId {
        self.builder.add(a, a, b, 1.0);
        a
    }

    /// Keeps only the rows of which logits are wanted.
    pub(crate) fn output_rows(&mut self, x: TensorId) -> TensorId {
        let width = self.dims(x)[0];
        let out = self.activation(StrataDType::F32, &[width, Dim::OUTPUTS]);
        self.builder.gather_rows(out, x, self.out_rows);
        out
    }

    /// Chooses `used` experts by softmax over all of `logits` [E, n]; their weights are divided by
    /// their sum (at least `least_sum`) and multiplied by `scale`. Returns (ids, weights), [used, n].
    pub(crate) fn router(&mut self, logits: TensorId, used: u64, scale: f32, least_sum: f32) -> (TensorId, TensorId) {
        let dims = [Dim::Fixed(used), self.dims(logits)[1]];
        let ids = self.activation(StrataDType::I32, &dims);
        let weights = self.activation(StrataDType::F32, &dims);
        self.builder.router_top_k(RouterTopK {
            ids,
            weights,
            logits,
            bias: None,
            score: StrataRouterScore::Softmax,
            normalise: Some(least_sum),
            scale,
            groups: None,
        });
        (ids, weights)
    }

    /// The chosen experts' products: `x` is [K, n] or [K, used, n], the result [M, used, n].
    pub(crate) fn expert_mat_mul(&mut self, weight: &Weight, x: TensorId, ids: TensorId) -> TensorId {
        let x_dims = self.dims(x);
        let [used, n, ..] = self.dims(ids);
        let x = if x_dims[1] == n { self.reshape(x, &[x_dims[0], Dim::Fixed(1), n]) } else { x };
        let out = self.activation(StrataDType::F32, &[Dim::Fixed(weight.ne[1]), used, n]);
        let w = self.weight(weight);
        self.builder.expert_mat_mul(ExpertMatMul { out, w, x, ids, table: None });
        out
    }

    pub(crate) fn expert_combine(&mut self, x: TensorId, weights: TensorId) -> TensorId {
        let [width, _, n, _] = self.dims(x);
        let out = self.activation(StrataDType::F32, &[width, n]);
        self.builder.expert_combine(out, x, weights);
        out
    }

    /// The head: logits of the wanted rows, into the output buffer, or the greatest of them.
    pub(crate) fn logits(&mut self, head: &Weight, x: TensorId, softcap: Option<f32>) {
        let dims = [Dim::Fixed(head.ne[1]), Dim::OUTPUTS];
        let out = match self.ending {
            Ending::Logits => {
                self.output_bytes = align(head.ne[1] * 4 * self.limits.outputs);
                self.fixed(StrataDType::F32, Home::Output, 0, &dims)
            }
            Ending::Choice { .. } => self.activation(StrataDType::F32, &dims),
        };
        match softcap {
            None => self.mat_mul_into(out, head, x, None),
            Some(cap) => {
                let raw = self.mat_mul(head, x, None);
                self.builder.unary(out, raw, StrataUnary::Softcap, cap);
            }
        }
        if let Ending::Choice { to, .. } = self.ending {
            self.choose(out, to);
        }
    }

    /// The index of the greatest of one row of logits and its value, for the host and the next step.
    fn choose(&mut self, logits: TensorId, to: u64) {
        let id = self.fixed(StrataDType::I32, Home::Output, to, &[Dim::OUTPUTS]);
        let value = self.fixed(StrataDType::F32, Home::Output, to + CHOICE_LOGIT, &[Dim::Fixed(1), Dim::OUTPUTS]);
        self.builder.arg_max(id, logits);
        let column = self.reshape(logits, &[Dim::Fixed(1), self.dims(logits)[0]]);
        self.builder.gather_rows(value, column, id);
    }

    // Lowering.

    /// Places the scratch tensors and hands the program over.
    pub(crate) fn lower(self) -> Lowered {
        let mut spec = self.builder.finish();
        let lifetimes = lifetimes(&spec, &self.scratch_of, &self.scratch);
        let (offsets, scratch_bytes) = plan_scratch(&lifetimes);
        for (tensor, value) in spec.tensors.iter_mut().zip(&self.scratch_of) {
            if let Some(value) = value {
                tensor.offset += offsets[*value];
            }
        }
        Lowered { spec, input: self.input, scratch_bytes: scratch_bytes.max(1), output_bytes: self.output_bytes.max(1) }
    }
}

/// From which op to which each scratch value is needed.
fn lifetimes(spec: &ProgramSpec, scratch_of: &[Option<usize>], scratch: &[u64]) -> Vec<Lifetime> {
    let unused = |bytes: &u64| Lifetime { bytes: *bytes, first: usize::MAX, last: 0 };
    let mut lifetimes: Vec<Lifetime> = scratch.iter().map(unused).collect();
    for (index, op) in spec.ops.iter().enumerate() {
        for operand in op.operand.iter().filter(|operand| **operand != STRATA_NO_OPERAND) {
            if let Some(value) = scratch_of[*operand as usize] {
                let life = &mut lifetimes[value];
                life.first = life.first.min(index);
                life.last = life.last.max(index);
            }
        }
    }
    lifetimes
}
