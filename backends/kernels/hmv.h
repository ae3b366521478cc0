// Decode over halves: up to eight columns of products with the weights read once, by tensor cores. See halves.h.
//
// Computes: out[p][c][r] = Σ_k W[p][r][k] · x[c][k] (+ bias) (+ residual), or act(gate) · up; and the same by expert.
// Launch: 128 or 256 work-items. A block has 16 rows of one weight, or 8 of gate and the same 8 of up. Each warp takes `group` chunks of
// 256 at a time for all 16 rows, fetched by bulk copies `n_stages` deep, before the kernels in front are done where the weights are known.
// hmv_*: grid (any, ceil(t / 8)): a block takes every grid-th tile. hmoev_*: grid (ceil(m / 16 or 8), slots).
// hmoec_*: grid (ceil(m / 16), t): the results of a token's slots times their weights, added in the order of slots (ExpertCombine).
// Dynamic shared memory: (block / 32) · n_stages · 16 · row_bytes + 64 · chunks · columns, that last part twice for hmv and times the
// slots of a token for hmoec.
// Assumes k a multiple of 256, weights aligned to ALIGN. Must match: hmm.h bit for bit; MatMul and ExpertMatMul of the ABI in default mode.
// Why not mmv.h: that converts integer sums of 32 to floats, 3.5 instructions a weight; here it is 2, for one column as for eight.
#pragma once
#include "halves.h"

#if !defined(STRATA_AMD)

struct HalfArgs {
    const u8 *w[3];
    float *out[3];
    const float *bias[3];
    // Records.
    const u8 *x;
    const float *residual;
    i64 w_stride;
    i32 m[3];
    i32 k;
    i32 t;
    i32 out_stride[3];
    i32 n_parts;
    // A StrataActivation: w[0] is the gate and w[1] what it gates. Or -1.
    i32 act;
    float act_f0, act_f1;
    // Chunks a warp takes at once, how many such it has under way, and bytes of shared memory a row of them.
    i32 group;
    i32 n_stages;
    i32 row_bytes;
};

struct HalfExpertArgs {
    const u8 *w[2];
    float *out;
    const u8 *x;
    const i32 *ids;
    const i32 *table;
    // By `moes`.
    const i32 *sorted_rows;
    const i32 *offsets;
    // Of ExpertCombine.
    const float *weights;
    i64 w_stride;
    i64 w_expert_stride;
    i64 weights_stride;
    i32 m, k;
    // Experts a token.
    i32 used;
    // Rows of x that the records have.
    i32 x_rows;
    i32 x_per_slot;
    i32 n_slots;
    i32 n_experts;
    i32 act;
    float act_f0, act_f1;
    i32 out_stride;
    i32 group;
    i32 n_stages;
    i32 row_bytes;
};

constexpr u32 MOST_STAGES = 4;

// How a block's warps fetch: `units` of them, unit u = slot · per_slot + piece.
struct Fetching {
    u32 n_chunks, group, per_slot, units, n_stages, row_bytes;
    u8 *room;
    DEVICE u32 first(u32 unit) const { return unit % per_slot * group; }
    DEVICE u32 count(u32 unit) const { return (u32)min_i((i32)group, (i32)(n_chunks - first(unit))); }
    DEVICE u8 *stage(u32 warp, u32 n) const { return room + (warp * n_stages + n) * 16 * row_bytes; }
};

// A warp's stages and how many lanes announce copies to each.
struct Stages16 {
    u64 done[8][MOST_STAGES];
    DEVICE void prepare(u32 warp, u32 n_stages) {
#if defined(STRATA_BULK_COPY)
        if (lane() < n_stages) asm volatile("mbarrier.init.shared.b64 [%0], 16;" ::"r"(shared_address(&done[warp][lane()])) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        wave_barrier();
#endif
    }
    DEVICE void wait(u32 warp, u32 n, u32 phase) {
#if defined(STRATA_BULK_COPY)
        bulk_wait(&done[warp][n], phase);
#else
        copy_wait<0>();
        wave_barrier();
#endif
    }
};

// Starts the copies of `count` chunks from `first` on of 16 rows to a stage. `row_at(r)`: where a row begins, or null.
template <class F, class RowAt>
DEVICE void half_fetch(Stages16 &stages, u32 warp, u32 n, u8 *to, u32 row_bytes, u32 first, u32 count, const RowAt &row_at) {
    const u32 l = lane(), bytes = count * F::BYTES;
#if defined(STRATA_BULK_COPY)
    u64 *done = &stages.done[warp][n];
    if (l < 16) {
        const u8 *row = row_at(l);
        const u8 *from = row + first * F::BYTES, *start = (const u8 *)((u64)from & ~15ull);
        const u32 size = row ? ((u32)(from - start) + bytes + 15) & ~15u : 0;
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(done)), "r"(size) : "memory");
        if (row) bulk_copy(to + l * row_bytes, start, size, done);
    }
#else
    for (u32 r = 0; r < 16; r++) {
        const u8 *row = row_at(r);
        if (!row) continue;
        const u8 *from = row + first * F::BYTES, *start = (const u8 *)((u64)from & ~15ull);
        for (u32 i = 16 * l; i < (u32)(from - start) + bytes; i += 16 * LANES) copy16_async(to + r * row_bytes + i, start + i);
    }
    copy_commit();
#endif
}

// The sums of 16 rows (`low`: the lane's row of the first eight, `high`: of the others) and up to 8 columns over `count` chunks, to
// partial[(chunk) · 16 + row][column]. `record_at(chunk, column)`: its activations.
template <class F, class RecordAt>
DEVICE void half_chunks(const u8 *low, const u8 *high, u32 first, u32 count, u32 columns, float *partial, const RecordAt &record_at) {
    const u32 g = lane() / 4, c = lane() % 4;
    for (u32 i = 0; i < count; i++, low += F::BYTES, high += F::BYTES) {
        const u32 chunk = first + i;
        const u8 *record = record_at(chunk, g < columns ? g : 0);
        u32x4 x[8];
#pragma unroll
        for (u32 q = 0; q < 8; q++) x[q] = *(const u32x4 *)(record + 64 * q + 16 * c);
        const int2_t sums = *(const int2_t *)(record + RECORD_SUMS + 8 * c);
        float scale[2];
#pragma unroll
        for (u32 e = 0; e < 2; e++) scale[e] = *(const float *)(record_at(chunk, 2 * c + e < columns ? 2 * c + e : 0) + RECORD_SCALE);
        HalfRow a, b;
        F::row(low, c, a), F::row(high, c, b);
        float s[4] = {0, 0, 0, 0}, m[4] = {0, 0, 0, 0};
        if constexpr (F::MIN) mma_halves(m, a.mins, b.mins, a.mins, b.mins, (u32)sums.x, (u32)sums.y);
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            const typename F::Raw p = F::raw(low, c, half), q = F::raw(high, c, half);
#pragma unroll
            for (u32 w = 0; w < 4; w++) {
                u32 u[4], v[4];
                F::piece(p, w, c, a.scale[half][0], a.scale[half][1], u);
                F::piece(q, w, c, b.scale[half][0], b.scale[half][1], v);
                const u32x4 y = x[4 * half + w];
                mma_halves(s, u[0], v[0], u[1], v[1], y.x, y.y);
                mma_halves(s, u[2], v[2], u[3], v[3], y.z, y.w);
            }
        }
#pragma unroll
        for (u32 e = 0; e < 4; e++) {
            const u32 column = 2 * c + e % 2;
            float sum = times(e < 2 ? a.d : b.d, s[e]);
            if constexpr (F::MIN) sum = fused(e < 2 ? a.m : b.m, m[e], sum);
            if (column < columns) partial[(chunk * 16 + g + e / 2 * 8) * columns + column] = times(scale[e % 2], sum);
        }
    }
}

// Bytes beyond the 16 before them at which a row's chunk begins.
template <class F> DEVICE u32 half_odd(const u8 *row, u32 first) { return F::ALIGN < 16 ? (u32)(u64)(row + first * F::BYTES) & 15 : 0; }

// The sums of 16 rows of each of a block's slots (experts) for one column, to partial[(slot · n_chunks + chunk) · 16 + row].
// `row_at(slot, r)`: where row r of a slot's weight begins, or null; `record_at(slot, chunk, column)`: its activations.
template <class F, class RowAt, class RecordAt>
DEVICE void hmv_block(const Fetching &f, float *partial, const RowAt &row_at, const RecordAt &record_at) {
    SHARED Stages16 stages;
    const u32 warp = group(), n_warps = block_size() / LANES, l = lane(), g = l / 4;
    stages.prepare(warp, f.n_stages);
    auto fetch = [&](u32 unit, u32 n) {
        half_fetch<F>(stages, warp, n, f.stage(warp, n), f.row_bytes, f.first(unit), f.count(unit), [&](u32 r) { return row_at(unit / f.per_slot, r); });
    };
    u32 unit = warp, ahead = warp;
    for (u32 n = 0; n < f.n_stages && ahead < f.units; n++, ahead += n_warps) fetch(ahead, n);
    for (u32 n = 0, phase = 0; unit < f.units; unit += n_warps) {
        const u32 slot = unit / f.per_slot, first = f.first(unit), count = f.count(unit);
        float *sums = partial + slot * f.n_chunks * 16;
        stages.wait(warp, n, phase);
        if (row_at(slot, 0)) {
            const u8 *low = f.stage(warp, n) + g * f.row_bytes, *high = low + 8 * f.row_bytes;
            half_chunks<F>(low + half_odd<F>(row_at(slot, g), first), high + half_odd<F>(row_at(slot, g + 8), first), first, count, 1, sums,
                           [&](u32 chunk, u32) { return record_at(slot, chunk); });
        } else {
            for (u32 i = l; i < 16 * count; i += LANES) sums[16 * first + i] = 0;
        }
        wave_barrier();
        if (ahead < f.units) fetch(ahead, n);
        ahead += n_warps;
        n++;
        if (n == f.n_stages) n = 0, phase ^= 1;
    }
    barrier();
}

// The sum of a row's chunks, in their order.
DEVICE float half_total(const float *partial, u32 n_chunks, u32 stride) {
    float y = 0;
    u32 i = 0;
    for (; i + 4 <= n_chunks; i += 4) {
        const float a = partial[i * stride], b = partial[(i + 1) * stride], c = partial[(i + 2) * stride], d = partial[(i + 3) * stride];
        y = plus(plus(plus(plus(y, a), b), c), d);
    }
    for (; i < n_chunks; i++) y = plus(y, partial[i * stride]);
    return y;
}

// Tiles of 16 rows, or of 8 of gate and up, one after another: a warp's fetching runs ahead over the end of a tile.
template <class F> DEVICE void hmv(const HalfArgs &a) {
    SHARED Stages16 stages;
    grid_release();
    const bool gated_unit = a.act >= 0;
    const u32 n_rows = gated_unit ? 8 : 16, warp = group(), n_warps = block_size() / LANES, g = lane() / 4;
    const u32 tiles0 = ceil_div((u32)a.m[0], n_rows), tiles1 = gated_unit || a.n_parts < 2 ? 0 : ceil_div((u32)a.m[1], 16);
    const u32 n_tiles = tiles0 + tiles1 + (gated_unit || a.n_parts < 3 ? 0 : ceil_div((u32)a.m[2], 16));
    const u32 first_column = bid_y() * 8, columns = (u32)min_i(8, a.t - (i32)first_column), n_chunks = (u32)a.k / 256;
    const u32 size = (u32)a.group, pieces = ceil_div(n_chunks, size), n_stages = (u32)a.n_stages, row_bytes = (u32)a.row_bytes;
    const u32 mine = warp < pieces ? ceil_div(pieces - warp, n_warps) : 0;
    u8 *room = dynamic_shared() + warp * n_stages * 16 * row_bytes;
    float *partials = (float *)(dynamic_shared() + n_warps * n_stages * 16 * row_bytes);
    struct Place {
        u32 part, row, m;
    };
    auto place_of = [&](u32 tile) -> Place {
        if (tile < tiles0) return {0, tile * n_rows, (u32)a.m[0]};
        if (tile < tiles0 + tiles1) return {1, (tile - tiles0) * 16, (u32)a.m[1]};
        return {2, (tile - tiles0 - tiles1) * 16, (u32)a.m[2]};
    };
    auto row_of = [&](const Place &p, u32 r) {
        const u8 *from = p.part == 2 ? a.w[2] : p.part == 1 || (gated_unit && r >= 8) ? a.w[1] : a.w[0];
        const u32 at = p.row + (gated_unit ? r % 8 : r);
        return from + a.w_stride * (i64)(at < p.m ? at : p.m - 1);
    };
    stages.prepare(warp, n_stages);
    // What is fetched next: a tile, a piece of this warp's, a stage.
    u32 ahead_tile = bid_x(), ahead_piece = 0, ahead = 0;
    auto fetch_next = [&] {
        if (ahead_tile >= n_tiles || !mine) return;
        const Place p = place_of(ahead_tile);
        const u32 first = (warp + n_warps * ahead_piece) * size;
        half_fetch<F>(stages, warp, ahead, room + ahead * 16 * row_bytes, row_bytes, first, (u32)min_i((i32)size, (i32)(n_chunks - first)), [&](u32 r) { return row_of(p, r); });
        if (++ahead_piece == mine) ahead_piece = 0, ahead_tile += grid_x();
        if (++ahead == n_stages) ahead = 0;
    };
    for (u32 i = 0; i < n_stages; i++) fetch_next();
    grid_wait();
    u32 n = 0, phase = 0, side = 0;
    for (u32 tile = bid_x(); tile < n_tiles; tile += grid_x(), side ^= 1) {
        const Place p = place_of(tile);
        float *partial = partials + side * n_chunks * 16 * columns;
        for (u32 i = 0; i < mine; i++) {
            const u32 first = (warp + n_warps * i) * size;
            stages.wait(warp, n, phase);
            const u8 *low = room + (n * 16 + g) * row_bytes, *high = low + 8 * row_bytes;
            half_chunks<F>(low + half_odd<F>(row_of(p, g), first), high + half_odd<F>(row_of(p, g + 8), first), first,
                           (u32)min_i((i32)size, (i32)(n_chunks - first)), columns, partial,
                           [&](u32 chunk, u32 column) { return a.x + (i64)(chunk * (u32)a.t + first_column + column) * RECORD; });
            wave_barrier();
            fetch_next();
            if (++n == n_stages) n = 0, phase ^= 1;
        }
        // The other side was read before the barrier of this tile, so one a tile is enough.
        barrier();
        float *out = p.part == 0 ? a.out[0] : p.part == 1 ? a.out[1] : a.out[2];
        const float *bias = p.part == 0 ? a.bias[0] : p.part == 1 ? a.bias[1] : a.bias[2];
        const i64 stride = p.part == 0 ? a.out_stride[0] : p.part == 1 ? a.out_stride[1] : a.out_stride[2];
        for (u32 i = tid(); i < columns * n_rows; i += block_size()) {
            const u32 c = i / n_rows, r = i % n_rows;
            if (p.row + r >= p.m) continue;
            const i64 at = (i64)(first_column + c) * stride + p.row + r;
            const float more = a.residual ? a.residual[at] : 0;
            float y = half_total(partial + r * columns + c, n_chunks, 16 * columns);
            if (gated_unit) y = gated(a.act, y, half_total(partial + (r + 8) * columns + c, n_chunks, 16 * columns), a.act_f0, a.act_f1);
            else if (bias) y = plus(y, bias[p.row + r]);
            out[at] = a.residual ? plus(y, more) : y;
        }
    }
}

// The expert's place in `w` for a slot, or -1.
DEVICE i32 half_place(const HalfExpertArgs &a, u32 slot) {
    const i32 expert = a.ids[slot];
    return a.table ? a.table[expert] : expert;
}

// A slot a block.
template <class F> DEVICE void hmoev(const HalfExpertArgs &a) {
    grid_release();
    grid_wait();
    const bool gated_unit = a.act >= 0;
    const u32 n_rows = gated_unit ? 8 : 16, row = bid_x() * n_rows, slot = bid_y(), m = (u32)a.m, n_chunks = (u32)a.k / 256;
    const i32 place = half_place(a, slot);
    float *out = a.out + (i64)slot * a.out_stride + row;
    if (place < 0) {
        if (tid() < n_rows && row + tid() < m) out[tid()] = 0;
        return;
    }
    const u32 group_size = (u32)a.group, pieces = ceil_div(n_chunks, group_size), x_row = a.x_per_slot ? slot : slot / (u32)a.used;
    const Fetching f = {n_chunks, group_size, pieces, pieces, (u32)a.n_stages, (u32)a.row_bytes, dynamic_shared()};
    float *partial = (float *)(dynamic_shared() + block_size() / LANES * f.n_stages * 16 * f.row_bytes);
    const i64 from = place * a.w_expert_stride;
    auto row_at = [&](u32, u32 r) {
        const u32 at = row + (gated_unit ? r % 8 : r);
        return (gated_unit && r >= 8 ? a.w[1] : a.w[0]) + from + a.w_stride * (i64)(at < m ? at : m - 1);
    };
    auto record_at = [&](u32, u32 chunk) { return a.x + (i64)(chunk * (u32)a.x_rows + x_row) * RECORD; };
    hmv_block<F>(f, partial, row_at, record_at);
    const u32 r = tid();
    if (r >= n_rows || row + r >= m) return;
    float y = half_total(partial + r, n_chunks, 16);
    if (gated_unit) y = gated(a.act, y, half_total(partial + r + 8, n_chunks, 16), a.act_f0, a.act_f1);
    out[r] = y;
}

// All slots of a token a block, combined.
template <class F> DEVICE void hmoec(const HalfExpertArgs &a) {
    grid_release();
    grid_wait();
    const u32 row = bid_x() * 16, token = bid_y(), m = (u32)a.m, n_chunks = (u32)a.k / 256, used = (u32)a.used;
    const u32 group_size = (u32)a.group, pieces = ceil_div(n_chunks, group_size);
    const Fetching f = {n_chunks, group_size, pieces, pieces * used, (u32)a.n_stages, (u32)a.row_bytes, dynamic_shared()};
    float *partial = (float *)(dynamic_shared() + block_size() / LANES * f.n_stages * 16 * f.row_bytes);
    auto row_at = [&](u32 slot, u32 r) -> const u8 * {
        const i32 place = half_place(a, token * used + slot);
        const u32 at = row + r < m ? row + r : m - 1;
        return place < 0 ? nullptr : a.w[0] + place * a.w_expert_stride + a.w_stride * (i64)at;
    };
    auto record_at = [&](u32 slot, u32 chunk) {
        return a.x + (i64)(chunk * (u32)a.x_rows + (a.x_per_slot ? token * used + slot : token)) * RECORD;
    };
    hmv_block<F>(f, partial, row_at, record_at);
    const u32 r = tid();
    if (r >= 16 || row + r >= m) return;
    const float *weights = (const float *)((const char *)a.weights + a.weights_stride * token);
    float sum = 0;
    for (u32 slot = 0; slot < used; slot++) sum = plus(sum, times(weights[slot], half_total(partial + slot * n_chunks * 16 + r, n_chunks, 16)));
    a.out[(i64)token * a.out_stride + row + r] = sum;
}

#endif
