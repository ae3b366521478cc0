// Experts and rows: RouterTopK, ExpertCombine, GatherRows.
//
// Launch: `router` one block of 32 threads a token, at most 1024 experts; `combine` and `gather` grid (ceil(width / 256), rows), 256
// threads. The router's choice is exact for scores that differ; weights are within 12 units, `combine` adds in the order of k.
#include "functions.h"

struct RouterArgs {
    i32 *ids;
    float *weights;
    const float *logits;
    const float *bias;
    i64 ids_nb;
    i64 weights_nb;
    i64 logits_nb;
    i32 n;
    i32 k;
    // StrataRouterScore.
    i32 score;
    i32 normalise;
    i32 groups;
    i32 kept;
    float factor;
    float least;
};

// A number whose order is that of the float; 0 for a NaN. Both zeros are one.
DEVICE u32 key_of(float x) {
    u32 bits = bits_of(x + 0.0f);
    return x == x ? (bits >> 31 ? ~bits : bits | 0x80000000u) : 0;
}
// Greatest over 32 lanes.
DEVICE u32 group_most(u32 x) {
#if defined(STRATA_PTX) && __CUDA_ARCH__ >= 800
    asm("redux.sync.max.u32 %0, %0, 0xffffffff;" : "+r"(x));
    return x;
#else
    for (u32 mask = 16; mask > 0; mask /= 2) {
        u32 other = (u32)shfl_xor_i((i32)x, mask);
        x = other > x ? other : x;
    }
    return x;
#endif
}

KERNEL LAUNCH_BOUNDS(32, 1) router(RouterArgs args) {
    grid_release();
    grid_wait();
    SHARED float score[1024];
    SHARED float biased[1024];
    SHARED float group_score[1024];
    // The weights while they are worked on.
    SHARED float chosen[1024];
    u32 t = bid_x(), n = (u32)args.n;
    const float *logits = (const float *)((const char *)args.logits + args.logits_nb * t);
    float none = float_of(0xff800000u);
    float greatest = none, sum = 0;
    for (u32 i = lane(); i < n; i += LANES) greatest = maximum(greatest, logits[i]);
    greatest = group_max(greatest);
    if (args.score == 0) {
        for (u32 i = lane(); i < n; i += LANES) sum += exp_of(logits[i] - greatest);
        sum = group_sum(sum);
    }
    for (u32 i = lane(); i < n; i += LANES) {
        float x = logits[i], s = x;
        if (args.score == 0) s = divide(exp_of(x - greatest), sum);
        else if (args.score == 2) s = sigmoid_of(x);
        else if (args.score == 3) s = square_root(softplus_of(x));
        score[i] = s;
        biased[i] = args.bias ? s + args.bias[i] : s;
    }
    barrier();
    if (args.groups > 0) {
        u32 size = n / (u32)args.groups;
        for (u32 g = lane(); g < (u32)args.groups; g += LANES) {
            float first = none, second = none;
            for (u32 i = g * size; i < (g + 1) * size; i++) {
                float s = biased[i];
                if (s > first) {
                    second = first;
                    first = s;
                } else if (s > second) second = s;
            }
            group_score[g] = size > 1 ? first + second : first;
        }
        barrier();
        if (tid() == 0) {
            // Marks the kept groups by a score that no sum has.
            for (i32 round = 0; round < args.kept; round++) {
                i32 best = -1;
                for (i32 g = 0; g < args.groups; g++)
                    if (group_score[g] == group_score[g] && (best < 0 || group_score[g] > group_score[best])) best = g;
                if (best >= 0) group_score[best] = float_of(0x7fc00000u);
            }
        }
        barrier();
        for (u32 i = lane(); i < n; i += LANES)
            if (group_score[i / size] == group_score[i / size]) biased[i] = float_of(0x7fc00000u);
        barrier();
    }
    i32 *ids = (i32 *)((char *)args.ids + args.ids_nb * t);
    float *weights = (float *)((char *)args.weights + args.weights_nb * t);
    float total = 0;
    float chosen_greatest = none;
    // Few enough experts stay in registers, as keys that compare like the scores; 0: chosen, or not a number.
    const bool few = n <= 8 * LANES;
    u32 keys[8];
#pragma unroll
    for (u32 j = 0; j < 8; j++) {
        u32 i = lane() + LANES * j;
        keys[j] = few && i < n ? key_of(biased[i]) : 0;
    }
    for (i32 round = 0; few && round < args.k; round++) {
        u32 best = 0;
#pragma unroll
        for (u32 j = 0; j < 8; j++) best = keys[j] > best ? keys[j] : best;
        best = group_most(best);
        u32 mine = 0;
        // The lowest place is the greatest of its complement.
#pragma unroll
        for (u32 j = 8; j-- > 0;) mine = best > 0 && keys[j] == best ? ~(lane() + LANES * j) : mine;
        i32 place = best > 0 ? (i32)~group_most(mine) : round < (i32)n ? round : 0;
#pragma unroll
        for (u32 j = 0; j < 8; j++) keys[j] = (u32)place == lane() + LANES * j ? 0 : keys[j];
        float w = score[place];
        if (round == 0) chosen_greatest = w;
        if (args.score == 1) w = exp_of(w - chosen_greatest);
        total += w;
        if (tid() == 0) ids[round] = place, chosen[round] = w;
    }
    barrier();
    for (i32 round = 0; !few && round < args.k; round++) {
        float best = none;
        i32 place = 0x7fffffff;
        for (u32 i = lane(); i < n; i += LANES) {
            float s = biased[i];
            if (s == s && (place == 0x7fffffff || s > best)) {
                best = s;
                place = (i32)i;
            }
        }
        for (u32 mask = 16; mask > 0; mask /= 2) {
            float value = shfl_xor(best, mask);
            i32 other = shfl_xor_i(place, mask);
            if (other != 0x7fffffff && (place == 0x7fffffff || value > best || (value == best && other < place))) {
                best = value;
                place = other;
            }
        }
        // Fewer candidates than k cannot be: the host checks the shapes. NaN logits end here.
        if (place == 0x7fffffff) place = round < (i32)n ? round : 0;
        float w = score[place];
        if (round == 0) chosen_greatest = w;
        if (args.score == 1) w = exp_of(w - chosen_greatest);
        total += w;
        barrier();
        if (tid() == 0) {
            ids[round] = place;
            chosen[round] = w;
            biased[place] = float_of(0x7fc00000u);
        }
        barrier();
    }
    // Each number by itself in all lanes, sums in the order of k.
    for (i32 j = (i32)lane(); j < args.k; j += (i32)LANES)
        if (args.score == 1) chosen[j] = divide(chosen[j], total);
    barrier();
    float all = 1.0f;
    if (args.normalise) {
        all = 0;
        for (i32 j = 0; j < args.k; j++) all += chosen[j];
        all = maximum(all, args.least);
    }
    for (i32 j = (i32)lane(); j < args.k; j += (i32)LANES) {
        float w = chosen[j];
        if (args.normalise) w = divide(w, all);
        weights[j] = w * args.factor;
    }
}

struct CombineArgs {
    float *out;
    const float *x;
    const float *weights;
    // Added to the sum (the residual stream), or null.
    const float *add;
    i64 out_nb;
    i64 x_nb[2];
    i64 weights_nb;
    i64 add_nb;
    i32 n;
    i32 k;
};

KERNEL LAUNCH_BOUNDS(256, 1) combine(CombineArgs args) {
    grid_release();
    grid_wait();
    u32 i = bid_x() * 256 + tid(), t = bid_y();
    if (i >= (u32)args.n) return;
    const float *weights = (const float *)((const char *)args.weights + args.weights_nb * t);
    const char *x = (const char *)args.x + args.x_nb[1] * t;
    float sum = 0;
    for (i32 j = 0; j < args.k; j++) sum += weights[j] * ((const float *)(x + args.x_nb[0] * j))[i];
    if (args.add) sum = ((const float *)((const char *)args.add + args.add_nb * t))[i] + sum;
    ((float *)((char *)args.out + args.out_nb * t))[i] = sum;
}

struct GatherArgs {
    float *out;
    const float *x;
    const i32 *rows;
    i64 out_nb;
    i64 x_nb;
    i32 n;
};

KERNEL LAUNCH_BOUNDS(256, 1) gather(GatherArgs args) {
    grid_release();
    grid_wait();
    u32 i = bid_x() * 256 + tid(), o = bid_y();
    if (i >= (u32)args.n) return;
    ((float *)((char *)args.out + args.out_nb * o))[i] = ((const float *)((const char *)args.x + args.x_nb * args.rows[o]))[i];
}
