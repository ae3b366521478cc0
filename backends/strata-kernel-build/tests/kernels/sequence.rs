//! Position and cache: sequence.cu.

use crate::host::{Args, Host, Launch, Rng, Room};

const UNIT: f64 = 1.0 / 16_777_216.0;
const TOKENS: usize = 3;

pub(crate) fn test(host: &mut Host) {
    for (d, rotated, style) in [(64, 64, 1), (80, 32, 0), (128, 128, 0), (96, 24, 1), (34, 34, 1)] {
        rope(host, d, rotated, style);
    }
    for (d, kind, bits) in [(64, 1, 4), (100, 0, 3), (77, 30, 5), (1, 1, 0)] {
        store(host, d, kind, bits);
    }
    for (d, dv, rotated, style, kind, normed) in
        [(64, 64, 64, 1, 1, true), (96, 40, 24, 0, 0, false), (512, 512, 128, 1, 30, true), (34, 7, 34, 0, 1, true)]
    {
        heads(host, &Heads { d, dv, rotated, style, kind, normed });
    }
}

/// (cos, sin) by row and pair, with a gap behind each row.
struct Angles {
    room: Room,
    values: Vec<f32>,
    rows: Vec<i32>,
    rows_room: Room,
    pairs: usize,
}

impl Angles {
    fn new(rotated: usize, rng: &mut Rng) -> Angles {
        let pairs = rotated / 2;
        let values = rng.units((2 * pairs + 1) * 5, 1.0);
        let rows = vec![4, 0, 2];
        Angles { room: Room::of_f32(&values), values, rows_room: Room::of_i32(&rows), rows, pairs }
    }

    fn nb(&self) -> [usize; 2] {
        [8, (2 * self.pairs + 1) * 4]
    }

    fn pair(&self, t: usize, i: usize) -> (f64, f64) {
        let at = self.rows[t] as usize * (2 * self.pairs + 1) + 2 * i;
        (f64::from(self.values[at]), f64::from(self.values[at + 1]))
    }

    /// A head after rotation.
    fn rotate(&self, x: &[f64], t: usize, rotated: usize, style: i32) -> Vec<f64> {
        let mut out = x.to_vec();
        for i in 0..rotated / 2 {
            let (c, s) = self.pair(t, i);
            let (a, b) = if style == 0 { (2 * i, 2 * i + 1) } else { (i, i + rotated / 2) };
            out[a] = x[a] * c - x[b] * s;
            out[b] = x[a] * s + x[b] * c;
        }
        out
    }
}

fn rope(host: &mut Host, d: usize, rotated: usize, style: i32) {
    const HEADS: usize = 3;
    let mut rng = Rng::new(&format!("rope {d}"));
    let angles = Angles::new(rotated, &mut rng);
    let (x_head, x_token, out_head) = (d + 1, (d + 1) * HEADS + 2, d);
    let x = rng.units(x_token * TOKENS, 3.0);
    let x_room = Room::of(&x.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>(), 4);
    let mut out = Room::new(out_head * HEADS * TOKENS * 4, 4);
    let args = Args::new().room(&x_room).room(&out).room(&angles.room).room(&angles.rows_room);
    let args = args.i64(x_head * 4).i64(x_token * 4).i64(out_head * 4).i64(out_head * HEADS * 4);
    let args = angles.nb().into_iter().fold(args, Args::i64).n(d).n(rotated).i32(style).done();
    let grid = [HEADS as u32, TOKENS as u32, 1];
    host.run("rope", &Launch { kernel: "rope", grid, block: 64, shared: 0, args }, &mut [&mut out]);
    let mut wanted = Vec::new();
    for t in 0..TOKENS {
        for head in 0..HEADS {
            let from = t * x_token + head * x_head;
            let row: Vec<f64> = x[from..from + d].iter().map(|x| f64::from(*x)).collect();
            wanted.extend(angles.rotate(&row, t, rotated, style).into_iter().map(|y| (y, 8.0 * UNIT * 6.0)));
        }
    }
    let got = out.f32s();
    host.compare(&format!("rope {d} {rotated} {style}"), &got, &wanted);
}

/// Pages of a few cells, dealt in no order, two sequences.
struct Pages {
    room: Room,
    table: Vec<i32>,
    per_sequence: usize,
    sequence: Vec<i32>,
    sequence_room: Room,
    position: Vec<i32>,
    position_room: Room,
    bits: usize,
}

impl Pages {
    fn new(bits: usize) -> Pages {
        let (table, sequence) = (vec![3, 1, 5, -7, 0, 4, 2, -7], vec![1, 0, 1]);
        let size = 1 << bits;
        let position: Vec<i32> = vec![0, 3 * size - 1, size];
        Pages {
            room: Room::of_i32(&table),
            sequence_room: Room::of_i32(&sequence),
            position_room: Room::of_i32(&position),
            table,
            per_sequence: 4,
            sequence,
            position,
            bits,
        }
    }

    fn n_cells(&self) -> usize {
        6 << self.bits
    }

    fn cell(&self, t: usize) -> usize {
        let position = self.position[t] as usize;
        let page = self.table[self.sequence[t] as usize * self.per_sequence + (position >> self.bits)];
        ((page as usize) << self.bits) + position % (1 << self.bits)
    }
}

fn size_of(kind: i32) -> usize {
    if kind == 0 { 4 } else { 2 }
}

fn encode(x: f32, kind: i32) -> Vec<u8> {
    match kind {
        0 => x.to_ne_bytes().to_vec(),
        1 => half::f16::from_f32(x).to_ne_bytes().to_vec(),
        _ => half::bf16::from_f32(x).to_ne_bytes().to_vec(),
    }
}

fn store(host: &mut Host, d: usize, kind: i32, bits: usize) {
    const HEADS: usize = 2;
    let mut rng = Rng::new(&format!("store {d}"));
    let pages = Pages::new(bits);
    let (size, x_head) = (size_of(kind), d + 1);
    let (cell_bytes, head_bytes) = (d * size, d * size * pages.n_cells());
    let x = rng.units(x_head * HEADS * TOKENS, 3.0);
    let x_room = Room::of_f32(&x);
    let mut cache = Room::new(head_bytes * HEADS, size);
    let args = Args::new().room(&cache).room(&x_room).room(&pages.room);
    let args = args.room(&pages.sequence_room).room(&pages.position_room).i64(head_bytes).i64(cell_bytes);
    let args = args.i64(x_head * 4).i64(x_head * HEADS * 4).i64(pages.per_sequence * 4).n(d).n(bits).i32(kind).done();
    let grid = [HEADS as u32, TOKENS as u32, 1];
    host.run("kv_store", &Launch { kernel: "kv_store", grid, block: 64, shared: 0, args }, &mut [&mut cache]);
    let mut wanted = vec![0xcd; head_bytes * HEADS];
    for t in 0..TOKENS {
        for head in 0..HEADS {
            let from = (t * HEADS + head) * x_head;
            let bytes: Vec<u8> = x[from..from + d].iter().flat_map(|x| encode(*x, kind)).collect();
            let to = head * head_bytes + pages.cell(t) * cell_bytes;
            wanted[to..to + bytes.len()].copy_from_slice(&bytes);
        }
    }
    if cache.bytes() != wanted {
        host.fail(format!("kv_store of {d}, type {kind}: other bytes"));
    }
}

struct Heads {
    d: usize,
    dv: usize,
    rotated: usize,
    style: i32,
    kind: i32,
    normed: bool,
}

/// HeadsArgs: norm and rotation in place, keys and values into the cache.
fn heads(host: &mut Host, shape: &Heads) {
    const N_Q: usize = 5;
    const N_KV: usize = 2;
    let Heads { d, dv, rotated, style, kind, normed } = *shape;
    let mut rng = Rng::new(&format!("heads {d}"));
    let (angles, pages) = (Angles::new(rotated, &mut rng), Pages::new(3));
    let (q, k, v) =
        (rng.units(d * N_Q * TOKENS, 2.0), rng.units(d * N_KV * TOKENS, 2.0), rng.units(dv * N_KV * TOKENS, 2.0));
    let gammas = [rng.units(d, 2.0), rng.units(d, 2.0)];
    let gamma_rooms = [Room::of_f32(&gammas[0]), Room::of_f32(&gammas[1])];
    let (mut q_room, mut k_room, v_room) = (Room::of_f32(&q), Room::of_f32(&k), Room::of_f32(&v));
    let size = size_of(kind);
    let strides = [d, dv].map(|width| (width * size * pages.n_cells(), width * size));
    let (mut k_cache, mut v_cache) = (Room::new(strides[0].0 * N_KV, size), Room::new(strides[1].0 * N_KV, size));
    let args = Args::new().room(&q_room).room(&k_room).room(&v_room);
    let args = args.at(normed.then_some(&gamma_rooms[0]), 0).at(normed.then_some(&gamma_rooms[1]), 0);
    let args = args.room(&angles.room).room(&angles.rows_room).room(&k_cache).room(&v_cache).room(&pages.room);
    let args = args.room(&pages.sequence_room).room(&pages.position_room);
    let args = args.i64(d * 4).i64(d * N_Q * 4).i64(d * 4).i64(d * N_KV * 4).i64(dv * 4).i64(dv * N_KV * 4);
    let args = strides.iter().fold(args, |args, (head, cell)| args.i64(*head).i64(*cell));
    let args = angles.nb().into_iter().fold(args, Args::i64).i64(pages.per_sequence * 4);
    let args = args.n(N_Q).n(N_KV).n(d).n(dv).n(rotated).i32(style).n(3).i32(kind).i32(kind).f32(1e-5).f32(1e-6).done();
    let grid = [(N_Q + 2 * N_KV).div_ceil(4) as u32, TOKENS as u32, 1];
    let launch = Launch { kernel: "heads", grid, block: 128, shared: 0, args };
    host.run("heads", &launch, &mut [&mut q_room, &mut k_room, &mut k_cache, &mut v_cache]);

    let prepared = |x: &[f32], head: usize, n: usize, t: usize, which: usize| {
        let from = (t * n + head) * d;
        let mut row: Vec<f64> = x[from..from + d].iter().map(|x| f64::from(*x)).collect();
        if normed {
            let eps = if which == 0 { 1e-5 } else { 1e-6 };
            let root = (row.iter().map(|x| x * x).sum::<f64>() / d as f64 + eps).sqrt();
            row = row.iter().zip(&gammas[which]).map(|(x, gamma)| x / root * f64::from(*gamma)).collect();
        }
        angles.rotate(&row, t, rotated, style)
    };
    let within = |rows: Vec<f64>| rows.into_iter().map(|y| (y, 32.0 * UNIT * 8.0)).collect::<Vec<_>>();
    let mut wanted = [Vec::new(), Vec::new()];
    for t in 0..TOKENS {
        for (which, (x, n)) in [(&q, N_Q), (&k, N_KV)].into_iter().enumerate() {
            for head in 0..n {
                wanted[which].extend(within(prepared(x, head, n, t, which)));
            }
        }
    }
    let what = format!("heads {d} {dv} type {kind}");
    let (got_q, got_k) = (q_room.f32s(), k_room.f32s());
    host.compare(&what, &got_q, &wanted[0]);
    host.compare(&what, &got_k, &wanted[1]);
    // The cache holds what the kernel left in k, and v, rounded to nearest.
    let caches = [(&k_cache, &got_k, d), (&v_cache, &v, dv)];
    for ((cache, values, width), (head_bytes, cell_bytes)) in caches.into_iter().zip(strides) {
        let mut bytes = vec![0xcd; head_bytes * N_KV];
        for t in 0..TOKENS {
            for head in 0..N_KV {
                let from = (t * N_KV + head) * width;
                let row: Vec<u8> = values[from..from + width].iter().flat_map(|x| encode(*x, kind)).collect();
                let to = head * head_bytes + pages.cell(t) * cell_bytes;
                bytes[to..to + row.len()].copy_from_slice(&row);
            }
        }
        if cache.bytes() != bytes {
            host.fail(format!("{what}: other bytes in the cache"));
        }
    }
}
