// The decode product over bytes: y = W x for 1 to 8 columns at a time, every weight byte read once, any number of columns by the grid.
//
// Computes: out[p][c][r] = Σ_k W[p][r][k] · x[c][k] (+ bias) (+ residual), or act(gate) · up. Activations: bytes with a scale per 32.
// Launch: 128 work-items; grid (Σ_p ceil(m[p] / rows), ceil(t / T)), with act: ceil(m[0] / rows). Dynamic shared memory: 4 · rows · T ·
// ceil(k / 256) bytes, twice that with act. `rows` any number; 1, 2, 4, 8 are sensible: enough blocks to fill the card.
// Assumes: weights aligned to the format's ALIGN, and readable up to the next multiple of 16 bytes beyond their ends; xq aligned to 16.
// Must match: MatMul of the ABI in default mode, in the canonical order of matmul.h. Tolerance: the kit's 8-bit class.
// Why not simpler: one lane a row reads 144-byte blocks that no two lanes share a line of; here four lanes share a chunk, weights go
// through shared memory by asynchronous copies, so that a block of any odd size (210, 34, 17 bytes) is fetched by aligned 16-byte
// pieces and several chunks a lane are under way. docs/KERNELS.md has the measurement.
#pragma once
#include "matmul.h"

constexpr u32 MMV_THREADS = 128, MMV_STAGES = 4;

template <class F> struct Stage {
    // Room for a chunk that begins anywhere within 16 bytes.
    static constexpr u32 SLOT = (F::CHUNK_BYTES + (F::ALIGN >= 16 ? 0 : 16 - F::ALIGN) + 15) / 16 * 16;
    u8 bytes[MMV_STAGES][MMV_THREADS / 4][SLOT];
};

// A run of rows of one weight: `rows` of them from `w`.
struct Rows {
    const u8 *w;
    i64 stride;
};

// Starts the copy of a chunk of `bytes` at `from` into `slot`, by four lanes; nothing beyond the aligned piece that holds its end.
DEVICE void fetch_chunk(u8 *slot, const u8 *from, u32 bytes, u32 j) {
    const u8 *start = (const u8 *)((u64)from & ~15ull), *end = from + bytes;
    for (u32 i = j; start + 16 * i < end; i += 4) copy16_async(slot + 16 * i, start + 16 * i);
}

// The chunks of n_rows rows of each of n_weights weights, as sums into `partial` [column][weight][row][chunk].
template <class F, int T>
DEVICE void mmv_chunks(Stage<F> &stage, float *partial, const Rows *weights, u32 n_weights, u32 n_rows, u32 k, u32 columns,
                       const i8 *xq, const float2_t *xs) {
    constexpr u32 AT_ONCE = T < 4 ? T : 2;
    const u32 n_chunks = ceil_div(k, 256), n_blocks = k / F::BLOCK, per_chunk = 256 / F::BLOCK;
    const u32 quad = tid() / 4, j = tid() % 4, n_quads = MMV_THREADS / 4, total = n_weights * n_rows * n_chunks;
    const u32 leader = lane() & ~3u;
    // Place of the chunk to fetch next and of the one to compute next, stepped without division.
    const u32 step_row = n_quads / n_chunks, step_chunk = n_quads % n_chunks;
    struct Place {
        u32 row, chunk;
    };
    Place ahead = {quad / n_chunks, quad % n_chunks}, now = ahead;
    auto step = [&](Place &p) {
        p.row += step_row, p.chunk += step_chunk;
        if (p.chunk >= n_chunks) p.chunk -= n_chunks, p.row++;
    };
    auto blocks_of = [&](u32 chunk) { return min_i((i32)per_chunk, (i32)(n_blocks - chunk * per_chunk)); };
    auto address = [&](const Place &p) {
        bool second = p.row >= n_rows;
        const u8 *base = second ? weights[1].w : weights[0].w;
        i64 stride = second ? weights[1].stride : weights[0].stride;
        return base + (i64)(second ? p.row - n_rows : p.row) * stride + (i64)p.chunk * F::CHUNK_BYTES;
    };
    const u32 rounds = ceil_div(total, n_quads), all_rows = n_weights * n_rows;
    auto fetch = [&](u32 round) {
        if (round < rounds && ahead.row < all_rows)
            fetch_chunk(stage.bytes[round % MMV_STAGES][quad], address(ahead), (u32)blocks_of(ahead.chunk) * F::BYTES, j);
        copy_commit();
        step(ahead);
    };
    for (u32 round = 0; round < MMV_STAGES - 1; round++) fetch(round);
    grid_wait();
    for (u32 round = 0; round < rounds; round++) {
        fetch(round + MMV_STAGES - 1);
        copy_wait<MMV_STAGES - 1>();
        wave_barrier();
        bool there = now.row < all_rows;
        u32 n = there ? (u32)blocks_of(now.chunk) : 1, chunk = there ? now.chunk : 0;
        const u8 *from = there ? address(now) : (const u8 *)0;
        Pair pair;
        F::pair(stage.bytes[round % MMV_STAGES][quad] + ((u32)(u64)from & 15), j, n, pair);
#pragma unroll AT_ONCE
        for (u32 c = 0; c < T; c++) {
            // A column that is not there repeats the first.
            const u32 column = c < columns ? c : 0;
            GroupSum sums[2];
            float2_t scales[2];
            for (u32 h = 0; h < 2; h++) {
                // A group that is not there (the end of a row of 32-blocks) reads the chunk's first.
                u32 g = F::group(j, h), at = chunk * 8 + (F::BLOCK == 256 || g < n ? g : 0);
                const u32x4 *x = (const u32x4 *)(xq + column * k + 32 * at);
                scales[h] = xs[column * (k / 32) + at];
                sums[h] = group_sums<F>(pair, (int)h, x[0], x[1]);
            }
            float s = 0;
            for (u32 i = 0; i < 4; i++) {
                float in = i == 0 ? 0.0f : shfl(s, leader + i - 1), next = in;
                for (u32 h = 0; h < 2; h++) {
                    float with = chain<F>(next, pair.d[h], pair.m[h], pair.dmin, (float)sums[h].dot, (float)sums[h].min, scales[h]);
                    next = F::BLOCK == 256 || F::group(j, h) < n ? with : next;
                }
                s = i == j ? next : s;
            }
            if (j == 3 && there) partial[(c * all_rows + now.row) * n_chunks + now.chunk] = s;
        }
        step(now);
        wave_barrier();
    }
    barrier();
}

template <class F, int T> DEVICE void mmv(const MatMulArgs &a) {
    SHARED Stage<F> stage;
    grid_release();
    float *partial = (float *)dynamic_shared();
    // Which of the weights this block works on.
    u32 part = 0, tile = bid_x();
    const bool gated_unit = a.act >= 0;
    if (!gated_unit)
        for (u32 p = 0; p + 1 < (u32)a.n_parts; p++) {
            u32 tiles = ceil_div((u32)a.m[p], (u32)a.rows);
            if (part == p && tile >= tiles) tile -= tiles, part = p + 1;
        }
    const u8 *w = part == 0 ? a.w[0] : part == 1 ? a.w[1] : a.w[2];
    float *out = part == 0 ? a.out[0] : part == 1 ? a.out[1] : a.out[2];
    const float *bias = part == 0 ? a.bias[0] : part == 1 ? a.bias[1] : a.bias[2];
    const u32 m = (u32)(part == 0 ? a.m[0] : part == 1 ? a.m[1] : a.m[2]);
    const u32 out_stride = (u32)(part == 0 ? a.out_stride[0] : part == 1 ? a.out_stride[1] : a.out_stride[2]);
    const u32 row = tile * (u32)a.rows, n_rows = (u32)min_i(a.rows, (i32)(m - row)), k = (u32)a.k, n_chunks = ceil_div(k, 256);
    const u32 first = bid_y() * T, columns = (u32)min_i(T, a.t - (i32)first);
    const Rows weights[2] = {{w + (i64)row * a.w_stride, a.w_stride}, {a.w[1] + (i64)row * a.w_stride, a.w_stride}};
    const u32 n_weights = gated_unit ? 2 : 1;
    mmv_chunks<F, T>(stage, partial, weights, n_weights, n_rows, k, columns, a.xq + (i64)first * k, a.xs + (i64)first * (k / 32));
    for (u32 i = tid(); i < columns * n_rows; i += MMV_THREADS) {
        u32 c = i / n_rows, r = i % n_rows;
        float y[2] = {0, 0};
        for (u32 n = 0; n < n_weights; n++) {
            const float *sums = partial + (c * n_weights * n_rows + n * n_rows + r) * n_chunks;
            for (u32 chunk = 0; chunk < n_chunks; chunk++) y[n] = plus(y[n], sums[chunk]);
        }
        if (gated_unit) {
            y[0] = gated(a.act, y[0], y[1], a.act_f0, a.act_f1);
        } else if (bias) {
            y[0] = plus(y[0], bias[row + r]);
        }
        i64 at = (i64)(first + c) * out_stride + row + r;
        if (a.residual) y[0] = plus(y[0], a.residual[at]);
        out[at] = y[0];
    }
}
