// Rounds activations to signed bytes with a scale per 32, for the products over bytes.
//
// Computes: q [t][k], and per 32 elements (d, d · Σ q), d = greatest magnitude / 127, ties to even; `gated_q8` the same of act(gate) · up.
// Launch: grid (ceil(k / 1024), t), 256 work-items, four elements each. k is a multiple of 32; rows need 4-byte alignment only.
// Must match: round_to_bytes of matmul.h on the same numbers, whatever kernel made them. Exact.
#define STRATA_BLOCK 256
#include "matmul.h"

struct QuantiseArgs {
    const float *x;
    i8 *q;
    float2_t *ds;
    i32 k;
    i32 t;
    // Elements from one row of x to the next.
    i32 x_stride;
    i32 x_is_f16;
};

DEVICE void store_rounded(float4_t v, u32 i, u32 row, u32 k, i8 *q, float2_t *ds) {
    float2_t scale;
    u32 packed = round_to_bytes(v, scale);
    if (i >= k) return;
    *(u32 *)(q + (i64)row * k + i) = packed;
    if (i % 32 == 0) ds[((i64)row * k + i) / 32] = scale;
}

KERNEL LAUNCH_BOUNDS(256, 1) quantise_q8(QuantiseArgs a) {
    grid_release();
    grid_wait();
    u32 i = (bid_x() * 256 + tid()) * 4, row = bid_y(), k = (u32)a.k;
    float v[4] = {0, 0, 0, 0};
    if (i < k) {
        i64 at = (i64)row * a.x_stride + i;
        for (u32 e = 0; e < 4; e++) v[e] = a.x_is_f16 ? half_to_float(((const u16 *)a.x)[at + e]) : a.x[at + e];
    }
    store_rounded({v[0], v[1], v[2], v[3]}, i, row, k, a.q, a.ds);
}

struct GatedArgs {
    const float *gate;
    const float *up;
    // The products as floats, or null.
    float *out;
    i8 *q;
    float2_t *ds;
    i32 k;
    i32 t;
    i32 gate_stride;
    i32 up_stride;
    i32 out_stride;
    i32 act;
    float f0, f1;
};

KERNEL LAUNCH_BOUNDS(256, 1) gated_q8(GatedArgs a) {
    grid_release();
    grid_wait();
    u32 i = (bid_x() * 256 + tid()) * 4, row = bid_y(), k = (u32)a.k;
    float v[4] = {0, 0, 0, 0};
    if (i < k) {
        const float *gate = a.gate + (i64)row * a.gate_stride + i, *up = a.up + (i64)row * a.up_stride + i;
        for (u32 e = 0; e < 4; e++) v[e] = gated(a.act, gate[e], up[e], a.f0, a.f1);
        if (a.out)
            for (u32 e = 0; e < 4; e++) a.out[(i64)row * a.out_stride + i + e] = v[e];
    }
    store_rounded({v[0], v[1], v[2], v[3]}, i, row, k, a.q, a.ds);
}
