//! Single ops: everything but products, one kernel each. The order of the argument builder's calls
//! is that of the struct in the `.cu` file named beside it.

use strata_backend_sdk::abi::{StrataDType, StrataOpKind};
use strata_backend_sdk::{Failure, Result};

use super::{Emit, Launch, PlanOp, Planner, blocks, format_name};
use crate::driver::Driver;
use crate::params::Params;
use crate::view::{Run, View};

/// Rows that the grid's second dimension can hold; kernels walk the rest.
const MOST_ROWS: u64 = 65_535;

impl<D: Driver> Planner<'_, D> {
    pub(super) fn single(&self, index: usize) -> Result<Emit> {
        let op = &self.ops[index];
        match op.kind {
            StrataOpKind::EmbeddingLookup => self.embedding(op),
            StrataOpKind::RmsNorm | StrataOpKind::L2Norm | StrataOpKind::Softmax => self.rows(op),
            StrataOpKind::Add | StrataOpKind::Mul | StrataOpKind::Glu => self.binary(op),
            StrataOpKind::Scale | StrataOpKind::Unary => self.unary(op),
            StrataOpKind::Copy => self.copy(op),
            StrataOpKind::Rope => self.rope(op),
            StrataOpKind::KvStore => self.kv_store(op),
            StrataOpKind::RouterTopK => self.router(op),
            StrataOpKind::ExpertCombine => self.combine(op),
            StrataOpKind::GatherRows => self.gather(op),
            StrataOpKind::ArgMax => self.arg_max(op),
            other => Err(Failure::internal(format!("{other:?} passed the check"))),
        }
    }

    /// embed.cu
    fn embedding(&self, op: &PlanOp) -> Result<Emit> {
        let (out, table, ids) = (op.view(0)?.clone(), op.view(1)?.clone(), op.view(2)?.clone());
        let function = self.kernel(&format!("embed_{}", format_name(table.dtype)))?.function;
        let scale = op.raw.float[0];
        Ok(Box::new(move |run, launches| {
            let [h, t, ..] = out.extents(run);
            let params = Params::new().ptr(table.address).ptr(ids.address).ptr(out.address);
            let params = params.i64(table.nb[1]).n(h).n(t).f32(scale).n(out.step(1)).done();
            launches.push(Launch { function, grid: [blocks(h, 8192), t as u32, 1], block: 128, shared: 0, params });
        }))
    }

    /// norm.cu
    fn rows(&self, op: &PlanOp) -> Result<Emit> {
        let (out, x, w) = (op.view(0)?.clone(), op.view(1)?.clone(), op.optional(2).cloned());
        let function = self.kernel("rows")?.function;
        let which = match op.kind {
            StrataOpKind::RmsNorm => 0,
            StrataOpKind::L2Norm => 1,
            _ => 2,
        };
        let w = w.filter(|_| which == 0).map_or(0, |w| w.address);
        let f0 = op.raw.float[0];
        Ok(Box::new(move |run, launches| {
            let ne = x.extents(run);
            let params = Params::new().ptr(x.address).ptr(out.address).ptr(w).i64s(&x.nb[1..]).i64s(&out.nb[1..]);
            let params = ne.iter().fold(params, |params, n| params.n(*n)).i32(which).f32(f0).done();
            let block = if ne[0] <= 256 { 32 } else { 256 };
            launches.push(Launch { function, grid: [(ne[1] * ne[2] * ne[3]) as u32, 1, 1], block, shared: 0, params });
        }))
    }

    /// elementwise.cu
    fn binary(&self, op: &PlanOp) -> Result<Emit> {
        let (out, a, b) = (op.view(0)?.clone(), op.view(1)?.clone(), op.view(2)?.clone());
        let function = self.kernel("binary")?.function;
        let which = match op.kind {
            StrataOpKind::Add => 0,
            StrataOpKind::Mul => 1,
            _ => 2 + op.raw.int[0],
        };
        let floats = [op.raw.float[0], op.raw.float[1]];
        Ok(Box::new(move |run, launches| {
            let shape = Elements { out: &out, a: &a, b: Some(&b), ne: out.extents(run), which, floats };
            launches.push(shape.launch(function));
        }))
    }

    fn unary(&self, op: &PlanOp) -> Result<Emit> {
        let (out, a) = (op.view(0)?.clone(), op.view(1)?.clone());
        let function = self.kernel("unary")?.function;
        let which = if op.kind == StrataOpKind::Scale { 0 } else { 1 + op.raw.int[0] };
        let floats = [op.raw.float[0], op.raw.float[1]];
        Ok(Box::new(move |run, launches| {
            let shape = Elements { out: &out, a: &a, b: None, ne: out.extents(run), which, floats };
            launches.push(shape.launch(function));
        }))
    }

    fn copy(&self, op: &PlanOp) -> Result<Emit> {
        self.copying(op.view(0)?.clone(), op.view(1)?.clone())
    }

    /// A conversion between plain formats.
    pub(super) fn copying(&self, out: View, a: View) -> Result<Emit> {
        let function = self.kernel("copy")?.function;
        Ok(Box::new(move |run, launches| {
            let shape = Elements { out: &out, a: &a, b: None, ne: out.extents(run), which: 0, floats: [0.0; 2] };
            launches.push(shape.launch(function));
        }))
    }

    /// sequence.cu
    fn rope(&self, op: &PlanOp) -> Result<Emit> {
        let (out, x, table, rows) =
            (op.view(0)?.clone(), op.view(1)?.clone(), op.view(2)?.clone(), op.view(3)?.clone());
        let function = self.kernel("rope")?.function;
        let (style, rotated) = (op.raw.int[0], op.raw.int[1]);
        Ok(Box::new(move |run, launches| {
            let [d, heads, t, _] = x.extents(run);
            let params = Params::new().ptr(x.address).ptr(out.address).ptr(table.address).ptr(rows.address);
            let params = params.i64s(&x.nb[1..3]).i64s(&out.nb[1..3]).i64s(&table.nb[1..3]);
            let params = params.n(d).i32(rotated).i32(style).done();
            launches.push(Launch { function, grid: [heads as u32, t as u32, 1], block: 64, shared: 0, params });
        }))
    }

    fn kv_store(&self, op: &PlanOp) -> Result<Emit> {
        let (cache, x, pages) = (op.view(0)?.clone(), op.view(1)?.clone(), op.view(2)?.clone());
        let (sequence, position) = (op.view(3)?.clone(), op.view(4)?.clone());
        let function = self.kernel("kv_store")?.function;
        let page_bits = page_bits(op.raw.int[0]);
        Ok(Box::new(move |run, launches| {
            let [d, heads, t, _] = x.extents(run);
            let params = Params::new().ptr(cache.address).ptr(x.address).ptr(pages.address);
            let params = params.ptr(sequence.address).ptr(position.address);
            let params = params.i64s(&cache.nb[1..3]).i64s(&x.nb[1..3]).i64(pages.nb[1]);
            let params = params.n(d).i32(page_bits).i32(type_number(&cache)).done();
            launches.push(Launch { function, grid: [heads as u32, t as u32, 1], block: 64, shared: 0, params });
        }))
    }

    /// route.cu
    fn router(&self, op: &PlanOp) -> Result<Emit> {
        let (ids, weights, logits) = (op.view(0)?.clone(), op.view(1)?.clone(), op.view(2)?.clone());
        let bias = op.optional(3).map_or(0, |bias| bias.address);
        let function = self.kernel("router")?.function;
        let ([factor, least, ..], [score, normalise, groups, kept, ..]) = (op.raw.float, op.raw.int);
        Ok(Box::new(move |run, launches| {
            let [n, t, ..] = logits.extents(run);
            let params = Params::new().ptr(ids.address).ptr(weights.address).ptr(logits.address).ptr(bias);
            let params = params.i64(ids.nb[1]).i64(weights.nb[1]).i64(logits.nb[1]);
            let params = params.n(n).n(ids.ne[0]).i32(score).i32(normalise).i32(groups).i32(kept);
            let params = params.f32(factor).f32(least).done();
            launches.push(Launch { function, grid: [t as u32, 1, 1], block: 32, shared: 0, params });
        }))
    }

    fn combine(&self, op: &PlanOp) -> Result<Emit> {
        let (out, x, weights) = (op.view(0)?.clone(), op.view(1)?.clone(), op.view(2)?.clone());
        let function = self.kernel("combine")?.function;
        Ok(Box::new(move |run, launches| launches.push(combining(function, &out, &x, &weights, run))))
    }

    fn gather(&self, op: &PlanOp) -> Result<Emit> {
        let (out, x, rows) = (op.view(0)?.clone(), op.view(1)?.clone(), op.view(2)?.clone());
        let function = self.kernel("gather")?.function;
        Ok(Box::new(move |run, launches| {
            let [n, o, ..] = out.extents(run);
            let params = Params::new().ptr(out.address).ptr(x.address).ptr(rows.address);
            let params = params.i64(out.nb[1]).i64(x.nb[1]).n(n).done();
            launches.push(Launch { function, grid: [blocks(n, 256), o as u32, 1], block: 256, shared: 0, params });
        }))
    }

    /// norm.cu
    fn arg_max(&self, op: &PlanOp) -> Result<Emit> {
        let (out, x) = (op.view(0)?.clone(), op.view(1)?.clone());
        let function = self.kernel("arg_max")?.function;
        Ok(Box::new(move |run, launches| {
            let [n, t, ..] = x.extents(run);
            let params = Params::new().ptr(x.address).ptr(out.address).i64(x.step(1)).n(n).n(1).done();
            launches.push(Launch { function, grid: [t as u32, 1, 1], block: 1024, shared: 0, params });
        }))
    }
}

/// route.cu, `combine`.
pub(super) fn combining(function: u64, out: &View, x: &View, weights: &View, run: &Run) -> Launch {
    let [n, k, t, _] = x.extents(run);
    let params = Params::new().ptr(out.address).ptr(x.address).ptr(weights.address).ptr(0);
    let params = params.i64(out.nb[1]).i64s(&x.nb[1..3]).i64(weights.nb[1]).i64(0).n(n).n(k).done();
    Launch { function, grid: [blocks(n, 256), t as u32, 1], block: 256, shared: 0, params }
}

/// Operands of an elementwise kernel.
pub(super) struct Elements<'a> {
    pub(super) out: &'a View,
    pub(super) a: &'a View,
    pub(super) b: Option<&'a View>,
    pub(super) ne: [u64; 4],
    /// As the kernel numbers them.
    pub(super) which: i64,
    pub(super) floats: [f32; 2],
}

impl Elements<'_> {
    pub(super) fn launch(&self, function: u64) -> Launch {
        let b = self.b.unwrap_or(self.a);
        // A dimension that b has once is walked in place.
        let b_nb: [u64; 3] = std::array::from_fn(|i| if b.ne[i + 1] == 1 { 0 } else { b.nb[i + 1] });
        let params = Params::new().ptr(self.out.address).ptr(self.a.address).ptr(b.address);
        let params = params.i64s(&self.out.nb[1..]).i64s(&self.a.nb[1..]).i64s(&b_nb);
        let params = self.ne.iter().fold(params, |params, n| params.n(*n));
        let params = params.i32(i64::from(b.ne[0] != 1)).i32(self.which);
        let params = params.i32(type_number(self.a)).i32(type_number(self.out));
        let params = params.f32(self.floats[0]).f32(self.floats[1]).done();
        let rows = self.ne[1] * self.ne[2] * self.ne[3];
        let grid = [blocks(self.ne[0], 256), rows.min(MOST_ROWS) as u32, 1];
        Launch { function, grid, block: 256, shared: 0, params }
    }
}

/// How kernels name plain formats.
pub(super) fn type_number(view: &View) -> i64 {
    match view.dtype {
        StrataDType::F16 => 1,
        StrataDType::BF16 => 30,
        _ => 0,
    }
}

/// The page size is a power of two.
pub(super) fn page_bits(page_size: i64) -> i64 {
    i64::from(page_size.max(1).trailing_zeros())
}
