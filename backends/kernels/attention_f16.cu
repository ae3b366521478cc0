// Attention over an f16 cache by tensor cores: split over the context for short steps, tiled for long ones, with the same bits.
//
// Computes: Attention of the ABI in default mode; q and the shares are rounded to halves, which the ABI allows there. Pages hold a
// multiple of 64 cells; heads of 64, 128 or 256 elements, keys and values alike. NVIDIA only: mma.sync of 8.0 (from sm_80).
// Launch: `split`: grid (chunks of 64 positions, kv heads, groups of rows), 128 threads; `merge`: grid (query heads, tokens), D threads;
// `tiled`: grid (row tiles of 64, kv heads), 128 threads. A row is a query head of a token; rows of one kv head share its keys.
// Order: each chunk of 64 positions is a whole of its own (its greatest logit, its sum in four runs of 16, its values in four steps of
// 16), and chunks are merged in rising order. Both forms do exactly that, so a token's bits do not depend on the form.
// Within the kit's half class. Why not attention.cu: that reads keys once a query head and one position at a time.
#include "halves.h"

#if !defined(STRATA_AMD)

struct AttentionF16Args {
    float *out;
    const float *q;
    const u16 *k;
    const u16 *v;
    const i32 *pages;
    const i32 *sequence;
    const i32 *position;
    const float *sinks;
    // Split form: per row and chunk D values, then greatest and sum. Rows t·heads + h.
    float *partial;
    // Split form that merges too: per token, kv head and group of rows how many blocks are done; zero before and after.
    u32 *done;
    // The same result rounded for the product behind, or null: as bytes, or as records where xs is null.
    i8 *xq;
    float2_t *xs;
    i64 out_nb[2];
    i64 q_nb[2];
    i64 k_nb[2];
    i64 v_nb[2];
    i64 pages_nb;
    i32 heads;
    i32 share;
    i32 t;
    i32 page_bits;
    i32 window;
    i32 n_chunks;
    // 1: the last block of a row merges its chunks.
    i32 merges;
    float scale;
    float cap;
};

constexpr u32 CHUNK = 64;
constexpr float NONE = -__builtin_inff();

DEVICE void mma(float *c, const u32 *a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE u32 halves(float low, float high) { return (u32)float_to_half(low) | (u32)float_to_half(high) << 16; }
DEVICE void matrix_transposed(u32 *b, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]) : "r"(address) : "memory");
}

// Rows of a tile: row r of kv head `kv` is query head kv·share + r % share of token r / share.
struct Row {
    i32 token;
    i32 head;
    i32 position;
    bool there;
};
DEVICE Row row_of(const AttentionF16Args &a, u32 kv, i32 r) {
    i32 token = r / a.share;
    bool there = token < a.t;
    token = there ? token : a.t - 1;
    return {token, (i32)kv * a.share + r % a.share, a.position[token], there};
}

// The rows `first + lane/4` and eight further as mma operands, times nothing: 16 halves a step in the order in which keys are read,
// thread c of four holding elements 8c..8c+7 of each 32.
template <int D> DEVICE void load_q(u32 (*q)[4], const AttentionF16Args &a, const Row *rows) {
    u32 c = lane() % 4;
#pragma unroll
    for (int s = 0; s < D / 32; s++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float *x = (const float *)((const char *)a.q + a.q_nb[0] * rows[i].head + a.q_nb[1] * rows[i].token) + 32 * s + 8 * c;
            float v[8];
#pragma unroll
            for (int e = 0; e < 8; e++) v[e] = x[e];
            q[2 * s][i] = halves(v[0], v[1]), q[2 * s][i + 2] = halves(v[2], v[3]);
            q[2 * s + 1][i] = halves(v[4], v[5]), q[2 * s + 1][i + 2] = halves(v[6], v[7]);
        }
}

// Logits of 16 rows and the 8 keys that begin at `keys` (rows of D halves, `stride` bytes apart): element order as load_q.
template <int D> DEVICE void logits(float *s, const u32 (*q)[4], const u8 *keys, i64 stride) {
    const u8 *key = keys + stride * (lane() / 4) + 16 * (lane() % 4);
    s[0] = s[1] = s[2] = s[3] = 0;
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        int4_t b = *(const int4_t *)(key + 64 * i);
        mma(s, q[2 * i], (u32)b.x, (u32)b.y);
        mma(s, q[2 * i + 1], (u32)b.z, (u32)b.w);
    }
}

// A raw logit of a row and position as it counts: scaled, capped, or not seen.
DEVICE float seen(const AttentionF16Args &a, float s, i32 position, i32 row_position) {
    s = s * a.scale;
    if (a.cap > 0) s = a.cap * tanh_of(divide(s, a.cap));
    bool visible = position <= row_position && (a.window <= 0 || row_position - position < a.window);
    return visible ? s : NONE;
}

// Greatest over the four lanes of a row, and a sum over them.
DEVICE float row_max(float x) { x = maximum(x, shfl_xor(x, 1)); return maximum(x, shfl_xor(x, 2)); }
DEVICE float row_sum(float x) { x += shfl_xor(x, 1); return x + shfl_xor(x, 2); }
DEVICE float share_of(float s, float most) { return most == NONE ? 0.0f : exp2_fast((s - most) * LOG2_E); }

DEVICE i64 cell_at(const AttentionF16Args &a, i32 sequence, i32 position) {
    const i32 *pages = (const i32 *)((const char *)a.pages + a.pages_nb * sequence);
    return ((i64)pages[position >> a.page_bits] << a.page_bits) + (position & ((1 << a.page_bits) - 1));
}

// Copies 64 cells of D halves to shared rows of D halves and 16 bytes, so that neighbouring rows begin in other banks.
template <int D> DEVICE void fetch_rows(u8 *to, const u8 *from, i64 stride, i32 first_cell, i32 n_cells) {
    for (u32 i = tid(); i < CHUNK * D / 8; i += 128) {
        u32 row = i / (D / 8), piece = i % (D / 8);
        // Cells that nobody sees may hold anything, NaN too: their shares are zero and so must they be.
        if ((i32)row >= first_cell && (i32)row < n_cells) copy16_async(to + row * (D * 2 + 16) + piece * 16, from + stride * row + piece * 16);
        else *(int4_t *)(to + row * (D * 2 + 16) + piece * 16) = {0, 0, 0, 0};
    }
}

// out[n] (16 rows x 8 columns each) = shares (16 rows x 64) · values, columns from `first` on.
template <int N> DEVICE void weighted(float (*out)[4], const u32 (*p)[4], const u8 *values, u32 stride, u32 first) {
#pragma unroll
    for (int n = 0; n < N; n++) out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0;
#pragma unroll
    for (int s = 0; s < 4; s++)
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            u32 b[4];
            u32 row = 16 * s + lane() % 16, column = first + 8 * n + 8 * (lane() / 16);
            matrix_transposed(b, shared_address(values + row * stride + column * 2));
            mma(out[n], p[s], b[0], b[1]);
            mma(out[n + 1], p[s], b[2], b[3]);
        }
}

// One merge step, in both forms: a chunk's greatest and sum into the row's.
struct Merge {
    float most, sum;
    // Factors of what is there and of what comes.
    float old_factor, new_factor;
    DEVICE void add(float m, float s) {
        float all = maximum(most, m);
        old_factor = share_of(most, all), new_factor = share_of(m, all);
        sum = sum * old_factor + s * new_factor;
        most = all;
    }
};
DEVICE float with_sink(const AttentionF16Args &a, float most, float sum, i32 head, float &factor) {
    factor = 1.0f;
    if (!a.sinks) return sum;
    float all = maximum(most, a.sinks[head]);
    factor = share_of(most, all);
    return sum * factor + share_of(a.sinks[head], all);
}

// Counts this block; whether it is the last of `n`, whose writes this block sees then.
DEVICE bool is_last(u32 *done, u32 n) {
    SHARED u32 before;
    asm volatile("membar.gl;" ::: "memory");
    barrier();
    if (tid() == 0) {
        u32 old;
        asm volatile("atom.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(done), "r"(n - 1) : "memory");
        before = old;
        asm volatile("membar.gl;" ::: "memory");
    }
    barrier();
    return before == n - 1;
}

// The chunks `first` to `last` of a row, one column.
template <int D> DEVICE float merged(const AttentionF16Args &a, i32 token, i32 head, i32 first, i32 last, u32 column) {
    const float *from = a.partial + (i64)(token * a.heads + head) * a.n_chunks * (D + 2);
    Merge state = {NONE, 0, 0, 0};
    float y = 0;
    for (i32 chunk = first; chunk <= last; chunk++) {
        const volatile float *part = from + (i64)chunk * (D + 2);
        state.add(part[D], part[D + 1]);
        y = fused(y, state.old_factor, part[column] * state.new_factor);
    }
    float factor, sum = with_sink(a, state.most, state.sum, head, factor);
    return divide(y * factor, sum);
}

template <int D> DEVICE void split(const AttentionF16Args &a) {
    constexpr u32 STRIDE = D * 2 + 16;
    SHARED int4_t room[CHUNK * STRIDE / 16];
    u8 *values = (u8 *)room;
    SHARED u32 shares[16][CHUNK / 2 + 4];
    SHARED float most[4][16];
    SHARED float sums[4][16];
    grid_release();
    grid_wait();
    i32 chunk = (i32)bid_x(), first = chunk * (i32)CHUNK;
    u32 kv = bid_y(), g = lane() / 4, c = lane() % 4, w = group();
    // The rows of one block belong to one token: a chunk is a place in one sequence.
    i32 per_token = (a.share + 15) / 16, token = (i32)bid_z() / per_token, base = (i32)bid_z() % per_token * 16;
    i32 position = a.position[token], sequence = a.sequence[token];
    if (first > position || (a.window > 0 && first + (i32)CHUNK <= position - a.window + 1)) return;
    i32 n_cells = min_i((i32)CHUNK, position - first + 1);
    i64 cell = cell_at(a, sequence, first);
    const u8 *v = (const u8 *)a.v + a.v_nb[0] * kv + a.v_nb[1] * cell;
    fetch_rows<D>(values, v, a.v_nb[1], a.window > 0 ? position - a.window + 1 - first : 0, n_cells);
    copy_commit();
    Row rows[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        i32 r = base + (i32)g + 8 * i;
        bool there = r < a.share;
        rows[i] = {token, (i32)kv * a.share + (there ? r : 0), position, there};
    }
    u32 q[D / 16][4];
    load_q<D>(q, a, rows);
    // This group's 16 keys.
    float s[2][4];
    const u8 *keys = (const u8 *)a.k + a.k_nb[0] * kv + a.k_nb[1] * (cell + 16 * w);
    logits<D>(s[0], q, keys, a.k_nb[1]);
    logits<D>(s[1], q, keys + 8 * a.k_nb[1], a.k_nb[1]);
    float m[2] = {NONE, NONE};
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            s[n][e] = seen(a, s[n][e], first + (i32)(16 * w + 8 * n + 2 * c + e % 2), position);
            m[e / 2] = maximum(m[e / 2], s[n][e]);
        }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        m[i] = row_max(m[i]);
        if (c == 0) most[w][g + 8 * i] = m[i];
    }
    barrier();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        u32 r = g + 8 * i;
        m[i] = maximum(maximum(most[0][r], most[1][r]), maximum(most[2][r], most[3][r]));
        float p[4] = {share_of(s[0][2 * i], m[i]), share_of(s[0][2 * i + 1], m[i]), share_of(s[1][2 * i], m[i]), share_of(s[1][2 * i + 1], m[i])};
        float sum = row_sum((p[0] + p[1]) + (p[2] + p[3]));
        if (c == 0) sums[w][r] = sum;
        shares[r][8 * w + c] = halves(p[0], p[1]);
        shares[r][8 * w + 4 + c] = halves(p[2], p[3]);
    }
    copy_wait<0>();
    barrier();
    u32 p[4][4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        p[k][0] = shares[g][8 * k + c], p[k][1] = shares[g + 8][8 * k + c];
        p[k][2] = shares[g][8 * k + 4 + c], p[k][3] = shares[g + 8][8 * k + 4 + c];
    }
    // This group's quarter of the columns.
    float out[D / 32][4];
    weighted<D / 32>(out, p, values, STRIDE, w * (D / 4));
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (!rows[i].there) continue;
        float *to = a.partial + ((i64)(rows[i].token * a.heads + rows[i].head) * a.n_chunks + chunk) * (D + 2);
#pragma unroll
        for (int n = 0; n < D / 32; n++) *(float2_t *)(to + w * (D / 4) + 8 * n + 2 * c) = {out[n][2 * i], out[n][2 * i + 1]};
        if (w == 0 && c == 0) {
            u32 r = g + 8 * i;
            *(float2_t *)(to + D) = {m[i], ((sums[0][r] + sums[1][r]) + sums[2][r]) + sums[3][r]};
        }
    }
    if (!a.merges) return;
    i32 last = position / (i32)CHUNK, begin = a.window > 0 ? max_i(0, position - a.window + 1) / (i32)CHUNK : 0;
    if (!is_last(a.done + (bid_z() * (u32)(a.heads / a.share) + kv), (u32)(last - begin + 1))) return;
    // All rows of this group: their values in shared memory first, so that they can be rounded by fours.
    float *result = (float *)room;
    u32 n_rows = (u32)min_i(16, a.share - base), n = n_rows * D;
    i32 head = (i32)kv * a.share + base;
    for (u32 i = tid(); i < n; i += 128) {
        float y = merged<D>(a, token, head + (i32)(i / D), begin, last, i % D);
        result[i] = y;
        ((float *)((char *)a.out + a.out_nb[0] * (head + (i32)(i / D)) + a.out_nb[1] * token))[i % D] = y;
    }
    if (!a.xq) return;
    barrier();
    if (!a.xs) {
        // Records: rows of one kv head are whole ones, or the host does not ask for it.
        for (u32 at = 256 * w; at < n; at += 1024) {
            const float *x = result + at + run_of(lane());
            const Records to = {(u8 *)a.xq, (u32)a.t, 0};
            store_record(*(const float4_t *)x, *(const float4_t *)(x + 32), to, ((u32)head * D + at) / 256, (u32)token);
        }
        return;
    }
    i64 to = ((i64)token * a.heads + head) * D;
    for (u32 at = 0; at < n; at += 512) {
        u32 i = at + tid() * 4;
        float4_t x = i < n ? *(const float4_t *)(result + i) : float4_t{0, 0, 0, 0};
        float2_t scale;
        u32 packed = round_to_bytes(x, scale);
        if (i >= n) continue;
        *(u32 *)(a.xq + to + i) = packed;
        if (i % 32 == 0) a.xs[(to + i) / 32] = scale;
    }
}

template <int D> DEVICE void merge(const AttentionF16Args &a) {
    grid_release();
    grid_wait();
    i32 head = (i32)bid_x(), token = (i32)bid_y(), position = a.position[token];
    i32 last = position / (i32)CHUNK, first = a.window > 0 ? max_i(0, position - a.window + 1) / (i32)CHUNK : 0;
    float *out = (float *)((char *)a.out + a.out_nb[0] * head + a.out_nb[1] * token);
    out[tid()] = merged<D>(a, token, head, first, last, tid());
}

template <int D> DEVICE void tiled(const AttentionF16Args &a) {
    constexpr u32 STRIDE = D * 2 + 16;
    u8 *keys = dynamic_shared(), *values = keys + CHUNK * STRIDE;
    grid_release();
    grid_wait();
    u32 kv = bid_y(), g = lane() / 4, c = lane() % 4, w = group();
    // The tiles with the longest way first: they would be the last to end otherwise.
    i32 tile = (i32)(grid_x() - 1 - bid_x()), base = tile * 64;
    Row rows[2] = {row_of(a, kv, base + (i32)(16 * w + g)), row_of(a, kv, base + (i32)(16 * w + g + 8))};
    i32 t_first = base / a.share, t_last = min_i((base + 63) / a.share, a.t - 1);
    u32 q[D / 16][4];
    load_q<D>(q, a, rows);
    Merge state[2] = {{NONE, 0, 0, 0}, {NONE, 0, 0, 0}};
    float out[D / 8][4];
#pragma unroll
    for (int n = 0; n < D / 8; n++) out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0;
    // Tokens of one sequence at a time; a step has nearly always only one.
    for (i32 run = t_first, run_end; run <= t_last; run = run_end) {
        i32 sequence = a.sequence[run], lowest = 0x7fffffff, highest = 0;
        for (run_end = run; run_end <= t_last && a.sequence[run_end] == sequence; run_end++)
            lowest = min_i(lowest, a.position[run_end]), highest = max_i(highest, a.position[run_end]);
        const bool mine[2] = {rows[0].token >= run && rows[0].token < run_end, rows[1].token >= run && rows[1].token < run_end};
        i32 begin = a.window > 0 ? max_i(0, lowest - a.window + 1) / (i32)CHUNK : 0;
    // Keys of the next chunk come while this one's values are used, and its values while the next keys are.
    auto fetch = [&](u8 *to, const u16 *cache, i64 head, i64 stride, i32 chunk) {
        i32 first = chunk * (i32)CHUNK;
        if (first <= highest) {
            i32 n_cells = min_i((i32)CHUNK, highest - first + 1), first_cell = a.window > 0 ? lowest - a.window + 1 - first : 0;
            fetch_rows<D>(to, (const u8 *)cache + head * kv + stride * cell_at(a, sequence, first), stride, first_cell, n_cells);
        }
        copy_commit();
    };
    barrier();
    fetch(keys, a.k, a.k_nb[0], a.k_nb[1], begin);
    fetch(values, a.v, a.v_nb[0], a.v_nb[1], begin);
    for (i32 chunk = begin; chunk * (i32)CHUNK <= highest; chunk++) {
        i32 first = chunk * (i32)CHUNK;
        copy_wait<1>();
        barrier();
        float s[8][4], m[2] = {NONE, NONE};
        // Chunks that every row sees whole, as most are, need no questions asked of each logit.
        const bool whole = run == t_first && run_end == t_last + 1 && first + (i32)CHUNK - 1 <= lowest && a.window <= 0 && a.cap <= 0;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            logits<D>(s[n], q, keys + 8 * n * STRIDE, STRIDE);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                if (whole) s[n][e] = s[n][e] * a.scale;
                else s[n][e] = mine[e / 2] ? seen(a, s[n][e], first + (i32)(8 * n + 2 * c) + e % 2, rows[e / 2].position) : NONE;
                m[e / 2] = maximum(m[e / 2], s[n][e]);
            }
        }
        barrier();
        fetch(keys, a.k, a.k_nb[0], a.k_nb[1], chunk + 1);
        u32 p[4][4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            m[i] = row_max(m[i]);
            float all = 0;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float x[4] = {share_of(s[2 * k][2 * i], m[i]), share_of(s[2 * k][2 * i + 1], m[i]),
                              share_of(s[2 * k + 1][2 * i], m[i]), share_of(s[2 * k + 1][2 * i + 1], m[i])};
                float sum = row_sum((x[0] + x[1]) + (x[2] + x[3]));
                all = k == 0 ? sum : all + sum;
                p[k][i] = halves(x[0], x[1]), p[k][i + 2] = halves(x[2], x[3]);
            }
            state[i].add(m[i], all);
        }
        copy_wait<1>();
        barrier();
        // Half of the columns at a time: the chunk's own sum is a register file of its own.
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float part[D / 16][4];
            weighted<D / 16>(part, p, values, STRIDE, half * (D / 2));
#pragma unroll
            for (int n = 0; n < D / 16; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float *y = &out[half * (D / 16) + n][e];
                    *y = fused(*y, state[e / 2].old_factor, part[n][e] * state[e / 2].new_factor);
                }
        }
        barrier();
        fetch(values, a.v, a.v_nb[0], a.v_nb[1], chunk + 1);
    }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (!rows[i].there) continue;
        float factor, sum = with_sink(a, state[i].most, state[i].sum, rows[i].head, factor);
        float *to = (float *)((char *)a.out + a.out_nb[0] * rows[i].head + a.out_nb[1] * rows[i].token);
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int e = 0; e < 2; e++) to[8 * n + 2 * c + e] = divide(out[n][2 * i + e] * factor, sum);
    }
}

#define ATTENTION(D) \
    KERNEL LAUNCH_BOUNDS(128, 1) attention_split_##D(AttentionF16Args args) { split<D>(args); } \
    KERNEL LAUNCH_BOUNDS(D, 1) attention_merge_##D(AttentionF16Args args) { merge<D>(args); } \
    KERNEL LAUNCH_BOUNDS(128, 1) attention_tiled_##D(AttentionF16Args args) { tiled<D>(args); }
ATTENTION(64)
ATTENTION(128)
ATTENTION(256)
#endif
