// AMD's products of many columns: the same sums as mmv.h, bit for bit, in tiles of 64 rows by 64 columns.
//
// Computes: out[p][c][r] = Σ_k W[p][r][k] · x[c][k] (+ bias) (+ residual). Gated units: gate and up apart, then gated_q8.
// Launch: 256 work-items; `mmt_*` grid (Σ_p ceil(m[p] / 64), ceil(t / 64)); `moet_*` grid (ceil(m / 64), tiles of slots), where tiles
// are those of 64 slots of one expert each, counted up over the experts: more blocks than there are tiles do no harm. No dynamic
// shared memory. `rows` and `act` of the arguments are not read.
// Assumes: weights aligned to the format's ALIGN (no byte beyond a row's last block is read); xq aligned to 16.
// Must match: mmv_* exactly. Half a chunk (128 elements) of 64 rows is decoded once to bytes in shared memory and used by 64 columns.
// What multiplies is in mmt_gfx11.h (WMMA of a wave of 32) and mmt_gfx906.h (four by four dot products a lane); each gives the exact
// integer sums of a group of 32, which go through `chain` in the canonical order like everywhere.
// Why not mmv_*_t8: that decodes every weight once per eight columns, this once per 64. No AMD card has timed either.
#pragma once
#if !defined(STRATA_BLOCK)
#define STRATA_BLOCK 256
#endif
#include "matmul.h"

#if defined(STRATA_AMD)

constexpr u32 MMT_ROWS = 64, MMT_COLUMNS = 64, MMT_THREADS = 256;
// Bytes of half a chunk, and from one row of them to the next: rows that follow begin in other banks.
constexpr u32 MMT_HALF = 128, MMT_STRIDE = MMT_HALF + 16;

// Which tile of a weight, what it is multiplied with, where results go.
struct TileProduct {
    const u8 *w;
    i64 w_stride;
    u32 row, m, k;
    const i8 *xq;
    const float2_t *xs;
    const float *bias;
    const float *residual;
    float *out;
    i64 out_stride;
};

// What formats without scales or minima per 16 do not have takes no room.
template <class T, u32 N, bool THERE> struct Optional {
    T values[N];
};
template <class T, u32 N> struct Optional<T, N, false> {};

template <class F> struct TileRoom {
    alignas(16) u8 w[MMT_ROWS * MMT_STRIDE];
    alignas(16) u8 x[MMT_COLUMNS * MMT_STRIDE];
    // Of the half's four groups: (d, m) of rows; (d, d·sum) of columns.
    float2_t dm[4][MMT_ROWS];
    float2_t scale[4][MMT_COLUMNS];
    // Scales and minima per 16: four bytes s0 s1 n0 n1. Sums of columns per 16.
    Optional<u32, 4 * MMT_ROWS, F::SPLIT> split;
    Optional<int2_t, 4 * MMT_COLUMNS, MIN_PER_16<F>> sums;
    Optional<float, MMT_ROWS, MIN_PER_16<F>> dmin;
    // Row of x and of the result for a column; -1: none.
    i32 from[MMT_COLUMNS];
    i32 to[MMT_COLUMNS];
};

// A group of a row as `chain` wants it.
struct RowScales {
    float2_t dm;
    u32 split;
    float dmin;
};

template <class F> DEVICE RowScales row_scales(const TileRoom<F> &room, u32 g, u32 row) {
    RowScales out = {room.dm[g][row], 0, 0};
    if constexpr (F::SPLIT) out.split = room.split.values[g * MMT_ROWS + row];
    if constexpr (MIN_PER_16<F>) out.dmin = room.dmin.values[row];
    return out;
}

// Adds a group: `first` and `second` are the exact sums of its two halves of 16 (for formats that are not SPLIT, `first` is all 32).
template <class F> DEVICE float add_group(float s, const RowScales &row, i32 first, i32 second, float2_t scale, int2_t sums) {
    float dot = 0, min = 0;
    if constexpr (F::SPLIT) dot = (float)(signed_byte(row.split) * first + signed_byte(row.split >> 8) * second);
    else dot = (float)first;
    if constexpr (MIN_PER_16<F>) min = (float)((i32)(row.split >> 16 & 255) * sums.x + (i32)(row.split >> 24) * sums.y);
    return chain<F>(s, row.dm.x, row.dm.y, row.dmin, dot, min, scale);
}

// Half `half` of a chunk: the first 128 work-items decode a pair of a row each, the others bring half a column each.
template <class F> DEVICE void fill_tile(TileRoom<F> &room, const TileProduct &p, u32 chunk, u32 half) {
    const u32 n_blocks = p.k / F::BLOCK - chunk * (256 / F::BLOCK), n_groups = p.k / 32 - chunk * 8;
    if (tid() < 2 * MMT_ROWS) {
        // Rows beyond the last repeat it.
        const u32 row = tid() / 2, j = 2 * half + tid() % 2, source = (u32)min_i((i32)(p.row + row), (i32)p.m - 1);
        const u8 *from = p.w + (i64)source * p.w_stride + (i64)chunk * F::CHUNK_BYTES;
        Pair pair;
        F::pair(from, j, (u32)min_i((i32)n_blocks, 256 / F::BLOCK), pair);
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const u32 g = F::group(j, h) % 4;
            u32x4 *to = (u32x4 *)(room.w + row * MMT_STRIDE + 32 * g);
            to[0] = {pair.q[h][0], pair.q[h][1], pair.q[h][2], pair.q[h][3]};
            to[1] = {pair.q[h][4], pair.q[h][5], pair.q[h][6], pair.q[h][7]};
            room.dm[g][row] = {pair.d[h], pair.m[h]};
            if constexpr (F::SPLIT) {
                u32 packed = (u32)(pair.s[h][0] & 255) | (u32)(pair.s[h][1] & 255) << 8;
                if constexpr (F::MIN) packed |= (u32)pair.n[h][0] << 16 | (u32)pair.n[h][1] << 24;
                room.split.values[g * MMT_ROWS + row] = packed;
            }
        }
        if constexpr (MIN_PER_16<F>) room.dmin.values[row] = pair.dmin;
    } else {
        const u32 column = tid() / 2 - MMT_ROWS, part = tid() % 2;
        const i64 row = room.from[column];
        const i8 *from = p.xq + row * p.k + 256 * chunk + MMT_HALF * half + 64 * part;
        u8 *to = room.x + column * MMT_STRIDE + 64 * part;
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const u32 g = 2 * part + i;
            // Groups beyond the row's end are not multiplied.
            if (4 * half + g >= n_groups) continue;
            const u32x4 a = ((const u32x4 *)from)[2 * i], b = ((const u32x4 *)from)[2 * i + 1];
            ((u32x4 *)to)[2 * i] = a, ((u32x4 *)to)[2 * i + 1] = b;
            room.scale[g][column] = p.xs[row * (p.k / 32) + 8 * chunk + 4 * half + g];
            if constexpr (MIN_PER_16<F>) {
                i32 first = dot4(0x01010101, (i32)a.x, 0), second = dot4(0x01010101, (i32)b.x, 0);
                first = dot4(0x01010101, (i32)a.y, first), second = dot4(0x01010101, (i32)b.y, second);
                first = dot4(0x01010101, (i32)a.z, first), second = dot4(0x01010101, (i32)b.z, second);
                first = dot4(0x01010101, (i32)a.w, first), second = dot4(0x01010101, (i32)b.w, second);
                room.sums.values[g * MMT_COLUMNS + column] = {first, second};
            }
        }
    }
}

DEVICE void store_result(const TileProduct &p, u32 row, i32 to, float y) {
    if (row >= p.m || to < 0) return;
    const i64 at = (i64)to * p.out_stride + row;
    if (p.bias) y = plus(y, p.bias[row]);
    if (p.residual) y = plus(y, p.residual[at]);
    p.out[at] = y;
}

#if defined(__gfx906__)
#include "mmt_gfx906.h"
#else
#include "mmt_gfx11.h"
#endif

// The whole product of one tile; `from` and `to` are filled.
template <class F> DEVICE void mmt_tile(TileRoom<F> &room, const TileProduct &p) {
    const u32 n_chunks = ceil_div(p.k, 256);
    Results total;
    total.clear();
    for (u32 chunk = 0; chunk < n_chunks; chunk++) {
        const u32 n_groups = p.k / 32 - chunk * 8;
        Results s;
        s.clear();
#pragma unroll 1
        for (u32 half = 0; half < 2 && 4 * half < n_groups; half++) {
            barrier();
            fill_tile<F>(room, p, chunk, half);
            barrier();
            // The order of `chain` within a chunk is that of pairs: for Q6_K groups 0 2 1 3.
#pragma unroll 1
            for (u32 i = 0; i < 4; i++) {
                const u32 g = F::group(2 * half + i / 2, i % 2) % 4;
                if (F::BLOCK == 256 || 4 * half + g < n_groups) s.template multiply<F>(room, g);
            }
        }
        total.add(s);
    }
    total.store(p, room.to);
}

template <class F> DEVICE void mmt(const MatMulArgs &a) {
    SHARED TileRoom<F> room;
    F::prepare();
    u32 part = 0, index = bid_x();
    for (u32 i = 0; i + 1 < (u32)a.n_parts; i++) {
        u32 tiles = ceil_div((u32)a.m[i], MMT_ROWS);
        if (part == i && index >= tiles) index -= tiles, part = i + 1;
    }
    TileProduct p;
    p.w = part == 0 ? a.w[0] : part == 1 ? a.w[1] : a.w[2];
    p.out = part == 0 ? a.out[0] : part == 1 ? a.out[1] : a.out[2];
    p.bias = part == 0 ? a.bias[0] : part == 1 ? a.bias[1] : a.bias[2];
    p.m = (u32)(part == 0 ? a.m[0] : part == 1 ? a.m[1] : a.m[2]);
    p.out_stride = part == 0 ? a.out_stride[0] : part == 1 ? a.out_stride[1] : a.out_stride[2];
    p.w_stride = a.w_stride, p.row = index * MMT_ROWS, p.k = (u32)a.k, p.xq = a.xq, p.xs = a.xs, p.residual = a.residual;
    if (tid() < MMT_COLUMNS) {
        const i32 column = (i32)(bid_y() * MMT_COLUMNS + tid());
        room.from[tid()] = min_i(column, a.t - 1), room.to[tid()] = column < a.t ? column : -1;
    }
    mmt_tile<F>(room, p);
}

// Tiles of the slots of one expert each: `offsets` and `sorted_rows` come from `moes`.
template <class F> DEVICE void moet(const ExpertArgs &a) {
    SHARED TileRoom<F> room;
    SHARED i32 found[2];
    F::prepare();
    const i32 wanted = (i32)bid_y(), columns = (i32)MMT_COLUMNS;
    if (tid() == 0) found[0] = -1;
    barrier();
    for (i32 e = (i32)tid(); e < a.n_experts; e += (i32)MMT_THREADS) {
        const i32 tiles = (a.offsets[e + 1] - a.offsets[e] + columns - 1) / columns;
        i32 before = 0;
        if (tiles == 0) continue;
        for (i32 i = 0; i < e && before <= wanted; i++) before += (a.offsets[i + 1] - a.offsets[i] + columns - 1) / columns;
        if (wanted >= before && wanted < before + tiles) found[0] = e, found[1] = wanted - before;
    }
    barrier();
    const i32 expert = found[0];
    if (expert < 0) return;
    const i32 first = a.offsets[expert] + found[1] * columns, end = a.offsets[expert + 1];
    const i32 place = a.table ? a.table[expert] : expert;
    if (tid() < MMT_COLUMNS) {
        const i32 at = first + (i32)tid(), slot = a.sorted_rows[min_i(at, end - 1)];
        room.from[tid()] = a.x_per_slot ? slot : slot / a.k;
        room.to[tid()] = at < end ? slot : -1;
    }
    barrier();
    const u32 row = bid_x() * MMT_ROWS;
    if (place < 0) {
        // An expert that is not here: its slots' results are zero.
        for (u32 i = tid(); i < MMT_COLUMNS * MMT_ROWS; i += MMT_THREADS) {
            const i32 to = room.to[i / MMT_ROWS];
            const u32 r = row + i % MMT_ROWS;
            if (to >= 0 && r < (u32)a.m) a.out[(i64)to * a.out_stride + r] = 0;
        }
        return;
    }
    TileProduct p;
    p.w = a.w[0] + place * a.w_expert_stride, p.w_stride = a.w_stride, p.row = row, p.m = (u32)a.m, p.k = (u32)a.kdim;
    p.xq = a.xq, p.xs = a.xs, p.bias = nullptr, p.residual = nullptr, p.out = a.out, p.out_stride = a.out_stride;
    mmt_tile<F>(room, p);
}
#endif
