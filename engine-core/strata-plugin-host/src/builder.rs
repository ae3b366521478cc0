//! Makes a [`ProgramSpec`] without raw slots: one method an op kind with named operands and
//! parameters, and tensors whose strides follow from their shape. It checks nothing; what it
//! makes goes through `validate`. Called by the engine's graphs and by the conformance kit.

use crate::ProgramSpec;
use strata_backend_abi::{
    STRATA_MAX_FLOATS, STRATA_MAX_INTS, STRATA_MAX_OPERANDS, STRATA_N_SCALARS, STRATA_NO_OPERAND,
    STRATA_TENSOR_CONSTANT, SizedStruct, StrataActivation, StrataDType, StrataOp, StrataOpKind, StrataRopeStyle,
    StrataRouterScore, StrataScalar, StrataTensor, StrataUnary,
};

/// A tensor of the program under construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub u32);

/// One dimension of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dim {
    Fixed(u64),
    /// Set per run; its greatest value is the builder's `scalar_max`.
    Run(StrataScalar),
}

impl Dim {
    /// The step's tokens, T.
    pub const TOKENS: Dim = Dim::Run(StrataScalar::Tokens);
    /// Rows of which logits are wanted, O.
    pub const OUTPUTS: Dim = Dim::Run(StrataScalar::Outputs);
}

impl From<u64> for Dim {
    fn from(fixed: u64) -> Dim {
        Dim::Fixed(fixed)
    }
}

impl From<StrataScalar> for Dim {
    fn from(scalar: StrataScalar) -> Dim {
        Dim::Run(scalar)
    }
}

/// Greatest values of the scalars, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScalarMax {
    pub tokens: i64,
    pub outputs: i64,
    pub kv_length: i64,
    pub position: i64,
}

/// Operands and parameters of [`StrataOpKind::Rope`].
#[derive(Debug, Clone, Copy)]
pub struct Rope {
    pub out: TensorId,
    pub x: TensorId,
    /// F32 `[2, rotated/2, rows]` of (cos, sin).
    pub table: TensorId,
    /// I32 `[T]` into the table's rows.
    pub row: TensorId,
    pub style: StrataRopeStyle,
    /// Elements of each head that are rotated; the rest is copied.
    pub rotated: u64,
}

/// Operands and parameters of [`StrataOpKind::KvStore`].
#[derive(Debug, Clone, Copy)]
pub struct KvStore {
    pub cache: TensorId,
    pub x: TensorId,
    pub pages: TensorId,
    pub sequence: TensorId,
    pub position: TensorId,
    /// Cells of a page, a power of two.
    pub page_size: u64,
}

/// Operands and parameters of [`StrataOpKind::Attention`].
#[derive(Debug, Clone, Copy)]
pub struct Attention {
    pub out: TensorId,
    pub q: TensorId,
    pub k: TensorId,
    pub v: TensorId,
    pub pages: TensorId,
    pub sequence: TensorId,
    pub position: TensorId,
    pub sinks: Option<TensorId>,
    pub scale: f32,
    /// Scores are `softcap·tanh(score / softcap)` when present.
    pub softcap: Option<f32>,
    /// Positions that a token sees, itself included; all when absent.
    pub window: Option<u64>,
    pub page_size: u64,
}

/// Operands and parameters of [`StrataOpKind::RouterTopK`].
#[derive(Debug, Clone, Copy)]
pub struct RouterTopK {
    pub ids: TensorId,
    pub weights: TensorId,
    pub logits: TensorId,
    pub bias: Option<TensorId>,
    pub score: StrataRouterScore,
    /// The weights are divided by their sum, which counts as at least this.
    pub normalise: Option<f32>,
    pub scale: f32,
    /// Expert groups and how many of them are kept.
    pub groups: Option<(u64, u64)>,
}

/// Operands of [`StrataOpKind::ExpertMatMul`].
#[derive(Debug, Clone, Copy)]
pub struct ExpertMatMul {
    pub out: TensorId,
    pub w: TensorId,
    pub x: TensorId,
    pub ids: TensorId,
    /// Where each expert lies in `w`; identity when absent.
    pub table: Option<TensorId>,
}

/// See the module. Ops run in the order of the calls.
#[derive(Debug, Clone)]
pub struct ProgramBuilder {
    spec: ProgramSpec,
    layer: i32,
}

impl ProgramBuilder {
    pub fn new(name: impl Into<String>, max: ScalarMax) -> ProgramBuilder {
        let mut scalar_max = vec![0; STRATA_N_SCALARS];
        scalar_max[StrataScalar::Tokens as usize] = max.tokens;
        scalar_max[StrataScalar::Outputs as usize] = max.outputs;
        scalar_max[StrataScalar::KvLength as usize] = max.kv_length;
        scalar_max[StrataScalar::Position as usize] = max.position;
        let spec = ProgramSpec { name: name.into(), scalar_max, ..ProgramSpec::default() };
        ProgramBuilder { spec, layer: -1 }
    }

    /// Asks for the nearly exact way of computing (`STRATA_PROGRAM_PRECISE`).
    #[must_use]
    pub fn precise(mut self, precise: bool) -> ProgramBuilder {
        self.spec.precise = precise;
        self
    }

    /// The model's layer that the following ops come from, -1 for none; for messages.
    pub fn layer(&mut self, layer: i32) {
        self.layer = layer;
    }

    /// What has been added so far.
    pub fn spec(&self) -> &ProgramSpec {
        &self.spec
    }

    pub fn finish(self) -> ProgramSpec {
        self.spec
    }

    // Tensors.

    /// A tensor without gaps at `offset` bytes in `buffer`. Up to four dimensions, contiguous one first.
    pub fn tensor(&mut self, dtype: StrataDType, buffer: u32, offset: u64, dims: &[Dim]) -> TensorId {
        let (ne, dynamic) = self.shape(dims);
        let nb = contiguous_strides(dtype, ne);
        self.push_tensor(dtype, buffer, offset, 0, (ne, nb, dynamic))
    }

    /// The same, of data that never changes once the program is compiled (weights, biases).
    pub fn constant(&mut self, dtype: StrataDType, buffer: u32, offset: u64, ne: &[u64]) -> TensorId {
        let dims: Vec<Dim> = ne.iter().copied().map(Dim::Fixed).collect();
        let (ne, dynamic) = self.shape(&dims);
        let nb = contiguous_strides(dtype, ne);
        self.push_tensor(dtype, buffer, offset, STRATA_TENSOR_CONSTANT, (ne, nb, dynamic))
    }

    /// A tensor with gaps: `strides[k]` bytes from one index of dimension k + 1 to the next.
    /// Dimensions without a stride follow the ones before them without a gap.
    pub fn view(&mut self, dtype: StrataDType, buffer: u32, offset: u64, dims: &[Dim], strides: &[u64]) -> TensorId {
        let (ne, dynamic) = self.shape(dims);
        let mut nb = contiguous_strides(dtype, ne);
        for k in 1..nb.len() {
            nb[k] = match strides.get(k - 1) {
                Some(stride) => *stride,
                None if k == 1 => nb[1],
                None => nb[k - 1].saturating_mul(ne[k - 1]),
            };
        }
        self.push_tensor(dtype, buffer, offset, 0, (ne, nb, dynamic))
    }

    /// A tensor exactly as given, for tests of the validator and for what the above cannot say.
    pub fn raw_tensor(&mut self, tensor: StrataTensor) -> TensorId {
        self.spec.tensors.push(tensor);
        TensorId(self.spec.tensors.len() as u32 - 1)
    }

    fn shape(&self, dims: &[Dim]) -> ([u64; 4], [u32; 4]) {
        let mut ne = [1; 4];
        let mut dynamic = [0; 4];
        for (k, dim) in dims.iter().take(4).enumerate() {
            match *dim {
                Dim::Fixed(n) => ne[k] = n,
                Dim::Run(scalar) => {
                    ne[k] = self.spec.scalar_max[scalar as usize].max(0) as u64;
                    dynamic[k] = 1 + scalar as u32;
                }
            }
        }
        (ne, dynamic)
    }

    fn push_tensor(
        &mut self,
        dtype: StrataDType,
        buffer: u32,
        offset: u64,
        flags: u32,
        (ne, nb, dynamic): ([u64; 4], [u64; 4], [u32; 4]),
    ) -> TensorId {
        self.raw_tensor(StrataTensor {
            struct_size: StrataTensor::SIZE,
            dtype: dtype as u32,
            buffer,
            flags,
            offset,
            ne,
            nb,
            dynamic,
        })
    }

    // Ops, in the order of their numbers.

    /// `out [H, T]` = rows `ids [T]` of `table [H, V]`, times `scale`.
    pub fn embedding_lookup(&mut self, out: TensorId, table: TensorId, ids: TensorId, scale: f32) {
        self.op(StrataOpKind::EmbeddingLookup, &[Some(out), Some(table), Some(ids)], &[scale], &[]);
    }

    pub fn rms_norm(&mut self, out: TensorId, x: TensorId, w: Option<TensorId>, eps: f32) {
        self.op(StrataOpKind::RmsNorm, &[Some(out), Some(x), w], &[eps], &[]);
    }

    /// `out [M, T]` = `w [K, M]` · `x [K, T]` (+ `bias [M]`).
    pub fn mat_mul(&mut self, out: TensorId, w: TensorId, x: TensorId, bias: Option<TensorId>) {
        self.op(StrataOpKind::MatMul, &[Some(out), Some(w), Some(x), bias], &[], &[]);
    }

    pub fn rope(&mut self, rope: Rope) {
        let Rope { out, x, table, row, style, rotated } = rope;
        self.op(
            StrataOpKind::Rope,
            &[Some(out), Some(x), Some(table), Some(row)],
            &[],
            &[style as i64, clamp_int(rotated)],
        );
    }

    pub fn kv_store(&mut self, store: KvStore) {
        let KvStore { cache, x, pages, sequence, position, page_size } = store;
        self.op(
            StrataOpKind::KvStore,
            &[Some(cache), Some(x), Some(pages), Some(sequence), Some(position)],
            &[],
            &[clamp_int(page_size)],
        );
    }

    pub fn attention(&mut self, attention: Attention) {
        let Attention { out, q, k, v, pages, sequence, position, sinks, scale, softcap, window, page_size } = attention;
        self.op(
            StrataOpKind::Attention,
            &[Some(out), Some(q), Some(k), Some(v), Some(pages), Some(sequence), Some(position), sinks],
            &[scale, softcap.unwrap_or(0.0)],
            &[clamp_int(page_size), window.map_or(0, clamp_int)],
        );
    }

    /// `out` = act(`gate`) · `up`.
    pub fn glu(&mut self, out: TensorId, gate: TensorId, up: TensorId, activation: StrataActivation) {
        self.op(StrataOpKind::Glu, &[Some(out), Some(gate), Some(up)], &[], &[activation as i64]);
    }

    /// [`StrataActivation::SwigluOai`] with its two parameters.
    pub fn swiglu_oai(&mut self, out: TensorId, gate: TensorId, up: TensorId, limit: f32, alpha: f32) {
        let activation = StrataActivation::SwigluOai as i64;
        self.op(StrataOpKind::Glu, &[Some(out), Some(gate), Some(up)], &[limit, alpha], &[activation]);
    }

    /// `out` = `a` + `factor`·`b`; `b` may be broadcast.
    pub fn add(&mut self, out: TensorId, a: TensorId, b: TensorId, factor: f32) {
        self.op(StrataOpKind::Add, &[Some(out), Some(a), Some(b)], &[factor], &[]);
    }

    /// `out` = `a` · `b`; `b` may be broadcast.
    pub fn mul(&mut self, out: TensorId, a: TensorId, b: TensorId) {
        self.op(StrataOpKind::Mul, &[Some(out), Some(a), Some(b)], &[], &[]);
    }

    /// `out` = `factor`·`x` + `summand`.
    pub fn scale(&mut self, out: TensorId, x: TensorId, factor: f32, summand: f32) {
        self.op(StrataOpKind::Scale, &[Some(out), Some(x)], &[factor, summand], &[]);
    }

    /// `parameter` is the cap of [`StrataUnary::Softcap`], else unused.
    pub fn unary(&mut self, out: TensorId, x: TensorId, function: StrataUnary, parameter: f32) {
        self.op(StrataOpKind::Unary, &[Some(out), Some(x)], &[parameter], &[function as i64]);
    }

    /// Softmax of `scale`·`x` over each row.
    pub fn softmax(&mut self, out: TensorId, x: TensorId, scale: f32) {
        self.op(StrataOpKind::Softmax, &[Some(out), Some(x)], &[scale], &[]);
    }

    pub fn router_top_k(&mut self, router: RouterTopK) {
        let RouterTopK { ids, weights, logits, bias, score, normalise, scale, groups } = router;
        let (n_groups, kept) = groups.unwrap_or((0, 0));
        self.op(
            StrataOpKind::RouterTopK,
            &[Some(ids), Some(weights), Some(logits), bias],
            &[scale, normalise.unwrap_or(0.0)],
            &[score as i64, i64::from(normalise.is_some()), clamp_int(n_groups), clamp_int(kept)],
        );
    }

    pub fn expert_mat_mul(&mut self, experts: ExpertMatMul) {
        let ExpertMatMul { out, w, x, ids, table } = experts;
        self.op(StrataOpKind::ExpertMatMul, &[Some(out), Some(w), Some(x), Some(ids), table], &[], &[]);
    }

    /// `out [H, T]` = Σₖ `weights [k, T]` · `x [H, k, T]`.
    pub fn expert_combine(&mut self, out: TensorId, x: TensorId, weights: TensorId) {
        self.op(StrataOpKind::ExpertCombine, &[Some(out), Some(x), Some(weights)], &[], &[]);
    }

    /// `out [H, O]` = rows `rows [O]` of `x [H, T]`.
    pub fn gather_rows(&mut self, out: TensorId, x: TensorId, rows: TensorId) {
        self.op(StrataOpKind::GatherRows, &[Some(out), Some(x), Some(rows)], &[], &[]);
    }

    pub fn copy(&mut self, out: TensorId, x: TensorId) {
        self.op(StrataOpKind::Copy, &[Some(out), Some(x)], &[], &[]);
    }

    /// `out I32 [T]` = index of the greatest of `x [V, T]`.
    pub fn arg_max(&mut self, out: TensorId, x: TensorId) {
        self.op(StrataOpKind::ArgMax, &[Some(out), Some(x)], &[], &[]);
    }

    pub fn l2_norm(&mut self, out: TensorId, x: TensorId, eps: f32) {
        self.op(StrataOpKind::L2Norm, &[Some(out), Some(x)], &[eps], &[]);
    }

    /// An op exactly as given, for tests of the validator.
    pub fn raw_op(&mut self, op: StrataOp) {
        self.spec.ops.push(op);
    }

    fn op(&mut self, kind: StrataOpKind, operands: &[Option<TensorId>], floats: &[f32], ints: &[i64]) {
        let mut op = StrataOp {
            struct_size: StrataOp::SIZE,
            kind: kind as u32,
            flags: 0,
            layer: self.layer,
            operand: [STRATA_NO_OPERAND; STRATA_MAX_OPERANDS],
            float: [0.0; STRATA_MAX_FLOATS],
            int: [0; STRATA_MAX_INTS],
        };
        for (slot, operand) in op.operand.iter_mut().zip(operands) {
            *slot = operand.map_or(STRATA_NO_OPERAND, |id| id.0);
        }
        op.float[..floats.len()].copy_from_slice(floats);
        op.int[..ints.len()].copy_from_slice(ints);
        self.spec.ops.push(op);
    }
}

/// Strides of a tensor without gaps. Saturates: what does not fit is refused by the validator.
pub fn contiguous_strides(dtype: StrataDType, ne: [u64; 4]) -> [u64; 4] {
    let row = (ne[0] / dtype.block_len() as u64).saturating_mul(dtype.block_bytes() as u64);
    let mut nb = [dtype.block_bytes() as u64, row, 0, 0];
    for k in 2..4 {
        nb[k] = nb[k - 1].saturating_mul(ne[k - 1]);
    }
    nb
}

fn clamp_int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
