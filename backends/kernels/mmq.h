// NVIDIA twin of mmv.h for many columns: the same sums, bit for bit, by the tensor cores' signed byte products.
//
// Computes: out[p][c][r] = Σ_k W[p][r][k] · x[c][k] (+ bias) (+ residual). Gated units: gate and up apart, then gated_q8.
// Launch: 256 work-items; grid (Σ_p ceil(m[p] / 128), ceil(t / 64)); dynamic shared memory sizeof(Tile) = 106,576 bytes (the launch must
// raise the function's limit). `rows` of the arguments is not read.
// Assumes: as mmv.h. Needs mma.m16n8k32.s8: compute capability 8.0.
// Must match: mmv_* exactly. Per chunk of 256 and 128 rows the weights are decoded once to bytes in shared memory, 64 columns use
// them; a group of 32 is one m16n8k32, its exact integer result goes through `chain` like everywhere. What limits it is that chain
// (four float operations per product of 32), not the tensor cores: docs/KERNELS.md.
#pragma once
#include "mmv.h"

#if !defined(STRATA_AMD)

constexpr u32 MMQ_ROWS = 128, MMQ_COLUMNS = 64, MMQ_THREADS = 256, MMQ_STRIDE = 272;

// Which tile of a weight, what it is multiplied with, where results go. In shared memory: registers are what this kernel is short of.
struct Product {
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

constexpr u32 MMQ_SLOT = 288;

struct Tile {
    Product product;
    // The next chunk of each row as it lies in memory, from the 16 bytes on that hold its first.
    alignas(16) u8 raw[MMQ_ROWS * MMQ_SLOT];
    // Bytes of a row lie 272 apart, so that eight rows by 16 bytes touch all banks once.
    u8 w[MMQ_ROWS * MMQ_STRIDE];
    u8 x[MMQ_COLUMNS * MMQ_STRIDE];
    // Per group: (d, m) of rows, the scales per 16 (four bytes: s0 s1 n0 n1), (d, d·sum) of columns.
    float2_t dm[8][MMQ_ROWS];
    u32 split[8][MMQ_ROWS];
    float2_t scale[8][MMQ_COLUMNS];
    float dmin[MMQ_ROWS];
    // Row of x and of the result for a column.
    i32 from[MMQ_COLUMNS];
    i32 to[MMQ_COLUMNS];
};

DEVICE void load_fragment(u32 address, u32 *r) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
// All four results start at `from`: one quad of registers serves every product.
DEVICE void mma32(i32 (&c)[4], const u32 *a, const u32 *b, i32 from) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(from));
}
DEVICE void mma16(i32 (&c)[4], u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(0));
}

// Where a row's chunk begins; rows beyond the last repeat it.
template <class F> DEVICE const u8 *chunk_at(const Product &p, u32 row, u32 chunk) {
    const u32 source = p.row + row < p.m ? p.row + row : p.m - 1;
    return p.w + (i64)source * p.w_stride + (i64)chunk * F::CHUNK_BYTES;
}

// Starts the copies of 128 rows of a chunk of n blocks.
template <class F> DEVICE void fetch_rows(Tile &tile, const Product &p, u32 chunk, u32 n) {
    constexpr u32 SLOT = Stages<F, 1>::SLOT, PIECES = SLOT / 16;
    static_assert(SLOT <= MMQ_SLOT, "a slot has room for every format's chunk");
    const u32 row = tid() / 2;
    const u8 *from = chunk_at<F>(p, row, chunk), *start = (const u8 *)((u64)from & ~15ull);
    const u32 bytes = ((u32)(u64)from & 15) + n * F::BYTES;
    u8 *to = tile.raw + row * SLOT;
#pragma unroll
    for (u32 i = 0; i < PIECES; i += 2) {
        const u32 at = 16 * (i + tid() % 2);
        if (at < bytes) copy16_async(to + at, start + at);
    }
    copy_commit();
}

// Decodes 128 rows of a chunk: two work-items a row, two pairs each.
template <class F> DEVICE void decode_rows(Tile &tile, const Product &p, u32 chunk, u32 n) {
    const u32 row = tid() / 2;
    const u8 *from = tile.raw + row * Stages<F, 1>::SLOT + (F::ALIGN >= 16 ? 0 : (u32)(u64)chunk_at<F>(p, row, chunk) & 15);
#pragma unroll 1
    for (u32 i = 0; i < 2; i++) {
        const u32 j = 2 * (tid() % 2) + i;
        Pair pair;
        F::pair(from, j, n, pair);
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            const u32 g = F::group(j, h);
            u32x4 *to = (u32x4 *)(tile.w + row * MMQ_STRIDE + 32 * g);
            to[0] = {pair.q[h][0], pair.q[h][1], pair.q[h][2], pair.q[h][3]};
            to[1] = {pair.q[h][4], pair.q[h][5], pair.q[h][6], pair.q[h][7]};
            tile.dm[g][row] = {pair.d[h], pair.m[h]};
            if constexpr (F::SPLIT) {
                u32 packed = (u32)(pair.s[h][0] & 255) | (u32)(pair.s[h][1] & 255) << 8;
                if constexpr (F::MIN) packed |= (u32)pair.n[h][0] << 16 | (u32)pair.n[h][1] << 24;
                tile.split[g][row] = packed;
            }
        }
        if constexpr (MIN_PER_16<F>)
            if (j == 0) tile.dmin[row] = pair.dmin;
    }
}

// Columns of a chunk of n groups: four work-items a column, two groups each.
DEVICE void fetch_columns(Tile &tile, const Product &p, u32 chunk, u32 n) {
    const u32 column = tid() / 4, part = tid() % 4;
    const i64 row = tile.from[column];
    const i8 *from = p.xq + row * p.k + 256 * chunk + 64 * part;
    u8 *to = tile.x + column * MMQ_STRIDE + 64 * part;
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        if (2 * part + i / 2 < n) copy16_async(to + 16 * i, from + 16 * i);
    copy_commit();
    const float2_t *scales = p.xs + row * (p.k / 32) + 8 * chunk + 2 * part;
#pragma unroll
    for (u32 i = 0; i < 2; i++)
        if (2 * part + i < n) tile.scale[2 * part + i][column] = scales[i];
}

// The integer sums of 16 rows by 8 columns over a group, as floats. `split`: scales and minima per 16 of the two rows.
template <class F> DEVICE void products(const u32 *a, const u32 *b, const u32 *split, float *dot, float *min) {
    if constexpr (F::SPLIT) {
        i32 first[4], second[4];
        mma16(first, a[0], a[1], b[0]);
        mma16(second, a[2], a[3], b[1]);
#pragma unroll
        for (u32 e = 0; e < 4; e++)
            dot[e] = (float)(first[e] * signed_byte(split[e / 2]) + second[e] * signed_byte(split[e / 2] >> 8));
        if constexpr (F::MIN) {
            // Minima as a matrix of bytes: the sums of activations come out weighted by them.
            i32 sums[4];
            u32 bytes[4];
            for (u32 r = 0; r < 2; r++)
                bytes[r] = (split[r] >> 16 & 255) * 0x01010101u, bytes[r + 2] = (split[r] >> 24) * 0x01010101u;
            mma32(sums, bytes, b, 0);
#pragma unroll
            for (u32 e = 0; e < 4; e++) min[e] = (float)sums[e];
        }
    } else {
        // The sum starts at the bits of 1.5·2^23: as a float the result is that number plus the sum, exactly.
        i32 sums[4];
        mma32(sums, a, b, 0x4b400000);
#pragma unroll
        for (u32 e = 0; e < 4; e++) dot[e] = plus(float_of((u32)sums[e]), -12582912.0f);
    }
}

// One group of 32 for a warp's 32 rows by 32 columns: `s` gets what `chain` makes of it.
// `w` and `x` are the lane's addresses in tile.w and tile.x for group 0.
template <class F> DEVICE void multiply_group(Tile &tile, u32 g, u32 row, u32 column, u32 w, u32 x, float (&s)[2][4][4]) {
    const u32 quad = lane() / 4, pair = lane() % 4;
    u32 a[2][4];
#pragma unroll
    for (u32 i = 0; i < 2; i++) load_fragment(w + 32 * g + 16 * i * MMQ_STRIDE, a[i]);
    float2_t dm[2][2];
#pragma unroll
    for (u32 i = 0; i < 4; i++) dm[i / 2][i % 2] = tile.dm[g][row + 8 * i + quad];
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        const u32 first_column = column + 16 * half;
        u32 b[4];
        load_fragment(x + 32 * g + 16 * half * MMQ_STRIDE, b);
        float2_t scale[2][2];
#pragma unroll
        for (u32 i = 0; i < 4; i++) scale[i / 2][i % 2] = tile.scale[g][first_column + 8 * (i / 2) + 2 * pair + i % 2];
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            u32 split[2] = {0, 0};
            float dmin[2] = {0, 0};
            if constexpr (F::SPLIT)
                for (u32 r = 0; r < 2; r++) split[r] = tile.split[g][row + 16 * i + 8 * r + quad];
            if constexpr (MIN_PER_16<F>)
                for (u32 r = 0; r < 2; r++) dmin[r] = tile.dmin[row + 16 * i + 8 * r + quad];
#pragma unroll
            for (u32 n = 0; n < 2; n++) {
                float dot[4], min[4] = {0, 0, 0, 0};
                products<F>(a[i], b + 2 * n, split, dot, min);
                float(&sums)[4] = s[i][2 * half + n];
#pragma unroll
                for (u32 e = 0; e < 4; e++)
                    sums[e] = chain<F>(sums[e], dm[i][e / 2].x, dm[i][e / 2].y, dmin[e / 2], dot[e], min[e], scale[n][e % 2]);
            }
        }
    }
}

// The order in which `chain` takes the groups of a chunk.
template <class F> DEVICE constexpr u32 nth_group(u32 i) { return F::group(i / 2, i % 2); }

// The whole product of one tile.
template <class F> DEVICE void mmq_tile(Tile &tile) {
    const Product &p = tile.product;
    const u32 warp = group(), row = 32 * (warp % 4), column = 32 * (warp / 4), n_chunks = ceil_div(p.k, 256);
    const u32 l = lane();
    const u32 w = shared_address(tile.w) + (row + l % 16) * MMQ_STRIDE + 16 * (l / 16);
    const u32 x = shared_address(tile.x) + (column + l % 8 + 8 * (l / 16)) * MMQ_STRIDE + 16 * (l / 8 % 2);
    float total[2][4][4];
#pragma unroll
    for (u32 i = 0; i < 32; i++) total[i / 16][i / 4 % 4][i % 4] = 0;
    auto blocks_of = [&](u32 chunk) { return F::BLOCK == 32 ? (u32)min_i(8, (i32)(p.k / 32 - 8 * chunk)) : 1; };
    fetch_rows<F>(tile, p, 0, blocks_of(0));
    for (u32 chunk = 0; chunk < n_chunks; chunk++) {
        const u32 n = (u32)min_i(8, (i32)(p.k / 32 - 8 * chunk));
        copy_wait<0>();
        barrier();
        fetch_columns(tile, p, chunk, n);
        decode_rows<F>(tile, p, chunk, blocks_of(chunk));
        copy_wait<0>();
        barrier();
        if (chunk + 1 < n_chunks) fetch_rows<F>(tile, p, chunk + 1, blocks_of(chunk + 1));
        float s[2][4][4];
#pragma unroll
        for (u32 i = 0; i < 32; i++) s[i / 16][i / 4 % 4][i % 4] = 0;
#pragma unroll 1
        for (u32 i = 0; i < 8; i++) {
            const u32 g = nth_group<F>(i);
            if (F::BLOCK == 256 || g < n) multiply_group<F>(tile, g, row, column, w, x, s);
        }
#pragma unroll
        for (u32 i = 0; i < 32; i++) {
            float &sum = total[i / 16][i / 4 % 4][i % 4];
            sum = plus(sum, s[i / 16][i / 4 % 4][i % 4]);
        }
    }
    const u32 quad = lane() / 4, pair = lane() % 4;
#pragma unroll
    for (u32 i = 0; i < 2; i++)
#pragma unroll
        for (u32 n = 0; n < 4; n++)
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                u32 r = p.row + row + 16 * i + 8 * (e / 2) + quad, c = column + 8 * n + 2 * pair + e % 2;
                if (r >= p.m || tile.to[c] < 0) continue;
                i64 at = tile.to[c] * p.out_stride + r;
                float y = total[i][n][e];
                if (p.bias) y = plus(y, p.bias[r]);
                if (p.residual) y = plus(y, p.residual[at]);
                p.out[at] = y;
            }
}

template <class F> DEVICE void mmq(const MatMulArgs &a) {
    Tile &tile = *(Tile *)dynamic_shared();
    grid_release();
    F::prepare();
    u32 part = 0, index = bid_x();
    for (u32 p = 0; p + 1 < (u32)a.n_parts; p++) {
        u32 tiles = ceil_div((u32)a.m[p], MMQ_ROWS);
        if (part == p && index >= tiles) index -= tiles, part = p + 1;
    }
    const u8 *w = part == 0 ? a.w[0] : part == 1 ? a.w[1] : a.w[2];
    float *out = part == 0 ? a.out[0] : part == 1 ? a.out[1] : a.out[2];
    const float *bias = part == 0 ? a.bias[0] : part == 1 ? a.bias[1] : a.bias[2];
    const u32 m = (u32)(part == 0 ? a.m[0] : part == 1 ? a.m[1] : a.m[2]);
    const i64 stride = part == 0 ? a.out_stride[0] : part == 1 ? a.out_stride[1] : a.out_stride[2];
    if (tid() < MMQ_COLUMNS) {
        i32 column = (i32)(bid_y() * MMQ_COLUMNS + tid());
        tile.from[tid()] = min_i(column, a.t - 1), tile.to[tid()] = column < a.t ? column : -1;
    }
    grid_wait();
    barrier();
    if (tid() == 0) tile.product = {w, a.w_stride, index * MMQ_ROWS, m, (u32)a.k, a.xq, a.xs, bias, a.residual, out, stride};
    barrier();
    mmq_tile<F>(tile);
}

// Tiles of the slots of one expert each: `offsets` and `sorted_rows` come from `moes`.
template <class F> DEVICE void moeq(const ExpertArgs &a) {
    Tile &tile = *(Tile *)dynamic_shared();
    SHARED i32 found[2];
    grid_release();
    F::prepare();
    grid_wait();
    const i32 wanted = (i32)bid_y();
    if (tid() == 0) found[0] = -1;
    barrier();
    for (i32 e = (i32)tid(); e < a.n_experts; e += (i32)MMQ_THREADS) {
        i32 tiles = (a.offsets[e + 1] - a.offsets[e] + (i32)MMQ_COLUMNS - 1) / (i32)MMQ_COLUMNS, before = 0;
        if (tiles == 0) continue;
        for (i32 i = 0; i < e && before <= wanted; i++) before += (a.offsets[i + 1] - a.offsets[i] + (i32)MMQ_COLUMNS - 1) / (i32)MMQ_COLUMNS;
        if (wanted >= before && wanted < before + tiles) found[0] = e, found[1] = wanted - before;
    }
    barrier();
    const i32 expert = found[0];
    if (expert < 0) return;
    const i32 first = a.offsets[expert] + found[1] * (i32)MMQ_COLUMNS, end = a.offsets[expert + 1];
    const i32 place = a.table ? a.table[expert] : expert;
    if (tid() < MMQ_COLUMNS) {
        i32 at = first + (i32)tid(), slot = a.sorted_rows[min_i(at, end - 1)];
        tile.from[tid()] = a.x_per_slot ? slot : slot / a.k;
        tile.to[tid()] = at < end ? slot : -1;
    }
    barrier();
    const u32 row = bid_x() * MMQ_ROWS;
    if (place < 0) {
        for (u32 i = tid(); i < MMQ_COLUMNS * MMQ_ROWS; i += MMQ_THREADS) {
            i32 to = tile.to[i / MMQ_ROWS];
            u32 r = row + i % MMQ_ROWS;
            if (to >= 0 && r < (u32)a.m) a.out[(i64)to * a.out_stride + r] = 0;
        }
        return;
    }
    if (tid() == 0)
        tile.product = {a.w[0] + place * a.w_expert_stride, a.w_stride, row, (u32)a.m, (u32)a.kdim, a.xq, a.xs, nullptr, nullptr, a.out, a.out_stride};
    barrier();
    mmq_tile<F>(tile);
}
#endif
