// Rows of an embedding table in any weight format, as floats.
//
// Computes: out [t][h] = scale · table[ids[t]][h].
// Launch: grid (ceil(h / 8192), t), 128 work-items, 64 elements each. Assumes the table aligned to the format's ALIGN.
// Must match: EmbeddingLookup of the ABI; each weight as strata_model::quant decodes it, one more rounding by `scale`.
#include "mmx.h"

struct EmbedArgs {
    const u8 *table;
    const i32 *ids;
    float *out;
    i64 row_stride;
    i32 h, t;
    float scale;
    // Elements from one row of out to the next.
    i32 out_stride;
};

template <class F> DEVICE void embed(const EmbedArgs &a) {
    grid_release();
    F::prepare();
    grid_wait();
    u32 at = bid_x() * 128 + tid(), chunk = at / 4, j = at % 4, h = (u32)a.h, base = 256 * chunk;
    if (base >= h) return;
    const u8 *from = a.table + a.row_stride * a.ids[bid_y()] + (i64)chunk * F::CHUNK_BYTES;
    float *out = a.out + (i64)bid_y() * a.out_stride + base;
    if constexpr (F::BLOCK == 1) {
        for (u32 i = 64 * j; i < 64 * j + 64 && base + i < h; i++) out[i] = times(F::at(from, i), a.scale);
    } else {
        Pair pair;
        u32 n = (u32)min_i((i32)((h - base) / F::BLOCK), 256 / F::BLOCK);
        F::pair(from, j, n, pair);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            u32 g = F::group(j, (u32)half);
            if (F::BLOCK == 32 && g >= n) continue;
#pragma unroll
            for (int i = 0; i < 32; i++) out[32 * g + i] = times(weight_of<F>(pair, half, i / 16, pair.q[half][i / 4] >> 8 * (i % 4)), a.scale);
        }
    }
}

#define EMBED(name, F) \
    KERNEL LAUNCH_BOUNDS(128, 1) embed_##name(EmbedArgs args) { embed<F>(args); }
EACH_FORMAT(EMBED) EMBED(f32, F32) EMBED(f16, F16) EMBED(bf16, BF16)
