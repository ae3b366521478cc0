// Products over halves on NVIDIA's tensor cores: what decode (hmv.h) and long runs (hmm.h) share. Not for AMD.
//
// Activations are rounded to halves, 256 of them a record with a scale that is a power of two, so that their greatest lies in
// [512, 1024) and nothing over- or underflows. Weights become halves in registers: for K-quants the integer scale times the integer
// weight, exactly; the block's float factor is applied to sums of 256. Minima are a product of their own with the records' sums of 32.
// Both forms feed the same mma.m16n8k16 in the same order, so their bits are equal, whatever the number of columns.
#pragma once
#include "matmul.h"

#if !defined(STRATA_AMD)

// A record: 256 halves in the order in which lanes read them, 8 sums of 32 as (high, low) halves, the scale, padding.
//
// Piece q (0 to 7) of lane c (0 to 3) of a quad holds, with i = q / 4, w = q % 4, the elements e to e + 3 and e + 32 to e + 35 for
// e = 128 i + 64 (c / 2) + 16 (c % 2) + 4 w, each four in the order 0 2 1 3. Records of one chunk lie together: [chunk][row].
constexpr u32 RECORD = 576, RECORD_SUMS = 512, RECORD_SCALE = 544;

// For warpgroups (hmw.h) the same numbers lie by groups of eight rows: [chunk][row / 8], and in a group [4 q + i][row][16 bytes] with i = 2
// h + b for the halves 0 2 (b = 0) or 1 3 (b = 1) of run h of the four lanes, then sums and scales by row.
constexpr u32 GROUP = 4480, GROUP_SUMS = 4096, GROUP_SCALES = 4352;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define STRATA_WARPGROUP 1
#endif

DEVICE u32 times2(u32 a, u32 b) {
    u32 out;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}
DEVICE u32 plus2(u32 a, u32 b) {
    u32 out;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
    return out;
}
// The half with these bits in both places.
DEVICE constexpr u32 both(u32 half) { return half | half << 16; }
DEVICE u32 halves_of(float low, float high) {
    u32 out;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

DEVICE void mma_halves(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// ---- formats --------------------------------------------------------------------------------------------------------------

// What a lane needs of a row's block: factors of its four runs (i, h), its two minima, the floats behind the sums.
struct HalfRow {
    u32 scale[2][2];
    u32 mins;
    float d, m;
};

// Byte n (0 to 3) of `bytes` as the half 1024 + byte, twice.
template <int N> DEVICE u32 raised(u32 bytes) { return permute(bytes, 0x64646464u, 0x4040u | N | N << 8); }
constexpr u32 MINUS_1024 = 0xe400e400u;

// Scales and minima of Q4_K and Q5_K. Weights are taken as the subnormal halves that their bits are: q · 2^-24, times scale · 2^10.
DEVICE void half_row_k(const u8 *block, u32 c, u32 high_shift_scale, HalfRow &row) {
    const u32x4 head = *(const u32x4 *)block;
    const u32 shift = 16 * (c >> 1);
    const u32 s = head.y >> shift, t = head.w >> shift;
    const u32 first = s & 0x3f3f, second = (t & 0x0f0f) | (s >> 2 & 0x3030);
    const u32 low = both(0x6400);
    row.scale[0][0] = times2(plus2(raised<0>(first), MINUS_1024), low);
    row.scale[0][1] = times2(plus2(raised<1>(first), MINUS_1024), high_shift_scale);
    row.scale[1][0] = times2(plus2(raised<0>(second), MINUS_1024), low);
    row.scale[1][1] = times2(plus2(raised<1>(second), MINUS_1024), high_shift_scale);
    // Minima 2c and 2c + 1.
    const u32 m = head.z >> 16 * (c & 1), n = head.w >> (16 * (c & 1) + 4);
    const u32 mins = c < 2 ? m & 0x3f3f : (n & 0x0f0f) | (m >> 2 & 0x3030);
    row.mins = plus2(permute(mins, 0x64646464u, 0x4140u), MINUS_1024);
    row.d = times(half_to_float((u16)head.x), 16384.0f), row.m = -half_to_float((u16)(head.x >> 16));
}

// A format: SLOT bytes of shared memory a chunk of a tile's row, so that neighbouring rows lie in other banks; `Raw` is what a lane
// loads of a row for half i of a chunk, `piece` makes piece w of it: two halves of run e in out[0] and out[1], of e + 32 in out[2], out[3].
struct HQ4_K {
    static constexpr u32 BYTES = 144, ALIGN = 16, SLOT = 192;
    static constexpr bool MIN = true;
    struct Raw {
        u32x4 v;
    };
    DEVICE static void row(const u8 *block, u32 c, HalfRow &out) { half_row_k(block, c, both(0x5400), out); }
    DEVICE static Raw raw(const u8 *block, u32 c, u32 i) { return {*(const u32x4 *)(block + 16 + 64 * i + 16 * c)}; }
    DEVICE static void piece(const Raw &raw, u32 w, u32, u32 s0, u32 s1, u32 (&out)[4]) {
        const u32 word = w == 0 ? raw.v.x : w == 1 ? raw.v.y : w == 2 ? raw.v.z : raw.v.w, high = word >> 8;
        out[0] = times2(word & 0x000f000fu, s0), out[1] = times2(high & 0x000f000fu, s0);
        out[2] = times2(word & 0x00f000f0u, s1), out[3] = times2(high & 0x00f000f0u, s1);
    }
};
struct HQ5_K {
    static constexpr u32 BYTES = 176, ALIGN = 16, SLOT = 192;
    static constexpr bool MIN = true;
    struct Raw {
        u32x4 v;
        // Fifth bits of the lane's pairs: bits 0 and 1 of each byte.
        u32x4 high;
    };
    DEVICE static void row(const u8 *block, u32 c, HalfRow &out) { half_row_k(block, c, both(0x6400), out); }
    DEVICE static Raw raw(const u8 *block, u32 c, u32 i) {
        Raw out = {*(const u32x4 *)(block + 48 + 64 * i + 16 * c), *(const u32x4 *)(block + 16 + 16 * (c & 1))};
        const u32 shift = 4 * i + 2 * (c >> 1);
        out.high.x >>= shift, out.high.y >>= shift, out.high.z >>= shift, out.high.w >>= shift;
        return out;
    }
    DEVICE static void piece(const Raw &raw, u32 w, u32, u32 s0, u32 s1, u32 (&out)[4]) {
        const u32 word = w == 0 ? raw.v.x : w == 1 ? raw.v.y : w == 2 ? raw.v.z : raw.v.w;
        const u32 bits = w == 0 ? raw.high.x : w == 1 ? raw.high.y : w == 2 ? raw.high.z : raw.high.w;
        const u32 a = (word & 0x0f0f0f0fu) | (bits << 4 & 0x10101010u), b = (word >> 4 & 0x0f0f0f0fu) | (bits << 3 & 0x10101010u);
        out[0] = times2(a & 0x001f001fu, s0), out[1] = times2(a >> 8 & 0x001f001fu, s0);
        out[2] = times2(b & 0x001f001fu, s1), out[3] = times2(b >> 8 & 0x001f001fu, s1);
    }
};
// Scale times (q - 32), to the nearest half where that exceeds 2048.
struct HQ6_K {
    static constexpr u32 BYTES = 210, ALIGN = 2, SLOT = 240;
    static constexpr bool MIN = false;
    struct Raw {
        u32 low[2][4], high[4];
    };
    DEVICE static void row(const u8 *block, u32 c, HalfRow &out) {
        for (u32 i = 0; i < 2; i++)
            for (u32 h = 0; h < 2; h++) {
                const float s = (float)(i32)(signed char)block[192 + 8 * i + 4 * (c >> 1) + 2 * h + (c & 1)];
                out.scale[i][h] = halves_of(s, s);
            }
        out.mins = 0, out.d = load_half(block + 208), out.m = 0;
    }
    DEVICE static Raw raw(const u8 *block, u32 c, u32 i) {
        Raw out;
        for (u32 h = 0; h < 2; h++) load_words<2, 4>(block + 64 * i + 32 * h + 16 * (c & 1), out.low[h]);
        load_words<2, 4>(block + 128 + 32 * i + 16 * (c & 1), out.high);
        return out;
    }
    DEVICE static void piece(const Raw &raw, u32 w, u32 c, u32 s0, u32 s1, u32 (&out)[4]) {
        const u32 nibble = 4 * (c >> 1);
        for (u32 h = 0; h < 2; h++) {
            const u32 q = (raw.low[h][w] >> nibble & 0x0f0f0f0fu) | (raw.high[w] >> (2 * h + nibble) & 0x03030303u) << 4, s = h ? s1 : s0;
            // 1024 + q, less 1056.
            out[2 * h] = times2(plus2((q & 0x003f003fu) | 0x64006400u, 0xe420e420u), s);
            out[2 * h + 1] = times2(plus2((q >> 8 & 0x003f003fu) | 0x64006400u, 0xe420e420u), s);
        }
    }
};
// The block's factor times q, to the nearest half.
struct HQ8_0 {
    static constexpr u32 BYTES = 272, ALIGN = 2, SLOT = 288;
    static constexpr bool MIN = false;
    struct Raw {
        u32 q[2][4];
    };
    DEVICE static const u8 *block_of(const u8 *chunk, u32 c, u32 i, u32 h) { return chunk + 34 * (4 * i + 2 * (c >> 1) + h); }
    DEVICE static void row(const u8 *chunk, u32 c, HalfRow &out) {
        for (u32 i = 0; i < 2; i++)
            for (u32 h = 0; h < 2; h++) out.scale[i][h] = both(*(const u16 *)block_of(chunk, c, i, h));
        out.mins = 0, out.d = 1, out.m = 0;
    }
    DEVICE static Raw raw(const u8 *chunk, u32 c, u32 i) {
        Raw out;
        for (u32 h = 0; h < 2; h++) load_words<2, 4>(block_of(chunk, c, i, h) + 2 + 16 * (c & 1), out.q[h]);
        return out;
    }
    DEVICE static void piece(const Raw &raw, u32 w, u32, u32 s0, u32 s1, u32 (&out)[4]) {
        for (u32 h = 0; h < 2; h++) {
            const u32 q = raw.q[h][w] ^ 0x80808080u, s = h ? s1 : s0;
            // 1024 + 128 + q, less 1152.
            out[2 * h] = times2(plus2(permute(q, 0x64646464u, 0x4240u), 0xe480e480u), s);
            out[2 * h + 1] = times2(plus2(permute(q, 0x64646464u, 0x4341u), 0xe480e480u), s);
        }
    }
};
#define EACH_HALF_FORMAT(X) X(q4_k, HQ4_K) X(q5_k, HQ5_K) X(q6_k, HQ6_K) X(q8_0, HQ8_0)

// ---- rounding of activations ----------------------------------------------------------------------------------------------------

// First element of the lane's two runs of four within a chunk: see RECORD.
DEVICE u32 run_of(u32 l) { return 128 * (l / 16) + 64 * (l / 2 % 2) + 16 * (l % 2) + 4 * (l / 4 % 4); }

// Where the records of `rows` rows go: one by one, or by groups of eight for warpgroups.
struct Records {
    u8 *at;
    u32 rows;
    i32 grouped;
};

// Writes the record of a row's chunk: all lanes of a wave, each with the elements run_of(lane()) to + 3 (a) and + 32 to + 35 (b). Infinities
// and NaNs stay what they are.
DEVICE void store_record(float4_t a, float4_t b, const Records &to, u32 chunk, u32 row) {
    const float x[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    u32 most = 0;
    for (int i = 0; i < 8; i++) {
        const u32 size = bits_of(x[i]) & 0x7fffffffu;
        most = size > most ? size : most;
    }
    asm("redux.sync.max.u32 %0, %0, 0xffffffff;" : "+r"(most));
    const bool finite = most < 0x7f800000u;
    const u32 exponent = finite ? (most >> 23 < 10 ? 10 : most >> 23) : 136;
    const float factor = float_of((263 - exponent) << 23), scale = float_of((exponent - 9) << 23);
    u32 p[4];
    for (int i = 0; i < 2; i++) {
        p[2 * i] = halves_of(times(x[4 * i], factor), times(x[4 * i + 2], factor));
        p[2 * i + 1] = halves_of(times(x[4 * i + 1], factor), times(x[4 * i + 3], factor));
    }
    float sum[2];
    for (int i = 0; i < 2; i++) {
        const float low = half_to_float((u16)p[2 * i]) + half_to_float((u16)(p[2 * i] >> 16));
        sum[i] = low + (half_to_float((u16)p[2 * i + 1]) + half_to_float((u16)(p[2 * i + 1] >> 16)));
        sum[i] += shfl_xor(sum[i], 1);
        sum[i] += shfl_xor(sum[i], 4);
        sum[i] += shfl_xor(sum[i], 8);
    }
    const u32 l = lane();
    u8 *record = to.at + (i64)(chunk * to.rows + row) * RECORD, *sums = record + RECORD_SUMS, *factors = record + RECORD_SCALE;
    if (to.grouped) {
        u8 *group = to.at + (i64)(chunk * ceil_div(to.rows, 8) + row / 8) * GROUP;
        sums = group + GROUP_SUMS + 32 * (row % 8), factors = group + GROUP_SCALES + 4 * (row % 8);
        for (u32 i = 0; i < 4; i++) *(u32 *)(group + 128 * (4 * (l / 4) + i) + 16 * (row % 8) + 4 * (l % 4)) = p[i];
    } else {
        *(u32x4 *)(record + 16 * l) = {p[0], p[1], p[2], p[3]};
    }
    if (l % 2 == 0 && l / 4 % 4 == 0) {
        const u32 high = halves_of(sum[0], sum[1]);
        const u32 low = halves_of(sum[0] - half_to_float((u16)high), sum[1] - half_to_float((u16)(high >> 16)));
        *(int2_t *)(sums + 8 * (2 * (l / 16) + l / 2 % 2)) = {(i32)high, (i32)low};
    }
    if (l == 0) *(float *)factors = scale;
}

#endif
