//! Attention: the plain kernel for every cache, and the tensor core forms for an f16 cache. Both
//! forms have the same bits, so which one runs may depend on the run.

use strata_backend_sdk::abi::{StrataDType, StrataOpKind, StrataScalar};
use strata_backend_sdk::{ProgramView, Result};

use super::ops::{page_bits, type_number};
use super::{Emit, Launch, PlanOp, Planner, Rounded, Rounding, blocks};
use crate::driver::Driver;
use crate::params::Params;
use crate::view::{Run, View};

/// Positions that are a whole of their own.
const CHUNK: u64 = 64;
/// Most tokens of a step that is split over the context.
const MOST_SPLIT_TOKENS: u64 = 8;
/// Most workspace for partial results, bytes; longer contexts split fewer tokens.
const MOST_PARTIAL: u64 = 64 << 20;
/// Chunks that the last block of a row merges by itself; more have a kernel of their own.
const MOST_MERGED_CHUNKS: u64 = 16;
/// Dynamic shared memory that every kernel may have.
const USUAL_SHARED: u32 = 48 << 10;

/// Whether the tensor core forms take this op.
pub(super) fn takes_f16(precise: bool, [out, q, k, v]: [&View; 4], page_size: i64) -> bool {
    let width = q.ne[0];
    let aligned = |view: &View| {
        view.dtype == StrataDType::F16
            && view.nb[1].is_multiple_of(16)
            && view.nb[2].is_multiple_of(16)
            && view.address.is_multiple_of(16)
    };
    !precise
        && page_size >= CHUNK as i64
        && matches!(width, 64 | 128 | 256)
        && out.ne[0] == width
        && aligned(k)
        && aligned(v)
}

/// Bytes of the partial results of one token.
fn partial_bytes(heads: u64, width: u64, reach: u64) -> u64 {
    (heads * reach.div_ceil(CHUNK) * (width + 2) * 4).next_multiple_of(256)
}

fn split_tokens(heads: u64, width: u64, reach: u64, tokens: u64) -> u64 {
    (MOST_PARTIAL / partial_bytes(heads, width, reach)).clamp(1, MOST_SPLIT_TOKENS).min(tokens)
}

/// How far the op's attention can reach in any run.
fn reach(program_max: Option<i64>, pages: &View, page_size: i64) -> u64 {
    let cells = pages.ne[0] * u64::try_from(page_size).unwrap_or(1);
    let told = program_max.and_then(|max| u64::try_from(max).ok()).filter(|max| *max > 0);
    super::reach_class(told.unwrap_or(cells).min(cells) as i64) as u64
}

/// Workspace for partial results and for counters that an op of a program may need.
pub(super) fn workspace(program: &ProgramView<'_>, index: usize) -> Result<(u64, u64)> {
    if program.kind(index) != Some(StrataOpKind::Attention) || program.precise {
        return Ok((0, 0));
    }
    let shape = |slot: usize| program.operand(index, slot).map(View::shape).transpose();
    let (Some(q), Some(pages)) = (shape(1)?, shape(4)?) else { return Ok((0, 0)) };
    let max = program.scalar_max.get(StrataScalar::KvLength as usize).copied();
    let reach = reach(max, &pages, program.ops[index].int[0]);
    let tokens = split_tokens(q.ne[1], q.ne[0], reach, q.ne[2]);
    // At most one counter a query head and token.
    Ok((partial_bytes(q.ne[1], q.ne[0], reach) * tokens, (q.ne[1] * tokens * 4).next_multiple_of(256)))
}

/// attention_f16.cu
struct Tensor {
    views: [View; 7],
    sinks: u64,
    partial: u64,
    scale: f32,
    cap: f32,
    page_bits: i64,
    window: i64,
    /// Most tokens of the split form.
    split_tokens: u64,
    reach: u64,
    split: u64,
    merge: u64,
    tiled: u64,
    /// Counters of the split form that merges too.
    done: u64,
    /// Where the rounded result goes, what it is, and the kernel that rounds it when attention itself does not.
    rounded: Option<(Rounded, Rounding, u64)>,
    /// halves.rs
    can_group: bool,
}

impl Tensor {
    fn emit(&self, run: &Run, launches: &mut Vec<Launch>) {
        let [out, q, k, v, pages, ..] = &self.views;
        let [width, heads, t, _] = q.extents(run);
        let n_kv = k.ne[1].max(1);
        let share = heads / n_kv;
        let told = u64::try_from(run.scalars[StrataScalar::KvLength as usize]).unwrap_or(0);
        let reach = if told == 0 { self.reach } else { told.min(self.reach) };
        let n_chunks = reach.div_ceil(CHUNK);
        let split = t <= self.split_tokens;
        let merges = split && n_chunks <= MOST_MERGED_CHUNKS;
        // A block that merges rounds the heads that share a kv head: whole records of them, or it does not.
        let inside =
            |rounding: Rounding| merges && (rounding == Rounding::Bytes || (share * width).is_multiple_of(256));
        let (bytes, scales) = match self.rounded {
            Some((rounded, Rounding::Bytes, _)) if inside(Rounding::Bytes) => (rounded.bytes, rounded.scales),
            Some((rounded, Rounding::Halves, _)) if inside(Rounding::Halves) => (rounded.bytes, 0),
            _ => (0, 0),
        };
        let params = self.views.iter().fold(Params::new(), |params, view| params.ptr(view.address));
        let params = params.ptr(self.sinks).ptr(self.partial).ptr(self.done).ptr(bytes).ptr(scales);
        let params = [out, q, k, v].into_iter().fold(params, |params, view| params.i64s(&view.nb[1..3]));
        let params = params.i64(pages.nb[1]).n(heads).n(share).n(t).i32(self.page_bits).i32(self.window);
        let params = params.n(n_chunks).i32(i64::from(merges)).f32(self.scale).f32(self.cap).done();
        if split {
            let grid = [n_chunks as u32, n_kv as u32, t as u32 * blocks(share, 16)];
            launches.push(Launch { function: self.split, grid, block: 128, shared: 0, params: params.clone() });
            if !merges {
                let grid = [heads as u32, t as u32, 1];
                launches.push(Launch { function: self.merge, grid, block: width as u32, shared: 0, params });
            }
        } else {
            let shared = 2 * CHUNK as u32 * (2 * width as u32 + 16);
            let grid = [blocks(t * share, 64), n_kv as u32, 1];
            launches.push(Launch { function: self.tiled, grid, block: 128, shared, params });
        }
        let Some((rounded, rounding, function)) = self.rounded.filter(|(_, rounding, _)| !inside(*rounding)) else {
            return;
        };
        let k = heads * width;
        if rounding == Rounding::Halves {
            launches.push(super::halves::recording(function, rounded.bytes, out.address, [k, t], self.can_group));
        } else {
            // quantise.cu
            let params = Params::new().ptr(out.address).ptr(rounded.bytes).ptr(rounded.scales);
            let params = params.n(k).n(t).n(k).i32(0).done();
            launches.push(Launch { function, grid: [blocks(k, 1024), t as u32, 1], block: 256, shared: 0, params });
        }
    }
}

impl<D: Driver> Planner<'_, D> {
    pub(super) fn attention(&mut self, index: usize) -> Result<()> {
        let (emit, rounded) = self.attention_of(&self.ops[index])?;
        self.push(index, &[index], emit);
        if let Some((x, rounding)) = rounded {
            self.mark_ready(&x, rounding);
        }
        Ok(())
    }

    /// The kernels, and the activations that they round for the product behind.
    fn attention_of(&self, op: &PlanOp) -> Result<(Emit, Option<(View, Rounding)>)> {
        let (out, q, k, v) = (op.view(0)?, op.view(1)?, op.view(2)?, op.view(3)?);
        let width = q.ne[0];
        let has = self.kernels.has(&format!("attention_split_{width}"));
        if has && takes_f16(self.precise, [out, q, k, v], op.raw.int[0]) {
            return self.tensor_attention(op);
        }
        Ok((self.plain_attention(op)?, None))
    }

    /// The result of op `index` as the product behind reads it, if that rounds it.
    fn rounded_behind(&self, index: usize, out: &View) -> Option<(View, Rounding)> {
        let next = self.ops.get(index + 1)?;
        let x = next.activations().filter(|x| x.dtype == StrataDType::F32)?;
        let same = x.address == out.address && x.span() == out.span() && x.is_dense() && out.is_dense();
        let rounding = self.rounded_next(index, x).filter(|_| same && x.ne[0] == out.ne[0] * out.ne[1])?;
        Some((x.clone(), rounding))
    }

    fn tensor_attention(&self, op: &PlanOp) -> Result<(Emit, Option<(View, Rounding)>)> {
        let views = [op.view(0)?, op.view(1)?, op.view(2)?, op.view(3)?, op.view(4)?, op.view(5)?, op.view(6)?];
        let width = views[1].ne[0];
        let reach = reach(self.scalar_max.get(StrataScalar::KvLength as usize).copied(), views[4], op.raw.int[0]);
        let kernel = |form: &str| Ok(self.kernel(&format!("attention_{form}_{width}"))?.function);
        let tiled = kernel("tiled")?;
        let shared = 2 * CHUNK as u32 * (2 * width as u32 + 16);
        if shared > USUAL_SHARED {
            let allowed = self.core.driver.allow_shared(tiled, shared);
            allowed.map_err(|error| self.core.failure("asking for shared memory for Attention", &error))?;
        }
        let behind = self.rounded_behind(op.index, views[0]);
        let tensor = Tensor {
            sinks: op.optional(7).map_or(0, |sinks| sinks.address),
            partial: self.sizes.partial_at(self.workspace),
            scale: op.raw.float[0],
            cap: op.raw.float[1],
            page_bits: page_bits(op.raw.int[0]),
            window: op.raw.int[1],
            split_tokens: split_tokens(views[1].ne[1], width, reach, views[1].ne[2]),
            reach,
            split: kernel("split")?,
            merge: kernel("merge")?,
            tiled,
            done: self.sizes.done_at(self.workspace),
            can_group: self.groups(),
            rounded: match &behind {
                Some((_, rounding)) => {
                    let name = if *rounding == Rounding::Halves { "halves_round" } else { "quantise_q8" };
                    Some((self.next_rounded(), *rounding, self.kernel(name)?.function))
                }
                None => None,
            },
            views: views.map(View::clone),
        };
        Ok((Box::new(move |run, launches| tensor.emit(run, launches)), behind))
    }

    /// attention.cu
    fn plain_attention(&self, op: &PlanOp) -> Result<Emit> {
        let (out, q, k, v) = (op.view(0)?.clone(), op.view(1)?.clone(), op.view(2)?.clone(), op.view(3)?.clone());
        let (pages, sequence, position) = (op.view(4)?.clone(), op.view(5)?.clone(), op.view(6)?.clone());
        let sinks = op.optional(7).map_or(0, |sinks| sinks.address);
        let width = [64, 128, 256, 512].into_iter().find(|width| *width >= q.ne[0].max(out.ne[0])).unwrap_or(512);
        // attention_dot.cu: the same arguments, for what the tensor core forms would take too; pages of any size.
        let halves = format!("attention_dot_{width}");
        let takes = self.kernels.has(&halves) && takes_f16(self.precise, [&out, &q, &k, &v], CHUNK as i64);
        let name = if takes { halves } else { format!("attention_{width}") };
        let function = self.kernel(&name)?.function;
        let [scale, cap, ..] = op.raw.float;
        let (page_bits, window) = (page_bits(op.raw.int[0]), op.raw.int[1]);
        Ok(Box::new(move |run, launches| {
            let [d, heads, t, _] = q.extents(run);
            let params = [&out, &q, &k, &v, &pages, &sequence, &position]
                .into_iter()
                .fold(Params::new(), |params, view| params.ptr(view.address))
                .ptr(sinks);
            let params = [&out, &q, &k, &v].into_iter().fold(params, |params, view| params.i64s(&view.nb[1..3]));
            let params = params.i64(pages.nb[1]).n(heads / k.ne[1].max(1)).n(d).n(out.ne[0]);
            let params = params.i32(page_bits).i32(window).i32(type_number(&k)).i32(type_number(&v));
            let params = params.f32(scale).f32(cap).done();
            launches.push(Launch { function, grid: [heads as u32, t as u32, 1], block: 128, shared: 0, params });
        }))
    }
}
