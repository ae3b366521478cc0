// Rounding of activations to records of halves: alone, behind a gated unit, behind a norm. NVIDIA (from sm_80); empty for AMD.
//
// Computes: records (halves.h) of rows of floats, [chunk of 256][row]. `halves_round` of x, `halves_gated` of act(gate) · up,
// `norm_halves_*` of the row (+ the residual sum before it) normed by its root mean square and weighted, like norm_q8 of norm.cu.
// Launch: a warp a chunk. halves_round, halves_gated: grid (ceil(k / 2048), rows), 256 work-items. norm_halves_N: grid (rows), N / 8
// work-items, rows of at most N numbers. Assumes k a multiple of 256, rows aligned to 16 bytes. Rounding: store_record, whoever calls it.
#include "halves.h"

#if !defined(STRATA_AMD)

struct HalvesArgs {
    const float *gate;
    const float *up;
    // The products as floats, or null.
    float *out;
    u8 *records;
    i32 k;
    i32 t;
    // Elements from one row to the next.
    i32 gate_stride;
    i32 up_stride;
    i32 out_stride;
    i32 act;
    float f0, f1;
    // By groups of eight rows.
    i32 grouped;
};

DEVICE float4_t load4(const float *from) { return *(const float4_t *)from; }
DEVICE float4_t gated4(const HalvesArgs &a, float4_t g, float4_t u) {
    return {gated(a.act, g.x, u.x, a.f0, a.f1), gated(a.act, g.y, u.y, a.f0, a.f1), gated(a.act, g.z, u.z, a.f0, a.f1),
            gated(a.act, g.w, u.w, a.f0, a.f1)};
}

KERNEL LAUNCH_BOUNDS(256, 1) halves_round(HalvesArgs a) {
    grid_release();
    grid_wait();
    const u32 chunk = bid_x() * 8 + group(), row = bid_y(), at = chunk * 256 + run_of(lane());
    if (chunk * 256 >= (u32)a.k) return;
    const float *x = a.gate + (i64)row * a.gate_stride + at;
    store_record(load4(x), load4(x + 32), {a.records, (u32)a.t, a.grouped}, chunk, row);
}

KERNEL LAUNCH_BOUNDS(256, 1) halves_gated(HalvesArgs a) {
    grid_release();
    grid_wait();
    const u32 chunk = bid_x() * 8 + group(), row = bid_y(), at = chunk * 256 + run_of(lane());
    if (chunk * 256 >= (u32)a.k) return;
    const float *gate = a.gate + (i64)row * a.gate_stride + at, *up = a.up + (i64)row * a.up_stride + at;
    const float4_t x = gated4(a, load4(gate), load4(up)), y = gated4(a, load4(gate + 32), load4(up + 32));
    if (a.out) {
        float *out = a.out + (i64)row * a.out_stride + at;
        *(float4_t *)out = x, *(float4_t *)(out + 32) = y;
    }
    store_record(x, y, {a.records, (u32)a.t, a.grouped}, chunk, row);
}

struct NormHalvesArgs {
    const float *x;
    // Added to x first (the residual stream), or null; the sum goes to `sum_out`.
    const float *add;
    float *sum_out;
    const float *w;
    // The normed row, or null when only its rounded form is needed.
    float *out;
    u8 *records;
    i64 x_stride;
    i64 add_stride;
    i64 sum_stride;
    i64 out_stride;
    i32 n;
    i32 t;
    float eps;
    i32 grouped;
};

DEVICE float squares(float4_t v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }
DEVICE float4_t added(float4_t a, float4_t b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
DEVICE float4_t normed(float4_t v, float factor, float4_t w) { return {v.x * factor * w.x, v.y * factor * w.y, v.z * factor * w.z, v.w * factor * w.w}; }

template <int THREADS> DEVICE void norm_halves(const NormHalvesArgs &a) {
    SHARED float room[32];
    grid_release();
    const u32 row = bid_x(), at = group() * 256 + run_of(lane()), n = (u32)a.n;
    const bool mine = at < n;
    const float *x = a.x + a.x_stride * row + at;
    const float4_t zero = {0, 0, 0, 0}, one = {1, 1, 1, 1};
    // Factors are weights: they may be read before the kernels in front are done.
    const float4_t w[2] = {mine && a.w ? load4(a.w + at) : one, mine && a.w ? load4(a.w + at + 32) : one};
    grid_wait();
    float4_t v[2] = {zero, zero};
    if (mine) {
        v[0] = load4(x), v[1] = load4(x + 32);
        if (a.add) {
            const float *add = a.add + a.add_stride * row + at;
            float *sum = a.sum_out + a.sum_stride * row + at;
            v[0] = added(v[0], load4(add)), v[1] = added(v[1], load4(add + 32));
            *(float4_t *)sum = v[0], *(float4_t *)(sum + 32) = v[1];
        }
    }
    float sum = group_sum(squares(v[0]) + squares(v[1]));
    if (lane() == 0) room[group()] = sum;
    barrier();
    sum = group_sum(lane() < THREADS / LANES ? room[lane()] : 0.0f);
    const float factor = divide(1.0f, square_root(divide(sum, (float)n) + a.eps));
    if (!mine) return;
    v[0] = normed(v[0], factor, w[0]), v[1] = normed(v[1], factor, w[1]);
    if (a.out) {
        float *out = a.out + a.out_stride * row + at;
        *(float4_t *)out = v[0], *(float4_t *)(out + 32) = v[1];
    }
    store_record(v[0], v[1], {a.records, (u32)a.t, a.grouped}, group(), row);
}

KERNEL LAUNCH_BOUNDS(128, 1) norm_halves_1024(NormHalvesArgs args) { norm_halves<128>(args); }
KERNEL LAUNCH_BOUNDS(256, 1) norm_halves_2048(NormHalvesArgs args) { norm_halves<256>(args); }
KERNEL LAUNCH_BOUNDS(512, 1) norm_halves_4096(NormHalvesArgs args) { norm_halves<512>(args); }
KERNEL LAUNCH_BOUNDS(1024, 1) norm_halves_8192(NormHalvesArgs args) { norm_halves<1024>(args); }

#endif
