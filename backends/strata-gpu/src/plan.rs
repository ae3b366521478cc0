//! From ops to steps: which kernels, in which order, what shares a launch. A step turns the extents
//! of a run into launches; everything else is decided once.
//!
//! Fusing never changes a result's bits: a fused kernel rounds where the single ones do. What may
//! move past what is decided by the bytes that ops read and write, as docs/ABI.md demands.

mod attention;
mod fuse;
mod halves;
mod ops;
mod product;

use std::sync::Arc;

use strata_backend_sdk::abi::{STRATA_MAX_OPERANDS, StrataDType, StrataOp, StrataOpKind};
use strata_backend_sdk::{Failure, ProgramView, Result};

use crate::driver::Driver;
use crate::kernels::{Kernel, KernelTable};
use crate::memory::{Buffer, Core};
use crate::view::{Run, View};

/// Places for rounded activations, used in turn.
const N_SLOTS: usize = 3;

/// A launch of a run.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) function: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: u32,
    pub(crate) shared: u32,
    pub(crate) params: Vec<u8>,
}

type Emit = Box<dyn Fn(&Run, &mut Vec<Launch>) + Send + Sync>;

/// One or a few launches and the op that they are for.
pub(crate) struct Step {
    pub(crate) op: usize,
    pub(crate) emit: Emit,
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Step").field("op", &self.op).finish_non_exhaustive()
    }
}

/// The name in kernels' names: `q4_k`.
pub(crate) fn format_name(dtype: StrataDType) -> String {
    dtype.name().to_ascii_lowercase()
}

/// How far attention reaches, in classes: runs of one class have the same launches.
pub(crate) fn reach_class(kv_length: i64) -> i64 {
    let reach = u64::try_from(kv_length).unwrap_or(0).max(1);
    reach.next_power_of_two().max(512) as i64
}

/// Workspace that a program needs, bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sizes {
    /// Of one slot for rounded activations: the bytes, then their scales.
    bytes_of_slot: u64,
    scales_of_slot: u64,
    /// Activations widened from F16.
    widened: u64,
    /// Slots by expert: where each expert's begin, and the slots.
    offsets: u64,
    sorted: u64,
    /// Partial results of attention, and counters of who is done.
    partial: u64,
    done: u64,
}

impl Sizes {
    pub(crate) fn of(program: &ProgramView<'_>, kernels: &KernelTable) -> Result<Sizes> {
        let mut sizes = Sizes::default();
        for index in 0..program.ops.len() {
            let Some(kind) = program.kind(index) else { continue };
            let (partial, done) = attention::workspace(program, index)?;
            sizes.partial = sizes.partial.max(partial);
            sizes.done = sizes.done.max(done);
            if !matches!(kind, StrataOpKind::MatMul | StrataOpKind::ExpertMatMul) {
                continue;
            }
            let shape = |slot: usize| {
                let tensor = program.operand(index, slot);
                View::shape(tensor.ok_or_else(|| Failure::host_bug("a product without an operand"))?)
            };
            let (w, x) = (shape(1)?, shape(2)?);
            let rows = x.ne[1] * x.ne[2];
            let numbers = rows.saturating_mul(w.ne[0]);
            if w.dtype.is_quantised() && !program.precise {
                sizes.bytes_of_slot = sizes.bytes_of_slot.max(numbers.next_multiple_of(256));
                sizes.scales_of_slot = sizes.scales_of_slot.max((numbers / 4).next_multiple_of(256));
            }
            let records = !program.precise && halves::takes(&w, kernels);
            if records {
                // Eight rows as records are more than as a group.
                let bytes = (rows.next_multiple_of(8) * w.ne[0].div_ceil(256)).saturating_mul(halves::RECORD_BYTES);
                let slot = bytes.next_multiple_of(256).saturating_sub(sizes.scales_of_slot);
                sizes.bytes_of_slot = sizes.bytes_of_slot.max(slot);
            }
            if x.dtype != StrataDType::F32 || !x.evenly_spaced() || records && !x.aligned() {
                sizes.widened = sizes.widened.max((numbers * 4).next_multiple_of(256));
            }
            if kind == StrataOpKind::ExpertMatMul {
                let ids = shape(3)?;
                let n_experts = w.ne[2].max(program.operand(index, 4).map_or(0, |table| table.ne[0]));
                sizes.offsets = sizes.offsets.max(((n_experts + 1) * 4).next_multiple_of(256));
                sizes.sorted = sizes.sorted.max((ids.ne[0] * ids.ne[1] * 4).next_multiple_of(256));
            }
        }
        Ok(sizes)
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.bytes_of_slot + self.scales_of_slot) * N_SLOTS as u64
            + self.widened
            + self.offsets
            + self.sorted
            + self.partial
            + self.done
    }

    fn widened_at(&self, base: u64) -> u64 {
        base + (self.bytes_of_slot + self.scales_of_slot) * N_SLOTS as u64
    }

    /// Offsets and slots.
    fn sorted_at(&self, base: u64) -> (u64, u64) {
        let offsets = self.widened_at(base) + self.widened;
        (offsets, offsets + self.offsets)
    }

    fn partial_at(&self, base: u64) -> u64 {
        base + (self.bytes_of_slot + self.scales_of_slot) * N_SLOTS as u64 + self.widened + self.offsets + self.sorted
    }

    /// Counters, which are zero between launches.
    pub(crate) fn done_at(&self, base: u64) -> u64 {
        self.partial_at(base) + self.partial
    }

    pub(crate) fn done_bytes(&self) -> u64 {
        self.done
    }

    fn slot(&self, base: u64, slot: usize) -> Rounded {
        let at = base + (self.bytes_of_slot + self.scales_of_slot) * slot as u64;
        Rounded { bytes: at, scales: at + self.bytes_of_slot }
    }
}

/// Rounded activations, one of two kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rounded {
    /// Signed bytes, or records of halves.
    pub(crate) bytes: u64,
    /// A scale per 32 bytes; unused beside records.
    pub(crate) scales: u64,
}

/// What products round their activations to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// Signed bytes with a scale per 32: `quantise.cu`.
    Bytes,
    /// Records of 256 halves: `halves.h`.
    Halves,
}

/// An op with its operands on the card.
#[derive(Debug)]
pub(crate) struct PlanOp {
    pub(crate) index: usize,
    pub(crate) kind: StrataOpKind,
    pub(crate) raw: StrataOp,
    views: [Option<View>; STRATA_MAX_OPERANDS],
}

impl PlanOp {
    pub(crate) fn optional(&self, slot: usize) -> Option<&View> {
        self.views.get(slot).and_then(Option::as_ref)
    }

    pub(crate) fn view(&self, slot: usize) -> Result<&View> {
        self.optional(slot)
            .ok_or_else(|| Failure::host_bug(format_args!("{:?} without an operand in slot {slot}", self.kind)))
    }

    fn n_results(&self) -> usize {
        if self.kind == StrataOpKind::RouterTopK { 2 } else { 1 }
    }

    pub(crate) fn results(&self) -> impl Iterator<Item = &View> {
        self.views.iter().take(self.n_results()).flatten()
    }

    pub(crate) fn operands(&self) -> impl Iterator<Item = &View> {
        self.views.iter().skip(self.n_results()).flatten()
    }

    /// Whether the two may change places.
    fn independent(&self, other: &PlanOp) -> bool {
        let writes_into = |a: &PlanOp, b: &PlanOp| {
            a.results().any(|result| b.views.iter().flatten().any(|operand| result.overlaps(operand)))
        };
        !writes_into(self, other) && !writes_into(other, self)
    }
}

pub(crate) struct Planner<'p, D: Driver> {
    core: &'p Core<D>,
    kernels: &'p KernelTable,
    precise: bool,
    scalar_max: Vec<i64>,
    ops: Vec<PlanOp>,
    done: Vec<bool>,
    sizes: &'p Sizes,
    workspace: u64,
    steps: Vec<Step>,
    /// Rounded activations that are in a slot now.
    ready: [Option<(View, Rounding)>; N_SLOTS],
    next_slot: usize,
    /// Which choices of experts the sorted slots in the workspace are of.
    sorted: Option<(View, Option<(u64, u64)>)>,
}

/// Plans a program over its buffers.
pub(crate) fn plan<D: Driver>(
    core: &Core<D>,
    kernels: &KernelTable,
    program: &ProgramView<'_>,
    buffers: &[Arc<Buffer<D>>],
    sizes: &Sizes,
    workspace: u64,
) -> Result<Vec<Step>> {
    let views: Vec<View> =
        program.tensors.iter().map(|tensor| View::new(tensor, buffers)).collect::<Result<Vec<View>>>()?;
    let op = |(index, raw): (usize, &StrataOp)| {
        let kind = StrataOpKind::from_number(raw.kind).ok_or_else(|| Failure::internal("an op that was checked"))?;
        let views = std::array::from_fn(|slot| views.get(raw.operand[slot] as usize).cloned());
        Ok(PlanOp { index, kind, raw: *raw, views })
    };
    let ops = program.ops.iter().enumerate().map(op).collect::<Result<Vec<PlanOp>>>()?;
    let mut planner = Planner {
        core,
        kernels,
        precise: program.precise,
        scalar_max: program.scalar_max.clone(),
        done: vec![false; ops.len()],
        ops,
        sizes,
        workspace,
        steps: Vec::new(),
        ready: [const { None }; N_SLOTS],
        next_slot: 0,
        sorted: None,
    };
    for index in 0..planner.ops.len() {
        if !planner.done[index] {
            planner.op(index)?;
        }
    }
    Ok(planner.steps)
}

impl<D: Driver> Planner<'_, D> {
    fn op(&mut self, index: usize) -> Result<()> {
        if self.fused(index)? {
            return Ok(());
        }
        match self.ops[index].kind {
            StrataOpKind::MatMul => self.products(index),
            StrataOpKind::ExpertMatMul => self.expert_products(index),
            StrataOpKind::Attention => self.attention(index),
            _ => {
                let emit = self.single(index)?;
                self.push(index, &[index], emit);
                Ok(())
            }
        }
    }

    /// Adds a step that does these ops.
    fn push(&mut self, op: usize, does: &[usize], emit: Emit) {
        for index in does {
            self.done[*index] = true;
            let results: Vec<View> = self.ops[*index].results().cloned().collect();
            for ready in &mut self.ready {
                if ready.as_ref().is_some_and(|(x, _)| results.iter().any(|result| result.overlaps(x))) {
                    *ready = None;
                }
            }
            if self.sorted.as_ref().is_some_and(|(ids, _)| results.iter().any(|result| result.overlaps(ids))) {
                self.sorted = None;
            }
        }
        self.steps.push(Step { op, emit });
    }

    fn kernel(&self, name: &str) -> Result<Kernel> {
        let loaded = self.kernels.get(&self.core.driver, name);
        let kernel = loaded.map_err(|error| self.core.failure(&format!("loading kernel {name}"), &error))?;
        kernel.ok_or_else(|| Failure::internal(format!("no kernel {name}, although it was asked for before")))
    }

    fn units(&self) -> u64 {
        u64::from(self.core.driver.card().n_units)
    }

    /// A place for rounded activations of `x`, whose last use is before anything planned from here on
    /// needs the place again.
    fn take_slot(&mut self, x: &View, rounding: Rounding) -> Rounded {
        let slot = self.next_slot;
        self.next_slot = (slot + 1) % N_SLOTS;
        self.ready[slot] = Some((x.clone(), rounding));
        self.sizes.slot(self.workspace, slot)
    }

    fn ready_slot(&self, x: &View, rounding: Rounding) -> Option<Rounded> {
        let is_it = |ready: &Option<(View, Rounding)>| {
            ready.as_ref().is_some_and(|(y, kind)| y.same_rows(x) && *kind == rounding)
        };
        let slot = self.ready.iter().position(is_it)?;
        Some(self.sizes.slot(self.workspace, slot))
    }
}

/// Blocks of `per` over `n`.
pub(crate) fn blocks(n: u64, per: u64) -> u32 {
    u32::try_from(n.div_ceil(per)).unwrap_or(u32::MAX)
}
