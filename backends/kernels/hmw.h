// Long runs over halves by warpgroups: the twin of hmm.h for compute capability 9.0, with the same bits. See halves.h.
//
// Computes: as hmm.h. Launch: 384 work-items, a tile of 128 rows and 128 columns; hmw_*: grid (Σ_p ceil(m[p] / 128), ceil(t / 128));
// hmoew_*: grid (ceil(m / 128), ceil(slots / 128) + experts). Dynamic shared memory: 2 · (16 · 4480 + 128 · SLOT) + 1024 bytes.
// Activations lie in groups of eight rows (halves.h, GROUP), as the products read them. Two warpgroups have 64 rows each and decode them
// in registers; the third fetches and leaves registers to them. A product of m64n128k16 gives what m16n8k16 gives, bit for bit (checked on the card by bench.py).
// Why not hmm.h: there a warp reads every column's halves for 32 rows only, and waits for each product; here 64 rows share them.
#pragma once
#include "hmm.h"

#if defined(STRATA_WARPGROUP)

constexpr u32 HMW_COLUMNS = 128, HMW_THREADS = 384;

template <class F> struct GroupStage {
    u8 x[HMW_COLUMNS / 8 * GROUP];
    u8 w[HMM_ROWS * F::SLOT];
};

DEVICE void group_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> DEVICE void group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
// d (64 rows x 128 columns) = a · b + (keep ? d : 0) for 16 elements; `b` describes two core matrices of eight columns by eight halves for
// each eight columns.
DEVICE void group_product(float (&d)[16][4], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, u32 keep) {
    asm volatile(
        "{\n.reg .pred keep;\nsetp.ne.b32 keep, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, keep, 1, 1, 0;\n}"
        : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]),
          "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
          "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
          "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
          "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
          "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
          "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
          "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]),
          "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
          "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]),
          "+f"(d[10][0]), "+f"(d[10][1]), "+f"(d[10][2]), "+f"(d[10][3]),
          "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]),
          "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]),
          "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]),
          "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]),
          "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(keep));
}

DEVICE void arrive(u64 *barrier_) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier_)) : "memory"); }
DEVICE void count_on(u64 *barrier_, u32 n) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier_)), "r"(n) : "memory"); }

// Signals `barrier_` when this work-item's copies so far have arrived.
DEVICE void arrive_behind_copies(u64 *barrier_) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier_)) : "memory");
}

// The fetching warpgroup: rows of weights 16 bytes a work-item (128 small bulk copies took twice the time of all products), columns by one
// bulk copy, or gathered 16 bytes at a time (`from` not null).
template <class F> DEVICE void hmw_fetch(const HalfTile &p, const i32 *from, u32 first_column, GroupStage<F> *stages, u64 *full, u64 *empty) {
    constexpr u32 PIECES = (F::BYTES + (F::ALIGN >= 16 ? 0 : 14) + 15) / 16;
    const u32 me = tid() % 128, n_groups = ceil_div(p.x_rows, 8);
    for (u32 chunk = 0; chunk < p.n_chunks; chunk++) {
        const u32 n = chunk % 2;
        GroupStage<F> &stage = stages[n];
        if (chunk >= 2) bulk_wait(empty + n, (chunk / 2 - 1) % 2);
        const u8 *x = p.x + (i64)chunk * n_groups * GROUP;
        if (!from && me == 0) {
            const u32 first = first_column / 8, count = (u32)min_i((i32)(HMW_COLUMNS / 8), (i32)(n_groups - first));
            bulk_expect(full + n, count * GROUP);
            bulk_copy(stage.x, x + (i64)first * GROUP, count * GROUP, full + n);
        } else if (me == 0) {
            bulk_expect(full + n, 0);
        }
#pragma unroll
        for (u32 i = 0; i < PIECES; i++) {
            const u32 at = i * 128 + me, r = at / PIECES, piece = 16 * (at % PIECES), row = p.row + r;
            const u8 *source = p.w + p.w_stride * (i64)(row < p.m ? row : p.m - 1) + (i64)chunk * F::BYTES, *start = (const u8 *)((u64)source & ~15ull);
            if (piece < (u32)(source - start) + F::BYTES) copy16_async(stage.w + r * F::SLOT + piece, start + piece);
        }
        if (from) {
            // A warp a column: 32 pieces, then sums and scale.
            for (u32 column = me / 32; column < HMW_COLUMNS; column += 4) {
                const i32 row = from[column];
                if (row < 0) continue;
                const u32 l = me % 32, of = column % 8, at = (u32)row % 8;
                const u8 *source = x + (i64)(row / 8) * GROUP;
                u8 *to = stage.x + column / 8 * GROUP;
                copy16_async(to + 128 * l + 16 * of, source + 128 * l + 16 * at);
                if (l < 2) copy16_async(to + GROUP_SUMS + 32 * of + 16 * l, source + GROUP_SUMS + 32 * at + 16 * l);
                if (l == 2)
                    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to + GROUP_SCALES + 4 * of)),
                                 "l"(source + GROUP_SCALES + 4 * at)
                                 : "memory");
            }
        }
        arrive_behind_copies(full + n);
    }
}

// The two warpgroups that multiply.
template <class F> DEVICE void hmw_multiply(const HalfTile &p, const i32 *to, GroupStage<F> *stages, u64 *full, u64 *empty) {
    const u32 l = lane(), g = l / 4, c = l % 4, row = 16 * group();
    float total[16][4], s[16][4];
#pragma unroll
    for (u32 i = 0; i < 64; i++) total[i / 4][i % 4] = 0;
    auto odd = [&](u32 r, u32 chunk) {
        if (F::ALIGN >= 16) return 0u;
        const u32 at = p.row + r < p.m ? p.row + r : p.m - 1;
        return (u32)(u64)(p.w + p.w_stride * (i64)at + (i64)chunk * F::BYTES) & 15;
    };
    for (u32 chunk = 0; chunk < p.n_chunks; chunk++) {
        const u32 n = chunk % 2;
        GroupStage<F> &stage = stages[n];
        bulk_wait(full + n, chunk / 2 % 2);
        // Gathered columns were written as ordinary memory; the products read by another way.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        const u8 *low = stage.w + (row + g) * F::SLOT + odd(row + g, chunk), *high = stage.w + (row + g + 8) * F::SLOT + odd(row + g + 8, chunk);
        HalfRow a, b;
        F::row(low, c, a), F::row(high, c, b);
        // Core matrices that follow one another in k lie 128 bytes apart, those of the next eight columns a group.
        const u64 x = (u64)(shared_address(stage.x) >> 4) | (u64)(128 >> 4) << 16 | (u64)(GROUP >> 4) << 32;
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            const typename F::Raw v = F::raw(low, c, half), w = F::raw(high, c, half);
#pragma unroll
            for (u32 q = 0; q < 4; q++) {
                u32 e[4], f[4];
                F::piece(v, q, c, a.scale[half][0], a.scale[half][1], e);
                F::piece(w, q, c, b.scale[half][0], b.scale[half][1], f);
                const u32 at = 4 * half + q;
                group_fence();
                group_product(s, e[0], f[0], e[1], f[1], x + at * 32, at > 0);
                group_product(s, e[2], f[2], e[3], f[3], x + at * 32 + 16, 1);
                group_commit();
                if (at > 0) group_wait<1>();
            }
        }
        group_wait<0>();
#pragma unroll
        for (u32 t = 0; t < 16; t++) {
            const u8 *columns = stage.x + t * GROUP;
            float m[4] = {0, 0, 0, 0};
            if constexpr (F::MIN) {
                const int2_t sums = *(const int2_t *)(columns + GROUP_SUMS + 8 * l);
                mma_halves(m, a.mins, b.mins, a.mins, b.mins, (u32)sums.x, (u32)sums.y);
            }
            const float2_t scale = *(const float2_t *)(columns + GROUP_SCALES + 8 * c);
#pragma unroll
            for (u32 e = 0; e < 4; e++) {
                float sum = times(e < 2 ? a.d : b.d, s[t][e]);
                if constexpr (F::MIN) sum = fused(e < 2 ? a.m : b.m, m[e], sum);
                total[t][e] = fused(e % 2 ? scale.y : scale.x, sum, total[t][e]);
            }
        }
        arrive(empty + n);
    }
#pragma unroll
    for (u32 t = 0; t < 16; t++)
#pragma unroll
        for (u32 e = 0; e < 4; e++) {
            const u32 r = p.row + row + 8 * (e / 2) + g;
            const i32 where = to[8 * t + 2 * c + e % 2];
            if (r >= p.m || where < 0) continue;
            const i64 at = where * p.out_stride + r;
            float y = total[t][e];
            if (p.bias) y = plus(y, p.bias[r]);
            if (p.residual) y = plus(y, p.residual[at]);
            p.out[at] = y;
        }
}

// `from` and `to` as hmm_tile; `from` null: columns lie one after another from `first_column` on.
template <class F> DEVICE void hmw_tile(const HalfTile &p, const i32 *from, const i32 *to, u32 first_column) {
    SHARED u64 full[2], empty[2];
    GroupStage<F> *stages = (GroupStage<F> *)(dynamic_shared() + 1024);
    if (tid() == 0) {
        for (u32 i = 0; i < 2; i++) count_on(full + i, 129), count_on(empty + i, 256);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    barrier();
    if (group() >= 8) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        hmw_fetch<F>(p, from, first_column, stages, full, empty);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        hmw_multiply<F>(p, to, stages, full, empty);
    }
}

template <class F> DEVICE void hmw(const HalfArgs &a) {
    i32 *from = (i32 *)dynamic_shared(), *to = from + 128;
    grid_release();
    const HalfTile p = hmm_place<HMW_COLUMNS>(a, from, to);
    grid_wait();
    barrier();
    hmw_tile<F>(p, nullptr, to, bid_y() * HMW_COLUMNS);
}

template <class F> DEVICE void hmoew(const HalfExpertArgs &a) {
    i32 *from = (i32 *)dynamic_shared(), *to = from + 128;
    grid_release();
    grid_wait();
    HalfTile p;
    if (!hmoem_place<HMW_COLUMNS>(a, from, to, p)) return;
    hmw_tile<F>(p, from, to, 0);
}

#endif
