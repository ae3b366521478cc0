//! The operations. One flat struct for all; what its slots mean is said per kind, below, in the
//! notation `name [ne0, ne1, …]`. T is the step's token count (scalar `Tokens`).
//!
//! Numbers are never reused. All activations are F32 unless an op says otherwise.
//! Every op's result for one token is a function of that token's inputs alone: a plugin must give
//! the same bits however many tokens share the step and however many threads work on it.
//!
//! A result shares no byte with another operand, with one exception: it may be the very same view
//! (the op works in place) as `x` of `RmsNorm`, `L2Norm`, `Rope`, `Scale`, `Unary`, `Softmax`, as
//! `a` or `b` of `Add` and `Mul`, and as `gate` or `up` of `Glu`. Parameters without a meaning are 0.

use crate::sized_struct;

/// Operand slots of an op.
pub const STRATA_MAX_OPERANDS: usize = 16;
/// Float parameters of an op.
pub const STRATA_MAX_FLOATS: usize = 8;
/// Integer parameters of an op.
pub const STRATA_MAX_INTS: usize = 8;
/// An operand slot that is not used (optional operands).
pub const STRATA_NO_OPERAND: u32 = u32::MAX;

/// One operation. Operand slots hold indices into the program's tensors; slot 0 is the (first) result.
/// cbindgen:field-names=[struct_size, kind, flags, layer, operand, f, i]
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct StrataOp {
    pub struct_size: u32,
    /// `StrataOpKind`.
    pub kind: u32,
    /// None are defined in this version: 0.
    pub flags: u32,
    /// What made this op, for messages: the model's layer, or -1.
    pub layer: i32,
    pub operand: [u32; STRATA_MAX_OPERANDS],
    pub float: [f32; STRATA_MAX_FLOATS],
    pub int: [i64; STRATA_MAX_INTS],
}
sized_struct!(StrataOp);

/// The operations. The lists give operand slots, then floats `f[i]` and ints `i[i]`.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StrataOpKind {
    /// `0 out [H, T]`, `1 table [H, V]` any format, `2 ids I32 [T]`; `f[0]` multiplies each element.
    EmbeddingLookup = 1,
    /// Per row over ne0: `x / sqrt(mean(x²) + f[0]) · w`. `0 out`, `1 x` (same shape, up to 3 dims,
    /// rows may be strided), `2 w F32 [ne0]` or none. Per-head norms are rows of the head size.
    RmsNorm = 2,
    /// `y = W x (+ b)`: `0 out [M, T]`, `1 w [K, M]` any format, `2 x [K, T]` F32 or F16, `3 b F32 [M]` or none.
    MatMul = 3,
    /// Rotates pairs of the first `i[1]` elements of each head and copies the rest. `0 out [D, heads, T]`,
    /// `1 x` (same shape; may be the same tensor), `2 table F32 [2, i[1]/2, rows]` of (cos, sin) made by the host
    /// (base, scaling and attention factor are in it), `3 row I32 [T]` index into the table's rows.
    /// `i[0]` is a `StrataRopeStyle`.
    Rope = 4,
    /// Stores rows into the cache: `0 cache [D, heads, cells]` in the cache's format, `1 x F32 [D, heads, T]`,
    /// `2 page table I32 [pages, sequences]`, `3 sequence I32 [T]` (row of the page table), `4 position I32 [T]`.
    /// Cell of position p: `table[p / i[0], sequence]·i[0] + p mod i[0]`; `i[0]` is the page size, a power of two.
    KvStore = 5,
    /// `softmax(f[0]·q·k (softcapped by f[1] when > 0)) v` over the cache cells of the token's own sequence at
    /// positions p with `p ≤ position` and, when `i[1] > 0`, `position − p < i[1]` (the window).
    /// `0 out [Dv, heads, T]`, `1 q F32 [D, heads, T]`, `2 k [D, kv heads, cells]`, `3 v [Dv, kv heads, cells]` in the
    /// cache's formats, `4 page table`, `5 sequence`, `6 position` as in `KvStore`, `7 sinks F32 [heads]` or none: a
    /// logit per head that adds to the denominator only. Query head h reads kv head `h / (heads / kv heads)`.
    /// `i[0]` is the page size.
    Attention = 6,
    /// `0 out [F, …]` = act(`1 gate`) · `2 up`, up to 3 dims, rows may be strided. `i[0]` is a `StrataActivation`.
    /// `f[0]`, `f[1]` are the limit and alpha of `SwigluOai`.
    Glu = 7,
    /// `0 out` = `1 a` + `f[0]`·`2 b`; same shapes, up to 3 dims, `b` may have ne of 1 where `a` has more.
    Add = 8,
    /// `0 out` = `1 a` · `2 b`, shapes as in `Add`.
    Mul = 9,
    /// `0 out` = `f[0]`·`1 x` + `f[1]`.
    Scale = 10,
    /// `0 out` = fn(`1 x`) per element; `i[0]` is a `StrataUnary`, `f[0]` its parameter.
    Unary = 11,
    /// Rows: softmax over ne0 of `f[0]`·x. `0 out`, `1 x`.
    Softmax = 12,
    /// Chooses experts: `0 ids I32 [k, T]` best first, `1 weights F32 [k, T]`, `2 logits F32 [E, T]`, `3 bias F32 [E]` or
    /// none (added for the choice only). `i[0]` is a `StrataRouterScore`; `i[1]` 1: weights are divided by their sum, the sum
    /// being at least `f[1]`; `f[0]` multiplies the weights; `i[2]`, `i[3]` expert groups and groups kept (0: no groups); a group's score is the sum of its two
    /// best biased scores.
    /// Equal scores are chosen by lower index.
    RouterTopK = 13,
    /// Per chosen expert: `0 out [M, k, T]`, `1 w [K, M, slots]` any format, `2 x F32 [K, 1 or k, T]`, `3 ids I32 [k, T]`,
    /// `4 expert table I32 [E]` or none: where the expert lies in `w`, or -1: not here, the result row is zero
    /// (several devices' partial results add up).
    ExpertMatMul = 14,
    /// `0 out [H, T]` = Σ over k of `2 weights F32 [k, T]` · `1 x [H, k, T]`, in the order of k.
    ExpertCombine = 15,
    /// `0 out [H, O]` = rows of `1 x [H, T]` chosen by `2 rows I32 [O]`.
    GatherRows = 16,
    /// Copies and converts between F32, F16 and BF16: `0 out`, `1 x`, same shape.
    Copy = 17,
    /// `0 out I32 [T]` = index of the greatest of `1 x [V, T]`, a NaN above every number; equal values: the lowest index.
    ArgMax = 18,
    /// `0 out` = x / sqrt(Σ x² + f[0]) per row over ne0. `0 out`, `1 x`.
    L2Norm = 19,
    /// Reserved: recurrent linear attention with a gated delta rule; state per sequence in a buffer.
    GatedDeltaNet = 32,
    /// Reserved: causal depthwise convolution over time with a state per sequence.
    ShortConv = 33,
    /// Reserved: mixing of parallel residual streams.
    HyperConnection = 34,
}

impl StrataOpKind {
    /// Every op of this version that is not merely reserved.
    pub const ALL: &'static [StrataOpKind] = &[
        StrataOpKind::EmbeddingLookup,
        StrataOpKind::RmsNorm,
        StrataOpKind::MatMul,
        StrataOpKind::Rope,
        StrataOpKind::KvStore,
        StrataOpKind::Attention,
        StrataOpKind::Glu,
        StrataOpKind::Add,
        StrataOpKind::Mul,
        StrataOpKind::Scale,
        StrataOpKind::Unary,
        StrataOpKind::Softmax,
        StrataOpKind::RouterTopK,
        StrataOpKind::ExpertMatMul,
        StrataOpKind::ExpertCombine,
        StrataOpKind::GatherRows,
        StrataOpKind::Copy,
        StrataOpKind::ArgMax,
        StrataOpKind::L2Norm,
    ];

    pub fn from_number(number: u32) -> Option<StrataOpKind> {
        StrataOpKind::ALL
            .iter()
            .copied()
            .chain([StrataOpKind::GatedDeltaNet, StrataOpKind::ShortConv, StrataOpKind::HyperConnection])
            .find(|kind| *kind as u32 == number)
    }
}

/// Which elements form a pair.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StrataRopeStyle {
    /// Neighbours (2i, 2i + 1).
    Norm = 0,
    /// Halves (i, i + n/2).
    Neox = 1,
}

/// Activation of a gated unit.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StrataActivation {
    /// x · sigmoid(x)
    Silu = 0,
    /// 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))
    GeluTanh = 1,
    /// 0.5·x·(1 + erf(x/√2))
    GeluErf = 2,
    /// max(x, 0)²
    ReluSquared = 3,
    /// gate clamped above at `f[0]`, up clamped to ±`f[0]`: gate·sigmoid(`f[1]`·gate)·(up + 1)
    SwigluOai = 4,
}

/// Functions of one element.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StrataUnary {
    Silu = 0,
    GeluTanh = 1,
    Sigmoid = 2,
    Tanh = 3,
    Softplus = 4,
    Exp = 5,
    /// `f[0]·tanh(x / f[0])`
    Softcap = 6,
}

/// How a router turns logits into scores.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StrataRouterScore {
    /// Softmax over all experts, then the k best.
    Softmax = 0,
    /// The k best logits, then softmax over those.
    SoftmaxOfChosen = 1,
    Sigmoid = 2,
    /// sqrt(softplus(x))
    SqrtSoftplus = 3,
}
