//! Compiling a program into stages, and the run of it.
//!
//! Compiling finds the operands, chooses kernels, fuses what can be fused, and takes all memory
//! that a run needs; a run only sets the scalars and lets the workers go through the stages.
//!
//! Fusing never changes bits, only how often workers have to wait for each other:
//! - row ops with the same units (tokens) become one stage that takes each unit through all of
//!   them, as long as no unit can touch what belongs to another;
//! - matrix products of the same activations share one prepared copy and one stage.
//!
//! Called by device.rs; the ops themselves are under ops/.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use strata_backend_abi::{STRATA_MAX_OPERANDS, StrataOpKind, StrataScalar, StrataStatus};
use strata_backend_sdk::{Failure, ProgramInfo, ProgramView, Result};

use crate::matmul::{Plan, Prepared, Variant};
use crate::memory::{Extent, FloatRows, HostMemory, LineRows, View};
use crate::ops::experts::{ExpertLinear, Lists, Route, RouteStage, SharedLists};
use crate::ops::linear::{Linear, Part};
use crate::ops::math::Kernels;
use crate::ops::{Access, Fault, Op, RowPlan, Run, Scratch, ScratchNeeds, Work};
use crate::ops::{attention, elementwise, experts, kv, linear, lookup, norm, rope, router, support};
use crate::pool::{Job, Pool, Stage};
use crate::simd::Line;

/// Scalars that a program may have: room on the stack for later minor versions.
const MAX_SCALARS: usize = 16;
/// Elements that make a chunk of row ops worth claiming: some microseconds.
const ROW_GRAIN: usize = 16 * 1024;
/// Tokens of a run so short that waiting for a worker can cost more than the worker gives.
const SHORT_RUN: i64 = 8;
/// How far ahead a product may be drawn to another of the same activations.
const LOOK_AHEAD: usize = 12;

/// What a device chose, as far as programs depend on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config {
    pub(crate) variant: Variant,
    pub(crate) kernels: &'static Kernels,
    pub(crate) n_workers: usize,
}

/// A program ready to run.
pub(crate) struct Compiled {
    works: Vec<Box<dyn Work>>,
    stages: Vec<Stage>,
    /// One per worker.
    scratch: Vec<Mutex<Scratch>>,
    /// The current run's.
    scalars: Vec<AtomicI64>,
    kernels: &'static Kernels,
    fault: Fault,
    info: ProgramInfo,
}

impl Compiled {
    pub(crate) fn info(&self) -> ProgramInfo {
        self.info
    }

    fn copy_scalars<'a>(&self, room: &'a mut [i64; MAX_SCALARS]) -> &'a [i64] {
        for (copy, scalar) in room.iter_mut().zip(&self.scalars) {
            *copy = scalar.load(Ordering::Relaxed);
        }
        &room[..self.scalars.len()]
    }
}

/// Runs once; `scalars` has one value for each that the program declared.
pub(crate) fn run(compiled: &Arc<Compiled>, pool: &mut Pool, scalars: &[i64]) -> Result<()> {
    if scalars.len() != compiled.scalars.len() {
        return Err(Failure::host_bug(format_args!(
            "a run with {} scalars of a program with {}",
            scalars.len(),
            compiled.scalars.len()
        )));
    }
    // Workers read them after claiming a chunk, which is ordered after these writes.
    for (place, scalar) in compiled.scalars.iter().zip(scalars) {
        place.store(*scalar, Ordering::Relaxed);
    }
    let job: Arc<dyn Job> = Arc::<Compiled>::clone(compiled);
    let short = scalars.get(StrataScalar::Tokens as usize).is_some_and(|tokens| *tokens <= SHORT_RUN);
    pool.run(&job, short, |stage| compiled.works[stage].chunks(scalars));
    compiled.fault.take()
}

impl Job for Compiled {
    fn stages(&self) -> &[Stage] {
        &self.stages
    }

    fn chunk(&self, stage: usize, chunk: usize, worker: usize) {
        let mut room = [0; MAX_SCALARS];
        let run = Run { scalars: self.copy_scalars(&mut room), kernels: self.kernels, fault: &self.fault };
        let mut scratch = self.scratch[worker].lock().unwrap_or_else(PoisonError::into_inner);
        self.works[stage].chunk(&run, chunk, &mut scratch);
    }

    fn panicked(&self, text: String) {
        self.fault.report(Failure::new(StrataStatus::Internal, text));
    }
}

/// Several row ops over the same units, one unit after another.
struct RowGroup {
    plans: Vec<RowPlan>,
    units: Extent,
    weight: usize,
    n_workers: usize,
}

impl RowGroup {
    fn units_per_chunk(&self, n_units: usize) -> usize {
        let grain = ROW_GRAIN.div_ceil(self.weight.max(1));
        n_units.div_ceil(4 * self.n_workers).max(grain)
    }
}

impl Work for RowGroup {
    fn chunks(&self, scalars: &[i64]) -> usize {
        let n_units = self.units.value(scalars);
        n_units.div_ceil(self.units_per_chunk(n_units))
    }

    fn chunk(&self, run: &Run<'_>, chunk: usize, scratch: &mut Scratch) {
        let n_units = self.units.value(run.scalars);
        let per_chunk = self.units_per_chunk(n_units);
        for unit in chunk * per_chunk..n_units.min((chunk + 1) * per_chunk) {
            for plan in &self.plans {
                plan.op.unit(run, unit, scratch);
            }
        }
    }

    fn scratch(&self) -> ScratchNeeds {
        self.plans.iter().map(|plan| plan.scratch).fold(ScratchNeeds::default(), ScratchNeeds::max)
    }
}

/// Whether two accesses of ops in one group leave each unit to itself.
fn separate(a: &Access, b: &Access) -> bool {
    if !(a.write || b.write) || !a.view.overlaps(&b.view) {
        return true;
    }
    let (Some(unit_a), Some(unit_b)) = (a.unit, b.unit) else { return false };
    let stride = a.view.stride(unit_a);
    let ((start_a, len_a), (start_b, len_b)) = (a.view.unit_range(unit_a), b.view.unit_range(unit_b));
    let reach = (start_a + len_a).max(start_b + len_b) - start_a.min(start_b);
    stride == b.view.stride(unit_b) && reach <= stride
}

/// An activation tensor that lies prepared in workspace.
struct Ready {
    x: View,
    lines: LineRows,
}

/// The last stage, while products may still join it.
struct OpenLinear {
    parts: Vec<Part>,
    x: View,
    prepared: Prepared,
    lines: LineRows,
    columns: Extent,
    /// Set for products by expert.
    route: Option<Arc<Route>>,
}

struct Builder<'p> {
    program: &'p ProgramView<'p>,
    config: Config,
    works: Vec<Box<dyn Work>>,
    /// Row ops that are not a stage yet.
    rows: Vec<RowPlan>,
    open: Option<OpenLinear>,
    ready: HashMap<Prepared, Ready>,
    route: Option<Arc<Route>>,
    lists: SharedLists,
    /// Workspaces by what they are for; stages that follow one another share them.
    line_rows: HashMap<(usize, usize), LineRows>,
    float_rows: HashMap<(usize, usize), FloatRows>,
    workspace: u64,
}

/// Compiles a program over buffers.
pub(crate) fn compile(program: &ProgramView<'_>, buffers: &[Arc<HostMemory>], config: Config) -> Result<Arc<Compiled>> {
    if program.scalar_max.len() > MAX_SCALARS {
        return Err(Failure::unsupported(format!("a program with {} scalars", program.scalar_max.len())));
    }
    for index in 0..program.ops.len() {
        support::check(program, index, config.variant)?;
    }
    let views = program
        .tensors
        .iter()
        .map(|tensor| {
            let buffer = buffers.get(tensor.buffer as usize);
            View::new(tensor, buffer.ok_or_else(|| Failure::host_bug("a tensor in a buffer that is not there"))?)
        })
        .collect::<Result<Vec<View>>>()?;
    let ops = program
        .ops
        .iter()
        .map(|raw| {
            let kind =
                StrataOpKind::from_number(raw.kind).ok_or_else(|| Failure::internal("an op that was checked"))?;
            let operands = (0..STRATA_MAX_OPERANDS).map(|slot| views.get(raw.operand[slot] as usize).cloned());
            Ok(Op { raw, kind, views: operands.collect() })
        })
        .collect::<Result<Vec<Op<'_>>>>()?;
    let mut builder = Builder::new(program, config);
    for index in schedule(&ops) {
        builder.add(&ops[index])?;
    }
    builder.finish()
}

/// Slots that an op writes.
fn results(kind: StrataOpKind) -> &'static [usize] {
    if kind == StrataOpKind::RouterTopK { &[0, 1] } else { &[0] }
}

/// Whether two ops may change places.
fn independent(a: &Op<'_>, b: &Op<'_>) -> bool {
    let writes_into = |a: &Op<'_>, b: &Op<'_>| {
        results(a.kind)
            .iter()
            .filter_map(|slot| a.optional(*slot))
            .any(|result| b.views.iter().flatten().any(|operand| result.overlaps(operand)))
    };
    !writes_into(a, b) && !writes_into(b, a)
}

/// An order of the ops in which products of the same activations stand together.
fn schedule(ops: &[Op<'_>]) -> Vec<usize> {
    let mut left: Vec<usize> = (0..ops.len()).collect();
    let mut order = Vec::with_capacity(ops.len());
    let is_product = |kind| matches!(kind, StrataOpKind::MatMul | StrataOpKind::ExpertMatMul);
    while !left.is_empty() {
        let first = left.remove(0);
        order.push(first);
        if !is_product(ops[first].kind) {
            continue;
        }
        let mut at = 0;
        while at < left.len().min(LOOK_AHEAD) {
            let candidate = &ops[left[at]];
            let joins = candidate.kind == ops[first].kind
                && match (candidate.optional(2), ops[first].optional(2)) {
                    (Some(a), Some(b)) => a.same(b),
                    _ => false,
                };
            if joins && left[..at].iter().all(|between| independent(&ops[*between], candidate)) {
                order.push(left.remove(at));
            } else {
                at += 1;
            }
        }
    }
    order
}

impl<'p> Builder<'p> {
    fn new(program: &'p ProgramView<'p>, config: Config) -> Builder<'p> {
        Builder {
            program,
            config,
            works: Vec::new(),
            rows: Vec::new(),
            open: None,
            ready: HashMap::new(),
            route: None,
            lists: SharedLists::default(),
            line_rows: HashMap::new(),
            float_rows: HashMap::new(),
            workspace: 0,
        }
    }

    fn add(&mut self, op: &Op<'_>) -> Result<()> {
        for slot in results(op.kind) {
            let result = op.view(*slot)?;
            if !result.is_writable() {
                return Err(Failure::host_bug(format_args!("{:?} writes to imported memory", op.kind)));
            }
        }
        let row_plan = match op.kind {
            StrataOpKind::MatMul => return self.add_product(op),
            StrataOpKind::ExpertMatMul => return self.add_expert_product(op),
            StrataOpKind::Attention => return self.add_attention(op),
            StrataOpKind::EmbeddingLookup => lookup::plan_embedding(op)?,
            StrataOpKind::GatherRows => lookup::plan_gather(op)?,
            StrataOpKind::RmsNorm | StrataOpKind::L2Norm | StrataOpKind::Softmax => norm::plan(op)?,
            StrataOpKind::ArgMax => norm::plan_argmax(op)?,
            StrataOpKind::Rope => rope::plan(op)?,
            StrataOpKind::KvStore => kv::plan(op)?,
            StrataOpKind::RouterTopK => router::plan(op)?,
            StrataOpKind::ExpertCombine => experts::plan_combine(op)?,
            StrataOpKind::Glu
            | StrataOpKind::Add
            | StrataOpKind::Mul
            | StrataOpKind::Scale
            | StrataOpKind::Unary
            | StrataOpKind::Copy => match elementwise::plan(op)? {
                elementwise::Plan::Rows(plan) => plan,
                elementwise::Plan::Wide(work) => {
                    self.close();
                    self.written(op)?;
                    self.works.push(work);
                    return Ok(());
                }
            },
            StrataOpKind::GatedDeltaNet | StrataOpKind::ShortConv | StrataOpKind::HyperConnection => {
                return Err(Failure::internal(format!("{:?} passed the check", op.kind)));
            }
        };
        self.written(op)?;
        self.add_rows(row_plan);
        Ok(())
    }

    /// Forgets what was derived from tensors that the op overwrites.
    fn written(&mut self, op: &Op<'_>) -> Result<()> {
        for slot in results(op.kind) {
            let result = op.view(*slot)?;
            self.ready.retain(|_, ready| !ready.x.overlaps(result));
            if self.route.as_ref().is_some_and(|route| route.depends_on(result)) {
                self.route = None;
            }
        }
        Ok(())
    }

    fn add_rows(&mut self, plan: RowPlan) {
        self.close_products();
        let joins = self.rows.first().is_none_or(|first| first.units == plan.units)
            && (plan.units.most == 1
                || self
                    .rows
                    .iter()
                    .all(|earlier| earlier.accesses.iter().all(|a| plan.accesses.iter().all(|b| separate(a, b)))));
        if !joins {
            self.close_rows();
        }
        self.rows.push(plan);
    }

    fn close_rows(&mut self) {
        let plans = std::mem::take(&mut self.rows);
        let Some(first) = plans.first() else { return };
        let units = first.units;
        let weight = plans.iter().map(|plan| plan.weight).sum();
        self.works.push(Box::new(RowGroup { plans, units, weight, n_workers: self.config.n_workers }));
    }

    fn close_products(&mut self) {
        let Some(open) = self.open.take() else { return };
        let work: Box<dyn Work> = match open.route {
            None => Box::new(Linear::new(open.parts, open.columns, open.lines, self.config.n_workers)),
            Some(route) => Box::new(ExpertLinear::new(open.parts, &open.x, &route, open.lines)),
        };
        self.works.push(work);
    }

    fn close(&mut self) {
        self.close_products();
        self.close_rows();
    }

    fn map(&mut self, bytes: usize) -> Result<Arc<HostMemory>> {
        let memory = HostMemory::map(bytes).map_err(|error| {
            Failure::out_of_memory(format!("{bytes} bytes of workspace for program {}: {error}", self.program.name))
        })?;
        self.workspace += bytes as u64;
        Ok(Arc::new(memory))
    }

    fn lines(&mut self, n_rows: usize, lines_per_row: usize) -> Result<LineRows> {
        if let Some(found) = self.line_rows.get(&(n_rows, lines_per_row)) {
            return Ok(found.clone());
        }
        let bytes = n_rows.saturating_mul(lines_per_row).saturating_mul(size_of::<Line>());
        let rows = LineRows::new(&self.map(bytes)?, 0, n_rows, lines_per_row);
        self.line_rows.insert((n_rows, lines_per_row), rows.clone());
        Ok(rows)
    }

    fn floats(&mut self, n_rows: usize, row_len: usize) -> Result<FloatRows> {
        if let Some(found) = self.float_rows.get(&(n_rows, row_len)) {
            return Ok(found.clone());
        }
        let bytes = n_rows.saturating_mul(row_len).saturating_mul(size_of::<f32>());
        let rows = FloatRows::new(&self.map(bytes)?, 0, n_rows, row_len);
        self.float_rows.insert((n_rows, row_len), rows.clone());
        Ok(rows)
    }

    fn plan(&self, w: &View) -> Result<Plan> {
        Plan::new(w.dtype, w.ne[0], self.program.precise, self.config.variant)
            .map_err(|reason| Failure::internal(format!("a product that was checked: {reason}")))
    }

    /// The prepared copy of `x`, made now unless it is there already.
    fn prepared(&mut self, plan: &Plan, x: &View, unit: usize) -> Result<LineRows> {
        let found = self.ready.get(&plan.prepared()).filter(|ready| ready.x.same(x));
        if let Some(ready) = found {
            return Ok(ready.lines.clone());
        }
        let n_rows = x.ne[1] * if unit == 2 { x.ne[2] } else { 1 };
        let lines = self.lines(n_rows, plan.lines_per_row())?;
        // The region may hold another tensor's copy, under this or another key of the same size.
        self.ready.retain(|_, ready| !ready.lines.same(&lines));
        self.add_rows(linear::prepare(plan, x, unit, &lines));
        self.ready.insert(plan.prepared(), Ready { x: x.clone(), lines: lines.clone() });
        Ok(lines)
    }

    fn add_product(&mut self, op: &Op<'_>) -> Result<()> {
        let (out, w, x) = (op.view(0)?, op.view(1)?, op.view(2)?);
        let plan = self.plan(w)?;
        let part = Part { plan, w: w.clone(), out: out.clone(), bias: op.optional(3).cloned() };
        self.join(part, x, None, x.extent(1))?;
        self.written(op)
    }

    fn add_expert_product(&mut self, op: &Op<'_>) -> Result<()> {
        let (out, w, x, ids, table) = (op.view(0)?, op.view(1)?, op.view(2)?, op.view(3)?, op.optional(4));
        let plan = self.plan(w)?;
        let n_slots = w.ne[2];
        let current = self.route.clone().filter(|route| route.same(ids, table, n_slots));
        let route = if let Some(route) = current {
            route
        } else {
            self.close();
            Lists::reserve(&self.lists, n_slots, ids.ne[0] * ids.ne[1])?;
            let route = Arc::new(Route::new(ids, table, n_slots, &self.lists));
            self.works.push(Box::new(RouteStage(Arc::clone(&route))));
            self.route = Some(Arc::clone(&route));
            route
        };
        let part = Part { plan, w: w.clone(), out: out.clone(), bias: None };
        self.join(part, x, Some(route), x.extent(2))?;
        self.written(op)
    }

    /// Adds a product to the open stage if it reads the same copy and disturbs nothing, else opens a new one.
    fn join(&mut self, part: Part, x: &View, route: Option<Arc<Route>>, columns: Extent) -> Result<()> {
        let prepared = part.plan.prepared();
        let unit = if route.is_some() { 2 } else { 1 };
        if let Some(open) = &mut self.open {
            let same_route = match (&open.route, &route) {
                (None, None) => true,
                (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                _ => false,
            };
            let alone = open.parts.iter().all(|other| {
                let touched = [Some(&other.out), Some(&other.w), other.bias.as_ref()];
                let ours = [Some(&part.w), part.bias.as_ref()];
                touched.into_iter().flatten().all(|view| !view.overlaps(&part.out))
                    && ours.into_iter().flatten().all(|view| !view.overlaps(&other.out))
            });
            if same_route && alone && open.prepared == prepared && open.x.same(x) {
                open.parts.push(part);
                return Ok(());
            }
        }
        self.close_products();
        let lines = self.prepared(&part.plan, x, unit)?;
        self.close_rows();
        self.open = Some(OpenLinear { parts: vec![part], x: x.clone(), prepared, lines, columns, route });
        Ok(())
    }

    fn add_attention(&mut self, op: &Op<'_>) -> Result<()> {
        self.close();
        let (n_rows, row_len) = attention::partial_shape(op, &self.program.scalar_max)?;
        let partials = self.floats(n_rows, row_len)?;
        let stages = attention::plan(op, &self.program.scalar_max, partials, self.config.n_workers)?;
        self.works.extend(stages);
        self.written(op)
    }

    fn finish(mut self) -> Result<Arc<Compiled>> {
        self.close();
        let needs = self.works.iter().map(|work| work.scratch()).fold(ScratchNeeds::default(), ScratchNeeds::max);
        let scratch =
            (0..self.config.n_workers).map(|_| Ok(Mutex::new(scratch(needs)?))).collect::<Result<Vec<_>>>()?;
        let per_worker = needs.floats * size_of::<f32>() + needs.lines * size_of::<Line>();
        let info = ProgramInfo {
            n_launches: self.works.len() as u32,
            workspace_bytes: self.workspace + (per_worker * self.config.n_workers) as u64,
            constant_bytes: 0,
        };
        Ok(Arc::new(Compiled {
            stages: self.works.iter().map(|_| Stage::default()).collect(),
            works: self.works,
            scratch,
            scalars: self.program.scalar_max.iter().map(|_| AtomicI64::new(0)).collect(),
            kernels: self.config.kernels,
            fault: Fault::default(),
            info,
        }))
    }
}

/// A worker's scratch, refused instead of aborting when there is no memory.
fn scratch(needs: ScratchNeeds) -> Result<Scratch> {
    let mut scratch = Scratch::default();
    let floats = scratch.floats.try_reserve_exact(needs.floats);
    let lines = scratch.lines.try_reserve_exact(needs.lines);
    floats.and(lines).map_err(|error| Failure::out_of_memory(format!("a worker's scratch: {error}")))?;
    scratch.floats.resize(needs.floats, 0.0);
    scratch.lines.resize(needs.lines, Line::default());
    Ok(scratch)
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
