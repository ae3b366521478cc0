// The decode product over bytes: y = W x for 1 to 8 columns at a time, every weight byte read once, any number of columns by the grid.
//
// Computes: out[p][c][r] = Σ_k W[p][r][k] · x[c][k] (+ bias) (+ residual), or act(gate) · up. Activations: bytes with a scale per 32.
// Launch: 128 work-items; grid (Σ_p ceil(m[p] / rows), ceil(t / T)), with act: ceil(m[0] / rows). Dynamic shared memory: 4 · rows · T ·
// ceil(k / 256) bytes, twice that with act. `rows` any number; 1, 2, 4, 8 are sensible: enough blocks to fill the card.
// Assumes: weights aligned to the format's ALIGN, and readable up to the next multiple of 16 bytes beyond their ends; xq aligned to 16.
// Must match: MatMul of the ABI in default mode, in the canonical order of matmul.h. Tolerance: the kit's 8-bit class.
// Why not simpler: one lane a row reads 144-byte blocks that no two lanes share a line of; here four lanes share a chunk, weights go
// through shared memory by asynchronous copies, so that a block of any odd size (210, 34, 17 bytes) is fetched by aligned 16-byte
// pieces and several chunks a lane are under way. docs/KERNELS.md has the measurement.
#pragma once
#if !defined(STRATA_BLOCK)
#define STRATA_BLOCK 128
#endif
#include "matmul.h"

#ifndef MMV_ONCE
#define MMV_ONCE 2
#endif
constexpr u32 MMV_THREADS = 128, MMV_WAVES = MMV_THREADS / LANES;

// What the lanes of a wave (32 of them) fetch ahead: AT_ONCE · 8 chunks a stage. Room for chunks that lie one after another and begin
// anywhere within 16 bytes, or for each in a slot of its own.
template <class F, int AT_ONCE> struct Stages {
    static constexpr u32 N = 4 / AT_ONCE, CHUNKS = 8 * AT_ONCE;
    static constexpr u32 SLOT = (F::CHUNK_BYTES + (F::ALIGN >= 16 ? 0 : 16 - F::ALIGN) + 15) / 16 * 16;
    alignas(16) u8 bytes[MMV_WAVES][N][CHUNKS * SLOT];
    u64 done[MMV_WAVES][N];
};

// Rows of one weight from `w` on.
struct Rows {
    const u8 *w;
    i64 stride;
};

// The chunks of n_rows rows of one weight: their sums go to partial[column · partial_stride + row · n_chunks + chunk]. Four lanes share a
// chunk. `begin` is called once when the first copies are under way: until then nothing is read that a kernel before this one wrote.
template <class F, int T, int AT_ONCE, class Begin>
DEVICE void mmv_chunks(Stages<F, AT_ONCE> &stages, float *partial, u32 partial_stride, const Rows &rows, u32 n_rows, u32 k, u32 columns,
                       const i8 *xq, const float2_t *xs, const Begin &begin) {
    using S = Stages<F, AT_ONCE>;
    constexpr u32 COLUMNS_AT_ONCE = T < 4 ? T : 2;
    const u32 n_chunks = ceil_div(k, 256), n_blocks = k / F::BLOCK, per_chunk = 256 / F::BLOCK, total = n_rows * n_chunks;
    const u32 wave = group(), quad = lane() / 4, j = lane() % 4, leader = lane() & ~3u;
    // Rows without gaps and of whole chunks are one run of bytes.
    const bool run = rows.stride == (i64)n_chunks * F::CHUNK_BYTES;
    u64 *done = stages.done[wave];
    auto address = [&](u32 at) {
        if (run) return rows.w + (i64)at * F::CHUNK_BYTES;
        return rows.w + (i64)(at / n_chunks) * rows.stride + (i64)(at % n_chunks) * F::CHUNK_BYTES;
    };
    auto blocks_of = [&](u32 chunk) { return (u32)min_i((i32)per_chunk, (i32)(n_blocks - chunk * per_chunk)); };
    // Where chunk `at`, number `place` of its stage, lies in the stage.
    auto offset = [&](u32 first, u32 at, u32 place) {
        if (run) return ((u32)(u64)address(first) & 15) + place * F::CHUNK_BYTES;
        return place * S::SLOT + ((u32)(u64)address(at) & 15);
    };
    auto fetch = [&](u32 first, u32 stage) {
        u8 *to = stages.bytes[wave][stage];
        if (first < total) {
            const u32 n = (u32)min_i((i32)S::CHUNKS, (i32)(total - first));
            if (run) {
                const u8 *from = address(first), *start = (const u8 *)((u64)from & ~15ull);
                const u32 bytes = ((u32)(from - start) + n * F::CHUNK_BYTES + 15) & ~15u;
#if defined(STRATA_BULK_COPY)
                if (lane() == 0) {
                    bulk_expect(done + stage, bytes);
                    bulk_copy(to, start, bytes, done + stage);
                }
#else
#pragma unroll
                for (u32 i = 0; i < (S::CHUNKS * F::CHUNK_BYTES + 30) / 16; i += LANES)
                    if (16 * (i + lane()) < bytes) copy16_async(to + 16 * (i + lane()), start + 16 * (i + lane()));
#endif
            } else {
#if defined(STRATA_BULK_COPY)
                // The gaps are fetched by plain loads; the announcement is of nothing.
                if (lane() == 0) bulk_expect(done + stage, 0);
#endif
                for (u32 place = quad; place < n; place += 8) {
                    const u8 *from = address(first + place), *start = (const u8 *)((u64)from & ~15ull);
                    const u8 *end = from + blocks_of((first + place) % n_chunks) * F::BYTES;
                    for (u32 i = j; start + 16 * i < end; i += 4)
                        *(u32x4 *)(to + place * S::SLOT + 16 * i) = *(const u32x4 *)(start + 16 * i);
                }
            }
        }
#if !defined(STRATA_BULK_COPY)
        copy_commit();
#endif
    };
#if defined(STRATA_BULK_COPY)
    if (lane() == 0)
        for (u32 i = 0; i < S::N; i++) bulk_init(done + i);
    wave_barrier();
#endif
    const u32 step = MMV_WAVES * S::CHUNKS;
    u32 first = wave * S::CHUNKS, ahead = first;
    for (u32 i = 0; i < S::N; i++, ahead += step) fetch(ahead, i);
    begin();
    // Chunk within its row, stepped without division.
    u32 chunk[AT_ONCE];
    const u32 chunk_step = step % n_chunks;
    for (u32 r = 0; r < AT_ONCE; r++) chunk[r] = (first + quad + 8 * r) % n_chunks;
    for (u32 stage = 0, phase = 0; first < total; first += step) {
#if defined(STRATA_BULK_COPY)
        bulk_wait(done + stage, phase);
#else
        copy_wait<S::N - 1>();
#endif
        wave_barrier();
        Pair pair[AT_ONCE];
        u32 n[AT_ONCE];
        bool there[AT_ONCE];
#pragma unroll
        for (u32 r = 0; r < AT_ONCE; r++) {
            const u32 at = first + quad + 8 * r;
            there[r] = at < total;
            n[r] = there[r] ? blocks_of(chunk[r]) : 1;
            F::pair(stages.bytes[wave][stage] + (there[r] ? offset(first, at, quad + 8 * r) : 0), j, n[r], pair[r]);
        }
#pragma unroll COLUMNS_AT_ONCE
        for (u32 c = 0; c < T; c++) {
            // A column that is not there repeats the first.
            const u32 column = c < columns ? c : 0;
            GroupSum sums[AT_ONCE][2];
            float2_t scales[AT_ONCE][2];
            float s[AT_ONCE];
#pragma unroll
            for (u32 r = 0; r < AT_ONCE; r++) {
                s[r] = 0;
#pragma unroll
                for (u32 h = 0; h < 2; h++) {
                    // A group that is not there (the end of a row of 32-blocks) reads the chunk's first.
                    u32 g = F::group(j, h), at = (there[r] ? chunk[r] * 8 : 0) + (F::BLOCK == 256 || g < n[r] ? g : 0);
                    const u32x4 *x = (const u32x4 *)(xq + column * k + 32 * at);
                    u64 scale = *(const u64 *)(xs + column * (k / 32) + at);
                    scales[r][h] = {float_of((u32)scale), float_of((u32)(scale >> 32))};
                    sums[r][h] = group_sums<F>(pair[r], (int)h, x[0], x[1]);
                }
            }
            // The sum goes from lane to lane of the four.
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
#pragma unroll
                for (u32 r = 0; r < AT_ONCE; r++) {
                    float next = i == 0 ? 0.0f : shfl(s[r], leader + i - 1);
#pragma unroll
                    for (u32 h = 0; h < 2; h++) {
                        float with = chain<F>(next, pair[r].d[h], pair[r].m[h], pair[r].dmin, (float)sums[r][h].dot,
                                              (float)sums[r][h].min, scales[r][h]);
                        next = F::BLOCK == 256 || F::group(j, h) < n[r] ? with : next;
                    }
                    s[r] = i == j ? next : s[r];
                }
            }
#pragma unroll
            for (u32 r = 0; r < AT_ONCE; r++)
                if (j == 3 && there[r]) partial[c * partial_stride + first + quad + 8 * r] = s[r];
        }
        wave_barrier();
        fetch(ahead, stage);
        ahead += step;
        stage++;
        if (stage == S::N) stage = 0, phase ^= 1;
#pragma unroll
        for (u32 r = 0; r < AT_ONCE; r++) {
            chunk[r] += chunk_step;
            if (chunk[r] >= n_chunks) chunk[r] -= n_chunks;
        }
    }
    barrier();
#if defined(STRATA_BULK_COPY)
    // A second weight starts with stages of its own.
    if (lane() == 0)
        for (u32 i = 0; i < S::N; i++) bulk_end(done + i);
    wave_barrier();
#endif
}

// One column: its activations stay in registers while rows go by. A set of up to 32 chunks of the row is dealt to the block's 32 quads,
// as many rows at once as fit; rows of more chunks are walked once per set. Arguments and results as mmv_chunks.
template <class F, int AT_ONCE, class Begin>
DEVICE void mmv_one(Stages<F, AT_ONCE> &stages, float *partial, const Rows &rows, u32 n_rows, u32 k, const i8 *xq, const float2_t *xs,
                    const Begin &begin) {
    using S = Stages<F, AT_ONCE>;
    const u32 n_chunks = ceil_div(k, 256), n_blocks = k / F::BLOCK, per_chunk = 256 / F::BLOCK;
    const u32 n_sets = ceil_div(n_chunks, 32), set_size = ceil_div(n_chunks, n_sets), at_a_time = 32 / set_size;
    const u32 wave = group(), quad = tid() / 4, j = tid() % 4, leader = lane() & ~3u;
    const u32 row_of = quad / set_size, chunk_of = quad % set_size;
    const bool run = rows.stride == (i64)n_chunks * F::CHUNK_BYTES && (n_sets == 1 || at_a_time == 1);
    const u32 step = at_a_time * AT_ONCE;
    u64 *done = stages.done[wave];
    auto blocks_of = [&](u32 chunk) { return (u32)min_i((i32)per_chunk, (i32)(n_blocks - chunk * per_chunk)); };
    // The first quad of this wave, and how many of its eight have work in a full round of `have` rows.
    const u32 first_quad = 8 * wave;
    auto fetch = [&](u32 set, u32 row, u32 stage) {
        u8 *to = stages.bytes[wave][stage];
        const u32 set_chunks = (u32)min_i((i32)set_size, (i32)(n_chunks - set * set_size));
        if (run) {
            u32 total = 0;
#pragma unroll
            for (u32 r = 0; r < AT_ONCE; r++) {
                const u32 at = row + r * at_a_time, have = at < n_rows ? (u32)min_i((i32)at_a_time, (i32)(n_rows - at)) * set_chunks : 0;
                const u32 n = have > first_quad ? (u32)min_i(8, (i32)(have - first_quad)) : 0;
                const u8 *from = rows.w + (i64)at * rows.stride + (i64)(set * set_size + first_quad) * F::CHUNK_BYTES;
                const u8 *start = (const u8 *)((u64)from & ~15ull);
                const u32 bytes = n ? ((u32)(from - start) + n * F::CHUNK_BYTES + 15) & ~15u : 0;
#if defined(STRATA_BULK_COPY)
                if (lane() == 0 && n) bulk_copy(to + r * 8 * S::SLOT, start, bytes, done + stage);
                total += bytes;
#else
#pragma unroll
                for (u32 i = 0; i < (8 * F::CHUNK_BYTES + 30) / 16; i += LANES)
                    if (16 * (i + lane()) < bytes) copy16_async(to + r * 8 * S::SLOT + 16 * (i + lane()), start + 16 * (i + lane()));
#endif
            }
#if defined(STRATA_BULK_COPY)
            if (lane() == 0) bulk_expect(done + stage, total);
#endif
        } else {
#if defined(STRATA_BULK_COPY)
            // Rows with gaps come by plain loads; nothing is announced.
            if (lane() == 0) bulk_expect(done + stage, 0);
#endif
            for (u32 r = 0; r < AT_ONCE; r++) {
                const u32 at = row + r * at_a_time + row_of, chunk = set * set_size + chunk_of;
                if (row_of >= at_a_time || at >= n_rows || chunk >= n_chunks) continue;
                const u8 *from = rows.w + (i64)at * rows.stride + (i64)chunk * F::CHUNK_BYTES, *end = from + blocks_of(chunk) * F::BYTES;
                const u8 *start = (const u8 *)((u64)from & ~15ull);
                for (u32 i = j; start + 16 * i < end; i += 4)
                    *(u32x4 *)(to + (8 * r + quad - first_quad) * S::SLOT + 16 * i) = *(const u32x4 *)(start + 16 * i);
            }
        }
#if !defined(STRATA_BULK_COPY)
        copy_commit();
#endif
    };
#if defined(STRATA_BULK_COPY)
    if (lane() == 0)
        for (u32 i = 0; i < S::N; i++) bulk_init(done + i);
    wave_barrier();
#endif
    // What is fetched runs ahead of what is computed, over the end of a set into the next.
    u32 ahead_set = 0, ahead_row = 0, ahead = 0;
    auto fetch_next = [&] {
        if (ahead_set < n_sets) {
            fetch(ahead_set, ahead_row, ahead);
            ahead_row += step;
            if (ahead_row >= n_rows) ahead_row = 0, ahead_set++;
        } else {
#if !defined(STRATA_BULK_COPY)
            copy_commit();
#endif
        }
        ahead = ahead + 1 == S::N ? 0 : ahead + 1;
    };
    for (u32 i = 0; i < S::N; i++) fetch_next();
    begin();
    u32 stage = 0, phase = 0;
    for (u32 set = 0; set < n_sets; set++) {
        const u32 chunk = set * set_size + chunk_of;
        const bool mine = row_of < at_a_time && chunk_of < set_size && chunk < n_chunks;
        const u32 n = mine ? blocks_of(chunk) : 1;
        u32x4 x[2][2];
        float2_t scales[2];
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            u32 g = F::group(j, h), at = (mine ? chunk * 8 : 0) + (F::BLOCK == 256 || g < n ? g : 0);
            x[h][0] = ((const u32x4 *)(xq + 32 * at))[0], x[h][1] = ((const u32x4 *)(xq + 32 * at))[1];
            scales[h] = xs[at];
        }
        for (u32 row = 0; row < n_rows; row += step) {
#if defined(STRATA_BULK_COPY)
            bulk_wait(done + stage, phase);
#else
            copy_wait<S::N - 1>();
#endif
            wave_barrier();
            float s[AT_ONCE];
            Pair pair[AT_ONCE];
            GroupSum sums[AT_ONCE][2];
#pragma unroll
            for (u32 r = 0; r < AT_ONCE; r++) {
                u32 at = row + r * at_a_time;
                const u8 *from = rows.w + (i64)at * rows.stride + (i64)(set * set_size + first_quad) * F::CHUNK_BYTES;
                u32 offset = ((u32)(u64)from & 15) + (quad - first_quad) * F::CHUNK_BYTES;
                if (!run) {
                    at += row_of;
                    offset = (quad - first_quad) * S::SLOT + ((u32)(u64)(rows.w + (i64)at * rows.stride + (i64)chunk * F::CHUNK_BYTES) & 15);
                }
                F::pair(stages.bytes[wave][stage] + r * 8 * S::SLOT + offset, j, n, pair[r]);
                s[r] = 0;
#pragma unroll
                for (u32 h = 0; h < 2; h++) sums[r][h] = group_sums<F>(pair[r], (int)h, x[h][0], x[h][1]);
            }
            wave_barrier();
            fetch_next();
            // The sum goes from lane to lane of the four.
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
#pragma unroll
                for (u32 r = 0; r < AT_ONCE; r++) {
                    float next = i == 0 ? 0.0f : shfl(s[r], leader + i - 1);
#pragma unroll
                    for (u32 h = 0; h < 2; h++) {
                        float with = chain<F>(next, pair[r].d[h], pair[r].m[h], pair[r].dmin, (float)sums[r][h].dot,
                                              (float)sums[r][h].min, scales[h]);
                        next = F::BLOCK == 256 || F::group(j, h) < n ? with : next;
                    }
                    s[r] = i == j ? next : s[r];
                }
            }
#pragma unroll
            for (u32 r = 0; r < AT_ONCE; r++) {
                const u32 at = row + r * at_a_time + row_of;
                if (j == 3 && mine && at < n_rows) partial[at * n_chunks + chunk] = s[r];
            }
            stage++;
            if (stage == S::N) stage = 0, phase ^= 1;
        }
    }
    barrier();
#if defined(STRATA_BULK_COPY)
    // A second weight starts with stages of its own.
    if (lane() == 0)
        for (u32 i = 0; i < S::N; i++) bulk_end(done + i);
    wave_barrier();
#endif
}

template <class F, int T> DEVICE void mmv(const MatMulArgs &a) {
    constexpr int AT_ONCE = T == 1 ? MMV_ONCE : 1;
    SHARED Stages<F, AT_ONCE> stages;
    grid_release();
    F::prepare();
    float *partial = (float *)dynamic_shared();
    // Which of the weights this block works on.
    u32 part = 0, tile = bid_x();
    const bool gated_unit = a.act >= 0;
    if (!gated_unit)
        for (u32 p = 0; p + 1 < (u32)a.n_parts; p++) {
            u32 tiles = ceil_div((u32)a.m[p], (u32)a.rows);
            if (part == p && tile >= tiles) tile -= tiles, part = p + 1;
        }
    const u8 *w = part == 0 ? a.w[0] : part == 1 ? a.w[1] : a.w[2];
    const u32 m = (u32)(part == 0 ? a.m[0] : part == 1 ? a.m[1] : a.m[2]);
    const u32 row = tile * (u32)a.rows, n_rows = (u32)min_i(a.rows, (i32)(m - row)), k = (u32)a.k, n_chunks = ceil_div(k, 256);
    const u32 first = bid_y() * T, columns = (u32)min_i(T, a.t - (i32)first), stride = n_rows * n_chunks;
    const i8 *xq = a.xq + (i64)first * k;
    const float2_t *xs = a.xs + (i64)first * (k / 32);
    const Rows rows = {w + (i64)row * a.w_stride, a.w_stride}, others = {a.w[1] + (i64)row * a.w_stride, a.w_stride};
    if constexpr (T == 1) {
        mmv_one<F>(stages, partial, rows, n_rows, k, xq, xs, [] { grid_wait(); });
        if (gated_unit) mmv_one<F>(stages, partial + stride, others, n_rows, k, xq, xs, [] {});
    } else {
        mmv_chunks<F, T>(stages, partial, stride, rows, n_rows, k, columns, xq, xs, [] { grid_wait(); });
        if (gated_unit) mmv_chunks<F, T>(stages, partial + T * stride, stride, others, n_rows, k, columns, xq, xs, [] {});
    }
    float *out = part == 0 ? a.out[0] : part == 1 ? a.out[1] : a.out[2];
    const float *bias = part == 0 ? a.bias[0] : part == 1 ? a.bias[1] : a.bias[2];
    const u32 out_stride = (u32)(part == 0 ? a.out_stride[0] : part == 1 ? a.out_stride[1] : a.out_stride[2]);
    for (u32 i = tid(); i < columns * n_rows; i += MMV_THREADS) {
        u32 c = i / n_rows, r = i % n_rows;
        i64 at = (i64)(first + c) * out_stride + row + r;
        float more = a.residual ? a.residual[at] : 0;
        float y = chunk_total(partial + c * stride + r * n_chunks, n_chunks);
        if (gated_unit) y = gated(a.act, y, chunk_total(partial + (T + c) * stride + r * n_chunks, n_chunks), a.act_f0, a.act_f1);
        else if (bias) y = plus(y, bias[row + r]);
        out[at] = a.residual ? plus(y, more) : y;
    }
}
