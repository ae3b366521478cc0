// AMD's attention over an f16 cache by v_dot2_f32_f16, for programs that are not precise: eight lanes a key, sixteen keys a block at once.
//
// Computes: Attention of the ABI in default mode; q is rounded to halves, which the ABI allows there. Arguments are those of attention.cu
// with keys and values in F16, d = dv = the kernel's head size (64, 128 or 256).
// Launch: grid (query heads, tokens), 128 threads. Assumes rows of keys and values aligned to 16 bytes, q and out to 4.
// Order: lanes 8 w to 8 w + 7 take the visible positions first + w, first + w + 16, ... with a maximum of their own; the sixteen parts are
// merged in rising order. So a token's bits depend on its own position alone. Within the kit's half class.
// Why not attention.cu: that reads two bytes a lane and adds over 32 lanes for each key; this reads sixteen and adds over eight. Untimed.
#include "functions.h"

#if defined(STRATA_AMD)
#include "attention_args.h"

typedef _Float16 Halves __attribute__((ext_vector_type(2)));
constexpr u32 PARTS = 16, LANES_A_KEY = 8;

DEVICE u32 pack(float low, float high) { return (u32)float_to_half(low) | (u32)float_to_half(high) << 16; }
DEVICE float dot2(u32 a, u32 b, float sum) {
    return __builtin_amdgcn_fdot2(__builtin_bit_cast(Halves, a), __builtin_bit_cast(Halves, b), sum, false);
}
DEVICE float low_of(u32 x) { return half_to_float((u16)x); }
DEVICE float high_of(u32 x) { return half_to_float((u16)(x >> 16)); }
// Sum over the eight lanes of a key, the same in all of them.
DEVICE float key_sum(float x) {
    for (u32 mask = 4; mask > 0; mask /= 2) x += shfl_xor(x, mask);
    return x;
}

// Element 8 (8 j + lane) + e of the head is word e / 2 of piece j.
template <int D> DEVICE void attend(const AttentionArgs &args) {
    constexpr int PIECES = D / 64;
    SHARED float merged[PARTS][D];
    SHARED float most[PARTS];
    SHARED float sums[PARTS];
    const u32 head = bid_x(), t = bid_y(), kv = head / (u32)args.share, part = tid() / LANES_A_KEY, mine = tid() % LANES_A_KEY;
    const float *q_row = (const float *)((const char *)args.q + args.q_nb[0] * head + args.q_nb[1] * t);
    const char *k_head = (const char *)args.k + args.k_nb[0] * kv + 16 * mine;
    const char *v_head = (const char *)args.v + args.v_nb[0] * kv + 16 * mine;
    const i32 *pages = (const i32 *)((const char *)args.pages + args.pages_nb * args.sequence[t]);
    const i32 position = args.position[t], first = args.window > 0 ? max_i(0, position - args.window + 1) : 0;
    u32 q[PIECES][4];
    float out[PIECES][8];
#pragma unroll
    for (int j = 0; j < PIECES; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float *from = q_row + 8 * (8 * j + mine) + 2 * e;
            q[j][e] = pack(from[0], from[1]);
            out[j][2 * e] = 0, out[j][2 * e + 1] = 0;
        }
    float m = float_of(0xff800000u), sum = 0;
    // All lanes go round as often, so that they meet where they exchange; a position that is not there counts nothing.
    for (i32 base = first; base <= position; base += (i32)PARTS) {
        const i32 p = base + (i32)part;
        const bool there = p <= position;
        const i32 at = there ? p : position;
        const i64 cell = ((i64)pages[at >> args.page_bits] << args.page_bits) + (at & ((1 << args.page_bits) - 1));
        const char *k_row = k_head + args.k_nb[1] * cell, *v_row = v_head + args.v_nb[1] * cell;
        float s = 0;
        u32x4 values[PIECES];
#pragma unroll
        for (int j = 0; j < PIECES; j++) {
            const u32x4 key = *(const u32x4 *)(k_row + 128 * j);
            values[j] = *(const u32x4 *)(v_row + 128 * j);
            s = dot2(q[j][0], key.x, s), s = dot2(q[j][1], key.y, s);
            s = dot2(q[j][2], key.z, s), s = dot2(q[j][3], key.w, s);
        }
        s = key_sum(s) * args.scale;
        if (args.cap > 0) s = args.cap * tanh_of(divide(s, args.cap));
        if (!there) continue;
        if (s > m) {
            const float correction = exp_of(m - s);
            sum *= correction;
#pragma unroll
            for (int i = 0; i < 8 * PIECES; i++) out[i / 8][i % 8] *= correction;
            m = s;
        }
        const float weight = exp_of(s - m);
        sum += weight;
#pragma unroll
        for (int j = 0; j < PIECES; j++) {
            const u32 words[4] = {values[j].x, values[j].y, values[j].z, values[j].w};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                out[j][2 * e] = fused(weight, low_of(words[e]), out[j][2 * e]);
                out[j][2 * e + 1] = fused(weight, high_of(words[e]), out[j][2 * e + 1]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 8 * PIECES; i++) merged[part][8 * (8 * (i / 8) + mine) + i % 8] = out[i / 8][i % 8];
    if (mine == 0) most[part] = m, sums[part] = sum;
    barrier();
    float all = args.sinks ? args.sinks[head] : float_of(0xff800000u);
    for (u32 g = 0; g < PARTS; g++) all = maximum(all, most[g]);
    float total = args.sinks ? exp_of(args.sinks[head] - all) : 0.0f;
    for (u32 g = 0; g < PARTS; g++) total += sums[g] > 0 ? sums[g] * exp_of(most[g] - all) : 0.0f;
    float *row = (float *)((char *)args.out + args.out_nb[0] * head + args.out_nb[1] * t);
    for (u32 i = tid(); i < (u32)D; i += 128) {
        float y = 0;
        for (u32 g = 0; g < PARTS; g++) y = fused(merged[g][i], sums[g] > 0 ? exp_of(most[g] - all) : 0.0f, y);
        row[i] = divide(y, total);
    }
}

KERNEL LAUNCH_BOUNDS(128, 1) attention_dot_64(AttentionArgs args) { attend<64>(args); }
KERNEL LAUNCH_BOUNDS(128, 1) attention_dot_128(AttentionArgs args) { attend<128>(args); }
KERNEL LAUNCH_BOUNDS(128, 1) attention_dot_256(AttentionArgs args) { attend<256>(args); }
#endif
