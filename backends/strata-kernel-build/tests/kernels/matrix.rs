//! Products, the embedding, and rounding to bytes: matmul.h, mmv*, mmx, matmul_float, embed, quantise.

use strata_backend_abi::StrataDType;

use crate::host::{Args, Host, Launch, Rng, Room};
use crate::weights::{FORMATS, PLAIN, Weights};

const UNIT: f64 = 1.0 / 16_777_216.0;

pub(crate) fn test(host: &mut Host) {
    rounding(host);
    gated_rounding(host);
    for (dtype, name, align, _) in FORMATS {
        for columns in [1, 2, 4, 8] {
            let kernel = format!("mmv_{name}_t{columns}");
            for shape in shapes(dtype, columns, align) {
                product(host, &kernel, dtype, align, columns, true, &shape);
            }
        }
        for shape in shapes(dtype, 4, align) {
            product(host, &format!("mmx_{name}"), dtype, align, 4, false, &shape);
        }
        same_bits(host, name, dtype, align);
        embedding(host, &format!("embed_{name}"), dtype, align);
    }
    for (dtype, name) in PLAIN {
        for shape in plain_shapes() {
            product(host, &format!("mmx_{name}"), dtype, dtype.block_bytes(), 4, false, &shape);
            float_product(host, name, dtype, &shape);
        }
        embedding(host, &format!("embed_{name}"), dtype, dtype.block_bytes());
    }
}

/// A product of up to three weights.
struct Shape {
    m: Vec<usize>,
    k: usize,
    t: usize,
    rows: usize,
    /// Bytes between rows of weights, and elements between rows of results.
    gap: usize,
    out_gap: usize,
    bias: bool,
    residual: bool,
    /// An activation of the ABI, or -1.
    act: i32,
}

fn shapes(dtype: StrataDType, columns: usize, align: usize) -> Vec<Shape> {
    let large = dtype.block_len() == 256;
    let k = |large_k: usize, small_k: usize| if large { large_k } else { small_k };
    let plain = |m: &[usize], k: usize, t: usize, rows: usize| Shape {
        m: m.to_vec(),
        k,
        t,
        rows,
        gap: 0,
        out_gap: 0,
        bias: false,
        residual: false,
        act: -1,
    };
    let act = (dtype as i32 + columns as i32) % 5;
    vec![
        plain(&[1], k(256, 32), 1, 4),
        Shape { gap: align, out_gap: 3, bias: true, ..plain(&[5, 3, 9], k(768, 576), columns + 1, 4) },
        Shape { act, ..plain(&[7, 7], k(2304, 1120), columns, 5) },
        Shape { residual: true, out_gap: 1, ..plain(&[6], k(8448, 8480), 1, 8) },
        Shape { residual: true, bias: true, gap: 3 * align, ..plain(&[33], k(512, 96), 2 * columns - 1, 16) },
        Shape { act: (act + 2) % 5, gap: align, ..plain(&[3, 3], k(256, 288), columns + 2, 1) },
    ]
}

fn plain_shapes() -> Vec<Shape> {
    let shape = |m: &[usize], k: usize, t: usize, rows: usize| Shape {
        m: m.to_vec(),
        k,
        t,
        rows,
        gap: 0,
        out_gap: 0,
        bias: false,
        residual: false,
        act: -1,
    };
    vec![
        shape(&[1], 1, 1, 4),
        Shape { gap: 4, bias: true, out_gap: 2, ..shape(&[5, 1, 18], 37, 9, 4) },
        Shape { residual: true, ..shape(&[21], 300, 5, 4) },
        Shape { bias: true, ..shape(&[64], 2048, 8, 4) },
        Shape { act: 1, ..shape(&[6, 6], 515, 3, 2) },
    ]
}

/// `x` rounded by the kernel: bytes and (scale, scale · sum), and what they stand for.
pub(crate) struct Rounded {
    pub(crate) q: Room,
    pub(crate) scales: Room,
    pub(crate) values: Vec<f64>,
}

pub(crate) fn round(host: &mut Host, x: &Room, k: usize, t: usize, stride: usize) -> Rounded {
    let (mut q, mut scales) = (Room::new(k * t, 0), Room::new(k / 32 * t * 8, 0));
    let args = Args::new().room(x).room(&q).room(&scales).n(k).n(t).n(stride).i32(0).done();
    let grid = [k.div_ceil(1024) as u32, t as u32, 1];
    host.run(
        "quantise",
        &Launch { kernel: "quantise_q8", grid, block: 256, shared: 0, args },
        &mut [&mut q, &mut scales],
    );
    let d = scales.f32s();
    let values = q.bytes().iter().enumerate().map(|(i, q)| f64::from(*q as i8) * f64::from(d[i / 32 * 2])).collect();
    Rounded { q, scales, values }
}

/// Bytes and scales of 32 numbers, as matmul.h says.
fn round_32(x: &[f32]) -> (Vec<i8>, f32, f32) {
    let most = x.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    if x.iter().any(|x| !x.is_finite()) {
        return (vec![0; 32], f32::NAN, f32::NAN);
    }
    let inverse = if most > 1e-30 { 127.0 / most } else { 0.0 };
    let q: Vec<i8> = x.iter().map(|x| (x * inverse).round_ties_even() as i8).collect();
    let d = if most > 1e-30 { most * (1.0 / 127.0) } else { 0.0 };
    let sum: i32 = q.iter().map(|q| i32::from(*q)).sum();
    (q, d, d * sum as f32)
}

fn check_rounded(host: &mut Host, what: &str, rows: &[Vec<f32>], q: &Room, scales: &Room) {
    let mut wanted_q = Vec::new();
    let mut wanted_scales = Vec::new();
    for row in rows {
        for group in row.as_chunks::<32>().0 {
            let (q, d, sum) = round_32(group);
            wanted_q.extend(q);
            wanted_scales.extend([d, sum]);
        }
    }
    let got: Vec<i8> = q.bytes().iter().map(|q| *q as i8).collect();
    if got != wanted_q {
        host.fail(format!("{what}: bytes differ"));
    }
    let bits = |values: &[f32]| values.iter().map(|x| if x.is_nan() { 1 } else { x.to_bits() }).collect::<Vec<_>>();
    if bits(&scales.f32s()) != bits(&wanted_scales) {
        host.fail(format!("{what}: scales differ"));
    }
}

fn rounding(host: &mut Host) {
    for (k, t, gap) in [(32, 1, 0), (96, 3, 1), (1024, 2, 5), (1056, 3, 0), (4128, 1, 7)] {
        let mut rng = Rng::new(&format!("rounding {k}"));
        let mut x = rng.units((k + gap) * t, 3.0);
        // A group of zeros, one of tiny numbers, and, at the end, one with a NaN and one with an infinity.
        x[..32].fill(0.0);
        if k >= 1024 {
            x[32..64].fill(1e-35);
            x[100] = f32::NAN;
            x[130] = f32::NEG_INFINITY;
        }
        let room = Room::of(&x.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>(), 4);
        let rounded = round(host, &room, k, t, k + gap);
        let rows: Vec<Vec<f32>> = (0..t).map(|row| x[row * (k + gap)..row * (k + gap) + k].to_vec()).collect();
        check_rounded(host, &format!("quantise_q8 {k} x {t}"), &rows, &rounded.q, &rounded.scales);
        halves(host, k, t, &rows);
    }
}

/// The same from halves.
fn halves(host: &mut Host, k: usize, t: usize, rows: &[Vec<f32>]) {
    let halves: Vec<half::f16> = rows.iter().flatten().map(|x| half::f16::from_f32(*x)).collect();
    let room = Room::of(&halves.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>(), 2);
    let (mut q, mut scales) = (Room::new(k * t, 0), Room::new(k / 32 * t * 8, 0));
    let args = Args::new().room(&room).room(&q).room(&scales).n(k).n(t).n(k).i32(1).done();
    let grid = [k.div_ceil(1024) as u32, t as u32, 1];
    let launch = Launch { kernel: "quantise_q8", grid, block: 256, shared: 0, args };
    host.run("halves", &launch, &mut [&mut q, &mut scales]);
    let rows: Vec<Vec<f32>> = halves.chunks(k).map(|row| row.iter().map(|x| x.to_f32()).collect()).collect();
    check_rounded(host, &format!("quantise_q8 of halves, {k} x {t}"), &rows, &q, &scales);
}

fn gated_rounding(host: &mut Host) {
    for (k, t, act, floats) in
        [(32, 1, 0, true), (1056, 2, 1, false), (2080, 3, 2, true), (96, 5, 3, true), (64, 2, 4, true)]
    {
        let mut rng = Rng::new(&format!("gated {k}"));
        let (gate, up) = (rng.units((k + 1) * t, 4.0), rng.units((k + 3) * t, 2.0));
        let (gate_room, up_room) = (Room::of_f32(&gate), Room::of_f32(&up));
        let (mut out, mut q, mut scales) =
            (Room::new((k + 2) * t * 4, 4), Room::new(k * t, 0), Room::new(k / 32 * t * 8, 0));
        let args = Args::new().room(&gate_room).room(&up_room).at(floats.then_some(&out), 0).room(&q).room(&scales);
        let args = args.n(k).n(t).n(k + 1).n(k + 3).n(k + 2).i32(act).f32(1.5).f32(1.7).done();
        let grid = [k.div_ceil(1024) as u32, t as u32, 1];
        let launch = Launch { kernel: "gated_q8", grid, block: 256, shared: 0, args };
        host.run("gated_q8", &launch, &mut [&mut out, &mut q, &mut scales]);
        let got = out.f32s();
        let mut wanted = Vec::new();
        for row in 0..t {
            for i in 0..k {
                let (gate, up) = (f64::from(gate[row * (k + 1) + i]), f64::from(up[row * (k + 3) + i]));
                let y = gated(act, gate, up, 1.5, 1.7);
                wanted.push((y, 32.0 * UNIT * (y.abs() + gate.abs() * up.abs() * 1e-3)));
            }
        }
        if floats {
            let rows: Vec<Vec<f32>> = (0..t).map(|row| got[row * (k + 2)..row * (k + 2) + k].to_vec()).collect();
            host.compare(&format!("gated_q8 {act}"), &rows.concat(), &wanted);
            check_rounded(host, &format!("gated_q8 {act}"), &rows, &q, &scales);
        } else {
            let d = scales.f32s();
            let values: Vec<f32> =
                q.bytes().iter().enumerate().map(|(i, q)| f32::from(*q as i8) * d[i / 32 * 2]).collect();
            let wanted: Vec<(f64, f64)> =
                wanted.iter().enumerate().map(|(i, (y, _))| (*y, f64::from(d[i / 32 * 2]) * 0.51)).collect();
            host.compare(&format!("gated_q8 {act}, bytes only"), &values, &wanted);
        }
    }
}

/// The ABI's activations, times `up`.
pub(crate) fn gated(act: i32, gate: f64, up: f64, f0: f64, f1: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match act {
        0 => gate * sigmoid(gate) * up,
        1 => gate * sigmoid(2.0 * 0.797_884_560_802_865_4 * (gate + 0.044_715 * gate.powi(3))) * up,
        2 => 0.5 * gate * erfc(-gate / std::f64::consts::SQRT_2) * up,
        3 => gate.max(0.0).powi(2) * up,
        _ => {
            let clamped = gate.min(f0);
            clamped * sigmoid(f1 * clamped) * (up.clamp(-f0, f0) + 1.0)
        }
    }
}

/// The complementary error function, by the integral of its derivative in steps small enough for this purpose.
pub(crate) fn erfc(x: f64) -> f64 {
    let (size, steps) = (x.abs().min(8.0), 4000);
    let h = size / f64::from(steps);
    let f = |t: f64| (-t * t).exp();
    let inner: f64 = (1..steps).map(|i| f(h * f64::from(i)) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
    let erf = (f(0.0) + inner + f(size)) * h / 3.0 * 2.0 / std::f64::consts::PI.sqrt();
    if x < 0.0 { 1.0 + erf } else { 1.0 - erf }
}

/// A row's product with `x`, and how far f32 may be off.
pub(crate) fn dot(w: &[f32], x: &[f64]) -> (f64, f64) {
    let (mut sum, mut scale) = (0.0, 0.0);
    for (w, x) in w.chunks(256).zip(x.chunks(256)) {
        let most = w.iter().fold(0.0_f64, |most, w| most.max(f64::from(w.abs())));
        sum += w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum::<f64>();
        scale += 2.0 * most * x.iter().map(|x| x.abs()).sum::<f64>();
    }
    (sum, (16.0 + (w.len() as f64).sqrt()) * UNIT * scale + 1e-30)
}

/// act(gate) · up with the errors of both.
pub(crate) fn gated_with_error(act: i32, gate: (f64, f64), up: (f64, f64)) -> (f64, f64) {
    let y = gated(act, gate.0, up.0, 1.5, 1.7);
    let moved = [gate.0 - gate.1, gate.0 + gate.1].map(|gate| (gated(act, gate, up.0, 1.5, 1.7) - y).abs());
    let factor = gated(act, gate.0, 1.0, 1.5, 1.7).abs() + gated(act, gate.0, -1.0, 1.5, 1.7).abs();
    (y, 2.0 * moved[0].max(moved[1]) + factor * up.1 + 64.0 * UNIT * (y.abs() + 1e-3 * gate.0.abs()))
}

/// A product of the given shape, ready to be launched by any of the matrix kernels.
struct Product {
    weights: Vec<Weights>,
    x: Room,
    x_values: Vec<f64>,
    x_stride: usize,
    rounded: Option<Rounded>,
    bias: Vec<Vec<f32>>,
    bias_rooms: Vec<Room>,
    residual: Vec<f32>,
    residual_room: Room,
    outs: Vec<Room>,
    out_strides: Vec<usize>,
}

impl Product {
    fn new(host: &mut Host, name: &str, dtype: StrataDType, align: usize, rounded: bool, shape: &Shape) -> Product {
        let mut rng = Rng::new(&format!("{name} {} {}", shape.k, shape.t));
        let (k, t) = (shape.k, shape.t);
        let shift = if align >= 16 { 0 } else { align * (1 + rng.below(16 / align - 1).min(6)) % 16 };
        let weights: Vec<Weights> =
            shape.m.iter().map(|m| Weights::random(dtype, *m, k, shape.gap, shift, &mut rng)).collect();
        let x_stride = if rounded { k } else { k + 1 };
        let x = rng.units(x_stride * t, 2.0);
        let x_room = Room::of(&x.iter().flat_map(|x| x.to_ne_bytes()).collect::<Vec<_>>(), if rounded { 0 } else { 4 });
        let rounded = rounded.then(|| round(host, &x_room, k, t, x_stride));
        let mut x_values: Vec<f64> =
            (0..t).flat_map(|row| x[row * x_stride..row * x_stride + k].iter().map(|x| f64::from(*x))).collect();
        if let Some(rounded) = &rounded {
            x_values.clone_from(&rounded.values);
        }
        let bias: Vec<Vec<f32>> = shape.m.iter().map(|m| rng.units(*m, 1.0)).collect();
        let out_strides: Vec<usize> = shape.m.iter().map(|m| m + shape.out_gap).collect();
        let residual = rng.units(out_strides[0] * t, 1.0);
        Product {
            bias_rooms: bias.iter().map(|bias| Room::of_f32(bias)).collect(),
            residual_room: Room::of_f32(&residual),
            outs: out_strides.iter().map(|stride| Room::new(stride * t * 4, 4)).collect(),
            weights,
            x: x_room,
            x_values,
            x_stride,
            rounded,
            bias,
            residual,
            out_strides,
        }
    }

    /// MatMulArgs of matmul.h.
    fn args(&self, shape: &Shape) -> Args {
        let each = |args: Args, rooms: &[&Room]| (0..3).fold(args, |args, i| args.at(rooms.get(i).copied(), 0));
        let args = each(Args::new(), &self.weights.iter().map(|weights| &weights.room).collect::<Vec<_>>());
        let args = each(args, &self.outs.iter().collect::<Vec<_>>());
        let bias: Vec<&Room> = self.bias_rooms.iter().filter(|_| shape.bias).collect();
        let args = each(args, &bias);
        let args = match &self.rounded {
            Some(rounded) => args.room(&rounded.q).room(&rounded.scales).null(),
            None => args.null().null().room(&self.x),
        };
        let args = args.at(shape.residual.then_some(&self.residual_room), 0).i64(self.weights[0].stride);
        let args = (0..3).fold(args, |args, i| args.n(shape.m.get(i).copied().unwrap_or(0)));
        let args = args.n(shape.k).n(shape.t).n(self.x_stride);
        let args = (0..3).fold(args, |args, i| args.n(self.out_strides.get(i).copied().unwrap_or(0)));
        args.n(shape.m.len()).i32(shape.act).f32(1.5).f32(1.7).n(shape.rows).done()
    }

    fn check(&self, host: &mut Host, what: &str, shape: &Shape) {
        let parts = if shape.act >= 0 { 1 } else { shape.m.len() };
        for part in 0..parts {
            let (got, stride) = (self.outs[part].f32s(), self.out_strides[part]);
            let mut wanted = Vec::new();
            let mut values = Vec::new();
            for column in 0..shape.t {
                let x = &self.x_values[column * shape.k..(column + 1) * shape.k];
                for row in 0..stride {
                    let at = column * stride + row;
                    if row >= shape.m[part] {
                        if got[at].to_bits() != 0xcdcd_cdcd {
                            host.fail(format!("{what}: wrote beyond row {row}"));
                        }
                        continue;
                    }
                    let (mut y, mut error) = dot(&self.weights[part].rows[row], x);
                    if shape.act >= 0 {
                        (y, error) = gated_with_error(shape.act, (y, error), dot(&self.weights[1].rows[row], x));
                    } else if shape.bias {
                        y += f64::from(self.bias[part][row]);
                        error += 4.0 * UNIT * (y.abs() + 1.0);
                    }
                    if shape.residual {
                        y += f64::from(self.residual[at]);
                        error += 4.0 * UNIT * (y.abs() + 1.0);
                    }
                    wanted.push((y, error));
                    values.push(got[at]);
                }
            }
            host.compare(what, &values, &wanted);
        }
    }
}

fn product(
    host: &mut Host,
    kernel: &str,
    dtype: StrataDType,
    align: usize,
    columns: usize,
    rounded: bool,
    shape: &Shape,
) {
    let format = kernel.split('_').skip(1).collect::<Vec<_>>().join("_");
    let mut product = Product::new(host, &format, dtype, align, rounded, shape);
    let tiles = |m: &usize| m.div_ceil(shape.rows) as u32;
    let tiles = if shape.act >= 0 { tiles(&shape.m[0]) } else { shape.m.iter().map(tiles).sum() };
    let partial = 4 * shape.rows * columns * shape.k.div_ceil(256) * if shape.act >= 0 { 2 } else { 1 };
    let grid = [tiles, shape.t.div_ceil(columns) as u32, 1];
    let args = product.args(shape);
    let what = format!("{kernel} m {:?} k {} t {} act {}", shape.m, shape.k, shape.t, shape.act);
    let mut outs = std::mem::take(&mut product.outs);
    let launch = Launch { kernel, grid, block: 128, shared: partial as u32, args };
    host.run(&what, &launch, &mut outs.iter_mut().collect::<Vec<_>>());
    product.outs = outs;
    product.check(host, &what, shape);
}

/// matmul_float.cu
fn float_product(host: &mut Host, name: &str, dtype: StrataDType, shape: &Shape) {
    if shape.act >= 0 {
        return;
    }
    for (form, rows, columns) in [("c1", 4, 1), ("c8", 4, 8), ("tile", 16, 8)] {
        let mut product = Product::new(host, name, dtype, dtype.block_bytes(), false, shape);
        let tiles = shape.m.iter().map(|m| m.div_ceil(rows) as u32).sum();
        let kernel = format!("mmf_{name}_{form}");
        let grid = [tiles, shape.t.div_ceil(columns) as u32, 1];
        let what = format!("{kernel} m {:?} k {} t {}", shape.m, shape.k, shape.t);
        let args = product.args(shape);
        let mut outs = std::mem::take(&mut product.outs);
        let launch = Launch { kernel: &kernel, grid, block: 128, shared: 0, args };
        host.run(&what, &launch, &mut outs.iter_mut().collect::<Vec<_>>());
        product.outs = outs;
        product.check(host, &what, shape);
    }
}

/// Every kernel that rounds activations gives the same bits, whatever its tile: rows and columns that fill none, over
/// several weights, with bias and residual, each value against the plain loop too.
fn same_bits(host: &mut Host, name: &str, dtype: StrataDType, align: usize) {
    let k = if dtype.block_len() == 256 { [256, 1280] } else { [96, 1440] };
    for (m, k, t) in [(vec![1], k[0], 1), (vec![70, 3], k[1], 67), (vec![65], k[0], 9)] {
        let (residual, bias) = (m.len() == 1, k > 256);
        let shape = Shape { m, k, t, rows: 8, gap: align, out_gap: 2, bias, residual, act: -1 };
        let mut first: Option<Vec<Vec<u8>>> = None;
        let forms = [("mmv", "_t1", 1), ("mmv", "_t2", 2), ("mmv", "_t4", 4), ("mmv", "_t8", 8), ("mmt", "", 64)];
        for (family, tail, columns) in forms {
            let kernel = format!("{family}_{name}{tail}");
            let mut product = Product::new(host, name, dtype, align, true, &shape);
            let (rows, block) = if family == "mmt" { (64, 256) } else { (shape.rows, 128) };
            let shared = if family == "mmt" { 0 } else { 4 * rows * columns * k.div_ceil(256) };
            let tiles = shape.m.iter().map(|m| m.div_ceil(rows) as u32).sum();
            let grid = [tiles, t.div_ceil(columns) as u32, 1];
            let what = format!("{kernel} m {:?} k {k} t {t}", shape.m);
            let args = product.args(&shape);
            let mut outs = std::mem::take(&mut product.outs);
            let launch = Launch { kernel: &kernel, grid, block, shared: shared as u32, args };
            host.run(&what, &launch, &mut outs.iter_mut().collect::<Vec<_>>());
            product.outs = outs;
            let bytes: Vec<Vec<u8>> = product.outs.iter().map(|out| out.bytes().to_vec()).collect();
            match &first {
                None => {
                    product.check(host, &what, &shape);
                    first = Some(bytes);
                }
                Some(first) if *first != bytes => host.fail(format!("{what}: other bits than mmv_{name}_t1")),
                Some(_) => {}
            }
        }
    }
}

fn embedding(host: &mut Host, kernel: &str, dtype: StrataDType, align: usize) {
    let widths = if dtype.block_len() == 256 {
        [256, 1280]
    } else if dtype.is_quantised() {
        [32, 8480]
    } else {
        [5, 333]
    };
    for (h, gap) in [(widths[0], 0), (widths[1], 2)] {
        let mut rng = Rng::new(&format!("{kernel} {h}"));
        let table = Weights::random(dtype, 9, h, gap * align, if align >= 16 { 0 } else { align }, &mut rng);
        let ids = [8, 0, 3, 3];
        let ids_room = Room::of_i32(&ids);
        let stride = h + gap;
        let mut out = Room::new(stride * ids.len() * 4, 4);
        let args = Args::new().room(&table.room).room(&ids_room).room(&out).i64(table.stride);
        let args = args.n(h).n(ids.len()).f32(1.25).n(stride).done();
        let grid = [h.div_ceil(8192) as u32, ids.len() as u32, 1];
        host.run(kernel, &Launch { kernel, grid, block: 128, shared: 0, args }, &mut [&mut out]);
        let got = out.f32s();
        for (t, id) in ids.iter().enumerate() {
            let row = &table.rows[*id as usize];
            let most = row.iter().fold(0.0_f64, |most, w| most.max(f64::from(w.abs())));
            let wanted: Vec<(f64, f64)> = row.iter().map(|w| (f64::from(*w) * 1.25, 8.0 * UNIT * most)).collect();
            host.compare(&format!("{kernel} {h}"), &got[t * stride..t * stride + h], &wanted);
            if got[t * stride + h..(t + 1) * stride].iter().any(|x| x.to_bits() != 0xcdcd_cdcd) {
                host.fail(format!("{kernel} {h}: wrote between rows"));
            }
        }
    }
}
