// Products with chosen experts, a slot (token, choice) at a time, and the ordering of slots by expert for the tiled form.
//
// Computes: out [slot][m] = W[expert of the slot] · x of the slot, or act(gate) · up; zero where the expert is not here.
// Launch: moev_*, moex_*: 128 work-items, grid (ceil(m / rows), k · t), dynamic shared memory 4 · rows · ceil(kdim / 256) · (act >= 0 ? 2 : 1).
// moes: one block of 1024 work-items; dynamic shared memory 4 · (n_experts + 1).
// Assumes, must match: as mmv.h and mmx.h; the sums are those of MatMul, bit for bit. ExpertMatMul of the ABI.
// GEOMETRY moev_* cols=1 block=128 shared=4*rows*ceil(kdim/256)*(act>=0?2:1)
// GEOMETRY moex_* cols=1 block=128 shared=4*rows*ceil(kdim/256)*(act>=0?2:1)
#include "mmv.h"
#include "mmx.h"

// The expert's place in `w` for a slot, or -1.
DEVICE i32 place_of(const ExpertArgs &a, u32 slot) {
    i32 expert = a.ids[slot];
    return a.table ? a.table[expert] : expert;
}

DEVICE void store_slot(const ExpertArgs &a, u32 slot, u32 row, u32 n_rows, const float *partial, u32 n_chunks) {
    for (u32 r = tid(); r < n_rows; r += block_size()) {
        float y = chunk_total(partial + r * n_chunks, n_chunks);
        if (a.act >= 0) y = gated(a.act, y, chunk_total(partial + (n_rows + r) * n_chunks, n_chunks), a.act_f0, a.act_f1);
        a.out[(i64)slot * a.out_stride + row + r] = y;
    }
}

DEVICE void zero_slot(const ExpertArgs &a, u32 slot, u32 row, u32 n_rows) {
    // The activation of zero is zero for every unit but one that adds to `up`: times gate 0 it is zero too.
    for (u32 r = tid(); r < n_rows; r += block_size()) a.out[(i64)slot * a.out_stride + row + r] = 0;
}

template <class F> DEVICE void moev(const ExpertArgs &a) {
    SHARED Stages<F, 2> stages;
    grid_release();
    F::prepare();
    // Which weights to fetch is itself a result of the kernel before.
    grid_wait();
    float *partial = (float *)dynamic_shared();
    const u32 slot = bid_y(), row = bid_x() * (u32)a.rows, n_rows = (u32)min_i(a.rows, a.m - (i32)row), k = (u32)a.kdim;
    const i32 place = place_of(a, slot);
    if (place < 0) return zero_slot(a, slot, row, n_rows);
    const i64 from = place * a.w_expert_stride + row * a.w_stride, x = a.x_per_slot ? slot : slot / (u32)a.k;
    const u32 stride = n_rows * ceil_div(k, 256);
    const i8 *xq = a.xq + x * k;
    const float2_t *xs = a.xs + x * (k / 32);
    mmv_one<F>(stages, partial, Rows{a.w[0] + from, a.w_stride}, n_rows, k, xq, xs, [] {});
    if (a.act >= 0) mmv_one<F>(stages, partial + stride, Rows{a.w[1] + from, a.w_stride}, n_rows, k, xq, xs, [] {});
    store_slot(a, slot, row, n_rows, partial, ceil_div(k, 256));
}

template <class F> DEVICE void moex(const ExpertArgs &a) {
    grid_release();
    F::prepare();
    grid_wait();
    float *partial = (float *)dynamic_shared();
    const u32 slot = bid_y(), row = bid_x() * (u32)a.rows, n_rows = (u32)min_i(a.rows, a.m - (i32)row), k = (u32)a.kdim;
    const i32 place = place_of(a, slot);
    if (place < 0) return zero_slot(a, slot, row, n_rows);
    const i64 from = place * a.w_expert_stride + row * a.w_stride;
    const float *x = a.x + (i64)a.x_stride * (a.x_per_slot ? slot : slot / (u32)a.k);
    mmx_chunks<F, 1>(partial, a.w[0] + from, a.w_stride, n_rows, k, &x);
    if (a.act >= 0) mmx_chunks<F, 1>(partial + n_rows * ceil_div(k, 256), a.w[1] + from, a.w_stride, n_rows, k, &x);
    store_slot(a, slot, row, n_rows, partial, ceil_div(k, 256));
}

struct SortArgs {
    const i32 *ids;
    // Not used: an expert that is not here keeps its slots, whose results are zero.
    const i32 *table;
    // [n_experts + 1]: where the slots of each expert begin.
    i32 *offsets;
    // [n_slots]: slots by expert. Their order within one differs from run to run; no result depends on it.
    i32 *sorted_rows;
    i32 n_slots;
    i32 n_experts;
};

KERNEL LAUNCH_BOUNDS(1024, 1) moes(SortArgs a) {
    grid_release();
    grid_wait();
    // Slots of each expert, then the next free place of each.
    i32 *counts = (i32 *)dynamic_shared();
    SHARED i32 sums[32];
    const i32 n_experts = a.n_experts, me = (i32)tid();
    for (i32 e = me; e < n_experts; e += 1024) counts[e] = 0;
    barrier();
    for (i32 slot = me; slot < a.n_slots; slot += 1024) __atomic_fetch_add(counts + a.ids[slot], 1, __ATOMIC_RELAXED);
    barrier();
    i32 before = 0;
    for (i32 first = 0; first < n_experts; first += 1024) {
        const i32 e = first + me, count = e < n_experts ? counts[e] : 0;
        // Inclusive sums over 32 lanes, then over the groups.
        i32 sum = count;
        for (u32 d = 1; d < LANES; d *= 2) {
            i32 other = shfl_i(sum, lane() >= d ? lane() - d : lane());
            if (lane() >= d) sum += other;
        }
        if (lane() == LANES - 1) sums[group()] = sum;
        barrier();
        i32 total = before;
        for (u32 g = 0; g < 32; g++) {
            if (g < group()) sum += sums[g];
            total += sums[g];
        }
        if (e < n_experts) {
            a.offsets[e] = before + sum - count;
            counts[e] = before + sum - count;
        }
        before = total;
        barrier();
    }
    if (me == 0) a.offsets[n_experts] = before;
    for (i32 slot = me; slot < a.n_slots; slot += 1024)
        a.sorted_rows[__atomic_fetch_add(counts + a.ids[slot], 1, __ATOMIC_RELAXED)] = slot;
}

#define MOE(name, F) \
    KERNEL LAUNCH_BOUNDS(128, 1) moev_##name(ExpertArgs args) { moev<F>(args); } \
    KERNEL LAUNCH_BOUNDS(128, 1) moex_##name(ExpertArgs args) { moex<F>(args); }
EACH_FORMAT(MOE)

#define MOE_PLAIN(name, F) KERNEL LAUNCH_BOUNDS(128, 1) moex_##name(ExpertArgs args) { moex<F>(args); }
MOE_PLAIN(f32, F32) MOE_PLAIN(f16, F16) MOE_PLAIN(bf16, BF16)
