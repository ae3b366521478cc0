//! Experts: moe.cu and route.cu.

use crate::host::{Args, Host, Launch, Rng, Room};
use crate::matrix::{dot, gated_with_error, round};
use crate::weights::{FORMATS, PLAIN, Weights};
use strata_backend_abi::StrataDType;

const UNIT: f64 = 1.0 / 16_777_216.0;

pub(crate) fn test(host: &mut Host) {
    for (dtype, name, align, _) in FORMATS {
        let large = dtype.block_len() == 256;
        for (k, per_slot, act, gap) in
            [(if large { 512 } else { 96 }, false, -1, 0), (if large { 2304 } else { 1120 }, true, 1, align)]
        {
            experts(host, &format!("moev_{name}"), dtype, align, &Shape { k, per_slot, act, gap, rounded: true });
            experts(host, &format!("moex_{name}"), dtype, align, &Shape { k, per_slot, act, gap, rounded: false });
            experts(host, &format!("moet_{name}"), dtype, align, &Shape { k, per_slot, act: -1, gap, rounded: true });
        }
    }
    for (dtype, name) in PLAIN {
        let shape = Shape { k: 37, per_slot: true, act: -1, gap: 0, rounded: false };
        experts(host, &format!("moex_{name}"), dtype, dtype.block_bytes(), &shape);
    }
    for (n_experts, n_slots) in [(1, 1), (7, 40), (64, 33), (128, 3000), (1500, 2500)] {
        sorting(host, n_experts, n_slots);
    }
    routing(host);
    combining(host);
    gathering(host);
}

struct Shape {
    k: usize,
    per_slot: bool,
    act: i32,
    gap: usize,
    rounded: bool,
}

const CHOSEN: usize = 3;
const EXPERTS: usize = 6;

/// Where each expert's slots begin, and the slots by expert, as `moes` leaves them.
fn sorted(ids: &[i32]) -> (Vec<i32>, Vec<i32>) {
    let (mut offsets, mut slots) = (vec![0], Vec::new());
    for expert in 0..EXPERTS as i32 {
        slots.extend((0..ids.len() as i32).filter(|slot| ids[*slot as usize] == expert));
        offsets.push(slots.len() as i32);
    }
    (offsets, slots)
}

/// moe.cu and mmt.h, ExpertArgs of matmul.h: a few tokens, three experts each, of six of which one is not here.
fn experts(host: &mut Host, kernel: &str, dtype: StrataDType, align: usize, shape: &Shape) {
    let tiled = kernel.starts_with("moet");
    // For tiles more rows than one has, and experts with more slots than one has.
    let tokens = if tiled { 93 } else { 5 };
    let m = if tiled { 67 } else { 7 };
    let Shape { k, per_slot, act, gap, rounded } = *shape;
    let mut rng = Rng::new(kernel);
    let shift = if align >= 16 { 0 } else { align };
    // Five experts are here; one weight after another in one room.
    let weights = [0; 2].map(|_| Weights::random(dtype, 5 * m, k, gap, shift, &mut rng));
    let table = [2, 0, -1, 4, 1, 3];
    let ids: Vec<i32> = (0..tokens * CHOSEN)
        .map(|i| if tiled && i % 4 > 0 { 3 } else { ((i * 7 + i / CHOSEN) % EXPERTS) as i32 })
        .collect();
    let (table_room, ids_room) = (Room::of_i32(&table), Room::of_i32(&ids));
    let x_rows = if per_slot { tokens * CHOSEN } else { tokens };
    let x_stride = if rounded { k } else { k + 3 };
    let x = rng.units(x_stride * x_rows, 2.0);
    let x_room = Room::of_f32(&x);
    let rounded = rounded.then(|| round(host, &x_room, k, x_rows, k));
    let out_stride = m + 2;
    let mut out = Room::new(tokens * CHOSEN * out_stride * 4, 4);
    let rows = 4;
    let args = Args::new().room(&weights[0].room).at((act >= 0).then_some(&weights[1].room), 0).room(&out);
    let args = match &rounded {
        Some(rounded) => args.room(&rounded.q).room(&rounded.scales).null(),
        None => args.null().null().room(&x_room),
    };
    let args = args.room(&ids_room).room(&table_room);
    let (offsets, slots) = sorted(&ids);
    let (offsets_room, slots_room) = (Room::of_i32(&offsets), Room::of_i32(&slots));
    let args = args.at(tiled.then_some(&slots_room), 0).at(tiled.then_some(&offsets_room), 0);
    let args = args.i64(weights[0].stride).i64(weights[0].stride * m).n(m).n(k).n(CHOSEN).n(tokens);
    let args =
        args.i32(i32::from(per_slot)).n(EXPERTS).i32(act).f32(1.5).f32(1.7).n(rows).n(x_stride).n(out_stride).done();
    let shared = if tiled { 0 } else { 4 * rows * k.div_ceil(256) * if act >= 0 { 2 } else { 1 } };
    // A few more tiles than there are.
    let tiles = offsets.windows(2).map(|pair| (pair[1] - pair[0] + 63) / 64).sum::<i32>() as u32 + 2;
    let grid = if tiled { [m.div_ceil(64) as u32, tiles, 1] } else { [m.div_ceil(rows) as u32, ids.len() as u32, 1] };
    let block = if tiled { 256 } else { 128 };
    host.run(kernel, &Launch { kernel, grid, block, shared: shared as u32, args }, &mut [&mut out]);
    let got = out.f32s();
    for (slot, id) in ids.iter().enumerate() {
        let x_row = if per_slot { slot } else { slot / CHOSEN };
        let values: Vec<f64> = match &rounded {
            Some(rounded) => rounded.values[x_row * k..(x_row + 1) * k].to_vec(),
            None => x[x_row * x_stride..x_row * x_stride + k].iter().map(|x| f64::from(*x)).collect(),
        };
        let place = table[*id as usize];
        let wanted: Vec<(f64, f64)> = (0..m)
            .map(|row| {
                if place < 0 {
                    return (0.0, 0.0);
                }
                let at = place as usize * m + row;
                let gate = dot(&weights[0].rows[at], &values);
                if act < 0 { gate } else { gated_with_error(act, gate, dot(&weights[1].rows[at], &values)) }
            })
            .collect();
        host.compare(
            &format!("{kernel} k {k} act {act} slot {slot}"),
            &got[slot * out_stride..slot * out_stride + m],
            &wanted,
        );
        if got[slot * out_stride + m..(slot + 1) * out_stride].iter().any(|x| x.to_bits() != 0xcdcd_cdcd) {
            host.fail(format!("{kernel}: wrote between slots"));
        }
    }
}

fn sorting(host: &mut Host, n_experts: usize, n_slots: usize) {
    let mut rng = Rng::new(&format!("sorting {n_experts}"));
    let ids: Vec<i32> = (0..n_slots).map(|_| rng.below(n_experts) as i32).collect();
    let ids_room = Room::of_i32(&ids);
    let (offsets, sorted) = (Room::new((n_experts + 1) * 4, 4), Room::new(n_slots * 4, 4));
    let args = Args::new().room(&ids_room).null().room(&offsets).room(&sorted).n(n_slots).n(n_experts).done();
    let shared = 4 * (n_experts + 1) as u32;
    host.once(&Launch { kernel: "moes", grid: [1, 1, 1], block: 1024, shared, args });
    let (offsets, sorted) = (offsets.i32s(), sorted.i32s());
    let mut seen = vec![false; n_slots];
    for expert in 0..n_experts {
        for at in offsets[expert]..offsets[expert + 1] {
            let slot = sorted[at as usize];
            if ids[slot as usize] != expert as i32 || std::mem::replace(&mut seen[slot as usize], true) {
                host.fail(format!("moes {n_experts} x {n_slots}: slot {slot} stands under expert {expert}"));
                return;
            }
        }
    }
    if offsets[0] != 0 || !seen.into_iter().all(|seen| seen) {
        host.fail(format!("moes {n_experts} x {n_slots}: not every slot is there"));
    }
}

/// The numbers of StrataRouterScore: softmax over all, softmax over the chosen, sigmoid, root of softplus.
fn score(kind: i32, logit: f64, greatest: f64, sum: f64) -> f64 {
    match kind {
        0 => (logit - greatest).exp() / sum,
        1 => logit,
        2 => 1.0 / (1.0 + (-logit).exp()),
        _ => (logit.max(0.0) + (-logit.abs()).exp().ln_1p()).sqrt(),
    }
}

fn routing(host: &mut Host) {
    // Experts, chosen, score, normalise, groups, kept, bias.
    let cases = [
        (5, 2, 0, 0, 0, 0, false),
        (128, 8, 0, 1, 0, 0, false),
        (33, 4, 1, 0, 0, 0, true),
        (64, 6, 2, 1, 8, 3, true),
        (1024, 10, 3, 1, 0, 0, false),
        (40, 1, 2, 0, 4, 2, false),
    ];
    for (n, k, kind, normalise, groups, kept, has_bias) in cases {
        const TOKENS: usize = 3;
        let mut rng = Rng::new(&format!("routing {n}"));
        let (logits, bias) = (rng.units((n + 1) * TOKENS, 6.0), rng.units(n, 0.2));
        let (logits_room, bias_room) = (Room::of_f32(&logits), Room::of_f32(&bias));
        let (mut ids, mut weights) = (Room::new((k + 1) * TOKENS * 4, 4), Room::new((k + 2) * TOKENS * 4, 4));
        let args = Args::new().room(&ids).room(&weights).room(&logits_room).at(has_bias.then_some(&bias_room), 0);
        let args = args.i64((k + 1) * 4).i64((k + 2) * 4).i64((n + 1) * 4);
        let args = args.n(n).n(k).i32(kind).i32(normalise).i32(groups).i32(kept).f32(2.5).f32(1e-20).done();
        let launch = Launch { kernel: "router", grid: [TOKENS as u32, 1, 1], block: 32, shared: 0, args };
        host.run("router", &launch, &mut [&mut ids, &mut weights]);
        let (got_ids, got_weights) = (ids.i32s(), weights.f32s());
        for t in 0..TOKENS {
            let row: Vec<f64> = logits[t * (n + 1)..t * (n + 1) + n].iter().map(|x| f64::from(*x)).collect();
            let bias: Vec<f64> = bias.iter().map(|b| if has_bias { f64::from(*b) } else { 0.0 }).collect();
            let (chosen, wanted) = routed(&row, &bias, k, kind, normalise, groups as usize, kept as usize);
            let what = format!("router {n} {kind} token {t}");
            let ids: Vec<usize> = got_ids[t * (k + 1)..t * (k + 1) + k].iter().map(|id| *id as usize).collect();
            if ids != chosen {
                host.fail(format!("{what}: chose {ids:?}, not {chosen:?}"));
                continue;
            }
            host.compare(&what, &got_weights[t * (k + 2)..t * (k + 2) + k], &wanted);
        }
    }
}

fn routed(
    row: &[f64],
    bias: &[f64],
    k: usize,
    kind: i32,
    normalise: i32,
    groups: usize,
    kept: usize,
) -> (Vec<usize>, Vec<(f64, f64)>) {
    let greatest = row.iter().fold(f64::MIN, |most, x| most.max(*x));
    let sum: f64 = row.iter().map(|x| (x - greatest).exp()).sum();
    let scores: Vec<f64> = row.iter().map(|x| score(kind, *x, greatest, sum)).collect();
    let mut biased: Vec<f64> = scores.iter().zip(bias).map(|(score, bias)| score + bias).collect();
    if let Some(size) = row.len().checked_div(groups) {
        let mut of_group: Vec<(f64, usize)> = biased
            .chunks(size)
            .map(|group| {
                let mut group = group.to_vec();
                group.sort_by(|a, b| b.total_cmp(a));
                if size > 1 { group[0] + group[1] } else { group[0] }
            })
            .zip(0..)
            .collect();
        of_group.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, group) in &of_group[kept..] {
            biased[group * size..(group + 1) * size].fill(f64::NEG_INFINITY);
        }
    }
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| biased[*b].total_cmp(&biased[*a]));
    order.truncate(k);
    let mut weights: Vec<f64> = order.iter().map(|i| scores[*i]).collect();
    if kind == 1 {
        let most = weights[0];
        let total: f64 = weights.iter().map(|w| (w - most).exp()).sum();
        weights = weights.iter().map(|w| (w - most).exp() / total).collect();
    }
    if normalise != 0 {
        let total: f64 = weights.iter().sum();
        weights = weights.iter().map(|w| w / total).collect();
    }
    let spread = 64.0 * UNIT * (1.0 + greatest.abs());
    (order, weights.iter().map(|w| (w * 2.5, w.abs() * 2.5 * spread)).collect())
}

fn combining(host: &mut Host) {
    for (n, k, t, has_add) in [(1, 1, 1, false), (300, 8, 3, true), (513, 3, 2, false)] {
        let mut rng = Rng::new(&format!("combining {n}"));
        let x = rng.units((n + 1) * k * t, 1.0);
        let (weights, add) = (rng.units((k + 1) * t, 1.0), rng.units((n + 2) * t, 1.0));
        let (x_room, weights_room, add_room) = (Room::of_f32(&x), Room::of_f32(&weights), Room::of_f32(&add));
        let mut out = Room::new((n + 3) * t * 4, 4);
        let args = Args::new().room(&out).room(&x_room).room(&weights_room).at(has_add.then_some(&add_room), 0);
        let args = args.i64((n + 3) * 4).i64((n + 1) * 4).i64((n + 1) * k * 4).i64((k + 1) * 4).i64((n + 2) * 4);
        let args = args.n(n).n(k).done();
        let grid = [n.div_ceil(256) as u32, t as u32, 1];
        host.run("combine", &Launch { kernel: "combine", grid, block: 256, shared: 0, args }, &mut [&mut out]);
        let got = out.f32s();
        for row in 0..t {
            let wanted: Vec<(f64, f64)> = (0..n)
                .map(|i| {
                    let part =
                        |j: usize| f64::from(weights[row * (k + 1) + j]) * f64::from(x[(row * k + j) * (n + 1) + i]);
                    let add = if has_add { f64::from(add[row * (n + 2) + i]) } else { 0.0 };
                    let scale: f64 = (0..k).map(|j| part(j).abs()).sum();
                    ((0..k).map(part).sum::<f64>() + add, 8.0 * UNIT * (scale + add.abs()))
                })
                .collect();
            host.compare(&format!("combine {n}"), &got[row * (n + 3)..row * (n + 3) + n], &wanted);
        }
    }
}

fn gathering(host: &mut Host) {
    for n in [1, 255, 257, 600] {
        let mut rng = Rng::new(&format!("gathering {n}"));
        let x = rng.units((n + 1) * 6, 1.0);
        let rows = [5, 0, 3];
        let (x_room, rows_room) = (Room::of_f32(&x), Room::of_i32(&rows));
        let mut out = Room::new((n + 2) * rows.len() * 4, 4);
        let args = Args::new().room(&out).room(&x_room).room(&rows_room).i64((n + 2) * 4).i64((n + 1) * 4).n(n).done();
        let grid = [(n as u32).div_ceil(256), rows.len() as u32, 1];
        host.run("gather", &Launch { kernel: "gather", grid, block: 256, shared: 0, args }, &mut [&mut out]);
        let got = out.f32s();
        for (o, row) in rows.iter().enumerate() {
            let from = *row as usize * (n + 1);
            let wanted: Vec<(f64, f64)> = x[from..from + n].iter().map(|x| (f64::from(*x), 0.0)).collect();
            host.compare(&format!("gather {n}"), &got[o * (n + 2)..o * (n + 2) + n], &wanted);
        }
    }
}
