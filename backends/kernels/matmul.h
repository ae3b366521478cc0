// What all matrix kernels share: their arguments, the canonical order of a sum, rounding of activations to bytes.
//
// The canonical order makes a result a function of its own row and column only, whatever kernel, tile or batch computed it:
// integer sums over 32 elements are exact; within a chunk of 256 they are added to a float from 0 in the order of pairs (chain
// below); chunks are added in rising order. The decode kernels, the portable ones and the tensor core twins all follow it.
#pragma once
#include "formats.h"
#include "functions.h"

// One to three weights of one format over the same activations (query, key, value), or gate and up of a gated unit.
struct MatMulArgs {
    const u8 *w[3];
    float *out[3];
    const float *bias[3];
    // Activations as signed bytes [t][k] and per 32 of them (scale, scale · sum).
    const i8 *xq;
    const float2_t *xs;
    // Activations as floats, rows x_stride elements apart: for the kernels that do not round them.
    const float *x;
    // Added to the result, rows out_stride[0] apart, or null.
    const float *residual;
    // Bytes from one row of weights to the next.
    i64 w_stride;
    i32 m[3];
    i32 k;
    i32 t;
    i32 x_stride;
    i32 out_stride[3];
    i32 n_parts;
    // A StrataActivation: w[0] is the gate and w[1] what it gates. Or -1.
    i32 act;
    float act_f0, act_f1;
    // Rows of weights a block takes.
    i32 rows;
};

// The same per chosen expert: w[e] lies w_expert_stride bytes after w[e - 1].
struct ExpertArgs {
    const u8 *w[2];
    float *out;
    const i8 *xq;
    const float2_t *xs;
    const float *x;
    // [t][k] chosen experts.
    const i32 *ids;
    // Where an expert lies, -1: not here. Or null.
    const i32 *table;
    // Slots t·k + j in the order of their experts, and where each expert's begin: made by `moes`.
    const i32 *sorted_rows;
    const i32 *offsets;
    i64 w_stride;
    i64 w_expert_stride;
    i32 m, kdim, k, t;
    // 0: the activations of slot t·k + j are row t; 1: row t·k + j.
    i32 x_per_slot;
    i32 n_experts;
    i32 act;
    float act_f0, act_f1;
    i32 rows;
    i32 x_stride;
    // Elements from one slot's result to the next.
    i32 out_stride;
};

// Integer sums of one group of 32: q · x, and for formats with minima per 16 the sum of those.
struct GroupSum {
    i32 dot;
    i32 min;
};

template <class F> constexpr bool MIN_PER_16 = F::SPLIT && F::MIN;

template <class F> DEVICE GroupSum group_sums(const Pair &p, int h, const u32x4 &a, const u32x4 &b) {
    const u32 x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    GroupSum out = {0, 0};
    if constexpr (F::SPLIT) {
        i32 sums[2] = {0, 0}, mins[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sums[i / 4] = dot4((i32)p.q[h][i], (i32)x[i], sums[i / 4]);
            if constexpr (F::MIN) mins[i / 4] = dot4(0x01010101, (i32)x[i], mins[i / 4]);
        }
        out.dot = p.s[h][0] * sums[0] + p.s[h][1] * sums[1];
        if constexpr (F::MIN) out.min = p.n[h][0] * mins[0] + p.n[h][1] * mins[1];
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++) out.dot = dot4((i32)p.q[h][i], (i32)x[i], out.dot);
    }
    return out;
}

// Adds a group to the sum of its chunk. `scale` is (d, d · sum) of the activations.
template <class F> DEVICE float chain(float s, float d, float m, float dmin, float dot, float min, float2_t scale) {
    s = fused(times(d, scale.x), dot, s);
    if constexpr (MIN_PER_16<F>) s = fused(-times(dmin, scale.x), min, s);
    else if constexpr (F::MIN) s = fused(m, scale.y, s);
    return s;
}

// The sum of a row's chunks, in their order; four are read ahead of the additions.
DEVICE float chunk_total(const float *partial, u32 n_chunks) {
    float y = 0;
    u32 i = 0;
    for (; i + 4 <= n_chunks; i += 4) {
        float a = partial[i], b = partial[i + 1], c = partial[i + 2], d = partial[i + 3];
        y = plus(plus(plus(plus(y, a), b), c), d);
    }
    for (; i < n_chunks; i++) y = plus(y, partial[i]);
    return y;
}

// Rounds 32 numbers that lie four each in eight neighbouring lanes. All lanes of a wave call it. An infinity or a NaN makes the scale
// a NaN: it must not vanish.
DEVICE u32 round_to_bytes(float4_t v, float2_t &scale) {
    u32 most = 0;
    const float x[4] = {v.x, v.y, v.z, v.w};
    for (int i = 0; i < 4; i++) {
        u32 size = bits_of(x[i]) & 0x7fffffffu;
        most = size > most ? size : most;
    }
    for (u32 mask = 4; mask > 0; mask /= 2) {
        u32 other = (u32)shfl_xor_i((i32)most, mask);
        most = other > most ? other : most;
    }
    bool finite = most < 0x7f800000u, some = float_of(most) > 1e-30f;
    float inverse = finite && some ? divide(127.0f, float_of(most)) : 0.0f;
    i32 total = 0;
    u32 packed = 0;
    for (int i = 0; i < 4; i++) {
        i32 q = finite ? nearest(times(x[i], inverse)) : 0;
        total += q;
        packed |= (u32)(q & 255) << 8 * i;
    }
    for (u32 mask = 4; mask > 0; mask /= 2) total += shfl_xor_i(total, mask);
    float d = !finite ? float_of(0x7fc00000u) : some ? times(float_of(most), 1.0f / 127.0f) : 0.0f;
    scale = {d, times(d, (float)total)};
    return packed;
}
