// What multiplies in mmt.h on gfx906, which has no matrix unit: each of 256 work-items has four rows by four columns and makes their sums
// with v_dot4_i32_i8, two accumulators where scales are per 16. 64 words from shared memory feed 128 dot products, which is the pace
// at which a compute unit of four SIMDs takes both. Rows and columns of a work-item lie 16 apart, so that neighbouring lanes read neighbours.
// Included by mmt.h alone.
#pragma once

struct Results {
    // [row][column]
    float y[4][4];

    DEVICE void clear() {
#pragma unroll
        for (u32 i = 0; i < 16; i++) y[i / 4][i % 4] = 0;
    }
    DEVICE void add(const Results &s) {
#pragma unroll
        for (u32 i = 0; i < 16; i++) y[i / 4][i % 4] = plus(y[i / 4][i % 4], s.y[i / 4][i % 4]);
    }
    template <class F> DEVICE void multiply(const TileRoom<F> &room, u32 g) {
        const u32 first_row = tid() / 16, first_column = tid() % 16;
        const u8 *w = room.w + first_row * MMT_STRIDE + 32 * g, *x = room.x + first_column * MMT_STRIDE + 32 * g;
        i32 sums[2][4][4];
#pragma unroll
        for (u32 i = 0; i < 32; i++) sums[i / 16][i / 4 % 4][i % 4] = 0;
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            u32x4 a[4];
#pragma unroll
            for (u32 r = 0; r < 4; r++) a[r] = *(const u32x4 *)(w + 16 * r * MMT_STRIDE + 16 * half);
#pragma unroll
            for (u32 c = 0; c < 4; c++) {
                const u32x4 b = *(const u32x4 *)(x + 16 * c * MMT_STRIDE + 16 * half);
#pragma unroll
                for (u32 r = 0; r < 4; r++) {
                    i32 &sum = sums[F::SPLIT ? half : 0][r][c];
                    sum = dot4((i32)a[r].x, (i32)b.x, sum), sum = dot4((i32)a[r].y, (i32)b.y, sum);
                    sum = dot4((i32)a[r].z, (i32)b.z, sum), sum = dot4((i32)a[r].w, (i32)b.w, sum);
                }
            }
        }
#pragma unroll
        for (u32 r = 0; r < 4; r++) {
            const RowScales scales = row_scales<F>(room, g, first_row + 16 * r);
#pragma unroll
            for (u32 c = 0; c < 4; c++) {
                const u32 column = first_column + 16 * c;
                int2_t of_column = {0, 0};
                if constexpr (MIN_PER_16<F>) of_column = room.sums.values[g * MMT_COLUMNS + column];
                y[r][c] = add_group<F>(y[r][c], scales, sums[0][r][c], sums[1][r][c], room.scale[g][column], of_column);
            }
        }
    }
    DEVICE void store(const TileProduct &p, const i32 *to) const {
#pragma unroll
        for (u32 i = 0; i < 16; i++)
            store_result(p, p.row + tid() / 16 + 16 * (i / 4), to[tid() % 16 + 16 * (i % 4)], y[i / 4][i % 4]);
    }
};
