// What multiplies in mmt.h on gfx11: v_wmma_i32_16x16x16_iu8 of a wave of 32. Each of eight waves has 16 rows by 32 columns. A group of 32 is
// two products a tile; where scales are per 16 their results are kept apart. Layout of the instruction: lane l holds row l % 16 of A and
// column l % 16 of B, sixteen bytes in four registers, the same in both halves of the wave; register r of the result is row 2 r + l / 16 of column
// l % 16. Included by mmt.h alone.
#pragma once

#if defined(STRATA_HOST)
struct Fragment {
    i32 words[4];
};
struct Square {
    i32 words[8];
    DEVICE i32 &operator[](u32 i) { return words[i]; }
};
DEVICE Fragment fragment(const u8 *p) { return *(const Fragment *)p; }
DEVICE Square squares(const Fragment &a, const Fragment &b, Square c) {
    strata_host_wmma_i8(a.words, b.words, c.words, 3);
    return c;
}
#else
typedef i32 Fragment __attribute__((ext_vector_type(4)));
typedef i32 Square __attribute__((ext_vector_type(8)));
DEVICE Fragment fragment(const u8 *p) { return *(const Fragment *)p; }
DEVICE Square squares(const Fragment &a, const Fragment &b, Square c) {
    return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, a, true, b, c, false);
}
#endif

struct Results {
    // [half of the columns][register]
    float y[2][8];

    DEVICE void clear() {
#pragma unroll
        for (u32 i = 0; i < 16; i++) y[i / 8][i % 8] = 0;
    }
    DEVICE void add(const Results &s) {
#pragma unroll
        for (u32 i = 0; i < 16; i++) y[i / 8][i % 8] = plus(y[i / 8][i % 8], s.y[i / 8][i % 8]);
    }
    DEVICE static u32 first_row() { return 16 * (group() / 2); }
    DEVICE static u32 column(u32 n) { return 32 * (group() % 2) + 16 * n + lane() % 16; }
    template <class F> DEVICE void multiply(const TileRoom<F> &room, u32 g) {
        const u8 *w = room.w + (first_row() + lane() % 16) * MMT_STRIDE + 32 * g;
        const Fragment a0 = fragment(w), a1 = fragment(w + 16);
#pragma unroll
        for (u32 n = 0; n < 2; n++) {
            const u8 *x = room.x + column(n) * MMT_STRIDE + 32 * g;
            Square first = squares(a0, fragment(x), Square{0, 0, 0, 0, 0, 0, 0, 0}), second = {0, 0, 0, 0, 0, 0, 0, 0};
            if constexpr (F::SPLIT) second = squares(a1, fragment(x + 16), second);
            else first = squares(a1, fragment(x + 16), first);
            const float2_t scale = room.scale[g][column(n)];
            int2_t sums = {0, 0};
            if constexpr (MIN_PER_16<F>) sums = room.sums.values[g * MMT_COLUMNS + column(n)];
#pragma unroll
            for (u32 r = 0; r < 8; r++) {
                const RowScales scales = row_scales<F>(room, g, first_row() + 2 * r + lane() / 16);
                y[n][r] = add_group<F>(y[n][r], scales, first[r], second[r], scale, sums);
            }
        }
    }
    DEVICE void store(const TileProduct &p, const i32 *to) const {
#pragma unroll
        for (u32 i = 0; i < 16; i++)
            store_result(p, p.row + first_row() + 2 * (i % 8) + lane() / 16, to[column(i / 8)], y[i / 8][i % 8]);
    }
};
