// Products with weights of plain types (routers, float models): y = W x in float, the same bits for any number of columns.
//
// Computes: as MatMul of the ABI, in both modes. Launch: 128 work-items; `_c1` and `_c8` grid (Σ_p ceil(m[p] / 4), ceil(t / 1 or 8)),
// `_tile` grid (Σ_p ceil(m[p] / 16), ceil(t / 8)): 32 lanes have one row, or four, and all columns of the block.
// Order: element k is lane k / 4 % 32's; a lane adds its elements in rising order by fused multiply-add, lanes are added by halves.
// Any width and stride; 16 bytes at a time where rows are aligned so. Tolerance: the kit's float class.
// Why not mmx: that decodes blocks by four lanes a chunk, which for plain types means lines that no two lanes share: 26 us for a
// router of 128 x 2048 on an H200, where this takes 3.
#define STRATA_BLOCK 128
#include "matmul.h"

struct WeightF32 {
    static constexpr u32 SIZE = 4;
    DEVICE static float at(const u8 *p, u32 i) { return ((const float *)p)[i]; }
    DEVICE static float4_t four(const u8 *p, u32 i) { return *(const float4_t *)(p + 4 * (u64)i); }
};
struct WeightF16 {
    static constexpr u32 SIZE = 2;
    DEVICE static float at(const u8 *p, u32 i) { return half_to_float(((const u16 *)p)[i]); }
    DEVICE static float4_t four(const u8 *p, u32 i) {
        int2_t v = *(const int2_t *)(p + 2 * (u64)i);
        return {half_to_float((u16)v.x), half_to_float((u16)((u32)v.x >> 16)), half_to_float((u16)v.y), half_to_float((u16)((u32)v.y >> 16))};
    }
};
struct WeightBF16 {
    static constexpr u32 SIZE = 2;
    DEVICE static float at(const u8 *p, u32 i) { return bf16_to_float(((const u16 *)p)[i]); }
    DEVICE static float4_t four(const u8 *p, u32 i) {
        int2_t v = *(const int2_t *)(p + 2 * (u64)i);
        return {bf16_to_float((u16)v.x), bf16_to_float((u16)((u32)v.x >> 16)), bf16_to_float((u16)v.y), bf16_to_float((u16)((u32)v.y >> 16))};
    }
};

template <class W, bool ALIGNED> DEVICE float4_t weights4(const u8 *row, u32 i, u32 k) {
    if (ALIGNED) return i < k ? W::four(row, i) : float4_t{0, 0, 0, 0};
    float v[4];
#pragma unroll
    for (u32 e = 0; e < 4; e++) v[e] = i + e < k ? W::at(row, i + e) : 0.0f;
    return {v[0], v[1], v[2], v[3]};
}
template <bool ALIGNED> DEVICE float4_t floats4(const float *row, u32 i, u32 k) {
    if (ALIGNED) return i < k ? *(const float4_t *)(row + i) : float4_t{0, 0, 0, 0};
    float v[4];
#pragma unroll
    for (u32 e = 0; e < 4; e++) v[e] = i + e < k ? row[i + e] : 0.0f;
    return {v[0], v[1], v[2], v[3]};
}

// R rows of weights by C columns of activations.
template <class W, int R, int C, bool ALIGNED>
DEVICE void sums(float (*sum)[C], const u8 *const *w, const float *const *x, u32 k) {
    // Tiles have enough loads under way in one step, and on AMD no registers for more.
#if defined(STRATA_AMD)
    constexpr int STEPS = R * C >= 8 ? 1 : 4;
#else
    constexpr int STEPS = 4;
#endif
#pragma unroll STEPS
    for (u32 i = 4 * lane(); i < k + 4 * lane(); i += 4 * LANES) {
        float4_t a[R];
#pragma unroll
        for (int r = 0; r < R; r++) a[r] = weights4<W, ALIGNED>(w[r], i, k);
#pragma unroll
        for (int c = 0; c < C; c++) {
            float4_t b = floats4<ALIGNED>(x[c], i, k);
#pragma unroll
            for (int r = 0; r < R; r++) {
                float s = sum[r][c];
                s = fused(a[r].x, b.x, s), s = fused(a[r].y, b.y, s);
                s = fused(a[r].z, b.z, s), s = fused(a[r].w, b.w, s);
                sum[r][c] = s;
            }
        }
    }
}

template <class W, int R, int C> DEVICE void mmf(const MatMulArgs &a) {
    grid_release();
    u32 part = 0, tile = bid_x();
    for (u32 p = 0; p + 1 < (u32)a.n_parts; p++) {
        u32 tiles = ceil_div((u32)a.m[p], 4 * R);
        if (part == p && tile >= tiles) tile -= tiles, part = p + 1;
    }
    const u8 *weights = part == 0 ? a.w[0] : part == 1 ? a.w[1] : a.w[2];
    float *out = part == 0 ? a.out[0] : part == 1 ? a.out[1] : a.out[2];
    const float *bias = part == 0 ? a.bias[0] : part == 1 ? a.bias[1] : a.bias[2];
    const u32 m = (u32)(part == 0 ? a.m[0] : part == 1 ? a.m[1] : a.m[2]);
    const i64 out_stride = part == 0 ? a.out_stride[0] : part == 1 ? a.out_stride[1] : a.out_stride[2];
    const u32 row = (tile * 4 + group()) * R, first = bid_y() * C, k = (u32)a.k;
    const u8 *w[R];
    const float *x[C];
#pragma unroll
    for (int r = 0; r < R; r++) w[r] = weights + a.w_stride * (i64)min_i((i32)row + r, (i32)m - 1);
#pragma unroll
    for (int c = 0; c < C; c++) x[c] = a.x + (i64)a.x_stride * min_i((i32)first + c, a.t - 1);
    float sum[R][C];
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) sum[r][c] = 0;
    const bool aligned = k % 4 == 0 && (u64)weights % (4 * W::SIZE) == 0 && a.w_stride % (i64)(4 * W::SIZE) == 0 && (u64)a.x % 16 == 0 && a.x_stride % 4 == 0;
    grid_wait();
    if (aligned) sums<W, R, C, true>(sum, w, x, k);
    else sums<W, R, C, false>(sum, w, x, k);
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) {
            float y = group_sum(sum[r][c]);
            if (lane() != (u32)(r * C + c) % LANES || row + r >= m || first + c >= (u32)a.t) continue;
            if (bias) y = plus(y, bias[row + r]);
            i64 at = (i64)(first + c) * out_stride + row + r;
            if (a.residual) y = plus(y, a.residual[at]);
            out[at] = y;
        }
}

#define MMF(name, W) \
    KERNEL LAUNCH_BOUNDS(128, 1) mmf_##name##_c1(MatMulArgs args) { mmf<W, 1, 1>(args); } \
    KERNEL LAUNCH_BOUNDS(128, 1) mmf_##name##_c8(MatMulArgs args) { mmf<W, 1, 8>(args); } \
    KERNEL LAUNCH_BOUNDS(128, 1) mmf_##name##_tile(MatMulArgs args) { mmf<W, 4, 8>(args); }
MMF(f32, WeightF32) MMF(f16, WeightF16) MMF(bf16, WeightBF16)
