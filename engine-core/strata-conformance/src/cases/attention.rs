//! `KvStore` and `Attention` over a paged cache in several formats.

use super::{Check, Group, both_modes, one};
use crate::blocks::{Blocks, random_row};
use crate::case::{Case, CaseBuilder, Dim, Place};
use crate::rng::Rng;
use std::collections::BTreeSet;
use strata_backend_abi::{StrataDType, StrataOpKind};

/// Formats of keys and values that are tried together.
const CACHES: [(StrataDType, StrataDType); 6] = [
    (StrataDType::F32, StrataDType::F32),
    (StrataDType::F16, StrataDType::F16),
    (StrataDType::BF16, StrataDType::BF16),
    (StrataDType::Q8_0, StrataDType::Q8_0),
    (StrataDType::F32, StrataDType::F16),
    (StrataDType::F16, StrataDType::Q8_0),
];

pub(super) fn groups(groups: &mut Vec<Group>) {
    for (cache, _) in &CACHES[..4] {
        let cache = *cache;
        groups.push(Group::new("kv_store", cache.name(), Check::Values, move || stores(cache)));
        groups.push(Group::new("kv_store", cache.name(), Check::SameBits, move || {
            vec![one("D64 heads 3 page 4", false, 9, true, |b| store(b, cache, 64, 3, &Sequences::several(9, 4), 0))]
        }));
    }
    for (k, v) in CACHES {
        let format = if k == v { k.name().to_owned() } else { format!("{k}+{v}") };
        groups.push(Group::new("attention", format.clone(), Check::Values, move || values(k, v)));
        groups.push(Group::new("attention", format, Check::SameBits, move || same_bits(k, v)));
    }
}

/// Which sequence and position each token of the step has, and how large pages are.
#[derive(Clone)]
struct Sequences {
    /// (sequence, position) per token.
    tokens: Vec<(u64, u64)>,
    page: u64,
}

impl Sequences {
    /// One sequence, the step's tokens in a row from `first`.
    fn run(tokens: u64, first: u64, page: u64) -> Sequences {
        Sequences { tokens: (0..tokens).map(|t| (0, first + t)).collect(), page }
    }

    /// Tokens of three sequences mixed, each sequence at its own place.
    fn several(tokens: u64, page: u64) -> Sequences {
        let mut next = [3, 41, 0];
        let token = |t: u64| {
            let sequence = t * 5 % 7 % 3;
            next[sequence as usize] += 1;
            (sequence, next[sequence as usize] - 1)
        };
        Sequences { tokens: (0..tokens).map(token).collect(), page }
    }

    /// One sequence whose tokens come in any order.
    fn scattered(tokens: u64, page: u64) -> Sequences {
        Sequences { tokens: (0..tokens).map(|t| (0, 7 + (t * 5 + 3) % tokens * 2)).collect(), page }
    }

    fn pages_per_sequence(&self) -> u64 {
        self.tokens.iter().map(|(_, position)| position / self.page + 1).max().unwrap_or(1) + 2
    }

    fn count(&self) -> u64 {
        self.tokens.iter().map(|(sequence, _)| sequence + 1).max().unwrap_or(1)
    }

    /// Cells of the cache: pages for everything, and two that nobody uses.
    fn cells(&self) -> u64 {
        (self.pages_per_sequence() * self.count() + 2) * self.page
    }
}

/// The three index operands; returns them with the page table itself.
fn place(b: &mut CaseBuilder, sequences: &Sequences) -> ([u32; 3], Vec<Vec<u64>>) {
    let (per_sequence, count) = (sequences.pages_per_sequence(), sequences.count());
    let mut pages: Vec<u64> = (0..sequences.cells() / sequences.page).collect();
    b.rng.shuffle(&mut pages);
    let table: Vec<Vec<u64>> =
        (0..count).map(|s| pages[(s * per_sequence) as usize..((s + 1) * per_sequence) as usize].to_vec()).collect();
    // Entries of pages that the step cannot reach are no page numbers, and rows have a gap.
    let dims = [Dim::Fixed(per_sequence), Dim::Fixed(count)];
    let id = b.strided(Place::Scratch, StrataDType::I32, &dims, [3, 0, 0]);
    for (s, row) in table.iter().enumerate() {
        let mine = sequences.tokens.iter().filter(|(sequence, _)| *sequence == s as u64);
        let reached = mine.map(|(_, position)| position / sequences.page + 1).max().unwrap_or(0) as usize;
        let entry = |(i, page): (usize, &u64)| if i < reached { *page as i32 } else { -1 };
        let bytes: Vec<u8> = row.iter().enumerate().map(entry).flat_map(i32::to_le_bytes).collect();
        b.put_row(id, [s as u64, 0, 0], &bytes);
    }
    let sequence: Vec<f64> = sequences.tokens.iter().map(|token| token.0 as f64).collect();
    let position: Vec<f64> = sequences.tokens.iter().map(|token| token.1 as f64).collect();
    let (sequence, position) = (b.per_token(&sequence), b.per_token(&position));
    ([id, sequence, position], table)
}

fn store(b: &mut CaseBuilder, cache: StrataDType, width: u64, heads: u64, sequences: &Sequences, gap: u64) {
    let (width, heads) = (Dim::Fixed(width), Dim::Fixed(heads));
    let x = b.strided(Place::Scratch, StrataDType::F32, &[width, heads, Dim::Tokens], [gap, 3 * gap, 0]);
    b.fill_activations(x, 1.0);
    let cells = Dim::Fixed(sequences.cells());
    let cache = b.strided(Place::Cache, cache, &[width, heads, cells], [0, gap.min(1), 0]);
    let ([table, sequence, position], _) = place(b, sequences);
    let operands = [cache, x, table, sequence, position].map(Some);
    b.op(StrataOpKind::KvStore, &operands, &[], &[sequences.page as i64]);
}

fn stores(cache: StrataDType) -> Vec<Case> {
    let mut cases = Vec::new();
    for (width, heads, sequences, gap) in [
        (64, 3, Sequences::run(1, 0, 16), 0),
        (256, 1, Sequences::run(7, 61, 32), 0),
        (96, 4, Sequences::several(9, 16), 4),
        (128, 2, Sequences::run(33, 5, 256), 32),
        (32, 8, Sequences::several(5, 1), 0),
        (64, 2, Sequences::scattered(11, 8), 0),
    ] {
        let name = format!("D{width} heads {heads} page {} gap {gap}", sequences.page);
        both_modes(&mut cases, &name, sequences.tokens.len() as u64, |b| {
            store(b, cache, width, heads, &sequences, gap);
        });
    }
    cases
}

/// One attention op.
#[derive(Clone)]
struct Shape {
    heads: u64,
    kv_heads: u64,
    width: u64,
    value_width: u64,
    window: u64,
    softcap: f64,
    sinks: bool,
    /// Size of a logit before the cap.
    spread: f64,
    gap: u64,
    sequences: Sequences,
}

impl Shape {
    fn plain(heads: u64, kv_heads: u64, width: u64, sequences: Sequences) -> Shape {
        let (window, softcap, sinks, spread, gap) = (0, 0.0, false, 2.0, 0);
        Shape { heads, kv_heads, width, value_width: width, window, softcap, sinks, spread, gap, sequences }
    }

    fn name(&self) -> String {
        let Shape { heads, kv_heads, width, value_width, window, softcap, sinks, spread, gap, sequences } = self;
        let last = sequences.tokens.iter().map(|token| token.1).max().unwrap_or(0);
        let mut name = format!("heads {heads}/{kv_heads} D{width}/{value_width} page {} to {last}", sequences.page);
        for (said, words) in [
            (sequences.count() > 1, format!(" of {} sequences", sequences.count())),
            (*window > 0, format!(" window {window}")),
            (*softcap > 0.0, format!(" cap {softcap}")),
            (*sinks, " sinks".to_owned()),
            (*gap > 0, " strided".to_owned()),
            (*spread > 10.0, format!(" spread {spread}")),
        ] {
            if said {
                name.push_str(&words);
            }
        }
        name
    }

    fn build(&self, b: &mut CaseBuilder, k_format: StrataDType, v_format: StrataDType) {
        let heads = Dim::Fixed(self.heads);
        let out = b.strided(
            Place::Scratch,
            StrataDType::F32,
            &[Dim::Fixed(self.value_width), heads, Dim::Tokens],
            [0, self.gap, 0],
        );
        let q_dims = [Dim::Fixed(self.width), heads, Dim::Tokens];
        let q = b.strided(Place::Scratch, StrataDType::F32, &q_dims, [self.gap, 2 * self.gap, 0]);
        b.fill(q, Rng::normal);
        let ([table, sequence, position], pages) = place(b, &self.sequences);
        let visible = self.visible(&pages);
        let k = self.cache(b, k_format, self.width, &visible);
        let v = self.cache(b, v_format, self.value_width, &visible);
        let sinks = self.sinks.then(|| {
            let sinks = b.tensor(Place::Weights, StrataDType::F32, &[heads]);
            b.fill(sinks, |rng| rng.normal() * 2.0);
            sinks
        });
        let factor = self.spread / (self.width as f64).sqrt();
        let operands = [Some(out), Some(q), Some(k), Some(v), Some(table), Some(sequence), Some(position), sinks];
        let ints = [self.sequences.page as i64, self.window as i64];
        b.op(StrataOpKind::Attention, &operands, &[factor, self.softcap], &ints);
    }

    /// Cells that some token sees; every other cell keeps whatever it held.
    fn visible(&self, pages: &[Vec<u64>]) -> BTreeSet<u64> {
        let page = self.sequences.page;
        let mut cells = BTreeSet::new();
        for (sequence, last) in &self.sequences.tokens {
            let first = if self.window > 0 { (last + 1).saturating_sub(self.window) } else { 0 };
            cells.extend((first..=*last).map(|p| pages[*sequence as usize][(p / page) as usize] * page + p % page));
        }
        cells
    }

    fn cache(&self, b: &mut CaseBuilder, format: StrataDType, width: u64, visible: &BTreeSet<u64>) -> u32 {
        let dims = [Dim::Fixed(width), Dim::Fixed(self.kv_heads), Dim::Fixed(self.sequences.cells())];
        let cache = b.strided(Place::Cache, format, &dims, [0, self.gap.min(1), 0]);
        for cell in visible {
            for head in 0..self.kv_heads {
                let row = random_row(format, width, 1.0, Blocks::Usual, &mut b.rng);
                b.put_row(cache, [head, *cell, 0], &row);
            }
        }
        cache
    }
}

fn values(k: StrataDType, v: StrataDType) -> Vec<Case> {
    let plain = Shape::plain;
    let run = Sequences::run;
    let shapes = [
        plain(4, 4, 32, run(1, 0, 16)),
        plain(9, 3, 64, run(7, 0, 16)),
        plain(4, 1, 256, run(2, 130, 32)),
        Shape { window: 20, ..plain(8, 1, 128, run(7, 60, 16)) },
        Shape { softcap: 5.0, ..plain(16, 2, 96, run(3, 40, 8)) },
        plain(9, 3, 64, Sequences::several(11, 16)),
        Shape { sinks: true, window: 128, ..plain(8, 1, 64, run(3, 200, 64)) },
        Shape { value_width: 64, gap: 4, ..plain(6, 2, 96, run(5, 17, 16)) },
        plain(3, 1, 64, run(33, 5, 32)),
        plain(2, 2, 64, run(1, 700, 256)),
        Shape { softcap: 10.0, sinks: true, window: 9, gap: 8, ..plain(6, 2, 128, Sequences::several(9, 4)) },
        Shape { spread: 60.0, ..plain(3, 3, 64, run(7, 90, 16)) },
        Shape { window: 1, ..plain(4, 2, 32, run(4, 12, 16)) },
        Shape { sinks: true, spread: 40.0, ..plain(4, 2, 64, run(1, 64, 1)) },
        Shape { window: 16, ..plain(4, 2, 64, run(64, 30, 16)) },
        plain(6, 3, 32, Sequences::scattered(11, 4)),
    ];
    let mut cases = Vec::new();
    for shape in shapes {
        both_modes(&mut cases, &shape.name(), shape.sequences.tokens.len() as u64, |b| shape.build(b, k, v));
    }
    cases
}

fn same_bits(k: StrataDType, v: StrataDType) -> Vec<Case> {
    let shapes = [
        (true, Shape::plain(9, 3, 64, Sequences::run(19, 120, 16))),
        (false, Shape { window: 30, sinks: true, ..Shape::plain(4, 1, 96, Sequences::several(12, 8)) }),
        (false, Shape { softcap: 8.0, ..Shape::plain(2, 2, 32, Sequences::run(9, 600, 64)) }),
    ];
    shapes
        .into_iter()
        .map(|(precise, shape)| {
            let tokens = shape.sequences.tokens.len() as u64;
            one(&shape.name(), precise, tokens, true, |b| shape.build(b, k, v))
        })
        .collect()
}
