// Many columns over halves, on tensor cores: the twin of hmv.h, with its bits. See halves.h.
//
// Computes: out[p][c][r] = Σ_k W[p][r][k] · x[c][k] (+ bias) (+ residual), and the same by expert.
// Launch: 256 work-items, a tile of 128 rows and COLUMNS (128 or 64) columns. hmm_*: grid (Σ_p ceil(m[p] / 128), ceil(t / COLUMNS));
// hmoem_*: grid (ceil(m / 128), ceil(slots / COLUMNS) + experts), with slots sorted by `moes`. `_64` has 64 columns.
// Dynamic shared memory: 2 · (COLUMNS · 576 + 128 · SLOT) + 1024 bytes. Gated units: gate and up apart, halves_gated behind.
// A warp has 32 rows and half of the columns. It decodes its rows in registers, chunk by chunk; records of activations are read by
// lanes as they lie, eight rows of 576 bytes touching every bank once. Two chunks are in shared memory, one of them on its way.
#pragma once
#include "hmv.h"

#if !defined(STRATA_AMD)

constexpr u32 HMM_ROWS = 128, HMM_THREADS = 256;

template <class F, u32 COLUMNS> struct HalfStage {
    u8 x[COLUMNS * RECORD];
    u8 w[HMM_ROWS * F::SLOT];
};

// What a tile is multiplied with, where results go.
struct HalfTile {
    const u8 *w;
    i64 w_stride;
    u32 row, m, n_chunks;
    const u8 *x;
    // Records of a chunk.
    u32 x_rows;
    const float *bias;
    const float *residual;
    float *out;
    i64 out_stride;
};

// `from` and `to`: row of the records and of the result for each column, -1: none.
template <class F, u32 COLUMNS> DEVICE void hmm_tile(const HalfTile &p, const i32 *from, const i32 *to) {
    constexpr u32 NT = COLUMNS / 16;
    using Stage = HalfStage<F, COLUMNS>;
    Stage *stages = (Stage *)(dynamic_shared() + 1024);
    const u32 warp = group(), l = lane(), g = l / 4, c = l % 4, row = 32 * (warp % 4), column = COLUMNS / 2 * (warp / 4);
    auto row_at = [&](u32 r) { return p.w + p.w_stride * (i64)(p.row + r < p.m ? p.row + r : p.m - 1); };
#if defined(STRATA_BULK_COPY)
    SHARED u64 done[2];
    if (tid() == 0)
        for (u32 i = 0; i < 2; i++) asm volatile("mbarrier.init.shared.b64 [%0], 128;" ::"r"(shared_address(done + i)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    barrier();
#endif
    auto fetch = [&](u32 chunk, u32 n) {
        Stage &stage = stages[n];
#if defined(STRATA_BULK_COPY)
        if (tid() >= HMM_ROWS) return;
        const u32 i = tid();
        const u8 *source = row_at(i) + (i64)chunk * F::BYTES, *start = (const u8 *)((u64)source & ~15ull);
        const u32 bytes = ((u32)(source - start) + F::BYTES + 15) & ~15u;
        const bool has = i < COLUMNS && from[i] >= 0;
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(done + n)), "r"(bytes + (has ? RECORD : 0)) : "memory");
        bulk_copy(stage.w + i * F::SLOT, start, bytes, done + n);
        if (has) bulk_copy(stage.x + i * RECORD, p.x + (i64)(chunk * p.x_rows + (u32)from[i]) * RECORD, RECORD, done + n);
#else
        for (u32 i = tid(); i < HMM_ROWS * (F::SLOT / 16); i += HMM_THREADS) {
            const u32 r = i / (F::SLOT / 16), at = 16 * (i % (F::SLOT / 16));
            const u8 *source = row_at(r) + (i64)chunk * F::BYTES, *start = (const u8 *)((u64)source & ~15ull);
            if (at < (u32)(source - start) + F::BYTES) copy16_async(stage.w + r * F::SLOT + at, start + at);
        }
        for (u32 i = tid(); i < COLUMNS * (RECORD / 16); i += HMM_THREADS) {
            const u32 r = i / (RECORD / 16), at = 16 * (i % (RECORD / 16));
            if (from[r] >= 0) copy16_async(stage.x + r * RECORD + at, p.x + (i64)(chunk * p.x_rows + (u32)from[r]) * RECORD + at);
        }
        copy_commit();
#endif
    };
    float total[2][NT][4];
#pragma unroll
    for (u32 i = 0; i < 2 * NT * 4; i++) total[i / (NT * 4)][i / 4 % NT][i % 4] = 0;
    u32 odd[4];
#pragma unroll
    for (u32 r = 0; r < 4; r++) odd[r] = F::ALIGN < 16 ? (u32)(u64)row_at(row + g + 8 * r) : 0;
    fetch(0, 0);
    for (u32 chunk = 0; chunk < p.n_chunks; chunk++) {
        const u32 n = chunk % 2;
        // The other stage was read by all before the barrier that ended the last round.
        if (chunk + 1 < p.n_chunks) fetch(chunk + 1, 1 - n);
#if defined(STRATA_BULK_COPY)
        bulk_wait(done + n, chunk / 2 % 2);
#else
        if (chunk + 1 < p.n_chunks) copy_wait<1>();
        else copy_wait<0>();
        barrier();
#endif
        const u8 *x = stages[n].x + (column + g) * RECORD, *w[4];
        HalfRow rows[4];
#pragma unroll
        for (u32 r = 0; r < 4; r++) {
            w[r] = stages[n].w + (row + g + 8 * r) * F::SLOT + (F::ALIGN < 16 ? odd[r] + chunk * F::BYTES & 15 : 0);
            F::row(w[r], c, rows[r]);
        }
        float s[2][NT][4];
#pragma unroll
        for (u32 i = 0; i < 2 * NT * 4; i++) s[i / (NT * 4)][i / 4 % NT][i % 4] = 0;
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            typename F::Raw raw[4];
#pragma unroll
            for (u32 r = 0; r < 4; r++) raw[r] = F::raw(w[r], c, half);
#pragma unroll
            for (u32 q = 0; q < 4; q++) {
                u32 a[4][4];
#pragma unroll
                for (u32 r = 0; r < 4; r++) F::piece(raw[r], q, c, rows[r].scale[half][0], rows[r].scale[half][1], a[r]);
                // Four columns of results at a time: products on one accumulator stand eight apart.
#pragma unroll
                for (u32 t = 0; t < NT; t += 4) {
                    u32x4 y[4];
#pragma unroll
                    for (u32 j = 0; j < 4; j++) y[j] = *(const u32x4 *)(x + 8 * (t + j) * RECORD + 64 * (4 * half + q) + 16 * c);
#pragma unroll
                    for (u32 h = 0; h < 4; h += 2)
#pragma unroll
                        for (u32 j = 0; j < 4; j++) {
                            const u32 b0 = h ? y[j].z : y[j].x, b1 = h ? y[j].w : y[j].y;
                            mma_halves(s[0][t + j], a[0][h], a[1][h], a[0][h + 1], a[1][h + 1], b0, b1);
                            mma_halves(s[1][t + j], a[2][h], a[3][h], a[2][h + 1], a[3][h + 1], b0, b1);
                        }
                }
            }
        }
#pragma unroll
        for (u32 t = 0; t < NT; t++) {
            const u8 *record = x + 8 * t * RECORD, *pair = stages[n].x + (column + 8 * t + 2 * c) * RECORD + RECORD_SCALE;
            const float scale[2] = {*(const float *)pair, *(const float *)(pair + RECORD)};
#pragma unroll
            for (u32 i = 0; i < 2; i++) {
                float m[4] = {0, 0, 0, 0};
                if constexpr (F::MIN) {
                    const int2_t sums = *(const int2_t *)(record + RECORD_SUMS + 8 * c);
                    mma_halves(m, rows[2 * i].mins, rows[2 * i + 1].mins, rows[2 * i].mins, rows[2 * i + 1].mins, (u32)sums.x, (u32)sums.y);
                }
#pragma unroll
                for (u32 e = 0; e < 4; e++) {
                    const HalfRow &of = rows[2 * i + e / 2];
                    float sum = times(of.d, s[i][t][e]);
                    if constexpr (F::MIN) sum = fused(of.m, m[e], sum);
                    // The scale is a power of two: the product is exact, so this is hmv's product and sum.
                    total[i][t][e] = fused(scale[e % 2], sum, total[i][t][e]);
                }
            }
        }
        barrier();
    }
#pragma unroll
    for (u32 i = 0; i < 2; i++)
#pragma unroll
        for (u32 t = 0; t < NT; t++)
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                const u32 r = p.row + row + 16 * i + 8 * (e / 2) + g;
                const i32 where = to[column + 8 * t + 2 * c + e % 2];
                if (r >= p.m || where < 0) continue;
                const i64 at = where * p.out_stride + r;
                float y = total[i][t][e];
                if (p.bias) y = plus(y, p.bias[r]);
                if (p.residual) y = plus(y, p.residual[at]);
                p.out[at] = y;
            }
}

// The tile of this block; columns in `from` and `to`.
template <u32 COLUMNS> DEVICE HalfTile hmm_place(const HalfArgs &a, i32 *from, i32 *to) {
    u32 part = 0, index = bid_x();
#pragma unroll
    for (u32 p = 0; p < 2; p++) {
        const u32 tiles = ceil_div((u32)a.m[p], HMM_ROWS);
        if (p + 1 < (u32)a.n_parts && part == p && index >= tiles) index -= tiles, part = p + 1;
    }
    if (tid() < COLUMNS) {
        const i32 column = (i32)(bid_y() * COLUMNS + tid());
        from[tid()] = to[tid()] = column < a.t ? column : -1;
    }
    return {part == 0 ? a.w[0] : part == 1 ? a.w[1] : a.w[2],
            a.w_stride,
            index * HMM_ROWS,
            (u32)(part == 0 ? a.m[0] : part == 1 ? a.m[1] : a.m[2]),
            (u32)a.k / 256,
            a.x,
            (u32)a.t,
            part == 0 ? a.bias[0] : part == 1 ? a.bias[1] : a.bias[2],
            a.residual,
            part == 0 ? a.out[0] : part == 1 ? a.out[1] : a.out[2],
            part == 0 ? a.out_stride[0] : part == 1 ? a.out_stride[1] : a.out_stride[2]};
}

// The tile of this block's slots of one expert: `offsets` and `sorted_rows` come from `moes`. False when there is nothing to multiply.
template <u32 COLUMNS> DEVICE bool hmoem_place(const HalfExpertArgs &a, i32 *from, i32 *to, HalfTile &tile) {
    SHARED i32 found[2];
    const i32 wanted = (i32)bid_y();
    if (tid() == 0) found[0] = -1;
    barrier();
    for (i32 e = (i32)tid(); e < a.n_experts; e += (i32)block_size()) {
        const i32 tiles = (a.offsets[e + 1] - a.offsets[e] + (i32)COLUMNS - 1) / (i32)COLUMNS;
        if (tiles == 0) continue;
        i32 before = 0;
        for (i32 i = 0; i < e && before <= wanted; i++) before += (a.offsets[i + 1] - a.offsets[i] + (i32)COLUMNS - 1) / (i32)COLUMNS;
        if (wanted >= before && wanted < before + tiles) found[0] = e, found[1] = wanted - before;
    }
    barrier();
    const i32 expert = found[0];
    if (expert < 0) return false;
    const i32 first = a.offsets[expert] + found[1] * (i32)COLUMNS, end = a.offsets[expert + 1];
    const i32 place = a.table ? a.table[expert] : expert;
    if (tid() < COLUMNS) {
        const i32 at = first + (i32)tid(), slot = at < end ? a.sorted_rows[at] : -1;
        from[tid()] = slot < 0 || a.x_per_slot ? slot : slot / a.used;
        to[tid()] = slot;
    }
    barrier();
    const u32 row = bid_x() * HMM_ROWS;
    if (place < 0) {
        for (u32 i = tid(); i < COLUMNS * HMM_ROWS; i += block_size()) {
            const i32 where = to[i / HMM_ROWS];
            const u32 r = row + i % HMM_ROWS;
            if (where >= 0 && r < (u32)a.m) a.out[(i64)where * a.out_stride + r] = 0;
        }
        return false;
    }
    tile = {a.w[0] + place * a.w_expert_stride, a.w_stride, row, (u32)a.m, (u32)a.k / 256, a.x, (u32)a.x_rows, nullptr, nullptr, a.out, a.out_stride};
    return true;
}

template <class F, u32 COLUMNS> DEVICE void hmm(const HalfArgs &a) {
    i32 *from = (i32 *)dynamic_shared(), *to = from + 128;
    grid_release();
    const HalfTile p = hmm_place<COLUMNS>(a, from, to);
    grid_wait();
    barrier();
    hmm_tile<F, COLUMNS>(p, from, to);
}

template <class F, u32 COLUMNS> DEVICE void hmoem(const HalfExpertArgs &a) {
    i32 *from = (i32 *)dynamic_shared(), *to = from + 128;
    grid_release();
    grid_wait();
    HalfTile p;
    if (!hmoem_place<COLUMNS>(a, from, to, p)) return;
    hmm_tile<F, COLUMNS>(p, from, to);
}

#endif
