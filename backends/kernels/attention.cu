// Attention over the paged cache in plain float arithmetic: every cache format, precise programs, windows, caps and sinks.
//
// Launch: grid (query heads, tokens), 128 threads; four groups of 32 lanes take every fourth visible cell, each with its own running
// maximum, and are merged in a fixed order at the end, so a token's bits depend on its own position alone. Head sizes up to 512,
// one kernel per 64, 128, 256, 512. No alignment beyond the element's. Within 8 + √n/2 units of the scalar op. The f16 cache
// of ordinary programs goes to attention_f16.cu instead, which is what the speed is measured with.
#include "attention_args.h"
#include "functions.h"

DEVICE float element(const char *row, u32 i, i32 type) {
    if (type == 0) return ((const float *)row)[i];
    u16 bits = ((const u16 *)row)[i];
    return type == 1 ? half_to_float(bits) : bf16_to_float(bits);
}

template <int N> DEVICE void attend(const AttentionArgs &args) {
    grid_release();
    grid_wait();
    SHARED float merged[4][N * 32];
    SHARED float most[4];
    SHARED float sums[4];
    u32 head = bid_x(), t = bid_y(), kv = head / (u32)args.share, d = (u32)args.d, dv = (u32)args.dv;
    const float *q_row = (const float *)((const char *)args.q + args.q_nb[0] * head + args.q_nb[1] * t);
    const char *k_head = (const char *)args.k + args.k_nb[0] * kv;
    const char *v_head = (const char *)args.v + args.v_nb[0] * kv;
    const i32 *pages = (const i32 *)((const char *)args.pages + args.pages_nb * args.sequence[t]);
    i32 position = args.position[t];
    float q[N], out[N];
#pragma unroll
    for (int j = 0; j < N; j++) {
        u32 i = lane() + 32 * j;
        q[j] = i < d ? q_row[i] : 0.0f;
        out[j] = 0;
    }
    float none = float_of(0xff800000u), m = none, sum = 0;
    i32 first = args.window > 0 ? max_i(0, position - args.window + 1) : 0;
    for (i32 p = first + (i32)group(); p <= position; p += 4) {
        i64 cell = ((i64)pages[p >> args.page_bits] << args.page_bits) + (p & ((1 << args.page_bits) - 1));
        const char *k_row = k_head + args.k_nb[1] * cell, *v_row = v_head + args.v_nb[1] * cell;
        float s = 0;
#pragma unroll
        for (int j = 0; j < N; j++) {
            // Beyond the head q is zero: the first element, which counts anyway, is as good as any there.
            u32 i = lane() + 32 * j;
            s = fused(q[j], element(k_row, i < d ? i : 0, args.k_type), s);
        }
        s = group_sum(s) * args.scale;
        if (args.cap > 0) s = args.cap * tanh_of(divide(s, args.cap));
        if (s > m) {
            float correction = exp_of(m - s);
            sum *= correction;
#pragma unroll
            for (int j = 0; j < N; j++) out[j] *= correction;
            m = s;
        }
        float weight = exp_of(s - m);
        sum += weight;
#pragma unroll
        for (int j = 0; j < N; j++) {
            // What lies beyond the head is never written out.
            u32 i = lane() + 32 * j;
            out[j] = fused(weight, element(v_row, i < dv ? i : 0, args.v_type), out[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < N; j++) merged[group()][lane() + 32 * j] = out[j];
    if (lane() == 0) {
        most[group()] = m;
        sums[group()] = sum;
    }
    barrier();
    float all = maximum(maximum(most[0], most[1]), maximum(most[2], most[3]));
    if (args.sinks) all = maximum(all, args.sinks[head]);
    float total = args.sinks ? exp_of(args.sinks[head] - all) : 0.0f;
    float factor[4];
    for (u32 g = 0; g < 4; g++) {
        factor[g] = sums[g] > 0 ? exp_of(most[g] - all) : 0.0f;
        total += sums[g] * factor[g];
    }
    float *row = (float *)((char *)args.out + args.out_nb[0] * head + args.out_nb[1] * t);
    for (u32 i = tid(); i < dv; i += 128) {
        float y = 0;
        for (u32 g = 0; g < 4; g++) y = fused(merged[g][i], factor[g], y);
        row[i] = divide(y, total);
    }
}

KERNEL LAUNCH_BOUNDS(128, 1) attention_64(AttentionArgs args) { attend<2>(args); }
KERNEL LAUNCH_BOUNDS(128, 1) attention_128(AttentionArgs args) { attend<4>(args); }
KERNEL LAUNCH_BOUNDS(128, 1) attention_256(AttentionArgs args) { attend<8>(args); }
KERNEL LAUNCH_BOUNDS(128, 1) attention_512(AttentionArgs args) { attend<16>(args); }
