// Weight formats: what the bits of a block mean, as signed bytes that integer dot products take and the scales that go with them.
// One traits block a format; a kernel template takes any of them. Block layouts are GGUF's (docs/KERNELS.md lists them).
//
// A kernel calls F::prepare() once, by all work-items of the block, before the first F::pair.
// The unit is a PAIR: 64 elements, two groups of 32 that share bytes of the block. Four pairs make a chunk of 256 elements: one
// block of a 256-format, eight blocks of a 32-format. Group h of pair j begins at element group(j, h)·32 of the chunk. A weight is
//     d[h] · s[h][i / 16] · q[h] byte i  +  m[h]        (SPLIT formats: s per 16, and for Q2_K a minimum dmin · n[h][i / 16] to subtract)
// s is 1 for formats that are not SPLIT. Included by the matrix kernels, the embedding and the experts; no kernel itself.
#pragma once
#include "codebook.h"

struct Pair {
    u32 q[2][8];
    float d[2];
    float m[2];
    i32 s[2][2];
    i32 n[2][2];
    float dmin;
};

// ---- loads from blocks that are aligned to A bytes --------------------------------------------------------------

// N words from `p`. For A below 4 the words are put together from aligned ones; no aligned word is read that holds no wanted byte.
template <int A, int N> DEVICE void load_words(const u8 *p, u32 *out) {
    if constexpr (A >= 16 && N % 4 == 0) {
        for (int i = 0; i < N / 4; i++) {
            u32x4 v = ((const u32x4 *)p)[i];
            out[4 * i] = v.x, out[4 * i + 1] = v.y, out[4 * i + 2] = v.z, out[4 * i + 3] = v.w;
        }
    } else if constexpr (A >= 4) {
        for (int i = 0; i < N; i++) out[i] = ((const u32 *)p)[i];
    } else {
        u32 odd = (u32)(u64)p & 3, shift = 8 * odd;
        const u32 *words = (const u32 *)(p - odd);
        u32 low = words[0];
        for (int i = 0; i < N; i++) {
            u32 high = i + 1 < N || odd ? words[i + 1] : 0;
            out[i] = funnel(low, high, shift);
            low = high;
        }
    }
}
template <int A> DEVICE u32 load_u32(const u8 *p) {
    u32 out;
    load_words<A, 1>(p, &out);
    return out;
}
template <int A> DEVICE u32 load_u16(const u8 *p) {
    if constexpr (A >= 2) return *(const u16 *)p;
    return (u32)p[0] | (u32)p[1] << 8;
}
DEVICE float load_half(const u8 *p) { return half_to_float(*(const u16 *)p); }
DEVICE i32 signed_byte(u32 x) { return (i32)(x << 24) >> 24; }

// Four bits as four bytes of 0 or 1, and as four bytes of 0 or 255.
DEVICE u32 spread4(u32 bits) { return ((bits & 15) * 0x00204081u) & 0x01010101u; }
DEVICE u32 mask4(u32 bits) { return spread4(bits) * 255u; }
// Negates the bytes whose bit is set.
DEVICE u32 negate4(u32 bytes, u32 bits) {
    u32 mask = mask4(bits);
    return subtract4(bytes ^ mask, mask);
}
// Seven sign bits and the eighth that makes the number of minus signs even.
DEVICE u32 eight_signs(u32 seven) {
    seven &= 127;
    return seven | (u32)(__builtin_popcount(seven) & 1) << 7;
}
// Eight magnitudes and eight signs.
DEVICE void signed8(u64 point, u32 signs, u32 *out) {
    out[0] = negate4((u32)point, signs);
    out[1] = negate4((u32)(point >> 32), signs >> 4);
}

// The eight 4-bit indices of a word through a table of sixteen bytes: low halves to `low`, high halves to `high`.
DEVICE void look_up(u32 word, const u32 (&table)[4], u32 &low, u32 &high) {
    u32 part[2];
    for (int i = 0; i < 2; i++) {
        u32 w = word >> (16 * i);
        u32 a = permute(table[0], table[1], w & 0x7777), b = permute(table[2], table[3], w & 0x7777);
        part[i] = permute(a, b, 0x3210u | (w & 0x8888) >> 1);
    }
    low = permute(part[0], part[1], 0x6420);
    high = permute(part[0], part[1], 0x7531);
}
// IQ4_NL: -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113
DEVICE void look_up_nl(u32 word, u32 &low, u32 &high) {
    const u32 table[4] = {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u};
    look_up(word, table, low, high);
}
// MXFP4, doubled: 0 1 2 3 4 6 8 12 and their negatives
DEVICE void look_up_mx(u32 word, u32 &low, u32 &high) {
    const u32 table[4] = {0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu};
    look_up(word, table, low, high);
}

// ---- formats with blocks of 32 --------------------------------------------------------------------------------------

// What the 32-formats share: `one` decodes the block of group h.
// Formats that look points up: a copy of the table in shared memory, made by all work-items of a block before the first pair is
// decoded. Thirty-two lanes reading thirty-two points of a table in global memory wait for as many cache lines.
template <class T, int N> struct Table {
    DEVICE static T *shared() {
        SHARED T points[N];
        return points;
    }
    DEVICE static void fill(const T *from) {
        const u32 words = N * sizeof(T) / 16;
        for (u32 i = tid(); i < words; i += block_size()) ((u32x4 *)shared())[i] = ((const u32x4 *)from)[i];
        barrier();
    }
};

template <class F, int BYTES_, int ALIGN_, bool MIN_> struct Small {
    DEVICE static void prepare() {}
    static constexpr int BYTES = BYTES_, ALIGN = ALIGN_, BLOCK = 32, CHUNK_BYTES = 8 * BYTES_;
    static constexpr bool SPLIT = false, MIN = MIN_;
    DEVICE static u32 group(u32 j, u32 h) { return 2 * j + h; }
    // Groups of pair j that exist in a chunk of `n` blocks.
    DEVICE static void pair(const u8 *chunk, u32 j, u32 n, Pair &out) {
        for (u32 h = 0; h < 2; h++) {
            u32 g = 2 * j + h;
            out.m[h] = 0;
            // A block that is not there is taken from the first: its result is not used.
            F::one(chunk + BYTES * (g < n ? g : 0), out.q[h], out.d[h], out.m[h]);
        }
    }
};

struct Q4_0 : Small<Q4_0, 18, 2, false> {
    DEVICE static void one(const u8 *b, u32 *q, float &d, float &) {
        u32 w[4];
        d = load_half(b);
        load_words<2, 4>(b + 2, w);
        for (int i = 0; i < 4; i++) {
            q[i] = subtract4(w[i] & 0x0f0f0f0fu, 0x08080808u);
            q[i + 4] = subtract4(w[i] >> 4 & 0x0f0f0f0fu, 0x08080808u);
        }
    }
};
struct Q4_1 : Small<Q4_1, 20, 4, true> {
    DEVICE static void one(const u8 *b, u32 *q, float &d, float &m) {
        u32 w[5];
        load_words<4, 5>(b, w);
        d = half_to_float((u16)w[0]), m = half_to_float((u16)(w[0] >> 16));
        for (int i = 0; i < 4; i++) q[i] = w[i + 1] & 0x0f0f0f0fu, q[i + 4] = w[i + 1] >> 4 & 0x0f0f0f0fu;
    }
};
struct Q5_0 : Small<Q5_0, 22, 2, false> {
    DEVICE static void one(const u8 *b, u32 *q, float &d, float &) {
        u32 w[5];
        d = load_half(b);
        load_words<2, 5>(b + 2, w);
        for (int i = 0; i < 4; i++) {
            q[i] = subtract4((w[i + 1] & 0x0f0f0f0fu) | spread4(w[0] >> 4 * i) << 4, 0x10101010u);
            q[i + 4] = subtract4((w[i + 1] >> 4 & 0x0f0f0f0fu) | spread4(w[0] >> (16 + 4 * i)) << 4, 0x10101010u);
        }
    }
};
struct Q5_1 : Small<Q5_1, 24, 4, true> {
    DEVICE static void one(const u8 *b, u32 *q, float &d, float &m) {
        u32 w[6];
        load_words<4, 6>(b, w);
        d = half_to_float((u16)w[0]), m = half_to_float((u16)(w[0] >> 16));
        for (int i = 0; i < 4; i++) {
            q[i] = (w[i + 2] & 0x0f0f0f0fu) | spread4(w[1] >> 4 * i) << 4;
            q[i + 4] = (w[i + 2] >> 4 & 0x0f0f0f0fu) | spread4(w[1] >> (16 + 4 * i)) << 4;
        }
    }
};
struct Q8_0 : Small<Q8_0, 34, 2, false> {
    DEVICE static void one(const u8 *b, u32 *q, float &d, float &) {
        d = load_half(b);
        load_words<2, 8>(b + 2, q);
    }
};
struct IQ4_NL : Small<IQ4_NL, 18, 2, false> {
    DEVICE static void one(const u8 *b, u32 *q, float &d, float &) {
        u32 w[4];
        d = load_half(b);
        load_words<2, 4>(b + 2, w);
        for (int i = 0; i < 4; i++) look_up_nl(w[i], q[i], q[i + 4]);
    }
};
struct MXFP4 : Small<MXFP4, 17, 1, false> {
    DEVICE static void one(const u8 *b, u32 *q, float &d, float &) {
        u32 w[4], e = b[0];
        // Half of 2^(e - 127): the values are doubled.
        d = float_of(e < 2 ? 0x00200000u << e : (e - 1) << 23);
        load_words<1, 4>(b + 1, w);
        for (int i = 0; i < 4; i++) look_up_mx(w[i], q[i], q[i + 4]);
    }
};

// ---- formats with blocks of 256 -----------------------------------------------------------------------------------------

template <int BYTES_, int ALIGN_, bool SPLIT_, bool MIN_> struct Large {
    static constexpr int BYTES = BYTES_, ALIGN = ALIGN_, BLOCK = 256, CHUNK_BYTES = BYTES_;
    static constexpr bool SPLIT = SPLIT_, MIN = MIN_;
    DEVICE static u32 group(u32 j, u32 h) { return 2 * j + h; }
    DEVICE static void prepare() {}
};

// Scales and minima 2j, 2j + 1 of Q4_K and Q5_K, six bits each, as two bytes: s[0..3] and m[0..3] whole in the first eight bytes,
// the others as halves of the last four with their top bits above the first eight.
DEVICE void k_scales(const u32 *w, u32 j, u32 &scales, u32 &mins) {
    u32 shift = 16 * (j & 1);
    bool first = j < 2;
    scales = first ? w[0] & 0x3f3f3f3fu : (w[2] & 0x0f0f0f0fu) | (w[0] >> 2 & 0x30303030u);
    mins = first ? w[1] & 0x3f3f3f3fu : (w[2] >> 4 & 0x0f0f0f0fu) | (w[1] >> 2 & 0x30303030u);
    scales = scales >> shift & 0xffff, mins = mins >> shift & 0xffff;
}
DEVICE void k_header(const u8 *b, u32 j, Pair &out) {
    u32 w[4], scales, mins;
    load_words<16, 4>(b, w);
    k_scales(w + 1, j, scales, mins);
    float d = half_to_float((u16)w[0]), dmin = half_to_float((u16)(w[0] >> 16));
    out.d[0] = times(d, (float)(scales & 255)), out.d[1] = times(d, (float)(scales >> 8));
    out.m[0] = -times(dmin, (float)(mins & 255)), out.m[1] = -times(dmin, (float)(mins >> 8));
}

struct Q4_K : Large<144, 16, false, true> {
    DEVICE static void pair(const u8 *b, u32 j, u32, Pair &out) {
        u32 w[8];
        load_words<16, 8>(b + 16 + 32 * j, w);
        k_header(b, j, out);
        for (int i = 0; i < 8; i++) out.q[0][i] = w[i] & 0x0f0f0f0fu, out.q[1][i] = w[i] >> 4 & 0x0f0f0f0fu;
    }
};
struct Q5_K : Large<176, 16, false, true> {
    DEVICE static void pair(const u8 *b, u32 j, u32, Pair &out) {
        u32 w[8], high[8];
        load_words<16, 8>(b + 48 + 32 * j, w);
        load_words<16, 8>(b + 16, high);
        k_header(b, j, out);
        for (int i = 0; i < 8; i++) {
            u32 bits = high[i] >> 2 * j;
            out.q[0][i] = (w[i] & 0x0f0f0f0fu) | (bits & 0x01010101u) << 4;
            out.q[1][i] = (w[i] >> 4 & 0x0f0f0f0fu) | (bits >> 1 & 0x01010101u) << 4;
        }
    }
};
struct Q6_K : Large<210, 2, true, false> {
    // The two groups of a pair lie 64 elements apart: low and high halves of the same bytes.
    DEVICE static u32 group(u32 j, u32 h) { return 4 * (j / 2) + j % 2 + 2 * h; }
    DEVICE static void pair(const u8 *b, u32 j, u32, Pair &out) {
        u32 low[8], high[8], half = j / 2, x = j % 2;
        load_words<2, 8>(b + 64 * half + 32 * x, low);
        load_words<2, 8>(b + 128 + 32 * half, high);
        float d = load_half(b + 208);
        for (u32 h = 0; h < 2; h++) {
            u32 scales = load_u16<2>(b + 192 + 2 * group(j, h));
            out.d[h] = d, out.m[h] = 0;
            out.s[h][0] = signed_byte(scales), out.s[h][1] = signed_byte(scales >> 8);
        }
        for (int i = 0; i < 8; i++) {
            u32 bits = high[i] >> 2 * x;
            out.q[0][i] = subtract4((low[i] & 0x0f0f0f0fu) | (bits & 0x03030303u) << 4, 0x20202020u);
            out.q[1][i] = subtract4((low[i] >> 4 & 0x0f0f0f0fu) | (bits & 0x30303030u), 0x20202020u);
        }
    }
};
struct Q2_K : Large<84, 4, true, true> {
    DEVICE static void pair(const u8 *b, u32 j, u32, Pair &out) {
        u32 w[8], half = j / 2, y = j % 2;
        load_words<4, 8>(b + 16 + 32 * half, w);
        u32 scales = load_u32<4>(b + 4 * j), ds = load_u32<4>(b + 80);
        float d = half_to_float((u16)ds);
        out.dmin = half_to_float((u16)(ds >> 16));
        for (u32 h = 0; h < 2; h++) {
            out.d[h] = d, out.m[h] = 0;
            for (u32 i = 0; i < 2; i++) {
                u32 scale = scales >> (16 * h + 8 * i);
                out.s[h][i] = (i32)(scale & 15), out.n[h][i] = (i32)(scale >> 4 & 15);
            }
            for (int i = 0; i < 8; i++) out.q[h][i] = w[i] >> (4 * y + 2 * h) & 0x03030303u;
        }
    }
};
struct Q3_K : Large<110, 2, true, false> {
    // Scale i of 16: four bits in the first eight bytes, two in the last four.
    DEVICE static i32 scale(const u8 *scales, u32 i) {
        u32 low = (u32)scales[i % 8] >> 4 * (i / 8) & 15, high = (u32)scales[8 + i % 4] >> 2 * (i / 4) & 3;
        return (i32)(low | high << 4) - 32;
    }
    DEVICE static void pair(const u8 *b, u32 j, u32, Pair &out) {
        u32 w[8], mask[8], half = j / 2, y = j % 2;
        load_words<2, 8>(b + 32 + 32 * half, w);
        load_words<2, 8>(b, mask);
        float d = load_half(b + 108);
        for (u32 h = 0; h < 2; h++) {
            u32 g = 2 * j + h;
            out.d[h] = d, out.m[h] = 0;
            for (u32 i = 0; i < 2; i++) out.s[h][i] = scale(b + 96, 2 * g + i);
            for (int i = 0; i < 8; i++) {
                u32 q = (w[i] >> (4 * y + 2 * h) & 0x03030303u) | (mask[i] >> g & 0x01010101u) << 2;
                out.q[h][i] = subtract4(q, 0x04040404u);
            }
        }
    }
};
struct IQ4_XS : Large<136, 4, false, false> {
    DEVICE static void pair(const u8 *b, u32 j, u32, Pair &out) {
        u32 head[2], w[8];
        load_words<4, 2>(b, head);
        load_words<4, 8>(b + 8 + 32 * j, w);
        float d = half_to_float((u16)head[0]);
        for (u32 h = 0; h < 2; h++) {
            u32 g = 2 * j + h, scale = (head[1] >> 4 * g & 15) | (head[0] >> (16 + 2 * g) & 3) << 4;
            out.d[h] = times(d, (float)((i32)scale - 32)), out.m[h] = 0;
            for (int i = 0; i < 4; i++) look_up_nl(w[4 * h + i], out.q[h][i], out.q[h][i + 4]);
        }
    }
};
struct IQ2_XXS : Large<66, 2, false, false> {
    using Points = Table<u64, 256>;
    DEVICE static void prepare() { Points::fill(IQ2XXS_GRID); }
    DEVICE static void pair(const u8 *b, u32 j, u32, Pair &out) {
        const u64 *points = Points::shared();
        u32 w[4];
        load_words<2, 4>(b + 2 + 16 * j, w);
        float d = load_half(b);
        for (u32 h = 0; h < 2; h++) {
            u32 word = w[2 * h + 1];
            out.d[h] = times(times(d, (float)(2 * (word >> 28) + 1)), 0.125f), out.m[h] = 0;
            for (u32 k = 0; k < 4; k++)
                signed8(points[w[2 * h] >> 8 * k & 255], eight_signs(word >> 7 * k), out.q[h] + 2 * k);
        }
    }
};
struct IQ2_XS : Large<74, 2, true, false> {
    using Points = Table<u64, 512>;
    DEVICE static void prepare() { Points::fill(IQ2XS_GRID); }
    DEVICE static void pair(const u8 *b, u32 j, u32, Pair &out) {
        const u64 *points = Points::shared();
        u32 w[4], scales = load_u16<2>(b + 66 + 2 * j);
        load_words<2, 4>(b + 2 + 16 * j, w);
        float d = times(load_half(b), 0.125f);
        for (u32 h = 0; h < 2; h++) {
            out.d[h] = d, out.m[h] = 0;
            for (u32 i = 0; i < 2; i++) out.s[h][i] = (i32)(2 * (scales >> (8 * h + 4 * i) & 15) + 1);
            for (u32 k = 0; k < 4; k++) {
                u32 word = w[2 * h + k / 2] >> 16 * (k % 2) & 0xffff;
                signed8(points[word & 511], eight_signs(word >> 9), out.q[h] + 2 * k);
            }
        }
    }
};
struct IQ2_S : Large<82, 2, true, false> {
    using Points = Table<u64, 1024>;
    DEVICE static void prepare() { Points::fill(IQ2S_GRID); }
    DEVICE static void pair(const u8 *b, u32 j, u32, Pair &out) {
        const u64 *points = Points::shared();
        u32 low[2], signs[2];
        load_words<2, 2>(b + 2 + 8 * j, low);
        load_words<2, 2>(b + 34 + 8 * j, signs);
        u32 high = load_u16<2>(b + 66 + 2 * j), scales = load_u16<2>(b + 74 + 2 * j);
        float d = times(load_half(b), 0.125f);
        for (u32 h = 0; h < 2; h++) {
            out.d[h] = d, out.m[h] = 0;
            for (u32 i = 0; i < 2; i++) out.s[h][i] = (i32)(2 * (scales >> (8 * h + 4 * i) & 15) + 1);
            for (u32 k = 0; k < 4; k++) {
                u32 index = (low[h] >> 8 * k & 255) | (high >> (8 * h + 2 * k) & 3) << 8;
                signed8(points[index], signs[h] >> 8 * k, out.q[h] + 2 * k);
            }
        }
    }
};
struct IQ3_XXS : Large<98, 2, false, false> {
    using Points = Table<u32, 256>;
    DEVICE static void prepare() { Points::fill(IQ3XXS_GRID); }
    DEVICE static void pair(const u8 *b, u32 j, u32, Pair &out) {
        const u32 *points = Points::shared();
        u32 w[4], words[2];
        load_words<2, 4>(b + 2 + 16 * j, w);
        load_words<2, 2>(b + 66 + 8 * j, words);
        float d = load_half(b);
        for (u32 h = 0; h < 2; h++) {
            out.d[h] = times(times(d, (float)(2 * (words[h] >> 28) + 1)), 0.25f), out.m[h] = 0;
            for (u32 k = 0; k < 4; k++) {
                u32 pair = w[2 * h + k / 2] >> 16 * (k % 2), signs = eight_signs(words[h] >> 7 * k);
                out.q[h][2 * k] = negate4(points[pair & 255], signs);
                out.q[h][2 * k + 1] = negate4(points[pair >> 8 & 255], signs >> 4);
            }
        }
    }
};
struct IQ3_S : Large<110, 2, false, false> {
    using Points = Table<u32, 512>;
    DEVICE static void prepare() { Points::fill(IQ3S_GRID); }
    DEVICE static void pair(const u8 *b, u32 j, u32, Pair &out) {
        const u32 *points = Points::shared();
        u32 w[4], signs[2];
        load_words<2, 4>(b + 2 + 16 * j, w);
        load_words<2, 2>(b + 74 + 8 * j, signs);
        u32 high = load_u16<2>(b + 66 + 2 * j), scales = b[106 + j];
        float d = load_half(b);
        for (u32 h = 0; h < 2; h++) {
            out.d[h] = times(d, (float)(2 * (scales >> 4 * h & 15) + 1)), out.m[h] = 0;
            for (u32 k = 0; k < 4; k++) {
                u32 pair = w[2 * h + k / 2] >> 16 * (k % 2), ninth = high >> (8 * h + 2 * k), sign = signs[h] >> 8 * k;
                out.q[h][2 * k] = negate4(points[(pair & 255) | (ninth & 1) << 8], sign);
                out.q[h][2 * k + 1] = negate4(points[(pair >> 8 & 255) | (ninth >> 1 & 1) << 8], sign >> 4);
            }
        }
    }
};
// Eight values of -1, 0, 1, shifted by an eighth up or down, times eight.
DEVICE void shifted8(u64 point, bool down, u32 *out) {
    for (int i = 0; i < 2; i++) {
        u32 eights = (u32)(point >> 32 * i) << 3 & 0xf8f8f8f8u;
        out[i] = down ? subtract4(eights, 0x01010101u) : eights | 0x01010101u;
    }
}
struct IQ1_S : Large<50, 2, false, false> {
    using Points = Table<u64, 2048>;
    DEVICE static void prepare() { Points::fill(IQ1S_GRID); }
    DEVICE static void pair(const u8 *b, u32 j, u32, Pair &out) {
        const u64 *points = Points::shared();
        u32 low[2], words;
        load_words<2, 2>(b + 2 + 8 * j, low);
        load_words<2, 1>(b + 34 + 4 * j, &words);
        float d = load_half(b);
        for (u32 h = 0; h < 2; h++) {
            u32 word = words >> 16 * h & 0xffff;
            out.d[h] = times(times(d, (float)(2 * (word >> 12 & 7) + 1)), 0.125f), out.m[h] = 0;
            for (u32 k = 0; k < 4; k++)
                shifted8(points[(low[h] >> 8 * k & 255) | (word >> 3 * k & 7) << 8], word & 0x8000, out.q[h] + 2 * k);
        }
    }
};
struct IQ1_M : Large<56, 4, true, false> {
    using Points = Table<u64, 2048>;
    DEVICE static void prepare() { Points::fill(IQ1S_GRID); }
    DEVICE static void pair(const u8 *b, u32 j, u32, Pair &out) {
        const u64 *points = Points::shared();
        u32 low[2], tail[2];
        load_words<4, 2>(b + 8 * j, low);
        u32 high = load_u32<4>(b + 32 + 4 * j);
        load_words<4, 2>(b + 48, tail);
        // Four 16-bit words, each with four scales of three bits and, on top, four bits of d.
        u32 bits = (tail[0] >> 12 & 15) | (tail[0] >> 28) << 4 | (tail[1] >> 12 & 15) << 8 | (tail[1] >> 28) << 12;
        u32 word = (j < 2 ? tail[0] : tail[1]) >> 16 * (j % 2);
        float d = times(half_to_float((u16)bits), 0.125f);
        for (u32 h = 0; h < 2; h++) {
            out.d[h] = d, out.m[h] = 0;
            for (u32 i = 0; i < 2; i++) out.s[h][i] = (i32)(2 * (word >> (6 * h + 3 * i) & 7) + 1);
            for (u32 k = 0; k < 4; k++) {
                u32 nibble = high >> (16 * h + 4 * k) & 15;
                shifted8(points[(low[h] >> 8 * k & 255) | (nibble & 7) << 8], nibble & 8, out.q[h] + 2 * k);
            }
        }
    }
};

// Every quantised format with its name in kernel names.
#define EACH_FORMAT(X)                                                                                                        \
    X(q4_0, Q4_0) X(q4_1, Q4_1) X(q5_0, Q5_0) X(q5_1, Q5_1) X(q8_0, Q8_0) X(q2_k, Q2_K) X(q3_k, Q3_K) X(q4_k, Q4_K)          \
    X(q5_k, Q5_K) X(q6_k, Q6_K) X(iq2_xxs, IQ2_XXS) X(iq2_xs, IQ2_XS) X(iq3_xxs, IQ3_XXS) X(iq1_s, IQ1_S) X(iq4_nl, IQ4_NL)    \
    X(iq3_s, IQ3_S) X(iq2_s, IQ2_S) X(iq4_xs, IQ4_XS) X(iq1_m, IQ1_M) X(mxfp4, MXFP4)
