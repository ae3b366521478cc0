//! Attention against a plain loop in 64 bits, and its bits against itself cut another way.

use super::super::testing::{Machine, Operand};
use strata_backend_abi::{StrataDType, StrataOpKind};

/// A case: heads, kv heads, head size, value size, cache format, page size.
struct Case {
    heads: usize,
    kv_heads: usize,
    d: usize,
    dv: usize,
    dtype: StrataDType,
    page: usize,
    softcap: f32,
    window: i64,
    sinks: bool,
}

const PLAIN: Case = Case {
    heads: 6,
    kv_heads: 2,
    d: 20,
    dv: 24,
    dtype: StrataDType::F16,
    page: 32,
    softcap: 0.0,
    window: 0,
    sinks: false,
};

fn value(i: usize) -> f32 {
    ((i * 7919 % 1013) as f32 - 506.0) / 300.0
}

/// Positions per sequence in the cache.
const LENGTH: usize = 512;

impl Case {
    fn cell(&self, sequence: usize, position: usize) -> usize {
        self.table(sequence, position / self.page) as usize * self.page + position % self.page
    }

    /// Pages of the two sequences lie in opposite orders, taking turns.
    fn table(&self, sequence: usize, page: usize) -> i32 {
        let pages = LENGTH / self.page;
        (if sequence == 0 { 2 * page } else { 2 * (pages - 1 - page) + 1 }) as i32
    }

    /// Runs tokens `(sequence, position)` in one step; a row of all heads' results each.
    fn run(&self, tokens: &[(usize, usize)], n_workers: usize) -> Vec<Vec<f32>> {
        let mut machine = Machine::with_workers(n_workers);
        let (d, dv, n) = (self.d as u64, self.dv as u64, tokens.len() as u64);
        let cells = 2 * LENGTH as u64;
        let k = machine.plain(self.dtype, [d, self.kv_heads as u64, cells, 1]);
        let v = machine.plain(self.dtype, [dv, self.kv_heads as u64, cells, 1]);
        machine.fill(&k, value);
        machine.fill(&v, |i| value(i + 5));
        let q = machine.floats_with([d, self.heads as u64, n, 1], |i| {
            let (token, rest) = (i / (self.d * self.heads), i % (self.d * self.heads));
            value(rest + 1000 * (tokens[token].1 + 3 * tokens[token].0))
        });
        let out = machine.floats([dv, self.heads as u64, n, 1]);
        let pages = LENGTH / self.page;
        let table: Vec<i32> = (0..2 * pages).map(|i| self.table(i / pages, i % pages)).collect();
        let table = machine.indices_2d(pages as u64, &table);
        let sequence = machine.indices(&tokens.iter().map(|token| token.0 as i32).collect::<Vec<_>>());
        let position = machine.indices(&tokens.iter().map(|token| token.1 as i32).collect::<Vec<_>>());
        let sinks = machine.floats_with([self.heads as u64, 1, 1, 1], |i| i as f32 - 1.0);
        let mut operands: Vec<&Operand> = vec![&out, &q, &k, &v, &table, &sequence, &position];
        if self.sinks {
            operands.push(&sinks);
        }
        machine.kv_length = tokens.iter().map(|token| token.1 as i64 + 1).max().unwrap();
        let (floats, ints) = ([0.3, self.softcap], [self.page as i64, self.window]);
        machine.op(StrataOpKind::Attention, &operands, &floats, &ints).unwrap();
        machine.read(&out).chunks(self.dv * self.heads).map(<[f32]>::to_vec).collect()
    }

    fn stored(&self, x: f32) -> f64 {
        match self.dtype {
            StrataDType::F16 => half::f16::from_f32(x).to_f64(),
            StrataDType::BF16 => half::bf16::from_f32(x).to_f64(),
            _ => f64::from(x),
        }
    }

    /// The definition, in 64 bits.
    fn exact(&self, sequence: usize, position: usize) -> Vec<f64> {
        let mut result = Vec::new();
        for head in 0..self.heads {
            let kv_head = head / (self.heads / self.kv_heads);
            let first = if self.window > 0 { (position + 1).saturating_sub(self.window as usize) } else { 0 };
            let row = |p: usize, width: usize| (self.cell(sequence, p) * self.kv_heads + kv_head) * width;
            let scores: Vec<f64> = (first..=position)
                .map(|p| {
                    let dot: f64 = (0..self.d)
                        .map(|i| {
                            let q = value(head * self.d + i + 1000 * (position + 3 * sequence));
                            f64::from(q) * self.stored(value(row(p, self.d) + i))
                        })
                        .sum();
                    let score = dot * f64::from(0.3_f32);
                    let cap = f64::from(self.softcap);
                    if cap > 0.0 { cap * (score / cap).tanh() } else { score }
                })
                .collect();
            let sink = if self.sinks { (head as f64 - 1.0).exp() } else { 0.0 };
            let sum: f64 = scores.iter().map(|score| score.exp()).sum::<f64>() + sink;
            result.extend((0..self.dv).map(|i| {
                let weighted =
                    |(j, score): (usize, &f64)| score.exp() * self.stored(value(row(first + j, self.dv) + i + 5));
                scores.iter().enumerate().map(weighted).sum::<f64>() / sum
            }));
        }
        result
    }

    fn check(&self, tokens: &[(usize, usize)]) {
        for (token, row) in tokens.iter().zip(self.run(tokens, 2)) {
            for (i, (got, exact)) in row.iter().zip(self.exact(token.0, token.1)).enumerate() {
                assert!((f64::from(*got) - exact).abs() < 2e-5, "{token:?} element {i}: {got} {exact}");
            }
        }
    }
}

#[test]
fn formats_and_grouping() {
    let tokens = [(0, 0), (0, 1), (1, 300), (1, 301), (0, 130)];
    PLAIN.check(&tokens);
    Case { dtype: StrataDType::F32, ..PLAIN }.check(&tokens);
    Case { dtype: StrataDType::BF16, ..PLAIN }.check(&tokens);
    Case { heads: 4, kv_heads: 4, d: 64, dv: 64, ..PLAIN }.check(&tokens);
    Case { heads: 3, kv_heads: 1, d: 16, dv: 8, page: 512, ..PLAIN }.check(&tokens);
}

#[test]
fn window_softcap_and_sinks() {
    let tokens = [(0, 3), (0, 400), (1, 127), (1, 128)];
    for window in [1, 5, 128, 200] {
        Case { window, ..PLAIN }.check(&tokens);
    }
    Case { softcap: 1.5, ..PLAIN }.check(&tokens);
    Case { sinks: true, window: 100, softcap: 30.0, ..PLAIN }.check(&tokens);
}

#[test]
fn one_token_spread_over_workers() {
    Case { sinks: true, ..PLAIN }.check(&[(0, 500)]);
    Case { window: 140, ..PLAIN }.check(&[(1, 383), (0, 50)]);
}

#[test]
fn the_cut_never_changes_a_bit() {
    for case in [PLAIN, Case { window: 150, sinks: true, softcap: 20.0, ..PLAIN }] {
        let tokens: Vec<(usize, usize)> = (0..300).map(|p| (0, p)).chain((90..100).map(|p| (1, p))).collect();
        let all = case.run(&tokens, 2);
        assert_eq!(all, case.run(&tokens, 1), "two workers");
        assert_eq!(all, case.run(&tokens, 5), "five workers");
        for i in [0, 1, 127, 128, 250, 299, 305] {
            for n_workers in [1, 2, 7] {
                let alone = case.run(&tokens[i..=i], n_workers);
                assert_eq!(alone[0], all[i], "token {i} alone on {n_workers}");
            }
        }
        assert_eq!(case.run(&tokens[256..259], 3)[1], all[257], "three together");
    }
}
