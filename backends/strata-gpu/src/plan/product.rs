//! Products: which kernel, what shares a launch, and rounding of activations. Products over the same
//! activations share one rounded copy; those of one format share a launch.

use strata_backend_sdk::Result;
use strata_backend_sdk::abi::{StrataDType, StrataOpKind};

use super::ops::Elements;
use super::{Emit, Launch, PlanOp, Planner, Rounded, Rounding, blocks, format_name, halves};
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
pub(super) struct Part {
    pub(super) w: View,
    pub(super) out: View,
    pub(super) bias: u64,
}

/// A gated unit in one launch: the activation, its parameters and where the result goes.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    pub(super) activation: i64,
    pub(super) floats: [f32; 2],
    pub(super) out: View,
}

/// A gated unit behind its two products: rounding its result where the next product wants that.
#[derive(Debug, Clone)]
struct Unit {
    gate: Gate,
    /// `gated_q8` with the place of the rounded result, or the plain kernel.
    rounded: Option<Rounded>,
    function: u64,
    /// The floats are read too.
    keeps_floats: bool,
}

impl Unit {
    fn launch(&self, run: &Run, gate: &View, up: &View) -> Launch {
        let Gate { activation, floats, out } = &self.gate;
        let ne = out.extents(run);
        let Some(rounded) = self.rounded else {
            // elementwise.cu
            let which = 2 + activation;
            return Elements { out, a: gate, b: Some(up), ne, which, floats: *floats }.launch(self.function);
        };
        // quantise.cu
        let rows = ne[1] * ne[2];
        let row_step = |view: &View| if view.ne[1] > 1 { view.step(1) } else { view.step(2.min(view.ne.len() - 1)) };
        let to = if self.keeps_floats { out.address } else { 0 };
        let params = Params::new().ptr(gate.address).ptr(up.address).ptr(to).ptr(rounded.bytes).ptr(rounded.scales);
        let params = params.n(ne[0]).n(rows).n(row_step(gate)).n(row_step(up)).n(row_step(out));
        let params = params.i32(*activation).f32(floats[0]).f32(floats[1]).done();
        let grid = [blocks(ne[0], 1024), rows as u32, 1];
        Launch { function: self.function, grid, block: 256, shared: 0, params }
    }
}

/// Products of one format over the same activations.
#[derive(Debug, Clone)]
struct Products {
    parts: Vec<Part>,
    x: View,
    rounded: Option<Rounded>,
    unit: Option<Unit>,
    units: u64,
    /// (columns a block, function) of the decode kernels or the exact one, fewest columns first.
    kernels: Vec<(u64, u64)>,
    /// Tiles for long runs.
    tiles: Option<Tiles>,
    /// Plain weights have kernels of their own.
    float: Option<FloatKernels>,
}

/// matmul_float.cu: one column, eight, and four rows by eight.
#[derive(Debug, Clone, Copy)]
struct FloatKernels {
    one: u64,
    eight: u64,
    tile: u64,
}

/// Rows and columns of a tile, work-items, dynamic shared memory, and the fewest tokens of any run that goes to tiles.
#[derive(Debug, Clone, Copy)]
struct TileShape {
    rows: u64,
    columns: u64,
    threads: u32,
    shared: u32,
    least_tokens: u64,
}

/// mmq.h, NVIDIA's tensor cores.
const MMQ: TileShape =
    TileShape { rows: 128, columns: 64, threads: 256, shared: 106_576, least_tokens: MOST_DECODE_TOKENS + 1 };
/// mmt.h, AMD: a tile multiplies all of its columns, so few tokens are better decoded twice.
const MMT: TileShape = TileShape { rows: 64, columns: 64, threads: 256, shared: 0, least_tokens: 17 };

/// A tile kernel.
#[derive(Debug, Clone, Copy)]
struct Tiles {
    function: u64,
    shape: TileShape,
}

/// Runs of more tokens go to the tiles.
const MOST_DECODE_TOKENS: u64 = 8;
/// From so many tokens on large weights go to the tiles too.
const LEAST_TILE_TOKENS: u64 = 4;
/// What counts as large: elements of all weights of a launch.
const LEAST_TILE_WEIGHTS: u64 = 4 << 20;

impl Products {
    /// matmul.h, MatMulArgs.
    fn params(&self, run: &Run, rows: u64) -> Vec<u8> {
        let part = |i: usize| self.parts.get(i);
        let each = |params: Params, value: &dyn Fn(&Part) -> u64| {
            (0..MOST_PARTS).fold(params, |params, i| params.ptr(part(i).map_or(0, value)))
        };
        let [_, t, ..] = self.x.extents(run);
        let mut params = each(Params::new(), &|part| part.w.address);
        for i in 0..MOST_PARTS {
            params = params.ptr(part(i).map_or(0, |part| part.out.address));
        }
        let params = each(params, &|part| part.bias);
        let (bytes, scales) = self.rounded.map_or((0, 0), |rounded| (rounded.bytes, rounded.scales));
        let params = params.ptr(bytes).ptr(scales).ptr(self.x.address).ptr(0).i64(self.parts[0].w.nb[1]);
        let params = (0..MOST_PARTS).fold(params, |params, i| params.n(part(i).map_or(0, |part| part.w.ne[1])));
        let params = params.n(self.parts[0].w.ne[0]).n(t).n(self.x.step(1));
        let params = (0..MOST_PARTS).fold(params, |params, i| params.n(part(i).map_or(0, |part| part.out.step(1))));
        let params = params.n(self.parts.len() as u64).i32(-1).f32(0.0).f32(0.0);
        params.n(rows).i32(i64::from(self.x.dtype == StrataDType::F16)).done()
    }

    fn row_blocks(&self, rows: u64) -> u32 {
        self.parts.iter().map(|part| blocks(part.w.ne[1], rows)).sum()
    }

    /// Whether tiles are the faster form: always for many columns, and for few when the weights are large.
    fn tiles_for(&self, t: u64) -> Option<Tiles> {
        let weights: u64 = self.parts.iter().map(|part| part.w.ne[0] * part.w.ne[1]).sum();
        let few = t >= LEAST_TILE_TOKENS && weights >= LEAST_TILE_WEIGHTS;
        self.tiles
            .filter(|Tiles { shape, .. }| t >= shape.least_tokens || few && shape.least_tokens <= MMQ.least_tokens)
    }

    fn emit(&self, run: &Run, launches: &mut Vec<Launch>) {
        let [k, t, ..] = self.x.extents(run);
        if let Some(float) = self.float {
            let (function, rows, columns) = match t {
                0..=1 => (float.one, 4, 1),
                2..=MOST_DECODE_TOKENS => (float.eight, 4, 8),
                _ => (float.tile, 16, 8),
            };
            let (grid, params) = ([self.row_blocks(rows), blocks(t, columns), 1], self.params(run, rows));
            launches.push(Launch { function, grid, block: 128, shared: 0, params });
        } else if let Some(Tiles { function, shape }) = self.tiles_for(t) {
            let grid = [self.row_blocks(shape.rows), blocks(t, shape.columns), 1];
            let params = self.params(run, shape.rows);
            launches.push(Launch { function, grid, block: shape.threads, shared: shape.shared, params });
        } else {
            let chosen = self.kernels.iter().find(|(columns, _)| *columns >= t).or(self.kernels.last());
            let Some((columns, function)) = chosen.copied() else { return };
            let shared = |rows: u64| 4 * rows * columns * k.div_ceil(256);
            let enough = |rows: u64| u64::from(self.row_blocks(rows)) * t.div_ceil(columns) >= 3 * self.units;
            let fits = |rows: &u64| shared(*rows) <= MOST_PARTIAL && enough(*rows);
            let rows = [16, 8].into_iter().find(fits).unwrap_or(4);
            let grid = [self.row_blocks(rows), blocks(t, columns), 1];
            let params = self.params(run, rows);
            launches.push(Launch { function, grid, block: 128, shared: shared(rows) as u32, params });
        }
        if let (Some(unit), [gate, up, ..]) = (&self.unit, &self.parts[..]) {
            launches.push(unit.launch(run, &gate.out, &up.out));
        }
    }
}

impl<D: Driver> Planner<'_, D> {
    /// What products with this weight round their activations to, if they do.
    pub(super) fn rounding(&self, w: &View, decode: &str) -> Option<Rounding> {
        if self.precise || !w.dtype.is_quantised() {
            return None;
        }
        if halves::takes(w, self.kernels) {
            return Some(Rounding::Halves);
        }
        self.kernels.has(&decode.replace("FORMAT", &format_name(w.dtype))).then_some(Rounding::Bytes)
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
                let as_first = |view: &View| halves::takes(view, self.kernels);
                let alike = other.dtype == w && other.nb[1] == stride;
                let alike = alike && as_first(other) == as_first(self.ops[left[0]].view(1)?);
                if alike && now.len() < MOST_PARTS {
                    now.push(*index);
                }
            }
            left.retain(|index| !now.contains(index));
            let rounding = self.rounding(self.ops[now[0]].view(1)?, "mmv_FORMAT_t1");
            if rounding == Some(Rounding::Halves) {
                self.half_products(&x, &now)?;
            } else {
                self.launch_products(&x, &now)?;
            }
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
        let rounded = match self.rounding(&w, "mmv_FORMAT_t1") {
            Some(_) => Some(self.round(first, x)?),
            None => None,
        };
        // The exact kernels read floats only.
        let mut x = x.clone();
        if rounded.is_none() && x.dtype != StrataDType::F32 {
            x = self.packed(first, &x)?;
        }
        let gate = self.gate_of(members)?;
        let mut parts = Vec::new();
        for index in members {
            let op = &self.ops[*index];
            let bias = op.optional(3).map_or(0, |bias| bias.address);
            parts.push(Part { w: op.view(1)?.clone(), out: op.view(0)?.clone(), bias });
        }
        let unit = match gate.clone() {
            Some((glu, gate)) => Some(self.unit(glu, gate)?),
            None => None,
        };
        let rounds = unit.as_ref().filter(|unit| unit.rounded.is_some()).map(|unit| unit.gate.out.clone());
        let products = Products {
            parts,
            x: x.clone(),
            rounded,
            unit,
            units: self.units(),
            kernels: self.product_kernels(&w, rounded.is_some(), x.ne[1])?,
            tiles: self.tiles(&w, rounded.is_some(), x.ne[1])?,
            float: self.float_kernels(&w)?,
        };
        let mut does = members.to_vec();
        does.extend(gate.map(|(index, _)| index));
        self.push(first, &does, Box::new(move |run, launches| products.emit(run, launches)));
        if let Some(x) = rounds {
            self.mark_ready(&x, Rounding::Bytes);
        }
        Ok(())
    }

    /// The gated unit of op `glu`, rounding for the product behind when that wants it.
    fn unit(&self, glu: usize, gate: Gate) -> Result<Unit> {
        let rounds = gate.out.ne[0].is_multiple_of(32)
            && gate.out.evenly_spaced()
            && self.kernels.has("gated_q8")
            && self.rounded_next(glu, &gate.out) == Some(Rounding::Bytes);
        if !rounds {
            let function = self.kernel("binary")?.function;
            return Ok(Unit { gate, rounded: None, function, keeps_floats: true });
        }
        let function = self.kernel("gated_q8")?.function;
        Ok(Unit { gate, rounded: Some(self.next_rounded()), function, keeps_floats: true })
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

    fn float_kernels(&self, w: &View) -> Result<Option<FloatKernels>> {
        let format = format_name(w.dtype);
        if !self.kernels.has(&format!("mmf_{format}_c1")) {
            return Ok(None);
        }
        let kernel = |form: &str| Ok(self.kernel(&format!("mmf_{format}_{form}"))?.function);
        Ok(Some(FloatKernels { one: kernel("c1")?, eight: kernel("c8")?, tile: kernel("tile")? }))
    }

    /// Tiles, where the plugin has them for this format.
    fn tiles(&self, w: &View, rounded: bool, most_tokens: u64) -> Result<Option<Tiles>> {
        if !rounded || most_tokens < LEAST_TILE_TOKENS {
            return Ok(None);
        }
        self.tile_kernel(["mmq", "mmt"], w)
    }

    /// NVIDIA's or AMD's tile kernel, whichever the plugin has, allowed the shared memory that it needs.
    fn tile_kernel(&self, families: [&str; 2], w: &View) -> Result<Option<Tiles>> {
        for (family, shape) in families.into_iter().zip([MMQ, MMT]) {
            let name = format!("{family}_{}", format_name(w.dtype));
            if !self.kernels.has(&name) {
                continue;
            }
            let function = self.kernel(&name)?.function;
            if shape.shared > 0 {
                let allowed = self.core.driver.allow_shared(function, shape.shared);
                allowed.map_err(|error| self.core.failure(&format!("asking for shared memory for {name}"), &error))?;
            }
            return Ok(Some(Tiles { function, shape }));
        }
        Ok(None)
    }

    /// A gated unit of exactly these two products, whose inputs nobody else reads.
    pub(super) fn gate_of(&self, members: &[usize]) -> Result<Option<(usize, Gate)>> {
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
    /// no reader: what the host reads is written by an op, and not inside a fused one.
    pub(super) fn read_later(&self, view: &View, from: usize) -> bool {
        // Bytes that still hold what lies there now.
        let mut left = vec![(view.address, view.address + view.span())];
        for op in &self.ops[from.min(self.ops.len())..] {
            let touches = |other: &View| {
                let (start, end) = (other.address, other.address + other.span());
                left.iter().any(|(from, to)| *from < end && start < *to)
            };
            if op.operands().any(touches) {
                return true;
            }
            for result in op.results().filter(|result| result.is_dense()) {
                let (start, end) = (result.address, result.address + result.span());
                left = left
                    .iter()
                    .flat_map(|(from, to)| [(*from, (*to).min(start)), ((*from).max(end), *to)])
                    .filter(|(from, to)| from < to)
                    .collect();
            }
            if left.is_empty() {
                return false;
            }
        }
        false
    }

    /// Rounded activations of `x`, made now unless they are there.
    pub(super) fn round(&mut self, op: usize, x: &View) -> Result<Rounded> {
        if let Some(rounded) = self.ready_slot(x, Rounding::Bytes) {
            return Ok(rounded);
        }
        let function = self.kernel("quantise_q8")?.function;
        let (x, rounded) = (x.clone(), self.take_slot(x, Rounding::Bytes));
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

    fn expert_tiles(&self, w: &View, rounded: bool, most_tokens: u64) -> Result<Option<ExpertTiles>> {
        if !rounded || most_tokens <= MOST_DECODE_TOKENS {
            return Ok(None);
        }
        let Some(tiles) = self.tile_kernel(["moeq", "moet"], w)? else { return Ok(None) };
        let (offsets, rows) = self.sizes.sorted_at(self.workspace);
        let sort = self.kernel("moes")?.function;
        Ok(Some(ExpertTiles { sort, tiles, rows, offsets }))
    }

    /// `x` as packed floats in the workspace.
    pub(super) fn packed(&mut self, op: usize, x: &View) -> Result<View> {
        let packed = x.widened(self.sizes.widened_at(self.workspace));
        for ready in &mut self.ready {
            if ready.as_ref().is_some_and(|(ready, _)| ready.overlaps(&packed)) {
                *ready = None;
            }
        }
        let emit = self.copying(packed.clone(), x.clone())?;
        self.push(op, &[], emit);
        Ok(packed)
    }

    /// Products by expert: one alone, or gate and up of a gated unit together.
    pub(super) fn expert_products(&mut self, first: usize) -> Result<()> {
        let op = &self.ops[first];
        let (x, w, ids) = (op.view(2)?.clone(), op.view(1)?.clone(), op.view(3)?.clone());
        let given = x.clone();
        let table = op.optional(4).cloned();
        let second = self.ops.get(first + 1).filter(|other| {
            other.kind == StrataOpKind::ExpertMatMul
                && other.optional(2) == Some(&given)
                && other.optional(3) == Some(&ids)
                && other.optional(4) == table.as_ref()
                && other.optional(1).is_some_and(|v| v.dtype == w.dtype && v.ne == w.ne && v.nb == w.nb)
        });
        let second = second.map(|second| second.index);
        let rounding = self.rounding(&w, "moev_FORMAT");
        if rounding == Some(Rounding::Halves) {
            return self.half_experts(first, second);
        }
        let gate = match second {
            Some(second) => self.gate_between(first, second)?,
            None => None,
        };
        let x = if x.evenly_spaced() { x } else { self.packed(first, &x)? };
        let rounded = match rounding {
            Some(_) => Some(self.round(first, &x)?),
            None => None,
        };
        let family = if rounded.is_some() { "moev" } else { "moex" };
        let function = self.kernel(&format!("{family}_{}", format_name(w.dtype)))?.function;
        let op = &self.ops[first];
        let out = gate.as_ref().map_or(op.view(0)?, |(_, gate)| &gate.out).clone();
        let up = if gate.is_some() { self.ops[first + 1].view(1)?.address } else { 0 };
        let mut does = vec![first];
        if let Some((glu, _)) = &gate {
            does.extend([first + 1, *glu]);
        }
        let apart = match &gate {
            Some(_) => Some([self.ops[first].view(0)?.clone(), self.ops[first + 1].view(0)?.clone()]),
            None => None,
        };
        let tiles = self.expert_tiles(&w, rounded.is_some(), ids.ne[1])?;
        let unit = match gate.clone() {
            Some((glu, gate)) => Some(self.unit(glu, gate)?),
            None => None,
        };
        let rounds = unit.as_ref().filter(|unit| unit.rounded.is_some()).map(|unit| unit.gate.out.clone());
        let experts = Experts {
            w,
            up,
            x,
            ids,
            table: table.map(|table| (table.address, table.ne[0])),
            out,
            rounded,
            unit,
            units: self.units(),
            function,
            tiles,
            apart,
        };
        self.push(first, &does, Box::new(move |run, launches| experts.emit(run, launches)));
        // Long runs put their own slots in order there.
        self.sorted = None;
        if let Some(x) = rounds {
            self.mark_ready(&x, Rounding::Bytes);
        }
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
    unit: Option<Unit>,
    units: u64,
    function: u64,
    tiles: Option<ExpertTiles>,
    /// Results of gate and up before the unit.
    apart: Option<[View; 2]>,
}

/// Long runs by expert: slots are sorted, tiles compute gate and up apart.
#[derive(Debug, Clone)]
struct ExpertTiles {
    sort: u64,
    tiles: Tiles,
    /// Where the sorted slots go, and where each expert's begin.
    rows: u64,
    offsets: u64,
}

impl Experts {
    /// matmul.h, ExpertArgs.
    fn emit(&self, run: &Run, launches: &mut Vec<Launch>) {
        let [k, t, ..] = self.ids.extents(run);
        let (m, width) = (self.w.ne[1], self.w.ne[0]);
        let slots = k * t;
        if let Some(tiles) = self.tiles.as_ref().filter(|_| t > MOST_DECODE_TOKENS) {
            return self.emit_tiles(tiles, run, launches);
        }
        let shared = |rows: u64| 4 * rows * width.div_ceil(256);
        let enough = |rows: u64| m.div_ceil(rows) * slots >= 3 * self.units;
        let rows = [16, 8].into_iter().find(|rows| shared(*rows) <= MOST_PARTIAL && enough(*rows)).unwrap_or(4);
        let grid = [blocks(m, rows), slots as u32, 1];
        let (function, shared) = (self.function, shared(rows) as u32);
        self.each(run, launches, |w, out| {
            let params = self.params(run, w, out, rows, [0, 0]);
            Launch { function, grid, block: 128, shared, params }
        });
    }

    /// One launch, or those of gate and up and the unit behind them.
    fn each(&self, run: &Run, launches: &mut Vec<Launch>, launch: impl Fn(u64, &View) -> Launch) {
        match (&self.unit, &self.apart) {
            (Some(unit), Some([gate, up])) => {
                launches.push(launch(self.w.address, gate));
                launches.push(launch(self.up, up));
                launches.push(unit.launch(run, gate, up));
            }
            _ => launches.push(launch(self.w.address, &self.out)),
        }
    }
}

impl Experts {
    fn params(&self, run: &Run, w: u64, out: &View, rows: u64, [sorted, offsets]: [u64; 2]) -> Vec<u8> {
        let [k, t, ..] = self.ids.extents(run);
        let (bytes, scales) = self.rounded.map_or((0, 0), |rounded| (rounded.bytes, rounded.scales));
        let per_slot = self.x.ne[1] > 1;
        let x_stride = if per_slot { self.x.step(1) } else { self.x.step(2) };
        let (table, n_experts) = self.table.unwrap_or((0, self.w.ne[2]));
        let params = Params::new().ptr(w).ptr(0).ptr(out.address).ptr(bytes).ptr(scales);
        let params = params.ptr(self.x.address).ptr(self.ids.address).ptr(table).ptr(sorted).ptr(offsets);
        let params = params.i64(self.w.nb[1]).i64(self.w.nb[2]).n(self.w.ne[1]).n(self.w.ne[0]).n(k).n(t);
        let params = params.i32(i64::from(per_slot)).n(n_experts).i32(-1).f32(0.0).f32(0.0);
        params.n(rows).n(x_stride).n(out.step(1)).done()
    }

    /// moe.cu `moes`, mmq.cu `moeq_*` or mmt.cu `moet_*`.
    fn emit_tiles(&self, tiles: &ExpertTiles, run: &Run, launches: &mut Vec<Launch>) {
        let [k, t, ..] = self.ids.extents(run);
        let slots = k * t;
        let (table, n_experts) = self.table.unwrap_or((0, self.w.ne[2]));
        let params = Params::new().ptr(self.ids.address).ptr(table).ptr(tiles.offsets).ptr(tiles.rows);
        let params = params.n(slots).n(n_experts).done();
        let shared = 4 * (n_experts as u32 + 1);
        launches.push(Launch { function: tiles.sort, grid: [1, 1, 1], block: 1024, shared, params });
        // No more tiles than if each expert's last were nearly empty.
        let Tiles { function, shape } = tiles.tiles;
        let n_tiles = slots.div_ceil(shape.columns) + n_experts.min(slots);
        let grid = [blocks(self.w.ne[1], shape.rows), n_tiles as u32, 1];
        self.each(run, launches, |w, out| {
            let params = self.params(run, w, out, shape.rows, [tiles.rows, tiles.offsets]);
            Launch { function, grid, block: shape.threads, shared: shape.shared, params }
        });
    }
}

impl PlanOp {
    /// Whether the op rounds its activations when products with `w` do, so that a fused norm can do it.
    pub(super) fn activations(&self) -> Option<&View> {
        matches!(self.kind, StrataOpKind::MatMul | StrataOpKind::ExpertMatMul).then(|| self.optional(2)).flatten()
    }
}
