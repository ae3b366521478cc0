// Position and cache: Rope, KvStore, and both fused with the head norms for decoding.
//
// Launch: `rope` and `kv_store` grid (heads, tokens), 64 threads; `heads` grid (ceil(all heads / 4), tokens), 128 threads, 32 lanes a
// head of at most 512 elements. Rope is within 3 units of the scalar op; storing is exact (to nearest, ties to even).
#define STRATA_BLOCK 64
#include "functions.h"

struct RopeArgs {
    const float *x;
    float *out;
    // (cos, sin) pairs.
    const float *table;
    const i32 *rows;
    i64 x_nb[2];
    i64 out_nb[2];
    i64 table_nb[2];
    i32 d;
    i32 rotated;
    // 0 neighbours, 1 halves.
    i32 style;
};

KERNEL LAUNCH_BOUNDS(64, 1) rope(RopeArgs args) {
    grid_release();
    grid_wait();
    u32 head = bid_x(), t = bid_y();
    const float *x = (const float *)((const char *)args.x + args.x_nb[0] * head + args.x_nb[1] * t);
    float *out = (float *)((char *)args.out + args.out_nb[0] * head + args.out_nb[1] * t);
    const char *row = (const char *)args.table + args.table_nb[1] * args.rows[t];
    u32 half = (u32)args.rotated / 2;
    for (u32 i = tid(); i < half; i += block_size()) {
        const float *pair = (const float *)(row + args.table_nb[0] * i);
        float c = pair[0], s = pair[1];
        u32 a = args.style == 0 ? 2 * i : i, b = args.style == 0 ? 2 * i + 1 : i + half;
        float xa = x[a], xb = x[b];
        out[a] = xa * c - xb * s;
        out[b] = xa * s + xb * c;
    }
    for (u32 i = (u32)args.rotated + tid(); i < (u32)args.d; i += block_size()) out[i] = x[i];
}

struct StoreArgs {
    void *cache;
    const float *x;
    const i32 *pages;
    const i32 *sequence;
    const i32 *position;
    i64 cache_nb[2];
    i64 x_nb[2];
    i64 pages_nb;
    i32 d;
    i32 page_bits;
    // StrataDType: 0 F32, 1 F16, 30 BF16.
    i32 type;
};

DEVICE i64 cell_of(const i32 *pages, i64 pages_nb, i32 sequence, i32 position, i32 page_bits) {
    const i32 *row = (const i32 *)((const char *)pages + pages_nb * sequence);
    return ((i64)row[position >> page_bits] << page_bits) + (position & ((1 << page_bits) - 1));
}

DEVICE void store_one(void *to, u32 i, float x, i32 type) {
    if (type == 0) ((float *)to)[i] = x;
    else ((u16 *)to)[i] = type == 1 ? float_to_half(x) : float_to_bf16(x);
}

KERNEL LAUNCH_BOUNDS(64, 1) kv_store(StoreArgs args) {
    grid_release();
    grid_wait();
    u32 head = bid_x(), t = bid_y();
    const float *x = (const float *)((const char *)args.x + args.x_nb[0] * head + args.x_nb[1] * t);
    i64 cell = cell_of(args.pages, args.pages_nb, args.sequence[t], args.position[t], args.page_bits);
    void *to = (char *)args.cache + args.cache_nb[0] * head + args.cache_nb[1] * cell;
    for (u32 i = tid(); i < (u32)args.d; i += block_size()) store_one(to, i, x[i], args.type);
}

struct HeadsArgs {
    float *q;
    float *k;
    const float *v;
    // Head norms, or null.
    const float *q_gamma;
    const float *k_gamma;
    const float *table;
    const i32 *rows;
    void *k_cache;
    void *v_cache;
    const i32 *pages;
    const i32 *sequence;
    const i32 *position;
    i64 q_nb[2];
    i64 k_nb[2];
    i64 v_nb[2];
    i64 k_cache_nb[2];
    i64 v_cache_nb[2];
    i64 table_nb[2];
    i64 pages_nb;
    i32 n_q;
    i32 n_kv;
    i32 d;
    i32 dv;
    i32 rotated;
    i32 style;
    i32 page_bits;
    i32 k_type;
    i32 v_type;
    float q_eps;
    float k_eps;
};

// Norm and rotation of a row of q or k in place, 32 lanes; the row is in shared memory.
DEVICE void prepare_head(float *row, float *x, const float *gamma, float eps, const HeadsArgs &args, u32 t) {
    u32 d = (u32)args.d, half = (u32)args.rotated / 2;
    float factor = 1.0f;
    if (gamma) {
        float sum = 0;
        for (u32 i = lane(); i < d; i += LANES) sum = fused(x[i], x[i], sum);
        sum = group_sum(sum);
        factor = divide(1.0f, square_root(divide(sum, (float)d) + eps));
    }
    const char *angles = (const char *)args.table + args.table_nb[1] * args.rows[t];
    for (u32 i = lane(); i < half; i += LANES) {
        const float *pair = (const float *)(angles + args.table_nb[0] * i);
        float c = pair[0], s = pair[1];
        u32 a = args.style == 0 ? 2 * i : i, b = args.style == 0 ? 2 * i + 1 : i + half;
        float xa = x[a], xb = x[b];
        if (gamma) {
            xa = xa * factor * gamma[a];
            xb = xb * factor * gamma[b];
        }
        row[a] = xa * c - xb * s;
        row[b] = xa * s + xb * c;
    }
    for (u32 i = (u32)args.rotated + lane(); i < d; i += LANES) row[i] = gamma ? x[i] * factor * gamma[i] : x[i];
}

KERNEL LAUNCH_BOUNDS(128, 1) heads(HeadsArgs args) {
    grid_release();
    grid_wait();
    SHARED float rows[4][512];
    u32 head = bid_x() * 4 + group(), t = bid_y();
    u32 n_q = (u32)args.n_q, n_kv = (u32)args.n_kv;
    float *row = rows[group()];
    float *x = nullptr;
    bool is_q = head < n_q, is_k = !is_q && head < n_q + n_kv, is_v = !is_q && !is_k && head < n_q + 2 * n_kv;
    if (is_q) {
        x = (float *)((char *)args.q + args.q_nb[0] * head + args.q_nb[1] * t);
        prepare_head(row, x, args.q_gamma, args.q_eps, args, t);
    } else if (is_k) {
        x = (float *)((char *)args.k + args.k_nb[0] * (head - n_q) + args.k_nb[1] * t);
        prepare_head(row, x, args.k_gamma, args.k_eps, args, t);
    }
    barrier();
    if (is_q || is_k)
        for (u32 i = lane(); i < (u32)args.d; i += LANES) x[i] = row[i];
    if (is_q || !(is_k || is_v)) return;
    i64 cell = cell_of(args.pages, args.pages_nb, args.sequence[t], args.position[t], args.page_bits);
    if (is_k) {
        void *to = (char *)args.k_cache + args.k_cache_nb[0] * (head - n_q) + args.k_cache_nb[1] * cell;
        for (u32 i = lane(); i < (u32)args.d; i += LANES) store_one(to, i, row[i], args.k_type);
    } else {
        const float *v = (const float *)((const char *)args.v + args.v_nb[0] * (head - n_q - n_kv) + args.v_nb[1] * t);
        void *to = (char *)args.v_cache + args.v_cache_nb[0] * (head - n_q - n_kv) + args.v_cache_nb[1] * cell;
        for (u32 i = lane(); i < (u32)args.dv; i += LANES) store_one(to, i, v[i], args.v_type);
    }
}
