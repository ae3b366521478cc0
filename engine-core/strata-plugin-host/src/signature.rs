//! What each kind of op takes, as data: names of operands and parameters, which operands are
//! results, which may be absent, which may be the very tensor that the result is. The validator
//! takes its counts from here and the listing its words. Shapes and formats are code
//! (validate/op.rs), since they differ in kind.

use strata_backend_abi::StrataOpKind;

/// One operand slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operand {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Result,
    Input,
    /// May be absent.
    Optional,
    /// May be the same view as the first result: the op then works in place.
    InPlace,
}

/// One kind of op.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signature {
    pub(crate) operands: &'static [Operand],
    pub(crate) floats: &'static [&'static str],
    pub(crate) ints: &'static [&'static str],
}

macro_rules! role {
    (=) => {
        Role::Result
    };
    (<) => {
        Role::Input
    };
    (?) => {
        Role::Optional
    };
    (~) => {
        Role::InPlace
    };
}

macro_rules! signature {
    ([$($role:tt $operand:ident),*] [$($float:ident),*] [$($int:ident),*]) => {
        Signature {
            operands: &[$(Operand { name: stringify!($operand), role: role!($role) }),*],
            floats: &[$(stringify!($float)),*],
            ints: &[$(stringify!($int)),*],
        }
    };
}

/// The signature of a kind, or `None` for one that is only reserved.
///
/// In the lists: `=` result, `<` input, `?` may be absent, `~` may be the result's own view.
pub(crate) fn signature(kind: StrataOpKind) -> Option<Signature> {
    use StrataOpKind as K;
    Some(match kind {
        K::EmbeddingLookup => signature!([= out, < table, < ids] [scale] []),
        K::RmsNorm => signature!([= out, ~ x, ? w] [eps] []),
        K::MatMul => signature!([= out, < w, < x, ? bias] [] []),
        K::Rope => signature!([= out, ~ x, < table, < row] [] [style, rotated]),
        K::KvStore => signature!([= cache, < x, < pages, < sequence, < position] [] [page_size]),
        K::Attention => signature!(
            [= out, < q, < k, < v, < pages, < sequence, < position, ? sinks] [scale, softcap] [page_size, window]
        ),
        K::Glu => signature!([= out, ~ gate, ~ up] [limit, alpha] [activation]),
        K::Add => signature!([= out, ~ a, ~ b] [factor] []),
        K::Mul => signature!([= out, ~ a, ~ b] [] []),
        K::Scale => signature!([= out, ~ x] [factor, summand] []),
        K::Unary => signature!([= out, ~ x] [parameter] [function]),
        K::Softmax => signature!([= out, ~ x] [scale] []),
        K::RouterTopK => signature!(
            [= ids, = weights, < logits, ? bias] [scale, least_sum] [score, normalise, groups, groups_kept]
        ),
        K::ExpertMatMul => signature!([= out, < w, < x, < ids, ? table] [] []),
        K::ExpertCombine => signature!([= out, < x, < weights] [] []),
        K::GatherRows => signature!([= out, < x, < rows] [] []),
        K::Copy | K::ArgMax => signature!([= out, < x] [] []),
        K::L2Norm => signature!([= out, ~ x] [eps] []),
        K::GatedDeltaNet | K::ShortConv | K::HyperConnection => return None,
    })
}
