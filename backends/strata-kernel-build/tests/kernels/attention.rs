//! Attention over pages: attention.cu, every cache type, window, cap and sinks.

use crate::host::{Args, Host, Launch, Rng, Room};

const UNIT: f64 = 1.0 / 16_777_216.0;

pub(crate) fn test(host: &mut Host) {
    let base = Case { d: 64, dv: 64, kinds: [1, 1], window: 0, cap: 0.0, sinks: false, bits: 4 };
    for (kernel, cases) in [
        (
            "attention_64",
            [Case { ..base }, Case { d: 33, dv: 17, kinds: [0, 30], window: 5, sinks: true, bits: 2, ..base }],
        ),
        (
            "attention_128",
            [Case { d: 128, dv: 128, cap: 20.0, ..base }, Case { d: 96, dv: 128, kinds: [30, 0], window: 40, ..base }],
        ),
        (
            "attention_256",
            [Case { d: 256, dv: 192, ..base }, Case { d: 131, dv: 256, kinds: [0, 0], sinks: true, cap: 5.0, ..base }],
        ),
        (
            "attention_512",
            [Case { d: 512, dv: 512, window: 1, ..base }, Case { d: 500, dv: 300, kinds: [0, 1], bits: 6, ..base }],
        ),
    ] {
        for case in cases {
            attention(host, kernel, &case);
        }
    }
    for (kernel, width) in [("attention_dot_64", 64), ("attention_dot_128", 128), ("attention_dot_256", 256)] {
        for (window, cap, sinks, bits) in [(0, 0.0, false, 4), (21, 9.0, true, 3), (1, 0.0, true, 6)] {
            attention(host, kernel, &Case { d: width, dv: width, kinds: [1, 1], window, cap, sinks, bits });
        }
    }
}

#[derive(Clone, Copy)]
struct Case {
    d: usize,
    dv: usize,
    /// Types of keys and values: 0 F32, 1 F16, 30 BF16.
    kinds: [i32; 2],
    window: i32,
    cap: f32,
    sinks: bool,
    bits: usize,
}

/// Heads of cells: bytes, and the numbers that they stand for.
fn cache(width: usize, kind: i32, n_cells: usize, shift: usize, rng: &mut Rng) -> (Room, Vec<f64>) {
    let (mut bytes, mut values) = (Vec::new(), Vec::new());
    for _ in 0..width * n_cells * 2 {
        let x = rng.unit();
        match kind {
            0 => {
                bytes.extend(x.to_ne_bytes());
                values.push(f64::from(x));
            }
            1 => {
                bytes.extend(half::f16::from_f32(x).to_ne_bytes());
                values.push(half::f16::from_f32(x).to_f64());
            }
            _ => {
                bytes.extend(half::bf16::from_f32(x).to_ne_bytes());
                values.push(half::bf16::from_f32(x).to_f64());
            }
        }
    }
    (Room::of(&bytes, shift), values)
}

fn attention(host: &mut Host, kernel: &str, case: &Case) {
    const HEADS: usize = 6;
    const SHARE: usize = 3;
    let Case { d, dv, kinds, window, cap, sinks, bits } = *case;
    let mut rng = Rng::new(&format!("{kernel} {d}"));
    let page = 1_i32 << bits;
    let table: [i32; 8] = [3, 1, 5, 6, 0, 4, 2, 7];
    let (sequence, position) = ([1, 0, 1, 0], [0, 4 * page - 1, page, 2]);
    let n_cells = 8 << bits;
    // The form over halves rounds q to halves and reads sixteen bytes at once.
    let halves = kernel.starts_with("attention_dot");
    let shift = |kind: i32| {
        if halves {
            0
        } else if kind == 0 {
            4
        } else {
            2
        }
    };
    let (k_room, k) = cache(d, kinds[0], n_cells, shift(kinds[0]), &mut rng);
    let (v_room, v) = cache(dv, kinds[1], n_cells, shift(kinds[1]), &mut rng);
    let tokens = position.len();
    let q = rng.units((d + 1) * HEADS * tokens, 2.0);
    let sink = rng.units(HEADS, 2.0);
    let q_room = Room::of(&q.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>(), 4);
    let (table_room, sequence_room, position_room) =
        (Room::of_i32(&table), Room::of_i32(&sequence), Room::of_i32(&position));
    let sink_room = Room::of_f32(&sink);
    let mut out = Room::new((dv + 1) * HEADS * tokens * 4, 4);
    let sizes = kinds.map(|kind| if kind == 0 { 4 } else { 2 });
    let scale = 1.0 / (d as f32).sqrt();
    let args = Args::new().room(&out).room(&q_room).room(&k_room).room(&v_room).room(&table_room);
    let args = args.room(&sequence_room).room(&position_room).at(sinks.then_some(&sink_room), 0);
    let args = args.i64((dv + 1) * 4).i64((dv + 1) * HEADS * 4).i64((d + 1) * 4).i64((d + 1) * HEADS * 4);
    let args = args.i64(d * sizes[0] * n_cells).i64(d * sizes[0]).i64(dv * sizes[1] * n_cells).i64(dv * sizes[1]);
    let args =
        args.i64(16).n(SHARE).n(d).n(dv).n(bits).i32(window).i32(kinds[0]).i32(kinds[1]).f32(scale).f32(cap).done();
    let grid = [HEADS as u32, tokens as u32, 1];
    host.run(kernel, &Launch { kernel, grid, block: 128, shared: 0, args }, &mut [&mut out]);
    let got = out.f32s();
    for t in 0..tokens {
        for head in 0..HEADS {
            let kv = head / SHARE;
            let first = if window > 0 { (position[t] - window + 1).max(0) } else { 0 };
            let cells: Vec<usize> = (first..=position[t])
                .map(|p| {
                    ((table[sequence[t] as usize * 4 + (p >> bits) as usize] as usize) << bits) + (p % page) as usize
                })
                .collect();
            let round = |x: &f32| if halves { half::f16::from_f32(*x).to_f64() } else { f64::from(*x) };
            let row: Vec<f64> = q[(t * HEADS + head) * (d + 1)..][..d].iter().map(round).collect();
            let logits: Vec<f64> = cells
                .iter()
                .map(|cell| {
                    let key = &k[(kv * n_cells + cell) * d..][..d];
                    let s = row.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() * f64::from(scale);
                    if cap > 0.0 { f64::from(cap) * (s / f64::from(cap)).tanh() } else { s }
                })
                .collect();
            let mut most = logits.iter().fold(f64::MIN, |most, s| most.max(*s));
            if sinks {
                most = most.max(f64::from(sink[head]));
            }
            let shares: Vec<f64> = logits.iter().map(|s| (s - most).exp()).collect();
            let total = shares.iter().sum::<f64>() + if sinks { (f64::from(sink[head]) - most).exp() } else { 0.0 };
            let wanted: Vec<(f64, f64)> = (0..dv)
                .map(|i| {
                    let y: f64 =
                        cells.iter().zip(&shares).map(|(cell, share)| share * v[(kv * n_cells + cell) * dv + i]).sum();
                    (y / total, 400.0 * UNIT)
                })
                .collect();
            let at = (t * HEADS + head) * (dv + 1);
            host.compare(&format!("{kernel} d {d} token {t} head {head}"), &got[at..at + dv], &wanted);
            if got[at + dv].to_bits() != 0xcdcd_cdcd {
                host.fail(format!("{kernel} d {d}: wrote beyond the head"));
            }
        }
    }
}
