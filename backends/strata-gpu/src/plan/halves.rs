//! Products over halves (`halves.h`): NVIDIA's tensor cores for one column as for thousands, with the
//! same bits. Which formats have them is asked of the kernel table, so other vendors plan without.

use strata_backend_sdk::Result;
use strata_backend_sdk::abi::{StrataDType, StrataOpKind};

use super::ops::Elements;
use super::product::{Gate, Part};
use super::{Launch, PlanOp, Planner, Rounded, Rounding, blocks, format_name};
use crate::driver::Driver;
use crate::kernels::KernelTable;
use crate::params::Params;
use crate::view::{Run, View};

/// `RECORD` of halves.h: 256 activations.
pub(crate) const RECORD_BYTES: u64 = 576;
/// `GROUP` of halves.h: the same of eight rows, for warpgroups.
const GROUP_BYTES: u64 = 4480;
/// hmw.h
const WARPGROUP_THREADS: u32 = 384;
/// Weights that one launch can take.
const MOST_PARTS: usize = 3;
/// Columns of a decode block.
const DECODE_COLUMNS: u64 = 8;
/// Runs of more tokens go to the tiles; experts' slots are sorted for that.
const MOST_DECODE_TOKENS: u64 = 16;
const TILE_ROWS: u64 = 128;
const TILE_THREADS: u32 = 256;
/// `MOST_STAGES` of hmv.h.
const MOST_STAGES: u64 = 4;
/// What a decode block of 128 and of 256 work-items may fetch into, bytes, so that several fit a multiprocessor.
const MOST_ROOM: [u64; 2] = [50 << 10, 100 << 10];
/// Blocks a multiprocessor that take tile after tile.
const LASTING_BLOCKS: u64 = 4;
/// What the kernels have of shared memory beside the dynamic part, at most.
const STATIC_SHARED: u32 = 512;

/// A format as halves.h has it: bytes of a chunk of 256, its alignment, and `SLOT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) chunk: u64,
    pub(crate) align: u64,
    pub(crate) slot: u64,
}

pub(crate) fn format_of(dtype: StrataDType) -> Option<Format> {
    match dtype {
        StrataDType::Q4K => Some(Format { chunk: 144, align: 16, slot: 192 }),
        StrataDType::Q5K => Some(Format { chunk: 176, align: 16, slot: 192 }),
        StrataDType::Q6K => Some(Format { chunk: 210, align: 2, slot: 240 }),
        StrataDType::Q8_0 => Some(Format { chunk: 272, align: 2, slot: 288 }),
        _ => None,
    }
}

/// Whether products with this weight go over halves.
pub(crate) fn takes(w: &View, kernels: &KernelTable) -> bool {
    let Some(format) = format_of(w.dtype) else { return false };
    let lies_well = [w.address, w.nb[1], w.nb[2]].iter().all(|at| at.is_multiple_of(format.align));
    w.ne[0].is_multiple_of(256) && lies_well && kernels.has(&format!("hmv_{}", format_name(w.dtype)))
}

/// Where a decode block keeps what it fetches.
#[derive(Debug, Clone, Copy)]
struct Geometry {
    block: u32,
    n_blocks: u64,
    group: u64,
    n_stages: u64,
    row_bytes: u64,
    shared: u32,
}

impl Format {
    /// For `n_tiles` tiles of which each has `slots` times `chunks` chunks for `columns` columns. Where tiles may
    /// last (hmv), many are taken by fewer blocks one after another, so that fetching goes on over a tile's end.
    fn geometry(self, n_tiles: u64, (slots, lasts): (u64, bool), chunks: u64, columns: u64, units: u64) -> Geometry {
        let lasting = lasts && n_tiles >= 4 * units;
        let wide = n_tiles < 4 * units && slots * chunks > 4;
        let (n_warps, most) = if wide { (8, MOST_ROOM[1]) } else { (4, MOST_ROOM[0]) };
        let row_bytes = |group: u64| {
            let odd = if self.align < 16 { 16 } else { 0 };
            // An odd number of 64 bytes: eight rows by 64 bytes touch every bank once.
            let pieces = (group * self.chunk + odd).div_ceil(64);
            64 * (pieces + 1 - pieces % 2)
        };
        let fits = |group: u64, n_stages: u64| n_warps * n_stages * 16 * row_bytes(group) <= most;
        let rounds = |group: u64| (slots * chunks.div_ceil(group)).div_ceil(n_warps);
        // Two stages where there is more than one round; of blocks that last the others fetch meanwhile.
        let wanted = |group: u64| if lasting { 1 } else { rounds(group).min(2) };
        let share = (slots * chunks).div_ceil(n_warps).min(chunks).clamp(1, 4);
        let group = (1..=share).rev().find(|group| fits(*group, wanted(*group))).unwrap_or(1);
        let most_stages = if lasting { MOST_STAGES } else { rounds(group).min(MOST_STAGES) };
        let n_stages = (1..=most_stages).rev().find(|n| fits(group, *n)).unwrap_or(1);
        let row_bytes = row_bytes(group);
        // A block's sums; two tiles' worth where one block may take several.
        let sums = 64 * slots * chunks * columns * if lasts { 2 } else { 1 };
        let shared = n_warps * n_stages * 16 * row_bytes + sums;
        let n_blocks = if lasting { n_tiles.min(LASTING_BLOCKS * units) } else { n_tiles };
        Geometry { block: 32 * n_warps as u32, n_blocks, group, n_stages, row_bytes, shared: shared as u32 }
    }

    fn tile_shared(self, columns: u64) -> u32 {
        (2 * (columns * RECORD_BYTES + TILE_ROWS * self.slot) + 1024) as u32
    }

    fn warpgroup_shared(self) -> u32 {
        (2 * (16 * GROUP_BYTES + TILE_ROWS * self.slot) + 1024) as u32
    }
}

/// Tiles of 128 and of 64 columns, or those of warpgroups, which read activations by groups of eight rows.
#[derive(Debug, Clone, Copy)]
struct Tiles {
    by_columns: [u64; 2],
    by_warpgroups: Option<u64>,
}

/// A tile kernel and its launch.
#[derive(Debug, Clone, Copy)]
struct Tile {
    columns: u64,
    function: u64,
    block: u32,
    shared: u32,
}

impl Tiles {
    /// The wide ones when they still give every multiprocessor something.
    fn choose(self, format: Format, row_tiles: u64, columns: u64, units: u64) -> Tile {
        if let Some(function) = self.by_warpgroups {
            return Tile { columns: 128, function, block: WARPGROUP_THREADS, shared: format.warpgroup_shared() };
        }
        let wide = row_tiles * columns.div_ceil(128) >= units && columns > 64;
        let (columns, function) = if wide { (128, self.by_columns[0]) } else { (64, self.by_columns[1]) };
        Tile { columns, function, block: TILE_THREADS, shared: format.tile_shared(columns) }
    }
}

/// halves.cu: the records of rows, alone or behind a gated unit.
#[derive(Debug, Clone)]
struct Recording {
    function: u64,
    records: u64,
    /// The activation and its parameters, and where the floats go.
    act: i64,
    floats: [f32; 2],
    out: u64,
}

impl Recording {
    /// HalvesArgs.
    fn launch(&self, run: &Run, x: &View, up: Option<&View>, grouped: bool) -> Launch {
        let [k, n1, n2, _] = x.extents(run);
        let rows = n1 * n2;
        let stride = row_step(x);
        let params = Params::new().ptr(x.address).ptr(up.map_or(0, |up| up.address)).ptr(self.out).ptr(self.records);
        let params = params.n(k).n(rows).n(stride).n(up.map_or(stride, row_step)).n(stride);
        let params = params.i32(self.act).f32(self.floats[0]).f32(self.floats[1]);
        let params = params.i32(i64::from(grouped)).done();
        let grid = [blocks(k, 2048), rows as u32, 1];
        Launch { function: self.function, grid, block: 256, shared: 0, params }
    }
}

/// Whether the records of a run of `t` tokens lie by groups of eight rows.
pub(super) fn grouped(can_group: bool, t: u64) -> bool {
    can_group && t > MOST_DECODE_TOKENS
}

/// The same of `t` packed rows of `k` floats.
pub(super) fn recording(function: u64, records: u64, x: u64, [k, t]: [u64; 2], can_group: bool) -> Launch {
    let params = Params::new().ptr(x).ptr(0).ptr(0).ptr(records).n(k).n(t).n(k).n(k).n(k);
    let params = params.i32(-1).f32(0.0).f32(0.0).i32(i64::from(grouped(can_group, t))).done();
    Launch { function, grid: [blocks(k, 2048), t as u32, 1], block: 256, shared: 0, params }
}

/// Elements from one row to the next of evenly spaced rows.
fn row_step(x: &View) -> u64 {
    x.step(if x.ne[1] > 1 { 1 } else { 2 })
}

/// A gated unit behind its two products.
#[derive(Debug, Clone)]
struct Unit {
    gate: Gate,
    /// Its result as records, when the product behind wants them so: over floats, and over gate and up.
    records: Option<[Recording; 2]>,
    /// elementwise.cu
    plain: u64,
    can_group: bool,
}

impl Unit {
    fn behind(&self, run: &Run, gate: &View, up: &View) -> Launch {
        if let Some([_, both]) = &self.records {
            return both.launch(run, gate, Some(up), self.can_group);
        }
        let Gate { activation, floats, out } = &self.gate;
        let ne = out.extents(run);
        Elements { out, a: gate, b: Some(up), ne, which: 2 + activation, floats: *floats }.launch(self.plain)
    }
}

/// What counts as a token of activations when it is chosen between the forms of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tokens {
    Rows,
    /// The third dimension: rows are slots of tokens.
    Third,
}

/// Products of one format over the same activations.
#[derive(Debug, Clone)]
struct HalfProducts {
    parts: Vec<Part>,
    format: Format,
    x: View,
    records: u64,
    unit: Option<Unit>,
    units: u64,
    decode: u64,
    tiles: Tiles,
}

impl HalfProducts {
    /// hmv.h, HalfArgs.
    fn params(&self, run: &Run, out: Option<&View>, act: i64, floats: [f32; 2], geometry: [u64; 3]) -> Vec<u8> {
        let part = |i: usize| self.parts.get(i);
        let [k, n1, n2, _] = self.x.extents(run);
        let out_of =
            |i: usize| if i == 0 { out.or(part(0).map(|part| &part.out)) } else { part(i).map(|part| &part.out) };
        let each = 0..MOST_PARTS;
        let params = each.clone().fold(Params::new(), |params, i| params.ptr(part(i).map_or(0, |part| part.w.address)));
        let params = each.clone().fold(params, |params, i| params.ptr(out_of(i).map_or(0, |out| out.address)));
        let params = each.clone().fold(params, |params, i| params.ptr(part(i).map_or(0, |part| part.bias)));
        let params = params.ptr(self.records).ptr(0).i64(self.parts[0].w.nb[1]);
        let params = each.clone().fold(params, |params, i| params.n(part(i).map_or(0, |part| part.w.ne[1])));
        let params = params.n(k).n(n1 * n2);
        let params = each.fold(params, |params, i| params.n(out_of(i).map_or(0, |out| out.step(1))));
        let params = params.n(self.parts.len() as u64).i32(act).f32(floats[0]).f32(floats[1]);
        geometry.iter().fold(params, |params, value| params.n(*value)).done()
    }

    fn emit(&self, run: &Run, launches: &mut Vec<Launch>) {
        let [k, n1, n2, _] = self.x.extents(run);
        let t = n1 * n2;
        let row_blocks = |rows: u64| self.parts.iter().map(|part| part.w.ne[1].div_ceil(rows)).sum::<u64>();
        if t > MOST_DECODE_TOKENS {
            let tile = self.tiles.choose(self.format, row_blocks(TILE_ROWS), t, self.units);
            let grid = [row_blocks(TILE_ROWS) as u32, blocks(t, tile.columns), 1];
            let params = self.params(run, None, -1, [0.0; 2], [0; 3]);
            launches.push(Launch { function: tile.function, grid, block: tile.block, shared: tile.shared, params });
            if let (Some(unit), [gate, up, ..]) = (&self.unit, &self.parts[..]) {
                launches.push(unit.behind(run, &gate.out, &up.out));
            }
            return;
        }
        let (n_rows, out, act, floats) = match &self.unit {
            Some(unit) => {
                (self.parts[0].w.ne[1].div_ceil(8), Some(&unit.gate.out), unit.gate.activation, unit.gate.floats)
            }
            None => (row_blocks(16), None, -1, [0.0; 2]),
        };
        let groups = t.div_ceil(DECODE_COLUMNS);
        let shape =
            self.format.geometry(n_rows, (1, true), k / 256, t.min(DECODE_COLUMNS), self.units.div_ceil(groups));
        let params = self.params(run, out, act, floats, [shape.group, shape.n_stages, shape.row_bytes]);
        let (grid, shared) = ([shape.n_blocks as u32, groups as u32, 1], shape.shared);
        launches.push(Launch { function: self.decode, grid, block: shape.block, shared, params });
        if let Some(Unit { gate, records: Some([alone, _]), .. }) = &self.unit {
            launches.push(alone.launch(run, &gate.out, None, false));
        }
    }
}

impl<D: Driver> Planner<'_, D> {
    /// Records of `x`, made now unless they are there.
    /// `tokens` are counted in this dimension of `x`, or in both.
    fn record(&mut self, op: usize, x: &View, tokens: Tokens) -> Result<Rounded> {
        if let Some(rounded) = self.ready_slot(x, Rounding::Halves) {
            return Ok(rounded);
        }
        let (function, can_group) = (self.kernel("halves_round")?.function, self.groups());
        let (x, rounded) = (x.clone(), self.take_slot(x, Rounding::Halves));
        let recording = Recording { function, records: rounded.bytes, act: -1, floats: [0.0; 2], out: 0 };
        let emit = move |run: &Run, launches: &mut Vec<Launch>| {
            let [_, n1, n2, _] = x.extents(run);
            let t = if tokens == Tokens::Rows { n1 * n2 } else { n2 };
            launches.push(recording.launch(run, &x, None, grouped(can_group, t)));
        };
        self.push(op, &[], Box::new(emit));
        Ok(rounded)
    }

    /// `x` as the recording kernels read it: floats in evenly spaced rows at multiples of 16 bytes.
    fn recordable(&mut self, op: usize, x: &View) -> Result<View> {
        if x.dtype == StrataDType::F32 && x.evenly_spaced() && x.aligned() { Ok(x.clone()) } else { self.packed(op, x) }
    }

    /// The gated unit of op `glu`.
    fn half_unit(&self, glu: usize, gate: Gate) -> Result<Unit> {
        let (plain, can_group) = (self.kernel("binary")?.function, self.groups());
        let [first, second] = [&self.ops[glu].view(1)?, &self.ops[glu].view(2)?].map(|view| view.aligned());
        let fits = gate.out.ne[0].is_multiple_of(256) && gate.out.evenly_spaced() && gate.out.aligned();
        let wanted = fits && first && second && self.rounded_next(glu, &gate.out) == Some(Rounding::Halves);
        if !wanted {
            return Ok(Unit { gate, records: None, plain, can_group });
        }
        let records = self.next_rounded().bytes;
        let alone =
            Recording { function: self.kernel("halves_round")?.function, records, act: -1, floats: [0.0; 2], out: 0 };
        let both = Recording {
            function: self.kernel("halves_gated")?.function,
            records,
            act: gate.activation,
            floats: gate.floats,
            // The next op is the one that the records are for; floats are for others.
            out: if self.read_later(&gate.out, glu + 2) { gate.out.address } else { 0 },
        };
        Ok(Unit { gate, records: Some([alone, both]), plain, can_group })
    }

    /// A kernel that may have all the shared memory there is.
    fn roomy(&self, name: &str) -> Result<u64> {
        let function = self.kernel(name)?.function;
        let most = self.core.driver.card().most_shared.saturating_sub(STATIC_SHARED);
        let allowed = self.core.driver.allow_shared(function, most);
        allowed.map_err(|error| self.core.failure(&format!("asking for shared memory for {name}"), &error))?;
        Ok(function)
    }

    /// Whether long runs go to warpgroups, which take their records by groups.
    pub(super) fn groups(&self) -> bool {
        self.kernels.has("hmw_q4_k")
    }

    fn half_tiles(&self, columns: &str, warpgroups: &str, name: &str) -> Result<Tiles> {
        let by_columns = [self.roomy(&format!("{columns}_{name}"))?, self.roomy(&format!("{columns}_{name}_64"))?];
        let by_warpgroups = if self.groups() { Some(self.roomy(&format!("{warpgroups}_{name}"))?) } else { None };
        Ok(Tiles { by_columns, by_warpgroups })
    }

    /// Products `members` over `x`, which all go over halves and have one format.
    pub(super) fn half_products(&mut self, x: &View, members: &[usize]) -> Result<()> {
        let first = members[0];
        let w = self.ops[first].view(1)?.clone();
        let x = self.recordable(first, x)?;
        let records = self.record(first, &x, Tokens::Rows)?.bytes;
        let unit = match self.gate_of(members)? {
            Some((glu, gate)) => Some((glu, self.half_unit(glu, gate)?)),
            None => None,
        };
        let mut parts = Vec::new();
        for index in members {
            parts.push(Part::of(&self.ops[*index])?);
        }
        let name = format_name(w.dtype);
        let products = HalfProducts {
            parts,
            format: format_of(w.dtype).ok_or_else(|| strata_backend_sdk::Failure::internal("a format of halves"))?,
            x,
            records,
            unit: unit.as_ref().map(|(_, unit)| unit.clone()),
            units: self.units(),
            decode: self.roomy(&format!("hmv_{name}"))?,
            tiles: self.half_tiles("hmm", "hmw", &name)?,
        };
        let mut does = members.to_vec();
        does.extend(unit.as_ref().map(|(glu, _)| *glu));
        self.push(first, &does, Box::new(move |run, launches| products.emit(run, launches)));
        if let Some((_, Unit { gate, records: Some(_), .. })) = unit {
            self.mark_ready(&gate.out, Rounding::Halves);
        }
        Ok(())
    }
}

/// Products by expert.
#[derive(Debug, Clone)]
struct HalfExperts {
    w: View,
    up: u64,
    format: Format,
    x: View,
    ids: View,
    /// Address and length.
    table: Option<(u64, u64)>,
    out: View,
    records: u64,
    unit: Option<Unit>,
    /// Results of gate and up before the unit.
    apart: Option<[View; 2]>,
    /// ExpertCombine right behind: weights, result, and the kernels with and without the product.
    combine: Option<Combine>,
    units: u64,
    decode: u64,
    tiles: Tiles,
    sort: u64,
    /// The slots are in order already.
    sorted: bool,
    /// Where each expert's slots begin, and the slots.
    offsets: u64,
    rows: u64,
}

#[derive(Debug, Clone)]
struct Combine {
    weights: View,
    out: View,
    /// hmv.h `hmoec`, route.cu `combine`.
    with_product: u64,
    alone: u64,
}

impl HalfExperts {
    /// hmv.h, HalfExpertArgs.
    fn params(&self, run: &Run, [w, up]: [u64; 2], out: &View, act: (i64, [f32; 2]), geometry: [u64; 3]) -> Vec<u8> {
        let [used, t, ..] = self.ids.extents(run);
        let per_slot = self.x.ne[1] > 1;
        let (table, n_experts) = self.table.unwrap_or((0, self.w.ne[2]));
        let weights = self.combine.as_ref().map(|combine| &combine.weights);
        let params = Params::new().ptr(w).ptr(up).ptr(out.address).ptr(self.records).ptr(self.ids.address);
        let params = params.ptr(table).ptr(self.rows).ptr(self.offsets).ptr(weights.map_or(0, |view| view.address));
        let params = params.i64(self.w.nb[1]).i64(self.w.nb[2]).i64(weights.map_or(0, |view| view.nb[1]));
        let params = params.n(self.w.ne[1]).n(self.w.ne[0]).n(used).n(if per_slot { used * t } else { t });
        let params = params.i32(i64::from(per_slot)).n(used * t).n(n_experts);
        let params = params.i32(act.0).f32(act.1[0]).f32(act.1[1]).n(out.step(1));
        geometry.iter().fold(params, |params, value| params.n(*value)).done()
    }

    fn emit(&self, run: &Run, launches: &mut Vec<Launch>) {
        let [used, t, ..] = self.ids.extents(run);
        if t > MOST_DECODE_TOKENS {
            return self.emit_tiles(run, launches);
        }
        let (m, chunks) = (self.w.ne[1], self.w.ne[0] / 256);
        if let Some(combine) = &self.combine {
            let n_rows = m.div_ceil(16);
            let shape = self.format.geometry(n_rows * t, (used, false), chunks, 1, self.units);
            let geometry = [shape.group, shape.n_stages, shape.row_bytes];
            let params = self.params(run, [self.w.address, 0], &combine.out, (-1, [0.0; 2]), geometry);
            let (grid, shared) = ([n_rows as u32, t as u32, 1], shape.shared);
            launches.push(Launch { function: combine.with_product, grid, block: shape.block, shared, params });
            return;
        }
        let (n_rows, out, act) = match &self.unit {
            Some(unit) => (m.div_ceil(8), &unit.gate.out, (unit.gate.activation, unit.gate.floats)),
            None => (m.div_ceil(16), &self.out, (-1, [0.0; 2])),
        };
        let shape = self.format.geometry(n_rows * used * t, (1, false), chunks, 1, self.units);
        let geometry = [shape.group, shape.n_stages, shape.row_bytes];
        let params = self.params(run, [self.w.address, self.up], out, act, geometry);
        let (grid, shared) = ([n_rows as u32, (used * t) as u32, 1], shape.shared);
        launches.push(Launch { function: self.decode, grid, block: shape.block, shared, params });
        if let Some(Unit { gate, records: Some([alone, _]), .. }) = &self.unit {
            launches.push(alone.launch(run, &gate.out, None, false));
        }
    }

    /// moe.cu `moes`, hmm.h `hmoem_*`.
    fn emit_tiles(&self, run: &Run, launches: &mut Vec<Launch>) {
        let [used, t, ..] = self.ids.extents(run);
        let slots = used * t;
        let (table, n_experts) = self.table.unwrap_or((0, self.w.ne[2]));
        if !self.sorted {
            let params = Params::new().ptr(self.ids.address).ptr(table).ptr(self.offsets).ptr(self.rows);
            let params = params.n(slots).n(n_experts).done();
            let shared = 4 * (n_experts as u32 + 1);
            launches.push(Launch { function: self.sort, grid: [1, 1, 1], block: 1024, shared, params });
        }
        let per_expert = slots.div_ceil(n_experts.max(1));
        let tile = self.tiles.choose(self.format, 1, per_expert, per_expert.div_ceil(192));
        let n_tiles = slots.div_ceil(tile.columns) + n_experts.min(slots);
        let grid = [blocks(self.w.ne[1], TILE_ROWS), n_tiles as u32, 1];
        let mut product = |w: u64, out: &View| {
            let params = self.params(run, [w, 0], out, (-1, [0.0; 2]), [0; 3]);
            launches.push(Launch { function: tile.function, grid, block: tile.block, shared: tile.shared, params });
        };
        match (&self.unit, &self.apart) {
            (Some(unit), Some([gate, up])) => {
                product(self.w.address, gate);
                product(self.up, up);
                launches.push(unit.behind(run, gate, up));
            }
            _ => product(self.w.address, &self.out),
        }
        if let Some(combine) = &self.combine {
            launches.push(super::ops::combining(combine.alone, &combine.out, &self.out, &combine.weights, run));
        }
    }
}

impl<D: Driver> Planner<'_, D> {
    /// The `ExpertCombine` right behind op `index` that alone reads its result.
    fn combine_behind(&self, index: usize, name: &str) -> Result<Option<(usize, Combine)>> {
        let next = self.ops.get(index + 1).filter(|op| op.kind == StrataOpKind::ExpertCombine && !self.done[index + 1]);
        let Some(next) = next else { return Ok(None) };
        let (out, x, weights) = (next.view(0)?, next.view(1)?, next.view(2)?);
        if x != self.ops[index].view(0)? || self.read_later(x, index + 2) || out.overlaps(x) {
            return Ok(None);
        }
        let combine = Combine {
            weights: weights.clone(),
            out: out.clone(),
            with_product: self.roomy(&format!("hmoec_{name}"))?,
            alone: self.kernel("combine")?.function,
        };
        Ok(Some((index + 1, combine)))
    }

    /// Products by expert at `first`, with its partner of a gated unit or the combination behind.
    pub(super) fn half_experts(&mut self, first: usize, second: Option<usize>) -> Result<()> {
        let op = &self.ops[first];
        let (x, w, ids) = (op.view(2)?.clone(), op.view(1)?.clone(), op.view(3)?.clone());
        let table = op.optional(4).map(|table| (table.address, table.ne[0]));
        let name = format_name(w.dtype);
        let gate = match second {
            Some(second) => self.gate_between(first, second)?,
            None => None,
        };
        let x = self.recordable(first, &x)?;
        let records = self.record(first, &x, Tokens::Third)?.bytes;
        let unit = match gate {
            Some((glu, gate)) => Some((glu, self.half_unit(glu, gate)?)),
            None => None,
        };
        let combine = if unit.is_none() { self.combine_behind(first, &name)? } else { None };
        let mut does = vec![first];
        if let Some((glu, _)) = &unit {
            does.extend([first + 1, *glu]);
        }
        does.extend(combine.as_ref().map(|(index, _)| *index));
        let (offsets, rows) = self.sizes.sorted_at(self.workspace);
        let experts = HalfExperts {
            up: if unit.is_some() { self.ops[first + 1].view(1)?.address } else { 0 },
            format: format_of(w.dtype).ok_or_else(|| strata_backend_sdk::Failure::internal("a format of halves"))?,
            out: self.ops[first].view(0)?.clone(),
            apart: match &unit {
                Some(_) => Some([self.ops[first].view(0)?.clone(), self.ops[first + 1].view(0)?.clone()]),
                None => None,
            },
            x,
            records,
            unit: unit.as_ref().map(|(_, unit)| unit.clone()),
            combine: combine.map(|(_, combine)| combine),
            units: self.units(),
            decode: self.roomy(&format!("hmoev_{name}"))?,
            tiles: self.half_tiles("hmoem", "hmoew", &name)?,
            sort: self.kernel("moes")?.function,
            sorted: self.sorted.as_ref() == Some(&(ids.clone(), table)),
            offsets,
            rows,
            w,
            ids: ids.clone(),
            table,
        };
        self.push(first, &does, Box::new(move |run, launches| experts.emit(run, launches)));
        self.sorted = Some((ids, table));
        if let Some((_, Unit { gate, records: Some(_), .. })) = unit {
            self.mark_ready(&gate.out, Rounding::Halves);
        }
        Ok(())
    }
}

impl Part {
    fn of(op: &PlanOp) -> Result<Part> {
        let bias = op.optional(3).map_or(0, |bias| bias.address);
        Ok(Part { w: op.view(1)?.clone(), out: op.view(0)?.clone(), bias })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The constants of a format in halves.h.
    fn declared(name: &str) -> Format {
        let header = include_str!("../../../kernels/halves.h");
        let body = header.split_once(&format!("struct H{name} {{")).expect("the struct").1;
        let value = |constant: &str| {
            let rest = body.split_once(&format!("{constant} = ")).expect("a constant").1;
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().expect("a number")
        };
        Format { chunk: value("BYTES"), align: value("ALIGN"), slot: value("SLOT") }
    }

    #[test]
    fn formats_are_those_of_the_kernels() {
        for dtype in [StrataDType::Q4K, StrataDType::Q5K, StrataDType::Q6K, StrataDType::Q8_0] {
            assert_eq!(format_of(dtype), Some(declared(dtype.name())), "{dtype}");
        }
        for constant in [format!("RECORD = {RECORD_BYTES},"), format!("GROUP = {GROUP_BYTES},")] {
            assert!(include_str!("../../../kernels/halves.h").contains(&constant), "{constant}");
        }
    }

    #[test]
    fn decode_blocks_fit_and_cover_their_chunks() {
        for format in ["Q4_K", "Q5_K", "Q6_K", "Q8_0"].map(declared) {
            for (slots, chunks) in [(1, 1), (1, 4), (1, 16), (1, 48), (1, 112), (8, 3), (4, 1), (6, 8)] {
                for n_blocks in [64, 256, 1536] {
                    let shape = format.geometry(n_blocks, (slots, slots == 1), chunks, 8, 132);
                    assert!(shape.shared <= 227 << 10, "{format:?} {slots} {chunks}: {shape:?}");
                    assert!(shape.row_bytes >= shape.group * format.chunk + if format.align < 16 { 15 } else { 0 });
                    assert!((1..=MOST_STAGES).contains(&shape.n_stages) && shape.group >= 1, "{shape:?}");
                }
            }
        }
    }
}
