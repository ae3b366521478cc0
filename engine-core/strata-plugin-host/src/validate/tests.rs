//! One sound program with every kind of op in it, and for each rule a change that breaks it.

use super::*;
use crate::{
    Attention, Dim, ExpertMatMul, KvStore, ProgramBuilder, Rope, RouterTopK, ScalarMax, TensorId, contiguous_strides,
};
use strata_backend_abi::{
    STRATA_TENSOR_CONSTANT, StrataActivation, StrataDType, StrataOp, StrataRopeStyle, StrataRouterScore, StrataScalar,
    StrataTensor, StrataUnary,
};

const T: Dim = Dim::TOKENS;
const WEIGHTS: u32 = 1;

/// Lays tensors one after another in two buffers.
struct Layout {
    builder: ProgramBuilder,
    ends: [u64; 2],
}

impl Layout {
    fn new() -> Layout {
        let max = ScalarMax { tokens: 8, outputs: 4, kv_length: 64, position: 63 };
        Layout { builder: ProgramBuilder::new("sound", max), ends: [0, 0] }
    }

    fn place(&mut self, buffer: u32, id: TensorId) -> TensorId {
        let tensor = &self.builder.spec().tensors[id.0 as usize];
        let bytes: u64 = (0..4).map(|k| tensor.ne[k] * tensor.nb[k]).max().unwrap();
        self.ends[buffer as usize] += bytes.next_multiple_of(256);
        id
    }

    fn t(&mut self, dtype: StrataDType, dims: &[Dim]) -> TensorId {
        let id = self.builder.tensor(dtype, 0, self.ends[0], dims);
        self.place(0, id)
    }

    fn x(&mut self, dims: &[Dim]) -> TensorId {
        self.t(StrataDType::F32, dims)
    }

    fn w(&mut self, dtype: StrataDType, ne: &[u64]) -> TensorId {
        let id = self.builder.constant(dtype, WEIGHTS, self.ends[1], ne);
        self.place(1, id)
    }
}

fn f(n: u64) -> Dim {
    Dim::Fixed(n)
}

/// Every kind of op once, in the order of their numbers, so that op index = position in `ALL`.
fn sound() -> (ProgramSpec, Vec<u64>) {
    let mut l = Layout::new();
    first_half(&mut l);
    second_half(&mut l);
    let sizes = l.ends.to_vec();
    (l.builder.finish(), sizes)
}

fn first_half(l: &mut Layout) {
    use StrataDType::{F16, F32, I32, Q4K, Q8_0};
    let (table, ids, h) = (l.w(Q8_0, &[256, 100]), l.t(I32, &[T]), l.x(&[f(256), T]));
    l.builder.embedding_lookup(h, table, ids, 1.0);

    let (gamma, n) = (l.w(F32, &[256]), l.x(&[f(256), T]));
    l.builder.rms_norm(n, h, Some(gamma), 1e-5);

    let (w, bias, q) = (l.w(Q4K, &[256, 128]), l.w(F32, &[128]), l.x(&[f(128), T]));
    l.builder.mat_mul(q, w, n, Some(bias));

    // The same bytes as `q`, by heads.
    let at = l.builder.spec().tensors[q.0 as usize].offset;
    let heads = l.builder.tensor(F32, 0, at, &[f(32), f(4), T]);
    let (angles, row) = (l.x(&[f(2), f(8), T]), l.t(I32, &[T]));
    l.builder.rope(Rope { out: heads, x: heads, table: angles, row, style: StrataRopeStyle::Neox, rotated: 16 });

    let (k, v) = (l.t(F16, &[f(32), f(2), f(64)]), l.t(F16, &[f(32), f(2), f(64)]));
    let (new, pages) = (l.x(&[f(32), f(2), T]), l.t(I32, &[f(4), f(2)]));
    let (sequence, position) = (l.t(I32, &[T]), l.t(I32, &[T]));
    l.builder.layer(7);
    l.builder.kv_store(KvStore { cache: k, x: new, pages, sequence, position, page_size: 16 });

    let (out, sinks) = (l.x(&[f(32), f(4), T]), l.w(F32, &[4]));
    l.builder.attention(Attention {
        out,
        q: heads,
        k,
        v,
        pages,
        sequence,
        position,
        sinks: Some(sinks),
        scale: 0.2,
        softcap: Some(30.0),
        window: Some(8),
        page_size: 16,
    });
    l.builder.layer(-1);

    let (gate, up) = (l.x(&[f(64), T]), l.x(&[f(64), T]));
    l.builder.glu(gate, gate, up, StrataActivation::Silu);
    let (sum, one) = (l.x(&[f(64), T]), l.x(&[f(64), f(1)]));
    l.builder.add(sum, up, one, 1.0);
    l.builder.mul(sum, sum, up);
    l.builder.scale(sum, sum, 2.0, 0.5);
    l.builder.unary(sum, sum, StrataUnary::Softcap, 30.0);
    l.builder.softmax(sum, sum, 1.0);
}

fn second_half(l: &mut Layout) {
    use StrataDType::{F16, F32, I32, IQ4NL, MXFP4};
    let (ids, weights) = (l.t(I32, &[f(2), T]), l.x(&[f(2), T]));
    let (logits, bias) = (l.x(&[f(8), T]), l.w(F32, &[8]));
    l.builder.router_top_k(RouterTopK {
        ids,
        weights,
        logits,
        bias: Some(bias),
        score: StrataRouterScore::Sigmoid,
        normalise: Some(6e-5),
        scale: 1.0,
        groups: Some((4, 2)),
    });

    let (w, x, table) = (l.w(MXFP4, &[64, 96, 6]), l.x(&[f(64), f(1), T]), l.t(I32, &[f(8)]));
    let out = l.x(&[f(96), f(2), T]);
    l.builder.expert_mat_mul(ExpertMatMul { out, w, x, ids, table: Some(table) });

    let h = l.x(&[f(96), T]);
    l.builder.expert_combine(h, out, weights);

    let (rows, chosen) = (l.t(I32, &[Dim::OUTPUTS]), l.x(&[f(96), Dim::OUTPUTS]));
    l.builder.gather_rows(chosen, h, rows);

    let half = l.t(F16, &[f(96), Dim::OUTPUTS]);
    l.builder.copy(half, chosen);

    let (best, head, scores) = (l.t(I32, &[Dim::OUTPUTS]), l.w(IQ4NL, &[96, 50]), l.x(&[f(50), Dim::OUTPUTS]));
    l.builder.arg_max(best, scores);
    l.builder.l2_norm(chosen, chosen, 1e-6);
    l.builder.mat_mul(scores, head, half, None);
}

fn rule_of(result: Result<(), PluginError>) -> String {
    match result {
        Ok(()) => "accepted".to_owned(),
        Err(PluginError::Program { place, rule, .. }) => format!("{place}: {rule}"),
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn the_sound_program_is_accepted_whole_and_op_by_op() {
    let (spec, sizes) = sound();
    assert_eq!(rule_of(validate(&spec, &sizes)), "accepted");
    assert_eq!(rule_of(validate_shapes(&spec)), "accepted");
    for (index, kind) in StrataOpKind::ALL.iter().enumerate() {
        assert_eq!(spec.ops[index].kind, *kind as u32, "op {index}");
        assert_eq!(rule_of(validate_op(&spec, index)), "accepted", "{kind:?}");
    }
}

type Change = fn(&mut ProgramSpec);

fn op(spec: &mut ProgramSpec, kind: StrataOpKind) -> &mut StrataOp {
    spec.ops.iter_mut().find(|op| op.kind == kind as u32).unwrap()
}

/// The tensor in a slot of the op of this kind, as a copy of its own that nothing else uses.
fn operand(spec: &mut ProgramSpec, kind: StrataOpKind, slot: usize) -> &mut StrataTensor {
    let from = op(spec, kind).operand[slot] as usize;
    let copy = spec.tensors[from];
    spec.tensors.push(copy);
    let index = spec.tensors.len() as u32 - 1;
    op(spec, kind).operand[slot] = index;
    spec.tensors.last_mut().unwrap()
}

fn reshape(tensor: &mut StrataTensor, ne: [u64; 4]) {
    let dtype = StrataDType::from_number(tensor.dtype).unwrap();
    tensor.ne = ne;
    tensor.nb = contiguous_strides(dtype, ne);
    for (dynamic, n) in tensor.dynamic.iter_mut().zip(ne) {
        if n == 1 {
            *dynamic = 0;
        }
    }
}

fn retype(tensor: &mut StrataTensor, dtype: StrataDType) {
    tensor.dtype = dtype as u32;
    tensor.nb = contiguous_strides(dtype, tensor.ne);
}

/// Applies each change to the sound program and wants its complaint.
fn check(changes: &[(&str, Change)]) {
    for (wanted, change) in changes {
        let (mut spec, mut sizes) = sound();
        // Room for what a change moves; bounds have a test of their own.
        for size in &mut sizes {
            *size += 1 << 20;
        }
        change(&mut spec);
        let got = rule_of(validate(&spec, &sizes));
        assert!(got.contains(wanted), "wanted `{wanted}`, got `{got}`");
    }
}

#[test]
fn scalars_and_tensors() {
    use StrataOpKind as K;
    check(&[
        ("5 scalars, this ABI has 4", |s| s.scalar_max.push(1)),
        ("greatest value -1 of scalar 2", |s| s.scalar_max[2] = -1),
        ("greatest value 2147483648 of scalar 3", |s| s.scalar_max[3] = 1 << 31),
        ("struct_size 8", |s| s.tensors[3].struct_size = 8),
        ("unknown format 4", |s| s.tensors[3].dtype = 4),
        ("unknown flags 0x2", |s| s.tensors[3].flags = 2),
        ("a constant tensor with a dynamic dimension", |s| s.tensors[2].flags = STRATA_TENSOR_CONSTANT),
        ("dimension 1 is 0", |s| s.tensors[0].ne[1] = 0),
        ("set by scalar 4", |s| s.tensors[2].dynamic[1] = 5),
        ("set by scalar 4294967294", |s| s.tensors[2].dynamic[1] = u32::MAX),
        ("set by scalar 0, the program has 0", |s| s.scalar_max.clear()),
        ("set by the position", |s| s.tensors[2].dynamic[1] = 1 + StrataScalar::Position as u32),
        ("dimension 1 is 7, its scalar's greatest value is 8", |s| s.tensors[2].ne[1] = 7),
        ("dimension 0 is dynamic and it is no vector", |s| {
            let x = operand(s, K::RmsNorm, 1);
            (x.ne[0], x.dynamic[0]) = (8, 1);
        }),
        ("a row of 255 elements is no whole number of Q8_0 blocks", |s| s.tensors[0].ne[0] = 255),
        ("nb[0] is 8, F32 needs 4", |s| s.tensors[2].nb[0] = 8),
        ("offset 2 is no multiple of 4", |s| s.tensors[2].offset = 2),
        ("offset 1 is no multiple of 2", |s| s.tensors[0].offset = 1),
        ("nb[1] is 1030, no multiple of 4", |s| s.tensors[2].nb[1] = 1030),
        ("nb[1] is 273, no multiple of 34", |s| s.tensors[0].nb[1] = 273),
        ("nb[1] is 1020, elements would share bytes", |s| s.tensors[2].nb[1] = 1020),
        ("nb[1] is 0, elements would share bytes", |s| s.tensors[2].nb[1] = 0),
        ("does not fit 64 bits", |s| s.tensors[2].nb[1] = u64::MAX / 4 * 4),
        ("does not fit 64 bits", |s| s.tensors[2].offset = u64::MAX - 3),
        ("a row of 18446744073709551584 elements", |s| s.tensors[0].ne[0] = u64::MAX - 31),
        ("buffer 2, the program has 2", |s| s.tensors[2].buffer = 2),
    ]);
}

#[test]
fn bounds_are_exact_and_use_the_greatest_values() {
    let (spec, sizes) = sound();
    for buffer in [0, 1] {
        // Only the padding behind the last tensor may go.
        let last = spec.tensors.iter().filter(|t| t.buffer == buffer as u32);
        let end = last.map(|t| t.offset + (0..4).map(|k| t.ne[k] * t.nb[k]).max().unwrap()).max().unwrap();
        let mut exact = sizes.clone();
        exact[buffer] = end;
        assert_eq!(rule_of(validate(&spec, &exact)), "accepted");
        exact[buffer] = end - 1;
        let got = rule_of(validate(&spec, &exact));
        assert!(got.contains(&format!("of buffer {buffer}, which has {}", end - 1)), "{got}");
    }
    assert!(rule_of(validate(&spec, &sizes[..1])).contains("buffer 1, the program has 1"));
}

#[test]
fn operands_and_parameters_in_general() {
    use StrataOpKind as K;
    check(&[
        ("op 0 (EmbeddingLookup): struct_size 9", |s| s.ops[0].struct_size = 9),
        ("op 0 (kind 20): unknown op kind 20", |s| s.ops[0].kind = 20),
        ("op 0 (GatedDeltaNet): this op is only reserved", |s| s.ops[0].kind = K::GatedDeltaNet as u32),
        ("op 4 (KvStore, layer 7): unknown flags 0x1", |s| s.ops[4].flags = 1),
        ("operand ids is absent", |s| s.ops[0].operand[2] = STRATA_NO_OPERAND),
        ("operand slot 3 is used, this op has 3", |s| s.ops[0].operand[3] = 0),
        ("operand out is tensor 4294967294 of", |s| s.ops[0].operand[0] = u32::MAX - 1),
        ("eps is NaN", |s| op(s, K::RmsNorm).float[0] = f32::NAN),
        ("scale is inf", |s| op(s, K::Attention).float[0] = f32::INFINITY),
        ("float 0 is 1, this op has no such parameter", |s| op(s, K::MatMul).float[0] = 1.0),
        ("float 7 is NaN, this op has no such parameter", |s| op(s, K::MatMul).float[7] = f32::NAN),
        ("int 2 is 1, this op has no such parameter", |s| op(s, K::Rope).int[2] = 1),
    ]);
}

#[test]
fn rules_of_the_first_ops() {
    use StrataDType as D;
    use StrataOpKind as K;
    check(&[
        ("out is F32 [256, Tokens≤8, 2], at most 2 dimensions", |s| {
            let out = operand(s, K::EmbeddingLookup, 0);
            (out.ne[2], out.nb[2]) = (2, 8192);
        }),
        ("out is F16 [256, Tokens≤8], F32 is needed", |s| retype(operand(s, K::EmbeddingLookup, 0), D::F16)),
        ("table is I32", |s| retype(operand(s, K::EmbeddingLookup, 1), D::I32)),
        ("dimension 0 of out is 256, 32 is needed", |s| {
            reshape(operand(s, K::EmbeddingLookup, 1), [32, 100, 1, 1]);
        }),
        ("ids is F32 [4], I32 [Tokens≤8] is needed", |s| {
            let ids = operand(s, K::EmbeddingLookup, 2);
            ids.dtype = D::F32 as u32;
            (ids.ne[0], ids.dynamic[0]) = (4, 0);
        }),
        ("ids is I32 [7], I32 [Tokens≤8] is needed", |s| {
            let ids = operand(s, K::EmbeddingLookup, 2);
            (ids.ne[0], ids.dynamic[0]) = (7, 0);
        }),
        ("ids is I32 [8, 2], I32", |s| {
            let ids = operand(s, K::EmbeddingLookup, 2);
            ids.dynamic[0] = 0;
            reshape(ids, [8, 2, 1, 1]);
        }),
        ("the shapes must be equal", |s| operand(s, K::RmsNorm, 1).dynamic[1] = 0),
        ("w is F32 [128], F32 [256] is needed", |s| reshape(operand(s, K::RmsNorm, 2), [128, 1, 1, 1])),
        ("w is F16 [256], F32 [256] is needed", |s| retype(operand(s, K::RmsNorm, 2), D::F16)),
        ("eps is -0.5", |s| op(s, K::RmsNorm).float[0] = -0.5),
        ("x is BF16 [256, Tokens≤8], F32 or F16 is needed", |s| retype(operand(s, K::MatMul, 2), D::BF16)),
        ("dimension 0 of x is 256, 512 is needed", |s| reshape(operand(s, K::MatMul, 1), [512, 128, 1, 1])),
        ("dimension 0 of out is 128, 64 is needed", |s| reshape(operand(s, K::MatMul, 1), [256, 64, 1, 1])),
        ("dimension 1 of out is Tokens≤8, 8 is needed", |s| operand(s, K::MatMul, 2).dynamic[1] = 0),
        ("dimension 1 of w is dynamic", |s| {
            let w = operand(s, K::MatMul, 1);
            w.flags = 0;
            (w.ne[1], w.dynamic[1]) = (8, 1);
        }),
        ("bias is F32 [64], F32 [128] is needed", |s| reshape(operand(s, K::MatMul, 3), [64, 1, 1, 1])),
        ("style is 2, this ABI knows 0 to 1", |s| op(s, K::Rope).int[0] = 2),
        ("style is -1", |s| op(s, K::Rope).int[0] = -1),
        ("rotated is 15, an even number from 2 to 32", |s| op(s, K::Rope).int[1] = 15),
        ("rotated is 0,", |s| op(s, K::Rope).int[1] = 0),
        ("rotated is 34,", |s| op(s, K::Rope).int[1] = 34),
        ("dimension 1 of table is 8, 16 is needed", |s| op(s, K::Rope).int[1] = 32),
        ("dimension 0 of table is 4, 2 is needed", |s| {
            let table = operand(s, K::Rope, 2);
            (table.ne[0], table.nb[1], table.nb[2]) = (4, 16, 128);
        }),
        ("dimension 1 of out is dynamic", |s| {
            let index = operand(s, K::Rope, 0);
            (index.ne[1], index.dynamic[1]) = (4, 2);
            let copy = *index;
            *operand(s, K::Rope, 1) = copy;
        }),
    ]);
}

#[test]
fn rules_of_cache_and_attention() {
    use StrataDType as D;
    use StrataOpKind as K;
    check(&[
        ("cache is I32, numbers are needed", |s| retype(operand(s, K::KvStore, 0), D::I32)),
        ("dimension 0 of x is 32, 16 is needed", |s| reshape(operand(s, K::KvStore, 0), [16, 2, 64, 1])),
        ("dimension 1 of x is 2, 4 is needed", |s| reshape(operand(s, K::KvStore, 0), [32, 4, 64, 1])),
        ("dimension 2 of cache is dynamic", |s| {
            let cache = operand(s, K::KvStore, 0);
            (cache.ne[2], cache.dynamic[2]) = (8, 1);
        }),
        ("page_size is 24, a power of two", |s| op(s, K::KvStore).int[0] = 24),
        ("page_size is 0,", |s| op(s, K::KvStore).int[0] = 0),
        ("page_size is -16,", |s| op(s, K::KvStore).int[0] = -16),
        ("64 cells are no whole number of pages of 128", |s| op(s, K::KvStore).int[0] = 128),
        ("the page table reaches 32 positions, KvLength may be 64", |s| op(s, K::KvStore).int[0] = 8),
        ("pages is F32", |s| retype(operand(s, K::KvStore, 2), D::F32)),
        ("dimension 1 of pages is dynamic", |s| {
            let pages = operand(s, K::KvStore, 2);
            (pages.ne[1], pages.dynamic[1]) = (8, 1);
        }),
        ("sequence is I32 [4], I32 [Tokens≤8]", |s| {
            let sequence = operand(s, K::KvStore, 3);
            (sequence.ne[0], sequence.dynamic[0]) = (4, 0);
        }),
        ("position is I32 [Outputs≤4], I32 [Tokens≤8]", |s| {
            let position = operand(s, K::KvStore, 4);
            (position.ne[0], position.dynamic[0]) = (4, 2);
        }),
        ("q is F16", |s| retype(operand(s, K::Attention, 1), D::F16)),
        ("v is I32, numbers are needed", |s| retype(operand(s, K::Attention, 3), D::I32)),
        ("dimension 0 of k is 16, 32 is needed", |s| reshape(operand(s, K::Attention, 2), [16, 2, 64, 1])),
        ("dimension 0 of out is 32, 16 is needed", |s| reshape(operand(s, K::Attention, 3), [16, 2, 64, 1])),
        ("dimension 1 of v is 1, 2 is needed", |s| reshape(operand(s, K::Attention, 3), [32, 1, 64, 1])),
        ("dimension 2 of v is 32, 64 is needed", |s| reshape(operand(s, K::Attention, 3), [32, 2, 32, 1])),
        ("4 heads are no multiple of 3 kv heads", |s| {
            reshape(operand(s, K::Attention, 2), [32, 3, 64, 1]);
            reshape(operand(s, K::Attention, 3), [32, 3, 64, 1]);
        }),
        ("sinks is F32 [3], F32 [4] is needed", |s| reshape(operand(s, K::Attention, 7), [3, 1, 1, 1])),
        ("softcap is -1", |s| op(s, K::Attention).float[1] = -1.0),
        ("scale is -1", |s| op(s, K::Attention).float[0] = -1.0),
        ("window is -1", |s| op(s, K::Attention).int[1] = -1),
        ("page_size is 3,", |s| op(s, K::Attention).int[0] = 3),
    ]);
}

#[test]
fn rules_of_elementwise_ops() {
    use StrataDType as D;
    use StrataOpKind as K;
    check(&[
        ("activation is 5, this ABI knows 0 to 4", |s| op(s, K::Glu).int[0] = 5),
        ("limit is 0, more than 0 is needed", |s| op(s, K::Glu).int[0] = StrataActivation::SwigluOai as i64),
        ("up is F32 [32, Tokens≤8]: the shapes must be equal", |s| {
            reshape(operand(s, K::Glu, 2), [32, 8, 1, 1]);
        }),
        ("dimension 0 of b is 32, 64 or 1 is needed", |s| reshape(operand(s, K::Add, 2), [32, 1, 1, 1])),
        ("a is F32 [64]: the shapes must be equal", |s| reshape(operand(s, K::Add, 1), [64, 1, 1, 1])),
        ("b is F16", |s| retype(operand(s, K::Mul, 2), D::F16)),
        ("x is F32 [32, Tokens≤8]: the shapes must be equal", |s| reshape(operand(s, K::Scale, 1), [32, 8, 1, 1])),
        ("function is 7, this ABI knows 0 to 6", |s| op(s, K::Unary).int[0] = 7),
        ("parameter is 0, more than 0 is needed", |s| op(s, K::Unary).float[0] = 0.0),
        ("x is I32", |s| retype(operand(s, K::Softmax, 1), D::I32)),
        ("out is Q8_0", |s| retype(operand(s, K::Copy, 0), D::Q8_0)),
        ("x is I32 [96, Outputs≤4], F32 or F16 or BF16", |s| retype(operand(s, K::Copy, 1), D::I32)),
        ("out is F16 [96], x is F32 [96, Outputs≤4]", |s| reshape(operand(s, K::Copy, 0), [96, 1, 1, 1])),
        ("eps is -1", |s| op(s, K::L2Norm).float[0] = -1.0),
        ("out is F32 [4], I32 [Outputs≤4] is needed", |s| {
            let out = operand(s, K::ArgMax, 0);
            (out.dtype, out.dynamic[0]) = (D::F32 as u32, 0);
        }),
        ("x is F16", |s| retype(operand(s, K::ArgMax, 1), D::F16)),
        ("dimension 0 of out is 96, 48 is needed", |s| reshape(operand(s, K::GatherRows, 1), [48, 8, 1, 1])),
        ("rows is I32 [Tokens≤8], I32 [Outputs≤4]", |s| {
            let rows = operand(s, K::GatherRows, 2);
            (rows.ne[0], rows.dynamic[0]) = (8, 1);
        }),
    ]);
}

#[test]
fn rules_of_experts() {
    use StrataDType as D;
    use StrataOpKind as K;
    check(&[
        ("ids is F32", |s| retype(operand(s, K::RouterTopK, 0), D::F32)),
        ("weights are F32 [1, Tokens≤8]", |s| reshape(operand(s, K::RouterTopK, 1), [1, 8, 1, 1])),
        ("dimension 1 of logits is 8, Tokens≤8 is needed", |s| operand(s, K::RouterTopK, 2).dynamic[1] = 0),
        ("9 of 8 experts", |s| {
            reshape(operand(s, K::RouterTopK, 0), [9, 8, 1, 1]);
            reshape(operand(s, K::RouterTopK, 1), [9, 8, 1, 1]);
        }),
        ("bias is F32 [4], F32 [8] is needed", |s| reshape(operand(s, K::RouterTopK, 3), [4, 1, 1, 1])),
        ("score is 4, this ABI knows 0 to 3", |s| op(s, K::RouterTopK).int[0] = 4),
        ("normalise is 2, this ABI knows 0 to 1", |s| op(s, K::RouterTopK).int[1] = 2),
        ("least_sum is -1", |s| op(s, K::RouterTopK).float[1] = -1.0),
        ("2 of 3 groups of 8 experts", |s| op(s, K::RouterTopK).int[2] = 3),
        ("5 of 4 groups", |s| op(s, K::RouterTopK).int[3] = 5),
        ("0 of 4 groups", |s| op(s, K::RouterTopK).int[3] = 0),
        ("1 of 8 groups of 8 experts, of which 2 are chosen", |s| {
            op(s, K::RouterTopK).int[2..4].copy_from_slice(&[8, 1]);
        }),
        ("2 of -4 groups", |s| op(s, K::RouterTopK).int[2] = -4),
        ("x is F16", |s| retype(operand(s, K::ExpertMatMul, 2), D::F16)),
        ("dimension 0 of x is 64, 32 is needed", |s| reshape(operand(s, K::ExpertMatMul, 1), [32, 96, 6, 1])),
        ("dimension 0 of out is 96, 48 is needed", |s| reshape(operand(s, K::ExpertMatMul, 1), [64, 48, 6, 1])),
        ("dimension 1 of x is 3, 2 or 1 is needed", |s| reshape(operand(s, K::ExpertMatMul, 2), [64, 3, 8, 1])),
        ("dimension 2 of x is 8, Tokens≤8 is needed", |s| operand(s, K::ExpertMatMul, 2).dynamic[2] = 0),
        ("dimension 0 of ids is 1, 2 is needed", |s| reshape(operand(s, K::ExpertMatMul, 3), [1, 8, 1, 1])),
        ("table is F32 [8], I32 is needed", |s| retype(operand(s, K::ExpertMatMul, 4), D::F32)),
        ("table is I32 [Tokens≤8], one fixed dimension", |s| operand(s, K::ExpertMatMul, 4).dynamic[0] = 1),
        ("dimension 0 of x is 48, 96 is needed", |s| reshape(operand(s, K::ExpertCombine, 1), [48, 2, 8, 1])),
        ("dimension 0 of weights is 2, 1 is needed", |s| reshape(operand(s, K::ExpertCombine, 1), [96, 1, 8, 1])),
        ("dimension 1 of weights is 8, Tokens≤8 is needed", |s| operand(s, K::ExpertCombine, 2).dynamic[1] = 0),
    ]);
}

#[test]
fn results_overlap_nothing_they_must_not() {
    use StrataOpKind as K;
    fn onto(s: &mut ProgramSpec, kind: StrataOpKind, slot: usize, other: usize) {
        let (buffer, offset) = {
            let other = operand(s, kind, other);
            (other.buffer, other.offset)
        };
        let moved = operand(s, kind, slot);
        (moved.buffer, moved.offset) = (buffer, offset);
    }
    check(&[
        ("result out overlaps ids", |s| onto(s, K::EmbeddingLookup, 0, 2)),
        ("result out overlaps x", |s| onto(s, K::MatMul, 0, 2)),
        ("result out overlaps w", |s| onto(s, K::MatMul, 0, 1)),
        ("result out overlaps q", |s| onto(s, K::Attention, 0, 1)),
        ("result cache overlaps x", |s| onto(s, K::KvStore, 0, 1)),
        ("result ids overlaps weights", |s| onto(s, K::RouterTopK, 0, 1)),
        ("result out overlaps x", |s| onto(s, K::Copy, 0, 1)),
        // In place means the very same view, not a shifted one.
        ("result out overlaps x", |s| operand(s, K::Softmax, 1).offset += 4),
        ("result out overlaps b", |s| onto(s, K::Add, 0, 2)),
        ("(RmsNorm): result tensor", |s| {
            let gamma = op(s, K::RmsNorm).operand[2] as usize;
            let (buffer, offset) = (s.tensors[gamma].buffer, s.tensors[gamma].offset);
            op(s, K::RmsNorm).operand[2] = STRATA_NO_OPERAND;
            let out = operand(s, K::RmsNorm, 0);
            (out.buffer, out.offset) = (buffer, offset);
        }),
    ]);
}

#[test]
fn parts_of_wider_rows_do_not_overlap() {
    let mut l = Layout::new();
    // Rows of q, k and v side by side, as a fused projection leaves them.
    let whole = l.x(&[f(96), T]);
    let at = l.builder.spec().tensors[whole.0 as usize].offset;
    let part = |l: &mut Layout, skip: u64| l.builder.view(StrataDType::F32, 0, at + skip * 4, &[f(32), T], &[96 * 4]);
    let (q, k, v) = (part(&mut l, 0), part(&mut l, 32), part(&mut l, 64));
    l.builder.add(q, k, v, 1.0);
    l.builder.mul(v, v, q);
    let straddling = part(&mut l, 48);
    let sizes = l.ends.to_vec();
    assert_eq!(rule_of(validate(l.builder.spec(), &sizes)), "accepted");
    l.builder.rms_norm(straddling, q, None, 0.0);
    assert_eq!(rule_of(validate(l.builder.spec(), &sizes)), "accepted");
    l.builder.rms_norm(straddling, k, None, 0.0);
    assert!(rule_of(validate(l.builder.spec(), &sizes)).ends_with("result out overlaps x"));
}

/// Overlap against the plain definition: the sets of bytes.
#[test]
fn overlap_agrees_with_sets_of_bytes() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    let (mut disjoint, mut spared) = (0, 0);
    for _ in 0..20_000 {
        let mut draw = || {
            let ne = [1 + below(4), 1 + below(3), 1 + below(3), 1];
            let inner = 4 * ne[0] + 4 * below(4);
            let nb = [4, inner, inner * ne[1] + 4 * below(5), 0];
            let tensor = StrataTensor {
                struct_size: size_of::<StrataTensor>() as u32,
                dtype: 0,
                buffer: 0,
                flags: 0,
                offset: 4 * below(20),
                ne,
                nb,
                dynamic: [0; 4],
            };
            let spec = ProgramSpec { tensors: vec![tensor], ..ProgramSpec::default() };
            View::check(&spec, 0, None).unwrap()
        };
        let (a, b) = (draw(), draw());
        let bytes = |view: &View| {
            let mut set = std::collections::BTreeSet::new();
            for i2 in 0..view.dims[2].ne {
                for i1 in 0..view.dims[1].ne {
                    let start = view.offset + i1 * view.nb[1] + i2 * view.nb[2];
                    set.extend(start..start + view.row);
                }
            }
            set
        };
        let share = !bytes(&a).is_disjoint(&bytes(&b));
        assert!(overlaps(&a, &b) || !share, "{a:?} {b:?}");
        assert_eq!(overlaps(&a, &b), overlaps(&b, &a));
        disjoint += u32::from(!share);
        spared += u32::from(!overlaps(&a, &b));
    }
    // It may be too careful about odd pairs, not about most.
    assert!(spared * 10 > disjoint * 7, "{spared} of {disjoint} disjoint pairs seen as such");
}

/// Whatever is in the structs, the validator answers and does not panic.
#[test]
fn noise_is_refused_without_a_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (clean, sizes) = sound();
    let mut accepted = 0;
    for _ in 0..30_000 {
        let mut spec = clean.clone();
        for _ in 0..=next() % 2 {
            let odd = [0, 1, 2, 3, 31, 255, 256, u64::MAX, u64::MAX - 255, 1 << 63, 1 << 32, next()];
            let value = odd[(next() % odd.len() as u64) as usize];
            let n = next();
            if n % 2 == 0 {
                let index = (next() % spec.tensors.len() as u64) as usize;
                let tensor = &mut spec.tensors[index];
                let k = (n >> 8) as usize % 4;
                match (n >> 16) % 7 {
                    0 => tensor.dtype = value as u32,
                    1 => tensor.buffer = value as u32,
                    2 => tensor.offset = value,
                    3 => tensor.ne[k] = value,
                    4 => tensor.nb[k] = value,
                    5 => tensor.dynamic[k] = value as u32,
                    _ => tensor.flags = value as u32,
                }
            } else {
                let index = (next() % spec.ops.len() as u64) as usize;
                let op = &mut spec.ops[index];
                match (n >> 16) % 4 {
                    0 => op.kind = value as u32,
                    1 => op.operand[(n >> 8) as usize % 12] = value as u32,
                    2 => op.float[(n >> 8) as usize % 8] = f32::from_bits(value as u32),
                    _ => op.int[(n >> 8) as usize % 8] = value as i64,
                }
            }
        }
        let whole = validate(&spec, &sizes).is_ok();
        let by_op = (0..spec.ops.len()).all(|index| validate_op(&spec, index).is_ok());
        // The whole check is never weaker than the check of each op.
        assert!(by_op || !whole);
        accepted += u32::from(whole);
    }
    assert!(accepted > 100 && accepted < 20_000, "{accepted}");
}

#[test]
fn imported_buffers_are_not_written() {
    let (spec, _) = sound();
    assert!(validate_read_only(&spec, |buffer| buffer == 1).is_ok());
    let error = validate_read_only(&spec, |buffer| buffer == 0).unwrap_err().to_string();
    assert!(error.contains("op 0 (EmbeddingLookup): a result lies in buffer 0"), "{error}");
}
