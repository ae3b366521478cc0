// Ops over whole rows: RmsNorm, L2Norm, Softmax, ArgMax, and the norm that decoding uses, fused with what stands around it.
//
// Launch: one block a row, 32 threads for rows of up to 256 elements and 256 beyond (a sum's order depends on the row's length
// alone). Rows need 4-byte alignment only; `norm_q8` needs rows of a multiple of 32 elements at 16 bytes. Tolerances: 6 units
// for norms, 12 for softmax, exact for ArgMax.
#include "matmul.h"

struct RowArgs {
    const float *x;
    float *out;
    // Factors of RmsNorm, or null.
    const float *w;
    i64 x_nb[3];
    i64 out_nb[3];
    i32 ne[4];
    // 0 RmsNorm, 1 L2Norm, 2 Softmax.
    i32 which;
    float f0;
};

KERNEL LAUNCH_BOUNDS(256, 1) rows(RowArgs args) {
    grid_release();
    grid_wait();
    SHARED float room[33];
    u32 row = bid_x();
    u32 i1 = row % (u32)args.ne[1], rest = row / (u32)args.ne[1];
    u32 i2 = rest % (u32)args.ne[2], i3 = rest / (u32)args.ne[2];
    const float *x = (const float *)((const char *)args.x + args.x_nb[0] * i1 + args.x_nb[1] * i2 + args.x_nb[2] * i3);
    float *out = (float *)((char *)args.out + args.out_nb[0] * i1 + args.out_nb[1] * i2 + args.out_nb[2] * i3);
    u32 n = (u32)args.ne[0];
    if (args.which == 2) {
        float greatest = float_of(0xff800000u);
        for (u32 i = tid(); i < n; i += block_size()) greatest = maximum(greatest, x[i] * args.f0);
        greatest = block_max(greatest, room);
        float sum = 0;
        for (u32 i = tid(); i < n; i += block_size()) sum += exp_of(x[i] * args.f0 - greatest);
        sum = block_sum(sum, room);
        for (u32 i = tid(); i < n; i += block_size()) out[i] = divide(exp_of(x[i] * args.f0 - greatest), sum);
        return;
    }
    float sum = 0;
    for (u32 i = tid(); i < n; i += block_size()) sum = fused(x[i], x[i], sum);
    sum = block_sum(sum, room);
    float root = args.which == 0 ? square_root(divide(sum, (float)n) + args.f0) : square_root(sum + args.f0);
    float factor = divide(1.0f, root);
    for (u32 i = tid(); i < n; i += block_size()) {
        float y = x[i] * factor;
        out[i] = args.w ? y * args.w[i] : y;
    }
}

struct ArgMaxArgs {
    const float *x;
    i32 *out;
    i64 x_stride;
    i32 n;
    i32 out_step;
};

// 1024 threads a row. Equal values: the lowest index.
KERNEL LAUNCH_BOUNDS(1024, 1) arg_max(ArgMaxArgs args) {
    grid_release();
    grid_wait();
    SHARED float values[32];
    SHARED i32 places[32];
    const float *x = args.x + args.x_stride * bid_x();
    float best = float_of(0xff800000u);
    i32 place = 0x7fffffff;
    for (i32 i = (i32)tid(); i < args.n; i += (i32)block_size()) {
        float value = x[i];
        if (value > best || place == 0x7fffffff) {
            best = value;
            place = i;
        }
    }
    for (u32 mask = 16; mask > 0; mask /= 2) {
        float value = shfl_xor(best, mask);
        i32 other = shfl_xor_i(place, mask);
        if (other != 0x7fffffff && (place == 0x7fffffff || value > best || (value == best && other < place))) {
            best = value;
            place = other;
        }
    }
    if (lane() == 0) {
        values[group()] = best;
        places[group()] = place;
    }
    barrier();
    if (tid() != 0) return;
    for (u32 i = 1; i < block_size() / LANES; i++) {
        i32 other = places[i];
        if (other != 0x7fffffff && (place == 0x7fffffff || values[i] > best || (values[i] == best && other < place))) {
            best = values[i];
            place = other;
        }
    }
    args.out[bid_x() * args.out_step] = place;
}

struct NormQ8Args {
    const float *x;
    // Added to x first (the residual stream), or null; the sum goes to `sum_out`.
    const float *add;
    float *sum_out;
    const float *w;
    // The normed row, or null when only its rounded form is needed.
    float *out;
    // The rounded form, or null: signed bytes [n], then (scale, scale · sum) per 32.
    i8 *q;
    float2_t *ds;
    // The same as halves, or null.
    u16 *h;
    i64 x_stride;
    i64 add_stride;
    i64 sum_stride;
    i64 out_stride;
    i32 n;
    float eps;
};

// One row a block of 256 threads, rows of up to 8192 elements: the row stays in registers between its sum and its use.
KERNEL LAUNCH_BOUNDS(256, 1) norm_q8(NormQ8Args args) {
    grid_release();
    grid_wait();
    SHARED float room[33];
    u32 row = bid_x(), n = (u32)args.n;
    const float *x = args.x + args.x_stride * row;
    float4_t v[8];
    float sum = 0;
#pragma unroll
    for (u32 j = 0; j < 8; j++) {
        u32 i = (j * 256 + tid()) * 4;
        v[j] = {0, 0, 0, 0};
        if (i < n) {
            v[j] = *(const float4_t *)(x + i);
            if (args.add) {
                float4_t b = *(const float4_t *)(args.add + args.add_stride * row + i);
                v[j] = {v[j].x + b.x, v[j].y + b.y, v[j].z + b.z, v[j].w + b.w};
                *(float4_t *)(args.sum_out + args.sum_stride * row + i) = v[j];
            }
        }
        sum += v[j].x * v[j].x + v[j].y * v[j].y + v[j].z * v[j].z + v[j].w * v[j].w;
    }
    sum = block_sum(sum, room);
    float factor = divide(1.0f, square_root(divide(sum, (float)n) + args.eps));
#pragma unroll
    for (u32 j = 0; j < 8; j++) {
        // Whole groups of lanes go on together: n is a multiple of 32, so eight lanes are all in or all out.
        u32 i = (j * 256 + tid()) * 4;
        if (j * 1024 >= n) break;
        float4_t w = {1, 1, 1, 1};
        if (args.w && i < n) w = *(const float4_t *)(args.w + i);
        float4_t y = {v[j].x * factor * w.x, v[j].y * factor * w.y, v[j].z * factor * w.z, v[j].w * factor * w.w};
        if (i < n && args.out) *(float4_t *)(args.out + args.out_stride * row + i) = y;
        if (i < n && args.h) {
            u32 low = (u32)float_to_half(y.x) | (u32)float_to_half(y.y) << 16;
            u32 high = (u32)float_to_half(y.z) | (u32)float_to_half(y.w) << 16;
            *(int2_t *)(args.h + (i64)n * row + i) = {(i32)low, (i32)high};
        }
        if (args.q) {
            float2_t scale;
            u32 packed = round_to_bytes(y, scale);
            if (i < n) {
                *(u32 *)(args.q + (i64)n * row + i) = packed;
                if (i % 32 == 0) args.ds[((i64)n * row + i) / 32] = scale;
            }
        }
    }
}
