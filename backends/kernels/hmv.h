// Decode over halves: up to eight columns of products with the weights read once, by tensor cores. See halves.h.
//
// Computes: out[p][c][r] = Σ_k W[p][r][k] · x[c][k] (+ bias) (+ residual), or act(gate) · up; and the same by expert.
// Launch: 128 or 256 work-items. A block has 16 rows of one weight, or 8 of gate and the same 8 of up. Each warp takes `group` chunks of
// 256 at a time for all 16 rows, fetched by bulk copies `n_stages` deep, before the kernels in front are done where the weights are known.
// hmv_*: grid (Σ_p ceil(m[p] / 16), ceil(t / 8)), with act ceil(m[0] / 8). hmoev_*: grid (ceil(m / 16 or 8), slots).
// hmoec_*: grid (ceil(m / 16), t): the results of a token's slots times their weights, added in the order of slots (ExpertCombine).
// Dynamic shared memory: (block / 32) · n_stages · 16 · row_bytes + 64 · chunks · columns, chunks times the slots of a token for hmoec.
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

// The sums of 16 rows and up to 8 columns, chunk by chunk, to partial[(unit's slot · n_chunks + chunk) · 16 + row][column].
// `row_at(slot, r)`: where row r of a slot's weight begins, or null; `record_at(slot, chunk, column)`: its activations.
template <class F, class RowAt, class RecordAt, class Begin>
DEVICE void hmv_block(const Fetching &f, float *partial, u32 columns, const RowAt &row_at, const RecordAt &record_at, const Begin &begin) {
    const u32 warp = group(), n_warps = block_size() / LANES, l = lane(), g = l / 4, c = l % 4;
#if defined(STRATA_BULK_COPY)
    SHARED u64 done[8][MOST_STAGES];
    if (l < f.n_stages) asm volatile("mbarrier.init.shared.b64 [%0], 16;" ::"r"(shared_address(&done[warp][l])) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    wave_barrier();
#endif
    auto fetch = [&](u32 unit, u32 n) {
        const u32 slot = unit / f.per_slot, bytes = f.count(unit) * F::BYTES;
        u8 *to = f.stage(warp, n);
#if defined(STRATA_BULK_COPY)
        if (l < 16) {
            const u8 *row = row_at(slot, l);
            const u8 *from = row + f.first(unit) * F::BYTES, *start = (const u8 *)((u64)from & ~15ull);
            const u32 size = row ? ((u32)(from - start) + bytes + 15) & ~15u : 0;
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(&done[warp][n])), "r"(size) : "memory");
            if (row) bulk_copy(to + l * f.row_bytes, start, size, &done[warp][n]);
        }
#else
        for (u32 r = 0; r < 16; r++) {
            const u8 *row = row_at(slot, r);
            if (!row) continue;
            const u8 *from = row + f.first(unit) * F::BYTES, *start = (const u8 *)((u64)from & ~15ull);
            for (u32 i = 16 * l; i < (u32)(from - start) + bytes; i += 16 * LANES) copy16_async(to + r * f.row_bytes + i, start + i);
        }
        copy_commit();
#endif
    };
    u32 unit = warp, ahead = warp;
    for (u32 n = 0; n < f.n_stages && ahead < f.units; n++, ahead += n_warps) fetch(ahead, n);
    begin();
    for (u32 n = 0, phase = 0; unit < f.units; unit += n_warps) {
        const u32 slot = unit / f.per_slot, first = f.first(unit), count = f.count(unit);
#if defined(STRATA_BULK_COPY)
        bulk_wait(&done[warp][n], phase);
#else
        copy_wait<0>();
        wave_barrier();
#endif
        const bool there = row_at(slot, 0) != nullptr;
        const u8 *low = f.stage(warp, n) + g * f.row_bytes, *high = low + 8 * f.row_bytes;
        if (F::ALIGN < 16 && there) {
            low += (u32)(u64)(row_at(slot, g) + first * F::BYTES) & 15;
            high += (u32)(u64)(row_at(slot, g + 8) + first * F::BYTES) & 15;
        }
        for (u32 i = 0; i < count && there; i++, low += F::BYTES, high += F::BYTES) {
            const u32 chunk = first + i;
            const u8 *record = record_at(slot, chunk, g < columns ? g : 0);
            u32x4 x[8];
#pragma unroll
            for (u32 q = 0; q < 8; q++) x[q] = *(const u32x4 *)(record + 64 * q + 16 * c);
            const int2_t sums = *(const int2_t *)(record + RECORD_SUMS + 8 * c);
            float scale[2];
#pragma unroll
            for (u32 e = 0; e < 2; e++) scale[e] = *(const float *)(record_at(slot, chunk, 2 * c + e < columns ? 2 * c + e : 0) + RECORD_SCALE);
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
                if (column < columns) partial[((slot * f.n_chunks + chunk) * 16 + g + e / 2 * 8) * columns + column] = times(scale[e % 2], sum);
            }
        }
        if (!there && l < 16)
            for (u32 i = 0; i < count; i++)
                for (u32 column = 0; column < columns; column++) partial[((slot * f.n_chunks + first + i) * 16 + l) * columns + column] = 0;
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

template <class F> DEVICE void hmv(const HalfArgs &a) {
    grid_release();
    const bool gated_unit = a.act >= 0;
    const u32 n_rows = gated_unit ? 8 : 16;
    u32 part = 0, tile = bid_x();
    if (!gated_unit)
#pragma unroll
        for (u32 p = 0; p < 2; p++) {
            const u32 tiles = ceil_div((u32)a.m[p], 16);
            if (p + 1 < (u32)a.n_parts && part == p && tile >= tiles) tile -= tiles, part = p + 1;
        }
    const u8 *w = part == 0 ? a.w[0] : part == 1 ? a.w[1] : a.w[2];
    const u32 m = (u32)(part == 0 ? a.m[0] : part == 1 ? a.m[1] : a.m[2]);
    const u32 row = tile * n_rows, first = bid_y() * 8, columns = (u32)min_i(8, a.t - (i32)first), n_chunks = (u32)a.k / 256;
    const u32 group_size = (u32)a.group, pieces = ceil_div(n_chunks, group_size);
    const Fetching f = {n_chunks, group_size, pieces, pieces, (u32)a.n_stages, (u32)a.row_bytes, dynamic_shared()};
    float *partial = (float *)(dynamic_shared() + block_size() / LANES * f.n_stages * 16 * f.row_bytes);
    auto row_at = [&](u32, u32 r) {
        const u8 *from = gated_unit && r >= 8 ? a.w[1] : w;
        const u32 at = row + (gated_unit ? r % 8 : r);
        return from + a.w_stride * (i64)(at < m ? at : m - 1);
    };
    auto record_at = [&](u32, u32 chunk, u32 column) { return a.x + (i64)(chunk * (u32)a.t + first + column) * RECORD; };
    hmv_block<F>(f, partial, columns, row_at, record_at, [] { grid_wait(); });
    float *out = part == 0 ? a.out[0] : part == 1 ? a.out[1] : a.out[2];
    const float *bias = part == 0 ? a.bias[0] : part == 1 ? a.bias[1] : a.bias[2];
    const i64 stride = part == 0 ? a.out_stride[0] : part == 1 ? a.out_stride[1] : a.out_stride[2];
    for (u32 i = tid(); i < columns * n_rows; i += block_size()) {
        const u32 c = i / n_rows, r = i % n_rows;
        if (row + r >= m) continue;
        const i64 at = (i64)(first + c) * stride + row + r;
        const float more = a.residual ? a.residual[at] : 0;
        float y = half_total(partial + r * columns + c, n_chunks, 16 * columns);
        if (gated_unit) y = gated(a.act, y, half_total(partial + (r + 8) * columns + c, n_chunks, 16 * columns), a.act_f0, a.act_f1);
        else if (bias) y = plus(y, bias[row + r]);
        out[at] = a.residual ? plus(y, more) : y;
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
    auto record_at = [&](u32, u32 chunk, u32) { return a.x + (i64)(chunk * (u32)a.x_rows + x_row) * RECORD; };
    hmv_block<F>(f, partial, 1, row_at, record_at, [] {});
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
    auto record_at = [&](u32 slot, u32 chunk, u32) {
        return a.x + (i64)(chunk * (u32)a.x_rows + (a.x_per_slot ? token * used + slot : token)) * RECORD;
    };
    hmv_block<F>(f, partial, 1, row_at, record_at, [] {});
    const u32 r = tid();
    if (r >= 16 || row + r >= m) return;
    const float *weights = (const float *)((const char *)a.weights + a.weights_stride * token);
    float sum = 0;
    for (u32 slot = 0; slot < used; slot++) sum = plus(sum, times(weights[slot], half_total(partial + slot * n_chunks * 16 + r, n_chunks, 16)));
    a.out[(i64)token * a.out_stride + row + r] = sum;
}

#endif
