//! Products: which kernel, what shares a launch, and rounding of activations. Products over the same
//! activations share one rounded copy; those of one format share a launch.

use strata_backend_sdk::Result;
use strata_backend_sdk::abi::{StrataDType, StrataOpKind};

use super::{Emit, Launch, PlanOp, Planner, Rounded, blocks, format_name};
use crate::driver::Driver;
use crate::params::Params;
use crate::view::{Run, View};

/// How far ahead a product may be drawn to another of the same activations.
const LOOK_AHEAD: usize = 12;
/// Weights that one launch can take.
const MOST_PARTS: usize = 3;
/// Dynamic shared memory of the decode kernels beside their static part, bytes.
const MOST_PARTIAL: u64 = 16 << 10;

/// One weight of a launch.
#[derive(Debug, Clone)]
struct Part {
    w: View,
    out: View,
    bias: u64,
}

/// A gated unit in one launch: the activation, its parameters and where the result goes.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    pub(super) activation: i64,
    pub(super) floats: [f32; 2],
    pub(super) out: View,
}

/// Products of one format over the same activations.
#[derive(Debug, Clone)]
struct Products {
    parts: Vec<Part>,
    x: View,
    rounded: Option<Rounded>,
    gate: Option<Gate>,
    units: u64,
    /// (columns a block, function) of the decode kernels or the exact one, fewest columns first.
    kernels: Vec<(u64, u64)>,
    /// Tiles by tensor cores for long runs: function, rows, columns, threads, shared bytes.
    tiles: Option<Tiles>,
}

#[derive(Debug, Clone, Copy)]
struct Tiles {
    function: u64,
    rows: u64,
    columns: u64,
    threads: u32,
    shared: u32,
}

/// Runs of more tokens go to the tiles.
const MOST_DECODE_TOKENS: u64 = 8;

impl Products {
    /// matmul.h, MatMulArgs.
    fn params(&self, run: &Run, rows: u64) -> Vec<u8> {
        let part = |i: usize| self.parts.get(i);
        let each = |params: Params, value: &dyn Fn(&Part) -> u64| {
            (0..MOST_PARTS).fold(params, |params, i| params.ptr(part(i).map_or(0, value)))
        };
        let out = |i: usize| match (&self.gate, part(i)) {
            (Some(gate), _) if i == 0 => Some(&gate.out),
            (_, Some(part)) => Some(&part.out),
            _ => None,
        };
        let [_, t, ..] = self.x.extents(run);
        let mut params = each(Params::new(), &|part| part.w.address);
        for i in 0..MOST_PARTS {
            params = params.ptr(out(i).map_or(0, |view| view.address));
        }
        let params = each(params, &|part| part.bias);
        let (bytes, scales) = self.rounded.map_or((0, 0), |rounded| (rounded.bytes, rounded.scales));
        let params = params.ptr(bytes).ptr(scales).ptr(self.x.address).ptr(0).i64(self.parts[0].w.nb[1]);
        let params = (0..MOST_PARTS).fold(params, |params, i| params.n(part(i).map_or(0, |part| part.w.ne[1])));
        let params = params.n(self.parts[0].w.ne[0]).n(t).n(self.x.step(1));
        let params = (0..MOST_PARTS).fold(params, |params, i| params.n(out(i).map_or(0, |view| view.step(1))));
        let (act, [f0, f1]) = self.gate.as_ref().map_or((-1, [0.0; 2]), |gate| (gate.activation, gate.floats));
        let params = params.n(self.parts.len() as u64).i32(act).f32(f0).f32(f1);
        params.n(rows).i32(i64::from(self.x.dtype == StrataDType::F16)).done()
    }

    fn row_blocks(&self, rows: u64) -> u32 {
        let parts = if self.gate.is_some() { &self.parts[..1] } else { &self.parts[..] };
        parts.iter().map(|part| blocks(part.w.ne[1], rows)).sum()
    }

    fn emit(&self, run: &Run, launches: &mut Vec<Launch>) {
        let [k, t, ..] = self.x.extents(run);
        if let Some(tiles) = self.tiles.filter(|_| t > MOST_DECODE_TOKENS) {
            let grid = [self.row_blocks(tiles.rows), blocks(t, tiles.columns), 1];
            let params = self.params(run, tiles.rows);
            let Tiles { function, threads, shared, .. } = tiles;
            launches.push(Launch { function, grid, block: threads, shared, params });
            return;
        }
        let chosen = self.kernels.iter().find(|(columns, _)| *columns >= t).or(self.kernels.last());
        let Some((columns, function)) = chosen.copied() else { return };
        let weights = if self.gate.is_some() { 2 } else { 1 };
        let shared = |rows: u64| 4 * rows * columns * k.div_ceil(256) * weights;
        let enough = |rows: u64| u64::from(self.row_blocks(rows)) * t.div_ceil(columns) >= 4 * self.units;
        let rows = [8, 4, 2].into_iter().find(|rows| shared(*rows) <= MOST_PARTIAL && enough(*rows)).unwrap_or(1);
        let grid = [self.row_blocks(rows), blocks(t, columns), 1];
        let params = self.params(run, rows);
        launches.push(Launch { function, grid, block: 128, shared: shared(rows) as u32, params });
    }
}

impl<D: Driver> Planner<'_, D> {
    /// Whether products with this format round their activations.
    pub(super) fn rounds(&self, w: &View, decode: &str) -> bool {
        !self.precise && w.dtype.is_quantised() && self.kernels.has(&decode.replace("FORMAT", &format_name(w.dtype)))
    }

    /// Plans the product at `first` and those that can share its launch or its rounded activations.
    pub(super) fn products(&mut self, first: usize) -> Result<()> {
        let members = self.same_activations(first)?;
        let x = self.ops[first].view(2)?.clone();
        let mut left = members;
        while !left.is_empty() {
            let (w, stride) = (self.ops[left[0]].view(1)?.dtype, self.ops[left[0]].view(1)?.nb[1]);
            let mut now = Vec::new();
            for index in &left {
                let other = self.ops[*index].view(1)?;
                if other.dtype == w && other.nb[1] == stride && now.len() < MOST_PARTS {
                    now.push(*index);
                }
            }
            left.retain(|index| !now.contains(index));
            self.launch_products(&x, &now)?;
        }
        Ok(())
    }

    /// `first` and the products near it over the same activations that may be done right away.
    fn same_activations(&self, first: usize) -> Result<Vec<usize>> {
        let x = self.ops[first].view(2)?;
        let mut members = vec![first];
        let end = self.ops.len().min(first + 1 + LOOK_AHEAD);
        for index in first + 1..end {
            let op = &self.ops[index];
            let joins = !self.done[index]
                && op.kind == StrataOpKind::MatMul
                && op.optional(2) == Some(x)
                && (first..index).all(|between| self.done[between] || self.ops[between].independent(op));
            if joins {
                members.push(index);
            }
        }
        Ok(members)
    }

    fn launch_products(&mut self, x: &View, members: &[usize]) -> Result<()> {
        let first = members[0];
        let w = self.ops[first].view(1)?.clone();
        let rounded = if self.rounds(&w, "mmv_FORMAT_t1") { Some(self.round(first, x)?) } else { None };
        let gate = self.gate_of(members)?;
        let mut parts = Vec::new();
        for index in members {
            let op = &self.ops[*index];
            let bias = op.optional(3).map_or(0, |bias| bias.address);
            parts.push(Part { w: op.view(1)?.clone(), out: op.view(0)?.clone(), bias });
        }
        let products = Products {
            parts,
            x: x.clone(),
            rounded,
            gate: gate.as_ref().map(|(_, gate)| gate.clone()),
            units: self.units(),
            kernels: self.product_kernels(&w, rounded.is_some(), x.ne[1])?,
            tiles: self.tiles(&w, rounded.is_some(), x.ne[1])?,
        };
        let mut does = members.to_vec();
        does.extend(gate.map(|(index, _)| index));
        self.push(first, &does, Box::new(move |run, launches| products.emit(run, launches)));
        Ok(())
    }

    fn product_kernels(&self, w: &View, rounded: bool, most_tokens: u64) -> Result<Vec<(u64, u64)>> {
        let format = format_name(w.dtype);
        if !rounded {
            return Ok(vec![(4, self.kernel(&format!("mmx_{format}"))?.function)]);
        }
        let mut found = Vec::new();
        for columns in [1, 2, 4, 8] {
            // None wider than needed, and what a plugin lacks its widest one does.
            let needed = columns == 1 || columns < 2 * most_tokens;
            let name = format!("mmv_{format}_t{columns}");
            if needed && self.kernels.has(&name) {
                found.push((columns, self.kernel(&name)?.function));
            }
        }
        Ok(found)
    }

    /// Tensor core tiles, where the plugin has them for this format.
    fn tiles(&self, w: &View, rounded: bool, most_tokens: u64) -> Result<Option<Tiles>> {
        let name = format!("mmq_{}", format_name(w.dtype));
        if !rounded || most_tokens <= MOST_DECODE_TOKENS || !self.kernels.has(&name) {
            return Ok(None);
        }
        let function = self.kernel(&name)?.function;
        Ok(Some(Tiles { function, rows: 128, columns: 128, threads: 256, shared: 0 }))
    }

    /// A gated unit of exactly these two products, whose inputs nobody else reads.
    fn gate_of(&self, members: &[usize]) -> Result<Option<(usize, Gate)>> {
        let [gate, up] = members else { return Ok(None) };
        if self.ops[*gate].optional(3).is_some() || self.ops[*up].optional(3).is_some() {
            return Ok(None);
        }
        self.gate_between(*gate, *up)
    }

    /// The `Glu` that alone reads the results of ops `a` and `b`, if there is one right behind.
    pub(super) fn gate_between(&self, a: usize, b: usize) -> Result<Option<(usize, Gate)>> {
        let last = a.max(b);
        let Some(glu) = self.ops.get(last + 1).filter(|op| op.kind == StrataOpKind::Glu) else { return Ok(None) };
        let (gate, up, out) = (glu.view(1)?, glu.view(2)?, glu.view(0)?);
        let (first, second) = (self.ops[a].view(0)?, self.ops[b].view(0)?);
        // Only in the order gate, up: the kernel takes them so.
        if gate != first || up != second || gate.ne != up.ne || self.done[last + 1] {
            return Ok(None);
        }
        let alone = [gate, up].into_iter().all(|view| view == out || !self.read_later(view, last + 2));
        let gate = Gate { activation: glu.raw.int[0], floats: [glu.raw.float[0], glu.raw.float[1]], out: out.clone() };
        Ok(alone.then_some((last + 1, gate)))
    }

    /// Whether an op from `from` on reads what lies in the view now. The end of the program counts as
    /// no reader for memory that the program overwrites in each run.
    pub(super) fn read_later(&self, view: &View, from: usize) -> bool {
        for op in &self.ops[from.min(self.ops.len())..] {
            if op.operands().any(|operand| operand.overlaps(view)) {
                return true;
            }
            let covers = |result: &View| {
                result.address <= view.address && view.address + view.span() <= result.address + result.span()
            };
            if op.results().any(|result| covers(result) && result.nb == view.nb) {
                return false;
            }
        }
        false
    }

    /// Rounded activations of `x`, made now unless they are there.
    pub(super) fn round(&mut self, op: usize, x: &View) -> Result<Rounded> {
        if let Some(rounded) = self.ready_slot(x) {
            return Ok(rounded);
        }
        let function = self.kernel("quantise_q8")?.function;
        let (x, rounded) = (x.clone(), self.take_slot(x));
        // quantise.cu; a third dimension is more rows, which the check found evenly spaced.
        let emit: Emit = Box::new(move |run, launches| {
            let [k, n1, n2, _] = x.extents(run);
            let rows = n1 * n2;
            let stride = if n1 > 1 { x.step(1) } else { x.step(if n2 > 1 { 2 } else { 1 }) };
            let params = Params::new().ptr(x.address).ptr(rounded.bytes).ptr(rounded.scales);
            let params = params.n(k).n(rows).n(stride).i32(i64::from(x.dtype == StrataDType::F16)).done();
            launches.push(Launch { function, grid: [blocks(k, 1024), rows as u32, 1], block: 256, shared: 0, params });
        });
        self.push(op, &[], emit);
        Ok(rounded)
    }

    /// Products by expert: one alone, or gate and up of a gated unit together.
    pub(super) fn expert_products(&mut self, first: usize) -> Result<()> {
        let op = &self.ops[first];
        let (x, w, ids) = (op.view(2)?.clone(), op.view(1)?.clone(), op.view(3)?.clone());
        let table = op.optional(4).cloned();
        let second = self.ops.get(first + 1).filter(|other| {
            other.kind == StrataOpKind::ExpertMatMul
                && other.optional(2) == Some(&x)
                && other.optional(3) == Some(&ids)
                && other.optional(4) == table.as_ref()
                && other.optional(1).is_some_and(|v| v.dtype == w.dtype && v.ne == w.ne && v.nb == w.nb)
        });
        let gate = match second {
            Some(second) => self.gate_between(first, second.index)?,
            None => None,
        };
        let rounded = if self.rounds(&w, "moev_FORMAT") { Some(self.round(first, &x)?) } else { None };
        let family = if rounded.is_some() { "moev" } else { "moex" };
        let function = self.kernel(&format!("{family}_{}", format_name(w.dtype)))?.function;
        let op = &self.ops[first];
        let out = gate.as_ref().map_or(op.view(0)?, |(_, gate)| &gate.out).clone();
        let up = if gate.is_some() { self.ops[first + 1].view(1)?.address } else { 0 };
        let mut does = vec![first];
        if let Some((glu, _)) = &gate {
            does.extend([first + 1, *glu]);
        }
        let experts = Experts {
            w,
            up,
            x,
            ids,
            table: table.map(|table| (table.address, table.ne[0])),
            out,
            rounded,
            gate: gate.map(|(_, gate)| gate),
            units: self.units(),
            function,
        };
        self.push(first, &does, Box::new(move |run, launches| experts.emit(run, launches)));
        Ok(())
    }
}

/// A launch by expert.
#[derive(Debug, Clone)]
struct Experts {
    w: View,
    up: u64,
    x: View,
    ids: View,
    /// Address and length.
    table: Option<(u64, u64)>,
    out: View,
    rounded: Option<Rounded>,
    gate: Option<Gate>,
    units: u64,
    function: u64,
}

impl Experts {
    /// matmul.h, ExpertArgs.
    fn emit(&self, run: &Run, launches: &mut Vec<Launch>) {
        let [k, t, ..] = self.ids.extents(run);
        let (m, width) = (self.w.ne[1], self.w.ne[0]);
        let slots = k * t;
        let weights = if self.gate.is_some() { 2 } else { 1 };
        let shared = |rows: u64| 4 * rows * width.div_ceil(256) * weights;
        let enough = |rows: u64| m.div_ceil(rows) * slots >= 4 * self.units;
        let rows = [8, 4, 2].into_iter().find(|rows| shared(*rows) <= MOST_PARTIAL && enough(*rows)).unwrap_or(1);
        let (bytes, scales) = self.rounded.map_or((0, 0), |rounded| (rounded.bytes, rounded.scales));
        let per_slot = self.x.ne[1] > 1;
        let x_stride = if per_slot { self.x.step(1) } else { self.x.step(2) };
        let (table, n_experts) = self.table.unwrap_or((0, self.w.ne[2]));
        let params = Params::new().ptr(self.w.address).ptr(self.up).ptr(self.out.address).ptr(bytes).ptr(scales);
        let params = params.ptr(self.x.address).ptr(self.ids.address).ptr(table).ptr(0).ptr(0);
        let params = params.i64(self.w.nb[1]).i64(self.w.nb[2]).n(m).n(width).n(k).n(t);
        let (act, [f0, f1]) = self.gate.as_ref().map_or((-1, [0.0; 2]), |gate| (gate.activation, gate.floats));
        let params = params.i32(i64::from(per_slot)).n(n_experts).i32(act).f32(f0).f32(f1);
        let params = params.n(rows).n(x_stride).n(self.out.step(1)).done();
        let grid = [blocks(m, rows), slots as u32, 1];
        launches.push(Launch { function: self.function, grid, block: 128, shared: shared(rows) as u32, params });
    }
}

impl PlanOp {
    /// Whether the op rounds its activations when products with `w` do, so that a fused norm can do it.
    pub(super) fn activations(&self) -> Option<&View> {
        matches!(self.kind, StrataOpKind::MatMul | StrataOpKind::ExpertMatMul).then(|| self.optional(2)).flatten()
    }
}
