// Ops over whole rows: RmsNorm, L2Norm, Softmax, ArgMax, and the norm that decoding uses, fused with what stands around it.
//
// Launch: one block a row, 32 threads for rows of up to 256 elements and 256 beyond (a sum's order depends on the row's length
// alone). Rows need 4-byte alignment only; `norm_q8` needs rows of a multiple of 32 elements at 16 bytes. Tolerances: 6 units
// for norms, 12 for softmax, exact for ArgMax.
#define STRATA_BLOCK 1024
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
    // The launch's rule, which is also what makes the order of a sum.
    u32 n = (u32)args.ne[0], threads = n <= 256 ? 32 : 256;
    if (args.which == 2) {
        float greatest = float_of(0xff800000u);
        for (u32 i = tid(); i < n; i += threads) greatest = maximum(greatest, x[i] * args.f0);
        greatest = block_max(greatest, room, threads);
        float sum = 0;
        for (u32 i = tid(); i < n; i += threads) sum += exp_of(x[i] * args.f0 - greatest);
        sum = block_sum(sum, room, threads);
        for (u32 i = tid(); i < n; i += threads) out[i] = divide(exp_of(x[i] * args.f0 - greatest), sum);
        return;
    }
    float sum = 0;
    for (u32 i = tid(); i < n; i += threads) sum = fused(x[i], x[i], sum);
    sum = block_sum(sum, room, threads);
    float root = args.which == 0 ? square_root(divide(sum, (float)n) + args.f0) : square_root(sum + args.f0);
    float factor = divide(1.0f, root);
    for (u32 i = tid(); i < n; i += threads) {
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

// In the order of the numbers, both zeros alike, and every NaN above all of them.
DEVICE u32 rank_of(float x) {
    u32 bits = bits_of(x + 0.0f);
    return x != x ? 0xffffffffu : bits >> 31 ? ~bits : bits | 0x80000000u;
}

// The greatest rank of all lanes and its lowest place, in every lane.
DEVICE void best_of_group(u32 &best, i32 &place) {
    for (u32 mask = 16; mask > 0; mask /= 2) {
        u32 rank = (u32)shfl_xor_i((i32)best, mask);
        i32 other = shfl_xor_i(place, mask);
        if (rank > best || (rank == best && other < place)) {
            best = rank;
            place = other;
        }
    }
}

constexpr i32 IN_FLIGHT = 16;

// 1024 threads a row, sixteen values in flight each. Equal values: the lowest index.
KERNEL LAUNCH_BOUNDS(1024, 1) arg_max(ArgMaxArgs args) {
    grid_release();
    grid_wait();
    SHARED u32 ranks[32];
    SHARED i32 places[32];
    const float *x = args.x + args.x_stride * bid_x();
    u32 best = 0;
    i32 place = 0x7fffffff;
    for (i32 start = (i32)tid(); start < args.n; start += IN_FLIGHT * 1024) {
        float value[IN_FLIGHT];
#pragma unroll
        for (i32 j = 0; j < IN_FLIGHT; j++) {
            i32 i = start + j * 1024;
            value[j] = x[i < args.n ? i : start];
        }
#pragma unroll
        for (i32 j = 0; j < IN_FLIGHT; j++) {
            i32 i = start + j * 1024;
            u32 rank = rank_of(value[j]);
            if (i < args.n && rank > best) {
                best = rank;
                place = i;
            }
        }
    }
    best_of_group(best, place);
    if (lane() == 0) {
        ranks[group()] = best;
        places[group()] = place;
    }
    barrier();
    if (group() != 0) return;
    best = lane() < 1024 / LANES ? ranks[lane()] : 0;
    place = lane() < 1024 / LANES ? places[lane()] : 0x7fffffff;
    best_of_group(best, place);
    if (lane() == 0) args.out[bid_x() * args.out_step] = place;
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
    i64 x_stride;
    i64 add_stride;
    i64 sum_stride;
    i64 out_stride;
    i32 n;
    float eps;
};

// Sum over the block in two rounds of lane exchanges; `room` has 32 floats and is used once.
template <int THREADS> DEVICE float sum_once(float x, float *room) {
    x = group_sum(x);
    if (lane() == 0) room[group()] = x;
    barrier();
    return group_sum(lane() < THREADS / LANES ? room[lane()] : 0.0f);
}

// One row a block: STEPS times four elements a thread stay in registers between their sum and their use.
template <int THREADS, int STEPS> DEVICE void norm_rounded(const NormQ8Args &args) {
    SHARED float room[32];
    grid_release();
    u32 row = bid_x(), n = (u32)args.n;
    const float *x = args.x + args.x_stride * row;
    float4_t v[STEPS], w[STEPS];
    // Factors are weights: they may be read before the kernels in front are done.
#pragma unroll
    for (u32 j = 0; j < STEPS; j++) {
        u32 i = (j * THREADS + tid()) * 4;
        w[j] = args.w && i < n ? *(const float4_t *)(args.w + i) : float4_t{1, 1, 1, 1};
    }
    grid_wait();
    float sum = 0;
#pragma unroll
    for (u32 j = 0; j < STEPS; j++) {
        u32 i = (j * THREADS + tid()) * 4;
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
    sum = sum_once<THREADS>(sum, room);
    float factor = divide(1.0f, square_root(divide(sum, (float)n) + args.eps));
#pragma unroll
    for (u32 j = 0; j < STEPS; j++) {
        // Whole groups of lanes go on together: n is a multiple of 32, so eight lanes are all in or all out.
        u32 i = (j * THREADS + tid()) * 4;
        if (j * THREADS * 4 >= n) break;
        float4_t y = {v[j].x * factor * w[j].x, v[j].y * factor * w[j].y, v[j].z * factor * w[j].z, v[j].w * factor * w[j].w};
        if (i < n && args.out) *(float4_t *)(args.out + args.out_stride * row + i) = y;
        if (!args.q) continue;
        float2_t scale;
        u32 packed = round_to_bytes(y, scale);
        if (i < n) {
            *(u32 *)(args.q + (i64)n * row + i) = packed;
            if (i % 32 == 0) args.ds[((i64)n * row + i) / 32] = scale;
        }
    }
}

KERNEL LAUNCH_BOUNDS(256, 1) norm_q8_1024(NormQ8Args args) { norm_rounded<256, 1>(args); }
KERNEL LAUNCH_BOUNDS(512, 1) norm_q8_2048(NormQ8Args args) { norm_rounded<512, 1>(args); }
KERNEL LAUNCH_BOUNDS(1024, 1) norm_q8_8192(NormQ8Args args) { norm_rounded<1024, 2>(args); }
