//! Elementwise ops and ops over rows: elementwise.cu and norm.cu.

use crate::host::{Args, Host, Launch, Rng, Room};
use crate::matrix::gated;

const UNIT: f64 = 1.0 / 16_777_216.0;

pub(crate) fn test(host: &mut Host) {
    for (ne, broadcast) in
        [([1, 1, 1, 1], false), ([257, 3, 2, 2], false), ([33, 5, 1, 1], true), ([600, 2, 1, 1], false)]
    {
        elementwise(host, ne, broadcast);
    }
    // More rows than the grid has: each block walks several.
    many_rows(host);
    copies(host);
    for n in [1, 31, 32, 100, 256, 257, 1000, 4097] {
        rows(host, n);
        arg_max(host, n);
    }
    for (kernel, block, widths) in [
        ("norm_q8_1024", 256, [32, 1024, 992]),
        ("norm_q8_2048", 512, [1056, 2048, 1568]),
        ("norm_q8_8192", 1024, [2080, 8192, 4128]),
    ] {
        for (i, n) in widths.into_iter().enumerate() {
            norm(host, kernel, block, n, i);
        }
    }
}

/// A tensor of floats with gaps between rows, planes and volumes.
struct Tensor {
    room: Room,
    values: Vec<f32>,
    nb: [usize; 3],
}

impl Tensor {
    fn new(ne: [usize; 4], gap: usize, fill: impl FnMut() -> f32) -> Tensor {
        let nb1 = (ne[0] + gap) * 4;
        let nb = [nb1, nb1 * ne[1] + 4 * gap, (nb1 * ne[1] + 4 * gap) * ne[2] + 8 * gap];
        let values: Vec<f32> = std::iter::repeat_with(fill).take(nb[2] * ne[3] / 4).collect();
        Tensor { room: Room::of(&values.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>(), 4), values, nb }
    }

    fn at(&self, i: usize, row: [usize; 3]) -> usize {
        (row[0] * self.nb[0] + row[1] * self.nb[1] + row[2] * self.nb[2]) / 4 + i
    }
}

fn each_row(ne: [usize; 4]) -> impl Iterator<Item = [usize; 3]> {
    (0..ne[1] * ne[2] * ne[3]).map(move |row| [row % ne[1], row / ne[1] % ne[2], row / ne[1] / ne[2]])
}

fn nbs(args: Args, nb: [usize; 3]) -> Args {
    nb.into_iter().fold(args, Args::i64)
}

/// ElementArgs.
fn element_args(
    out: &Tensor,
    a: &Tensor,
    b: &Tensor,
    b_nb: [usize; 3],
    ne: [usize; 4],
    tail: [i32; 4],
    f: [f32; 2],
) -> Args {
    let args = Args::new().room(&out.room).room(&a.room).room(&b.room);
    let args = nbs(nbs(nbs(args, out.nb), a.nb), b_nb);
    let args = ne.into_iter().fold(args, Args::n);
    tail.into_iter().fold(args, Args::i32).f32(f[0]).f32(f[1]).done()
}

fn elementwise(host: &mut Host, ne: [usize; 4], broadcast: bool) {
    let mut rng = Rng::new(&format!("elementwise {ne:?}"));
    let a = Tensor::new(ne, 3, || rng.unit() * 4.0);
    let b_ne = if broadcast { [1, ne[1], 1, 1] } else { ne };
    let b = Tensor::new(b_ne, 1, || rng.unit() * 3.0);
    let b_nb = std::array::from_fn(|i| if b_ne[i + 1] == 1 { 0 } else { b.nb[i] });
    let b_step = i32::from(b_ne[0] != 1);
    let rows = (ne[1] * ne[2] * ne[3]) as u32;
    let grid = [(ne[0] as u32).div_ceil(256), rows, 1];
    for which in 0..=6 {
        let mut out = Tensor::new(ne, 2, || f32::from_bits(0xcdcd_cdcd));
        let args = element_args(&out, &a, &b, b_nb, ne, [b_step, which, 0, 0], [1.5, 1.7]);
        let launch = Launch { kernel: "binary", grid, block: 256, shared: 0, args };
        host.run("binary", &launch, &mut [&mut out.room]);
        let got = out.room.f32s();
        for row in each_row(ne) {
            let b_row = std::array::from_fn(|i| if b_ne[i + 1] == 1 { 0 } else { row[i] });
            let wanted: Vec<(f64, f64)> = (0..ne[0])
                .map(|i| {
                    let (x, y) =
                        (f64::from(a.values[a.at(i, row)]), f64::from(b.values[b.at(i * b_step as usize, b_row)]));
                    let value = match which {
                        0 => x + 1.5 * y,
                        1 => x * y,
                        _ => gated(which - 2, x, y, 1.5, f64::from(1.7_f32)),
                    };
                    (
                        value,
                        48.0 * UNIT * (value.abs() + x.abs() * y.abs() * 1e-2)
                            + if which == 0 { 4.0 * UNIT * 9.0 } else { 0.0 },
                    )
                })
                .collect();
            let at = out.at(0, row);
            host.compare(&format!("binary {which} {ne:?}"), &got[at..at + ne[0]], &wanted);
        }
        untouched(host, "binary", &out, ne, &got);
    }
    for which in 0..=7 {
        let mut out = Tensor::new(ne, 2, || f32::from_bits(0xcdcd_cdcd));
        let args = element_args(&out, &a, &a, a.nb, ne, [1, which, 0, 0], [2.5, 0.25]);
        host.run("unary", &Launch { kernel: "unary", grid, block: 256, shared: 0, args }, &mut [&mut out.room]);
        let got = out.room.f32s();
        for row in each_row(ne) {
            let wanted: Vec<(f64, f64)> = (0..ne[0])
                .map(|i| {
                    let x = f64::from(a.values[a.at(i, row)]);
                    let y = unary(which, x);
                    (y, 48.0 * UNIT * y.abs() + if which == 0 { 4.0 * UNIT * 12.0 } else { UNIT * 1e-2 })
                })
                .collect();
            let at = out.at(0, row);
            host.compare(&format!("unary {which} {ne:?}"), &got[at..at + ne[0]], &wanted);
        }
        untouched(host, "unary", &out, ne, &got);
    }
}

fn unary(which: i32, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match which {
        0 => x * 2.5 + 0.25,
        1 => x * sigmoid(x),
        2 => gated(1, x, 1.0, 0.0, 0.0),
        3 => sigmoid(x),
        4 => x.tanh(),
        5 => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        6 => x.exp(),
        _ => 2.5 * (x / 2.5).tanh(),
    }
}

/// Gaps keep their bytes.
fn untouched(host: &mut Host, what: &str, out: &Tensor, ne: [usize; 4], got: &[f32]) {
    let mut inside = vec![false; got.len()];
    for row in each_row(ne) {
        let at = out.at(0, row);
        inside[at..at + ne[0]].fill(true);
    }
    if got.iter().zip(inside).any(|(x, inside)| !inside && x.to_bits() != 0xcdcd_cdcd) {
        host.fail(format!("{what} {ne:?}: wrote between rows"));
    }
}

fn many_rows(host: &mut Host) {
    let ne = [1, 65_535 + 3, 1, 1];
    let a = Tensor::new(ne, 0, || 1.0);
    let out = Tensor::new(ne, 0, || 0.0);
    let args = element_args(&out, &a, &a, a.nb, ne, [1, 0, 0, 0], [1.0, 0.0]);
    host.once(&Launch { kernel: "binary", grid: [1, 65_535, 1], block: 256, shared: 0, args });
    let got = out.room.f32s();
    host.compare("binary of many rows", &got, &vec![(2.0, 0.0); got.len()]);
}

fn copies(host: &mut Host) {
    let types = [(0, 4), (1, 2), (30, 2)];
    let special =
        [0.0, -0.0, 1.0, 65504.0, 65520.0, 1e-8, -3e-5, 1e30, f32::INFINITY, f32::NEG_INFINITY, 0.333_333_34, 2049.0];
    for (from, from_size) in types {
        for (to, to_size) in types {
            let (n, rows) = (301, 3);
            let mut rng = Rng::new("copies");
            let values: Vec<f32> =
                (0..n * rows).map(|i| if i < special.len() { special[i] } else { rng.unit() * 100.0 }).collect();
            let encode = |x: f32, kind: i32| match kind {
                0 => x.to_bits().to_ne_bytes().to_vec(),
                1 => half::f16::from_f32(x).to_ne_bytes().to_vec(),
                _ => half::bf16::from_f32(x).to_ne_bytes().to_vec(),
            };
            let decode = |bytes: &[u8], kind: i32| match kind {
                0 => f32::from_ne_bytes(bytes.try_into().expect("four bytes")),
                1 => half::f16::from_ne_bytes(bytes.try_into().expect("two bytes")).to_f32(),
                _ => half::bf16::from_ne_bytes(bytes.try_into().expect("two bytes")).to_f32(),
            };
            let source: Vec<u8> = values.iter().flat_map(|x| encode(*x, from)).collect();
            let source_room = Room::of(&source, from_size);
            let mut out = Room::new(n * rows * to_size, to_size);
            let args = Args::new().room(&out).room(&source_room).room(&source_room);
            let args = nbs(args, [n * to_size, n * to_size * rows, n * to_size * rows]);
            let args = nbs(nbs(args, [n * from_size, n * from_size * rows, n * from_size * rows]), [0; 3]);
            let args =
                [n, rows, 1, 1].into_iter().fold(args, Args::n).i32(1).i32(0).i32(from).i32(to).f32(0.0).f32(0.0);
            let grid = [n.div_ceil(256) as u32, rows as u32, 1];
            let launch = Launch { kernel: "copy", grid, block: 256, shared: 0, args: args.done() };
            host.run("copy", &launch, &mut [&mut out]);
            let wanted: Vec<u8> = source.chunks(from_size).flat_map(|bytes| encode(decode(bytes, from), to)).collect();
            if out.bytes() != wanted {
                host.fail(format!("copy {from} to {to}"));
            }
        }
    }
}

fn rows(host: &mut Host, n: usize) {
    let ne = [n, 3, 2, 1];
    for which in 0..3 {
        let mut rng = Rng::new(&format!("rows {n}"));
        let x = Tensor::new(ne, 1, || rng.unit() * 3.0);
        let w = rng.units(n, 2.0);
        let w_room = Room::of_f32(&w);
        let mut out = Tensor::new(ne, 2, || f32::from_bits(0xcdcd_cdcd));
        let f0 = if which == 2 { 0.7 } else { 1e-5 };
        let args = Args::new().room(&x.room).room(&out.room).at((which == 0 && n > 40).then_some(&w_room), 0);
        let args = ne.into_iter().fold(nbs(nbs(args, x.nb), out.nb), Args::n).i32(which).f32(f0).done();
        let block = if n <= 256 { 32 } else { 256 };
        host.run("rows", &Launch { kernel: "rows", grid: [6, 1, 1], block, shared: 0, args }, &mut [&mut out.room]);
        let got = out.room.f32s();
        for row in each_row(ne) {
            let values: Vec<f64> = (0..n).map(|i| f64::from(x.values[x.at(i, row)])).collect();
            let squares: f64 = values.iter().map(|x| x * x).sum();
            let greatest = values.iter().fold(f64::MIN, |most, x| most.max(x * f64::from(f0)));
            let sum: f64 = values.iter().map(|x| (x * f64::from(f0) - greatest).exp()).sum();
            let wanted: Vec<(f64, f64)> = values
                .iter()
                .enumerate()
                .map(|(i, x)| {
                    let w = if which == 0 && n > 40 { f64::from(w[i]) } else { 1.0 };
                    let y = match which {
                        0 => x / (squares / n as f64 + f64::from(f0)).sqrt() * w,
                        1 => x / (squares + f64::from(f0)).sqrt(),
                        _ => (x * f64::from(f0) - greatest).exp() / sum,
                    };
                    (y, (24.0 + (n as f64).sqrt()) * UNIT * (y.abs() + 1e-9))
                })
                .collect();
            let at = out.at(0, row);
            host.compare(&format!("rows {which} of {n}"), &got[at..at + n], &wanted);
        }
        untouched(host, "rows", &out, ne, &got);
    }
}

fn arg_max(host: &mut Host, n: usize) {
    let mut rng = Rng::new(&format!("arg_max {n}"));
    let mut x = rng.units((n + 1) * 3, 1.0);
    // Equal numbers: the first counts. A row of the least number of all.
    x[n / 2] = 5.0;
    x[n - 1] = 5.0;
    x[2 * (n + 1)..2 * (n + 1) + n].fill(f32::NEG_INFINITY);
    let room = Room::of_f32(&x);
    let mut out = Room::new(3 * 2 * 4, 4);
    let args = Args::new().room(&room).room(&out).i64(n + 1).n(n).n(2).done();
    let launch = Launch { kernel: "arg_max", grid: [3, 1, 1], block: 1024, shared: 0, args };
    host.run("arg_max", &launch, &mut [&mut out]);
    let got = out.i32s();
    for row in 0..3 {
        let values = &x[row * (n + 1)..row * (n + 1) + n];
        let wanted = (0..n).fold(0, |best, i| if values[i] > values[best] { i } else { best }) as i32;
        if got[2 * row] != wanted {
            host.fail(format!("arg_max of {n}, row {row}: {}, not {wanted}", got[2 * row]));
        }
    }
}

/// NormQ8Args. The variants: with a sum in front and everything wanted; norm alone; bytes alone.
fn norm(host: &mut Host, kernel: &str, block: u32, n: usize, variant: usize) {
    const ROWS: usize = 3;
    let mut rng = Rng::new(&format!("{kernel} {n}"));
    let (x, add, w) = (rng.units((n + 4) * ROWS, 2.0), rng.units((n + 8) * ROWS, 1.0), rng.units(n, 2.0));
    let rooms = [&x, &add, &w].map(|values| Room::of_f32(values));
    let mut sum = Room::new(n * ROWS * 4, 0);
    let mut out = Room::new((n + 4) * ROWS * 4, 0);
    let (mut q, mut scales) = (Room::new(n * ROWS, 0), Room::new(n / 32 * ROWS * 8, 0));
    let (adds, writes, rounds) = (variant == 0, variant != 2, variant != 1);
    let args = Args::new().room(&rooms[0]).at(adds.then_some(&rooms[1]), 0).at(adds.then_some(&sum), 0);
    let args = args.at((variant != 1).then_some(&rooms[2]), 0).at(writes.then_some(&out), 0);
    let args = args.at(rounds.then_some(&q), 0).at(rounds.then_some(&scales), 0);
    let args = args.i64(n + 4).i64(n + 8).i64(n).i64(n + 4).n(n).f32(1e-5).done();
    let launch = Launch { kernel, grid: [ROWS as u32, 1, 1], block, shared: 0, args };
    host.run(kernel, &launch, &mut [&mut sum, &mut out, &mut q, &mut scales]);
    let (got, got_sum, d) = (out.f32s(), sum.f32s(), scales.f32s());
    for row in 0..ROWS {
        let values: Vec<f64> = (0..n)
            .map(|i| f64::from(x[row * (n + 4) + i]) + if adds { f64::from(add[row * (n + 8) + i]) } else { 0.0 })
            .collect();
        let root = (values.iter().map(|x| x * x).sum::<f64>() / n as f64 + 1e-5).sqrt();
        let wanted: Vec<(f64, f64)> = (0..n)
            .map(|i| {
                let y = values[i] / root * if variant == 1 { 1.0 } else { f64::from(w[i]) };
                (y, 24.0 * UNIT * (y.abs() + if adds { 3.0 } else { 0.0 }))
            })
            .collect();
        let what = format!("{kernel} of {n}");
        if writes {
            host.compare(&what, &got[row * (n + 4)..row * (n + 4) + n], &wanted);
        }
        if adds {
            let sums: Vec<(f64, f64)> = values.iter().map(|x| (*x, UNIT * 2.0 * x.abs() + 1e-12)).collect();
            host.compare(&what, &got_sum[row * n..(row + 1) * n], &sums);
        }
        if rounds {
            let bytes: Vec<f32> =
                (row * n..(row + 1) * n).map(|i| f32::from(q.bytes()[i] as i8) * d[i / 32 * 2]).collect();
            let within: Vec<(f64, f64)> =
                (0..n).map(|i| (wanted[i].0, f64::from(d[(row * n + i) / 32 * 2]) * 0.51 + wanted[i].1)).collect();
            host.compare(&format!("{what}, bytes"), &bytes, &within);
        }
    }
}
