// The exact product: activations as floats, weights decoded to floats, sums in float, in an order that depends on k alone.
//
// Computes: as mmv.h, without rounding of activations; T columns a block, any number of columns by the grid. Weights of plain types
// (f32, f16, bf16) may have any k, quantised ones whole blocks.
// Launch: 128 work-items; grid (Σ_p ceil(m[p] / rows), ceil(t / T)); dynamic shared memory 4 · rows · T · ceil(k / 256) · (act >= 0 ? 2 : 1).
// Assumes: weights aligned to the format's ALIGN, x to its element.
// Must match: MatMul of the ABI in precise mode, and in either mode for plain types. Order: 32 elements in rising order by fused
// multiply-add, two such runs and four pairs added in the order of pairs, chunks of 256 in rising order. Tolerance: the kit's float class.
// Plain on purpose: it is the reference on the card and the path of small float matrices (routers), not of speed.
#pragma once
#if !defined(STRATA_BLOCK)
#define STRATA_BLOCK 128
#endif
#include "matmul.h"

// Unrolled whole, the compiler loads the activations of all columns first, which AMD's 256 registers have no room for.
#if defined(STRATA_AMD)
#define MMX_UNROLL _Pragma("unroll 1")
#else
#define MMX_UNROLL _Pragma("unroll")
#endif

// Plain types as formats whose chunk has up to 256 elements.
template <int SIZE> struct Plain {
    static constexpr int BYTES = SIZE, ALIGN = SIZE, BLOCK = 1, CHUNK_BYTES = 256 * SIZE;
    DEVICE static u32 group(u32 j, u32 h) { return 2 * j + h; }
    DEVICE static void prepare() {}
};
struct F32 : Plain<4> {
    DEVICE static float at(const u8 *p, u32 i) { return ((const float *)p)[i]; }
};
struct F16 : Plain<2> {
    DEVICE static float at(const u8 *p, u32 i) { return half_to_float(((const u16 *)p)[i]); }
};
struct BF16 : Plain<2> {
    DEVICE static float at(const u8 *p, u32 i) { return bf16_to_float(((const u16 *)p)[i]); }
};

// A decoded weight of group h: its byte is the lowest of `bits`, `half` of the group's 32 it is in.
template <class F> DEVICE float weight_of(const Pair &p, int h, int half, u32 bits) {
    float q = (float)signed_byte(bits);
    if constexpr (F::SPLIT) {
        float w = times(times(p.d[h], (float)(half ? p.s[h][1] : p.s[h][0])), q);
        if constexpr (F::MIN) w = plus(w, -times(p.dmin, (float)(half ? p.n[h][1] : p.n[h][0])));
        return w;
    } else if constexpr (F::MIN) {
        return plus(times(p.d[h], q), p.m[h]);
    } else {
        return times(p.d[h], q);
    }
}

// One pair's part of a chunk's sum, per column. `k` elements from the row's start, the chunk begins at `base`.
template <class F, int T>
DEVICE void pair_sums(const u8 *chunk, u32 j, u32 base, u32 k, const float *const *x, float *sums) {
    if constexpr (F::BLOCK == 1) {
        for (u32 h = 0; h < 2; h++) {
            float run[T];
            for (int c = 0; c < T; c++) run[c] = 0;
            u32 from = 64 * j + 32 * h;
            for (u32 i = from; i < from + 32 && base + i < k; i++) {
                float w = F::at(chunk, i);
                for (int c = 0; c < T; c++) run[c] = fused(w, x[c][base + i], run[c]);
            }
            for (int c = 0; c < T; c++) sums[c] = h == 0 ? run[c] : plus(sums[c], run[c]);
        }
    } else {
        Pair pair;
        u32 n = (u32)min_i((i32)((k - base) / F::BLOCK), 256 / F::BLOCK);
        F::pair(chunk, j, n, pair);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 g = F::group(j, (u32)h);
            bool there = F::BLOCK == 256 || g < n;
            float run[T];
            for (int c = 0; c < T; c++) run[c] = 0;
            u32 at = base + 32 * (there ? g : 0);
            u32 words[8];
            for (int i = 0; i < 8; i++) words[i] = pair.q[h][i];
            // Four elements a step. The words move up instead of being indexed, since registers have no index.
            MMX_UNROLL
            for (int step = 0; step < 8; step++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float w = weight_of<F>(pair, h, step / 4, words[0] >> 8 * i);
                    for (int c = 0; c < T; c++) run[c] = fused(w, x[c][at + 4 * step + i], run[c]);
                }
                for (int i = 0; i < 7; i++) words[i] = words[i + 1];
            }
            for (int c = 0; c < T; c++) {
                if (!there) run[c] = 0;
                sums[c] = h == 0 ? run[c] : plus(sums[c], run[c]);
            }
        }
    }
}

// The chunks of a run of rows into `partial` [column][row][chunk].
template <class F, int T>
DEVICE void mmx_chunks(float *partial, const u8 *w, i64 stride, u32 n_rows, u32 k, const float *const *x) {
    const u32 n_chunks = ceil_div(k, 256), total = n_rows * n_chunks, j = tid() % 4, leader = lane() & ~3u;
    for (u32 first = 0; first < total; first += block_size() / 4) {
        u32 at = first + tid() / 4;
        bool there = at < total;
        u32 row = there ? at / n_chunks : 0, chunk = there ? at % n_chunks : 0;
        float sums[T];
        pair_sums<F, T>(w + row * stride + (i64)chunk * F::CHUNK_BYTES, j, 256 * chunk, k, x, sums);
        for (int c = 0; c < T; c++) {
            float s = shfl(sums[c], leader);
            for (u32 i = 1; i < 4; i++) s = plus(s, shfl(sums[c], leader + i));
            if (j == 0 && there) partial[c * total + at] = s;
        }
    }
    barrier();
}

template <class F, int T> DEVICE void mmx(const MatMulArgs &a) {
    grid_release();
    F::prepare();
    grid_wait();
    float *partial = (float *)dynamic_shared();
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
    const u32 first = bid_y() * T, columns = (u32)min_i(T, a.t - (i32)first), total = n_rows * n_chunks;
    const float *x[T];
    for (u32 c = 0; c < T; c++) x[c] = a.x + (i64)(first + (c < columns ? c : 0)) * a.x_stride;
    mmx_chunks<F, T>(partial, w + row * a.w_stride, a.w_stride, n_rows, k, x);
    if (gated_unit) mmx_chunks<F, T>(partial + T * total, a.w[1] + row * a.w_stride, a.w_stride, n_rows, k, x);
    for (u32 i = tid(); i < columns * n_rows; i += block_size()) {
        u32 c = i / n_rows, r = i % n_rows;
        const float *sums = partial + c * total + r * n_chunks;
        float y = chunk_total(sums, n_chunks);
        if (gated_unit) y = gated(a.act, y, chunk_total(sums + T * total, n_chunks), a.act_f0, a.act_f1);
        else if (bias) y = plus(y, bias[row + r]);
        i64 at = (i64)(first + c) * out_stride + row + r;
        if (a.residual) y = plus(y, a.residual[at]);
        out[at] = y;
    }
}
