//! Ops that are done by one kernel: the residual sum, its norm and the rounding of the result; and
//! head norms, rotation and the cache. Each pattern is one that decoders have in every layer.

use strata_backend_sdk::Result;
use strata_backend_sdk::abi::StrataOpKind;

use super::ops::{page_bits, type_number};
use super::{Emit, Launch, PlanOp, Planner, Rounded, Rounding};
use crate::driver::Driver;
use crate::params::Params;
use crate::view::View;

/// Longest row that the fused norm keeps in registers.
const MOST_NORM: u64 = 8192;
/// Longest head of the fused kernel.
const MOST_HEAD: u64 = 512;
/// How far ahead the products that use a norm stand.
const LOOK_AHEAD: usize = 12;

impl<D: Driver> Planner<'_, D> {
    /// Plans a fused step that begins at `index`, if there is one.
    pub(super) fn fused(&mut self, index: usize) -> Result<bool> {
        match self.ops[index].kind {
            StrataOpKind::Add => {
                let next =
                    self.ops.get(index + 1).filter(|op| op.kind == StrataOpKind::RmsNorm && !self.done[index + 1]);
                let Some(norm) = next else { return Ok(false) };
                let norm = norm.index;
                if self.sums_rows(index, norm) { self.norm(Some(index), norm) } else { Ok(false) }
            }
            StrataOpKind::RmsNorm => Ok(self.norm(None, index)? || self.heads(index)?),
            StrataOpKind::Rope => self.heads(index),
            _ => Ok(false),
        }
    }

    /// Whether the sum at `add` is what the norm reads, row by row and without broadcasting.
    fn sums_rows(&self, add: usize, norm: usize) -> bool {
        let op = &self.ops[add];
        let (Some(out), Some(a), Some(b)) = (op.optional(0), op.optional(1), op.optional(2)) else { return false };
        self.ops[norm].optional(1) == Some(out)
            && self.ops[norm].optional(0).is_some_and(|result| !result.overlaps(out))
            && op.raw.float[0].to_bits() == 1.0_f32.to_bits()
            && a.ne == out.ne
            && b.ne == out.ne
            && [out, a, b].into_iter().all(aligned_rows)
    }

    /// norm.cu, `norm_q8`: wanted when a product rounds the result.
    fn norm(&mut self, add: Option<usize>, norm: usize) -> Result<bool> {
        let op = &self.ops[norm];
        let (out, x, w) = (op.view(0)?.clone(), op.view(1)?.clone(), op.optional(2).cloned());
        let Some(rounding) = self.rounded_next(norm, &out) else { return Ok(false) };
        let unit = if rounding == Rounding::Halves { 256 } else { 32 };
        let fits = x.ne[0].is_multiple_of(unit) && x.ne[0] <= MOST_NORM && aligned_rows(&x) && aligned_rows(&out);
        if !fits || out == x && add.is_some() || !self.kernels.has("norm_q8_1024") {
            return Ok(false);
        }
        let (name, block) = norm_kernel(rounding, x.ne[0]);
        let function = self.kernel(name)?.function;
        let eps = op.raw.float[0];
        let added = match add {
            Some(add) => Some((self.ops[add].view(1)?.clone(), self.ops[add].view(2)?.clone())),
            None => None,
        };
        let gamma = w.map_or(0, |w| w.address);
        let does: Vec<usize> = add.into_iter().chain([norm]).collect();
        let Rounded { bytes, scales } = self.next_rounded();
        let (rounded_of, can_group) = (out.clone(), self.groups());
        let emit: Emit = Box::new(move |run, launches| {
            let [n, t, ..] = x.extents(run);
            let (from, add, add_step) = match &added {
                Some((a, b)) => (a, b.address, b.step(1)),
                None => (&x, 0, 0),
            };
            let params = Params::new().ptr(from.address).ptr(add).ptr(x.address).ptr(gamma).ptr(out.address);
            // norm.cu NormQ8Args, halves.cu NormHalvesArgs.
            let params = params.ptr(bytes);
            let params = if rounding == Rounding::Bytes { params.ptr(scales) } else { params };
            let params = params.i64(from.step(1)).i64(add_step).i64(x.step(1)).i64(out.step(1)).n(n);
            let params = if rounding == Rounding::Halves {
                params.n(t).f32(eps).i32(i64::from(super::halves::grouped(can_group, t))).done()
            } else {
                params.f32(eps).done()
            };
            launches.push(Launch { function, grid: [t as u32, 1, 1], block, shared: 0, params });
        });
        self.push(norm, &does, emit);
        self.mark_ready(&rounded_of, rounding);
        Ok(true)
    }

    /// What the first product that stands near and rounds `x` rounds it to.
    pub(super) fn rounded_next(&self, from: usize, x: &View) -> Option<Rounding> {
        let end = self.ops.len().min(from + 1 + LOOK_AHEAD);
        self.ops[from + 1..end].iter().filter(|op| op.activations().is_some_and(|y| y.same_rows(x))).find_map(|op| {
            let decode = if op.kind == StrataOpKind::MatMul { "mmv_FORMAT_t1" } else { "moev_FORMAT" };
            op.optional(1).and_then(|w| self.rounding(w, decode))
        })
    }

    /// The slot that `mark_ready` will name once the step that fills it is planned.
    pub(super) fn next_rounded(&self) -> Rounded {
        self.sizes.slot(self.workspace, self.next_slot)
    }

    pub(super) fn mark_ready(&mut self, x: &View, rounding: Rounding) {
        let _ = self.take_slot(x, rounding);
    }

    /// sequence.cu, `heads`: [norm q, norm k,] rope q, rope k, store k, store v, all in place.
    fn heads(&mut self, first: usize) -> Result<bool> {
        let norms = self.ops[first].kind == StrataOpKind::RmsNorm;
        let at = if norms { first + 2 } else { first };
        let Some(window) = self.ops.get(first..at + 4) else { return Ok(false) };
        if (first..at + 4).any(|index| self.done[index]) || !self.kernels.has("heads") {
            return Ok(false);
        }
        let Some(shape) = Heads::of(window, norms) else { return Ok(false) };
        let function = self.kernel("heads")?.function;
        let does: Vec<usize> = (first..at + 4).collect();
        let emit: Emit = Box::new(move |run, launches| launches.push(shape.launch(function, run)));
        self.push(at, &does, emit);
        Ok(true)
    }
}

/// The fused norm for rows of `n` numbers and its work-items.
fn norm_kernel(rounding: Rounding, n: u64) -> (&'static str, u32) {
    match (rounding, n) {
        (Rounding::Bytes, 0..=1024) => ("norm_q8_1024", 256),
        (Rounding::Bytes, 1025..=2048) => ("norm_q8_2048", 512),
        (Rounding::Bytes, _) => ("norm_q8_8192", 1024),
        (Rounding::Halves, 0..=1024) => ("norm_halves_1024", 128),
        (Rounding::Halves, 1025..=2048) => ("norm_halves_2048", 256),
        (Rounding::Halves, 2049..=4096) => ("norm_halves_4096", 512),
        (Rounding::Halves, _) => ("norm_halves_8192", 1024),
    }
}

/// Rows of floats, evenly spaced, at multiples of 16 bytes.
fn aligned_rows(view: &View) -> bool {
    view.ne[2] == 1 && view.ne[3] == 1 && view.address.is_multiple_of(16) && view.nb[1].is_multiple_of(16)
}

/// The operands of the pattern.
struct Heads {
    q: View,
    k: View,
    v: View,
    gammas: [u64; 2],
    eps: [f32; 2],
    table: View,
    rows: View,
    caches: [View; 2],
    pages: View,
    sequence: View,
    position: View,
    rotated: i64,
    style: i64,
    page_bits: i64,
}

impl Heads {
    fn of(ops: &[PlanOp], norms: bool) -> Option<Heads> {
        let (head, rest) = ops.split_at(if norms { 2 } else { 0 });
        let [rope_q, rope_k, store_k, store_v] = rest else { return None };
        let kinds = [StrataOpKind::Rope, StrataOpKind::Rope, StrataOpKind::KvStore, StrataOpKind::KvStore];
        if rest.iter().map(|op| op.kind).ne(kinds) || head.iter().any(|op| op.kind != StrataOpKind::RmsNorm) {
            return None;
        }
        let (q, k, v) = (rope_q.optional(0)?, rope_k.optional(0)?, store_v.optional(1)?);
        let in_place = |op: &PlanOp, view: &View| op.optional(0) == Some(view) && op.optional(1) == Some(view);
        let mut gammas = [0; 2];
        let mut eps = [0.0; 2];
        for (i, (op, view)) in head.iter().zip([q, k]).enumerate() {
            if !in_place(op, view) {
                return None;
            }
            gammas[i] = op.optional(2)?.address;
            eps[i] = op.raw.float[0];
        }
        let same = in_place(rope_q, q)
            && in_place(rope_k, k)
            && store_k.optional(1) == Some(k)
            && [2, 3].iter().all(|slot| rope_q.optional(*slot) == rope_k.optional(*slot))
            && rope_q.raw.int == rope_k.raw.int
            && [2, 3, 4].iter().all(|slot| store_k.optional(*slot) == store_v.optional(*slot))
            && store_k.raw.int == store_v.raw.int;
        let fits = q.ne[0] == k.ne[0] && v.ne[1] == k.ne[1] && q.ne[0] <= MOST_HEAD && v.ne[0] <= MOST_HEAD;
        let apart = !q.overlaps(k) && !q.overlaps(v) && !k.overlaps(v);
        (same && fits && apart).then_some(Heads {
            q: q.clone(),
            k: k.clone(),
            v: v.clone(),
            gammas,
            eps,
            table: rope_q.optional(2)?.clone(),
            rows: rope_q.optional(3)?.clone(),
            caches: [store_k.optional(0)?.clone(), store_v.optional(0)?.clone()],
            pages: store_k.optional(2)?.clone(),
            sequence: store_k.optional(3)?.clone(),
            position: store_k.optional(4)?.clone(),
            rotated: rope_q.raw.int[1],
            style: rope_q.raw.int[0],
            page_bits: page_bits(store_k.raw.int[0]),
        })
    }

    fn launch(&self, function: u64, run: &crate::view::Run) -> Launch {
        let [d, n_q, t, _] = self.q.extents(run);
        let n_kv = self.k.ne[1];
        let params = Params::new().ptr(self.q.address).ptr(self.k.address).ptr(self.v.address);
        let params = params.ptr(self.gammas[0]).ptr(self.gammas[1]).ptr(self.table.address).ptr(self.rows.address);
        let params = params.ptr(self.caches[0].address).ptr(self.caches[1].address).ptr(self.pages.address);
        let params = params.ptr(self.sequence.address).ptr(self.position.address);
        let views = [&self.q, &self.k, &self.v, &self.caches[0], &self.caches[1], &self.table];
        let params = views.into_iter().fold(params, |params, view| params.i64s(&view.nb[1..3])).i64(self.pages.nb[1]);
        let params = params.n(n_q).n(n_kv).n(d).n(self.v.ne[0]).i32(self.rotated).i32(self.style).i32(self.page_bits);
        let params = params.i32(type_number(&self.caches[0])).i32(type_number(&self.caches[1]));
        let params = params.f32(self.eps[0]).f32(self.eps[1]).done();
        let grid = [super::blocks(n_q + 2 * n_kv, 4), t as u32, 1];
        Launch { function, grid, block: 128, shared: 0, params }
    }
}
