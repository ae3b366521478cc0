//! Attention over the paged cache: grouped heads, window, soft-capping, sinks.
//!
//! Keys are taken in chunks of [`KEYS`] positions, counted from position 0. A chunk gives each
//! (token, head) a partial result (greatest score, sum, weighted values); partial results are
//! merged in the order of the chunks. A token's result is thus a function of its own position and
//! keys alone: prefill (tiles of tokens share the widened keys), one token on one worker, and one
//! token with its chunks spread over workers give the same bits.

use std::sync::Arc;

use strata_backend_abi::{StrataDType, StrataScalar, StrataUnary};
use strata_backend_sdk::Result;

use super::kv::Pages;
use super::math::{Kernels, Lanes, exp, reduce};
use super::{Op, Run, Scratch, ScratchNeeds, Work};
use crate::memory::{FloatRows, View};

/// Positions in a chunk. Part of the result's definition: another value gives other bits.
const KEYS: usize = 128;
/// Most tokens that share a tile.
const TILE: usize = 16;
/// Steps of at most this many tokens may spread a token's chunks over workers.
const SPLIT_TOKENS: usize = 4;
/// Heads are padded with zeros to whole lanes.
const LANES: usize = 16;

/// Shape and operands, shared by the two stages.
pub(crate) struct Attention {
    out: View,
    q: View,
    k: View,
    v: View,
    pages: Pages,
    sequence: View,
    position: View,
    sinks: Option<View>,
    scale: f32,
    softcap: f32,
    /// 0: none.
    window: usize,
    heads_per_kv: usize,
    /// Padded head sizes.
    d: usize,
    dv: usize,
    n_workers: usize,
    /// Partial results `[token, head, chunk]`: greatest score, sum, values.
    partials: FloatRows,
    /// Chunks that the partial results have room for.
    most_chunks: usize,
}

/// Chunks of keys that a program's cache can have, by its page table and the length it declares.
fn most_chunks(positions: usize, scalar_max: &[i64]) -> usize {
    let declared = scalar_max.get(StrataScalar::KvLength as usize).copied().unwrap_or(i64::MAX);
    usize::try_from(declared).unwrap_or(usize::MAX).min(positions).div_ceil(KEYS).max(1)
}

/// Rows and row length of the partial results that an op needs.
pub(crate) fn partial_shape(op: &Op<'_>, scalar_max: &[i64]) -> Result<(usize, usize)> {
    let (out, pages) = (op.view(0)?, Pages::new(op.view(4)?, op.int(0)));
    let tokens = SPLIT_TOKENS.min(out.ne[2]);
    Ok((tokens * out.ne[1] * most_chunks(pages.positions(), scalar_max), 2 + out.ne[0]))
}

/// The two stages of an op.
pub(crate) fn plan(
    op: &Op<'_>,
    scalar_max: &[i64],
    partials: FloatRows,
    n_workers: usize,
) -> Result<[Box<dyn Work>; 2]> {
    let (out, q, k, v) = (op.view(0)?, op.view(1)?, op.view(2)?, op.view(3)?);
    let pages = Pages::new(op.view(4)?, op.int(0));
    let attention = Arc::new(Attention {
        most_chunks: most_chunks(pages.positions(), scalar_max),
        out: out.clone(),
        q: q.clone(),
        k: k.clone(),
        v: v.clone(),
        pages,
        sequence: op.view(5)?.clone(),
        position: op.view(6)?.clone(),
        sinks: op.optional(7).cloned(),
        scale: op.float(0),
        softcap: op.float(1),
        window: op.int(1).max(0) as usize,
        heads_per_kv: q.ne[1] / k.ne[1].max(1),
        d: q.ne[0].next_multiple_of(LANES),
        dv: v.ne[0].next_multiple_of(LANES),
        n_workers,
        partials,
    });
    Ok([Box::new(Attend(Arc::clone(&attention))), Box::new(Merge(attention))])
}

/// How the step is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// (tile of this many tokens, kv head) a chunk, results finished at once.
    Tiles(usize),
    /// (token, kv head, chunk of keys) a chunk, merged by the second stage.
    Keys(usize),
}

/// A token of the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Token {
    index: usize,
    sequence: usize,
    /// First and one past the last position that it sees.
    first: usize,
    end: usize,
}

/// A worker's memory, cut up.
struct Room<'a> {
    /// Queries of a tile `[token, head in the group, d]`.
    queries: &'a mut [f32],
    keys: &'a mut [f32],
    values: &'a mut [f32],
    scores: &'a mut [f32],
    /// Running results of a tile, as rows of partial results.
    states: &'a mut [f32],
    /// One chunk's partial result.
    partial: &'a mut [f32],
}

impl Attention {
    fn row_len(&self) -> usize {
        2 + self.out.ne[0]
    }

    fn cut(&self, scalars: &[i64]) -> Cut {
        let (n_tokens, kv_heads) = (self.out.extent(2).value(scalars), self.k.ne[1]);
        let wanted = 4 * self.n_workers;
        let length = scalars.get(StrataScalar::KvLength as usize).copied().unwrap_or(0);
        let n_chunks = usize::try_from(length).unwrap_or(0).div_ceil(KEYS);
        let few = n_tokens * kv_heads < wanted;
        if self.n_workers > 1 && few && n_tokens <= SPLIT_TOKENS && n_chunks > 1 && n_chunks <= self.most_chunks {
            return Cut::Keys(n_chunks);
        }
        Cut::Tiles((n_tokens * kv_heads / wanted).clamp(1, TILE))
    }

    fn token(&self, run: &Run<'_>, index: usize) -> Option<Token> {
        let sequence = self.sequence.load_i32([0, 0, 0], index);
        let position = self.position.load_i32([0, 0, 0], index);
        let sequence = run.fault.index("sequence", sequence, self.pages.table.ne[1])?;
        let position = run.fault.index("position", position, self.pages.positions())?;
        let end = position + 1;
        let first = if self.window > 0 { end.saturating_sub(self.window) } else { 0 };
        Some(Token { index, sequence, first, end })
    }

    fn room<'a>(&self, scratch: &'a mut Scratch) -> Room<'a> {
        let rows = TILE * self.heads_per_kv;
        let (queries, rest) = scratch.floats.split_at_mut(rows * self.d);
        let (keys, rest) = rest.split_at_mut(KEYS * self.d);
        let (values, rest) = rest.split_at_mut(KEYS * self.dv);
        let (scores, rest) = rest.split_at_mut(KEYS);
        let (states, rest) = rest.split_at_mut(rows * self.row_len());
        Room { queries, keys, values, scores, states, partial: &mut rest[..self.row_len()] }
    }

    fn scratch(&self) -> ScratchNeeds {
        let rows = TILE * self.heads_per_kv;
        ScratchNeeds::floats(rows * (self.d + self.row_len()) + KEYS * (self.d + self.dv + 1) + self.row_len())
    }

    fn load_queries(&self, token: usize, kv_head: usize, queries: &mut [f32]) {
        for (head, query) in queries.chunks_exact_mut(self.d).take(self.heads_per_kv).enumerate() {
            let (values, padding) = query.split_at_mut(self.q.ne[0]);
            self.q.load([kv_head * self.heads_per_kv + head, token, 0], 0, values);
            padding.fill(0.0);
        }
    }

    /// Widens the keys and values of positions `first..end` of one kv head. `false` after a fault.
    fn load_cache(
        &self,
        run: &Run<'_>,
        token: &Token,
        kv_head: usize,
        range: (usize, usize),
        room: &mut Room<'_>,
    ) -> bool {
        let (first, end) = range;
        let mut position = first;
        while position < end {
            let found = self.pages.cell(run, token.sequence, position, self.k.ne[2].min(self.v.ne[2]));
            let Some((cell, consecutive)) = found else { return false };
            let n = consecutive.min(end - position);
            let at = position - first;
            widen(run.kernels, &self.k, [kv_head, cell, 0], n, self.d, &mut room.keys[at * self.d..][..n * self.d]);
            widen(
                run.kernels,
                &self.v,
                [kv_head, cell, 0],
                n,
                self.dv,
                &mut room.values[at * self.dv..][..n * self.dv],
            );
            position += n;
        }
        true
    }

    /// One query against `n` keys and values: greatest score, sum and weighted values into `partial`.
    fn attend(
        &self,
        kernels: &Kernels,
        query: &[f32],
        keys: &[f32],
        values: &[f32],
        scores: &mut [f32],
        partial: &mut [f32],
    ) {
        (kernels.scores)(query, keys, self.d, scores);
        (kernels.scale)(scores, self.scale, 0.0);
        if self.softcap > 0.0 {
            (kernels.unary)(StrataUnary::Softcap, scores, self.softcap);
        }
        let most = (kernels.greatest)(scores);
        let mut lanes: Lanes = [0.0; 16];
        (kernels.exp_sum)(scores, most, &mut lanes);
        partial[0] = most;
        partial[1] = reduce(&lanes);
        partial[2..].fill(0.0);
        (kernels.weighted_sum)(scores, values, self.dv, &mut partial[2..]);
    }

    /// Writes a finished result.
    fn finish(&self, kernels: &Kernels, token: usize, head: usize, state: &mut [f32]) {
        let mut sum = state[1];
        if let Some(sinks) = &self.sinks {
            let sink = sinks.floats([0, 0, 0])[head];
            let most = if sink > state[0] { sink } else { state[0] };
            let factor = exp(state[0] - most);
            sum = sum * factor + exp(sink - most);
            (kernels.scale)(&mut state[2..], factor, 0.0);
        }
        let inverse = if sum == 0.0 { 0.0 } else { 1.0 / sum };
        (kernels.scale)(&mut state[2..], inverse, 0.0);
        self.out.store([head, token, 0], 0, &state[2..]);
    }

    /// Attends with tokens of one sequence that lie side by side in the step.
    fn tile(&self, run: &Run<'_>, tokens: &[Token], kv_head: usize, room: &mut Room<'_>) {
        let (group, row_len) = (self.heads_per_kv, self.row_len());
        for (i, token) in tokens.iter().enumerate() {
            self.load_queries(token.index, kv_head, &mut room.queries[i * group * self.d..]);
        }
        for state in room.states.chunks_exact_mut(row_len).take(tokens.len() * group) {
            empty(state);
        }
        let first = tokens.iter().map(|token| token.first).min().unwrap_or(0);
        let end = tokens.iter().map(|token| token.end).max().unwrap_or(0);
        for chunk in first / KEYS..end.div_ceil(KEYS) {
            let range = (first.max(chunk * KEYS), end.min((chunk + 1) * KEYS));
            if !self.load_cache(run, &tokens[0], kv_head, range, room) {
                return;
            }
            for (i, token) in tokens.iter().enumerate() {
                let (from, to) = (token.first.max(range.0), token.end.min(range.1));
                if from >= to {
                    continue;
                }
                let (skip, n) = (from - range.0, to - from);
                for row in i * group..(i + 1) * group {
                    let query = &room.queries[row * self.d..][..self.d];
                    let (keys, values) = (&room.keys[skip * self.d..], &room.values[skip * self.dv..]);
                    self.attend(run.kernels, query, keys, values, &mut room.scores[..n], room.partial);
                    merge(run.kernels, &mut room.states[row * row_len..][..row_len], room.partial);
                }
            }
        }
        for (row, state) in room.states.chunks_exact_mut(row_len).take(tokens.len() * group).enumerate() {
            self.finish(run.kernels, tokens[row / group].index, kv_head * group + row % group, state);
        }
    }

    /// Attends with one token to one chunk of keys and keeps the partial results.
    fn part(&self, run: &Run<'_>, token: &Token, kv_head: usize, chunk: usize, room: &mut Room<'_>) {
        let range = (token.first.max(chunk * KEYS), token.end.min((chunk + 1) * KEYS));
        if range.0 >= range.1 {
            return;
        }
        self.load_queries(token.index, kv_head, room.queries);
        if !self.load_cache(run, token, kv_head, range, room) {
            return;
        }
        for head in 0..self.heads_per_kv {
            let query = &room.queries[head * self.d..][..self.d];
            let row = self.partial_row(token.index, kv_head * self.heads_per_kv + head, chunk);
            self.partials.fill(row, |partial| {
                let partial = &mut partial[..self.row_len()];
                let scores = &mut room.scores[..range.1 - range.0];
                self.attend(run.kernels, query, room.keys, room.values, scores, partial);
            });
        }
    }

    fn partial_row(&self, token: usize, head: usize, chunk: usize) -> usize {
        (token * self.q.ne[1] + head) * self.most_chunks + chunk
    }
}

/// The result of no keys.
fn empty(state: &mut [f32]) {
    state.fill(0.0);
    state[0] = f32::NEG_INFINITY;
}

/// Adds a later chunk's partial result to a running one.
fn merge(kernels: &Kernels, state: &mut [f32], partial: &[f32]) {
    let most = if partial[0] > state[0] { partial[0] } else { state[0] };
    let (ours, theirs) = (exp(state[0] - most), exp(partial[0] - most));
    state[0] = most;
    (kernels.scale)(&mut state[1..], ours, 0.0);
    (kernels.add_scaled)(&mut state[1..], &partial[1..], theirs);
}

/// Copies `n` consecutive cells of a head as floats, rows of `width`, the rest of a row zero.
fn widen(kernels: &Kernels, cache: &View, row: [usize; 3], n: usize, width: usize, out: &mut [f32]) {
    let len = cache.ne[0];
    match cache.dtype {
        StrataDType::F16 => {
            let (bits, stride) = cache.half_rows(row, 2, n);
            (kernels.widen_rows_f16)(bits, stride, len, out, width);
        }
        StrataDType::BF16 => {
            let (bits, stride) = cache.half_rows(row, 2, n);
            for (out, bits) in out.chunks_exact_mut(width).zip(bits.chunks(stride)) {
                for (out, bits) in out.iter_mut().zip(&bits[..len]) {
                    *out = f32::from_bits(u32::from(*bits) << 16);
                }
                out[len..].fill(0.0);
            }
        }
        _ => {
            for (i, out) in out.chunks_exact_mut(width).enumerate() {
                out[..len].copy_from_slice(cache.floats([row[0], row[1] + i, row[2]]));
                out[len..].fill(0.0);
            }
        }
    }
}

struct Attend(Arc<Attention>);

impl Work for Attend {
    fn chunks(&self, scalars: &[i64]) -> usize {
        let (n_tokens, kv_heads) = (self.0.out.extent(2).value(scalars), self.0.k.ne[1]);
        match self.0.cut(scalars) {
            Cut::Tiles(tile) => n_tokens.div_ceil(tile) * kv_heads,
            Cut::Keys(n_chunks) => n_tokens * kv_heads * n_chunks,
        }
    }

    fn chunk(&self, run: &Run<'_>, chunk: usize, scratch: &mut Scratch) {
        let attention = &*self.0;
        let mut room = attention.room(scratch);
        let (n_tokens, kv_heads) = (attention.out.extent(2).value(run.scalars), attention.k.ne[1]);
        let kv_head = chunk % kv_heads;
        match attention.cut(run.scalars) {
            Cut::Keys(n_chunks) => {
                let index = chunk / kv_heads;
                let Some(token) = attention.token(run, index / n_chunks) else { return };
                if run
                    .fault
                    .index("position of a step that declares its length", token.end as i32 - 1, n_chunks * KEYS)
                    .is_some()
                {
                    attention.part(run, &token, kv_head, index % n_chunks, &mut room);
                }
            }
            Cut::Tiles(tile) => {
                let first = chunk / kv_heads * tile;
                let mut tokens = [Token { index: 0, sequence: 0, first: 0, end: 0 }; TILE];
                let n = tile.min(n_tokens - first);
                for (i, token) in tokens[..n].iter_mut().enumerate() {
                    let Some(found) = attention.token(run, first + i) else { return };
                    *token = found;
                }
                for tokens in tokens[..n].chunk_by(|a, b| a.sequence == b.sequence) {
                    attention.tile(run, tokens, kv_head, &mut room);
                }
            }
        }
    }

    fn scratch(&self) -> ScratchNeeds {
        self.0.scratch()
    }
}

struct Merge(Arc<Attention>);

impl Work for Merge {
    fn chunks(&self, scalars: &[i64]) -> usize {
        match self.0.cut(scalars) {
            Cut::Tiles(_) => 0,
            Cut::Keys(_) => self.0.out.extent(2).value(scalars) * self.0.k.ne[1],
        }
    }

    fn chunk(&self, run: &Run<'_>, chunk: usize, scratch: &mut Scratch) {
        let attention = &*self.0;
        let (kv_heads, group) = (attention.k.ne[1], attention.heads_per_kv);
        let Some(token) = attention.token(run, chunk / kv_heads) else { return };
        let state = &mut scratch.floats[..attention.row_len()];
        for head in chunk % kv_heads * group..(chunk % kv_heads + 1) * group {
            empty(state);
            for keys in token.first / KEYS..token.end.div_ceil(KEYS).min(attention.most_chunks) {
                let partial = attention.partials.row(attention.partial_row(token.index, head, keys));
                merge(run.kernels, state, &partial[..attention.row_len()]);
            }
            attention.finish(run.kernels, token.index, head, state);
        }
    }

    fn scratch(&self) -> ScratchNeeds {
        self.0.scratch()
    }
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
